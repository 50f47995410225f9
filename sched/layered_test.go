package sched_test

import (
	"slices"
	"testing"

	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

func TestLayersOf(t *testing.T) {
	b := graph.NewBuilder(graph.Params{Tokens: 1, Cells: 16, KVType: graph.F16})
	ids, positions, cells := b.Input("ids", graph.I32, 1), b.Input("positions", graph.I32, 1), b.Input("cells", graph.I32, 1)
	x := b.Node("embed", graph.Embed{Weight: "token_embd.weight", Type: "F32", Dim: 4, Vocab: 9}, ids)
	want := []int{-1, -1, -1, -1}
	for layer, names := range []string{"blk.0.", "blk.1."} {
		n := b.Node(names+"norm", graph.RMSNorm{Weight: names + "norm.weight"}, x)
		k := b.Node(names+"k", graph.MatMul{Weight: names + "k.weight", Type: "F32", In: 4, Out: 4}, n)
		kv := b.KVLoad(names+"kv", layer, b.KVStore(names+"store", layer, k, k, cells))
		a := b.Attention(names+"attention", k, kv, positions, graph.None, graph.Attention{Layer: layer, Heads: 1, KVHeads: 1, HeadDim: 4, Scale: 1})
		x = b.Add(names+"add", x, a)
		want = append(want, slices.Repeat([]int{layer}, 6)...)
	}
	b.Output(b.Node("out", graph.MatMul{Weight: "output.weight", Type: "F32", In: 4, Out: 9}, x))
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if got := sched.LayersOf(g); !slices.Equal(got, append(want, 1)) {
		t.Errorf("layers are %v, want %v", got, append(want, 1))
	}
}
