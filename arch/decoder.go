package arch

import "github.com/minfer/minfer/graph"

// Decoder is the decoder-only transformer with norms before its blocks that most open
// models are: an embedding table, layers of attention and a gated feed-forward block
// around a residual stream, and a head (Touvron et al., 2023). Architectures of this form
// differ in what their attention has, and set that before reading the layers.
//
// Decoder is a Definition.
type Decoder struct {
	Hyper     Hyperparameters
	Embedding graph.Weight
	Layers    []DecoderLayer
	Head      Head
}

// DecoderLayer is one layer of a Decoder.
type DecoderLayer struct {
	AttentionNorm graph.Weight
	Attention     Attention
	FFNNorm       graph.Weight
	FFN           GatedFFN
}

// ReadDecoder reads the tensors of a decoder by GGUF's names. Normed says whether
// queries and keys are normalised per head.
func (r *Reader) ReadDecoder(h Hyperparameters, normed bool) *Decoder {
	d := &Decoder{Hyper: h}
	d.Embedding = r.Weight("token_embd.weight", h.Embedding, h.Vocab)
	d.Head = r.ReadHead(h, d.Embedding)
	for i := range h.Layers {
		at := Layer(i)
		d.Layers = append(d.Layers, DecoderLayer{
			AttentionNorm: r.Vector(at("attn_norm.weight"), h.Embedding),
			Attention:     r.ReadAttention(i, h, normed),
			FFNNorm:       r.Vector(at("ffn_norm.weight"), h.Embedding),
			FFN:           r.ReadGatedFFN(i, h),
		})
	}
	return d
}

// Hyperparameters implements Definition.
func (d *Decoder) Hyperparameters() Hyperparameters { return d.Hyper }

// Build implements Definition.
func (d *Decoder) Build(b *graph.Builder, p graph.Params) error {
	in := DeclareInputs(b)
	x := b.Embed("embed", in.Tokens, d.Embedding)
	for i := range d.Layers {
		l, at := &d.Layers[i], Layer(i)
		residual := x
		x = b.RMSNorm(at("attn_norm"), x, l.AttentionNorm, d.Hyper.NormEps)
		x = l.Attention.Build(b, in, x)
		if i == len(d.Layers)-1 {
			x = in.KeepTail(b, "tail_attn", x)
			residual = in.KeepTail(b, "tail_residual", residual)
		}
		x = b.Add(at("attn_residual"), residual, x)
		residual = x
		x = b.RMSNorm(at("ffn_norm"), x, l.FFNNorm, d.Hyper.NormEps)
		x = l.FFN.Build(b, x)
		x = b.Add(at("ffn_residual"), residual, x)
	}
	d.Head.Build(b, x)
	return b.Err()
}
