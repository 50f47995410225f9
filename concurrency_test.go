package minfer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
)

// hook is a context that calls a function, once, when it is first asked for Err inside of
// an evaluation.
type hook struct {
	context.Context
	once sync.Once
	do   func()
}

func (h *hook) Err() error {
	h.once.Do(h.do)
	return h.Context.Err()
}

// TestBusy calls a session from inside of an evaluation of its own.
//
// Case B28: two goroutines on one session.
func TestBusy(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	ctx := context.Background()
	inside := &hook{Context: ctx, do: func() {
		for name, f := range map[string]func() error{
			"Eval":           func() error { _, err := s.Eval(ctx, []minfer.Token{1}); return err },
			"EvalAll":        func() error { _, err := s.EvalAll(ctx, []minfer.Token{1}); return err },
			"SetTokens":      func() error { _, err := s.SetTokens(ctx, []minfer.Token{1}); return err },
			"Rewind":         func() error { return s.Rewind(0) },
			"Fork":           func() error { _, err := s.Fork(); return err },
			"Save":           func() error { return s.Save(discard{}) },
			"Generate":       func() error { _, err := read(s.Generate(ctx, "Hello")); return err },
			"GenerateTokens": func() error { _, err := read(s.GenerateTokens(ctx, nil)); return err },
			"Say":            func() error { _, err := read(s.Chat().Say(ctx, "Hello")); return err },
		} {
			if err := f(); !errors.Is(err, minfer.ErrBusy) {
				t.Errorf("%s: error is %v, want ErrBusy", name, err)
			}
		}
		if s.Tokens() != nil || s.Len() != 0 || s.Usage() != (minfer.Usage{}) {
			t.Error("a busy session shows its tokens")
		}
	}}
	row, err := s.Eval(inside, []minfer.Token{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	wantRow(t, "the call that it was busy with", row, eval(t, newSession(t, m), 1, 2, 3))
}

// TestCloseDuringEval closes the session, its cache or the model from another goroutine in
// the middle of an evaluation, which ends with ErrClosed before Close returns.
func TestCloseDuringEval(t *testing.T) {
	for _, shared := range []bool{false, true} {
		for _, what := range []string{"session", "cache", "model"} {
			t.Run(fmt.Sprintf("%s/shared=%v", what, shared), func(t *testing.T) {
				m := openStoryteller(t)
				var opts []minfer.SessionOption
				if shared {
					opts = append(opts, minfer.WithCache(newCache(t, m, 1024, minfer.WithBatching(true))))
				}
				s := newSession(t, m, opts...)
				eval(t, s, 1, 2, 3)
				closers := map[string]func() error{"session": s.Close, "cache": s.Cache().Close, "model": m.Close}
				done := make(chan error, 1)
				inside := &hook{Context: context.Background(), do: func() {
					go func() { done <- closers[what]() }()
					for {
						// Only Close waits for the evaluation; other calls see that it is under way.
						if _, err := s.Eval(context.Background(), nil); errors.Is(err, minfer.ErrClosed) {
							return
						}
						runtime.Gosched()
					}
				}}
				_, err := s.Eval(inside, someTokens(m, 500, 0))
				wantError(t, err, minfer.ErrClosed)
				if err := <-done; err != nil {
					t.Errorf("Close: %v", err)
				}
				wantAllClosed(t, m, s)
			})
		}
	}
}

// TestCloseInBody closes the model in the loop's body.
func TestCloseInBody(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	var last error
	for _, err := range s.Generate(t.Context(), chatML(fox), greedy()...) {
		if last = err; err == nil {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	wantError(t, last, minfer.ErrClosed)
	wantAllClosed(t, m, s)
}

// TestCloseEverything closes the model while many goroutines do all that can be done with it.
func TestCloseEverything(t *testing.T) {
	for round := range 6 {
		m, err := minfer.Open(storyteller, minfer.WithThreads(2))
		if err != nil {
			t.Fatal(err)
		}
		cache, err := m.NewGraphCache(512, minfer.WithBatching(round%2 == 0))
		if err != nil {
			t.Fatal(err)
		}
		snapshot, _ := saved(t, m)
		var group sync.WaitGroup
		var calls atomic.Int64
		for i := range 12 {
			group.Go(func() {
				for n := 0; ; n++ {
					err := useModel(m, cache, snapshot, i+n)
					if errors.Is(err, minfer.ErrClosed) {
						return
					}
					if err != nil && !errors.Is(err, minfer.ErrCacheFull) {
						t.Errorf("goroutine %d: %v", i, err)
						return
					}
					calls.Add(1)
				}
			})
		}
		for calls.Load() < int64(10*round) {
			time.Sleep(time.Millisecond)
		}
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closers.Wait()
		group.Wait()
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
	}
}

// useModel does one of the things that can be done with a model.
func useModel(m *minfer.Model, cache *minfer.GraphCache, snapshot []byte, what int) error {
	ctx := context.Background()
	var opts []minfer.SessionOption
	if what%2 == 0 {
		opts = append(opts, minfer.WithCache(cache))
	}
	switch what % 5 {
	case 0:
		_, err := m.Graph(graph.Params{Tokens: 3})
		cache.Stats()
		m.Info()
		return err
	case 1:
		s, err := m.Restore(newReader(snapshot), opts...)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Save(discard{}); err != nil {
			return err
		}
		_, err = s.Eval(ctx, []minfer.Token{1})
		return err
	case 2:
		if _, err := m.RenderChat(ctx, []minfer.Message{{Role: "user", Content: "Hi"}}); err != nil {
			return err
		}
	}
	s, err := m.NewSession(opts...)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err = s.EvalAll(ctx, []minfer.Token{1, 2, 3}); err != nil {
		return err
	}
	f, err := s.Fork()
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = read(f.Chat().Say(ctx, "Hello", minfer.MaxTokens(5)))
	return err
}

// TestSessionsAtTheSameTime has eight sessions with prompts and seeds of their own generate
// at the same time. Each says what it says alone.
//
// Case B28.
func TestSessionsAtTheSameTime(t *testing.T) {
	m := openStoryteller(t)
	answer := func(i int, opts ...minfer.SessionOption) (said, error) {
		s, err := m.NewSession(opts...)
		if err != nil {
			return said{}, err
		}
		defer s.Close()
		prompt := chatML(fmt.Sprintf("Tell me a story about %d foxes.", i))
		return read(s.Generate(context.Background(), prompt, greedy(minfer.Temperature(1), minfer.Seed(uint64(i)), minfer.MaxTokens(64))...))
	}
	want := make([]said, 8)
	for i := range want {
		var err error
		if want[i], err = answer(i + 1); err != nil {
			t.Fatal(err)
		}
	}
	for name, opts := range map[string][]minfer.SessionOption{
		"private":  nil,
		"shared":   {minfer.WithCache(newCache(t, m, 8*128, minfer.WithBatching(false)))},
		"batching": {minfer.WithCache(newCache(t, m, 8*128, minfer.WithBatching(true)))},
	} {
		t.Run(name, func(t *testing.T) {
			var group sync.WaitGroup
			for i := range want {
				group.Go(func() {
					for range 2 {
						got, err := answer(i+1, opts...)
						if err != nil {
							t.Errorf("session %d: %v", i, err)
						} else if diff := cmp.Diff(want[i].tokens, got.tokens); diff != "" {
							t.Errorf("session %d differs from its sequential run (-want +got):\n%s", i, diff)
						}
					}
				})
			}
			group.Wait()
		})
	}
}

// TestManyGoroutines uses one model, its tokenizer and its template from 32 goroutines.
func TestManyGoroutines(t *testing.T) {
	m := openStoryteller(t)
	wantPrompt, err := m.RenderChat(t.Context(), []minfer.Message{{Role: "user", Content: fox}})
	if err != nil {
		t.Fatal(err)
	}
	want := eval(t, newSession(t, m), wantPrompt.Tokens...)
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			s, err := m.NewSession()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			p, err := m.RenderChat(context.Background(), []minfer.Message{{Role: "user", Content: fox}})
			if err != nil {
				t.Error(err)
				return
			}
			if diff := cmp.Diff(wantPrompt, p); diff != "" {
				t.Errorf("goroutine %d: the prompt differs:\n%s", i, diff)
			}
			row, err := s.Eval(context.Background(), p.Tokens)
			if err != nil {
				t.Error(err)
				return
			}
			wantRow(t, fmt.Sprint("goroutine ", i), row, want)
		})
	}
	group.Wait()
}

// TestCloseTwice closes everything more than once, in different orders.
func TestCloseTwice(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
		m, err := minfer.Open(storyteller)
		if err != nil {
			t.Fatal(err)
		}
		cache, err := m.NewGraphCache(64)
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.NewSession(minfer.WithCache(cache))
		if err != nil {
			t.Fatal(err)
		}
		eval(t, s, 1, 2, 3)
		closers := []func() error{s.Close, cache.Close, m.Close}
		for range 2 {
			for _, i := range order {
				if err := closers[i](); err != nil {
					t.Errorf("order %v: closing %d: %v", order, i, err)
				}
			}
		}
	}
}

// TestNoGoroutineIsLeft opens, uses and closes models, and counts goroutines.
func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		m, err := minfer.Open(storyteller, minfer.WithThreads(8))
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		for range s.Generate(t.Context(), "Hello", minfer.MaxTokens(5)) {
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range s.Generate(ctx, "Hello", minfer.MaxTokens(5)) {
			cancel()
		}
		cancel()
		if _, err := m.Restore(newReader([]byte("nothing"))); err == nil {
			t.Error("nothing was restored")
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}

// TestSessionsGiveMemoryBack opens and closes a thousand sessions.
func TestSessionsGiveMemoryBack(t *testing.T) {
	m := smallModel{vocab: 257}.open(t)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	round := func(n int) {
		for i := range n {
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			eval(t, s, 1, 2, minfer.Token(i%200))
			f, err := s.Fork()
			if err != nil {
				t.Fatal(err)
			}
			eval(t, f, 5)
			for _, s := range []*minfer.Session{s, f} {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	sessions := 900
	if raceEnabled {
		sessions = 200
	}
	round(100)
	before := heap()
	round(sessions)
	if after := heap(); after > before+1<<20 {
		t.Errorf("%d sessions leave %d bytes behind", sessions, after-before)
	}
}
