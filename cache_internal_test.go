package minfer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/internal/sampling"
)

// crowd is sessions on a cache that batches, of which each evaluates a prompt. They all
// wait for their turn at the same time, because the test has it.
type crowd struct {
	model    *Model
	cache    *GraphCache
	sessions []*Session
	prompts  [][]Token
	contexts []context.Context
	want     [][]float32
}

func newCrowd(t *testing.T, cells int, lengths ...int) *crowd {
	t.Helper()
	m, err := Open("testdata/storyteller-q4_0.gguf", WithBackends("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	c := &crowd{model: m}
	if c.cache, err = m.NewGraphCache(cells, WithBatching(true)); err != nil {
		t.Fatal(err)
	}
	for i, n := range lengths {
		s, err := m.NewSession(WithCache(c.cache))
		if err != nil {
			t.Fatal(err)
		}
		prompt := make([]Token, n)
		for at := range prompt {
			prompt[at] = Token((at*7919 + i*13 + 1) % m.info.Vocab)
		}
		alone, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		row, err := alone.Eval(t.Context(), prompt)
		if err != nil {
			t.Fatal(err)
		}
		c.sessions, c.prompts = append(c.sessions, s), append(c.prompts, prompt)
		c.want = append(c.want, slices.Clone(row))
		c.contexts = append(c.contexts, t.Context())
		if err := alone.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// eval has all sessions evaluate and calls meanwhile when all of them are waiting. It
// returns the error of each.
func (c *crowd) eval(t *testing.T, meanwhile func()) []error {
	t.Helper()
	if err := c.model.engine.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(c.sessions))
	done := make(chan struct{})
	for i, s := range c.sessions {
		go func() {
			defer func() { done <- struct{}{} }()
			row, err := s.Eval(c.contexts[i], c.prompts[i])
			if err == nil && !slices.Equal(row, c.want[i]) {
				err = errors.New("the logits differ from those of a session alone")
			}
			errs[i] = err
		}()
	}
	c.await(len(c.sessions))
	if meanwhile != nil {
		meanwhile()
	}
	c.model.engine.leave()
	for range c.sessions {
		<-done
	}
	if n := c.waits(); n != 0 {
		t.Errorf("%d jobs are left on the list", n)
	}
	return errs
}

func (c *crowd) await(n int) {
	for c.waits() != n {
		runtime.Gosched()
	}
}

func (c *crowd) waits() int {
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	return len(c.cache.waiting)
}

func (c *crowd) passes() uint64 {
	s := c.cache.Stats()
	return s.Built + s.Reused
}

func wantNone(t *testing.T, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("session %d: %v", i, err)
		}
	}
}

// TestBatchIsOnePass has sessions that wait together share one forward pass.
func TestBatchIsOnePass(t *testing.T) {
	for _, lengths := range [][]int{{1, 1, 1, 1, 1, 1, 1, 1}, {3, 17, 1, 40}, {5}} {
		c := newCrowd(t, 512, lengths...)
		wantNone(t, c.eval(t, nil))
		if n := c.passes(); n != 1 {
			t.Errorf("%v tokens took %d passes, want 1", lengths, n)
		}
	}
}

// TestBatchIsBounded has more tokens wait than a pass may have.
func TestBatchIsBounded(t *testing.T) {
	c := newCrowd(t, 1024, 100, 100, 100, 100, 30)
	wantNone(t, c.eval(t, nil))
	// Two prompts of 100 fit, with or without the short one.
	if n := c.passes(); n != 2 && n != 3 {
		t.Errorf("%d passes, want 2 or 3", n)
	}
}

// TestBatchWithoutRoom has one of the sessions find no cells. The others do not mind.
func TestBatchWithoutRoom(t *testing.T) {
	c := newCrowd(t, 48, 10, 40, 10)
	errs := c.eval(t, nil)
	full := 0
	for i, err := range errs {
		if errors.Is(err, ErrCacheFull) {
			full++
			if c.sessions[i].Len() != 0 {
				t.Errorf("session %d holds %d tokens after %v", i, c.sessions[i].Len(), err)
			}
		} else if err != nil {
			t.Errorf("session %d: %v", i, err)
		}
	}
	if full != 1 && full != 2 {
		t.Errorf("%d sessions found no cells, want the long one or the short ones: %v", full, errs)
	}
}

// TestBatchWithoutOne cancels or closes one session while it waits.
func TestBatchWithoutOne(t *testing.T) {
	c := newCrowd(t, 512, 5, 6, 7)
	ctx, cancel := context.WithCancel(t.Context())
	c.contexts[1] = ctx
	errs := c.eval(t, func() {
		cancel()
		c.await(2)
	})
	if !errors.Is(errs[1], context.Canceled) {
		t.Errorf("the cancelled session got %v", errs[1])
	}
	wantNone(t, []error{errs[0], errs[2]})
	if n := c.passes(); n != 1 {
		t.Errorf("%d passes, want 1", n)
	}
	for _, s := range c.sessions {
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
	}
	c.contexts[1] = t.Context()
	wantNone(t, c.eval(t, nil))
}

// TestBatchClosed closes the cache or the model while sessions wait.
func TestBatchClosed(t *testing.T) {
	for _, what := range []string{"cache", "model"} {
		t.Run(what, func(t *testing.T) {
			c := newCrowd(t, 512, 5, 6, 7)
			closed := make(chan error, 1)
			errs := c.eval(t, func() {
				closers := map[string]func() error{"cache": c.cache.Close, "model": c.model.Close}
				go func() { closed <- closers[what]() }()
				for !c.sessions[0].isClosed() {
					runtime.Gosched()
				}
			})
			for i, err := range errs {
				if !errors.Is(err, ErrClosed) {
					t.Errorf("session %d: error is %v, want ErrClosed", i, err)
				}
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStopOverTokens pushes forced pieces through the state of an answer, the borders of
// stop strings lying inside of tokens and across them.
func TestStopOverTokens(t *testing.T) {
	m, err := Open("testdata/storyteller-q4_0.gguf", WithBackends("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, c := range []struct {
		text   string
		stops  []string
		max    int
		want   string
		finish FinishReason
	}{
		{"alpha beta gamma delta", []string{"beta gamma"}, 0, "alpha ", FinishedStop},
		{" Alice! x", []string{"\n", "Alice:"}, 0, " Alice! x", FinishedTurn},
		{"alpha beta", []string{"beta gamma"}, 0, "alpha beta", FinishedTurn},
		{"xab", []string{"a", "ab"}, 0, "x", FinishedStop},
		{"say 🙂 now", []string{"🙂 n"}, 0, "say ", FinishedStop},
		{"say 🙂🙃 now", []string{"🙃"}, 0, "say 🙂", FinishedStop},
		{"🙂", []string{"🙂"}, 0, "", FinishedStop},
	} {
		t.Run(fmt.Sprintf("%q", c.text), func(t *testing.T) {
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			tokens, err := m.tokenizer.Encode(c.text, EncodeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.newAnswer(context.Background(), []GenerateOption{Stop(c.stops...), MaxTokens(c.max)})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.start(t.Context(), []Token{1, 2, 3}); err != nil {
				t.Fatal(err)
			}
			text, finish := "", NotFinished
			for _, token := range append(tokens, m.tokenizer.EOS()) {
				p, err := a.take(t.Context(), sampled(token))
				if err != nil {
					t.Fatal(err)
				}
				text += p.Text
				if finish = p.Finish; finish != NotFinished {
					break
				}
			}
			if text != c.want || finish != c.finish {
				t.Errorf("%q, finished by %v, want %q by %v", text, finish, c.want, c.finish)
			}
			if finish != FinishedStop {
				return
			}
			kept := m.tokenizer.Decode(s.tokens[3:], DecodeOptions{Continuation: true})
			if len(kept) > len(c.want) || c.want[:len(kept)] != kept {
				t.Errorf("the session holds %q, want the beginning of %q", kept, c.want)
			}
			if rest := c.want[len(kept):]; rest != "" {
				// A token that the stop string begins inside of goes as a whole.
				next := m.tokenizer.TokenBytes(tokens[len(s.tokens)-3])
				if len(next) <= len(rest) {
					t.Errorf("the session lacks %q, which ends before the stop string", next)
				}
			}
		})
	}
}

func sampled(t Token) sampling.Token { return sampling.Token{ID: t} }
