package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/minfer/minfer/gguf"
)

// tiny are the sizes of a model with random weights.
type tiny struct {
	arch             string
	layers, d, ffn   int
	heads, kvHeads   int
	headDim, context int
	vocab            int
	norms, biases    bool
	weights          gguf.Type
}

// models cover the forms of attention there are: norms of heads, biases, neither.
var models = []tiny{
	{arch: "qwen3", layers: 3, d: 32, ffn: 32, heads: 2, kvHeads: 1, headDim: 16, context: 64, vocab: 65, norms: true, weights: gguf.TypeQ8_0},
	{arch: "qwen2", layers: 2, d: 64, ffn: 32, heads: 4, kvHeads: 2, headDim: 8, context: 64, vocab: 65, biases: true, weights: gguf.TypeQ4_0},
	{arch: "llama", layers: 2, d: 16, ffn: 24, heads: 2, kvHeads: 2, headDim: 8, context: 64, vocab: 65, weights: gguf.TypeF32},
}

// file writes the model. Equal sizes give equal bytes.
func (m tiny) file(t testing.TB) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(7, uint64(m.d)))
	w := gguf.NewWriter()
	w.SetString("general.architecture", m.arch)
	for _, size := range []struct {
		key string
		n   int
	}{
		{"block_count", m.layers}, {"context_length", m.context}, {"embedding_length", m.d}, {"feed_forward_length", m.ffn},
		{"attention.head_count", m.heads}, {"attention.head_count_kv", m.kvHeads},
		{"attention.key_length", m.headDim}, {"attention.value_length", m.headDim},
	} {
		w.SetUint32(m.arch+"."+size.key, uint32(size.n))
	}
	w.SetFloat32(m.arch+".attention.layer_norm_rms_epsilon", 1e-6)
	m.tokenizer(w)

	add := func(name string, typ gguf.Type, in, out int, data []byte) {
		dims := []uint64{uint64(in), uint64(out)}
		if out == 1 {
			dims = dims[:1]
		}
		if err := w.AddTensor(name, typ, dims, data); err != nil {
			t.Fatal(err)
		}
	}
	matrix := func(name string, in, out int) { add(name, m.weights, in, out, randomRows(r, m.weights, in*out)) }
	vector := func(name string, n int) { add(name, gguf.TypeF32, n, 1, randomRows(r, gguf.TypeF32, n)) }
	matrix("token_embd.weight", m.d, m.vocab)
	vector("output_norm.weight", m.d)
	wide, narrow := m.heads*m.headDim, m.kvHeads*m.headDim
	for i := range m.layers {
		block := "blk." + string(rune('0'+i)) + "."
		vector(block+"attn_norm.weight", m.d)
		matrix(block+"attn_q.weight", m.d, wide)
		matrix(block+"attn_k.weight", m.d, narrow)
		matrix(block+"attn_v.weight", m.d, narrow)
		matrix(block+"attn_output.weight", wide, m.d)
		if m.norms {
			vector(block+"attn_q_norm.weight", m.headDim)
			vector(block+"attn_k_norm.weight", m.headDim)
		}
		if m.biases {
			vector(block+"attn_q.bias", wide)
			vector(block+"attn_k.bias", narrow)
			vector(block+"attn_v.bias", narrow)
		}
		vector(block+"ffn_norm.weight", m.d)
		matrix(block+"ffn_gate.weight", m.d, m.ffn)
		matrix(block+"ffn_up.weight", m.d, m.ffn)
		matrix(block+"ffn_down.weight", m.ffn, m.d)
	}
	var file bytes.Buffer
	if _, err := w.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// tokenizer writes a vocabulary of single characters.
func (m tiny) tokenizer(w *gguf.Writer) {
	texts, types := make([]string, m.vocab), make([]int32, m.vocab)
	for i := range texts {
		texts[i], types[i] = string(rune('0'+i)), 1
	}
	w.SetString("tokenizer.ggml.model", "llama")
	w.SetStrings("tokenizer.ggml.tokens", texts)
	w.SetFloat32s("tokenizer.ggml.scores", make([]float32, m.vocab))
	w.SetInt32s("tokenizer.ggml.token_type", types)
	w.SetBool("tokenizer.ggml.add_bos_token", false)
	w.SetUint32("tokenizer.ggml.bos_token_id", 0)
	w.SetUint32("tokenizer.ggml.eos_token_id", 1)
}

// randomRows returns n values of a type: normal ones, or blocks of random integers under a
// scale that keeps activations in bounds.
func randomRows(r *rand.Rand, typ gguf.Type, n int) []byte {
	var b []byte
	integers := map[gguf.Type]int{gguf.TypeQ8_0: 32, gguf.TypeQ4_0: 16}[typ]
	if integers == 0 {
		for range n {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())/4))
		}
		return b
	}
	for range n / 32 {
		scale := uint16(0x1400) // 2^-10 in half precision
		if typ == gguf.TypeQ4_0 {
			scale = 0x2400 // 2^-6
		}
		b = binary.LittleEndian.AppendUint16(b, scale+uint16(r.IntN(1<<9)))
		for range integers {
			b = append(b, byte(r.Uint32()))
		}
	}
	return b
}
