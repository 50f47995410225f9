package main

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/minfer/minfer/examples/customarch/parallel"
	"github.com/minfer/minfer/gguf"
)

// The vocabulary: a token for each character, and two that mark the ends of a text.
const (
	space = 26
	begin = 30
	end   = 31
	vocab = 32
)

var tokens = append(bytes.Split([]byte("abcdefghijklmnopqrstuvwxyz"), nil),
	[]byte("▁"), []byte("."), []byte(","), []byte("!"), []byte("<begin>"), []byte("<end>"))

// The residual stream has a feature per token in each of three parts: which token stands
// here, which stood before it, and which should come next.
const (
	current   = 0 * vocab
	previous  = 1 * vocab
	next      = 2 * vocab
	embedding = 3 * vocab
)

// A head has features that are rotated, so that they compare positions, and others that
// are not and compare tokens.
const (
	rotated = 8
	headDim = rotated + vocab
	base    = 10000
)

// How strongly the parts of the model speak. What the text has shown before outweighs
// what the feed-forward parts know.
const (
	focus    = 500 // of attention on what it looks for, before the softmax
	copied   = 8   // what follows in an earlier place
	known    = 2   // what follows in the alphabet
	neuron   = 4   // input of a neuron that fires; gelu(4) is nearly 4
	fallback = 0.25
)

// matrix is a weight of rows of in values.
type matrix struct {
	in, out int
	values  []float32
}

func newMatrix(in, out int) *matrix { return &matrix{in, out, make([]float32, in*out)} }

// set makes output to read input from, with a factor.
func (m *matrix) set(to, from int, factor float64) { m.values[to*m.in+from] = float32(factor) }

// successor is the token that follows another by the model's knowledge.
func successor(t int) int {
	switch {
	case t < 'z'-'a':
		return t + 1
	case t == space:
		return 0
	}
	return end
}

// writePattern returns a model file whose weights are made by hand. The model continues
// a text that repeats itself, and any other by the alphabet:
//
//   - In block 0, attention looks one position back, and notes the token it finds there as
//     the previous one. The feed-forward part knows what follows the letters a to m.
//   - In block 1, attention looks for places whose previous token is the current one,
//     and copies the token that stands there (Olsson et al., In-context Learning and Induction
//     Heads, 2022). Where there is none, it rests on the begin of the text, which says
//     nothing. The feed-forward part knows what follows the other characters.
func writePattern() ([]byte, error) {
	w := gguf.NewWriter()
	w.SetString("general.architecture", parallel.Name)
	w.SetString("general.name", "pattern")
	for _, size := range []struct {
		key string
		n   uint32
	}{
		{"block_count", 2}, {"context_length", 128}, {"embedding_length", embedding}, {"feed_forward_length", vocab},
		{"attention.head_count", 1}, {"attention.key_length", headDim}, {"attention.value_length", headDim},
		{"rope.dimension_count", rotated},
	} {
		w.SetUint32(parallel.Name+"."+size.key, size.n)
	}
	w.SetFloat32(parallel.Name+".rope.freq_base", base)
	w.SetFloat32(parallel.Name+".attention.layer_norm_rms_epsilon", 1e-9)
	setTokenizer(w)

	table, head := newMatrix(embedding, vocab), newMatrix(embedding, vocab)
	for t := range vocab {
		table.set(t, current+t, 1)
		head.set(t, next+t, 1)
	}
	add(w, "token_embd.weight", table)
	add(w, "output.weight", head)
	add(w, "output_norm.weight", constant(1))
	previousToken(w)
	induction(w)
	feedForward(w, "blk.0.", func(t int) bool { return t < 'n'-'a' })
	feedForward(w, "blk.1.", func(t int) bool { return t >= 'n'-'a' && t < begin })

	var file bytes.Buffer
	_, err := w.WriteTo(&file)
	return file.Bytes(), err
}

func setTokenizer(w *gguf.Writer) {
	texts, types := make([]string, vocab), make([]int32, vocab)
	for i, t := range tokens {
		texts[i], types[i] = string(t), 1 // normal
	}
	types[begin], types[end] = 3, 3 // control

	w.SetString("tokenizer.ggml.model", "llama") // SentencePiece, which spells a space "▁"
	w.SetStrings("tokenizer.ggml.tokens", texts)
	w.SetInt32s("tokenizer.ggml.token_type", types)
	w.SetFloat32s("tokenizer.ggml.scores", make([]float32, vocab))
	w.SetUint32("tokenizer.ggml.bos_token_id", begin)
	w.SetUint32("tokenizer.ggml.eos_token_id", end)
	w.SetBool("tokenizer.ggml.add_bos_token", true)
	w.SetBool("tokenizer.ggml.add_space_prefix", false)
}

// previousToken writes the attention of block 0. Queries and keys are the same for all
// tokens; rotated by position, their product is largest one position apart.
func previousToken(w *gguf.Writer) {
	q, k, v, out := projections()
	strength := math.Sqrt(focus)
	for t := range vocab {
		for i := range rotated / 2 {
			angle := math.Pow(base, -2*float64(i)/rotated)
			q.set(i, current+t, strength*math.Cos(angle))
			q.set(i+rotated/2, current+t, -strength*math.Sin(angle))
			k.set(i, current+t, strength)
		}
		v.set(rotated+t, current+t, 1)
		out.set(previous+t, rotated+t, 1)
	}
	addBlock(w, "blk.0.", 1, q, k, v, out)
}

// induction writes the attention of block 1. The feature of the end, which is nobody's
// previous token, is where every query meets the begin.
func induction(w *gguf.Writer) {
	q, k, v, out := projections()
	strength := math.Sqrt(focus)
	for t := range end {
		q.set(rotated+t, current+t, strength)
		q.set(rotated+end, current+t, strength)
		k.set(rotated+t, previous+t, strength)
		if t != begin {
			v.set(rotated+t, current+t, 1)
			out.set(next+t, rotated+t, copied)
		}
	}
	k.set(rotated+end, current+begin, fallback*strength)
	addBlock(w, "blk.1.", math.Sqrt2, q, k, v, out) // two features are 1 by now
}

func projections() (q, k, v, out *matrix) {
	return newMatrix(embedding, headDim), newMatrix(embedding, headDim), newMatrix(embedding, headDim), newMatrix(headDim, embedding)
}

// addBlock writes attention and the norm before it, which leaves activations of the
// given length as they are.
func addBlock(w *gguf.Writer, block string, length float64, q, k, v, out *matrix) {
	add(w, block+"attn_norm.weight", constant(length/math.Sqrt(embedding)))
	add(w, block+"attn_q.weight", q)
	add(w, block+"attn_k.weight", k)
	add(w, block+"attn_v.weight", v)
	add(w, block+"attn_output.weight", out)
}

// feedForward writes the neurons of a block: one for each token that it knows about.
func feedForward(w *gguf.Writer, block string, knows func(t int) bool) {
	up, down := newMatrix(embedding, vocab), newMatrix(vocab, embedding)
	for t := range vocab {
		if knows(t) {
			up.set(t, current+t, neuron)
			down.set(next+successor(t), t, float64(known)/neuron)
		}
	}
	add(w, block+"ffn_up.weight", up)
	add(w, block+"ffn_down.weight", down)
}

func constant(v float64) *matrix {
	m := newMatrix(embedding, 1)
	for i := range m.values {
		m.values[i] = float32(v)
	}
	return m
}

// add writes a tensor. The writer keeps the first mistake for WriteTo.
func add(w *gguf.Writer, name string, m *matrix) {
	var data []byte
	for _, v := range m.values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	dims := []uint64{uint64(m.in), uint64(m.out)}
	if m.out == 1 {
		dims = dims[:1]
	}
	_ = w.AddTensor(name, gguf.TypeF32, dims, data)
}
