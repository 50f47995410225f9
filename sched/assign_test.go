package sched_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/graphtest"
	"github.com/minfer/minfer/sched"
)

func decoder(t *testing.T, p graph.Params) *graph.Graph {
	t.Helper()
	g, err := graphtest.Decoder(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func deviceOf(g *graph.Graph, name string) string { return g.Lookup(name).Device }

func except(kinds ...graph.Kind) *backend.Capabilities {
	c := null.Everything()
	c.Supports = func(op graph.Op, _ graph.DType) bool {
		for _, k := range kinds {
			if op.Kind() == k {
				return false
			}
		}
		return true
	}
	return c
}

func TestAssignPrefersTheFirstDevice(t *testing.T) {
	g := decoder(t, graph.Params{Tokens: 2, Outputs: 1, Cells: 16})
	if err := sched.Assign(g, []sched.Device{{"gpu", null.Everything()}, {"cpu", null.Everything()}}); err != nil {
		t.Fatal(err)
	}
	for i := range g.Nodes {
		if g.Nodes[i].Device != "gpu" {
			t.Errorf("node %q is on %q", g.Nodes[i].Name, g.Nodes[i].Device)
		}
	}
	if n := len(sched.Splits(g)); n != 1 {
		t.Errorf("%d splits, want 1", n)
	}
}

func TestInputsGoWithTheirFirstReader(t *testing.T) {
	g := decoder(t, graph.Params{Tokens: 2, Outputs: 1, Cells: 16})
	if err := sched.Assign(g, []sched.Device{{"gpu", except(graph.KindEmbed)}, {"cpu", null.Everything()}}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"token_ids": "cpu", "positions": "gpu", "cells": "gpu", "tail_ids": "gpu", "embed": "cpu", "logits": "gpu"}
	for name, device := range want {
		if got := deviceOf(g, name); got != device {
			t.Errorf("%q is on %q, want %q", name, got, device)
		}
	}
	if n := len(sched.Splits(g)); n != 2 {
		t.Errorf("%d splits, want 2", n)
	}
	viewed := parse(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [4 2]
%1 = Input() "unused" F32 [4]
%2 = Reshape(%0) {Shape=[8 1 1 1]} "r" F32 [8]
%3 = Silu(%2) "s" F32 [8]
output %3
`)
	if err := sched.Assign(viewed, []sched.Device{{"gpu", except(graph.KindSilu)}, {"cpu", null.Everything()}}); err != nil {
		t.Fatal(err)
	}
	for name, device := range map[string]string{"x": "cpu", "r": "cpu", "s": "cpu", "unused": "gpu"} {
		if got := deviceOf(viewed, name); got != device {
			t.Errorf("%q is on %q, want %q", name, got, device)
		}
	}
}

func TestALayerStaysTogether(t *testing.T) {
	layer := []string{"blk.0.store", "blk.0.kv", "blk.0.attn", "blk.1.store", "blk.1.kv", "blk.1.attn"}
	spans := func(on bool) *backend.Capabilities {
		c := null.Everything()
		c.ExplicitSpan = on
		return c
	}
	packed := null.Everything()
	packed.PackedKV = false
	tests := []struct {
		name   string
		gpu    *backend.Capabilities
		params graph.Params
		want   string
	}{
		{"can do all", null.Everything(), graph.Params{}, "gpu"},
		{"no store", except(graph.KindKVStore), graph.Params{}, "cpu"},
		{"no attention", except(graph.KindAttention), graph.Params{}, "cpu"},
		{"no packed regions", packed, graph.Params{KVType: graph.F16}, "cpu"},
		{"no packed regions, none wanted", packed, graph.Params{}, "gpu"},
		{"no spans, none wanted", spans(false), graph.Params{}, "gpu"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.params
			p.Tokens, p.Outputs, p.Cells = 1, 1, 16
			g := decoder(t, p)
			if err := sched.Assign(g, []sched.Device{{"gpu", tt.gpu}, {"cpu", null.Everything()}}); err != nil {
				t.Fatal(err)
			}
			for _, name := range layer {
				if got := deviceOf(g, name); got != tt.want {
					t.Errorf("%q is on %q, want %q", name, got, tt.want)
				}
			}
			if got := deviceOf(g, "blk.0.q"); got != "gpu" {
				t.Errorf("projection is on %q", got)
			}
		})
	}
}

const spanned = `graph {Tokens=1 Outputs=1 Cells=16 ExplicitSpan=true}
%0 = Input() "x" F32 [8]
%1 = Input() "positions" I32 [1]
%2 = Input() "spans" I32 [16]
%3 = KVStore(%0 %0 %1) "store" F32 [8]
%4 = KVLoad(%3) "kv" F32 [8 16]
%5 = Attention(%0 %4 %1 %2) {Heads=2 KVHeads=2 HeadDim=4 Scale=1 ExplicitSpan=true} "attn" F32 [8]
output %5
`

func TestExplicitSpans(t *testing.T) {
	g := parse(t, spanned)
	gpu := null.Everything()
	gpu.ExplicitSpan = false
	if err := sched.Assign(g, []sched.Device{{"gpu", gpu}, {"cpu", null.Everything()}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"store", "kv", "attn"} {
		if got := deviceOf(g, name); got != "cpu" {
			t.Errorf("%q is on %q", name, got)
		}
	}
}

func TestFusedStoresStayWithTheirLayer(t *testing.T) {
	const text = `graph {Tokens=1 Outputs=1 Cells=16}
%0 = Input() "x" F32 [8]
%1 = Input() "positions" I32 [1]
%2 = FusedQKV(%0 %1 %1) {Q={Weight="q" Type="F32" In=8 Out=8} K={Weight="k" Type="F32" In=8 Out=8} V={Weight="v" Type="F32" In=8 Out=8} RoPE={Base=10000 Scale=1 Dim=4 Heads=2 HeadDim=4} KVHeads=2} "qkv" F32 [8]
%3 = KVLoad(%2) "kv" F32 [8 16]
%4 = Attention(%2 %3 %1) {Heads=2 KVHeads=2 HeadDim=4 Scale=1} "attn" F32 [8]
output %4
`
	g := parse(t, text)
	if err := sched.Assign(g, []sched.Device{{"gpu", except(graph.KindAttention)}, {"cpu", null.Everything()}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"qkv", "kv", "attn"} {
		if got := deviceOf(g, name); got != "cpu" {
			t.Errorf("%q is on %q", name, got)
		}
	}
}

func TestPlacementsAreKept(t *testing.T) {
	g := decoder(t, graph.Params{Tokens: 1, Outputs: 1, Cells: 16})
	g.Lookup("blk.1.attn").Device = "cpu"
	g.Lookup("blk.0.up").Device = "cpu"
	if err := sched.Assign(g, []sched.Device{{"gpu", null.Everything()}, {"cpu", null.Everything()}}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"blk.0.attn": "gpu", "blk.1.attn": "cpu", "blk.1.store": "cpu", "blk.1.kv": "cpu", "blk.0.up": "cpu", "blk.0.gate": "gpu"}
	for name, device := range want {
		if got := deviceOf(g, name); got != device {
			t.Errorf("%q is on %q, want %q", name, got, device)
		}
	}
	// Assigning again changes nothing, whatever the order now.
	before := g.String()
	if err := sched.Assign(g, []sched.Device{{"cpu", null.Everything()}, {"gpu", null.Everything()}}); err != nil {
		t.Fatal(err)
	}
	if g.String() != before {
		t.Error("a second assignment moved nodes")
	}
}

func TestAssignErrors(t *testing.T) {
	noSpans := null.Everything()
	noSpans.ExplicitSpan = false
	simple := `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16]
%1 = MatMul(%0) {Weight="w" Type="IQ1_S" In=16 Out=4} "y" F32 [4] @cpu
%2 = Reshape(%1) {Shape=[2 2 1 1]} "r" F32 [2 2] @gpu
output %2
`
	tests := []struct {
		name, text string
		devices    []sched.Device
		want       string
	}{
		{"nobody can", strings.ReplaceAll(strings.ReplaceAll(simple, " @cpu", ""), " @gpu", ""),
			[]sched.Device{{"gpu", except(graph.KindMatMul)}, {"cpu", null.Only(graph.KindAdd)}},
			`sched: node "y" (MatMul{Weight="w" Type="IQ1_S" In=16 Out=4}, yields F32) runs on none of the devices: gpu does not have it; cpu does not have it`},
		{"placed where it cannot run", simple,
			[]sched.Device{{"gpu", null.Everything()}, {"cpu", null.Only(graph.KindAdd)}},
			`sched: node "y" (MatMul{Weight="w" Type="IQ1_S" In=16 Out=4}, yields F32) cannot stay where it is placed: cpu does not have it`},
		{"placed nowhere", simple,
			[]sched.Device{{"gpu", null.Everything()}, {"tpu", null.Everything()}},
			`sched: node "y" (MatMul{Weight="w" Type="IQ1_S" In=16 Out=4}, yields F32) is placed on "cpu", which is not one of the devices gpu, tpu`},
		{"view elsewhere", simple,
			[]sched.Device{{"gpu", null.Everything()}, {"cpu", null.Everything()}},
			`sched: node "r" (Reshape{Shape=[2 2 1 1]}, yields F32) is placed on "gpu", but is a view of node "y" on "cpu"`},
		{"layer apart", strings.NewReplacer(`"store" F32 [8]`, `"store" F32 [8] @gpu`, `"attn" F32 [8]`, `"attn" F32 [8] @cpu`).Replace(spanned),
			[]sched.Device{{"gpu", null.Everything()}, {"cpu", null.Everything()}},
			`sched: node "attn" (Attention{Heads=2 KVHeads=2 HeadDim=4 Scale=1 ExplicitSpan=true}, yields F32) is placed on "cpu" and node "store" of the same layer 0 on "gpu", but a layer's regions lie on one device`},
		{"nobody can do the layer", spanned,
			[]sched.Device{{"gpu", noSpans}, {"cpu", except(graph.KindKVStore)}},
			`sched: node "attn" (Attention{Heads=2 KVHeads=2 HeadDim=4 Scale=1 ExplicitSpan=true}, yields F32) and the other nodes of layer 0 that touch its regions run together on none of the devices: ` +
				`gpu (asked for "attn", Attention{Heads=2 KVHeads=2 HeadDim=4 Scale=1 ExplicitSpan=true}) has no attention over explicit spans; cpu (asked for "store", KVStore) does not have it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := sched.Assign(parse(t, tt.text), tt.devices)
			if err == nil || err.Error() != tt.want {
				t.Fatalf("got  %v\nwant %s", err, tt.want)
			}
			var ae *sched.AssignError
			if !errors.As(err, &ae) || !errors.Is(err, backend.ErrUnsupported) {
				t.Error("is not an AssignError that wraps ErrUnsupported")
			}
		})
	}
	if err := sched.Assign(parse(t, simple), nil); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("no devices: %v", err)
	}
}

func TestDeadNodesNeedNoDevice(t *testing.T) {
	g := parse(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16]
%1 = Gelu(%0) "dead" F32 [16]
%2 = Silu(%0) "y" F32 [16]
output %2
`)
	if err := sched.Assign(g, []sched.Device{{"cpu", except(graph.KindGelu)}}); err != nil {
		t.Fatal(err)
	}
	if got := deviceOf(g, "dead"); got != "" {
		t.Errorf("the dead node is on %q", got)
	}
}

func TestAssignIsAFunctionOfItsArguments(t *testing.T) {
	for seed := range uint64(50) {
		r := graphtest.NewRand(seed)
		g := graphtest.Random(r, 60, graphtest.Every)
		kinds := []graph.Kind{graph.Kind(r.IntN(len(graph.Kinds()))), graph.Kind(r.IntN(len(graph.Kinds())))}
		devices := []sched.Device{{"gpu", except(kinds...)}, {"cpu", null.Everything()}}
		a, b := g.Clone(), g.Clone()
		if err := sched.Assign(a, devices); err != nil {
			t.Fatal(err)
		}
		if err := sched.Assign(b, devices); err != nil {
			t.Fatal(err)
		}
		if d := a.Diff(b); d != "" {
			t.Fatalf("seed %d: %s", seed, d)
		}
	}
}

func TestWriteTrace(t *testing.T) {
	g := decoder(t, graph.Params{Tokens: 3, Outputs: 1, Cells: 16})
	g.UID = 7
	if err := sched.Assign(g, []sched.Device{{"gpu", except(graph.KindEmbed, graph.KindSilu)}, {"cpu", null.Everything()}}); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := sched.WriteTrace(&b, g); err != nil {
		t.Fatal(err)
	}
	want := `graph 7: prefill of 3 tokens, nodes: 45 (0 dead), splits: 6
  split 0: cpu, nodes 4 to 4, in nothing, out embed: 1 Embed
  split 1: gpu, nodes 5 to 17, in embed, out blk.0.gate: 2 RMSNorm 5 MatMul 2 RoPE 1 KVStore 1 Attention 1 Add
  split 2: cpu, nodes 18 to 18, in blk.0.gate, out blk.0.gate_silu: 1 Silu
  split 3: gpu, nodes 19 to 37, in blk.0.gate_silu, out blk.1.gate: 7 MatMul 1 Mul 2 Add 2 RMSNorm 2 RoPE 1 KVStore 1 Attention 2 GetRows
  split 4: cpu, nodes 38 to 38, in blk.1.gate, out blk.1.gate_silu: 1 Silu
  split 5: gpu, nodes 39 to 44, in blk.1.gate_silu, out nothing: 3 MatMul 1 Mul 1 Add 1 RMSNorm
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
