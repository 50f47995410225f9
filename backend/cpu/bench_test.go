package cpu_test

import (
	"fmt"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/quant"
)

// report adds the rate of multiplications, and of bytes read from weights or regions.
func report(b *testing.B, macs, bytes int) {
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(macs)*float64(b.N)/seconds/1e9, "GMAC/s")
	b.ReportMetric(float64(bytes)*float64(b.N)/seconds/1e9, "GB/s")
}

func loop(b *testing.B, p *program) {
	b.Helper()
	for b.Loop() {
		if err := p.run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatMul(b *testing.B) {
	const in, out = 1024, 3072
	for _, f := range quant.Formats() {
		for _, tokens := range []int{1, 32} {
			b.Run(fmt.Sprintf("type=%s/tokens=%d", f.Name, tokens), func(b *testing.B) {
				d := open(b, 0)
				defer d.Close()
				w := testWeight(b, "w", f.Name, in, out)
				if err := d.LoadWeights(b.Context(), []backend.Weight{w}, nil); err != nil {
					b.Fatal(err)
				}
				gb := graph.NewBuilder(graph.Params{})
				gb.Output(gb.MatMul("y", gb.Input("x", graph.F32, in, tokens), graph.Weight{Name: "w", Type: f.Name, In: in, Out: out}, graph.Weight{}))
				g, err := gb.Build()
				if err != nil {
					b.Fatal(err)
				}
				p := bind(b, d, g)
				x := make([]float32, in*tokens)
				for i := range x {
					x[i] = float32(i%31) - 15
				}
				p.write(b, "x", x)
				loop(b, p)
				report(b, in*out*tokens, len(w.Data))
			})
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	const heads, kvHeads, dim = 16, 8, 64
	for _, t := range []graph.DType{graph.F16, graph.F32} {
		for _, tokens := range []int{1, 32} {
			for _, context := range []int{128, 1024} {
				b.Run(fmt.Sprintf("kv=%v/tokens=%d/context=%d", t, tokens, context), func(b *testing.B) {
					d := open(b, 0)
					defer d.Close()
					gb := graph.NewBuilder(graph.Params{Cells: context, KVType: t})
					q, k := gb.Input("q", graph.F32, heads*dim, tokens), gb.Input("k", graph.F32, kvHeads*dim, tokens)
					positions, cells := gb.Input("positions", graph.I32, tokens), gb.Input("cells", graph.I32, tokens)
					kv := gb.KVLoad("load", 0, gb.KVStore("store", 0, k, k, cells))
					gb.Output(gb.Attention("out", q, kv, positions, graph.None, graph.Attention{Heads: heads, KVHeads: kvHeads, HeadDim: dim, Scale: 0.125}))
					g, err := gb.Build()
					if err != nil {
						b.Fatal(err)
					}
					p := bind(b, d, g)
					at := make([]int32, tokens)
					for i := range at {
						at[i] = int32(context - tokens + i)
					}
					p.write(b, "positions", at)
					p.write(b, "cells", at)
					loop(b, p)
					report(b, 2*heads*dim*context*tokens, t.Bytes(2*kvHeads*dim*context))
				})
			}
		}
	}
}

// BenchmarkDecodeLayer is a layer of the size of a half-billion model, one token.
func BenchmarkDecodeLayer(b *testing.B) {
	for _, format := range []string{"Q8_0", "Q4_0", "Q4_K"} {
		for _, fused := range []bool{false, true} {
			b.Run(fmt.Sprintf("type=%s/fused=%v", format, fused), func(b *testing.B) {
				l := layerShape{dim: 1024, ff: 3072, heads: 16, kvHeads: 8, headDim: 64, vocab: 32, format: format}
				d := open(b, 0)
				defer d.Close()
				l.weights(b, d)
				p := bind(b, d, l.decode(b, fused))
				p.write(b, "positions", []int32{500})
				p.write(b, "cells", []int32{500})
				loop(b, p)
				weights := l.dim * (2*(l.heads+l.kvHeads)*l.headDim + 3*l.ff)
				f, err := quant.Lookup(format)
				if err != nil {
					b.Fatal(err)
				}
				report(b, weights, weights/f.Block*f.Bytes)
			})
		}
	}
}

// decode builds a layer for one token.
func (l layerShape) decode(t testing.TB, fused bool) *graph.Graph {
	t.Helper()
	q, kv := l.heads*l.headDim, l.kvHeads*l.headDim
	b := graph.NewBuilder(graph.Params{Tokens: 1, Cells: 512, KVType: graph.F16})
	x := b.Input("x", graph.F32, l.dim)
	positions, cells := b.Input("positions", graph.I32, 1), b.Input("cells", graph.I32, 1)
	norm := graph.Weight{Name: "norm", In: l.dim}
	h := b.RMSNorm("h", x, norm, 1e-5)
	rope := graph.RoPE{Style: graph.RoPEHalves, Base: 10000, Scale: 1, Dim: l.headDim, Heads: l.heads, HeadDim: l.headDim}
	wq, wk, wv := l.projection("q", "", l.dim, q), l.projection("k", "", l.dim, kv), l.projection("v", "", l.dim, kv)
	var query, stored graph.NodeID
	if fused {
		query = b.Node("q", graph.FusedQKV{Q: wq, K: wk, V: wv, RoPE: rope, KVHeads: l.kvHeads}, h, positions, cells)
		stored = query
	} else {
		kRope := rope
		kRope.Heads = l.kvHeads
		query = b.RoPE("q", b.Node("qp", wq, h), positions, rope)
		k := b.RoPE("k", b.Node("kp", wk, h), positions, kRope)
		stored = b.KVStore("store", 0, k, b.Node("v", wv, h), cells)
	}
	op := graph.Attention{Heads: l.heads, KVHeads: l.kvHeads, HeadDim: l.headDim, Scale: 0.125}
	a := b.Attention("attention", query, b.KVLoad("load", 0, stored), positions, graph.None, op)
	x = b.Add("residual", x, b.Node("o", l.projection("o", "", q, l.dim), a))
	h = b.RMSNorm("h2", x, norm, 1e-5)
	gate, up := l.projection("gate", "", l.dim, l.ff), l.projection("up", "", l.dim, l.ff)
	var f graph.NodeID
	if fused {
		f = b.Node("ffn", graph.FusedFFN{Gate: gate, Up: up}, h)
	} else {
		f = b.Node("ffn", graph.SwiGLU{}, b.Node("gate", gate, h), b.Node("up", up, h))
	}
	b.Output(b.Add("out", x, b.Node("down", l.projection("down", "", l.ff, l.dim), f)))
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return g
}
