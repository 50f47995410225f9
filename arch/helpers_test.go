package arch_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/minfer/minfer/arch"
	_ "github.com/minfer/minfer/arch/llama"
	_ "github.com/minfer/minfer/arch/qwen2"
	_ "github.com/minfer/minfer/arch/qwen3"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/maps"
	"golang.org/x/exp/slices"
)

// families are the architectures that come with the module.
var families = []string{"llama", "qwen2", "qwen3"}

// model is a model file in the making. Tests spoil one thing of a sound one.
type model struct {
	architecture string
	keys         map[string]any      // without the architecture's name; nil values are left out
	tensors      map[string][]uint64 // dimensions; nil ones are left out
}

// tiny is a sound model of two layers. Qwen3's heads are wider than their share of the
// embedding, as in the smallest real one.
func tiny(architecture string) *model {
	m := &model{
		architecture: architecture,
		keys: map[string]any{
			"block_count":                      uint32(2),
			"context_length":                   uint32(64),
			"embedding_length":                 uint32(32),
			"feed_forward_length":              uint32(48),
			"attention.head_count":             uint32(4),
			"attention.head_count_kv":          uint32(2),
			"attention.layer_norm_rms_epsilon": float32(1e-6),
		},
		tensors: map[string][]uint64{
			"token_embd.weight":  {32, 40},
			"output_norm.weight": {32},
			"output.weight":      {32, 40},
		},
	}
	headDim := uint64(8)
	if architecture == "qwen3" {
		headDim = 16
		m.keys["attention.key_length"] = uint32(headDim)
		m.keys["attention.value_length"] = uint32(headDim)
	}
	for layer := range 2 {
		m.addLayer(layer, headDim)
	}
	return m
}

func (m *model) addLayer(layer int, headDim uint64) {
	wide, narrow := 4*headDim, 2*headDim
	add := func(name string, dims ...uint64) { m.tensors[arch.Layer(layer)(name)] = dims }
	add("attn_norm.weight", 32)
	add("attn_q.weight", 32, wide)
	add("attn_k.weight", 32, narrow)
	add("attn_v.weight", 32, narrow)
	add("attn_output.weight", wide, 32)
	add("ffn_norm.weight", 32)
	add("ffn_gate.weight", 32, 48)
	add("ffn_up.weight", 32, 48)
	add("ffn_down.weight", 48, 32)
	switch m.architecture {
	case "qwen2":
		add("attn_q.bias", wide)
		add("attn_k.bias", narrow)
		add("attn_v.bias", narrow)
	case "qwen3":
		add("attn_q_norm.weight", headDim)
		add("attn_k_norm.weight", headDim)
	}
}

// file writes the model and opens it. Weights are zero, matrices F16 and vectors F32.
func (m *model) file() (*gguf.File, error) {
	w := gguf.NewWriter()
	if m.architecture != "" {
		w.SetString("general.architecture", m.architecture)
	}
	for _, key := range sorted(m.keys) {
		if v := m.keys[key]; v != nil {
			w.Set(m.architecture+"."+key, v)
		}
	}
	for _, name := range sorted(m.tensors) {
		dims := m.tensors[name]
		if dims == nil {
			continue
		}
		t, size := gguf.TypeF16, 2
		if len(dims) == 1 {
			t, size = gguf.TypeF32, 4
		}
		for _, d := range dims {
			size *= int(d)
		}
		if err := w.AddTensor(name, t, dims, make([]byte, size)); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		return nil, err
	}
	return gguf.NewBytes(out.Bytes())
}

func sorted[V any](m map[string]V) []string {
	keys := maps.Keys(m)
	slices.Sort(keys)
	return keys
}

func (m *model) open(t testing.TB) (arch.Definition, error) {
	t.Helper()
	f, err := m.file()
	if err != nil {
		t.Fatal(err)
	}
	return arch.Open(f)
}

func (m *model) mustOpen(t testing.TB) arch.Definition {
	t.Helper()
	d, err := m.open(t)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// mustBuild returns the verified graph of a definition.
func mustBuild(t testing.TB, d arch.Definition, p graph.Params) *graph.Graph {
	t.Helper()
	b := graph.NewBuilder(p)
	if err := d.Build(b, p); err != nil {
		t.Fatal(err)
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	return g
}

// prefill and decode are the parameters of a prompt of five tokens, of whose logits the
// last are wanted, and of a step.
func prefill() graph.Params {
	return graph.Params{Tokens: 5, Outputs: 1, Phase: graph.Prefill, Cells: 64, KVType: graph.F16, Devices: "cpu"}
}

func decode() graph.Params {
	return graph.Params{Tokens: 1, Outputs: 1, Phase: graph.Decode, Cells: 64, KVType: graph.F16, Devices: "cpu"}
}

// wantFaults demands an *InvalidError with a fault that contains each of the texts.
func wantFaults(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error lacks %q: %v", text, err)
		}
	}
}

// describe names a node and its shape, for messages.
func describe(n *graph.Node) string { return fmt.Sprintf("%s %v", n.Name, n.Shape) }
