package minfer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
)

// TestPromptLengths holds prompts around the sizes of a batch and of the context: what
// fits has the logits of any other batch size, and what does not is refused before it
// costs anything.
//
// Case B24.
func TestPromptLengths(t *testing.T) {
	const context, batch = 64, 16
	m := openStoryteller(t)
	tokens := someTokens(m, 1000, 0)
	want := evalAll(t, newSession(t, m), tokens[:context])
	for _, n := range []int{0, 1, 15, 16, 17, 32, 33, 63, 64, 65, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newSession(t, m, minfer.WithContext(context), minfer.WithBatch(batch))
			row, err := s.Eval(t.Context(), tokens[:n])
			switch {
			case n == 0:
				wantError(t, err, minfer.ErrNoTokens)
			case n > context:
				wantContextError(t, err, 0, n, context)
				if built := s.Cache().Stats().Built; built != 0 {
					t.Errorf("%d graphs were built for a prompt that is refused", built)
				}
			default:
				if err != nil {
					t.Fatal(err)
				}
				wantRow(t, "logits", row, want[n-1])
			}
		})
	}
}

// TestGenerateToTheEndOfContext generates without a limit after prompts around the size of
// the context.
func TestGenerateToTheEndOfContext(t *testing.T) {
	const context = 64
	m := openStoryteller(t)
	tokens := someTokens(m, 100, 0)
	for _, n := range []int{0, 1, 16, 17, 63, 64, 65} {
		for _, limit := range []int{8, 0} {
			t.Run(fmt.Sprintf("%d/%d", n, limit), func(t *testing.T) {
				s := newSession(t, m, minfer.WithContext(context), minfer.WithBatch(16))
				a, err := read(s.GenerateTokens(t.Context(), tokens[:n], minfer.Temperature(0), minfer.MaxTokens(limit), minfer.PastEnd()))
				if n == 0 {
					wantError(t, err, minfer.ErrNoTokens)
					return
				}
				if n > context {
					wantContextError(t, err, 0, n, context)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want, finish := context-n, minfer.FinishedContext
				if limit > 0 && limit <= want {
					want, finish = limit, minfer.FinishedLength
				}
				if len(a.tokens) != want || a.finish != finish {
					t.Errorf("%d tokens, finished by %v, want %d by %v", len(a.tokens), a.finish, want, finish)
				}
				if s.Len() != n+want {
					t.Errorf("the session has %d tokens, want %d", s.Len(), n+want)
				}
			})
		}
	}
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want one that is %v", err, want)
	}
}

func wantContextError(t testing.TB, err error, have, more, context int) {
	t.Helper()
	wantError(t, err, minfer.ErrContextFull)
	var full *minfer.ContextError
	if !errors.As(err, &full) {
		t.Errorf("error is a %T, want a *ContextError", err)
		return
	}
	if diff := cmp.Diff(minfer.ContextError{Have: have, More: more, Context: context}, *full); diff != "" {
		t.Errorf("counts differ (-want +got):\n%s", diff)
	}
}

func TestEvalRefuses(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m, minfer.WithContext(32))
	ctx := t.Context()
	want := eval(t, s, 1, 2, 3)
	vocab := m.Info().Vocab
	for _, bad := range []minfer.Token{-1, minfer.NoToken, minfer.Token(vocab), math.MaxInt32, math.MinInt32} {
		_, err := s.Eval(ctx, []minfer.Token{5, bad, 6})
		wantError(t, err, minfer.ErrToken)
		var token *minfer.TokenError
		if !errors.As(err, &token) || token.Token != bad || token.Vocab != vocab {
			t.Errorf("error is %#v, want one about token %d of %d", err, bad, vocab)
		}
		_, err = s.EvalAll(ctx, []minfer.Token{bad})
		wantError(t, err, minfer.ErrToken)
		_, err = s.SetTokens(ctx, []minfer.Token{1, 9, bad})
		wantError(t, err, minfer.ErrToken)
		_, err = read(s.GenerateTokens(ctx, []minfer.Token{bad}))
		wantError(t, err, minfer.ErrToken)
	}
	_, err := s.EvalAll(ctx, nil)
	wantError(t, err, minfer.ErrNoTokens)
	_, err = s.SetTokens(ctx, nil)
	wantError(t, err, minfer.ErrNoTokens)
	_, err = s.Eval(ctx, make([]minfer.Token, 30))
	wantContextError(t, err, 3, 30, 32)
	_, err = s.EvalAll(ctx, make([]minfer.Token, 1<<20))
	wantContextError(t, err, 3, 1<<20, 32)
	_, err = s.SetTokens(ctx, make([]minfer.Token, 33))
	wantContextError(t, err, 0, 33, 32)
	for _, n := range []int{-1, 4, math.MaxInt, math.MinInt} {
		wantError(t, s.Rewind(n), minfer.ErrOption)
	}
	if diff := cmp.Diff([]minfer.Token{1, 2, 3}, s.Tokens()); diff != "" {
		t.Errorf("the sequence has changed (-want +got):\n%s", diff)
	}
	wantRow(t, "logits", eval(t, s), want)
}

func TestNewSessionRefuses(t *testing.T) {
	m, other := openStoryteller(t), openStoryteller(t)
	cache := newCache(t, other, 64)
	for name, o := range map[string]minfer.SessionOption{
		"no context":     minfer.WithContext(0),
		"negative":       minfer.WithContext(-1),
		"over the model": minfer.WithContext(m.Info().ContextLength + 1),
		"absurd":         minfer.WithContext(math.MaxInt),
		"no batch":       minfer.WithBatch(0),
		"foreign cache":  minfer.WithCache(cache),
	} {
		_, err := m.NewSession(o)
		if !errors.Is(err, minfer.ErrOption) {
			t.Errorf("%s: error is %v, want ErrOption", name, err)
		}
	}
	s := newSession(t, m, minfer.WithBatch(math.MaxInt), nil)
	wantRow(t, "with the largest batch", eval(t, s, 1, 2, 3), eval(t, newSession(t, m), 1, 2, 3))
}

// TestSetTokens sends prompts again, cut short, and changed in the middle. What is kept
// is the common beginning, and the outcome that of a fresh session.
//
// Cases B22 and B23.
func TestSetTokens(t *testing.T) {
	m := openStoryteller(t)
	p := someTokens(m, 17, 5)
	edit := append(append([]minfer.Token(nil), p[:9]...), 7, 8, 9)
	for _, c := range []struct {
		name   string
		tokens []minfer.Token
		kept   int
	}{
		{"fresh", p, 0},
		{"again", p, 16},
		{"without the last three", p[:14], 13},
		{"again", p, 14},
		{"changed in the middle", edit, 9},
		{"without the middle", append(append([]minfer.Token(nil), p[:2]...), p[6:]...), 2},
		{"with one more in the middle", append(append([]minfer.Token{}, p[0], p[1], 3), p[2:]...), 2},
		{"without the front", p[1:], 0},
		{"one token", p[1:2], 0},
		{"one token more", p[1:3], 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sharedSession(t, m)
			kept, err := s.SetTokens(t.Context(), c.tokens)
			if err != nil {
				t.Fatal(err)
			}
			if kept != c.kept {
				t.Errorf("%d tokens were kept, want %d", kept, c.kept)
			}
			fresh := newSession(t, m)
			wantRow(t, "logits", eval(t, s), eval(t, fresh, c.tokens...))
			want := mustRead(t, fresh.GenerateTokens(t.Context(), nil, minfer.Temperature(0), minfer.MaxTokens(8)))
			got := mustRead(t, s.GenerateTokens(t.Context(), nil, minfer.Temperature(0), minfer.MaxTokens(8)))
			if diff := cmp.Diff(want.tokens, got.tokens); diff != "" {
				t.Errorf("continuation differs from a fresh session's (-want +got):\n%s", diff)
			}
			rewind(t, s, len(c.tokens))
		})
	}
}

// sharedSession returns the same session to all parts of a test.
func sharedSession(t *testing.T, m *minfer.Model) *minfer.Session {
	sessionsMu.Lock()
	defer sessionsMu.Unlock()
	if sessions[m] == nil {
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		sessions[m] = s
	}
	return sessions[m]
}

var (
	sessionsMu sync.Mutex
	sessions   = make(map[*minfer.Model]*minfer.Session)
)

// TestSamePromptTwice generates, and sends the prompt again.
//
// Case B22.
func TestSamePromptTwice(t *testing.T) {
	m := openStoryteller(t)
	prompt := someTokens(m, 17, 0)
	s := newSession(t, m)
	for _, p := range [][]minfer.Token{prompt, prompt, prompt[:14], prompt} {
		fresh := newSession(t, m)
		want := mustRead(t, fresh.GenerateTokens(t.Context(), p, minfer.Temperature(0), minfer.MaxTokens(32), minfer.PastEnd()))
		if _, err := s.SetTokens(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		got := mustRead(t, s.GenerateTokens(t.Context(), nil, minfer.Temperature(0), minfer.MaxTokens(32), minfer.PastEnd()))
		if diff := cmp.Diff(want.tokens, got.tokens); diff != "" {
			t.Errorf("differs from a fresh session's (-want +got):\n%s", diff)
		}
		wantRow(t, "logits", eval(t, s), eval(t, fresh))
	}
}

// TestCancelEval cancels an evaluation at every stage. The sequence is what it was, and
// goes on with the same bits.
func TestCancelEval(t *testing.T) {
	m := openStoryteller(t)
	tokens := someTokens(m, 64, 6)
	want := evalAll(t, newSession(t, m), tokens)
	for n := range 40 {
		s := newSession(t, m, minfer.WithBatch(8))
		evalAll(t, s, tokens[:5])
		ctx := &countdown{Context: t.Context(), left: 3 * n}
		row, err := s.Eval(ctx, tokens[5:])
		if err == nil {
			wantRow(t, "not cancelled", row, want[len(want)-1])
			continue
		}
		wantError(t, err, context.Canceled)
		if s.Len() != 5 {
			t.Fatalf("after cancellation the session has %d tokens, want 5", s.Len())
		}
		wantRow(t, "the logits before", eval(t, s), want[4])
		wantRows(t, "continued", evalAll(t, s, tokens[5:30]), want[5:30])
	}
}

// countdown is a context that ends when Err has been asked for a number of times.
type countdown struct {
	context.Context
	mu   sync.Mutex
	left int
}

func (c *countdown) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func (c *countdown) Deadline() (time.Time, bool) { return time.Time{}, false }

func TestCancelledBefore(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Eval(ctx, []minfer.Token{1})
	wantError(t, err, context.Canceled)
	_, err = s.SetTokens(ctx, []minfer.Token{1})
	wantError(t, err, context.Canceled)
	_, err = read(s.Generate(ctx, "Hello"))
	wantError(t, err, context.Canceled)
	if s.Len() != 0 {
		t.Errorf("the session has %d tokens, want 0", s.Len())
	}
}

// TestDecodeAllocatesNothing holds the steady state of Session.Eval to no allocation.
func TestDecodeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	m := openStoryteller(t, minfer.WithThreads(2))
	for name, s := range map[string]*minfer.Session{
		"private":  newSession(t, m),
		"shared":   newSession(t, m, minfer.WithCache(newCache(t, m, 1024))),
		"batching": newSession(t, m, minfer.WithCache(newCache(t, m, 1024, minfer.WithBatching(true)))),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			tokens := someTokens(m, 1, 0)
			eval(t, s, someTokens(m, 100, 0)...)
			rewind(t, s, 10) // the slice of tokens has room now
			eval(t, s, tokens...)
			allocs := testing.AllocsPerRun(50, func() {
				if _, err := s.Eval(ctx, tokens); err != nil {
					t.Fatal(err)
				}
			})
			if allocs != 0 {
				t.Errorf("a decode step makes %v allocations, want none", allocs)
			}
		})
	}
}

func TestForksAreIndependent(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m, minfer.WithContext(100))
	tokens := someTokens(m, 60, 1)
	eval(t, s, tokens[:30]...)
	want := make([][]float32, 20)
	forks := make([]*minfer.Session, 20)
	for i := range forks {
		from := s
		if i > 0 {
			from = forks[i/2]
			if i%2 == 1 {
				from = s
			}
		}
		forks[i] = fork(t, from)
		rewind(t, forks[i], 30-i)
		eval(t, forks[i], someTokens(m, 25, 100+i)...)
		want[i] = eval(t, newSession(t, m), append(append([]minfer.Token(nil), tokens[:30-i]...), someTokens(m, 25, 100+i)...)...)
	}
	for i, f := range forks {
		wantRow(t, fmt.Sprint("fork ", i), eval(t, f), want[i])
		if f.Context() != 100 || f.Model() != m || f.Cache() != s.Cache() {
			t.Errorf("fork %d has another context, model or cache", i)
		}
	}
	for _, f := range forks {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := s.Cache().Stats(); got.Cells-got.FreeCells != 32 {
		t.Errorf("%d cells are held without forks, want the 2 blocks of the session", got.Cells-got.FreeCells)
	}
}

// TestForkOutlivesParent closes the session whose private cache a fork goes on using.
func TestForkOutlivesParent(t *testing.T) {
	m := openStoryteller(t)
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	tokens := someTokens(m, 30, 1)
	eval(t, s, tokens[:20]...)
	f := fork(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantRow(t, "fork", eval(t, f, tokens[20:]...), eval(t, newSession(t, m), tokens...))
	_, err = s.Fork()
	wantError(t, err, minfer.ErrClosed)
}

// TestLogitsAreLimitedToTheVocabulary compares the row's length with the vocabulary's.
func TestLogitsAreLimitedToTheVocabulary(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		m := openModel(t, path)
		s := newSession(t, m)
		if n := len(eval(t, s, 1)); n != m.Info().Vocab || n != m.Tokenizer().VocabSize() {
			t.Errorf("%d logits, want %d", n, m.Info().Vocab)
		}
		if n := len(evalAll(t, s, []minfer.Token{1})[0]); n != m.Info().Vocab {
			t.Errorf("%d logits from EvalAll, want %d", n, m.Info().Vocab)
		}
	})
}

// TestGraphOfParams builds graphs twice: equal Params give equal graphs.
func TestGraphOfParams(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		m := openModel(t, path)
		for _, p := range []graph.Params{
			{}, {Tokens: 1, Outputs: 1, Cells: 100}, {Tokens: 7, Outputs: 1}, {Tokens: 7, Outputs: 7},
			{Tokens: 7, Outputs: 3, ExplicitSpan: true}, {Tokens: 1, ExplicitSpan: true}, {Tokens: 2, ExplicitSpan: true, Mode: graph.Full},
		} {
			a, err := m.Graph(p)
			if err != nil {
				t.Fatal(err)
			}
			b, err := m.Graph(p)
			if err != nil {
				t.Fatal(err)
			}
			if diff := a.Diff(b); diff != "" || a.Params != b.Params {
				t.Errorf("%+v: %s", p, diff)
			}
			if err := a.Verify(); err != nil {
				t.Errorf("%+v: %v", p, err)
			}
		}
		for _, p := range []graph.Params{
			{Tokens: math.MaxInt}, {Cells: math.MaxInt}, {Tokens: -1, Outputs: -1, Cells: -1}, {Outputs: math.MaxInt}, {Tokens: math.MaxInt32}, {Mode: 77},
		} {
			if g, err := m.Graph(p); err == nil {
				if err := g.Verify(); err != nil {
					t.Errorf("%+v: %v", p, err)
				}
			}
		}
	})
}
