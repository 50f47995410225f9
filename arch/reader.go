package arch

import (
	"fmt"
	"math"
	"strings"

	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

// Reader reads hyperparameters and weights from a model file, and collects what is
// missing or wrong instead of stopping at it. Keys are given without the name of the
// architecture, which comes before each of them in the file.
type Reader struct {
	file   *gguf.File
	prefix string
	faults []string
}

// NewReader returns a reader of the file for its own architecture.
func NewReader(f *gguf.File) *Reader {
	r := &Reader{file: f}
	name, err := f.Architecture()
	if err != nil {
		r.Faultf("%v", err)
	}
	r.prefix = name + "."
	return r
}

// Faultf notes something that is wrong with the file.
func (r *Reader) Faultf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// Err returns an *InvalidError with everything that was found missing or wrong, or nil.
func (r *Reader) Err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return &InvalidError{Architecture: strings.TrimSuffix(r.prefix, "."), Faults: r.faults}
}

// InvalidError lists everything that is wrong with a model file.
type InvalidError struct {
	Architecture string
	Faults       []string
}

// maxFaultsShown bounds the message for a file that has nearly nothing right.
const maxFaultsShown = 20

// Error lists the faults, the first twenty of them.
func (e *InvalidError) Error() string {
	shown, more := e.Faults, ""
	if len(shown) > maxFaultsShown {
		more = fmt.Sprintf("; and %d more", len(shown)-maxFaultsShown)
		shown = shown[:maxFaultsShown]
	}
	return fmt.Sprintf("arch: file is no valid %q model: %s%s", e.Architecture, strings.Join(shown, "; "), more)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// Has reports whether the file has the key.
func (r *Reader) Has(key string) bool { return r.file.Has(r.prefix + key) }

// maxSize bounds every hyperparameter, and the features of all heads together, so that
// sums and small multiples of them fit an int of 32 bits.
const maxSize = 1 << 24

// maxLayers bounds the depth of a model, and so the faults that a hostile file can have.
const maxLayers = 1 << 12

// Int returns a value that has to be there and lie between 1 and the largest size that a
// model can sensibly have, 2^24.
func (r *Reader) Int(key string) int {
	n, err := r.file.Int(r.prefix + key)
	if err != nil {
		r.Faultf("%v", err)
		return 1
	}
	return r.within(key, n, maxSize)
}

// IntOr is Int for a key that may be missing.
func (r *Reader) IntOr(key string, missing int) int {
	if !r.Has(key) {
		return missing
	}
	return r.Int(key)
}

func (r *Reader) within(key string, n, most int) int {
	if n < 1 || n > most {
		r.Faultf("%s%s is %d, want 1 to %d", r.prefix, key, n, most)
		return 1
	}
	return n
}

// PerLayer returns a value that has to be there and that files store either once or for
// each layer. It must be the same for all layers.
func (r *Reader) PerLayer(key string, layers int) int {
	if kind, ok := r.file.KindOf(r.prefix + key); !ok || kind != gguf.KindArray {
		return r.Int(key)
	}
	values, err := r.file.Ints(r.prefix + key)
	if err != nil {
		r.Faultf("%v", err)
		return 1
	}
	if len(values) != layers {
		r.Faultf("%s%s has %d values for %d layers", r.prefix, key, len(values), layers)
		return 1
	}
	for i, v := range values {
		if v != values[0] {
			r.Faultf("%s%s is %d in layer 0 and %d in layer %d, which is not supported: want one value for all", r.prefix, key, values[0], v, i)
			return 1
		}
	}
	return r.within(key, values[0], maxSize)
}

// PerLayerOr is PerLayer for a key that may be missing.
func (r *Reader) PerLayerOr(key string, layers, missing int) int {
	if !r.Has(key) {
		return missing
	}
	return r.PerLayer(key, layers)
}

// Float returns a finite number that has to be there.
func (r *Reader) Float(key string) float32 {
	v, err := r.file.Float32(r.prefix + key)
	if err != nil {
		r.Faultf("%v", err)
		return 1
	}
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		r.Faultf("%s%s is %v, want a finite number", r.prefix, key, v)
		return 1
	}
	return v
}

// FloatOr is Float for a key that may be missing.
func (r *Reader) FloatOr(key string, missing float32) float32 {
	if !r.Has(key) {
		return missing
	}
	return r.Float(key)
}

// Weight returns a tensor of rows of in values that has to be there.
func (r *Reader) Weight(name string, in, out int) graph.Weight {
	w, ok := r.tensor(name, in, out)
	if !ok {
		r.Faultf("tensor %q of shape [%d %d] is missing", name, in, out)
	}
	return w
}

// Vector returns a tensor of n values that has to be there.
func (r *Reader) Vector(name string, n int) graph.Weight { return r.Weight(name, n, 1) }

// OptionalWeight returns a tensor if the file has it, and the zero Weight if not.
func (r *Reader) OptionalWeight(name string, in, out int) graph.Weight {
	w, _ := r.tensor(name, in, out)
	return w
}

// OptionalVector is OptionalWeight for a vector of n values.
func (r *Reader) OptionalVector(name string, n int) graph.Weight { return r.OptionalWeight(name, n, 1) }

func (r *Reader) tensor(name string, in, out int) (graph.Weight, bool) {
	t, ok := r.file.Tensor(name)
	if !ok {
		return graph.Weight{}, false
	}
	want := graph.ShapeOf(in, out)
	if got := graph.Shape(t.Shape()); got != want {
		r.Faultf("tensor %q has shape %v, want %v", name, got, want)
	}
	return graph.Weight{Name: name, Type: t.Type.String(), In: in, Out: out}, true
}

// Hyperparameters reads what all transformers of the llama family store alike, with
// RoPE scaling and the sliding window where the file has them. The rotary style is left
// for the architecture to set.
func (r *Reader) Hyperparameters() Hyperparameters {
	var h Hyperparameters
	h.Layers = r.layers()
	h.Embedding = r.Int("embedding_length")
	h.FFN = r.PerLayer("feed_forward_length", h.Layers)
	h.Heads = r.PerLayer("attention.head_count", h.Layers)
	h.KVHeads = r.PerLayerOr("attention.head_count_kv", h.Layers, h.Heads)
	if h.Heads%h.KVHeads != 0 {
		r.Faultf("%d query heads cannot share %d key heads, want a divisor", h.Heads, h.KVHeads)
		h.KVHeads = h.Heads
	}
	h.HeadDim = r.headDim(h)
	h.Vocab = r.vocab()
	h.ContextLength = r.Int("context_length")
	h.Window = r.count("attention.sliding_window")
	h.NormEps = r.Float("attention.layer_norm_rms_epsilon")
	if h.NormEps < 0 {
		r.Faultf("%sattention.layer_norm_rms_epsilon is %v, want 0 or more", r.prefix, h.NormEps)
	}
	h.RoPE = r.rope(h)
	if n := r.count("expert_count"); n > 1 {
		r.Faultf("%sexpert_count is %d: mixtures of experts are not supported by this architecture", r.prefix, n)
	}
	return h
}

// layers is the depth, for which the file has to have a tensor each at the least.
func (r *Reader) layers() int {
	const key = "block_count"
	n := r.within(key, r.Int(key), maxLayers)
	if have := len(r.file.Tensors()); n > have {
		r.Faultf("%s%s is %d, but the file has only %d tensors", r.prefix, key, n, have)
		return 1
	}
	return n
}

// headDim is the features of a head: by default an equal share of the embedding.
func (r *Reader) headDim(h Hyperparameters) int {
	if h.Embedding%h.Heads != 0 && !r.Has("attention.key_length") {
		r.Faultf("%d features cannot be divided among %d heads", h.Embedding, h.Heads)
		return 1
	}
	dim := r.IntOr("attention.key_length", h.Embedding/h.Heads)
	if v := r.IntOr("attention.value_length", dim); v != dim {
		r.Faultf("keys have %d and values %d features a head, want them equal", dim, v)
	}
	if dim > maxSize/h.Heads {
		r.Faultf("%d heads of %d features, want at most %d features in all", h.Heads, dim, maxSize)
		return 1
	}
	return dim
}

// vocab is the number of rows of the embedding table, which files do not always say
// elsewhere.
func (r *Reader) vocab() int {
	t, ok := r.file.Tensor("token_embd.weight")
	if !ok {
		return 1 // the definition's own check of the tensor reports it
	}
	rows := t.Shape()[1]
	if rows < 1 || rows > maxSize {
		r.Faultf("tensor %q has %d rows, want 1 to %d", t.Name, rows, maxSize)
		return 1
	}
	return rows
}

// count returns a value of 0 or more, and 0 if it is missing.
func (r *Reader) count(key string) int {
	if !r.Has(key) {
		return 0
	}
	n, err := r.file.Int(r.prefix + key)
	if err != nil {
		r.Faultf("%v", err)
		return 0
	}
	if n < 0 {
		r.Faultf("%s%s is %d, want 0 or more", r.prefix, key, n)
		return 0
	}
	return n
}

// rope reads the rotary embedding and its scaling.
func (r *Reader) rope(h Hyperparameters) graph.RoPE {
	rope := graph.RoPE{
		Base:    r.FloatOr("rope.freq_base", 10000),
		Scale:   1,
		Dim:     r.IntOr("rope.dimension_count", h.HeadDim),
		HeadDim: h.HeadDim,
	}
	if rope.Dim > h.HeadDim || rope.Dim%2 != 0 {
		r.Faultf("%srope.dimension_count is %d, want an even number up to the %d of a head", r.prefix, rope.Dim, h.HeadDim)
	}
	if !(rope.Base > 0) {
		r.Faultf("%srope.freq_base is %v, want above 0", r.prefix, rope.Base)
	}
	r.ropeScaling(&rope, h.ContextLength)
	return rope
}

// ropeScaling reads how positions are scaled beyond the context that a model was first
// trained for. A factor without a type is linear, a factor of 0 stands for none, and
// YaRN's defaults are those of Peng et al., 2023.
func (r *Reader) ropeScaling(rope *graph.RoPE, context int) {
	kind := "linear"
	if r.Has("rope.scaling.type") {
		var err error
		if kind, err = r.file.String(r.prefix + "rope.scaling.type"); err != nil {
			r.Faultf("%v", err)
			return
		}
	}
	switch kind {
	case "none":
	case "linear":
		rope.Scale = r.ropeScale()
	case "yarn":
		rope.Scale = r.ropeScale()
		rope.ExtFactor = r.FloatOr("rope.scaling.yarn_ext_factor", 1)
		rope.AttnFactor = r.FloatOr("rope.scaling.attn_factor", r.FloatOr("rope.scaling.yarn_attn_factor", 1))
		rope.BetaFast = r.FloatOr("rope.scaling.yarn_beta_fast", 32)
		rope.BetaSlow = r.FloatOr("rope.scaling.yarn_beta_slow", 1)
		rope.OrigContext = r.IntOr("rope.scaling.original_context_length", context)
	default:
		r.Faultf("%srope.scaling.type is %q, want none, linear or yarn", r.prefix, kind)
	}
}

// ropeScale is what positions are multiplied by: 1 over the factor of the stretch, which
// old files keep under another key.
func (r *Reader) ropeScale() float32 {
	factor := r.FloatOr("rope.scaling.factor", r.FloatOr("rope.scale_linear", 1))
	if factor == 0 {
		return 1
	}
	scale := 1 / factor
	if !(scale > 0) || math.IsInf(float64(scale), 0) {
		r.Faultf("%srope.scaling.factor is %v, want above 0 and not next to it", r.prefix, factor)
		return 1
	}
	return scale
}
