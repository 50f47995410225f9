package arch_test

import (
	"fmt"

	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

// A bigram model: the logits of the next token depend on the last one alone.
type bigram struct {
	hyper     arch.Hyperparameters
	embedding graph.Weight
	head      arch.Head
}

func (m *bigram) Hyperparameters() arch.Hyperparameters { return m.hyper }

func (m *bigram) Build(b *graph.Builder, p graph.Params) error {
	in := arch.DeclareInputs(b)
	x := b.Embed("embed", in.Tokens, m.embedding)
	m.head.Build(b, in.KeepTail(b, "tail", x))
	return b.Err()
}

// Packages call Register from an init function.
func init() {
	arch.Register("bigram", func(f *gguf.File) (arch.Definition, error) {
		r := arch.NewReader(f)
		m := &bigram{hyper: r.Hyperparameters()}
		m.embedding = r.Weight("token_embd.weight", m.hyper.Embedding, m.hyper.Vocab)
		m.head = r.ReadHead(m.hyper, m.embedding)
		return m, r.Err()
	})
}

// An architecture of a host program, once registered, is opened like any other.
func ExampleRegister() {
	f, err := tiny("bigram").file()
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := arch.Open(f)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := graph.Params{Tokens: 3, Outputs: 1}
	b := graph.NewBuilder(p)
	if err := d.Build(b, p); err != nil {
		fmt.Println(err)
		return
	}
	g, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(g)
	// Output:
	// graph {Tokens=3 Outputs=1}
	// %0 = Input() "token_ids" I32 [3]
	// %1 = Input() "positions" I32 [3]
	// %2 = Input() "cells" I32 [3]
	// %3 = Input() "tail_ids" I32 [1]
	// %4 = Embed(%0) {Weight="token_embd.weight" Type="F16" Dim=32 Vocab=40} "embed" F32 [32 3]
	// %5 = GetRows(%4 %3) "tail" F32 [32]
	// %6 = RMSNorm(%5) {Weight="output_norm.weight" Eps=1e-06} "output_norm" F32 [32]
	// %7 = MatMul(%6) {Weight="output.weight" Type="F16" In=32 Out=40} "logits" F32 [40]
	// output %7
}

func ExampleOpen() {
	f, err := tiny("qwen3").file()
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := arch.Open(f)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := d.Hyperparameters()
	fmt.Printf("%d layers, %d features, %d query and %d key heads of %d, vocabulary of %d\n",
		h.Layers, h.Embedding, h.Heads, h.KVHeads, h.HeadDim, h.Vocab)
	// Output: 2 layers, 32 features, 4 query and 2 key heads of 16, vocabulary of 40
}

// A constructor reads everything it needs and asks once whether all of it was there.
func ExampleNewReader() {
	f, err := tiny("llama").file()
	if err != nil {
		fmt.Println(err)
		return
	}
	r := arch.NewReader(f)
	width := r.Int("embedding_length")
	clip := r.FloatOr("attention.clamp_kqv", 8)
	norm := r.Vector("output_norm.weight", width)
	r.Vector("token_types.weight", width)
	r.Weight("output.weight", width, 32)
	fmt.Println(width, clip, norm)
	fmt.Println(r.Err())
	// Output:
	// 32 8 {output_norm.weight F32 32 1}
	// arch: file is no valid "llama" model: tensor "token_types.weight" of shape [32 1] is missing; tensor "output.weight" has shape [32 40], want [32 32]
}

// Most architectures are a Decoder with a few things set.
func ExampleReader_ReadDecoder() {
	f, err := tiny("llama").file()
	if err != nil {
		fmt.Println(err)
		return
	}
	r := arch.NewReader(f)
	h := r.Hyperparameters()
	h.RoPE.Style = graph.RoPEInterleaved
	d := r.ReadDecoder(h, false)
	if err := r.Err(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(d.Layers), d.Layers[1].FFN.Down.Name, d.Head.Output.Name)
	// Output: 2 blk.1.ffn_down.weight output.weight
}

func ExampleDeclareInputs() {
	b := graph.NewBuilder(graph.Params{Tokens: 4, Outputs: 2})
	in := arch.DeclareInputs(b)
	x := b.Input("x", graph.F32, 8, 4)
	kept := in.KeepTail(b, "tail", x)
	fmt.Println(b.Shape(in.Tokens), b.Shape(in.Tail), b.Shape(kept), in.Spans == graph.None)
	// Output: [4] [2] [8 2] true
}

func ExampleAttention() {
	weight := func(name string, in, out int) graph.Weight {
		return graph.Weight{Name: name, Type: "Q8_0", In: in, Out: out}
	}
	attention := arch.Attention{
		Q: weight("q", 64, 64), K: weight("k", 64, 32), V: weight("v", 64, 32), Out: weight("o", 64, 64),
		Heads: 4, KVHeads: 2, HeadDim: 16,
		RoPE: graph.RoPE{Style: graph.RoPEHalves, Base: 10000, Scale: 1, Dim: 16, HeadDim: 16},
	}
	b := graph.NewBuilder(graph.Params{Tokens: 1, Outputs: 1, Cells: 32, KVType: graph.F16})
	in := arch.DeclareInputs(b)
	x := b.Input("x", graph.F32, 64, 1)
	b.Output(attention.Build(b, in, x))
	g, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range g.Nodes[len(g.Inputs):] {
		fmt.Println(n.Name, n.Op.Kind(), n.Shape)
	}
	// Output:
	// blk.0.attn_q MatMul [64]
	// blk.0.attn_k MatMul [32]
	// blk.0.attn_v MatMul [32]
	// blk.0.attn_q_rope RoPE [64]
	// blk.0.attn_k_rope RoPE [32]
	// blk.0.kv_store KVStore [32]
	// blk.0.kv KVLoad [32 32]
	// blk.0.attn Attention [64]
	// blk.0.attn_output MatMul [64]
}

func ExampleGatedFFN() {
	weight := func(name string, in, out int) graph.Weight {
		return graph.Weight{Name: name, Type: "Q8_0", In: in, Out: out}
	}
	ffn := arch.GatedFFN{Layer: 3, Gate: weight("gate", 64, 96), Up: weight("up", 64, 96), Down: weight("down", 96, 64)}
	b := graph.NewBuilder(graph.Params{Tokens: 1, Outputs: 1, Fusion: graph.Fusion{FFN: true}})
	b.Output(ffn.Build(b, b.Input("x", graph.F32, 64, 1)))
	g, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range g.Nodes[1:] {
		fmt.Println(n.Name, n.Op.Kind(), n.Shape)
	}
	// Output:
	// blk.3.ffn_act FusedFFN [96]
	// blk.3.ffn_down MatMul [64]
}
