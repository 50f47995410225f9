package cpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/quant"
)

// step is a node with its operands.
type step struct {
	node *graph.Node
	in   []backend.Operand
	out  backend.Operand
	kv   *backend.KV
}

// program is a graph with memory on a device, ready to run again and again.
type program struct {
	b      backend.Backend
	g      *graph.Graph
	steps  []step
	values []backend.Operand
}

// bind gives every node memory of its own. Each layer has a pair of regions.
func bind(t testing.TB, b backend.Backend, g *graph.Graph) *program {
	t.Helper()
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	p := &program{b: b, g: g, values: make([]backend.Operand, len(g.Nodes))}
	alloc := func(n int) backend.Buffer {
		buffer, err := b.AllocFresh(n)
		if err != nil {
			t.Fatal(err)
		}
		return buffer
	}
	regions := make(map[int]*backend.KV)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		v := &p.values[i]
		*v = backend.Operand{Shape: n.Shape, Type: n.Type}
		traits := n.Op.Kind().Traits()
		switch op := n.Op.(type) {
		case graph.View:
			v.Buffer = p.values[n.Sources()[0]].Buffer.Slice(n.Type.Bytes(op.Offset), n.Bytes())
		case graph.Reshape:
			v.Buffer = p.values[n.Sources()[0]].Buffer
		default:
			if !traits.Region {
				v.Buffer = alloc(n.Bytes())
			}
		}
		s := step{node: n, out: *v}
		for _, src := range n.Sources() {
			s.in = append(s.in, p.values[src])
		}
		if layer, ok := graph.LayerOf(n.Op); ok {
			width := 0
			switch op := n.Op.(type) {
			case graph.KVStore:
				width = n.Shape[0]
			case graph.FusedQKV:
				width = op.K.Out
			case graph.FusedQKVNorm:
				width = op.K.Out
			case graph.QKVBiasRopeStore:
				width = op.KVHeads * op.RoPE.HeadDim
			}
			if regions[layer] == nil {
				size := g.Params.KVType.Bytes(width * g.Params.Cells)
				regions[layer] = &backend.KV{K: alloc(size), V: alloc(size), Width: width, Cells: g.Params.Cells, Type: g.Params.KVType}
			}
			s.kv = regions[layer]
		}
		if n.Op.Kind() != graph.KindInput {
			p.steps = append(p.steps, s)
		}
	}
	return p
}

func (p *program) run() error {
	for i := range p.steps {
		s := &p.steps[i]
		if err := p.b.Execute(s.node, s.in, s.out, s.kv); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) write(t testing.TB, name string, values any) {
	t.Helper()
	var raw []byte
	switch values := values.(type) {
	case []float32:
		for _, v := range values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
	case []int32:
		for _, v := range values {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
		}
	}
	if err := p.b.WriteHost(p.values[p.g.Lookup(name).ID].Buffer, raw); err != nil {
		t.Fatal(err)
	}
}

// outputs returns the bytes of every output, one after the other.
func (p *program) outputs(t testing.TB) []byte {
	t.Helper()
	var all []byte
	for _, id := range p.g.Outputs {
		raw := make([]byte, p.g.Node(id).Bytes())
		if err := p.b.ReadHost(raw, p.values[id].Buffer); err != nil {
			t.Fatal(err)
		}
		all = append(all, raw...)
	}
	return all
}

// testWeight makes a weight of random bytes that decode to small numbers.
func testWeight(t testing.TB, name, format string, in, out int) backend.Weight {
	t.Helper()
	f, err := quant.Lookup(format)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.RowBytes(in)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(uint64(in), uint64(out)))
	data := make([]byte, n*out)
	if f.Group == 0 {
		values := make([]float32, in*out)
		for i := range values {
			values[i] = float32(r.NormFloat64() / math.Sqrt(float64(in)))
		}
		if err := f.Quantize(data, values); err != nil {
			t.Fatal(err)
		}
	} else {
		// Bytes of 0x10 to 0x1f: as f16 scales they are small, whatever their place.
		for i := range data {
			data[i] = byte(0x10 | r.Uint32()&0x0f)
		}
	}
	return backend.Weight{Name: name, Type: format, In: in, Out: out, Data: data}
}

// layerShape is the size of a layer in a test.
type layerShape struct {
	dim, ff, heads, kvHeads, headDim, vocab int
	format                                  string
}

var tiny = layerShape{dim: 256, ff: 256, heads: 4, kvHeads: 2, headDim: 64, vocab: 150, format: "Q4_K"}

// weights loads what the graphs below name.
func (l layerShape) weights(t testing.TB, b backend.Backend) {
	t.Helper()
	q, kv := l.heads*l.headDim, l.kvHeads*l.headDim
	list := []backend.Weight{
		testWeight(t, "embed", "Q8_0", l.dim, l.vocab),
		testWeight(t, "q", l.format, l.dim, q), testWeight(t, "k", l.format, l.dim, kv), testWeight(t, "v", l.format, l.dim, kv),
		testWeight(t, "o", l.format, q, l.dim), testWeight(t, "gate", l.format, l.dim, l.ff), testWeight(t, "up", l.format, l.dim, l.ff),
		testWeight(t, "down", l.format, l.ff, l.dim), testWeight(t, "output", "F16", l.dim, l.vocab),
		testWeight(t, "norm", "F32", l.dim, 1), testWeight(t, "headnorm", "F32", l.headDim, 1),
		testWeight(t, "qbias", "F32", q, 1), testWeight(t, "kbias", "F32", kv, 1), testWeight(t, "vbias", "BF16", kv, 1),
	}
	if err := b.LoadWeights(context.Background(), list, nil); err != nil {
		t.Fatal(err)
	}
}

func (l layerShape) projection(name, bias string, in, out int) graph.MatMul {
	return graph.MatMul{Weight: name, Bias: bias, Type: l.format, In: in, Out: out}
}

// everyOp builds a graph in which every operation of the vocabulary occurs.
func (l layerShape) everyOp(t testing.TB, tokens int) *graph.Graph {
	t.Helper()
	q, kv := l.heads*l.headDim, l.kvHeads*l.headDim
	b := graph.NewBuilder(graph.Params{Tokens: tokens, Cells: 64, KVType: graph.F16})
	ids := b.Input("ids", graph.I32, tokens)
	positions, cells := b.Input("positions", graph.I32, tokens), b.Input("cells", graph.I32, tokens)
	spans, rows := b.Input("spans", graph.I32, 2*graph.MaxRuns, tokens), b.Input("rows", graph.I32, 1)
	x := b.Embed("x", ids, graph.Weight{Name: "embed", Type: "Q8_0", In: l.dim, Out: l.vocab})
	h := b.RMSNorm("h", x, graph.Weight{Name: "norm", In: l.dim}, 1e-5)
	rope := graph.RoPE{Style: graph.RoPEHalves, Base: 10000, Scale: 1, Dim: l.headDim, Heads: l.heads, HeadDim: l.headDim}
	kRope := rope
	kRope.Heads = l.kvHeads
	wq, wk, wv := l.projection("q", "qbias", l.dim, q), l.projection("k", "kbias", l.dim, kv), l.projection("v", "vbias", l.dim, kv)
	attend := func(layer int, query, stored graph.NodeID) graph.NodeID {
		region := b.KVLoad(fmt.Sprint("load", layer), layer, stored)
		return b.Attention(fmt.Sprint("attention", layer), query, region, positions, spans, graph.Attention{
			Layer: layer, Heads: l.heads, KVHeads: l.kvHeads, HeadDim: l.headDim, Scale: 0.2, ExplicitSpan: true,
		})
	}
	norm := func(name string, heads int, x graph.NodeID) graph.NodeID {
		return b.QKNorm(name, x, graph.Weight{Name: "headnorm", In: l.headDim}, heads, 1e-6)
	}
	// Layer 0: every step by itself. Layer 1: the same, fused.
	q0 := b.RoPE("q0", norm("qn", l.heads, b.Node("qp", wq, h)), positions, rope)
	k0 := b.RoPE("k0", norm("kn", l.kvHeads, b.Node("kp", wk, h)), positions, kRope)
	a := attend(0, q0, b.KVStore("store", 0, k0, b.Node("vp", wv, h), cells))
	q1 := b.Node("q1", graph.FusedQKVNorm{Layer: 1, Q: wq, K: wk, V: wv, QNorm: "headnorm", KNorm: "headnorm", Eps: 1e-6, RoPE: rope, KVHeads: l.kvHeads}, h, positions, cells)
	a = b.Add("a01", a, attend(1, q1, q1))
	// Layer 2: without the norms, fused. Layer 3: all but the products.
	q2 := b.Node("q2", graph.FusedQKV{Layer: 2, Q: wq, K: wk, V: wv, RoPE: rope, KVHeads: l.kvHeads}, h, positions, cells)
	a = b.Add("a012", a, attend(2, q2, q2))
	plain := func(m graph.MatMul) graph.MatMul { m.Bias = ""; return m }
	q3 := b.Node("q3", graph.QKVBiasRopeStore{Layer: 3, QBias: "qbias", KBias: "kbias", VBias: "vbias", RoPE: rope, KVHeads: l.kvHeads},
		b.Node("q3p", plain(wq), h), b.Node("k3p", plain(wk), h), b.Node("v3p", plain(wv), h), positions, cells)
	a = b.Add("a0123", a, attend(3, q3, q3))
	x = b.Add("residual", x, b.Node("o", l.projection("o", "", q, l.dim), a))

	gate, up := l.projection("gate", "", l.dim, l.ff), l.projection("up", "", l.dim, l.ff)
	f := b.Node("ffn", graph.FusedFFN{Gate: gate, Up: up}, x)
	down := l.projection("down", "", l.ff, l.dim)
	g, u := b.Node("gate", gate, x), b.Node("up", up, x)
	f = b.Add("f1", f, b.Mul("f2", b.Silu("silu", g), u))
	f = b.Add("f3", f, b.Node("f4", graph.SwiGLU{}, b.Gelu("gelu", g), u))
	f = b.Scale("f5", f, 0.25)
	f = b.Reshape("f7", b.Permute("f6", f, [4]int{1, 0, 2, 3}), graph.ShapeOf(l.ff, tokens))
	x = b.Add("residual2", x, b.Node("down", down, f))
	x = b.Add("residual3", x, b.Node("whole", graph.FusedFFNDown{Gate: gate, Up: up, Down: down}, x))
	x = b.GetRows("tail", x, rows)
	logits := b.MatMul("logits", x, graph.Weight{Name: "output", Type: "F16", In: l.dim, Out: l.vocab}, graph.Weight{})
	b.Output(b.Softmax("probabilities", b.View("first", logits, 0, graph.ShapeOf(l.vocab))))
	b.Output(b.TopK("top", logits, 5, l.vocab-1))
	b.Output(logits)
	b.Output(a)
	built, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// prepare opens a device with the shape's weights and binds its graph of every op.
func (l layerShape) prepare(t testing.TB, threads, tokens int) *program {
	t.Helper()
	b := open(t, threads)
	t.Cleanup(func() { b.Close() })
	l.weights(t, b)
	p := bind(t, b, l.everyOp(t, tokens))
	ids, at, spans := make([]int32, tokens), make([]int32, tokens), make([]int32, 2*graph.MaxRuns*tokens)
	for i := range tokens {
		ids[i], at[i] = int32(i*37%l.vocab), int32(i)
		copy(spans[2*graph.MaxRuns*i:], []int32{0, 1, 1, 63})
	}
	p.write(t, "ids", ids)
	p.write(t, "positions", at)
	p.write(t, "cells", at)
	p.write(t, "spans", spans)
	p.write(t, "rows", []int32{int32(tokens - 1)})
	return p
}
