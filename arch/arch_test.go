package arch_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/slices"
)

func TestNames(t *testing.T) {
	names := strings.Join(arch.Names(), " ")
	if !strings.HasSuffix(names, "llama qwen2 qwen3") {
		t.Errorf("names are %q, want the module's three in order", names)
	}
}

func TestRegisterPanics(t *testing.T) {
	construct := func(*gguf.File) (arch.Definition, error) { return nil, nil }
	tests := []struct {
		name, arch, want string
		construct        arch.Constructor
	}{
		{"taken", "llama", `arch: Register: "llama" is taken`, construct},
		{"no name", "", "arch: Register: name or constructor is missing", construct},
		{"no constructor", "new", "arch: Register: name or constructor is missing", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if got := recover(); got != tt.want {
					t.Errorf("panic %v, want %q", got, tt.want)
				}
			}()
			arch.Register(tt.arch, tt.construct)
		})
	}
}

var registered atomic.Int32 // so that the test can run more than once

// Packages may register while others look names up.
func TestRegisterConcurrently(t *testing.T) {
	f, err := tiny("llama").file()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			name := fmt.Sprintf("a-test-%d", registered.Add(1))
			arch.Register(name, func(*gguf.File) (arch.Definition, error) { return nil, nil })
			if !slices.Contains(arch.Names(), name) {
				t.Errorf("%s is not among the names", name)
			}
			if _, err := arch.Open(f); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestOpenUnknown(t *testing.T) {
	_, err := tiny("mamba").open(t)
	var unknown *arch.UnknownError
	if !errors.Is(err, arch.ErrUnknown) || !errors.As(err, &unknown) || unknown.Name != "mamba" {
		t.Fatalf("error is %v, want an UnknownError for mamba", err)
	}
	want := `arch: unknown architecture "mamba" (known: ` + strings.Join(arch.Names(), ", ") + ")"
	if err.Error() != want {
		t.Errorf("message is %q, want %q", err, want)
	}
}

func TestOpenNameless(t *testing.T) {
	_, err := (&model{}).open(t)
	if !errors.Is(err, gguf.ErrMissingKey) || !strings.HasPrefix(err.Error(), `arch: gguf: key "general.architecture"`) {
		t.Errorf("error is %v, want that general.architecture is missing", err)
	}
}

// All that is wrong is reported at once, in the order in which it is read.
func TestFaultsAtOnce(t *testing.T) {
	m := tiny("qwen3")
	m.keys["context_length"] = nil
	m.keys["expert_count"] = uint32(8)
	m.keys["rope.scaling.type"] = "spiral"
	m.tensors["output_norm.weight"] = nil
	m.tensors["blk.0.attn_k.weight"] = []uint64{32, 31}
	m.tensors["blk.1.attn_q_norm.weight"] = nil
	_, err := m.open(t)
	var invalid *arch.InvalidError
	if !errors.Is(err, arch.ErrInvalid) || !errors.As(err, &invalid) || invalid.Architecture != "qwen3" {
		t.Fatalf("error is %v, want an InvalidError for qwen3", err)
	}
	want := []string{
		`gguf: key "qwen3.context_length" (int): missing key`,
		`qwen3.rope.scaling.type is "spiral", want none, linear or yarn`,
		`qwen3.expert_count is 8: mixtures of experts are not supported by this architecture`,
		`tensor "output_norm.weight" of shape [32 1] is missing`,
		`tensor "blk.0.attn_k.weight" has shape [32 31], want [32 32]`,
		`tensor "blk.1.attn_q_norm.weight" of shape [16 1] is missing`,
	}
	if d := cmp.Diff(want, invalid.Faults); d != "" {
		t.Errorf("faults differ (-want +got):\n%s", d)
	}
	if message := `arch: file is no valid "qwen3" model: ` + strings.Join(invalid.Faults, "; "); err.Error() != message {
		t.Errorf("message is %q, want %q", err, message)
	}
}

func TestManyFaults(t *testing.T) {
	m := tiny("llama")
	for name := range m.tensors {
		m.tensors[name] = nil
	}
	m.tensors["unrelated.0"], m.tensors["unrelated.1"] = []uint64{1}, []uint64{1}
	_, err := m.open(t)
	var invalid *arch.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	// A head without an output matrix is tied, so of the 21 tensors 20 are missed.
	if len(invalid.Faults) != 20 || strings.Contains(err.Error(), "more") {
		t.Errorf("%d faults: %v", len(invalid.Faults), err)
	}
	m.keys["context_length"] = nil
	if _, err = m.open(t); !strings.HasSuffix(err.Error(), "; and 1 more") {
		t.Errorf("21 faults end with %q", err.Error()[len(err.Error())-40:])
	}
}

// Each case spoils one thing of a sound llama model.
func TestFaults(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(m *model)
		want  string
	}{
		{"no layers", func(m *model) { m.keys["block_count"] = uint32(0) }, "llama.block_count is 0, want 1 to 16777216"},
		{"more layers than tensors", func(m *model) { m.keys["block_count"] = uint32(22) }, "llama.block_count is 22, but the file has only 21 tensors"},
		{"hostile layers", func(m *model) { m.keys["block_count"] = uint32(1 << 31) }, "llama.block_count"},
		{"too many layers", func(m *model) { m.keys["block_count"] = uint32(4097) }, "llama.block_count is 4097, want 1 to 4096"},
		{"negative", func(m *model) { m.keys["embedding_length"] = int32(-32) }, "llama.embedding_length is -32, want 1 to 16777216"},
		{"not a number", func(m *model) { m.keys["embedding_length"] = "wide" }, `"llama.embedding_length"`},
		{"no feed-forward", func(m *model) { m.keys["feed_forward_length"] = nil }, `gguf: key "llama.feed_forward_length" (int): missing key`},
		{"no heads", func(m *model) { m.keys["attention.head_count"] = nil }, `gguf: key "llama.attention.head_count" (int): missing key`},
		{"heads that do not group", func(m *model) { m.keys["attention.head_count_kv"] = uint32(3) }, "4 query heads cannot share 3 key heads"},
		{"heads that do not divide", func(m *model) { m.keys["attention.head_count"] = uint32(5) }, "32 features cannot be divided among 5 heads"},
		{"keys unlike values", func(m *model) { m.keys["attention.value_length"] = uint32(16) }, "keys have 8 and values 16 features a head"},
		{"features beyond 32 bits", func(m *model) {
			m.keys["attention.head_count"], m.keys["attention.key_length"] = uint32(65537), uint32(65537)
		}, "65537 heads of 65537 features, want at most 16777216"},
		{"no epsilon", func(m *model) { m.keys["attention.layer_norm_rms_epsilon"] = nil }, "llama.attention.layer_norm_rms_epsilon"},
		{"negative epsilon", func(m *model) { m.keys["attention.layer_norm_rms_epsilon"] = float32(-1) }, "layer_norm_rms_epsilon is -1, want 0 or more"},
		{"endless epsilon", func(m *model) { m.keys["attention.layer_norm_rms_epsilon"] = inf }, "layer_norm_rms_epsilon is +Inf, want a finite number"},
		{"odd rotation", func(m *model) { m.keys["rope.dimension_count"] = uint32(7) }, "rope.dimension_count is 7, want an even number up to the 8 of a head"},
		{"wide rotation", func(m *model) { m.keys["rope.dimension_count"] = uint32(10) }, "rope.dimension_count is 10, want an even number up to the 8 of a head"},
		{"base", func(m *model) { m.keys["rope.freq_base"] = float32(0) }, "llama.rope.freq_base is 0, want above 0"},
		{"negative factor", func(m *model) { m.keys["rope.scaling.factor"] = float32(-2) }, "llama.rope.scaling.factor is -2, want above 0"},
		{"vanishing factor", func(m *model) { m.keys["rope.scaling.factor"] = float32(1e-45) }, "llama.rope.scaling.factor is 1e-45, want above 0"},
		{"scaling type", func(m *model) { m.keys["rope.scaling.type"] = uint32(1) }, `"llama.rope.scaling.type"`},
		{"negative window", func(m *model) { m.keys["attention.sliding_window"] = int32(-1) }, "llama.attention.sliding_window is -1, want 0 or more"},
		{"experts", func(m *model) { m.keys["expert_count"] = uint32(8) }, "llama.expert_count is 8: mixtures of experts are not supported"},
		{"no embedding", func(m *model) { m.tensors["token_embd.weight"] = nil }, `tensor "token_embd.weight" of shape [32 1] is missing`},
		{"no vocabulary", func(m *model) { m.tensors["token_embd.weight"] = []uint64{32, 0} }, `tensor "token_embd.weight" has 0 rows`},
		{"bias of another size", func(m *model) { m.tensors["blk.1.attn_q.bias"] = []uint64{31} }, `tensor "blk.1.attn_q.bias" has shape [31], want [32]`},
		{"factors of another size", func(m *model) { m.tensors["rope_freqs.weight"] = []uint64{8} }, `tensor "rope_freqs.weight" has shape [8], want [4]`},
		{"three dimensions", func(m *model) { m.tensors["blk.0.ffn_up.weight"] = []uint64{32, 48, 2} }, `tensor "blk.0.ffn_up.weight" has shape [32 48 2], want [32 48]`},
		{"heads differ", func(m *model) { m.keys["attention.head_count"] = []uint32{4, 2} }, "llama.attention.head_count is 4 in layer 0 and 2 in layer 1, which is not supported"},
		{"too few per layer", func(m *model) { m.keys["feed_forward_length"] = []uint32{48} }, "llama.feed_forward_length has 1 values for 2 layers"},
		{"zero per layer", func(m *model) { m.keys["feed_forward_length"] = []uint32{0, 0} }, "llama.feed_forward_length is 0, want 1 to 16777216"},
		{"texts per layer", func(m *model) { m.keys["feed_forward_length"] = []string{"48", "48"} }, `"llama.feed_forward_length"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := tiny("llama")
			tt.spoil(m)
			_, err := m.open(t)
			if !errors.Is(err, arch.ErrInvalid) {
				t.Fatalf("error is %v, want ErrInvalid", err)
			}
			wantFaults(t, err, tt.want)
		})
	}
}

func TestQwen2NeedsBiases(t *testing.T) {
	for _, name := range []string{"attn_q.bias", "attn_k.bias", "attn_v.bias"} {
		m := tiny("qwen2")
		m.tensors["blk.1."+name] = nil
		_, err := m.open(t)
		wantFaults(t, err, "layer 1 lacks a bias of attn_q, attn_k or attn_v")
	}
}

func TestHyperparameters(t *testing.T) {
	want := arch.Hyperparameters{
		Layers: 2, Embedding: 32, FFN: 48, Heads: 4, KVHeads: 2, HeadDim: 8, Vocab: 40, ContextLength: 64, NormEps: 1e-6,
		RoPE: graph.RoPE{Style: graph.RoPEInterleaved, Base: 10000, Scale: 1, Dim: 8, HeadDim: 8},
	}
	llama := tiny("llama")
	check := func(name string) {
		t.Helper()
		if d := cmp.Diff(want, llama.mustOpen(t).Hyperparameters()); d != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, d)
		}
	}
	check("sound model")
	if got := want.KVWidth(); got != 16 {
		t.Errorf("KVWidth is %d, want 2 heads of 8", got)
	}

	llama.keys["feed_forward_length"] = []uint32{48, 48}
	llama.keys["attention.head_count"] = []uint64{4, 4}
	llama.keys["attention.head_count_kv"] = []int32{2, 2}
	check("values per layer")

	llama.keys["expert_count"] = uint32(0) // as converters write it for dense models
	llama.keys["attention.sliding_window"] = uint32(0)
	check("no experts, no window")

	llama.keys["attention.sliding_window"] = uint32(16)
	want.Window = 16
	check("sliding window")

	llama.keys["rope.dimension_count"] = uint32(4)
	llama.keys["rope.freq_base"] = float32(500000)
	llama.tensors["rope_freqs.weight"] = []uint64{2}
	want.RoPE.Dim, want.RoPE.Base, want.RoPE.Factors = 4, 500000, "rope_freqs.weight"
	check("rotation of half a head with factors")
}

func TestHeadsDefault(t *testing.T) {
	m := tiny("llama")
	m.keys["attention.head_count_kv"] = nil
	for layer := range 2 {
		at := arch.Layer(layer)
		m.tensors[at("attn_k.weight")], m.tensors[at("attn_v.weight")] = []uint64{32, 32}, []uint64{32, 32}
	}
	if h := m.mustOpen(t).Hyperparameters(); h.KVHeads != 4 {
		t.Errorf("%d key heads, want as many as query heads", h.KVHeads)
	}
}

func TestRoPEStyles(t *testing.T) {
	want := map[string]graph.RoPEStyle{"llama": graph.RoPEInterleaved, "qwen2": graph.RoPEHalves, "qwen3": graph.RoPEHalves}
	for _, family := range families {
		if got := tiny(family).mustOpen(t).Hyperparameters().RoPE.Style; got != want[family] {
			t.Errorf("%s rotates %v, want %v", family, got, want[family])
		}
	}
}

func TestRoPEScaling(t *testing.T) {
	plain := graph.RoPE{Style: graph.RoPEInterleaved, Base: 10000, Scale: 1, Dim: 8, HeadDim: 8}
	linear := plain
	linear.Scale = 0.25
	yarn := linear
	yarn.ExtFactor, yarn.AttnFactor, yarn.BetaFast, yarn.BetaSlow, yarn.OrigContext = 1, 1, 32, 1, 64
	tuned := linear
	tuned.ExtFactor, tuned.AttnFactor, tuned.BetaFast, tuned.BetaSlow, tuned.OrigContext = 0.5, 1.25, 16, 2, 16
	tests := []struct {
		name string
		keys map[string]any
		want graph.RoPE
	}{
		{"none", nil, plain},
		{"none by name", map[string]any{"type": "none", "factor": float32(4)}, plain},
		{"factor alone", map[string]any{"factor": float32(4)}, linear},
		{"factor of old files", map[string]any{"": float32(4)}, linear},
		{"linear", map[string]any{"type": "linear", "factor": float32(4)}, linear},
		{"factor 0", map[string]any{"type": "linear", "factor": float32(0)}, plain},
		{"yarn", map[string]any{"type": "yarn", "factor": float32(4)}, yarn},
		{"yarn in full", map[string]any{
			"type": "yarn", "factor": float32(4), "original_context_length": uint32(16), "attn_factor": float32(1.25),
			"yarn_ext_factor": float32(0.5), "yarn_beta_fast": float32(16), "yarn_beta_slow": float32(2),
		}, tuned},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := tiny("llama")
			for key, v := range tt.keys {
				if key == "" {
					m.keys["rope.scale_linear"] = v
				} else {
					m.keys["rope.scaling."+key] = v
				}
			}
			if d := cmp.Diff(tt.want, m.mustOpen(t).Hyperparameters().RoPE); d != "" {
				t.Errorf("differs (-want +got):\n%s", d)
			}
		})
	}
}

// Whatever sizes a file claims, it is refused or its graphs can be built.
func FuzzSizes(f *testing.F) {
	f.Add(uint8(0), uint32(2), uint32(32), uint32(48), uint32(4), uint32(2), uint32(0), uint32(0), float32(1e-6), float32(0), "linear")
	f.Add(uint8(2), uint32(2), uint32(32), uint32(48), uint32(4), uint32(2), uint32(16), uint32(16), float32(1e-6), float32(4), "yarn")
	f.Add(uint8(1), uint32(1<<31), uint32(1<<24), uint32(1<<24), uint32(1<<24), uint32(1<<24), uint32(1<<24), uint32(1), float32(-1), float32(-1), "none")
	f.Add(uint8(0), uint32(1), uint32(0), uint32(1), uint32(65537), uint32(1), uint32(65537), uint32(7), float32(0), float32(1e-45), "spiral")
	f.Fuzz(func(t *testing.T, family uint8, layers, embedding, ffn, heads, kvHeads, keyLength, rotated uint32, eps, factor float32, scaling string) {
		m := tiny(families[int(family)%len(families)])
		m.keys["block_count"] = layers
		m.keys["embedding_length"] = embedding
		m.keys["feed_forward_length"] = ffn
		m.keys["attention.head_count"] = heads
		m.keys["attention.head_count_kv"] = kvHeads
		m.keys["attention.layer_norm_rms_epsilon"] = eps
		m.keys["rope.scaling.factor"] = factor
		m.keys["rope.scaling.type"] = scaling
		if keyLength != 0 {
			m.keys["attention.key_length"], m.keys["attention.value_length"] = keyLength, keyLength
		}
		if rotated != 0 {
			m.keys["rope.dimension_count"] = rotated
		}
		d, err := m.open(t)
		if err != nil {
			if !errors.Is(err, arch.ErrInvalid) {
				t.Fatalf("error is %v, want ErrInvalid", err)
			}
			return
		}
		mustBuild(t, d, prefill())
		mustBuild(t, d, decode())
	})
}
