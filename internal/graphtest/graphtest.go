// Package graphtest generates graphs for tests.
//
// [Random] makes valid graphs of any shape out of the whole vocabulary, with sources near
// and far, so that lifetimes are short and long. [Decoder] makes a small transformer as
// a model's definition would. Both are functions of their arguments alone.
package graphtest

import (
	"fmt"
	"math/rand/v2"

	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/slices"
)

// NewRand returns a generator of random numbers for a seed.
func NewRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Every allows all operations.
func Every(graph.Kind) bool { return true }

// Among allows the operations of the given kinds.
func Among(kinds ...graph.Kind) func(graph.Kind) bool {
	return func(k graph.Kind) bool { return slices.Contains(kinds, k) }
}

// The sizes that random graphs are made of.
const (
	heads, headDim = 2, 4
	width          = heads * headDim
	cells          = 32
)

type generator struct {
	*graph.Builder
	rng       *rand.Rand
	allow     func(graph.Kind) bool
	tokens    int
	values    []graph.NodeID // F32 values that may be read
	read      map[graph.NodeID]bool
	ids       graph.NodeID // I32, each below tokens
	positions graph.NodeID
	cells     graph.NodeID
	layers    int
	count     int
}

// Random returns a graph of at least the given number of nodes, of those operations that
// allow accepts. Its I32 inputs are "ids", "positions" and "cells", all with Tokens
// values; its F32 inputs are "x0", "x1" and "x2". Most of what nobody reads is an
// output, and the rest is dead.
func Random(r *rand.Rand, nodes int, allow func(graph.Kind) bool) *graph.Graph {
	tokens := 1 + r.IntN(4)
	phase := graph.Prefill
	if tokens == 1 {
		phase = graph.Decode
	}
	g := &generator{
		Builder: graph.NewBuilder(graph.Params{Tokens: tokens, Outputs: tokens, Phase: phase, Cells: cells, Devices: "a,b"}),
		rng:     r, allow: allow, tokens: tokens, read: make(map[graph.NodeID]bool),
	}
	g.ids = g.Input("ids", graph.I32, tokens)
	g.positions = g.Input("positions", graph.I32, tokens)
	g.cells = g.Input("cells", graph.I32, tokens)
	for i := range 3 {
		g.values = append(g.values, g.Input(fmt.Sprintf("x%d", i), graph.F32, width, tokens))
	}
	for tries := 0; g.count < nodes && tries < 100*nodes; tries++ {
		g.step()
	}
	g.markOutputs()
	built, err := g.Build()
	if err != nil {
		panic(err) // the generator itself is wrong
	}
	return built
}

func (g *generator) markOutputs() {
	last := g.values[len(g.values)-1]
	g.Output(last)
	for _, id := range g.values[3 : len(g.values)-1] {
		if !g.read[id] && g.rng.IntN(4) > 0 || g.rng.IntN(20) == 0 {
			g.Output(id)
		}
	}
}

// name returns a name that is free.
func (g *generator) name(what string) string {
	g.count++
	return fmt.Sprintf("%s.%d", what, g.count)
}

// value picks a value, mostly a recent one, that fits.
func (g *generator) value(fits func(graph.Shape) bool) (graph.NodeID, bool) {
	for range 8 {
		i := g.rng.IntN(len(g.values))
		if g.rng.IntN(3) > 0 {
			i = len(g.values) - 1 - g.rng.IntN(min(4, len(g.values)))
		}
		if id := g.values[i]; fits == nil || fits(g.Shape(id)) {
			g.read[id] = true
			return id, true
		}
	}
	return graph.None, false
}

func (g *generator) rows(s graph.Shape) bool { return s == graph.ShapeOf(width, g.tokens) }

// step appends one operation, or a few that belong together, if values fit it.
func (g *generator) step() {
	ops := graph.Kinds()
	k := ops[g.rng.IntN(len(ops))].Kind()
	if k == graph.KindInput || !g.allow(k) {
		return
	}
	fits := func(graph.Shape) bool { return true }
	switch k {
	case graph.KindQKNorm, graph.KindRoPE, graph.KindKVStore, graph.KindFusedQKV, graph.KindFusedQKVNorm, graph.KindQKVBiasRopeStore, graph.KindFusedFFN, graph.KindFusedFFNDown:
		fits = g.rows
	}
	x, ok := g.value(fits)
	if !ok {
		return
	}
	if id := g.apply(k, x); id != graph.None {
		g.values = append(g.values, id)
	}
}

func (g *generator) apply(k graph.Kind, x graph.NodeID) graph.NodeID {
	shape := g.Shape(x)
	name := g.name(k.String())
	rope := graph.RoPE{Style: graph.RoPEStyle(g.rng.IntN(2)), Base: 10000, Scale: 1, Dim: headDim, Heads: heads, HeadDim: headDim}
	switch k {
	case graph.KindAdd, graph.KindMul, graph.KindSwiGLU:
		y, ok := g.value(func(s graph.Shape) bool { return s == shape })
		if !ok {
			return graph.None
		}
		op := map[graph.Kind]graph.Op{graph.KindAdd: graph.Add{}, graph.KindMul: graph.Mul{}, graph.KindSwiGLU: graph.SwiGLU{}}[k]
		return g.Node(name, op, x, y)
	case graph.KindScale:
		return g.Scale(name, x, float32(g.rng.IntN(9)-4)/2)
	case graph.KindSilu:
		return g.Silu(name, x)
	case graph.KindGelu:
		return g.Gelu(name, x)
	case graph.KindSoftmax:
		return g.Softmax(name, x)
	case graph.KindRMSNorm:
		return g.RMSNorm(name, x, graph.Weight{Name: "norm", Type: "F32", In: shape[0], Out: 1}, 1e-5)
	case graph.KindQKNorm:
		return g.QKNorm(name, x, graph.Weight{Name: "head_norm", Type: "F32", In: headDim, Out: 1}, heads, 1e-5)
	case graph.KindMatMul:
		return g.MatMul(name, x, g.weight("w", shape[0], []int{width, 2 * width}[g.rng.IntN(2)]), graph.Weight{})
	case graph.KindRoPE:
		return g.RoPE(name, x, g.positions, rope)
	case graph.KindEmbed:
		return g.Embed(name, g.ids, g.weight("table", width, 16))
	case graph.KindGetRows:
		if shape.Rows() < g.tokens {
			return graph.None
		}
		return g.GetRows(name, x, g.ids)
	case graph.KindView:
		n := 1 + g.rng.IntN(shape.Elements())
		return g.View(name, x, g.rng.IntN(shape.Elements()-n+1), graph.ShapeOf(n))
	case graph.KindReshape:
		return g.Reshape(name, x, graph.ShapeOf(shape[1], shape[0]*shape[2]*shape[3]))
	case graph.KindPermute:
		return g.Permute(name, x, [4]int{1, 0, 2, 3})
	case graph.KindKVStore:
		v, ok := g.value(g.rows)
		if !ok {
			return graph.None
		}
		return g.attend(x, func(layer int) graph.NodeID { return g.KVStore(name, layer, x, v, g.cells) })
	case graph.KindFusedQKV:
		return g.attend(graph.None, func(layer int) graph.NodeID {
			p := func(w string) graph.MatMul { return graph.Projection(g.weight(w, width, width), graph.Weight{}) }
			return g.Node(name, graph.FusedQKV{Layer: layer, Q: p("q"), K: p("k"), V: p("v"), RoPE: rope, KVHeads: heads}, x, g.positions, g.cells)
		})
	case graph.KindFusedQKVNorm:
		return g.attend(graph.None, func(layer int) graph.NodeID {
			p := func(w string) graph.MatMul { return graph.Projection(g.weight(w, width, width), graph.Weight{}) }
			return g.Node(name, graph.FusedQKVNorm{Layer: layer, Q: p("q"), K: p("k"), V: p("v"), QNorm: "qn", KNorm: "kn", Eps: 1e-6, RoPE: rope, KVHeads: heads}, x, g.positions, g.cells)
		})
	case graph.KindQKVBiasRopeStore:
		y, ok := g.value(g.rows)
		z, ok2 := g.value(g.rows)
		if !ok || !ok2 {
			return graph.None
		}
		return g.attend(graph.None, func(layer int) graph.NodeID {
			return g.Node(name, graph.QKVBiasRopeStore{Layer: layer, QBias: "bq", RoPE: rope, KVHeads: heads}, x, y, z, g.positions, g.cells)
		})
	case graph.KindFusedFFN:
		return g.Node(name, g.ffn(), x)
	case graph.KindFusedFFNDown:
		f := g.ffn()
		return g.Node(name, graph.FusedFFNDown{Gate: f.Gate, Up: f.Up, Down: graph.Projection(g.weight("down", 2*width, width), graph.Weight{})}, x)
	case graph.KindTopK:
		return g.TopK(name, x, 1+g.rng.IntN(4), 1+g.rng.IntN(shape[0]))
	}
	return graph.None // loads and attention come with the stores
}

// attend appends a store, the load of what it stored, and attention from q, or if that is
// None, from the queries that the store yields.
func (g *generator) attend(q graph.NodeID, store func(layer int) graph.NodeID) graph.NodeID {
	layer := g.layers
	g.layers++
	stored := store(layer)
	if q == graph.None {
		q = stored
	}
	kv := g.KVLoad(g.name("kv"), layer, stored)
	return g.Attention(g.name("attn"), q, kv, g.positions, graph.None, graph.Attention{
		Layer: layer, Heads: heads, KVHeads: heads, HeadDim: headDim, Scale: 0.5,
	})
}

func (g *generator) ffn() graph.FusedFFN {
	return graph.FusedFFN{
		Gate: graph.Projection(g.weight("gate", width, 2*width), graph.Weight{}),
		Up:   graph.Projection(g.weight("up", width, 2*width), graph.Weight{}),
	}
}

func (g *generator) weight(kind string, in, out int) graph.Weight {
	return graph.Weight{Name: fmt.Sprintf("%s_%dx%d", kind, in, out), Type: "F32", In: in, Out: out}
}

// Decoder returns the graph of a small transformer with the given number of layers, for
// the parameters p. Its inputs are "token_ids", "positions", "cells" and, if fewer rows
// than tokens are put out, "tail_ids".
func Decoder(p graph.Params, layers int) (*graph.Graph, error) {
	const dim, ffn, vocab = 16, 32, 48
	b := graph.NewBuilder(p)
	w := func(name string, in, out int) graph.Weight {
		return graph.Weight{Name: name, Type: "F32", In: in, Out: out}
	}
	ids := b.Input("token_ids", graph.I32, p.Tokens)
	positions := b.Input("positions", graph.I32, p.Tokens)
	cells := b.Input("cells", graph.I32, p.Tokens)
	tail := graph.None
	if p.Outputs < p.Tokens {
		tail = b.Input("tail_ids", graph.I32, p.Outputs)
	}
	rope := graph.RoPE{Style: graph.RoPEHalves, Base: 10000, Scale: 1, Dim: 4, Heads: 4, HeadDim: 4}
	x := b.Embed("embed", ids, w("token_embd.weight", dim, vocab))
	for l := range layers {
		n := func(s string) string { return fmt.Sprintf("blk.%d.%s", l, s) }
		h := b.RMSNorm(n("attn_norm"), x, w(n("attn_norm.weight"), dim, 1), 1e-5)
		q := b.MatMul(n("q"), h, w(n("attn_q.weight"), dim, 16), graph.Weight{})
		k := b.MatMul(n("k"), h, w(n("attn_k.weight"), dim, 8), graph.Weight{})
		v := b.MatMul(n("v"), h, w(n("attn_v.weight"), dim, 8), graph.Weight{})
		q = b.RoPE(n("q_rope"), q, positions, rope)
		keys := rope
		keys.Heads = 2
		k = b.RoPE(n("k_rope"), k, positions, keys)
		stored := b.KVStore(n("store"), l, k, v, cells)
		kv := b.KVLoad(n("kv"), l, stored)
		a := b.Attention(n("attn"), q, kv, positions, graph.None, graph.Attention{Layer: l, Heads: 4, KVHeads: 2, HeadDim: 4, Scale: 0.5})
		a = b.MatMul(n("attn_out"), a, w(n("attn_output.weight"), 16, dim), graph.Weight{})
		if l == layers-1 && tail != graph.None {
			x, a = b.GetRows("tail_x", x, tail), b.GetRows("tail_attn", a, tail)
		}
		x = b.Add(n("attn_add"), x, a)
		h = b.RMSNorm(n("ffn_norm"), x, w(n("ffn_norm.weight"), dim, 1), 1e-5)
		gate := b.Silu(n("gate_silu"), b.MatMul(n("gate"), h, w(n("ffn_gate.weight"), dim, ffn), graph.Weight{}))
		up := b.MatMul(n("up"), h, w(n("ffn_up.weight"), dim, ffn), graph.Weight{})
		down := b.MatMul(n("down"), b.Mul(n("gated"), gate, up), w(n("ffn_down.weight"), ffn, dim), graph.Weight{})
		x = b.Add(n("ffn_add"), x, down)
	}
	x = b.RMSNorm("output_norm", x, w("output_norm.weight", dim, 1), 1e-5)
	b.Output(b.MatMul("logits", x, w("output.weight", dim, vocab), graph.Weight{}))
	return b.Build()
}
