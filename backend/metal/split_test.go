//go:build cgo && (darwin || metalemu)

package metal

import (
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// partial is a Metal device that leaves some operations to the CPU.
type partial struct {
	name  string
	takes func(op graph.Op, t graph.DType) bool
}

// layer reports whether an operation belongs to the regions of a layer that passes.
func layer(op graph.Op, pass func(int) bool) bool {
	n, ok := graph.LayerOf(op)
	return !ok || pass(n)
}

// partials split the graph in many ways: each kind of operation on one device and all others on the other.
var partials = []partial{
	{"metal-products", func(op graph.Op, _ graph.DType) bool { return op.Kind() == graph.KindMatMul }},
	{"metal-no-products", func(op graph.Op, _ graph.DType) bool {
		return op.Kind() != graph.KindMatMul && op.Kind() != graph.KindFusedFFN
	}},
	{"metal-norms", func(op graph.Op, _ graph.DType) bool {
		return op.Kind() == graph.KindRMSNorm || op.Kind() == graph.KindQKNorm
	}},
	{"metal-elements", func(op graph.Op, _ graph.DType) bool {
		k := op.Kind()
		return k == graph.KindAdd || k == graph.KindMul || k == graph.KindSilu || k == graph.KindSwiGLU
	}},
	{"metal-no-elements", func(op graph.Op, _ graph.DType) bool {
		k := op.Kind()
		return k != graph.KindAdd && k != graph.KindMul && k != graph.KindSilu && k != graph.KindSwiGLU
	}},
	{"metal-rope", func(op graph.Op, _ graph.DType) bool { return op.Kind() == graph.KindRoPE }},
	{"metal-attention", func(op graph.Op, _ graph.DType) bool { _, ok := graph.LayerOf(op); return ok }},
	{"metal-no-attention", func(op graph.Op, _ graph.DType) bool { _, ok := graph.LayerOf(op); return !ok }},
	{"metal-even-layers", func(op graph.Op, _ graph.DType) bool { return layer(op, func(n int) bool { return n%2 == 0 }) }},
	{"metal-rows", func(op graph.Op, _ graph.DType) bool {
		return op.Kind() == graph.KindEmbed || op.Kind() == graph.KindGetRows
	}},
}

// filtered is an open partial device.
type filtered struct {
	backend.Backend
	capabilities *backend.Capabilities
}

func (f filtered) Capabilities() *backend.Capabilities { return f.capabilities }

func init() {
	for i, p := range partials {
		c := capabilities
		c.Supports = func(op graph.Op, t graph.DType) bool {
			return bounds.Supports(op, t) && (!graph.Computed(op) && op.Kind() != graph.KindKVLoad || p.takes(op, t))
		}
		backend.Register(backend.Entry{
			Name: p.name, ID: backend.ID(5000 + i), Priority: 1, Available: available, Capabilities: &c,
			Open: func(config backend.Config) (backend.Backend, error) {
				b, err := open(config)
				return filtered{b, &c}, err
			},
		})
	}
}

// TestMixedSplits has every mix of the device and the CPU give the CPU's logits. The weights are floats, so that nothing is rounded
// to a few bits on the way and only real differences are large.
func TestMixedSplits(t *testing.T) {
	tokens := goldenTokens(t)[:9]
	for _, model := range []string{"tiny-qwen3-f16", "tiny-qwen2-f16", "tiny-llama-f16"} {
		want := evalAll(t, openGolden(t, model, minfer.WithBackends("cpu")), tokens, minfer.WithBatch(4))
		for _, p := range partials {
			t.Run(model+"/"+p.name, func(t *testing.T) {
				m := openGolden(t, model, minfer.WithBackends(p.name, "cpu"))
				placement, err := m.Placement()
				if err != nil {
					t.Fatal(err)
				}
				if len(placement[0].Prefill) == 0 || len(placement[1].Prefill) == 0 {
					t.Errorf("the graph is on one device:\n%v", placement)
				}
				got := evalAll(t, m, tokens, minfer.WithBatch(4))
				if d := distance(got, want); !(d < 1e-4) {
					t.Errorf("distance from the CPU's logits is %.2g", d)
				}
			})
		}
	}
}
