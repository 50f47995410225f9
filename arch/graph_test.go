package arch_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/fusion"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/testfiles"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var inf = float32(math.Inf(1))

// everyFusion has all switches on.
var everyFusion = graph.Fusion{SwiGLU: true, QKV: true, QKVNorm: true, QKVBiasRopeStore: true, FFN: true}

// runs are the parameters of the golden graphs.
func runs() []struct {
	name string
	p    graph.Params
} {
	fusedPrefill, fusedDecode := prefill(), decode()
	fusedPrefill.Fusion.SwiGLU = true
	fusedDecode.Fusion = everyFusion
	// With a store of its own, QKVBiasRopeStore does what FusedQKV leaves to do.
	storing := decode()
	storing.Fusion.QKVBiasRopeStore = true
	spans := decode()
	spans.ExplicitSpan = true
	return []struct {
		name string
		p    graph.Params
	}{
		{"prefill", prefill()},
		{"prefill, fused", fusedPrefill},
		{"decode", decode()},
		{"decode, fused", fusedDecode},
		{"decode, store fused", storing},
		{"decode, spans", spans},
	}
}

// The graphs of each family, as texts that a reader can hold against the papers' figures.
func TestGoldenGraphs(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			d := tiny(family).mustOpen(t)
			var got bytes.Buffer
			for _, run := range runs() {
				g := mustBuild(t, d, run.p)
				fuse(t, g)
				fmt.Fprintf(&got, "# %s\n%s\n", run.name, g)
			}
			testfiles.Golden(t, *update, family+".txt", got.Bytes())
		})
	}
}

// fuse rewrites the graph for a device that has everything.
func fuse(t *testing.T, g *graph.Graph) {
	t.Helper()
	for i := range g.Nodes {
		g.Nodes[i].Device = "cpu"
	}
	if _, err := fusion.Run(g, func(string) *backend.Capabilities { return null.Everything() }); err != nil {
		t.Fatal(err)
	}
}

// Topology is a function of Params alone: equal Params give identical graphs, whichever
// definition of the file builds them and whatever it has built before.
func TestEqualParamsEqualGraphs(t *testing.T) {
	for _, family := range families {
		d, again := tiny(family).mustOpen(t), tiny(family).mustOpen(t)
		var built []*graph.Graph
		for _, run := range runs() {
			built = append(built, mustBuild(t, d, run.p))
		}
		for i, run := range runs() {
			for _, d := range []arch.Definition{d, again} {
				if diff := built[i].Diff(mustBuild(t, d, run.p)); diff != "" {
					t.Errorf("%s, %s: %s", family, run.name, diff)
				}
			}
		}
	}
}

// Inputs stand at the head, where they do not cut a device's run in two.
func TestInputsFirst(t *testing.T) {
	p := prefill()
	p.ExplicitSpan = true
	for _, family := range families {
		g := mustBuild(t, tiny(family).mustOpen(t), p)
		var names []string
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if n.Op.Kind() != graph.KindInput {
				break
			}
			names = append(names, fmt.Sprintf("%s %v%v", n.Name, n.Type, n.Shape))
		}
		want := []string{"token_ids I32[5]", "positions I32[5]", "cells I32[5]", "tail_ids I32[1]", "spans I32[16 5]"}
		if d := cmp.Diff(want, names); d != "" || len(g.Inputs) != len(want) {
			t.Errorf("%s: %d inputs, at the head (-want +got):\n%s", family, len(g.Inputs), d)
		}
	}
}

// What follows the last attention is computed for the wanted rows alone, and everything
// before it for all, since later tokens attend to them.
func TestTail(t *testing.T) {
	p := prefill()
	p.Outputs = 2
	for _, family := range families {
		g := mustBuild(t, tiny(family).mustOpen(t), p)
		first := g.Lookup("tail_attn")
		if want := g.Lookup("blk.1.attn_output").ID; first.Sources()[0] != want {
			t.Errorf("%s: tail_attn selects from %d, want attn_output of the last layer, %d", family, first.Sources()[0], want)
		}
		if want := g.Lookup("blk.0.ffn_residual").ID; g.Lookup("tail_residual").Sources()[0] != want {
			t.Errorf("%s: tail_residual does not select from the last layer's input", family)
		}
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if n.Type != graph.F32 {
				continue
			}
			want := p.Tokens
			if n.ID >= first.ID {
				want = p.Outputs
			}
			if n.Shape.Rows() != want {
				t.Errorf("%s: %s, want %d rows", family, describe(n), want)
			}
		}
		if got := g.Node(g.Outputs[0]).Shape; len(g.Outputs) != 1 || got != graph.ShapeOf(40, p.Outputs) {
			t.Errorf("%s: outputs %v of shape %v", family, g.Outputs, got)
		}
	}
}

// Without rows to leave out, there is no selection.
func TestNoTail(t *testing.T) {
	p := prefill()
	p.Outputs = p.Tokens
	for _, family := range families {
		g := mustBuild(t, tiny(family).mustOpen(t), p)
		for i := range g.Nodes {
			if k := g.Nodes[i].Op.Kind(); k == graph.KindGetRows || g.Nodes[i].Name == arch.InputTail {
				t.Errorf("%s: %s in a graph of all rows", family, describe(&g.Nodes[i]))
			}
		}
	}
}

// The activations before the logits are the same graph without its last node.
func TestHidden(t *testing.T) {
	for _, family := range families {
		for _, p := range []graph.Params{prefill(), decode()} {
			m := tiny(family).mustOpen(t)
			want := mustBuild(t, m, p)
			p.Result = graph.Hidden
			got := mustBuild(t, m, p)
			last := len(got.Nodes) - 1
			if len(want.Nodes) != last+2 || got.Nodes[last].Name != "output_norm" || len(got.Outputs) != 1 || int(got.Outputs[0]) != last {
				t.Errorf("%s: ends with %s and gives %v", family, describe(&got.Nodes[last]), got.Outputs)
			}
			for i := range got.Nodes {
				if got.Nodes[i] != want.Nodes[i] {
					t.Errorf("%s: %s, want %s", family, describe(&got.Nodes[i]), describe(&want.Nodes[i]))
				}
			}
			back, err := graph.Parse(got.String())
			if err != nil || back.Params != got.Params {
				t.Errorf("%s: read back as %+v, %v", family, back.Params, err)
			}
		}
	}
}

func TestTiedOutput(t *testing.T) {
	for _, family := range families {
		m := tiny(family)
		for _, want := range []string{"output.weight", "token_embd.weight"} {
			g := mustBuild(t, m.mustOpen(t), decode())
			logits := g.Node(g.Outputs[0])
			if op := (graph.MatMul{Weight: want, Type: "F16", In: 32, Out: 40}); logits.Op != op {
				t.Errorf("%s: logits are %s, want %s", family, graph.OpString(logits.Op), graph.OpString(op))
			}
			m.tensors["output.weight"] = nil
		}
	}
}

// Biases are taken where the file has them.
func TestBiases(t *testing.T) {
	m := tiny("llama")
	biases := map[string]uint64{"attn_q": 32, "attn_k": 16, "attn_v": 16, "attn_output": 32, "ffn_gate": 48, "ffn_up": 48, "ffn_down": 32}
	for name, n := range biases {
		m.tensors["blk.0."+name+".bias"] = []uint64{n}
	}
	m.tensors["output.bias"] = []uint64{40}
	g := mustBuild(t, m.mustOpen(t), decode())
	for i := range g.Nodes {
		n := &g.Nodes[i]
		op, ok := n.Op.(graph.MatMul)
		if !ok {
			continue
		}
		want := n.Name + ".bias"
		switch {
		case n.Name == "logits":
			want = "output.bias"
		case n.Name[:5] == "blk.1":
			want = ""
		}
		if op.Bias != want {
			t.Errorf("%s has bias %q, want %q", n.Name, op.Bias, want)
		}
	}
	fused := decode()
	fused.Fusion = everyFusion
	g = mustBuild(t, m.mustOpen(t), fused)
	qkv := g.Lookup("blk.0.qkv").Op.(graph.FusedQKV)
	ffn := g.Lookup("blk.0.ffn_act").Op.(graph.FusedFFN)
	got := []string{qkv.Q.Bias, qkv.K.Bias, qkv.V.Bias, ffn.Gate.Bias, ffn.Up.Bias}
	want := []string{"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias", "blk.0.ffn_gate.bias", "blk.0.ffn_up.bias"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("fused biases differ (-want +got):\n%s", d)
	}
}

// What the metadata says of attention and rotation is in every layer's operations.
func TestAttention(t *testing.T) {
	m := tiny("llama")
	m.keys["attention.sliding_window"] = uint32(16)
	m.tensors["rope_freqs.weight"] = []uint64{4}
	g := mustBuild(t, m.mustOpen(t), decode())
	for layer := range 2 {
		at := arch.Layer(layer)
		attn := graph.Attention{Layer: layer, Heads: 4, KVHeads: 2, HeadDim: 8, Scale: float32(1 / math.Sqrt(8)), Window: 16}
		if op := g.Lookup(at("attn")).Op; op != attn {
			t.Errorf("attention is %s, want %s", graph.OpString(op), graph.OpString(attn))
		}
		rope := graph.RoPE{Style: graph.RoPEInterleaved, Base: 10000, Scale: 1, Dim: 8, Heads: 2, HeadDim: 8, Factors: "rope_freqs.weight"}
		if op := g.Lookup(at("attn_k_rope")).Op; op != rope {
			t.Errorf("rotation is %s, want %s", graph.OpString(op), graph.OpString(rope))
		}
	}
}

// Every switch brings its operation where the layer has its form, and no other.
func TestFusionSwitches(t *testing.T) {
	kinds := []graph.Kind{graph.KindFusedQKV, graph.KindFusedQKVNorm, graph.KindQKVBiasRopeStore, graph.KindFusedFFN}
	switches := []graph.Fusion{{QKV: true}, {QKVNorm: true}, {QKVBiasRopeStore: true}, {FFN: true}}
	for _, family := range families {
		d := tiny(family).mustOpen(t)
		for i, f := range switches {
			p := decode()
			p.Fusion = f
			g := mustBuild(t, d, p)
			for k, kind := range kinds {
				want := 0
				if normed := family == "qwen3"; k == i && (kind == graph.KindFusedFFN || (kind == graph.KindFusedQKVNorm) == normed) {
					want = 2
				}
				if got := count(g, kind); got != want {
					t.Errorf("%s with %+v has %d of %v, want %d", family, f, got, kind, want)
				}
			}
		}
	}
}

func count(g *graph.Graph, kind graph.Kind) int {
	n := 0
	for i := range g.Nodes {
		if g.Nodes[i].Op.Kind() == kind {
			n++
		}
	}
	return n
}
