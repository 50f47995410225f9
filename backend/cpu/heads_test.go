package cpu_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
)

// TestHeadsOfPrompts: the projections of many tokens, which threads compute head by head, give the queries, keys and values that
// single operations give.
func TestHeadsOfPrompts(t *testing.T) {
	for _, l := range []layerShape{
		{dim: 64, heads: 14, kvHeads: 2, headDim: 64, format: "Q4_0"},
		{dim: 96, heads: 16, kvHeads: 8, headDim: 32, format: "Q8_0"},
		{dim: 48, heads: 12, kvHeads: 4, headDim: 48, format: "F16"},
		{dim: 32, heads: 8, kvHeads: 8, headDim: 24, format: "F32"}, // no whole row blocks
	} {
		for i, rope := range []graph.RoPE{
			{Style: graph.RoPEHalves, Dim: l.headDim},
			{Style: graph.RoPEInterleaved, Dim: l.headDim},
			{Style: graph.RoPEHalves, Dim: l.headDim / 2},
		} {
			rope.Base, rope.Scale, rope.Heads, rope.HeadDim = 10000, 1, l.heads, l.headDim
			for _, kv := range []graph.DType{graph.F16, graph.F32} {
				if kv == graph.F32 && i > 0 {
					continue
				}
				for _, threads := range []int{1, 2, 3} {
					for _, tier := range kernels.Tiers() {
						if tier == kernels.Generic && (threads != 2 || i != 0) {
							continue // takes long
						}
						t.Run(fmt.Sprintf("%s/dim=%d/rope=%d/kv=%v/threads=%d/%v", l.format, l.headDim, i, kv, threads, tier), func(t *testing.T) {
							b, err := backend.Open("cpu", backend.Config{Threads: threads, Instructions: tier.String()})
							if err != nil {
								t.Fatal(err)
							}
							defer b.Close()
							l.checkHeads(t, b, rope, kv)
						})
					}
				}
			}
		}
	}
}

// checkHeads compares fused projections of 150 tokens, which begin within a block of cells, with single operations.
func (l layerShape) checkHeads(t *testing.T, b backend.Backend, rope graph.RoPE, kvType graph.DType) {
	const tokens, first = 150, 5
	q, kv := l.heads*l.headDim, l.kvHeads*l.headDim
	if err := b.LoadWeights(t.Context(), []backend.Weight{
		testWeight(t, "q", l.format, l.dim, q), testWeight(t, "k", l.format, l.dim, kv), testWeight(t, "v", l.format, l.dim, kv),
		testWeight(t, "headnorm", "F32", l.headDim, 1), testWeight(t, "qbias", "F32", q, 1), testWeight(t, "kbias", "F32", kv, 1),
	}, nil); err != nil {
		t.Fatal(err)
	}
	for _, normed := range []bool{false, true} {
		g := graph.NewBuilder(graph.Params{Tokens: tokens, Cells: 160, KVType: kvType})
		x := g.Input("x", graph.F32, l.dim, tokens)
		positions, cells := g.Input("positions", graph.I32, tokens), g.Input("cells", graph.I32, tokens)
		wq, wk, wv := l.projection("q", "qbias", l.dim, q), l.projection("k", "kbias", l.dim, kv), l.projection("v", "", l.dim, kv)
		kRope := rope
		kRope.Heads = l.kvHeads
		q0, k0 := g.Node("q.proj", wq, x), g.Node("k.proj", wk, x)
		q1 := graph.None
		if normed {
			norm := graph.Weight{Name: "headnorm", In: l.headDim}
			q0, k0 = g.QKNorm("q.norm", q0, norm, l.heads, 1e-6), g.QKNorm("k.norm", k0, norm, l.kvHeads, 1e-6)
			q1 = g.Node("q1", graph.FusedQKVNorm{Layer: 1, Q: wq, K: wk, V: wv, QNorm: "headnorm", KNorm: "headnorm", Eps: 1e-6, RoPE: rope, KVHeads: l.kvHeads}, x, positions, cells)
		} else {
			q1 = g.Node("q1", graph.FusedQKV{Layer: 1, Q: wq, K: wk, V: wv, RoPE: rope, KVHeads: l.kvHeads}, x, positions, cells)
		}
		q0 = g.RoPE("q0", q0, positions, rope)
		stored := []graph.NodeID{g.KVStore("store", 0, g.RoPE("k0", k0, positions, kRope), g.Node("v.proj", wv, x), cells), q1}
		for layer, query := range []graph.NodeID{q0, q1} {
			op := graph.Attention{Layer: layer, Heads: l.heads, KVHeads: l.kvHeads, HeadDim: l.headDim, Scale: 0.125}
			g.Output(query)
			g.Output(g.Attention(fmt.Sprint("attention", layer), query, g.KVLoad(fmt.Sprint("load", layer), layer, stored[layer]), positions, graph.None, op))
		}
		built, err := g.Build()
		if err != nil {
			t.Fatal(err)
		}
		p := bind(t, b, built)
		values := make([]float32, l.dim*tokens)
		for i := range values {
			values[i] = float32(math.Sin(float64(i * i)))
		}
		at := make([]int32, tokens)
		for i := range at {
			at[i] = int32(first + i)
		}
		p.write(t, "x", values)
		p.write(t, "positions", at)
		p.write(t, "cells", at)
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		all := p.outputs(t)
		if single, fused := all[:len(all)/2], all[len(all)/2:]; !bytes.Equal(single, fused) {
			t.Fatalf("normed %v: queries and attention are not those of single operations", normed)
		}
	}
}
