package sched_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
	"golang.org/x/exp/maps"
)

// fused is a graph with the fused store that decoder has not.
const fused = `graph {Tokens=1 Outputs=1 Cells=16}
%0 = Input() "q" F32 [8]
%1 = Input() "k" F32 [8]
%2 = Input() "v" F32 [8]
%3 = Input() "positions" I32 [1]
%4 = Input() "cells" I32 [1]
%5 = QKVBiasRopeStore(%0 %1 %2 %3 %4) {Layer=1 RoPE={Base=10000 Scale=1 Dim=4 Heads=2 HeadDim=4} KVHeads=2} "store" F32 [8]
%6 = KVLoad(%5) {Layer=1} "kv" F32 [8 16]
%7 = Attention(%5 %6 %3) {Layer=1 Heads=2 KVHeads=2 HeadDim=4 Scale=1} "attn" F32 [8]
output %7
`

// scattered is a graph whose attention reads explicit spans.
const scattered = `graph {Tokens=1 Outputs=1 Cells=16 ExplicitSpan=true}
%0 = Input() "q" F32 [8]
%1 = Input() "positions" I32 [1]
%2 = Input() "cells" I32 [1]
%3 = Input() "spans" I32 [16]
%4 = KVStore(%0 %0 %2) "store" F32 [8]
%5 = KVLoad(%4) "kv" F32 [8 16]
%6 = Attention(%0 %5 %1 %3) {Heads=2 KVHeads=2 HeadDim=4 Scale=1 ExplicitSpan=true} "attn" F32 [8]
output %6
`

// TestPlaceLayersHoldsForAllGraphs checks that a device with only the operations of one
// graph does not get the regions that another shares.
func TestPlaceLayersHoldsForAllGraphs(t *testing.T) {
	noSpans := null.Everything()
	noSpans.ExplicitSpan = false
	plain := decoder(t, graph.Params{Tokens: 2, Outputs: 1, Cells: 16})
	spans := parse(t, scattered)
	for _, tt := range []struct {
		name   string
		first  *backend.Capabilities
		graphs []*graph.Graph
		want   sched.Layers
	}{
		{"all can be first", null.Everything(), []*graph.Graph{plain, spans, parse(t, fused)}, sched.Layers{0: "gpu", 1: "gpu"}},
		{"one alone", noSpans, []*graph.Graph{plain}, sched.Layers{0: "gpu", 1: "gpu"}},
		{"spans in the other", noSpans, []*graph.Graph{plain, spans}, sched.Layers{0: "cpu", 1: "gpu"}},
		{"a fused store in the other", except(graph.KindQKVBiasRopeStore), []*graph.Graph{plain, parse(t, fused)}, sched.Layers{0: "gpu", 1: "cpu"}},
		{"a plain store in the other", except(graph.KindKVStore), []*graph.Graph{parse(t, fused), plain}, sched.Layers{0: "cpu", 1: "cpu"}},
		{"placed already", null.Everything(), []*graph.Graph{plain, parse(t, strings.Replace(fused, `"attn" F32 [8]`, `"attn" F32 [8] @cpu`, 1))}, sched.Layers{0: "gpu", 1: "cpu"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			devices := []sched.Device{{"gpu", tt.first}, {"cpu", null.Everything()}}
			layers, err := sched.PlaceLayers(devices, tt.graphs...)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(layers, tt.want) {
				t.Fatalf("layers are on %v, want %v", layers, tt.want)
			}
			for _, g := range tt.graphs {
				g = g.Clone()
				layers.Pin(g)
				if err := sched.Assign(g, devices); err != nil {
					t.Fatal(err)
				}
				for i := range g.Nodes {
					n := &g.Nodes[i]
					if layer, ok := graph.LayerOf(n.Op); ok && n.Device != layers[layer] {
						t.Errorf("node %q of layer %d is on %q", n.Name, layer, n.Device)
					}
				}
			}
		})
	}
}

func TestPlaceLayersRefuses(t *testing.T) {
	plain := decoder(t, graph.Params{Tokens: 2, Outputs: 1, Cells: 16})
	_, err := sched.PlaceLayers([]sched.Device{{"gpu", except(graph.KindKVStore)}, {"cpu", except(graph.KindQKVBiasRopeStore)}}, plain, parse(t, fused))
	var ae *sched.AssignError
	if !errors.As(err, &ae) || !errors.Is(err, backend.ErrUnsupported) {
		t.Fatalf("the error is %v, want an AssignError", err)
	}
	for _, s := range []string{"gpu", "KVStore", "cpu"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error does not mention %s: %v", s, err)
		}
	}
	elsewhere := parse(t, strings.Replace(fused, `"attn" F32 [8]`, `"attn" F32 [8] @tpu`, 1))
	if _, err := sched.PlaceLayers([]sched.Device{{"cpu", null.Everything()}}, elsewhere); !errors.As(err, &ae) {
		t.Errorf("a node on no device of the list: %v", err)
	}
	if _, err := sched.PlaceLayers(nil, plain); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("no devices: %v", err)
	}
}
