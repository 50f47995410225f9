// Package qwen2 defines the Qwen2 and Qwen2.5 models (Yang et al., 2024): a decoder
// whose query, key and value projections have biases, with rotary pairs half a head
// apart. Importing it registers the architecture "qwen2".
package qwen2

import (
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

func init() { arch.Register("qwen2", New) }

// New reads a model file of this architecture.
func New(f *gguf.File) (arch.Definition, error) {
	r := arch.NewReader(f)
	h := r.Hyperparameters()
	h.RoPE.Style = graph.RoPEHalves
	d := r.ReadDecoder(h, false)
	for i, l := range d.Layers {
		if a := l.Attention; a.QBias.Name == "" || a.KBias.Name == "" || a.VBias.Name == "" {
			r.Faultf("layer %d lacks a bias of attn_q, attn_k or attn_v", i)
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return d, nil
}
