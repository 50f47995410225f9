//go:build cuda

package cuda

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/testfiles"
	"github.com/minfer/minfer/sched/trace"
)

func openModel(t testing.TB, path string, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	if err := available(); err != nil {
		t.Skip(err)
	}
	m, err := minfer.Open(path, append([]minfer.Option{minfer.WithBackends("cuda", "cpu")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func newSession(t testing.TB, m *minfer.Model, opts ...minfer.SessionOption) *minfer.Session {
	t.Helper()
	s, err := m.NewSession(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func evalAll(t testing.TB, s *minfer.Session, tokens []minfer.Token) (all []float32) {
	t.Helper()
	rows, err := s.EvalAll(context.Background(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		all = append(all, r...)
	}
	return all
}

// distance is the root mean square of the difference over that of the exact values.
func distance(got, exact []float32) float64 {
	if len(got) != len(exact) {
		return math.Inf(1)
	}
	var diff, norm float64
	for i := range exact {
		d := float64(got[i]) - float64(exact[i])
		diff += d * d
		norm += float64(exact[i]) * float64(exact[i])
	}
	return math.Sqrt(diff / norm)
}

func readFloats(t testing.TB, path string) []float32 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return floatsOf(data)
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onlyHere fails if a graph of the model has a node on another device than the GPU.
func onlyHere(t testing.TB, m *minfer.Model) {
	t.Helper()
	for _, p := range []graph.Params{{Tokens: 1}, {Tokens: 5}, {Tokens: 5, ExplicitSpan: true}, {Tokens: 1, Top: 1}, {Tokens: 5, Outputs: 5, Top: 64}} {
		g, err := m.Graph(p)
		if err != nil {
			t.Fatal(err)
		}
		live := g.Live()
		for i := range g.Nodes {
			if n := &g.Nodes[i]; live[i] && graph.Computed(n.Op) && n.Device != "cuda" {
				t.Errorf("node %q (%s) is on %q", n.Name, graph.OpString(n.Op), n.Device)
			}
		}
	}
}

// TestGolden holds every small model in every quantisation to the bar of the CPU: logits no
// further from the exact ones than 1.05 times what llama.cpp's are.
func TestGolden(t *testing.T) {
	var index struct {
		Tokens []minfer.Token
		Cases  []struct{ Model string }
	}
	readJSON(t, testfiles.Shared(t, "golden", "logits", "index.json"), &index)
	for _, c := range index.Cases {
		t.Run(c.Model, func(t *testing.T) {
			m := openModel(t, testfiles.Shared(t, "golden", "models", c.Model))
			onlyHere(t, m)
			name := strings.TrimSuffix(c.Model, ".gguf")
			exact := readFloats(t, testfiles.Shared(t, "golden", "logits", name+".exact.f32"))
			theirs := distance(readFloats(t, testfiles.Shared(t, "golden", "logits", name+".llamacpp.f32")), exact)
			ours := distance(evalAll(t, newSession(t, m), index.Tokens), exact)
			t.Logf("distance from exact: %.5f, llama.cpp's %.5f", ours, theirs)
			if !(ours <= 1.05*theirs) {
				t.Errorf("distance from exact is %.5f, want at most 1.05 times llama.cpp's %.5f", ours, theirs)
			}
		})
	}
}

// TestStoryteller follows the recorded continuations of a trained model: wherever the exact
// logits leave no doubt, the largest logit is the right one.
func TestStoryteller(t *testing.T) {
	for _, name := range []string{"storyteller-q8_0", "storyteller-q4_0", "storyteller-q4_k_m"} {
		t.Run(name, func(t *testing.T) {
			var golden struct {
				Prompts []struct {
					Name           string
					Tokens, Greedy []minfer.Token
					Argmax         []minfer.Token `json:"exact_argmax"`
					Gap            []float64      `json:"exact_gap"`
				}
			}
			readJSON(t, testfiles.Shared(t, "golden", "real", name+".json"), &golden)
			m := openModel(t, testfiles.Shared(t, "models", name+".gguf"))
			for _, p := range golden.Prompts[:2] {
				s := newSession(t, m)
				feed := append(append([]minfer.Token(nil), p.Tokens...), p.Greedy...)[:len(p.Tokens)-1+min(24, len(p.Argmax))]
				rows, err := s.EvalAll(context.Background(), feed)
				if err != nil {
					t.Fatal(err)
				}
				for i, row := range rows[len(p.Tokens)-1:] {
					if best := argmax(row); p.Gap[i] >= 0.1 && best != p.Argmax[i] {
						t.Errorf("%s, step %d: largest logit is %d, want %d (gap %.3f)", p.Name, i, best, p.Argmax[i], p.Gap[i])
					}
				}
			}
		})
	}
}

func argmax(row []float32) minfer.Token {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return minfer.Token(best)
}

// storyteller is a model that is part of the repository.
func storyteller() string { return filepath.Join("..", "..", "testdata", "storyteller-q4_0.gguf") }

var someTokens = []minfer.Token{5, 9, 2, 33, 64, 17, 8, 8, 41, 3, 22, 71, 30, 12, 50, 6, 19, 77, 4, 90, 15, 61, 7, 28}

func sameBits(t testing.TB, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: value %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
}

// TestBits checks that logits do not depend on how a prompt is cut, on fusion, on replay, or on
// what ran before.
func TestBits(t *testing.T) {
	m := openModel(t, storyteller())
	want := evalAll(t, newSession(t, m), someTokens)
	for _, batch := range []int{1, 2, 5, 9} {
		sameBits(t, fmt.Sprintf("in batches of %d", batch), evalAll(t, newSession(t, m, minfer.WithBatch(batch)), someTokens), want)
	}
	s := newSession(t, m)
	var got []float32
	for _, tok := range someTokens {
		row, err := s.Eval(context.Background(), []minfer.Token{tok})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, row...)
	}
	sameBits(t, "token by token", got, want)
	plain := openModel(t, storyteller(), minfer.WithFusion(graph.Fusion{}))
	sameBits(t, "without fusion", evalAll(t, newSession(t, plain, minfer.WithBatch(1)), someTokens), want)
}

// TestObserved checks that steps which are launched from recordings, and steps that are observed in between and so run node
// by node, give the bits of a session that nobody looks at; that the trace says that the device left its fast
// path; and that it goes back to it afterwards.
func TestObserved(t *testing.T) {
	m := openModel(t, storyteller())
	want := evalAll(t, newSession(t, m), someTokens)
	vocab := len(want) / len(someTokens)
	s := newSession(t, m, minfer.WithContext(64))
	at := 0
	// steps evaluates n tokens and returns how many runs were launched from recordings.
	steps := func(n int) uint64 {
		t.Helper()
		before := s.Cache().Stats().Replays
		for range n {
			row, err := s.Eval(context.Background(), someTokens[at:at+1])
			if err != nil {
				t.Fatal(err)
			}
			sameBits(t, fmt.Sprintf("step %d", at), row, want[at*vocab:(at+1)*vocab])
			at++
		}
		return s.Cache().Stats().Replays - before
	}
	if steps(8) == 0 || steps(2) != 2 {
		t.Fatal("the steps are not launched from a recording")
	}
	var file bytes.Buffer
	text := func(minfer.Token) string { return "" }
	recorder, err := trace.NewRecorder(&file, m.TraceModel(), text, trace.WithLimits(trace.Limits{Rows: 1, Columns: 8, Attention: 1}))
	if err != nil {
		t.Fatal(err)
	}
	stop := m.Observe(recorder)
	if n := steps(3); n != 0 {
		t.Errorf("%d steps were launched from a recording while they were observed", n)
	}
	stop()
	if n := steps(8); n < 5 {
		t.Errorf("%d steps are launched from a recording after the observer has gone", n)
	}
	captured, passes := false, 0
	for r, err := range trace.Records(&file) {
		if err != nil {
			t.Fatal(err)
		}
		switch r := r.(type) {
		case *trace.Graph:
			captured = len(r.Captured) == 1 && r.Captured[0] == "cuda"
		case *trace.PassRecord:
			passes++
			for _, n := range r.Nodes {
				if n.Device != "cuda" || n.Stats != nil && n.Stats.NaN+n.Stats.Inf > 0 || n.Attention != nil && n.Attention.Unavailable != "" {
					t.Errorf("%+v", n)
				}
			}
			if len(r.Nodes) < 30 || len(r.Error) > 0 {
				t.Errorf("pass %d has %d nodes, %q", r.Pass, len(r.Nodes), r.Error)
			}
		}
	}
	if !captured || passes != 3 {
		t.Errorf("the trace says %v of the fast path, and has %d passes", captured, passes)
	}
}

// TestForks checks sessions whose cells lie scattered.
func TestForks(t *testing.T) {
	m := openModel(t, storyteller())
	ctx := context.Background()
	s := newSession(t, m, minfer.WithContext(128))
	if _, err := s.Eval(ctx, someTokens[:20]); err != nil {
		t.Fatal(err)
	}
	fork, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	defer fork.Close()
	for i := range 4 {
		a, err := s.Eval(ctx, []minfer.Token{minfer.Token(20 + i)})
		if err != nil {
			t.Fatal(err)
		}
		b, err := fork.Eval(ctx, []minfer.Token{minfer.Token(20 + i)})
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, "a fork", b, a)
	}
}

// TestSaved checks that a session saved on the GPU goes on there with the same bits, and on the CPU up
// to rounding; and the other way round.
func TestSaved(t *testing.T) {
	ctx := context.Background()
	for _, kv := range []graph.DType{graph.F16, graph.F32} {
		var kept [2][]float32 // what each device's own session goes on with
		devices := [2]string{"cuda", "cpu"}
		open := func(device string) *minfer.Model {
			return openModel(t, storyteller(), minfer.WithBackends(device), minfer.WithKVType(kv))
		}
		var saved [2]bytes.Buffer
		for i, device := range devices {
			s := newSession(t, open(device), minfer.WithContext(64))
			if _, err := s.Eval(ctx, someTokens); err != nil {
				t.Fatal(err)
			}
			if err := s.Save(&saved[i]); err != nil {
				t.Fatal(err)
			}
			row, err := s.Eval(ctx, []minfer.Token{6})
			if err != nil {
				t.Fatal(err)
			}
			kept[i] = append(kept[i], row...)
		}
		for i, from := range devices {
			for j, to := range devices {
				again, err := open(to).Restore(bytes.NewReader(saved[i].Bytes()), minfer.WithContext(64))
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close()
				got, err := again.Eval(ctx, []minfer.Token{6})
				if err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("%v saved on %s and restored on %s", kv, from, to)
				if i == j {
					sameBits(t, what, got, kept[i])
				} else if d := distance(got, kept[i]); !(d <= 1e-2) {
					t.Errorf("%s: distance is %.2g", what, d)
				}
			}
		}
	}
}

// partial is a device that takes only some operations.
type partial struct {
	*device
	caps *backend.Capabilities
}

func (p *partial) Capabilities() *backend.Capabilities { return p.caps }

// A mix is a split of the operations between the GPU and the CPU.
type mix struct {
	name  string
	takes func(graph.Op) bool
}

var mixes = func() []mix {
	ofKinds := func(kinds ...graph.Kind) func(graph.Op) bool {
		return func(op graph.Op) bool {
			for _, k := range kinds {
				if op.Kind() == k {
					return true
				}
			}
			return false
		}
	}
	not := func(f func(graph.Op) bool) func(graph.Op) bool { return func(op graph.Op) bool { return !f(op) } }
	var list []mix
	for _, op := range graph.Kinds() {
		if k := op.Kind(); graph.Computed(op) {
			list = append(list, mix{"only-" + k.String(), ofKinds(k)}, mix{"all-but-" + k.String(), not(ofKinds(k))})
		}
	}
	attention := ofKinds(graph.KindKVStore, graph.KindAttention, graph.KindFusedQKV, graph.KindFusedQKVNorm, graph.KindQKVBiasRopeStore)
	layer := func(remainder int) func(graph.Op) bool {
		return func(op graph.Op) bool { n, ok := graph.LayerOf(op); return ok && n%2 == remainder }
	}
	list = append(list, mix{"layers", attention}, mix{"all-but-layers", not(attention)},
		mix{"even-layers", layer(0)}, mix{"odd-layers", layer(1)},
		mix{"weights", func(op graph.Op) bool { return len(graph.Weights(op)) > 0 }},
		mix{"no-weights", func(op graph.Op) bool { return len(graph.Weights(op)) == 0 }})
	for seed := range 4 {
		list = append(list, mix{fmt.Sprintf("half-%d", seed), func(op graph.Op) bool {
			h := fnv.New32a()
			fmt.Fprint(h, seed, graph.OpString(op))
			return h.Sum32()&0x100 != 0
		}})
	}
	for i := range list {
		x := &list[i]
		x.name = "cuda-" + strings.ToLower(x.name)
		caps := &backend.Capabilities{ExplicitSpan: true, PackedKV: true, Supports: func(op graph.Op, t graph.DType) bool {
			return (x.takes(op) || !graph.Computed(op)) && bounds.Supports(op, t)
		}}
		backend.Register(backend.Entry{
			Name: x.name, ID: backend.ID(4000 + i), Priority: 50, Available: available, Capabilities: caps,
			Open: func(c backend.Config) (backend.Backend, error) {
				d, err := open(c)
				if err != nil {
					return nil, err
				}
				return &partial{d.(*device), caps}, nil
			},
		})
	}
	return list
}()

// TestMixedSplits compares every mix of GPU and CPU with the CPU alone, up to rounding. Weights
// of floats leave no room for more than rounding; with quantised ones an activation may
// fall on the other side of a half.
func TestMixedSplits(t *testing.T) {
	if err := available(); err != nil {
		t.Skip(err)
	}
	for _, model := range []struct {
		name  string
		bound float64
	}{{"tiny-qwen3-f16", 1e-3}, {"tiny-qwen2-q8_0", 1e-2}, {"tiny-llama-q4_k_m", 1e-2}} {
		path := testfiles.Shared(t, "golden", "models", model.name+".gguf")
		want := journey(t, openModel(t, path, minfer.WithBackends("cpu"), minfer.WithThreads(1)))
		for i, x := range mixes {
			if model.name != "tiny-qwen3-f16" && i%3 != 0 {
				continue
			}
			t.Run(model.name+"/"+x.name, func(t *testing.T) {
				got := journey(t, openModel(t, path, minfer.WithBackends(x.name, "cpu"), minfer.WithThreads(1)))
				if d := distance(got, want); !(d <= model.bound) {
					t.Errorf("distance from the CPU is %.2g, want at most %.2g", d, model.bound)
				}
			})
		}
	}
}

// journey is a prompt and a few steps.
func journey(t testing.TB, m *minfer.Model) (all []float32) {
	t.Helper()
	s := newSession(t, m, minfer.WithContext(32))
	all = evalAll(t, s, someTokens[:4])
	for _, tok := range someTokens[4:7] {
		row, err := s.Eval(context.Background(), []minfer.Token{tok})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row...)
	}
	return all
}

// TestTwoDevices splits a model between two GPUs.
func TestTwoDevices(t *testing.T) {
	if _, err := backend.Open("cuda:7", backend.Config{}); err == nil || !strings.Contains(err.Error(), "cuda:7") {
		t.Errorf("a GPU that is not there: %v", err)
	}
	if b, err := backend.Open("cuda:1", backend.Config{}); err != nil {
		t.Skip(err)
	} else if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	want := journey(t, openModel(t, storyteller()))
	sameBits(t, "on two GPUs", journey(t, openModel(t, storyteller(), minfer.WithBackends("cuda-even-layers", "cuda:1", "cpu"))), want)
}
