package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/storyteller"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

func open(t testing.TB, file []byte, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	m, err := minfer.OpenBytes(file, opts...)
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

// journey takes a session through all that a session can do, and returns the logits it
// met on the way.
type journey struct {
	t    testing.TB
	m    *minfer.Model
	rows [][]float32
}

func (j *journey) keep(logits []float32, err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatal(err)
	}
	j.rows = append(j.rows, append([]float32(nil), logits...))
}

func (j *journey) check(err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatal(err)
	}
}

func travel(t testing.TB, m *minfer.Model) [][]float32 {
	t.Helper()
	ctx := context.Background()
	j := &journey{t: t, m: m}
	s, err := m.NewSession(minfer.WithContext(64), minfer.WithBatch(5))
	j.check(err)
	// A prompt in chunks of 5, then tokens one by one.
	prompt := []minfer.Token{5, 9, 2, 33, 64, 17, 8, 8, 41, 3, 22}
	rows, err := s.EvalAll(ctx, prompt)
	j.check(err)
	for _, r := range rows {
		j.keep(r, nil)
	}
	for _, tok := range []minfer.Token{12, 50} {
		j.keep(s.Eval(ctx, []minfer.Token{tok}))
	}
	// Both ways of a fork, in turn, so that their cells interleave.
	fork, err := s.Fork()
	j.check(err)
	for i := range 2 {
		j.keep(s.Eval(ctx, []minfer.Token{minfer.Token(20 + i)}))
		j.keep(fork.Eval(ctx, []minfer.Token{minfer.Token(40 + i), 2}))
	}
	// Back, and on with something else.
	j.check(s.Rewind(6))
	j.keep(s.Eval(ctx, []minfer.Token{1, 2, 3}))
	j.keep(s.Eval(ctx, []minfer.Token{4}))
	// Saved and restored.
	var saved bytes.Buffer
	j.check(fork.Save(&saved))
	restored, err := m.Restore(&saved, minfer.WithContext(64))
	j.check(err)
	j.keep(restored.Eval(ctx, []minfer.Token{6}))
	for _, s := range []*minfer.Session{s, fork, restored} {
		j.check(s.Close())
	}
	return j.rows
}

// same compares with ==, which also finds what is not a number.
func same(t testing.TB, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows of logits, want %d", len(got), len(want))
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("row %d has %d logits, want %d", i, len(got[i]), len(want[i]))
		}
		for k := range want[i] {
			if got[i][k] != want[i][k] {
				t.Fatalf("row %d: logit %d is %v (%#x), want %v (%#x)", i, k,
					got[i][k], math.Float32bits(got[i][k]), want[i][k], math.Float32bits(want[i][k]))
			}
		}
	}
}

// TestMixedSplits compares every mix of devices with the CPU alone, and checks that
// what was to cross did.
func TestMixedSplits(t *testing.T) {
	for _, size := range models {
		file := size.file(t)
		for _, kv := range []graph.DType{graph.F16, graph.F32} {
			alone := travel(t, open(t, file, minfer.WithBackends("cpu"), minfer.WithKVType(kv), minfer.WithThreads(2)))
			for _, mix := range mixes {
				if kv == graph.F32 && mix.kind != mixes[0].kind && !mix.noPack {
					continue // what the regions hold matters to two mixes only
				}
				t.Run(fmt.Sprintf("%s/%v/%s", size.arch, kv, mix.name), func(t *testing.T) {
					m := open(t, file, minfer.WithBackends("relay-"+mix.name, "cpu"), minfer.WithKVType(kv), minfer.WithThreads(1))
					same(t, travel(t, m), alone)
					mix.checkPlacement(t, m, kv)
					mix.checkTraffic(t, m)
				})
			}
		}
	}
}

// placement is where the nodes of a graph run.
type placement struct {
	relay, cpu int   // nodes
	splits     int   // runs of one device
	toRelay    int64 // bytes that cross in an execution, inputs of the host included
	fromRelay  int64
}

func placed(g *graph.Graph, relayName string) (p placement) {
	live := g.Live()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch {
		case !live[i]:
		case n.Op.Kind() == graph.KindInput && n.Device == relayName:
			p.toRelay += int64(n.Bytes())
		case !graph.Computed(n.Op):
		case n.Device == relayName:
			p.relay++
		default:
			p.cpu++
		}
	}
	splits := sched.Splits(g)
	p.splits = len(splits)
	for _, s := range splits {
		for _, id := range s.Inputs {
			if n := g.Node(id); n.Device == relayName {
				p.fromRelay += int64(n.Bytes())
			} else {
				p.toRelay += int64(n.Bytes())
			}
		}
	}
	return p
}

// checkPlacement checks that every node is on the relay if that takes it, and on the CPU
// if not. Attention is taken with all that touches a layer's regions, or not at all.
func (x *mix) checkPlacement(t *testing.T, m *minfer.Model, kv graph.DType) {
	t.Helper()
	for _, p := range []graph.Params{{Tokens: 1}, {Tokens: 5}, {Tokens: 5, ExplicitSpan: true}} {
		g, err := m.Graph(p)
		if err != nil {
			t.Fatal(err)
		}
		layers := x.layersTaken(t, m, kv)
		live := g.Live()
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if !live[i] || !graph.Computed(n.Op) || n.Op.Kind().Traits().Fused && n.Op.Kind() == graph.KindSwiGLU {
				continue // SwiGLU is where Mul was
			}
			want := x.takes == nil || x.takes(n.Op, n.Type)
			if layer, ok := graph.LayerOf(n.Op); ok {
				want = layers[layer]
			}
			if got := n.Device != "cpu"; got != want && n.Op != (graph.Mul{}) {
				t.Errorf("%s (%s) is on %s", n.Name, graph.OpString(n.Op), n.Device)
			}
		}
	}
}

// layersTaken says for each layer whether the relay takes all that ever touches its
// regions, in whichever graph.
func (x *mix) layersTaken(t *testing.T, m *minfer.Model, kv graph.DType) map[int]bool {
	t.Helper()
	taken := make(map[int]bool)
	for i := range m.Info().Layers {
		taken[i] = !x.noSpan && (!x.noPack || kv == graph.F32)
	}
	for _, p := range []graph.Params{{Tokens: 1}, {Tokens: 5}, {Tokens: 5, ExplicitSpan: true}} {
		g, err := m.Graph(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if layer, ok := graph.LayerOf(n.Op); ok && graph.Computed(n.Op) && x.takes != nil && !x.takes(n.Op, n.Type) {
				taken[layer] = false
			}
		}
	}
	return taken
}

// checkTraffic checks that one decode step ran as many nodes and moved as many bytes as
// the graph says.
func (x *mix) checkTraffic(t *testing.T, m *minfer.Model) {
	t.Helper()
	s, err := m.NewSession(minfer.WithContext(16))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	if _, err := s.Eval(ctx, []minfer.Token{3}); err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(graph.Params{Tokens: 1, Cells: 16})
	if err != nil {
		t.Fatal(err)
	}
	before := x.kind.Traffic()
	x.nodes.Store(0)
	if _, err := s.Eval(ctx, []minfer.Token{4}); err != nil {
		t.Fatal(err)
	}
	after := x.kind.Traffic()
	want := placed(g, "relay-"+x.name)
	if got := int(after.Nodes - before.Nodes); got != want.relay || x.nodes.Load() != int64(got) {
		t.Errorf("%d nodes ran on the relay (%d seen before they did), the graph has %d there", got, x.nodes.Load(), want.relay)
	}
	if got := after.Written - before.Written; got != want.toRelay {
		t.Errorf("%d bytes went to the relay, want %d", got, want.toRelay)
	}
	if got := after.Copied - before.Copied; got != want.fromRelay {
		t.Errorf("%d bytes were copied from the relay, want %d", got, want.fromRelay)
	}
	if want.relay > 0 && want.cpu > 0 && (want.splits < 2 || want.toRelay+want.fromRelay == 0) {
		t.Errorf("nodes are on both devices, but there are %d splits and %d bytes cross", want.splits, want.toRelay+want.fromRelay)
	}
}

// TestThreeDevices has values cross between two relays.
func TestThreeDevices(t *testing.T) {
	for _, size := range models {
		t.Run(size.arch, func(t *testing.T) {
			file := size.file(t)
			want := travel(t, open(t, file, minfer.WithBackends("cpu")))
			for _, names := range [][]string{
				{"relay-even-layers", "relay-odd-layers", "cpu"},
				{"relay-products", "relay-all-but-layers", "cpu"},
				{"relay-products", "relay-rest"},
				{"relay-weights", "relay-no-weights"},
				{"relay-all:1", "relay-all:2"},
				{"cpu", "relay-all"},
			} {
				m := open(t, file, minfer.WithBackends(names...))
				same(t, travel(t, m), want)
			}
		})
	}
}

// TestBatch has sessions of one cache evaluate at the same time, which on a device other
// than the CPU puts them into common passes.
func TestBatch(t *testing.T) {
	file := models[0].file(t)
	prompts := [][]minfer.Token{{1, 2, 3, 4, 5}, {9, 8, 7}, {4, 4, 4, 4}, {60}}
	const steps = 6
	run := func(m *minfer.Model, c *minfer.GraphCache) [][]float32 {
		var wait sync.WaitGroup
		rows := make([][]float32, len(prompts)*steps)
		for i, p := range prompts {
			wait.Go(func() {
				s, err := m.NewSession(minfer.WithContext(32), minfer.WithCache(c))
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				tokens := p
				for k := range steps {
					logits, err := s.Eval(context.Background(), tokens)
					if err != nil {
						t.Error(err)
						return
					}
					rows[i*steps+k] = append([]float32(nil), logits...)
					tokens = []minfer.Token{minfer.Token(k + 3)}
				}
			})
		}
		wait.Wait()
		return rows
	}
	alone := open(t, file, minfer.WithBackends("cpu"))
	c, err := alone.NewGraphCache(256, minfer.WithBatching(false))
	if err != nil {
		t.Fatal(err)
	}
	want := run(alone, c)
	for _, name := range []string{"relay-all", "relay-layers", "relay-all-but-layers", "relay-half-3"} {
		m := open(t, file, minfer.WithBackends(name, "cpu"))
		c, err := m.NewGraphCache(256, minfer.WithBatching(true))
		if err != nil {
			t.Fatal(err)
		}
		same(t, run(m, c), want)
	}
}

// TestStoryteller compares a trained model on a few mixes.
func TestStoryteller(t *testing.T) {
	compare(t, storyteller.Model, "relay", "relay-odd-layers")
}

// TestGoldenModels compares models with other block formats on a few mixes.
func TestGoldenModels(t *testing.T) {
	folder := os.Getenv("MINFER_SHARED")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "shared")
	}
	for _, name := range []string{"tiny-qwen2-q4_k_m", "tiny-llama-q6_k", "tiny-qwen3-iq4_xs"} {
		t.Run(name, func(t *testing.T) {
			file, err := os.ReadFile(filepath.Join(folder, "golden", "models", name+".gguf"))
			if errors.Is(err, fs.ErrNotExist) && os.Getenv("MINFER_REQUIRE_SHARED") != "1" {
				t.Skipf("the shared folder is absent (MINFER_SHARED): %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			compare(t, file, "relay", "relay-half-2")
		})
	}
}

func compare(t *testing.T, file []byte, relays ...string) {
	want := travel(t, open(t, file, minfer.WithBackends("cpu")))
	for _, name := range relays {
		t.Run(name, func(t *testing.T) {
			same(t, travel(t, open(t, file, minfer.WithBackends(name, "cpu"))), want)
		})
	}
}

// TestSavedOnAnotherDevice checks that keys and values, which lie as their device likes,
// are not given to one of another kind.
func TestSavedOnAnotherDevice(t *testing.T) {
	file := models[0].file(t)
	s := session(t, open(t, file, minfer.WithBackends("relay-all", "cpu")))
	// Whole blocks of cells are saved; of fewer tokens there would be no keys and values.
	if _, err := s.Eval(context.Background(), append(slices.Repeat(steps[0], 20)[:19:19], steps[0][0])); err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := s.Save(&saved); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"cpu": minfer.ErrSnapshot, "relay-hooked": minfer.ErrSnapshot, "relay-all:1": nil} {
		m := open(t, file, minfer.WithBackends(name))
		_, err := m.Restore(bytes.NewReader(saved.Bytes()), minfer.WithContext(32))
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("restored on %s: %v, want %v", name, err, want)
		}
	}
}
