package minfer_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
)

func TestOptionsRefused(t *testing.T) {
	for name, o := range map[string]minfer.Option{
		"negative threads": minfer.WithThreads(-1),
		"many threads":     minfer.WithThreads(1025),
		"absurd threads":   minfer.WithThreads(math.MaxInt),
		"quantised KV":     minfer.WithKVType(graph.Q8_0),
		"no KV":            minfer.WithKVType(99),
		"named twice":      minfer.WithBackends("cpu", "cpu"),
	} {
		_, err := minfer.Open(storyteller, o)
		var option *minfer.OptionError
		if !errors.Is(err, minfer.ErrOption) || !errors.As(err, &option) {
			t.Errorf("%s: error is %v, want an *OptionError", name, err)
		}
	}
}

// TestBackendsRefused asks for devices that cannot be had. The message says why, and what
// would help.
func TestBackendsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		want error
		says string
	}{
		{"abacus", minfer.ErrUnknownBackend, "abacus"},
		{"", minfer.ErrUnknownBackend, ""},
		{"CPU", minfer.ErrUnknownBackend, "cpu"},
		{"cuda", minfer.ErrBackendNotLinked, "github.com/minfer/minfer/backend/cuda"},
		{"cuda:1", minfer.ErrBackendNotLinked, "cuda"},
		{"metal", minfer.ErrBackendNotLinked, "github.com/minfer/minfer/backend/metal"},
		{"unplugged", minfer.ErrBackendUnavailable, "the plug is out"},
	} {
		_, err := minfer.Open(storyteller, minfer.WithBackends(c.name, "cpu"))
		wantError(t, err, c.want)
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("the message is %q, want %q in it", err, c.says)
		}
		t.Setenv("MINFER_BACKENDS", c.name+",cpu")
		if _, err := minfer.Open(storyteller); c.name != "" && !errors.Is(err, c.want) {
			t.Errorf("MINFER_BACKENDS=%s,cpu: error is %v, want %v", c.name, err, c.want)
		}
	}
	t.Setenv("MINFER_BACKENDS", "cpu")
	m := openStoryteller(t)
	if diff := cmp.Diff([]string{"cpu"}, m.Info().Devices); diff != "" {
		t.Errorf("devices differ (-want +got):\n%s", diff)
	}
}

func TestEnvironment(t *testing.T) {
	for _, v := range []string{"many", "-3", "5000", "1e3", "99999999999999999999"} {
		t.Setenv("MINFER_THREADS", v)
		_, err := minfer.Open(storyteller)
		wantError(t, err, minfer.ErrOption)
		if err != nil && !strings.Contains(err.Error(), "MINFER_THREADS") {
			t.Errorf("MINFER_THREADS=%s: the message is %q, want the variable in it", v, err)
		}
	}
	t.Setenv("MINFER_THREADS", "2")
	openStoryteller(t)
	m := openStoryteller(t, minfer.WithThreads(3))
	decode := graph.Params{Tokens: 1, Outputs: 1}
	fused, err := m.Graph(decode)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"SWIGLU", "QKV", "QKV_NORM", "QKV_STORE", "FFN"} {
		t.Setenv("MINFER_NO_FUSE_"+v, "1")
	}
	g, err := openStoryteller(t).Graph(decode)
	if err != nil {
		t.Fatal(err)
	}
	if g.Params.Fusion != (graph.Fusion{}) {
		t.Errorf("fusion is %+v with all of it turned off", g.Params.Fusion)
	}
	if len(g.Nodes) <= len(fused.Nodes) {
		t.Errorf("%d nodes without fusion, %d with", len(g.Nodes), len(fused.Nodes))
	}
	// An option has the last word.
	g, err = openStoryteller(t, minfer.WithFusion(graph.Fusion{SwiGLU: true})).Graph(decode)
	if err != nil {
		t.Fatal(err)
	}
	if g.Params.Fusion != (graph.Fusion{SwiGLU: true}) {
		t.Errorf("fusion is %+v, want SwiGLU alone", g.Params.Fusion)
	}
}

func TestGraphTrace(t *testing.T) {
	var trace bytes.Buffer
	m := openStoryteller(t, minfer.WithGraphTrace(&trace))
	trace.Reset()
	s := newSession(t, m)
	eval(t, s, 1, 2, 3)
	first := trace.String()
	if !strings.Contains(first, "cpu") || !strings.Contains(first, "MatMul") {
		t.Errorf("the trace is %q", first)
	}
	eval(t, s, 1, 2, 3)
	if trace.String() != first {
		t.Error("a graph that is reused is traced again")
	}
}

func TestProgress(t *testing.T) {
	for _, o := range []minfer.Option{nil, minfer.WithoutMmap()} {
		var calls []minfer.Progress
		openStoryteller(t, o, minfer.WithProgress(func(p minfer.Progress) { calls = append(calls, p) }))
		if len(calls) == 0 {
			t.Fatal("no progress")
		}
		for i, p := range calls {
			if p.Total != calls[0].Total || p.Done > p.Total || i > 0 && p.Done < calls[i-1].Done {
				t.Errorf("call %d is %+v after %+v", i, p, calls[max(i-1, 0)])
			}
		}
		if last := calls[len(calls)-1]; last.Done != last.Total || last.Total < 1<<20 {
			t.Errorf("the last call is %+v", last)
		}
	}
}

func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := minfer.Open(filepath.Join(dir, "missing.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want os.ErrNotExist", err)
	}
	if _, err := minfer.Open(dir); err == nil {
		t.Error("a folder was opened")
	}
	path := filepath.Join(dir, "x.gguf")
	if err := os.WriteFile(path, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []minfer.Option{nil, minfer.WithoutMmap()} {
		_, err := minfer.Open(path, o)
		wantError(t, err, minfer.ErrNotGGUF)
	}
}

// TestInfo reads what a model says about itself, also when it has been closed.
func TestInfo(t *testing.T) {
	for _, o := range []minfer.Option{nil, minfer.WithoutMmap()} {
		m := openStoryteller(t, o, minfer.WithBackends("cpu"))
		want := minfer.Info{
			Name: m.Info().Name, Architecture: "qwen3", Parameters: m.Info().Parameters, Bytes: m.Info().Bytes,
			Vocab: 1536, ContextLength: 1024, Embedding: 256, Layers: 4, Devices: []string{"cpu"},
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, m.Info()); diff != "" {
			t.Errorf("after Close (-want +got):\n%s", diff)
		}
		if want.Parameters < 2_500_000 || want.Parameters > 3_000_000 || want.Bytes < 1<<20 || want.Name == "" {
			t.Errorf("the model is %+v", want)
		}
		if got := m.Tokenizer().Decode(encode(t, m, "Hello, world."), minfer.DecodeOptions{}); got != "Hello, world." {
			t.Errorf("after Close the tokenizer gives %q", got)
		}
		if p, err := m.RenderChat(t.Context(), []minfer.Message{{Role: "user", Content: "Hi"}}); err != nil || p.Text != chatML("Hi") {
			t.Errorf("after Close a chat is rendered to %v, %v", p, err)
		}
		_, err := m.Graph(graph.Params{})
		wantError(t, err, minfer.ErrClosed)
		_, err = m.NewSession()
		wantError(t, err, minfer.ErrClosed)
		_, err = m.NewGraphCache(64)
		wantError(t, err, minfer.ErrClosed)
	}
}

// TestErrorMessages reads what the typed errors say.
func TestErrorMessages(t *testing.T) {
	for want, err := range map[string]error{
		"minfer: context is full: 3 tokens and 30 more do not fit the 32 of the session": &minfer.ContextError{Have: 3, More: 30, Context: 32},
		"minfer: cache has no free cells: 7 needed, 0 of 48 free":                        &minfer.CacheError{Needed: 7, Free: 0, Cells: 48},
		"minfer: token 9 is not one of the 5 that the model has":                         &minfer.TokenError{Token: 9, Vocab: 5},
		"minfer: option WithX: 3, want 2":                                                &minfer.OptionError{Option: "WithX", Reason: "3, want 2"},
		`minfer: tensor "a" is stored as I8, which no device in play supports`:           &minfer.TensorError{Tensor: "a", Type: "I8"},
		"minfer: panic while testing: boom\nstack":                                       &minfer.PanicError{During: "testing", Value: "boom", Stack: []byte("stack")},
		"minfer: saved session cannot be restored: late: EOF":                            &minfer.SnapshotError{Reason: "late", Err: io.EOF},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%T says %q, want %q", err, got, want)
		}
	}
}
