package minfer_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/internal/testfiles"
)

// factsSchema is the form of the facts that the storyteller gives of its stories, and others.
const factsSchema = `{"type": "object", "properties": {
	"name": {"type": "string", "maxLength": 20}, "animal": {"enum": ["fox", "owl", "bear"]},
	"age": {"type": "integer", "minimum": 1, "maximum": 99}, "friends": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}
}, "required": ["name", "animal", "age"], "additionalProperties": false}`

type facts struct {
	Name    string
	Animal  string
	Age     int
	Friends []string
}

// checkFacts says what is wrong with a text under factsSchema.
func checkFacts(text string) error {
	var f facts
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return err
	}
	if f.Age < 1 || f.Age > 99 || len(f.Friends) > 3 || !strings.Contains("fox owl bear", f.Animal) {
		return errors.New("against the schema")
	}
	return nil
}

var numberGrammar = `root ::= "The number is " [1-9] [0-9]{2} "."`

// Whatever the sampling, a complete answer has the form that was asked for.
func TestConstrainedAnswers(t *testing.T) {
	pattern := regexp.MustCompile(`^(?:(red|green|blue), ){2}[0-9]+ ö$`)
	number := regexp.MustCompile(`^The number is [1-9][0-9]{2}\.$`)
	matches := func(r *regexp.Regexp) func(string) error {
		return func(text string) error {
			if !r.MatchString(text) {
				return errors.New("no match")
			}
			return nil
		}
	}
	for _, c := range []struct {
		name   string
		option minfer.GenerateOption
		check  func(string) error
	}{
		{"json", minfer.WithJSON(), func(text string) error {
			var o map[string]any
			return json.Unmarshal([]byte(text), &o)
		}},
		{"schema", minfer.WithJSONSchema(json.RawMessage(factsSchema)), checkFacts},
		{"grammar", minfer.WithGrammar(numberGrammar), matches(number)},
		{"regexp", minfer.WithRegexp(`((red|green|blue), ){2}[0-9]+ ö`), matches(pattern)},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachModel(t, func(t *testing.T, path string) {
				m := openModel(t, path)
				complete := 0
				for seed := range uint64(4) {
					s := newSession(t, m)
					opts := []minfer.GenerateOption{c.option, minfer.MaxTokens(200), minfer.Temperature(float32(seed)), minfer.Seed(seed), minfer.LogProbs(), minfer.PastEnd()}
					a := mustRead(t, s.Generate(context.Background(), "Tell me.", opts...))
					switch a.finish {
					case minfer.FinishedTurn, minfer.FinishedGrammar:
						complete++
						if err := c.check(a.text); err != nil {
							t.Errorf("seed %d: %q: %v", seed, a.text, err)
						}
					case minfer.FinishedLength:
					default:
						t.Errorf("seed %d: %q ended by %v", seed, a.text, a.finish)
					}
					again := mustRead(t, newSession(t, m).Generate(context.Background(), "Tell me.", opts...))
					if again.text != a.text || again.finish != a.finish {
						t.Errorf("seed %d: %q, and then %q", seed, a.text, again.text)
					}
				}
				if complete == 0 && c.name != "json" {
					t.Error("no answer was complete")
				}
			})
		})
	}
}

// Where the model has the choice it takes the likeliest of what is allowed; where it would have
// said the same, it says the same.
func TestConstraintLeavesTheRestAlone(t *testing.T) {
	m := openStoryteller(t)
	prompt := chatML("What colour is the sky?")
	generate := func(opts ...minfer.GenerateOption) said {
		return mustRead(t, newSession(t, m).Generate(context.Background(), prompt, append(opts, minfer.ParseSpecial(), minfer.Temperature(0), minfer.LogProbs())...))
	}
	free, held := generate(), generate(minfer.WithRegexp(`[A-Z][a-z ]+\.`))
	if free.text != "The sky is blue." || held.text != free.text || held.finish != minfer.FinishedGrammar {
		t.Errorf("free %q, constrained %q ended by %v", free.text, held.text, held.finish)
	}
	for i, p := range held.pieces {
		if p.Token != free.tokens[i] || p.LogProb != free.pieces[i].LogProb {
			t.Errorf("piece %d is %+v, want %+v", i, p, free.pieces[i])
		}
	}
	if other := generate(minfer.WithRegexp(`The sky is (red|green|black)\.`)); other.finish != minfer.FinishedGrammar || other.text == free.text {
		t.Errorf("constrained %q ended by %v", other.text, other.finish)
	}
	if turn := generate(minfer.WithRegexp(`The sky is blue\.( Really\.)?`)); turn.text != free.text || turn.finish != minfer.FinishedTurn {
		t.Errorf("where it may end: %q ended by %v", turn.text, turn.finish)
	}
	if empty := generate(minfer.WithRegexp(``)); empty.text != "" || empty.finish != minfer.FinishedGrammar || len(empty.tokens) != 0 {
		t.Errorf("nothing: %+v", empty)
	}
}

// An answer that is cut short says so, and one that is complete with its last token is not.
func TestConstrainedAnswerCutShort(t *testing.T) {
	m := openStoryteller(t)
	option := minfer.WithGrammar(numberGrammar)
	whole := mustRead(t, newSession(t, m).Generate(context.Background(), "A", option))
	n := len(whole.tokens)
	if whole.finish != minfer.FinishedGrammar || n < 3 {
		t.Fatalf("%q, %d tokens, ended by %v", whole.text, n, whole.finish)
	}
	if a := mustRead(t, newSession(t, m).Generate(context.Background(), "A", option, minfer.MaxTokens(n))); a.text != whole.text || a.finish != minfer.FinishedGrammar {
		t.Errorf("%d tokens: %q ended by %v", n, a.text, a.finish)
	}
	if a := mustRead(t, newSession(t, m).Generate(context.Background(), "A", option, minfer.MaxTokens(n-1))); a.finish != minfer.FinishedLength || !strings.HasPrefix(whole.text, a.text) {
		t.Errorf("%d tokens: %q ended by %v", n-1, a.text, a.finish)
	}
	small, err := m.NewSession(minfer.WithContext(n))
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if a := mustRead(t, small.Generate(context.Background(), "A", option)); a.finish != minfer.FinishedContext || !strings.HasPrefix(whole.text, a.text) {
		t.Errorf("context of %d: %q ended by %v", n, a.text, a.finish)
	}
	if a := mustRead(t, newSession(t, m).Generate(context.Background(), "A", option, minfer.Stop("is"))); a.text != "The number " || a.finish != minfer.FinishedStop {
		t.Errorf("stop: %q ended by %v", a.text, a.finish)
	}
}

// What cannot be held to is an error before anything is evaluated, and says where.
func TestConstraintErrors(t *testing.T) {
	m := openStoryteller(t)
	for _, c := range []struct {
		option minfer.GenerateOption
		text   string
	}{
		{minfer.WithJSONSchema(json.RawMessage(`{"properties": {"a": {"type": "text"}}}`)), "#/properties/a/type"},
		{minfer.WithJSONSchema(nil), "WithJSONSchema"},
		{minfer.WithJSONSchema(json.RawMessage(`{`)), "WithJSONSchema"},
		{minfer.WithGrammar(`root ::= "a`), "line 1"},
		{minfer.WithGrammar(`root ::= root "a"`), "left recursion"},
		{minfer.WithRegexp(`(a`), "WithRegexp"},
	} {
		s := newSession(t, m)
		_, err := read(s.Generate(context.Background(), "Hello", c.option))
		var option *minfer.OptionError
		if !errors.Is(err, minfer.ErrOption) || !errors.As(err, &option) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %q in it", err, c.text)
		}
		if s.Len() != 0 {
			t.Error("the prompt was evaluated")
		}
	}
	var schema *minfer.SchemaError
	_, err := read(newSession(t, m).Generate(context.Background(), "Hello", minfer.WithJSONSchema(json.RawMessage(`{"properties": {"a": {"not": {}}}}`))))
	if !errors.As(err, &schema) || schema.Pointer == "" {
		t.Errorf("%v", err)
	}
	var syntax *minfer.GrammarError
	_, err = read(newSession(t, m).Generate(context.Background(), "Hello", minfer.WithGrammar("root ::= x")))
	if !errors.As(err, &syntax) || syntax.Line != 1 {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := read(newSession(t, m).Generate(ctx, "Hello", minfer.WithJSON())); !errors.Is(err, context.Canceled) || errors.Is(err, minfer.ErrOption) {
		t.Errorf("cancelled: %v", err)
	}
}

// More grammars than are kept, by many at once.
func TestManyConstraints(t *testing.T) {
	m := openStoryteller(t)
	errs := make(chan error)
	for i := range 4 {
		go func() {
			for j := range 12 {
				word := string(rune('a'+(i+j)%12)) + "bc"
				s, err := m.NewSession()
				if err != nil {
					errs <- err
					return
				}
				a, err := read(s.Generate(context.Background(), "A", minfer.WithRegexp(word)))
				if err == nil && a.text != word {
					err = errors.New(a.text + " is not " + word)
				}
				s.Close()
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A constrained answer is part of a conversation, whose next turn goes on from it.
func TestConstrainedTurn(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	chat := s.Chat()
	a := mustRead(t, chat.Say(context.Background(), "Count to 3.", minfer.WithRegexp(`One, two, four\.`), minfer.Temperature(0)))
	if a.text != "One, two, four." || a.finish != minfer.FinishedGrammar {
		t.Fatalf("%q ended by %v", a.text, a.finish)
	}
	before := s.Len()
	b := mustRead(t, chat.Say(context.Background(), "What colour is the sky?", minfer.Temperature(0)))
	if u := s.Usage(); u.Cached < before-1 {
		t.Errorf("%d tokens of %d were cached", u.Cached, before)
	}
	whole := newSession(t, m).Chat()
	whole.SetMessages(chat.Messages()[:3])
	if want := mustRead(t, whole.Reply(context.Background(), minfer.Temperature(0))); want.text != b.text {
		t.Errorf("%q, want %q", b.text, want.text)
	}
}

// BenchmarkConstrained tells what constraints cost. Free and constrained answers take turns, token by
// token, each the first every other time, so that whatever else the machine does slows both. The
// overhead is the median of the differences.
func BenchmarkConstrained(b *testing.B) {
	m := openModel(b, testfiles.Model(b, "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"))
	schema := `{"type":"object","properties":{"people":{"type":"array","minItems":20,"items":{"type":"object","properties":{
		"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string"},"tags":{"type":"array","items":{"type":"string"},"maxItems":4}},
		"required":["name","age","email","tags"]}}},"required":["people"]}`
	const prompt = "Write a long JSON object that lists twenty people, with name, age, email and tags."
	for _, c := range []struct {
		name   string
		option minfer.GenerateOption
	}{
		{"json", minfer.WithJSON()},
		{"schema", minfer.WithJSONSchema(json.RawMessage(schema))},
	} {
		b.Run(c.name, func(b *testing.B) {
			var times [2][]float64
			for b.Loop() {
				var next [2]func() (minfer.Piece, error, bool)
				for i, opts := range [2][]minfer.GenerateOption{nil, {c.option}} {
					opts = append(opts, minfer.Temperature(0), minfer.MaxTokens(100), minfer.PastEnd())
					pull, stop := iter.Pull2(newSession(b, m).Chat().Say(context.Background(), prompt, opts...))
					defer stop()
					next[i] = pull
					pull() // the prompt
				}
				for more, n := true, 0; more; n++ {
					for k := range next {
						i := (n + k) % 2
						begun := time.Now()
						p, err, ok := next[i]()
						if err != nil {
							b.Fatal(err)
						}
						times[i] = append(times[i], time.Since(begun).Seconds())
						more = more && ok && p.Finish == minfer.NotFinished
					}
				}
			}
			more := make([]float64, min(len(times[0]), len(times[1])))
			for i := range more {
				more[i] = times[1][i] - times[0][i]
			}
			median := func(list []float64) float64 {
				slices.Sort(list)
				return list[len(list)/2]
			}
			free, held, difference := median(times[0]), median(times[1]), median(more)
			b.ReportMetric(1/free, "free-tokens/s")
			b.ReportMetric(1/held, "constrained-tokens/s")
			b.ReportMetric(100*difference/free, "%overhead")
		})
	}
}
