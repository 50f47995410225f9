package stop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// run pushes the pieces and flushes at the end unless a stop string was found.
func run(t testing.TB, stops, pieces []string) (out []string, stopped bool, which string) {
	t.Helper()
	m, err := New(stops)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		var emit string
		emit, stopped, which = m.Push(p)
		out = append(out, emit)
		if stopped {
			break
		}
	}
	out = append(out, m.Flush())
	if again := m.Flush(); again != "" {
		t.Errorf("second Flush returned %q", again)
	}
	return out, stopped, which
}

// reference searches the whole text at once: the match that ends first, of
// those the longest.
func reference(stops []string, text string) (before string, found bool, which string) {
	for end := 1; end <= len(text); end++ {
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) && len(s) > len(which) {
				which, found = s, true
			}
		}
		if found {
			return text[:end-len(which)], true, which
		}
	}
	return text, false, ""
}

// Case B18: stop strings over token borders.
func TestStopOverTokenBorders(t *testing.T) {
	greek := []string{"alpha", " be", "ta gam", "ma de", "lta"}
	for _, c := range []struct {
		name    string
		stops   []string
		pieces  []string
		want    string
		which   string
		stopped bool
	}{
		{"over three pieces", []string{"beta gamma"}, greek, "alpha ", "beta gamma", true},
		{"token limit flushes what was held", []string{"beta gamma"}, greek[:2], "alpha be", "", false},
		{"almost a stop string", []string{"\n", "Alice:"}, []string{" Alice", "!", " x"}, " Alice! x", "", false},
		{"the earliest match wins", []string{"a", "ab"}, []string{"x", "ab", "y"}, "x", "a", true},
		{"in whatever order they are listed", []string{"ab", "a"}, []string{"x", "ab", "y"}, "x", "a", true},
		{"complete at the same byte: the longest", []string{"c", "bc", "abc"}, []string{"xabc"}, "x", "abc", true},
		{"complete first though it starts later", []string{"abcde", "bcd"}, []string{"abcde"}, "a", "bcd", true},
		{"emoji over pieces", []string{"ok 🙂"}, []string{"so ok", " \xf0\x9f", "\x99\x82 and"}, "so ", "ok 🙂", true},
		{"overlap with itself", []string{"aab"}, []string{"a", "a", "a", "b"}, "a", "aab", true},
		{"a stop string at the very start", []string{"alpha"}, greek, "", "alpha", true},
		{"no stop strings", nil, greek, "alpha beta gamma delta", "", false},
		{"nothing at all", []string{"x"}, nil, "", "", false},
		{"empty pieces", []string{"ab"}, []string{"", "a", "", "c", ""}, "ac", "", false},
		{"the same string twice", []string{"ab", "ab"}, []string{"zab"}, "z", "ab", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, stopped, which := run(t, c.stops, c.pieces)
			if got := strings.Join(out, ""); got != c.want || stopped != c.stopped || which != c.which {
				t.Errorf("got %q, %v, %q; want %q, %v, %q", got, stopped, which, c.want, c.stopped, c.which)
			}
		})
	}
}

func TestPiecesAsEmitted(t *testing.T) {
	out, _, _ := run(t, []string{"\n", "Alice:"}, []string{" Alice", "!", " x"})
	if got, want := fmt.Sprintf("%q", out), `[" " "Alice!" " x" ""]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	out, _, _ = run(t, []string{"beta gamma"}, []string{"alpha", " be", "ta gam", "ma de"})
	if got, want := fmt.Sprintf("%q", out), `["alpha" " " "" "" ""]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		stops []string
		index int
	}{
		{[]string{""}, 0},
		{[]string{"a", ""}, 1},
		{[]string{strings.Repeat("x", MaxLength+1)}, 0},
		{make([]string, MaxStops+1), -1},
	} {
		_, err := New(c.stops)
		var e *Error
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &e) || e.Index != c.index {
			t.Errorf("%d strings: got %v, want ErrInvalid at %d", len(c.stops), err, c.index)
		}
	}
	if _, err := New([]string{strings.Repeat("x", MaxLength)}); err != nil {
		t.Errorf("a stop string of the greatest length: %v", err)
	}
}

func TestMessages(t *testing.T) {
	_, err := New([]string{"x", ""})
	if want := "stop: stop string 1: empty; it would match everywhere, leave it out instead"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = New(make([]string, 65))
	if want := "stop: 65 stop strings, at most 64 are allowed"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A Pattern by itself goes on after a match and finds overlapping ones.
func TestPatternFindsAllOccurrences(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[rng.IntN(2)]
		}
		return string(b)
	}
	for range 2000 {
		p, text := Compile(random(1+rng.IntN(6))), random(40)
		state := 0
		for i := range text {
			var complete bool
			state, complete = p.Step(state, text[i])
			if want := strings.HasSuffix(text[:i+1], p.String()); complete != want {
				t.Fatalf("%q in %q: %v, want %v", p, text[:i+1], complete, want)
			}
		}
	}
}

func TestStaysStopped(t *testing.T) {
	m, _ := New([]string{"end"})
	if emit, stopped, which := m.Push("the end of it"); emit != "the " || !stopped || which != "end" {
		t.Fatalf("got %q, %v, %q", emit, stopped, which)
	}
	if emit, stopped, which := m.Push("more"); emit != "" || !stopped || which != "end" {
		t.Errorf("after the stop: %q, %v, %q", emit, stopped, which)
	}
	if got := m.Flush() + m.Held(); got != "" {
		t.Errorf("after the stop something is held: %q", got)
	}
	m.Reset()
	if emit, stopped, _ := m.Push("the en"); emit != "the " || stopped || m.Held() != "en" {
		t.Errorf("after Reset: %q, %v, held %q", emit, stopped, m.Held())
	}
}

func TestCloneIsIndependent(t *testing.T) {
	m, _ := New([]string{"abc"})
	m.Push("xab")
	c := m.Clone()
	if emit, _, _ := c.Push("d"); emit != "abd" {
		t.Errorf("clone emitted %q", emit)
	}
	if emit, stopped, _ := m.Push("c"); emit != "" || !stopped {
		t.Errorf("original: %q, %v", emit, stopped)
	}
}

// Text over a tiny alphabet meets partial, overlapping and nested matches all
// the time; however it is cut, the outcome is that of the whole text.
func TestAnyCutGivesTheSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := []rune("abé🙂")
	random := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteRune(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	for range 5000 {
		stops := make([]string, 1+rng.IntN(4))
		for i := range stops {
			stops[i] = random(1 + rng.IntN(5))
		}
		text := random(rng.IntN(30))
		var pieces []string
		for rest := []rune(text); len(rest) > 0; {
			n := 1 + rng.IntN(min(4, len(rest)))
			pieces = append(pieces, string(rest[:n]))
			rest = rest[n:]
		}
		check(t, stops, pieces)
		out, _, _ := run(t, stops, pieces)
		for _, s := range out {
			if !utf8.ValidString(s) {
				t.Fatalf("stops %q, pieces %q: emitted the broken text %q", stops, pieces, s)
			}
		}
	}
}

func check(t *testing.T, stops, pieces []string) {
	t.Helper()
	out, stopped, which := run(t, stops, pieces)
	want, wantStopped, wantWhich := reference(stops, strings.Join(pieces, ""))
	if got := strings.Join(out, ""); got != want || stopped != wantStopped || which != wantWhich {
		t.Fatalf("stops %q, pieces %q: got %q, %v, %q; want %q, %v, %q",
			stops, pieces, got, stopped, which, want, wantStopped, wantWhich)
	}
}

// A text that nearly matches all the time must not cost quadratic time: the
// automaton takes at most two comparisons per byte on average.
func TestHoldsNoMoreThanAStopString(t *testing.T) {
	stop := strings.Repeat("a", 1000) + "b"
	m, _ := New([]string{stop})
	emitted := 0
	for range 100_000 {
		emit, _, _ := m.Push("a")
		emitted += len(emit)
		if len(m.Held()) >= len(stop) {
			t.Fatalf("%d bytes held", len(m.Held()))
		}
	}
	if emitted != 99_000 {
		t.Errorf("%d bytes emitted, want 99000", emitted)
	}
}

func TestPushWithoutCandidateDoesNotAllocate(t *testing.T) {
	m, _ := New([]string{"</s>", "User:"})
	if n := testing.AllocsPerRun(100, func() { m.Push(" hello") }); n != 0 {
		t.Errorf("%v allocations per Push", n)
	}
}

func FuzzMatcher(f *testing.F) {
	f.Add("beta gamma", "a", "alpha beta gamma delta", uint64(3))
	f.Add("aab", "aaab", "aaaaab", uint64(1))
	f.Add("\xff", "\x80\xff", "a\x80\x80\xff", uint64(9))
	f.Fuzz(func(t *testing.T, a, b, text string, cuts uint64) {
		if a == "" || b == "" || len(a)+len(b)+len(text) > 1000 {
			return
		}
		var pieces []string
		rng := rand.New(rand.NewPCG(cuts, 0))
		for text != "" {
			n := 1 + rng.IntN(len(text))
			pieces = append(pieces, text[:n])
			text = text[n:]
		}
		check(t, []string{a, b}, pieces)
	})
}

func ExampleMatcher() {
	m, err := New([]string{"beta gamma"})
	if err != nil {
		panic(err)
	}
	for _, piece := range []string{"alpha", " be", "ta gam", "ma de", "lta"} {
		emit, stopped, which := m.Push(piece)
		fmt.Printf("%q ", emit)
		if stopped {
			fmt.Printf("stopped by %q\n", which)
			break
		}
	}
	// Output: "alpha" " " "" "" stopped by "beta gamma"
}

func BenchmarkPush(b *testing.B) {
	m, _ := New([]string{"</s>", "<|im_end|>", "\nUser:", "###"})
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		m.Push(text)
	}
}
