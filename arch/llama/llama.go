// Package llama defines the Llama models and the many that share their form, SmolLM2
// and Mistral among them (Touvron et al., 2023; Grattafiori et al., 2024): a decoder
// with rotary pairs of neighbouring features, optional biases, and for Llama 3.1 and
// later a factor per rotary frequency. Importing it registers the architecture "llama".
package llama

import (
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

func init() { arch.Register("llama", New) }

// New reads a model file of this architecture.
func New(f *gguf.File) (arch.Definition, error) {
	r := arch.NewReader(f)
	h := r.Hyperparameters()
	h.RoPE.Style = graph.RoPEInterleaved
	h.RoPE.Factors = r.OptionalVector("rope_freqs.weight", h.RoPE.Dim/2).Name
	d := r.ReadDecoder(h, false)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return d, nil
}
