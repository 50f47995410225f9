// Package qwen3 defines the dense Qwen3 models (Yang et al., 2025): a decoder that
// normalises each head of queries and keys before rotating it, with rotary pairs half
// a head apart and a head size that need not divide the embedding. Importing it
// registers the architecture "qwen3".
package qwen3

import (
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

func init() { arch.Register("qwen3", New) }

// New reads a model file of this architecture.
func New(f *gguf.File) (arch.Definition, error) {
	r := arch.NewReader(f)
	h := r.Hyperparameters()
	h.RoPE.Style = graph.RoPEHalves
	d := r.ReadDecoder(h, true)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return d, nil
}
