package minfer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// faulty is the CPU device with faults: the call that brings countdown to zero fails, or
// panics. It can only be had where a test asks for it.
type faulty struct {
	backend.Backend
	name string
}

var faults struct {
	available atomic.Bool
	countdown atomic.Int64 // calls to go; counting goes on below zero
	call      atomic.Value // name of the call that counts, or "" for all
	panics    atomic.Bool
	executed  atomic.Pointer[func()] // called at every node; or nil
}

var errInjected = errors.New("injected fault")

func init() {
	entry, _, err := backend.Lookup("cpu")
	if err != nil {
		panic(err)
	}
	open := entry.Open
	faults.call.Store("")
	backend.Register(backend.Entry{
		Name: "faulty", ID: 1900, Priority: 2, Capabilities: entry.Capabilities,
		Available: func() error {
			if faults.available.Load() {
				return nil
			}
			return errors.New("no test asks for it")
		},
		Open: func(c backend.Config) (backend.Backend, error) {
			b, err := open(backend.Config{Name: "cpu", Threads: c.Threads})
			return &faulty{Backend: b, name: c.Name}, err
		},
	})
	backend.Register(backend.Entry{
		Name: "unplugged", ID: 1901, Priority: 1, Capabilities: entry.Capabilities,
		Available: func() error { return errors.New("the plug is out") },
		Open:      func(backend.Config) (backend.Backend, error) { return nil, errors.New("unreachable") },
	})
}

func fail(call string) error {
	if only := faults.call.Load().(string); only != "" && only != call {
		return nil
	}
	if faults.countdown.Add(-1) != 0 {
		return nil
	}
	if faults.panics.Load() {
		panic(errInjected)
	}
	return fmt.Errorf("%s: %w", call, errInjected)
}

func (f *faulty) Name() string { return f.name }

func (f *faulty) Alloc(size int) (backend.Buffer, error) {
	if err := fail("Alloc"); err != nil {
		return backend.Buffer{}, err
	}
	return f.Backend.Alloc(size)
}

func (f *faulty) AllocFresh(size int) (backend.Buffer, error) {
	if err := fail("AllocFresh"); err != nil {
		return backend.Buffer{}, err
	}
	return f.Backend.AllocFresh(size)
}

func (f *faulty) Execute(node *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if f := faults.executed.Load(); f != nil {
		(*f)()
	}
	if err := fail("Execute"); err != nil {
		return err
	}
	return f.Backend.Execute(node, in, out, kv)
}

func (f *faulty) ReadHost(dst []byte, src backend.Buffer) error {
	if err := fail("ReadHost"); err != nil {
		return err
	}
	return f.Backend.ReadHost(dst, src)
}

func (f *faulty) WriteHost(dst backend.Buffer, src []byte) error {
	if err := fail("WriteHost"); err != nil {
		return err
	}
	return f.Backend.WriteHost(dst, src)
}

func (f *faulty) Synchronize() error {
	if err := fail("Synchronize"); err != nil {
		return err
	}
	return f.Backend.Synchronize()
}

// inject has the nth call from now on fail, or panic.
func inject(t *testing.T, call string, n int64, panics bool) {
	faults.call.Store(call)
	faults.panics.Store(panics)
	faults.countdown.Store(n)
	t.Cleanup(func() { faults.countdown.Store(0) })
}

func openFaulty(t *testing.T) *minfer.Model {
	t.Helper()
	faults.countdown.Store(0)
	faults.available.Store(true)
	t.Cleanup(func() { faults.available.Store(false) })
	return smallModel{vocab: 257}.open(t, minfer.WithBackends("faulty"))
}

// TestDeviceFails has one call of a device fail at a time, at every place of a session's
// life: prompt, growth of the cache, fork, copy of a shared block. The error names the
// device's own; afterwards the session goes on with the right bits.
func TestDeviceFails(t *testing.T) {
	reference := smallModel{vocab: 257}.open(t)
	tokens := someTokens(reference, 60, 0)
	want := evalAll(t, newSession(t, reference), tokens)
	m := openFaulty(t)
	failed := make(map[string]int)
	for _, call := range []string{"Alloc", "AllocFresh", "Execute", "ReadHost", "WriteHost", "Synchronize"} {
		for n := int64(1); n < 400; n += 1 + n/6 {
			s := newSession(t, m, minfer.WithContext(60), minfer.WithBatch(16))
			inject(t, call, n, false)
			for at, step := 0, 0; at < 60; step++ {
				to := min(at+[]int{20, 1, 15, 9}[step%4], 60)
				row, err := s.Eval(t.Context(), tokens[at:to])
				if err != nil {
					failed[call]++
					wantError(t, err, errInjected)
					var panicked *minfer.PanicError
					if errors.As(err, &panicked) {
						t.Fatalf("%s %d: a panic: %v", call, n, err)
					}
					if s.Len() != at {
						t.Fatalf("%s %d: %d tokens after the failure, want %d", call, n, s.Len(), at)
					}
					continue // again; the fault is over
				}
				at = to
				wantRow(t, fmt.Sprint(call, n), row, want[at-1])
				if step%3 == 1 && at+2 <= 60 {
					// The fork appends first, which copies a block that both hold.
					f, err := s.Fork()
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					for f.Len() < at+2 {
						row, err := f.Eval(t.Context(), tokens[f.Len():f.Len()+1])
						if err != nil {
							failed[call]++
							wantError(t, err, errInjected)
							continue
						}
						wantRow(t, fmt.Sprint("fork ", call, n), row, want[f.Len()-1])
					}
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	for _, call := range []string{"Execute", "ReadHost", "WriteHost"} {
		if failed[call] < 10 {
			t.Errorf("%s failed %d times, want more: %v", call, failed[call], failed)
		}
	}
}

// TestCancelStopsAtTheNextNode ends the context in the middle of a node, of a prompt and of an answer.
// No other node runs, the error is the context's, and the session goes on with the same bits.
func TestCancelStopsAtTheNextNode(t *testing.T) {
	m := openFaulty(t)
	tokens := someTokens(m, 60, 0)
	want := evalAll(t, newSession(t, m), tokens)
	for _, shared := range []bool{false, true} {
		for n := 1; n < 300; n += 1 + n/5 {
			opts := []minfer.SessionOption{minfer.WithBatch(8)}
			if shared {
				opts = append(opts, minfer.WithCache(newCache(t, m, 64, minfer.WithBatching(true))))
			}
			s := newSession(t, m, opts...)
			eval(t, s, tokens[:5]...)
			ctx, cancel := context.WithCancel(t.Context())
			nodes := 0
			count := func() {
				if nodes++; nodes == n {
					cancel()
				}
			}
			faults.executed.Store(&count)
			_, err := s.Eval(ctx, tokens[5:40])
			for at := 40; err == nil && nodes < n && at < len(tokens); at++ {
				_, err = s.Eval(ctx, tokens[at:at+1])
			}
			faults.executed.Store(nil)
			cancel()
			if nodes > n {
				t.Errorf("%d nodes ran after the context had ended", nodes-n)
			}
			if err != nil {
				wantError(t, err, context.Canceled)
			}
			at := s.Len()
			if at != 5 && at < 40 {
				t.Errorf("%d tokens after cancelling, want 5 or those of whole calls", at)
			}
			wantRow(t, "the logits before", eval(t, s), want[at-1])
			wantRow(t, "continued", eval(t, s, tokens[at:]...), want[len(want)-1])
		}
	}
}

// TestDevicePanics has a device panic. The model then refuses further work with the same
// error; another model goes on, and closing works.
func TestDevicePanics(t *testing.T) {
	other := openStoryteller(t)
	for _, call := range []string{"Execute", "ReadHost", "WriteHost", "AllocFresh", "Synchronize"} {
		t.Run(call, func(t *testing.T) {
			m := openFaulty(t)
			s, bystander := newSession(t, m), newSession(t, m)
			eval(t, bystander, 1, 2)
			inject(t, call, 1, true)
			_, err := s.Eval(t.Context(), []minfer.Token{1, 2, 3})
			if err == nil {
				t.Skip("the call is not made")
			}
			var panicked *minfer.PanicError
			if !errors.As(err, &panicked) || len(panicked.Stack) == 0 || panicked.During == "" {
				t.Fatalf("error is %v, want a *PanicError with a stack", err)
			}
			wantError(t, err, errInjected)
			if !strings.Contains(string(panicked.Stack), "device_test.go") {
				t.Errorf("the stack does not lead to the fault:\n%s", panicked.Stack)
			}
			if s.Len() != 0 {
				t.Errorf("%d tokens, want none", s.Len())
			}
			for _, s := range []*minfer.Session{s, bystander} {
				_, err = s.Eval(t.Context(), []minfer.Token{1})
				if !errors.As(err, &panicked) {
					t.Errorf("further work gives %v, want the *PanicError", err)
				}
			}
			eval(t, newSession(t, other), 1, 2, 3)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOpenFails has a device fail while a model is opened.
func TestOpenFails(t *testing.T) {
	openFaulty(t)
	data := smallModel{vocab: 257}.bytes(t)
	_, err := minfer.OpenBytes(data, minfer.WithBackends("faulty", "unplugged"))
	wantError(t, err, minfer.ErrBackendUnavailable)
}
