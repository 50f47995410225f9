package vocabulary

import (
	"math"
	"testing"

	"github.com/minfer/minfer/graph"
)

// TestBounds: an operation is run up to a bound, and not beyond it. What has no meaning is run by nobody.
func TestBounds(t *testing.T) {
	b := Bounds{Row: 256, Rows: 100, Head: 64, Finish: 32, Top: 8}
	product := func(in, out int) graph.MatMul { return graph.MatMul{Type: "Q4_0", In: in, Out: out} }
	rope := graph.RoPE{Heads: 4, HeadDim: 32, Dim: 32, Base: 10000, Scale: 1}
	wider := rope
	wider.HeadDim = 34
	attention := graph.Attention{Heads: 4, KVHeads: 2, HeadDim: 64, Scale: 1, Mode: graph.Causal}
	widest, window, groups := attention, attention, attention
	widest.HeadDim = 65
	window.Mode, window.ExplicitSpan, window.Window = graph.Full, true, 3
	groups.KVHeads = 3
	for _, c := range []struct {
		name string
		op   graph.Op
		want bool
	}{
		{"row", product(256, 1), true},
		{"longer row", product(288, 1), false},
		{"part of a block", product(48, 1), false},
		{"rows", product(32, 100), true},
		{"more rows", product(32, 101), false},
		{"no rows", product(32, 0), false},
		{"unknown format", graph.MatMul{Type: "Q9_9", In: 32, Out: 1}, false},
		{"table", graph.Embed{Type: "F32", Dim: 256, Vocab: 101}, false},
		{"one of three products", graph.FusedQKV{Q: product(32, 1), K: product(32, 1), V: product(288, 1), RoPE: rope, KVHeads: 1}, false},
		{"finish", graph.FusedQKV{Q: product(32, 1), K: product(32, 1), V: product(32, 1), RoPE: rope, KVHeads: 1}, true},
		{"wider finish", graph.FusedQKV{Q: product(32, 1), K: product(32, 1), V: product(32, 1), RoPE: wider, KVHeads: 1}, false},
		{"rotation of any width", wider, true},
		{"attention", attention, true},
		{"wider attention", widest, false},
		{"window over full attention", window, false},
		{"heads that do not divide", groups, false},
		{"top", graph.TopK{K: 8, Among: 1}, true},
		{"more than the top", graph.TopK{K: 9, Among: 1}, false},
	} {
		if got := b.Supports(c.op, graph.F32); got != c.want {
			t.Errorf("%s: supported is %v, want %v", c.name, got, c.want)
		}
		if c.want && b.Supports(c.op, graph.F16) {
			t.Errorf("%s: supported in half precision", c.name)
		}
	}
	if b := (&Bounds{Row: math.MaxInt, Rows: math.MaxInt}); b.Supports(graph.TopK{K: 1, Among: 1}, graph.F32) {
		t.Error("a device without TopK runs it")
	}
}

// TestMovement: values that are moved and not computed may have other types.
func TestMovement(t *testing.T) {
	var b Bounds
	for _, c := range []struct {
		op    graph.Op
		types []graph.DType
	}{
		{graph.GetRows{}, []graph.DType{graph.F32, graph.I32}},
		{graph.KVLoad{}, []graph.DType{graph.F32, graph.F16}},
		{graph.View{}, []graph.DType{graph.F32, graph.F16, graph.I32}},
	} {
		for _, d := range []graph.DType{graph.F32, graph.F16, graph.I32} {
			want := false
			for _, x := range c.types {
				want = want || x == d
			}
			if got := b.Supports(c.op, d); got != want {
				t.Errorf("%T of %v: supported is %v, want %v", c.op, d, got, want)
			}
		}
	}
}
