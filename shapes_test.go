package minfer_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

// shapedModel is a model of random weights in a shape of its own.
type shapedModel struct {
	arch                    string
	width, ffn              int
	heads, kvHeads, headDim int
	weights, down           gguf.Type // of all matrices, and of the last one of the feed-forward network
}

func (c shapedModel) String() string {
	return fmt.Sprintf("%s/%dx%d/heads=%d,%d,%d/%v,%v", c.arch, c.width, c.ffn, c.heads, c.kvHeads, c.headDim, c.weights, c.down)
}

// bytes writes the model, which has two layers.
func (c shapedModel) bytes(t testing.TB) []byte {
	t.Helper()
	const layers = 2
	vocabulary := smallModel{vocab: 257}
	w := gguf.NewWriter()
	for key, v := range map[string]any{
		"general.architecture":                       c.arch,
		c.arch + ".block_count":                      uint32(layers),
		c.arch + ".context_length":                   uint32(512),
		c.arch + ".embedding_length":                 uint32(c.width),
		c.arch + ".feed_forward_length":              uint32(c.ffn),
		c.arch + ".attention.head_count":             uint32(c.heads),
		c.arch + ".attention.head_count_kv":          uint32(c.kvHeads),
		c.arch + ".attention.key_length":             uint32(c.headDim),
		c.arch + ".attention.value_length":           uint32(c.headDim),
		c.arch + ".attention.layer_norm_rms_epsilon": float32(1e-5),
		"tokenizer.ggml.model":                       "gpt2",
		"tokenizer.ggml.pre":                         "gpt-2",
		"tokenizer.ggml.tokens":                      vocabulary.tokens(),
		"tokenizer.ggml.token_type":                  vocabulary.types(),
		"tokenizer.ggml.merges":                      []string{"t h"},
	} {
		w.Set(key, v)
	}
	seed := uint64(0)
	tensor := func(name string, kind gguf.Type, dims ...int) {
		n := 1
		for _, d := range dims {
			n *= d
		}
		seed++
		add(t, w, name, kind, random(seed, n), dims...)
	}
	tensor("token_embd.weight", c.weights, c.width, vocabulary.vocab)
	tensor("output_norm.weight", gguf.TypeF32, c.width)
	q, kv := c.heads*c.headDim, c.kvHeads*c.headDim
	for i := range layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
		tensor(name("attn_norm.weight"), gguf.TypeF32, c.width)
		tensor(name("attn_q.weight"), c.weights, c.width, q)
		tensor(name("attn_k.weight"), c.weights, c.width, kv)
		tensor(name("attn_v.weight"), c.weights, c.width, kv)
		switch c.arch {
		case "qwen2":
			tensor(name("attn_q.bias"), gguf.TypeF32, q)
			tensor(name("attn_k.bias"), gguf.TypeF32, kv)
			tensor(name("attn_v.bias"), gguf.TypeF32, kv)
		case "qwen3":
			tensor(name("attn_q_norm.weight"), gguf.TypeF32, c.headDim)
			tensor(name("attn_k_norm.weight"), gguf.TypeF32, c.headDim)
		}
		tensor(name("attn_output.weight"), c.weights, q, c.width)
		tensor(name("ffn_norm.weight"), gguf.TypeF32, c.width)
		tensor(name("ffn_gate.weight"), c.weights, c.width, c.ffn)
		tensor(name("ffn_up.weight"), c.weights, c.width, c.ffn)
		tensor(name("ffn_down.weight"), c.down, c.ffn, c.width)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBitsOfShapes: models whose heads, rows and formats are not those of the files at hand have logits that are the same bits with all
// instructions, numbers of threads, ways to cut the prompt, and fused operations. Prompts of 128 tokens and more take
// other ways than shorter ones.
func TestBitsOfShapes(t *testing.T) {
	for i, shape := range shapes {
		if i > 0 && testing.Short() {
			break
		}
		t.Run(shape.String(), func(t *testing.T) { shape.check(t) })
	}
}

// manyHeads has heads enough for threads to compute prompts head by head.
var manyHeads = shapedModel{"qwen3", 96, 160, 16, 8, 32, gguf.TypeQ8_0, gguf.TypeQ4_0}

var shapes = []shapedModel{
	{"llama", 64, 96, 1, 1, 32, gguf.TypeQ4_0, gguf.TypeQ8_0},
	{"qwen2", 96, 160, 16, 16, 16, gguf.TypeQ8_0, gguf.TypeQ4_0},
	{"qwen3", 64, 224, 8, 4, 80, gguf.TypeQ5_0, gguf.TypeQ5_1},
	{"qwen2", 96, 160, 6, 3, 96, gguf.TypeQ4_1, gguf.TypeF16},
	{"llama", 32, 64, 4, 2, 256, gguf.TypeQ8_0, gguf.TypeQ8_0},
	{"qwen3", 40, 72, 8, 8, 24, gguf.TypeF16, gguf.TypeBF16},
	{"llama", 36, 100, 9, 3, 20, gguf.TypeF32, gguf.TypeF32},
	{"qwen2", 32, 288, 4, 4, 128, gguf.TypeF16, gguf.TypeQ4_0},
}

func (c shapedModel) check(t *testing.T) {
	const prompt, more = 128 + 5, 2
	data := c.bytes(t)
	plain := openBytes(t, data, minfer.WithInstructions("generic"), minfer.WithThreads(1), minfer.WithFusion(graph.Fusion{}))
	tokens := someTokens(plain, prompt+more, 5)
	want := evalAll(t, newSession(t, plain), tokens)
	for i, set := range append(instructions(), settings...) {
		m := openBytes(t, data, set.opts...)
		wantRows(t, set.name, evalAll(t, newSession(t, m), tokens), want)
		part := prompt
		if i > 0 {
			part = 125 + i // now a pass for all, now another for some
		}
		s := newSession(t, m, minfer.WithBatch(part))
		wantRow(t, fmt.Sprintf("%s, in parts of %d", set.name, part), eval(t, s, tokens[:prompt]...), want[prompt-1])
		for i := prompt; i < len(tokens); i++ {
			wantRow(t, fmt.Sprintf("%s, token %d", set.name, i), eval(t, s, tokens[i]), want[i])
		}
	}
}
