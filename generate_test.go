package minfer_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/internal/sampling"
)

// TestStorytellerGolden holds the model that every clone has to its recorded
// continuations, wherever the exact logits leave no doubt.
func TestStorytellerGolden(t *testing.T) {
	var golden struct{ Prompts []realPrompt }
	readJSON(t, "testdata/storyteller-q4_0.json", &golden)
	m := openStoryteller(t)
	for _, p := range golden.Prompts {
		t.Run(p.Name, func(t *testing.T) {
			checkPrompt(t, m, p)
			checkContinuation(t, m, p, 0.1)
		})
	}
}

const fox = "Tell me a story about a brave fox."

// foxStory is the beginning of the greedy answer.
const foxStory = "There once was a brave fox who lived in a dark forest. His name was Hugo."

func greedy(more ...minfer.GenerateOption) []minfer.GenerateOption {
	return append([]minfer.GenerateOption{minfer.Temperature(0), minfer.ParseSpecial()}, more...)
}

// TestGreedyIsArgmax compares a greedy answer with the largest logits.
func TestGreedyIsArgmax(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	a := mustRead(t, s.Generate(t.Context(), chatML(fox), greedy()...))
	if !strings.HasPrefix(a.text, foxStory) || a.finish != minfer.FinishedTurn {
		t.Errorf("the answer is %q, finished by %v", a.text, a.finish)
	}
	tokens := s.Tokens()
	prompt := encode(t, m, chatML(fox))
	if diff := cmp.Diff(append(prompt, a.tokens...), tokens); diff != "" {
		t.Fatalf("the sequence is not the prompt and the answer (-want +got):\n%s", diff)
	}
	rows := evalAll(t, newSession(t, m), tokens)
	for i, token := range a.tokens {
		if best := argmax(rows[len(prompt)-1+i]); best != token {
			t.Errorf("token %d is %d, the largest logit is %d", i, token, best)
		}
	}
	if last := a.tokens[len(a.tokens)-1]; !m.Tokenizer().IsEndOfGeneration(last) {
		t.Errorf("the last token is %d, want an end of turn", last)
	}
	u := s.Usage()
	if u.Cached != 0 || u.Prompt != len(prompt) || u.Generated != len(a.tokens) || u.PromptTime <= 0 || u.GenerateTime <= 0 {
		t.Errorf("usage is %+v, want %d of the prompt and %d generated", u, len(prompt), len(a.tokens))
	}
}

// TestStopStrings stops at every part of an answer in turn. The text ends before the
// first occurrence, the session holds just the tokens that end before it too, and goes on
// from there like any other session.
//
// Case B18, in a session: what a stop string takes back.
func TestStopStrings(t *testing.T) {
	m := openStoryteller(t)
	prompt := encode(t, m, chatML(fox))
	whole := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, greedy(minfer.MaxTokens(30))...))
	ends := textEnds(m, whole.tokens)
	s := newSession(t, m)
	for length := 1; length <= 16; length += 3 {
		for from := 0; from+length <= len(whole.text); from += 4 {
			stop := whole.text[from : from+length]
			before := whole.text[:strings.Index(whole.text, stop)]
			if _, err := s.SetTokens(t.Context(), prompt); err != nil {
				t.Fatal(err)
			}
			a := mustRead(t, s.GenerateTokens(t.Context(), nil, greedy(minfer.Stop("no such text", stop), minfer.MaxTokens(40))...))
			if a.text != before || a.finish != minfer.FinishedStop {
				t.Fatalf("stop %q: %q, finished by %v, want %q", stop, a.text, a.finish, before)
			}
			keep := 0
			for keep < len(ends) && ends[keep] <= len(before) {
				keep++
			}
			want := append(append([]minfer.Token(nil), prompt...), whole.tokens[:keep]...)
			if diff := cmp.Diff(want, s.Tokens()); diff != "" {
				t.Fatalf("stop %q: the sequence differs (-want +got):\n%s", stop, diff)
			}
		}
	}
	wantRow(t, "going on", eval(t, s), eval(t, newSession(t, m), s.Tokens()...))
}

// textEnds returns the length of the text up to each token's end.
func textEnds(m *minfer.Model, tokens []minfer.Token) []int {
	var ends []int
	for i := range tokens {
		ends = append(ends, len(m.Tokenizer().Decode(tokens[:i+1], minfer.DecodeOptions{Continuation: true})))
	}
	return ends
}

// TestStopIsHeldBack looks at the pieces: none shows a part of the stop string, and what
// turns out to be no stop string appears, once, at the end at the latest.
func TestStopIsHeldBack(t *testing.T) {
	m := openStoryteller(t)
	prompt := encode(t, m, chatML(fox))
	plain := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, greedy(minfer.MaxTokens(20))...))
	for n := 1; n <= 20; n++ {
		text := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, greedy(minfer.MaxTokens(n))...)).text
		// A stop string that begins with all of the text holds it back to the end.
		a := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, greedy(minfer.MaxTokens(n), minfer.Stop(plain.text+"!"))...))
		if a.text != text || a.finish != minfer.FinishedLength {
			t.Errorf("%d tokens: %q, finished by %v, want %q by its length", n, a.text, a.finish, text)
		}
		for _, p := range a.pieces[:n-1] {
			if p.Text != "" {
				t.Errorf("%d tokens: %q was shown early", n, p.Text)
			}
		}
	}
}

// TestEarliestStopWins gives several stop strings at once.
func TestEarliestStopWins(t *testing.T) {
	m := openStoryteller(t)
	for _, stops := range [][]string{{"fox", "brave"}, {"brave", "fox"}, {"b", "brave fox"}, {" brave fox w", "brave"}} {
		a := mustRead(t, newSession(t, m).Generate(t.Context(), chatML(fox), greedy(minfer.Stop(stops...))...))
		want := "There once was a "
		if a.text != want || a.finish != minfer.FinishedStop {
			t.Errorf("%q: %q, want %q", stops, a.text, want)
		}
	}
}

// TestWholeCharacters generates at a temperature at which tokens come at random, so that
// bytes that are no text come too.
//
// Case B17: characters that are split over tokens.
func TestWholeCharacters(t *testing.T) {
	m := openStoryteller(t)
	broken := 0
	for seed := range uint64(12) {
		s := newSession(t, m)
		a := mustRead(t, s.Generate(t.Context(), "a", minfer.Temperature(50), minfer.TopK(0), minfer.TopP(1), minfer.MinP(0),
			minfer.Seed(seed), minfer.MaxTokens(60), minfer.PastEnd(), minfer.Stop("no such text", "\xff")))
		for i, p := range a.pieces {
			if !utf8.ValidString(p.Text) {
				t.Errorf("seed %d: piece %d is %q", seed, i, p.Text)
			}
		}
		d := m.Tokenizer().NewDecoder(minfer.DecodeOptions{Continuation: true})
		want := ""
		for _, token := range a.tokens {
			want += d.Push(token)
		}
		want += d.Flush()
		if a.text != want {
			t.Errorf("seed %d: the pieces are %q, the tokens %q", seed, a.text, want)
		}
		if strings.Contains(want, "\uFFFD") {
			broken++
		}
	}
	if broken == 0 {
		t.Error("no answer held broken characters, so nothing was tested")
	}
}

func TestSeeds(t *testing.T) {
	m := openStoryteller(t)
	answers := make(map[string]bool)
	for seed := range uint64(4) {
		opts := greedy(minfer.Temperature(1.5), minfer.TopK(0), minfer.Seed(seed), minfer.MaxTokens(30))
		a := mustRead(t, newSession(t, m).Generate(t.Context(), chatML(fox), opts...))
		b := mustRead(t, newSession(t, m).Generate(t.Context(), chatML(fox), opts...))
		if diff := cmp.Diff(a.tokens, b.tokens); diff != "" {
			t.Errorf("seed %d gives different answers:\n%s", seed, diff)
		}
		answers[a.text] = true
	}
	if len(answers) < 2 {
		t.Error("all seeds give the same answer")
	}
}

// TestLogProbs compares each token's log-probability with the softmax of the logits.
func TestLogProbs(t *testing.T) {
	m := openStoryteller(t)
	for _, temperature := range []float32{0, 1} {
		s := newSession(t, m)
		a := mustRead(t, s.Generate(t.Context(), chatML(fox), greedy(minfer.Temperature(temperature), minfer.LogProbs(), minfer.MaxTokens(20))...))
		rows := evalAll(t, newSession(t, m), s.Tokens())
		sum := 0.0
		for i, p := range a.pieces {
			row := rows[len(rows)-len(a.tokens)-1+i]
			want, err := sampling.LogProb(row, p.Token)
			if err != nil {
				t.Fatal(err)
			}
			if p.LogProb != want {
				t.Errorf("temperature %v: token %d: %v, want %v", temperature, i, p.LogProb, want)
			}
			total := 0.0
			for _, l := range row {
				total += math.Exp(float64(l - row[p.Token]))
			}
			sum += math.Log(total) + float64(p.LogProb)
		}
		if math.Abs(sum) > 1e-3 {
			t.Errorf("temperature %v: log-probabilities are off by %v in all", temperature, sum)
		}
	}
	a := mustRead(t, newSession(t, m).Generate(t.Context(), chatML(fox), greedy(minfer.MaxTokens(2))...))
	if a.pieces[0].LogProb != 0 {
		t.Errorf("log-probability %v without LogProbs", a.pieces[0].LogProb)
	}
}

// TestPastEnd ignores the end of the turn.
func TestPastEnd(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	prompt := chatML("What is 3 + 4?")
	a := mustRead(t, s.Generate(t.Context(), prompt, greedy(minfer.MaxTokens(30))...))
	if a.finish != minfer.FinishedTurn || len(a.tokens) >= 30 {
		t.Fatalf("%d tokens, finished by %v", len(a.tokens), a.finish)
	}
	b := mustRead(t, newSession(t, m).Generate(t.Context(), prompt, greedy(minfer.MaxTokens(30), minfer.PastEnd())...))
	if b.finish != minfer.FinishedLength || len(b.tokens) != 30 {
		t.Errorf("%d tokens, finished by %v, want 30 by the length", len(b.tokens), b.finish)
	}
	if diff := cmp.Diff(a.tokens, b.tokens[:len(a.tokens)]); diff != "" {
		t.Errorf("the answer differs (-turn +past):\n%s", diff)
	}
}

// TestInterrupted breaks off, cancels, and panics in the middle of an answer. What follows is
// what would have followed.
func TestInterrupted(t *testing.T) {
	m := openStoryteller(t)
	prompt := encode(t, m, chatML(fox))
	whole := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, greedy(minfer.MaxTokens(24))...))
	for name, interrupt := range map[string]func(*testing.T, *minfer.Session, int){
		"break": func(t *testing.T, s *minfer.Session, n int) {
			for _, err := range s.GenerateTokens(t.Context(), prompt, greedy()...) {
				if err != nil {
					t.Fatal(err)
				}
				if n--; n == 0 {
					break
				}
			}
		},
		"cancel": func(t *testing.T, s *minfer.Session, n int) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var last error
			for _, err := range s.GenerateTokens(ctx, prompt, greedy()...) {
				if last = err; err != nil {
					continue
				}
				if n--; n == 0 {
					cancel()
				}
			}
			wantError(t, last, context.Canceled)
		},
		"panic": func(t *testing.T, s *minfer.Session, n int) {
			defer func() {
				if v := recover(); v != "out of the loop" {
					t.Errorf("the panic became %v", v)
				}
			}()
			for range s.GenerateTokens(t.Context(), prompt, greedy()...) {
				if n--; n == 0 {
					panic("out of the loop")
				}
			}
		},
	} {
		for _, n := range []int{1, 7} {
			s := newSession(t, m)
			interrupt(t, s, n)
			want := append(append([]minfer.Token(nil), prompt...), whole.tokens[:n]...)
			if diff := cmp.Diff(want, s.Tokens()); diff != "" {
				t.Errorf("%s after %d: the sequence differs (-want +got):\n%s", name, n, diff)
			}
			rest := mustRead(t, s.GenerateTokens(t.Context(), nil, greedy(minfer.MaxTokens(24-n))...))
			if diff := cmp.Diff(whole.tokens[n:], rest.tokens); diff != "" {
				t.Errorf("%s after %d: the rest differs (-want +got):\n%s", name, n, diff)
			}
		}
	}
}

// TestCancelGeneration cancels at every stage of a generation, prompt included.
func TestCancelGeneration(t *testing.T) {
	m := openStoryteller(t)
	prompt := encode(t, m, chatML(fox))
	whole := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, greedy(minfer.MaxTokens(10))...))
	cancelled := 0
	for left := 0; left < 700; left += 17 {
		s := newSession(t, m, minfer.WithBatch(8))
		a, err := read(s.GenerateTokens(&countdown{Context: t.Context(), left: left}, prompt, greedy(minfer.MaxTokens(10))...))
		if err != nil {
			cancelled++
			wantError(t, err, context.Canceled)
		}
		if len(a.tokens) == 0 {
			if s.Len() != 0 {
				t.Fatalf("left %d: %d tokens after a cancelled prompt, want none", left, s.Len())
			}
			continue
		}
		rest := mustRead(t, s.GenerateTokens(t.Context(), nil, greedy(minfer.MaxTokens(max(10-len(a.tokens), 1)))...))
		if got := append(a.tokens, rest.tokens...)[:10]; cmp.Diff(whole.tokens, got) != "" {
			t.Errorf("left %d: %v, want %v", left, got, whole.tokens)
		}
	}
	if cancelled == 0 {
		t.Error("nothing was cancelled")
	}
}

func TestGenerateRefuses(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	eval(t, s, 1, 2, 3)
	nan := float32(math.NaN())
	for name, o := range map[string]minfer.GenerateOption{
		"negative length":      minfer.MaxTokens(-1),
		"empty stop":           minfer.Stop("a", ""),
		"long stop":            minfer.Stop(strings.Repeat("x", 5000)),
		"many stops":           minfer.Stop(make([]string, 100)...),
		"negative temperature": minfer.Temperature(-1),
		"NaN temperature":      minfer.Temperature(nan),
		"infinite temperature": minfer.Temperature(float32(math.Inf(1))),
		"negative top-k":       minfer.TopK(-1),
		"top-p over 1":         minfer.TopP(1.5),
		"NaN top-p":            minfer.TopP(nan),
		"negative min-p":       minfer.MinP(-0.1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(s.GenerateTokens(t.Context(), []minfer.Token{4}, o))
			wantError(t, err, minfer.ErrOption)
			var option *minfer.OptionError
			if !errors.As(err, &option) || option.Option == "" || option.Reason == "" {
				t.Errorf("error is %#v, want an *OptionError with a reason", err)
			}
		})
	}
	if diff := cmp.Diff([]minfer.Token{1, 2, 3}, s.Tokens()); diff != "" {
		t.Errorf("the sequence has changed (-want +got):\n%s", diff)
	}
	mustRead(t, s.GenerateTokens(t.Context(), nil, nil, minfer.MaxTokens(1)))
}

// TestLoopBody does to the session, in the loop's body, what a program might.
func TestLoopBody(t *testing.T) {
	m := openStoryteller(t)
	prompt := encode(t, m, chatML(fox))
	for name, c := range map[string]struct {
		do   func(*minfer.Session)
		want error
	}{
		"look":      {func(s *minfer.Session) { s.Tokens(); s.Len(); s.Usage(); s.Cache().Stats() }, nil},
		"logits":    {func(s *minfer.Session) { s.Eval(context.Background(), nil) }, nil},
		"fork":      {func(s *minfer.Session) { f, _ := s.Fork(); f.Eval(context.Background(), []minfer.Token{1}); f.Close() }, nil},
		"save":      {func(s *minfer.Session) { s.Save(discard{}) }, nil},
		"rewind":    {func(s *minfer.Session) { s.Rewind(3) }, minfer.ErrBusy},
		"eval":      {func(s *minfer.Session) { s.Eval(context.Background(), []minfer.Token{1}) }, minfer.ErrBusy},
		"generate":  {func(s *minfer.Session) { read(s.GenerateTokens(context.Background(), nil, minfer.MaxTokens(2))) }, minfer.ErrBusy},
		"close":     {func(s *minfer.Session) { s.Close() }, minfer.ErrClosed},
		"its cache": {func(s *minfer.Session) { s.Cache().Close() }, minfer.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, m)
			n := 0
			var last error
			for _, err := range s.GenerateTokens(t.Context(), prompt, greedy(minfer.MaxTokens(8))...) {
				if last = err; err != nil {
					continue
				}
				if n++; n == 3 {
					c.do(s)
				}
			}
			if !errors.Is(last, c.want) {
				t.Errorf("the answer ended with %v, want %v", last, c.want)
			}
			if c.want == nil && n != 8 || c.want != nil && n != 3 {
				t.Errorf("%d pieces", n)
			}
		})
	}
}

// TestRangeTwice ranges over the same answer again, which appends the prompt again.
func TestRangeTwice(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	answer := s.GenerateTokens(t.Context(), []minfer.Token{1, 2}, greedy(minfer.MaxTokens(3), minfer.PastEnd())...)
	if s.Len() != 0 {
		t.Error("something was evaluated before the answer was ranged over")
	}
	mustRead(t, answer)
	mustRead(t, answer)
	if s.Len() != 10 {
		t.Errorf("%d tokens, want 10", s.Len())
	}
}

// TestParseSpecial appends the text of special tokens to a prompt as text, and as
// what it says.
func TestParseSpecial(t *testing.T) {
	m := openStoryteller(t)
	for _, c := range []struct {
		opts  []minfer.GenerateOption
		turns int
	}{
		{nil, 0},
		{[]minfer.GenerateOption{minfer.ParseSpecial()}, 3},
	} {
		s := newSession(t, m)
		opts := append(c.opts, minfer.Temperature(0), minfer.MaxTokens(1))
		mustRead(t, s.Generate(t.Context(), chatML("x"), opts...))
		tokens := s.Tokens()
		if got := countControl(m, tokens[:len(tokens)-1]); got != c.turns {
			t.Errorf("%d control tokens, want %d", got, c.turns)
		}
	}
}

func countControl(m *minfer.Model, tokens []minfer.Token) int {
	n := 0
	for _, token := range tokens {
		if text := string(m.Tokenizer().TokenBytes(token)); strings.HasPrefix(text, "<|") && strings.HasSuffix(text, "|>") {
			n++
		}
	}
	return n
}

func TestFinishReasons(t *testing.T) {
	for reason, want := range map[minfer.FinishReason]string{
		minfer.NotFinished: "", minfer.FinishedTurn: "turn", minfer.FinishedStop: "stop",
		minfer.FinishedLength: "length", minfer.FinishedContext: "context", 77: "",
	} {
		if got := reason.String(); got != want {
			t.Errorf("reason %d is %q, want %q", reason, got, want)
		}
	}
}

// TestOwnSampler generates with Eval and a sampler, to the same tokens as Generate.
func TestOwnSampler(t *testing.T) {
	m := openStoryteller(t)
	prompt := encode(t, m, chatML(fox))
	settings := minfer.DefaultSampling()
	settings.Seed = 7
	want := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, minfer.WithSampling(settings), minfer.MaxTokens(20)))
	sampler, err := m.NewSampler(settings)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, m)
	for _, token := range prompt {
		sampler.Accept(token)
	}
	next := prompt
	for i, token := range want.tokens {
		logits, err := s.Eval(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		got, err := sampler.Sample(logits)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != token {
			t.Fatalf("token %d is %d, want %d", i, got.ID, token)
		}
		sampler.Accept(got.ID)
		next = []minfer.Token{got.ID}
	}
	settings.Temperature = -1
	_, err = m.NewSampler(settings)
	wantError(t, err, minfer.ErrOption)
}
