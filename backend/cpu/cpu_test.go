package cpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
	"github.com/minfer/minfer/backend/cpu"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/quant"
)

func open(t testing.TB, threads int) backend.Backend {
	t.Helper()
	b, err := backend.Open("cpu", backend.Config{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	for _, threads := range threadCounts {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backend.Backend { return open(t, threads) }, backendtest.Exact())
		})
	}
}

func TestEntry(t *testing.T) {
	e, instance, err := backend.Lookup("cpu")
	if err != nil || instance != 0 {
		t.Fatal(instance, err)
	}
	if e.ID != backend.CPU || e.Priority != 100 {
		t.Errorf("id %d, priority %d", e.ID, e.Priority)
	}
	b := open(t, 0)
	defer b.Close()
	if b.Capabilities() != e.Capabilities {
		t.Error("the entry and the device disagree about capabilities")
	}
	for _, c := range []backend.Config{{Threads: -1}, {Threads: 1 << 20}} {
		if _, err := backend.Open("cpu", c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if _, err := backend.Open("cpu:1", backend.Config{}); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("cpu:1: %v", err)
	}
}

func TestSupports(t *testing.T) {
	rope := graph.RoPE{Base: 1e4, Scale: 1, Dim: 4, Heads: 1, HeadDim: 4}
	for _, c := range []struct {
		op   graph.Op
		t    graph.DType
		want bool
	}{
		{graph.Add{}, graph.F32, true},
		{graph.Add{}, graph.F16, false},
		{graph.GetRows{}, graph.I32, true},
		{graph.GetRows{}, graph.Q8_0, false},
		{graph.KVLoad{}, graph.F16, true},
		{graph.KVLoad{}, graph.BF16, false},
		{graph.MatMul{Weight: "w", Type: "Q4_K", In: 256, Out: 3}, graph.F32, true},
		{graph.MatMul{Weight: "w", Type: "Q4_K", In: 128, Out: 3}, graph.F32, false},
		{graph.MatMul{Weight: "w", Type: "Q8_0", In: 33, Out: 3}, graph.F32, false},
		{graph.MatMul{Weight: "w", Type: "F16", In: 33, Out: 3}, graph.F32, true},
		{graph.MatMul{Weight: "w", Type: "IQ1_S", In: 256, Out: 3}, graph.F32, false},
		{graph.MatMul{}, graph.F32, false},
		{graph.Embed{Weight: "w", Type: "Q6_K", Dim: 512, Vocab: 9}, graph.F32, true},
		{graph.Embed{Weight: "w", Type: "Q6_K", Dim: 500, Vocab: 9}, graph.F32, false},
		{rope, graph.F32, true},
		{graph.RoPE{Base: 1e4, Scale: 1, Dim: 3, Heads: 1, HeadDim: 4}, graph.F32, false},
		{graph.Attention{Heads: 4, KVHeads: 2, HeadDim: 8}, graph.F32, true},
		{graph.Attention{Heads: 4, KVHeads: 3, HeadDim: 8}, graph.F32, false},
		{graph.Attention{Heads: 4, KVHeads: 2, HeadDim: 8, Mode: graph.Full}, graph.F32, false},
		{graph.Attention{Heads: 4, KVHeads: 2, HeadDim: 8, Mode: graph.Full, ExplicitSpan: true}, graph.F32, true},
	} {
		e, _, err := backend.Lookup("cpu")
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Capabilities.Supports(c.op, c.t); got != c.want {
			t.Errorf("%s with results of %v: %v, want %v", graph.OpString(c.op), c.t, got, c.want)
		}
	}
}

// TestEveryOp holds that the graph of the tests below leaves no operation out.
func TestEveryOp(t *testing.T) {
	seen := make(map[graph.Kind]bool)
	g := tiny.everyOp(t, 2)
	for i := range g.Nodes {
		seen[g.Nodes[i].Op.Kind()] = true
	}
	for _, op := range graph.Kinds() {
		if !seen[op.Kind()] {
			t.Errorf("%v does not occur", op.Kind())
		}
	}
}

// TestThreadsAgree compares the bits of all results over thread counts.
func TestThreadsAgree(t *testing.T) {
	for _, tokens := range []int{1, 11} {
		var want []byte
		for _, threads := range []int{1, 2, 3, 8} {
			p := tiny.prepare(t, threads, tokens)
			for range 3 {
				if err := p.run(); err != nil {
					t.Fatal(err)
				}
				got := p.outputs(t)
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("%d tokens: %d threads yield other bits than 1", tokens, threads)
				}
			}
		}
	}
}

// TestStepsDoNotAllocate holds that a step that repeats leaves the heap alone, once
// every worker has had its share of each operation and its scratch memory has grown.
func TestStepsDoNotAllocate(t *testing.T) {
	for _, threads := range []int{1, 3} {
		for _, tokens := range []int{1, 5} {
			p := tiny.prepare(t, threads, tokens)
			var err error
			step := func() {
				if e := p.run(); e != nil {
					err = e
				}
			}
			var n float64
			for range 10 * threads {
				if n = testing.AllocsPerRun(10, step); n == 0 {
					break
				}
			}
			if n != 0 || err != nil {
				t.Errorf("%d threads, %d tokens: %v allocations per run, error %v", threads, tokens, n, err)
			}
		}
	}
}

// workers counts the goroutines of devices, those included that are about to end.
func workers() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte(".(*pool).worker("))
}

// TestCloseEndsWorkers holds that a device has goroutines from its first large work on,
// until it is closed.
func TestCloseEndsWorkers(t *testing.T) {
	wait := func(want int, when string) {
		t.Helper()
		n := workers()
		for range 1000 {
			if n == want {
				return
			}
			time.Sleep(time.Millisecond)
			n = workers()
		}
		t.Errorf("%d workers %s, want %d", n, when, want)
	}
	wait(0, "before the device was opened")
	idle := open(t, 8)
	wait(0, "before the first work")
	if err := idle.Close(); err != nil {
		t.Fatal(err)
	}
	p := tiny.prepare(t, 8, 9)
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	wait(7, "of 8 threads")
	if err := p.b.Close(); err != nil {
		t.Fatal(err)
	}
	wait(0, "after Close")
}

func TestOverlapIsRefused(t *testing.T) {
	b := open(t, 1)
	defer b.Close()
	buffer, err := b.AllocFresh(1024)
	if err != nil {
		t.Fatal(err)
	}
	value := func(offset int) backend.Operand {
		return backend.Operand{Buffer: buffer.Slice(offset, 256), Shape: graph.ShapeOf(64), Type: graph.F32}
	}
	gb := graph.NewBuilder(graph.Params{})
	x := gb.Input("x", graph.F32, 64)
	y := gb.Input("y", graph.F32, 64)
	gb.Output(gb.Add("add", x, y))
	gb.Output(gb.Permute("permute", x, [4]int{0, 1, 2, 3}))
	g, err := gb.Build()
	if err != nil {
		t.Fatal(err)
	}
	add, permute := g.Lookup("add"), g.Lookup("permute")
	for _, c := range []struct {
		node *graph.Node
		in   []backend.Operand
		out  backend.Operand
		want error
	}{
		{add, []backend.Operand{value(0), value(256)}, value(0), nil},
		{add, []backend.Operand{value(0), value(256)}, value(256), nil},
		{add, []backend.Operand{value(0), value(0)}, value(0), nil},
		{add, []backend.Operand{value(0), value(256)}, value(512), nil},
		{add, []backend.Operand{value(0), value(256)}, value(128), cpu.ErrOverlap},
		{permute, []backend.Operand{value(0)}, value(256), nil},
		{permute, []backend.Operand{value(0)}, value(0), cpu.ErrOverlap},
		{permute, []backend.Operand{value(0)}, value(252), cpu.ErrOverlap},
	} {
		if err := b.Execute(c.node, c.in, c.out, nil); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s into %+v returned %v, want %v", c.node.Name, c.out.Buffer, err, c.want)
		}
	}
}

func TestCellsOfABatchAreDistinct(t *testing.T) {
	b := open(t, 2)
	defer b.Close()
	gb := graph.NewBuilder(graph.Params{Cells: 16, KVType: graph.F32})
	k, cells := gb.Input("k", graph.F32, 4, 3), gb.Input("cells", graph.I32, 3)
	gb.KVStore("store", 0, k, k, cells)
	gb.Output(k)
	g, err := gb.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := bind(t, b, g)
	for _, c := range []struct {
		cells []int32
		want  error
	}{{[]int32{3, 9, 12}, nil}, {[]int32{9, 3, 12}, nil}, {[]int32{9, 3, 9}, cpu.ErrRange}} {
		p.write(t, "cells", c.cells)
		if err := p.run(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("cells %v: %v, want %v", c.cells, err, c.want)
		}
	}
}

func TestErrorsHaveTypes(t *testing.T) {
	b := open(t, 1)
	defer b.Close()
	gb := graph.NewBuilder(graph.Params{})
	gb.Output(gb.RMSNorm("blk.0.norm", gb.Input("x", graph.F32, 4), graph.Weight{Name: "blk.0.attn_norm.weight", In: 4}, 1e-5))
	g, err := gb.Build()
	if err != nil {
		t.Fatal(err)
	}
	err = bind(t, b, g).run()
	var node *backend.NodeError
	var weight *cpu.WeightError
	if !errors.As(err, &node) || node.Node != "blk.0.norm" || node.Device != "cpu" {
		t.Errorf("%v is no NodeError of the node", err)
	}
	if !errors.As(err, &weight) || weight.Weight != "blk.0.attn_norm.weight" || !errors.Is(err, cpu.ErrMissingWeight) {
		t.Errorf("%v is no WeightError of the weight", err)
	}
	w := testWeight(t, "blk.7.ffn_up.weight", "Q8_0", 64, 2)
	w.Data = w.Data[1:]
	err = b.LoadWeights(t.Context(), []backend.Weight{w}, nil)
	if !errors.Is(err, cpu.ErrWeight) || !strings.Contains(err.Error(), "blk.7.ffn_up.weight") {
		t.Errorf("short weight: %v", err)
	}
	w.Type = "IQ1_S"
	if err := b.LoadWeights(t.Context(), []backend.Weight{w}, nil); !errors.Is(err, quant.ErrUnsupported) {
		t.Errorf("weight of an unknown type: %v", err)
	}
}

// TestUnalignedWeights loads a weight from an odd address, as a file may place it.
func TestUnalignedWeights(t *testing.T) {
	for _, f := range quant.Formats() {
		var want []byte
		for shift := range 3 {
			b := open(t, 1)
			w := testWeight(t, "w", f.Name, 256, 3)
			data := make([]byte, shift+len(w.Data))
			w.Data = data[shift : shift+copy(data[shift:], w.Data)]
			if err := b.LoadWeights(t.Context(), []backend.Weight{w}, nil); err != nil {
				t.Fatal(err)
			}
			gb := graph.NewBuilder(graph.Params{})
			x := gb.Input("x", graph.F32, 256, 3)
			gb.Output(gb.MatMul("y", x, graph.Weight{Name: "w", Type: f.Name, In: 256, Out: 3}, graph.Weight{}))
			g, err := gb.Build()
			if err != nil {
				t.Fatal(err)
			}
			p := bind(t, b, g)
			values := make([]float32, 3*256)
			for i := range values {
				values[i] = float32(i%17) - 8
			}
			p.write(t, "x", values)
			if err := p.run(); err != nil {
				t.Fatal(err)
			}
			if got := p.outputs(t); want == nil {
				want = got
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s: the product depends on the address of the weight", f.Name)
			}
			b.Close()
		}
	}
}
