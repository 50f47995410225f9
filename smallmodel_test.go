package minfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/internal/quant"
)

// smallModel is a model of random weights that a test writes: the llama architecture with
// two layers, and a byte-level vocabulary.
type smallModel struct {
	vocab    int       // tokens: 255 bytes, one of two bytes, and control tokens
	rows     int       // of the embedding; 0 for as many as tokens
	embed    gguf.Type // storage type of the embedding
	output   gguf.Type // of the output matrix
	untied   bool      // there is an output matrix
	copied   bool      // and it is a copy of the embedding
	ffn      gguf.Type // of one matrix of the feed-forward network
	spoil    float32   // put into the final norm
	template string
	keys     map[string]any // set, or with nil left out
	layers   int            // 0 for two
}

const (
	smallEmbedding = 64
	smallFFN       = 96
	smallLayers    = 2
)

// bytes writes the model.
func (c smallModel) bytes(t testing.TB) []byte {
	t.Helper()
	w := gguf.NewWriter()
	layers := max(c.layers, smallLayers)
	keys := map[string]any{
		"general.architecture":                   "llama",
		"general.name":                           "small",
		"llama.block_count":                      uint32(layers),
		"llama.context_length":                   uint32(128),
		"llama.embedding_length":                 uint32(smallEmbedding),
		"llama.feed_forward_length":              uint32(smallFFN),
		"llama.attention.head_count":             uint32(4),
		"llama.attention.head_count_kv":          uint32(2),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5),
		"tokenizer.ggml.model":                   "gpt2",
		"tokenizer.ggml.pre":                     "gpt-2",
		"tokenizer.ggml.tokens":                  c.tokens(),
		"tokenizer.ggml.token_type":              c.types(),
		"tokenizer.ggml.merges":                  []string{"t h"},
		"tokenizer.ggml.eos_token_id":            uint32(256),
	}
	if c.template != "" {
		keys["tokenizer.chat_template"] = c.template
	}
	for key, v := range c.keys {
		keys[key] = v
	}
	for key, v := range keys {
		if v != nil {
			w.Set(key, v)
		}
	}
	rows := c.rows
	if rows == 0 {
		rows = c.vocab
	}
	embedding := random(1, rows*smallEmbedding)
	add(t, w, "token_embd.weight", c.embed, embedding, smallEmbedding, rows)
	if c.untied {
		values := random(2, rows*smallEmbedding)
		if c.copied {
			values = embedding
		}
		add(t, w, "output.weight", c.output, values, smallEmbedding, rows)
	}
	norm := ones(smallEmbedding)
	if c.spoil != 0 {
		norm[3] = c.spoil
	}
	add(t, w, "output_norm.weight", gguf.TypeF32, norm, smallEmbedding)
	for i := range layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
		add(t, w, name("attn_norm"), gguf.TypeF32, ones(smallEmbedding), smallEmbedding)
		add(t, w, name("ffn_norm"), gguf.TypeF32, ones(smallEmbedding), smallEmbedding)
		for seed, m := range []struct {
			name    string
			in, out int
		}{
			{"attn_q", smallEmbedding, 64}, {"attn_k", smallEmbedding, 32}, {"attn_v", smallEmbedding, 32}, {"attn_output", 64, smallEmbedding},
			{"ffn_gate", smallEmbedding, smallFFN}, {"ffn_up", smallEmbedding, smallFFN}, {"ffn_down", smallFFN, smallEmbedding},
		} {
			kind := gguf.TypeF32
			if m.name == "ffn_up" {
				kind = c.ffn
			}
			add(t, w, name(m.name), kind, random(uint64(10*i+seed+3), m.in*m.out), m.in, m.out)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tokens spells the bytes but 0 as byte-level BPE does: printable ones as they are, others
// as characters from U+0100 on, which stands for 0.
func (c smallModel) tokens() []string {
	var tokens []string
	next := rune(0x101)
	for b := 1; b < 256; b++ {
		switch r := rune(b); {
		case r >= '!' && r <= '~', r >= '¡' && r <= '¬', r >= '®':
			tokens = append(tokens, string(r))
		default:
			tokens = append(tokens, string(next))
			next++
		}
	}
	tokens = append(tokens, "th")
	for i := 256; i < c.vocab; i++ {
		tokens = append(tokens, fmt.Sprintf("<|%d|>", i))
	}
	return tokens
}

func (c smallModel) types() []int32 {
	types := make([]int32, c.vocab)
	for i := range types {
		types[i] = 1
		if i >= 256 {
			types[i] = 3
		}
	}
	return types
}

func random(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 9))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64()) / 8
	}
	return values
}

func ones(n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = 1
	}
	return values
}

// add adds a tensor in a storage type. Types that cannot be encoded get zeros.
func add(t testing.TB, w *gguf.Writer, name string, kind gguf.Type, values []float32, dims ...int) {
	t.Helper()
	shape := make([]uint64, len(dims))
	for i, d := range dims {
		shape[i] = uint64(d)
	}
	data := make([]byte, len(values)/kind.BlockSize()*kind.BlockBytes())
	if f, err := quant.Lookup(kind.String()); err == nil && f.CanQuantize() {
		if err := f.Quantize(data, values); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.AddTensor(name, kind, shape, data); err != nil {
		t.Fatal(err)
	}
}

func (c smallModel) open(t testing.TB, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	return openBytes(t, c.bytes(t), opts...)
}

func openBytes(t testing.TB, data []byte, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	m, err := minfer.OpenBytes(data, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestTiedEmbeddings compares a model without an output matrix with one whose output
// matrix is a copy of the embedding, and with one that has another.
func TestTiedEmbeddings(t *testing.T) {
	for _, kind := range []gguf.Type{gguf.TypeF32, gguf.TypeF16, gguf.TypeQ8_0, gguf.TypeQ4_0} {
		for _, rows := range []int{257, 288} {
			t.Run(fmt.Sprintf("%v/%d", kind, rows), func(t *testing.T) {
				c := smallModel{vocab: 257, rows: rows, embed: kind, output: kind}
				tokens := []minfer.Token{0, 255, 256, 7, 100, 33, 1}
				tied := evalAll(t, newSession(t, c.open(t)), tokens)
				c.untied, c.copied = true, true
				copied := evalAll(t, newSession(t, c.open(t)), tokens)
				wantRows(t, "a copy", copied, tied)
				c.copied = false
				other := evalAll(t, newSession(t, c.open(t)), tokens)
				if sameRow(other[0], tied[0]) == nil {
					t.Error("the output matrix that is there is not used")
				}
				if len(tied[0]) != 257 {
					t.Errorf("%d logits, want 257", len(tied[0]))
				}
				chunks := newSession(t, c.open(t), minfer.WithBatch(2))
				wantRows(t, "in chunks", evalAll(t, chunks, tokens), other)
			})
		}
	}
}

// TestNoTokenBeyondTheVocabulary samples at random from a model whose matrices have more
// rows than the vocabulary has tokens.
func TestNoTokenBeyondTheVocabulary(t *testing.T) {
	m := smallModel{vocab: 257, rows: 288}.open(t)
	if got := m.Info().Vocab; got != 257 {
		t.Errorf("the vocabulary has %d tokens, want 257", got)
	}
	seen := make(map[minfer.Token]bool)
	for seed := range uint64(20) {
		a := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), []minfer.Token{65}, minfer.Temperature(50), minfer.TopK(0), minfer.TopP(1),
			minfer.MinP(0), minfer.Seed(seed), minfer.PastEnd(), minfer.MaxTokens(100)))
		for _, token := range a.tokens {
			if token < 0 || token >= 257 {
				t.Fatalf("token %d was sampled", token)
			}
			seen[token] = true
		}
	}
	if len(seen) < 250 {
		t.Errorf("%d different tokens, want nearly all: the sampling is not random", len(seen))
	}
	for _, token := range []minfer.Token{257, 287, 288} {
		_, err := newSession(t, m).Eval(t.Context(), []minfer.Token{token})
		wantError(t, err, minfer.ErrToken)
	}
}

// TestNonFiniteLogits has a weight that is not finite.
func TestNonFiniteLogits(t *testing.T) {
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), math.MaxFloat32} {
		m := smallModel{vocab: 257, spoil: v}.open(t)
		s := newSession(t, m)
		for _, temperature := range []float32{0, 1} {
			_, err := read(s.Generate(t.Context(), "abc", minfer.Temperature(temperature), minfer.MaxTokens(3)))
			if v == math.MaxFloat32 && err == nil {
				continue // large, but it may be finite
			}
			wantError(t, err, minfer.ErrNonFiniteLogits)
		}
	}
}

// TestOpenRefuses opens files with one thing wrong.
func TestOpenRefuses(t *testing.T) {
	good := smallModel{vocab: 257}
	change := func(key string, v any) smallModel {
		c := good
		c.keys = map[string]any{key: v}
		return c
	}
	unsupported := good
	unsupported.ffn = gguf.TypeI8
	short := good
	short.rows = 200
	for name, c := range map[string]struct {
		model smallModel
		want  error
	}{
		"architecture":      {change("general.architecture", "perceptron"), minfer.ErrUnknownArchitecture},
		"no architecture":   {change("general.architecture", nil), nil},
		"no context":        {change("llama.context_length", nil), minfer.ErrInvalidModel},
		"no layers":         {change("llama.block_count", uint32(0)), minfer.ErrInvalidModel},
		"too many layers":   {change("llama.block_count", uint32(3)), minfer.ErrInvalidModel},
		"absurd layers":     {change("llama.block_count", uint32(math.MaxUint32)), minfer.ErrInvalidModel},
		"absurd heads":      {change("llama.attention.head_count", uint32(1<<31)), minfer.ErrInvalidModel},
		"absurd context":    {change("llama.context_length", uint32(math.MaxUint32)), minfer.ErrInvalidModel},
		"NaN":               {change("llama.attention.layer_norm_rms_epsilon", float32(math.NaN())), minfer.ErrInvalidModel},
		"tokenizer":         {change("tokenizer.ggml.model", "runes"), minfer.ErrUnsupportedTokenizer},
		"pre-tokenizer":     {change("tokenizer.ggml.pre", "guess"), minfer.ErrUnsupportedTokenizer},
		"no pre-tokenizer":  {change("tokenizer.ggml.pre", nil), minfer.ErrUnsupportedTokenizer},
		"no tokens":         {change("tokenizer.ggml.tokens", nil), nil},
		"template":          {change("tokenizer.chat_template", uint32(7)), nil},
		"tensor type":       {unsupported, minfer.ErrUnsupportedTensor},
		"more tokens":       {short, minfer.ErrInvalidModel},
		"another embedding": {change("llama.embedding_length", uint32(96)), minfer.ErrInvalidModel},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := minfer.OpenBytes(c.model.bytes(t))
			if err == nil {
				m.Close()
				t.Fatal("no error")
			}
			if c.want != nil {
				wantError(t, err, c.want)
			}
			var tensor *minfer.TensorError
			if errors.As(err, &tensor) && (tensor.Tensor != "blk.0.ffn_up.weight" || tensor.Type != "I8") {
				t.Errorf("the error names %+v", tensor)
			}
			var panicked *minfer.PanicError
			if errors.As(err, &panicked) {
				t.Errorf("a panic: %v", err)
			}
		})
	}
	data := good.bytes(t)
	for n := 0; n < len(data); n += 1 + n/3 {
		if m, err := minfer.OpenBytes(data[:n]); err == nil {
			m.Close()
			t.Errorf("%d of %d bytes were opened", n, len(data))
		}
	}
	for _, b := range [][]byte{[]byte("hello"), bytes.Repeat([]byte{0}, 100)} {
		_, err := minfer.OpenBytes(b)
		wantError(t, err, minfer.ErrNotGGUF)
	}
}

// TestBrokenUTF8 gives text that is no UTF-8 to the tokenizer, which takes it byte for byte.
func TestBrokenUTF8(t *testing.T) {
	m := smallModel{vocab: 257}.open(t)
	for _, x := range []string{"\xe6\xad", "\xff", "a\xc0\x80b", "\xed\xa0\x80", "\xf0\x9f\x99"} {
		for _, text := range []string{x, "left " + x + " right"} {
			s := newSession(t, m)
			mustRead(t, s.Generate(t.Context(), text, minfer.MaxTokens(1)))
			tokens := s.Tokens()
			if got := m.Tokenizer().Decode(tokens[:len(text)], minfer.DecodeOptions{}); got != text {
				t.Errorf("%q became %q", text, got)
			}
		}
	}
}
