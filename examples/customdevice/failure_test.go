package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// TestRefusals checks what a host is told whose devices will not do.
func TestRefusals(t *testing.T) {
	file := models[0].file(t)
	for _, c := range []struct {
		name     string
		backends []string
		is       error
		mention  []string
	}{
		{"nothing runs the rest", []string{"relay-products"}, backend.ErrUnsupported, []string{"relay-products", `"blk.0.kv_store"`, "KVStore", "layer 0"}},
		{"nothing runs the products", []string{"relay-rest"}, backend.ErrUnsupported, []string{"relay-rest", `"blk.0.attn_q"`, "MatMul", "Q8_0"}},
		{"nothing normalises", []string{"relay-all-but-rmsnorm"}, backend.ErrUnsupported, []string{"relay-all-but-rmsnorm", `"blk.0.attn_norm"`, "RMSNorm"}},
		{"nothing looks tokens up", []string{"relay-all-but-embed"}, backend.ErrUnsupported, []string{`"embed"`, "Embed"}},
		{"nothing attends over spans", []string{"relay-all-without-spans"}, backend.ErrUnsupported, []string{"explicit spans", "layer 0"}},
		{"nothing keeps F16", []string{"relay-all-without-f16"}, backend.ErrUnsupported, []string{"F16", "layer 0"}},
		{"two halves of a layer", []string{"relay-only-attention", "relay-all-but-attention"}, backend.ErrUnsupported,
			[]string{"relay-only-attention", "relay-all-but-attention", `"blk.0.kv_store"`, `"blk.0.attn"`, "layer 0"}},
		{"unknown", []string{"relai", "cpu"}, minfer.ErrUnknownBackend, []string{`"relai"`, "known here:", "relay-hooked", "cpu"}},
		{"not linked", []string{"cuda", "cpu"}, minfer.ErrBackendNotLinked, []string{`"cuda"`, "import _", "-tags cuda"}},
		{"not usable", []string{"relay-absent", "cpu"}, minfer.ErrBackendUnavailable, []string{`"relay-absent"`, errAbsent.Error(), "cpu"}},
		{"no number", []string{"relay:one"}, minfer.ErrUnknownBackend, []string{`"relay:one"`, "number"}},
		{"twice", []string{"relay", "relay", "cpu"}, minfer.ErrOption, []string{`"relay"`, "twice"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := minfer.OpenBytes(file, minfer.WithBackends(c.backends...))
			if err == nil {
				m.Close()
				t.Fatal("the model was opened")
			}
			if !errors.Is(err, c.is) {
				t.Errorf("the error is %v, want one that wraps %v", err, c.is)
			}
			for _, s := range c.mention {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error does not mention %s: %v", s, err)
				}
			}
		})
	}
}

// steps are the prompt and the tokens after it that the tests of failures evaluate.
var steps = [][]minfer.Token{{3, 1, 4, 1, 5, 9, 2}, {6}, {5}, {3, 5}}

// expected returns the logits after each of the steps.
func expected(t *testing.T, file []byte) [][]float32 {
	t.Helper()
	s := session(t, open(t, file, minfer.WithBackends("cpu")))
	var rows [][]float32
	for _, tokens := range steps {
		logits, err := s.Eval(context.Background(), tokens)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, append([]float32(nil), logits...))
	}
	return rows
}

func session(t *testing.T, m *minfer.Model) *minfer.Session {
	t.Helper()
	s, err := m.NewSession(minfer.WithContext(32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFailingNode has the Nth node of a step fail, for every N, in every step. Each
// time the error has to say which node it was, and the step done again has to give
// what it would have given.
func TestFailingNode(t *testing.T) {
	for _, size := range models {
		file := size.file(t)
		want := expected(t, file)
		for _, name := range []string{"relay-hooked", "relay-hooked-products"} {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/panic=%v", size.arch, name, panics), func(t *testing.T) {
					s := session(t, open(t, file, minfer.WithBackends(name, "cpu")))
					for i, tokens := range steps {
						failures := failEach(t, s, tokens, name, panics)
						if failures < 2*size.layers {
							t.Errorf("step %d: only %d nodes could be made to fail", i, failures)
						}
						logits, err := s.Eval(context.Background(), nil)
						if err != nil {
							t.Fatal(err)
						}
						same(t, [][]float32{logits}, want[i:i+1])
					}
				})
			}
		}
	}
}

// failEach evaluates the tokens again and again, with another node failing each time,
// until none does. It returns how many did.
func failEach(t *testing.T, s *minfer.Session, tokens []minfer.Token, device string, panics bool) int {
	t.Helper()
	length := s.Len()
	for n := 0; ; n++ {
		left, failed := n, "" // touched by the device alone while Eval runs
		hooked.set(t, func(node *graph.Node) error {
			if left--; left != -1 {
				return nil
			}
			if failed = node.Name; panics {
				panic(errWanted)
			}
			return errWanted
		})
		_, err := s.Eval(context.Background(), tokens)
		hooked.clear()
		if err == nil {
			return n
		}
		var e *backend.NodeError
		if !errors.As(err, &e) || e.Node != failed || e.Device != device {
			t.Fatalf("node %d, %q: the error is %v", n, failed, err)
		}
		if !panics && !errors.Is(err, errWanted) {
			t.Errorf("node %d: the error does not wrap its cause: %v", n, err)
		}
		if message := err.Error(); strings.Count(message, errWanted.Error()) != 1 {
			t.Errorf("node %d: the error does not say its cause once: %v", n, message)
		}
		if s.Len() != length {
			t.Fatalf("node %d: the session has %d tokens, had %d before", n, s.Len(), length)
		}
	}
}

// gate stops the device before its nth node.
type gate struct {
	reached chan struct{} // closed when the device stands before the node
	open    chan struct{} // closed by the test to let it go on
}

func newGate(t *testing.T, n int) *gate {
	g := &gate{make(chan struct{}), make(chan struct{})}
	hooked.set(t, func(*graph.Node) error {
		if n--; n == -1 {
			close(g.reached)
			<-g.open
		}
		return nil
	})
	return g
}

// TestCancelInFlight cancels an evaluation while the device stands before a node and
// more are in its queue.
func TestCancelInFlight(t *testing.T) {
	file := models[0].file(t)
	want := expected(t, file)
	for _, name := range []string{"relay-hooked", "relay-hooked-products"} {
		t.Run(name, func(t *testing.T) {
			s := session(t, open(t, file, minfer.WithBackends(name, "cpu")))
			for i, tokens := range steps {
				for _, n := range []int{0, 1, 7, 12} {
					length := s.Len()
					ctx, cancel := context.WithCancel(context.Background())
					g := newGate(t, n)
					result := make(chan error, 1)
					go func() {
						_, err := s.Eval(ctx, tokens)
						result <- err
					}()
					<-g.reached
					cancel()
					close(g.open)
					if err := <-result; !errors.Is(err, context.Canceled) {
						t.Fatalf("step %d, node %d: the error is %v", i, n, err)
					}
					if s.Len() != length {
						t.Fatalf("step %d, node %d: the session has %d tokens, had %d before", i, n, s.Len(), length)
					}
				}
				logits, err := s.Eval(context.Background(), tokens)
				if err != nil {
					t.Fatal(err)
				}
				same(t, [][]float32{logits}, want[i:i+1])
			}
		})
	}
}

// TestCloseInFlight closes the model, and the session, while the device stands before a
// node.
func TestCloseInFlight(t *testing.T) {
	file := models[0].file(t)
	for _, what := range []string{"model", "session"} {
		t.Run(what, func(t *testing.T) {
			m, err := minfer.OpenBytes(file, minfer.WithBackends("relay-hooked", "cpu"))
			if err != nil {
				t.Fatal(err)
			}
			s := session(t, m)
			g := newGate(t, 3)
			result, closed := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := s.Eval(context.Background(), steps[0])
				result <- err
			}()
			<-g.reached
			go func() {
				if what == "model" {
					closed <- m.Close()
				} else {
					closed <- s.Close()
				}
			}()
			for isOpen := true; isOpen; { // closing is seen by others before it is over
				if what == "model" {
					_, err := m.NewSession()
					isOpen = !errors.Is(err, minfer.ErrClosed)
				} else {
					isOpen = !errors.Is(s.Rewind(0), minfer.ErrClosed)
				}
			}
			close(g.open)
			if err := <-result; !errors.Is(err, minfer.ErrClosed) {
				t.Errorf("the evaluation ended with %v, want ErrClosed", err)
			}
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
			if _, err := s.Eval(context.Background(), steps[0]); !errors.Is(err, minfer.ErrClosed) {
				t.Errorf("after Close, Eval returned %v", err)
			}
			if err := m.Close(); err != nil {
				t.Errorf("the model's Close: %v", err)
			}
		})
	}
}
