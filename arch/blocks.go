package arch

import (
	"math"
	"strconv"

	"github.com/minfer/minfer/graph"
)

// Names of the inputs that the engine fills before every execution. A definition that
// declares its inputs by DeclareInputs has them right.
const (
	InputTokens    = "token_ids" // I32 [tokens]
	InputPositions = "positions" // I32 [tokens]: each token's index in its sequence
	InputCells     = "cells"     // I32 [tokens]: the rows of the key and value regions to write
	InputTail      = "tail_ids"  // I32 [outputs]: the tokens whose logits are wanted; only if fewer than all
	InputSpans     = "spans"     // I32 [2*graph.MaxRuns tokens]: where each token's keys lie; only with ExplicitSpan
)

// Inputs are the leaves of a forward pass. Tail and Spans are graph.None where the
// parameters do not call for them.
type Inputs struct {
	Tokens, Positions, Cells, Tail, Spans graph.NodeID
}

// DeclareInputs declares the inputs that the parameters call for. It belongs at the
// head of the graph: an input further down would cut a device's run of nodes in two.
func DeclareInputs(b *graph.Builder) Inputs {
	p := b.Params()
	in := Inputs{
		Tokens:    b.Input(InputTokens, graph.I32, p.Tokens),
		Positions: b.Input(InputPositions, graph.I32, p.Tokens),
		Cells:     b.Input(InputCells, graph.I32, p.Tokens),
		Tail:      graph.None,
		Spans:     graph.None,
	}
	if p.Outputs < p.Tokens {
		in.Tail = b.Input(InputTail, graph.I32, p.Outputs)
	}
	if p.ExplicitSpan {
		in.Spans = b.Input(InputSpans, graph.I32, 2*graph.MaxRuns, p.Tokens)
	}
	return in
}

// KeepTail reduces x to the rows whose logits are wanted. Called on the residual
// stream and the attention's result of the last layer, it spares everything after
// them the other rows.
func (in Inputs) KeepTail(b *graph.Builder, name string, x graph.NodeID) graph.NodeID {
	if in.Tail == graph.None {
		return x
	}
	return b.GetRows(name, x, in.Tail)
}

// Layer returns a function that puts the name of layer i before the name of a node,
// in the manner of GGUF's tensors: "blk.0.attn_q".
func Layer(i int) func(name string) string {
	prefix := "blk." + strconv.Itoa(i) + "."
	return func(name string) string { return prefix + name }
}

// Attention is the attention block of one layer: projections, rotation, the store of
// keys and values, attention over them and the output projection. Biases and norms that
// an architecture lacks are zero.
type Attention struct {
	Layer                        int
	Q, K, V, Out                 graph.Weight
	QBias, KBias, VBias, OutBias graph.Weight
	QNorm, KNorm                 graph.Weight // per head; both or neither
	Eps                          float32      // of the norms
	Heads, KVHeads, HeadDim      int
	RoPE                         graph.RoPE // Heads is filled in
	Scale                        float32    // 0 means 1/sqrt(HeadDim)
	Window                       int
}

// ReadAttention reads the tensors of a layer's attention block by GGUF's names. Biases
// are taken where the file has them, and the norms of heads if normed says that the
// architecture has them.
func (r *Reader) ReadAttention(layer int, h Hyperparameters, normed bool) Attention {
	at := Layer(layer)
	wide, narrow := h.Heads*h.HeadDim, h.KVWidth()
	a := Attention{
		Layer:   layer,
		Q:       r.Weight(at("attn_q.weight"), h.Embedding, wide),
		K:       r.Weight(at("attn_k.weight"), h.Embedding, narrow),
		V:       r.Weight(at("attn_v.weight"), h.Embedding, narrow),
		Out:     r.Weight(at("attn_output.weight"), wide, h.Embedding),
		QBias:   r.OptionalVector(at("attn_q.bias"), wide),
		KBias:   r.OptionalVector(at("attn_k.bias"), narrow),
		VBias:   r.OptionalVector(at("attn_v.bias"), narrow),
		OutBias: r.OptionalVector(at("attn_output.bias"), h.Embedding),
		Eps:     h.NormEps,
		Heads:   h.Heads, KVHeads: h.KVHeads, HeadDim: h.HeadDim,
		RoPE:   h.RoPE,
		Window: h.Window,
	}
	if normed {
		a.QNorm = r.Vector(at("attn_q_norm.weight"), h.HeadDim)
		a.KNorm = r.Vector(at("attn_k_norm.weight"), h.HeadDim)
	}
	return a
}

// Build appends the block for the normalised activations x [d n] and returns the
// output projection [d n], before the residual is added.
func (a *Attention) Build(b *graph.Builder, in Inputs, x graph.NodeID) graph.NodeID {
	at, p := Layer(a.Layer), b.Params()
	q, stored := a.project(b, in, x)
	kv := b.KVLoad(at("kv"), a.Layer, stored)
	x = b.Attention(at("attn"), q, kv, in.Positions, in.Spans, graph.Attention{
		Layer: a.Layer,
		Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim,
		Scale: a.scale(), Mode: p.Mode, Window: a.Window, ExplicitSpan: p.ExplicitSpan,
	})
	return b.MatMul(at("attn_output"), x, a.Out, a.OutBias)
}

func (a *Attention) scale() float32 {
	if a.Scale != 0 {
		return a.Scale
	}
	return float32(1 / math.Sqrt(float64(a.HeadDim)))
}

// project yields the rotated queries and the node that stores keys and values: one
// fused node where the parameters ask for it and the layer has the form it covers.
func (a *Attention) project(b *graph.Builder, in Inputs, x graph.NodeID) (q, stored graph.NodeID) {
	fusion, at := b.Params().Fusion, Layer(a.Layer)
	qw, kw, vw := graph.Projection(a.Q, a.QBias), graph.Projection(a.K, a.KBias), graph.Projection(a.V, a.VBias)
	normed := a.QNorm.Name != ""
	switch {
	case normed && fusion.QKVNorm:
		q = b.Node(at("qkv"), graph.FusedQKVNorm{
			Layer: a.Layer, Q: qw, K: kw, V: vw, QNorm: a.QNorm.Name, KNorm: a.KNorm.Name, Eps: a.Eps,
			RoPE: a.rope(a.Heads), KVHeads: a.KVHeads,
		}, x, in.Positions, in.Cells)
		return q, q
	case !normed && fusion.QKV:
		q = b.Node(at("qkv"), graph.FusedQKV{
			Layer: a.Layer, Q: qw, K: kw, V: vw, RoPE: a.rope(a.Heads), KVHeads: a.KVHeads,
		}, x, in.Positions, in.Cells)
		return q, q
	case !normed && fusion.QKVBiasRopeStore:
		return a.projectThenStore(b, in, x)
	}
	q = b.MatMul(at("attn_q"), x, a.Q, a.QBias)
	k := b.MatMul(at("attn_k"), x, a.K, a.KBias)
	v := b.MatMul(at("attn_v"), x, a.V, a.VBias)
	if normed {
		q = b.QKNorm(at("attn_q_norm"), q, a.QNorm, a.Heads, a.Eps)
		k = b.QKNorm(at("attn_k_norm"), k, a.KNorm, a.KVHeads, a.Eps)
	}
	q = b.RoPE(at("attn_q_rope"), q, in.Positions, a.rope(a.Heads))
	k = b.RoPE(at("attn_k_rope"), k, in.Positions, a.rope(a.KVHeads))
	return q, b.KVStore(at("kv_store"), a.Layer, k, v, in.Cells)
}

// projectThenStore leaves the biases, the rotation and the store to one fused node.
func (a *Attention) projectThenStore(b *graph.Builder, in Inputs, x graph.NodeID) (q, stored graph.NodeID) {
	at, none := Layer(a.Layer), graph.Weight{}
	q = b.Node(at("qkv_store"), graph.QKVBiasRopeStore{
		Layer: a.Layer, QBias: a.QBias.Name, KBias: a.KBias.Name, VBias: a.VBias.Name,
		RoPE: a.rope(a.Heads), KVHeads: a.KVHeads,
	},
		b.MatMul(at("attn_q"), x, a.Q, none),
		b.MatMul(at("attn_k"), x, a.K, none),
		b.MatMul(at("attn_v"), x, a.V, none),
		in.Positions, in.Cells)
	return q, q
}

func (a *Attention) rope(heads int) graph.RoPE {
	r := a.RoPE
	r.Heads = heads
	return r
}

// GatedFFN is the feed-forward block down(silu(gate x) * up x) of one layer.
type GatedFFN struct {
	Layer                      int
	Gate, Up, Down             graph.Weight
	GateBias, UpBias, DownBias graph.Weight
}

// ReadGatedFFN reads the tensors of a layer's feed-forward block by GGUF's names.
func (r *Reader) ReadGatedFFN(layer int, h Hyperparameters) GatedFFN {
	at := Layer(layer)
	return GatedFFN{
		Layer:    layer,
		Gate:     r.Weight(at("ffn_gate.weight"), h.Embedding, h.FFN),
		Up:       r.Weight(at("ffn_up.weight"), h.Embedding, h.FFN),
		Down:     r.Weight(at("ffn_down.weight"), h.FFN, h.Embedding),
		GateBias: r.OptionalVector(at("ffn_gate.bias"), h.FFN),
		UpBias:   r.OptionalVector(at("ffn_up.bias"), h.FFN),
		DownBias: r.OptionalVector(at("ffn_down.bias"), h.Embedding),
	}
}

// Build appends the block for the normalised activations x [d n] and returns the
// result [d n], before the residual is added.
func (f *GatedFFN) Build(b *graph.Builder, x graph.NodeID) graph.NodeID {
	at := Layer(f.Layer)
	if b.Params().Fusion.FFN {
		x = b.Node(at("ffn_act"), graph.FusedFFN{
			Gate: graph.Projection(f.Gate, f.GateBias),
			Up:   graph.Projection(f.Up, f.UpBias),
		}, x)
	} else {
		gate := b.MatMul(at("ffn_gate"), x, f.Gate, f.GateBias)
		up := b.MatMul(at("ffn_up"), x, f.Up, f.UpBias)
		x = b.Mul(at("ffn_act"), b.Silu(at("ffn_silu"), gate), up)
	}
	return b.MatMul(at("ffn_down"), x, f.Down, f.DownBias)
}

// Head is what comes after the last layer: the norm and the projection to logits.
type Head struct {
	Norm, Output, Bias graph.Weight
	Eps                float32
}

// ReadHead reads the head's tensors. A file without an output matrix ties it to the
// embedding table.
func (r *Reader) ReadHead(h Hyperparameters, embedding graph.Weight) Head {
	head := Head{
		Norm:   r.Vector("output_norm.weight", h.Embedding),
		Output: r.OptionalWeight("output.weight", h.Embedding, h.Vocab),
		Bias:   r.OptionalVector("output.bias", h.Vocab),
		Eps:    h.NormEps,
	}
	if head.Output.Name == "" {
		head.Output = embedding
	}
	return head
}

// Build appends the head for the residual stream x and marks the result that the
// parameters ask for, logits or the activations before them, as the graph's output.
func (h *Head) Build(b *graph.Builder, x graph.NodeID) {
	x = b.RMSNorm("output_norm", x, h.Norm, h.Eps)
	if b.Params().Result == graph.Hidden {
		b.Output(x)
		return
	}
	b.Output(b.MatMul("logits", x, h.Output, h.Bias))
}
