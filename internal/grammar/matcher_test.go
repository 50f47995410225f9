package grammar

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

func mustJSON(t testing.TB) *Grammar {
	t.Helper()
	g, err := JSON(background)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestMatcher(t *testing.T) {
	m := mustGBNF(t, `root ::= "ab" "c"? | "é"`).Bind(toy).Matcher()
	if m.CanEnd() || m.Complete() {
		t.Error("the beginning is no end")
	}
	var rejected *RejectedError
	if err := m.Accept(end); !errors.As(err, &rejected) || rejected.Token != end {
		t.Errorf("an early end: %v", err)
	}
	if err := m.Accept('b'); !errors.As(err, &rejected) || rejected.Text != "b" || rejected.At != 0 {
		t.Errorf("a wrong byte: %v", err)
	}
	if err := m.AcceptText("aé"); !errors.As(err, &rejected) || rejected.Token != -1 || rejected.At != 1 {
		t.Errorf("a wrong text: %v", err)
	}
	if err := m.Accept(-1); !errors.Is(err, ErrRejected) {
		t.Errorf("token -1: %v", err)
	}
	if err := m.Accept(int32(toy.Size())); !errors.Is(err, ErrRejected) {
		t.Errorf("a token beyond the vocabulary: %v", err)
	}
	if err := m.Accept('a'); err != nil { // rejections have changed nothing
		t.Fatal(err)
	}
	clone := m.Clone()
	if got := string(m.Forced(10)); got != "b" {
		t.Errorf("forced %q", got)
	}
	if err := m.AcceptText("b"); err != nil || !m.CanEnd() || m.Complete() {
		t.Errorf("ab: %v %v %v", err, m.CanEnd(), m.Complete())
	}
	if err := m.AcceptText("c"); err != nil || !m.Complete() {
		t.Errorf("abc: %v %v", err, m.Complete())
	}
	if err := m.Accept(end); err != nil || !m.Complete() || !m.CanEnd() {
		t.Errorf("the end: %v", err)
	}
	if err := m.Accept('a'); !errors.Is(err, ErrRejected) {
		t.Errorf("after the end: %v", err)
	}
	if err := m.Accept(end); err != nil {
		t.Errorf("a second end: %v", err)
	}
	if clone.CanEnd() || clone.AcceptText("b") != nil {
		t.Error("the clone should stand where it was made")
	}
	m.Reset()
	if err := m.Accept(0xC3); err != nil || m.CanEnd() {
		t.Errorf("half a character: %v", err)
	}
	if err := m.Accept(0xA9); err != nil || !m.Complete() {
		t.Errorf("é: %v", err)
	}
}

func TestMask(t *testing.T) {
	m := mustGBNF(t, `root ::= [ab]`).Bind(toy).Matcher()
	logits := make([]float32, toy.Size()+5)
	for i := range logits {
		logits[i] = float32(i)
	}
	if err := m.Mask(logits); err != nil {
		t.Fatal(err)
	}
	for i, x := range logits {
		if i == 'a' || i == 'b' {
			if x != float32(i) {
				t.Errorf("logit %d became %v", i, x)
			}
		} else if !math.IsInf(float64(x), -1) {
			t.Errorf("logit %d is %v", i, x)
		}
	}
	if err := m.Accept('a'); err != nil {
		t.Fatal(err)
	}
	logits = make([]float32, toy.Size())
	if err := m.Mask(logits); err != nil || logits[end] != 0 || slices.Index(logits, 0) != end {
		t.Errorf("only the end should be left: %v", err)
	}
	// A vocabulary that cannot spell what must come.
	poor := NewVocabulary(2, func(id int32) []byte { return []byte{'x'} }, []int32{1, 7, -1})
	if err := mustGBNF(t, `root ::= "y"`).Bind(poor).Matcher().Mask(make([]float32, 2)); !errors.Is(err, ErrDeadEnd) {
		t.Errorf("nothing can follow: %v", err)
	}
	if err := mustGBNF(t, `root ::= ""`).Bind(poor).Matcher().Mask(make([]float32, 2)); err != nil {
		t.Errorf("the end can follow: %v", err)
	}
}

// Masks do not depend on what the cache held before, nor on when it was begun anew.
func TestSmallCache(t *testing.T) {
	g := mustSchema(t, personSchema)
	large, small := g.Bind(toy), g.Bind(toy)
	small.budget = 20000
	r := rand.New(rand.NewPCG(4, 4))
	fresh := 0
	for range 20 {
		a, b := large.Matcher(), small.Matcher()
		for range 60 {
			x, y := make([]float32, toy.Size()), make([]float32, toy.Size())
			if err := errors.Join(a.Mask(x), b.Mask(y)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(x, y) {
				t.Fatal("the masks differ")
			}
			var allowed []int32
			for id, v := range x {
				if v == 0 {
					allowed = append(allowed, int32(id))
				}
			}
			id := allowed[r.IntN(len(allowed))]
			before := b.cache
			if err := errors.Join(a.Accept(id), b.Accept(id)); err != nil {
				t.Fatal(err)
			}
			if before != b.cache {
				fresh++
			}
			if a.CanEnd() != b.CanEnd() || a.Complete() != b.Complete() {
				t.Fatal("the ends differ")
			}
			if id == end {
				break
			}
		}
	}
	if fresh < 20 {
		t.Errorf("the cache was begun anew only %d times", fresh)
	}
	if n := small.cache.Load().grown(); n > 40*small.budget {
		t.Errorf("the cache has %d bytes", n)
	}
}

func TestConcurrent(t *testing.T) {
	g := mustSchema(t, personSchema)
	masker := g.Bind(toy)
	masker.budget = 200000 // so that the cache is begun anew under way
	want := make([]string, 8)
	for i := range want {
		want[i] = string(walk(t, g.Bind(toy), rand.New(rand.NewPCG(uint64(i), 1)), 30))
	}
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			got := string(walk(t, masker, rand.New(rand.NewPCG(uint64(i%8), 1)), 30))
			if got != want[i%8] {
				t.Errorf("generated %q, alone %q", got, want[i%8])
			}
		})
	}
	wait.Wait()
}

// Calls nest to a depth, and up to there every text can be brought to its end.
func TestDepth(t *testing.T) {
	m := mustJSON(t).Bind(toy).Matcher()
	depth := 0
	if err := m.AcceptText(`{"a":`); err != nil {
		t.Fatal(err)
	}
	for ; m.AcceptText("[") == nil; depth++ {
	}
	if depth < maxDepth/3 || depth > maxDepth {
		t.Errorf("arrays nest %d deep", depth)
	}
	logits := make([]float32, toy.Size())
	if err := m.Mask(logits); err != nil || logits[']'] != 0 || !math.IsInf(float64(logits['[']), -1) {
		t.Errorf("at the depth: %v, ] %v, [ %v", err, logits[']'], logits['['])
	}
	if err := m.AcceptText(strings.Repeat("]", depth) + "}"); err != nil || !m.Complete() {
		t.Errorf("the end: %v", err)
	}
	// The end of each level takes a rule of its own; all must fit.
	m = mustGBNF(t, "root ::= \"(\" root x | y\nx ::= \")\" y y\ny ::= z | \"-\" z \"-\"\nz ::= \"!\"").Bind(toy).Matcher()
	for depth = 0; m.AcceptText("(") == nil; depth++ {
	}
	if err := m.AcceptText("!" + strings.Repeat(")-!-!", depth)); err != nil || !m.Complete() {
		t.Errorf("%d levels: %v", depth, err)
	}
	// A rule that ends with a call of itself does not nest.
	m = mustGBNF(t, `root ::= "a" root | "b"`).Bind(toy).Matcher()
	if err := m.AcceptText(strings.Repeat("a", 5*maxDepth) + "b"); err != nil || !m.Complete() {
		t.Errorf("calls at the end: %v", err)
	}
	if n := len(m.cache.states); n > 10 {
		t.Errorf("%d states for one that repeats", n)
	}
}

// Grammars that are made to be expensive are refused, or are not expensive.
func TestHostile(t *testing.T) {
	var many strings.Builder
	many.WriteString("root ::= x")
	for range 3000 {
		many.WriteString(" | x")
	}
	many.WriteString("\nx ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"")
	chain := "root ::= r0\n"
	for i := range 5000 {
		chain += "r" + itoa(i) + " ::= r" + itoa(i+1) + " | \"a\" r" + itoa(i+1) + "\n"
	}
	chain += "r5000 ::= \"b\""
	for name, source := range map[string]string{
		"the same often":      many.String(),
		"a chain":             chain,
		"doubling":            "root ::= a a\na ::= b b\nb ::= c c\nc ::= d d\nd ::= e e\ne ::= f f\nf ::= g g\ng ::= h h\nh ::= \"x\"? \"y\"?",
		"ambiguous":           "root ::= s\ns ::= \"a\" s s | \"a\"",
		"ambiguous repeats":   `root ::= ((("a"? "a"?)* "a"?)* "a"{0,100})* "b"`,
		"counting backwards":  `root ::= [ab]* "a" [ab]{500}`,
		"nested counts":       `root ::= ((([a-z]{0,50} " "){0,50} "\n"){0,50} "!"){0,50}`,
		"returns everywhere":  "root ::= \"a\" root \"b\"? \"c\"? \"d\"? | \"a\" root \"e\"? | \"\"",
		"characters":          `root ::= ([^a] [^b] [^c] .){0,500} [^"]{0,3000}`,
		"long literals":       `root ::= ("` + strings.Repeat("a", 20000) + `" | "` + strings.Repeat("a", 20000) + `b")+`,
		"deep left calls":     "root ::= ((((((((\"a\" | root2) \"b\")?)?)?)?)?)?)?\nroot2 ::= \"x\" root \"y\"",
		"empty alternatives":  "root ::= (" + strings.Repeat("|", 300000) + " \"a\"){60000}",
		"empty parts":         "root ::= (" + strings.Repeat(`"a"*|`, 30000) + ")" + strings.Repeat(` ""`, 100000) + ` "b"`,
		"nothing but repeats": `root ::= ((((("a"?)*)*)+)?)*`,
	} {
		if underRace && len(source) > 200000 {
			continue
		}
		g, err := GBNF(background, source)
		if err != nil {
			if !errors.Is(err, ErrLimit) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		m := g.Bind(toy).Matcher()
		logits := make([]float32, toy.Size())
		tokens := 100
		if underRace {
			tokens = 4
		}
		for _, next := range strings.Repeat("a", tokens) {
			if err := m.Mask(logits); err != nil {
				if !errors.Is(err, ErrLimit) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			if err := m.Accept(next); err != nil {
				if !errors.Is(err, ErrLimit) && !errors.Is(err, ErrRejected) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
		}
		if m.cache != nil && m.cache.grown() > cacheBudget+2*maxBytes {
			t.Errorf("%s: the cache has %d bytes", name, m.cache.grown())
		}
	}
}

func itoa(n int) string { s, _ := json.Marshal(n); return string(s) }

func TestCombine(t *testing.T) {
	literal, err := Literal(background, "<call>")
	if err != nil {
		t.Fatal(err)
	}
	a := mustSchema(t, `{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}`)
	b := mustGBNF(t, "root ::= \"[\" root \"]\" | \"b\"")
	both, err := Choice(background, a, b)
	if err != nil {
		t.Fatal(err)
	}
	call, err := Concat(background, literal, both)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := Repeat(background, call, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`<call>{"x":1}`: true, `<call>[[b]]<call>{"x": 2}`: true, ``: false, `<call>`: false,
		`<call>b<call>b<call>b`: false, `{"x":1}`: false,
	} {
		if matches(t, calls, text) != want {
			t.Errorf("%q matches: %v", text, !want)
		}
	}
	if _, err := Repeat(background, call, 2, 1); !errors.Is(err, ErrEmpty) {
		t.Errorf("bounds the wrong way round: %v", err)
	}
	if _, err := Choice(background); !errors.Is(err, ErrEmpty) {
		t.Errorf("a choice of nothing: %v", err)
	}
	if nothing, err := Concat(background); err != nil || !matches(t, nothing, "") {
		t.Errorf("nothing: %v", err)
	}
	any, err := Repeat(background, b, 0, -1)
	if err != nil || !matches(t, any, "b[b]b") {
		t.Errorf("any number: %v", err)
	}
}
