package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/examples/customdevice/relay"
	"github.com/minfer/minfer/graph"
)

// A mix is a relay that takes some operations, beside the CPU, which takes the others.
type mix struct {
	name   string
	takes  func(op graph.Op, t graph.DType) bool
	noSpan bool
	noPack bool
	kind   *relay.Kind
	nodes  atomic.Int64 // run since the last time somebody looked
}

// mixes are all splits that the tests run.
var mixes = func() []*mix {
	ofKinds := func(kinds ...graph.Kind) func(graph.Op, graph.DType) bool {
		return func(op graph.Op, _ graph.DType) bool {
			for _, k := range kinds {
				if op.Kind() == k {
					return true
				}
			}
			return false
		}
	}
	not := func(f func(graph.Op, graph.DType) bool) func(graph.Op, graph.DType) bool {
		return func(op graph.Op, t graph.DType) bool { return !f(op, t) }
	}
	list := []*mix{{name: "all"}, {name: "none", takes: ofKinds()}}
	for _, op := range graph.Kinds() {
		if k := op.Kind(); graph.Computed(op) {
			list = append(list,
				&mix{name: "only-" + k.String(), takes: ofKinds(k)},
				&mix{name: "all-but-" + k.String(), takes: not(ofKinds(k))})
		}
	}
	attention := ofKinds(graph.KindKVStore, graph.KindAttention, graph.KindFusedQKV, graph.KindFusedQKVNorm, graph.KindQKVBiasRopeStore)
	unfused := ofKinds(graph.KindKVStore, graph.KindAttention)
	layer := func(remainder int) func(graph.Op, graph.DType) bool {
		return func(op graph.Op, _ graph.DType) bool {
			n, ok := layerOf(op)
			return ok && n%2 == remainder
		}
	}
	list = append(list,
		&mix{name: "layers", takes: attention},
		&mix{name: "all-but-layers", takes: not(attention)},
		&mix{name: "unfused-layers", takes: unfused},
		&mix{name: "all-but-unfused-layers", takes: not(unfused)},
		&mix{name: "even-layers", takes: layer(0)},
		&mix{name: "odd-layers", takes: layer(1)},
		&mix{name: "layers-without-spans", takes: attention, noSpan: true},
		&mix{name: "all-without-spans", noSpan: true},
		&mix{name: "all-without-f16", noPack: true},
		&mix{name: "weights", takes: func(op graph.Op, _ graph.DType) bool { return len(graph.Weights(op)) > 0 }},
		&mix{name: "no-weights", takes: func(op graph.Op, _ graph.DType) bool { return len(graph.Weights(op)) == 0 }},
	)
	for seed := range 12 {
		list = append(list, &mix{name: fmt.Sprintf("half-%d", seed), takes: func(op graph.Op, _ graph.DType) bool {
			h := fnv.New32a()
			fmt.Fprint(h, seed, graph.OpString(op))
			return h.Sum32()&0x100 != 0
		}})
	}
	for i, m := range list {
		m.name = strings.ToLower(m.name)
		m.kind = relay.Register(relay.Options{
			Name: "relay-" + m.name, ID: backend.ID(3000 + i), Takes: m.takes,
			NoExplicitSpan: m.noSpan, NoPackedKV: m.noPack,
			Before: func(*graph.Node) error { m.nodes.Add(1); return nil },
		})
	}
	return list
}()

// layerOf finds the layer that an operation belongs to, by its payload or the names of
// its weights.
func layerOf(op graph.Op) (int, bool) {
	if n, ok := graph.LayerOf(op); ok {
		return n, true
	}
	for _, w := range graph.Weights(op) {
		var n int
		if _, err := fmt.Sscanf(w.Name, "blk.%d.", &n); err == nil {
			return n, true
		}
	}
	return 0, false
}

// Relays of the tests that need one of their own. What the hooked ones do before each
// node is set by the test; their queues are short, so that the host cannot get far ahead.
var (
	hooked hook
	_      = relay.Register(relay.Options{Name: "relay-hooked", ID: 2001, Before: hooked.call, Queue: 4})
	_      = relay.Register(relay.Options{Name: "relay-hooked-products", ID: 2005, Before: hooked.call, Queue: 4, Takes: onlyProducts})
	_      = relay.Register(relay.Options{Name: "relay-absent", ID: 2002, Available: func() error { return errAbsent }})
	_      = relay.Register(relay.Options{Name: "relay-products", ID: 2003, Takes: onlyProducts})
	_      = relay.Register(relay.Options{Name: "relay-rest", ID: 2004, Takes: allButProducts})
)

// Errors that the tests make.
var (
	errAbsent = errors.New("nobody answers at the other end")
	errWanted = errors.New("the test wants this node to fail")
)

func onlyProducts(op graph.Op, _ graph.DType) bool { return op.Kind() == graph.KindMatMul }

func allButProducts(op graph.Op, t graph.DType) bool { return !onlyProducts(op, t) }

// hook is a function that can be exchanged while devices run.
type hook struct {
	f atomic.Pointer[func(*graph.Node) error]
}

func (h *hook) call(n *graph.Node) error {
	if f := h.f.Load(); f != nil {
		return (*f)(n)
	}
	return nil
}

// set makes f the function until the test ends.
func (h *hook) set(t *testing.T, f func(*graph.Node) error) {
	h.f.Store(&f)
	t.Cleanup(h.clear)
}

func (h *hook) clear() { h.f.Store(nil) }
