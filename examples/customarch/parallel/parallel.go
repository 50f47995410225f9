// Package parallel defines a transformer whose blocks compute attention and feed-forward
// side by side instead of one after the other, as GPT-J did (Wang and Komatsuzaki, 2021):
//
//	h = norm(x)
//	x = x + attention(h) + down(gelu(up(h)))
//
// Differences from the decoders that come with minfer: one norm for a block, a residual
// stream that is added to once, a feed-forward part without a gate, and rotation of only
// the first features of a head. Importing the package registers the architecture.
//
// Tensors have GGUF's usual names. A block has attn_norm, attn_q, attn_k, attn_v,
// attn_output, ffn_up and ffn_down; the model has token_embd, output_norm and output.
package parallel

import (
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

// Name is what a model file of this architecture says in general.architecture.
const Name = "parallel"

func init() { arch.Register(Name, New) }

type model struct {
	hyper     arch.Hyperparameters
	embedding graph.Weight
	blocks    []block
	head      arch.Head
}

type block struct {
	norm      graph.Weight
	attention arch.Attention
	up, down  graph.Weight
}

// New reads a model file. What is missing in it or has the wrong shape is reported all
// at once, in an error that wraps arch.ErrInvalid.
func New(f *gguf.File) (arch.Definition, error) {
	r := arch.NewReader(f)
	h := r.Hyperparameters()
	h.RoPE.Style = graph.RoPEHalves
	m := &model{
		hyper:     h,
		embedding: r.Weight("token_embd.weight", h.Embedding, h.Vocab),
	}
	for i := range h.Layers {
		at := arch.Layer(i)
		m.blocks = append(m.blocks, block{
			norm:      r.Vector(at("attn_norm.weight"), h.Embedding),
			attention: r.ReadAttention(i, h, false),
			up:        r.Weight(at("ffn_up.weight"), h.Embedding, h.FFN),
			down:      r.Weight(at("ffn_down.weight"), h.FFN, h.Embedding),
		})
	}
	m.head = r.ReadHead(h, m.embedding)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

// Hyperparameters returns the sizes that the file gives.
func (m *model) Hyperparameters() arch.Hyperparameters { return m.hyper }

// Build lists the operations of a forward pass.
func (m *model) Build(b *graph.Builder, p graph.Params) error {
	in := arch.DeclareInputs(b)
	x := b.Embed("embed", in.Tokens, m.embedding)
	for i := range m.blocks {
		l, at := &m.blocks[i], arch.Layer(i)
		h := b.RMSNorm(at("attn_norm"), x, l.norm, m.hyper.NormEps)
		attended := l.attention.Build(b, in, h)
		if i == len(m.blocks)-1 {
			// All that follows is needed for the rows whose logits are wanted, and no others.
			x = in.KeepTail(b, "tail_residual", x)
			h = in.KeepTail(b, "tail_norm", h)
			attended = in.KeepTail(b, "tail_attn", attended)
		}
		inner := b.Gelu(at("ffn_gelu"), b.MatMul(at("ffn_up"), h, l.up, graph.Weight{}))
		thought := b.MatMul(at("ffn_down"), inner, l.down, graph.Weight{})
		x = b.Add(at("residual"), x, b.Add(at("sum"), attended, thought))
	}
	m.head.Build(b, x)
	return b.Err()
}
