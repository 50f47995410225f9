package sched_test

import (
	"context"
	"fmt"
	"os"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

const placed = `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [2]
%1 = Scale(%0) {Factor=2} "doubled" F32 [2]
%2 = Silu(%1) "y" F32 [2]
output %2
`

func ExampleAssign() {
	g, err := graph.Parse(placed)
	if err != nil {
		fmt.Println(err)
		return
	}
	devices := []sched.Device{
		{Name: "gpu", Capabilities: null.Only(graph.KindSilu)},
		{Name: "cpu", Capabilities: null.Everything()},
	}
	if err := sched.Assign(g, devices); err != nil {
		fmt.Println(err)
		return
	}
	_ = sched.WriteTrace(os.Stdout, g)
	// Output:
	// graph 0: prefill of 1 token, nodes: 3 (0 dead), splits: 2
	//   split 0: cpu, nodes 1 to 1, in nothing, out doubled: 1 Scale
	//   split 1: gpu, nodes 2 to 2, in doubled, out nothing: 1 Silu
}

// Two graphs share the regions of layer 0. One stores by a fused operation that the gpu
// lacks, so the layer of both goes to the cpu.
func ExamplePlaceLayers() {
	const head = "graph {Tokens=1 Outputs=1 Cells=16}\n" +
		"%0 = Input() \"x\" F32 [4]\n%1 = Input() \"positions\" I32 [1]\n%2 = Input() \"cells\" I32 [1]\n"
	plain, err := graph.Parse(head + "%3 = KVStore(%0 %0 %2) \"stored\" F32 [4]\noutput %0\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	fused, err := graph.Parse(head + "%3 = QKVBiasRopeStore(%0 %0 %0 %1 %2) {RoPE={Base=10000 Scale=1 Dim=4 Heads=1 HeadDim=4} KVHeads=1} \"stored\" F32 [4]\noutput %3\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	devices := []sched.Device{
		{Name: "gpu", Capabilities: null.Only(graph.KindKVStore)},
		{Name: "cpu", Capabilities: null.Everything()},
	}
	layers, err := sched.PlaceLayers(devices, plain, fused)
	if err != nil {
		fmt.Println(err)
		return
	}
	layers.Pin(plain)
	fmt.Println(layers, plain.Lookup("stored").Device)
	// Output: map[0:cpu] cpu
}

func ExampleSplits() {
	g, err := graph.Parse(placed)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := sched.Assign(g, []sched.Device{{Name: "cpu", Capabilities: null.Everything()}}); err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range sched.Splits(g) {
		fmt.Println(s.Device, s.First, s.Last)
	}
	// Output: cpu 1 2
}

func ExamplePrepare() {
	cpu := newToy("cpu", null.Everything()) // a device that computes
	owner := alloc.New([]backend.Backend{cpu})
	defer owner.Close()

	g, err := graph.Parse(placed)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := sched.Assign(g, []sched.Device{{Name: cpu.Name(), Capabilities: cpu.Capabilities()}}); err != nil {
		fmt.Println(err)
		return
	}
	p, err := sched.Prepare(g, owner)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Release()
	y := make([]float32, 2)
	for _, x := range [][]float32{{0, 1}, {2, 3}} {
		if err := p.WriteInputF32("x", x); err != nil {
			fmt.Println(err)
			return
		}
		if err := p.Execute(context.Background()); err != nil {
			fmt.Println(err)
			return
		}
		if err := p.ReadOutput(0, 0, y); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%.4f\n", y)
	}
	// Output:
	// [0.0000 1.7616]
	// [3.9281 5.9852]
}
