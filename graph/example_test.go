package graph_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/minfer/minfer/graph"
)

// A feed-forward block: project, gate, project back, and add.
func ExampleBuilder() {
	b := graph.NewBuilder(graph.Params{Tokens: 2, Outputs: 2})
	x := b.Input("x", graph.F32, 64, 2)
	gate := b.MatMul("gate", x, graph.Weight{Name: "gate.weight", Type: "Q8_0", In: 64, Out: 256}, graph.Weight{})
	up := b.MatMul("up", x, graph.Weight{Name: "up.weight", Type: "Q8_0", In: 64, Out: 256}, graph.Weight{})
	h := b.Mul("gated", b.Silu("silu", gate), up)
	down := b.MatMul("down", h, graph.Weight{Name: "down.weight", Type: "Q8_0", In: 256, Out: 64}, graph.Weight{})
	b.Output(b.Add("sum", x, down))
	g, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(g)
	// Output:
	// graph {Tokens=2 Outputs=2}
	// %0 = Input() "x" F32 [64 2]
	// %1 = MatMul(%0) {Weight="gate.weight" Type="Q8_0" In=64 Out=256} "gate" F32 [256 2]
	// %2 = MatMul(%0) {Weight="up.weight" Type="Q8_0" In=64 Out=256} "up" F32 [256 2]
	// %3 = Silu(%1) "silu" F32 [256 2]
	// %4 = Mul(%3 %2) "gated" F32 [256 2]
	// %5 = MatMul(%4) {Weight="down.weight" Type="Q8_0" In=256 Out=64} "down" F32 [64 2]
	// %6 = Add(%0 %5) "sum" F32 [64 2]
	// output %6
}

// The first fault sticks, and names the node.
func ExampleBuilder_Build() {
	b := graph.NewBuilder(graph.Params{Tokens: 1, Outputs: 1})
	x := b.Input("x", graph.F32, 64)
	y := b.Input("y", graph.F32, 32)
	b.Output(b.Silu("silu", b.Add("sum", x, y)))
	_, err := b.Build()
	fmt.Println(err)
	// Output: graph: node "sum" (Add): sources [64] and [32] differ
}

func ExampleParse() {
	g, err := graph.Parse(`graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [64]
%1 = Silu(%0) "y" F32 [64] @cpu
output %1
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	y := g.Lookup("y")
	fmt.Println(y.Op.Kind(), y.Shape, y.Device, y.Bytes())

	_, err = graph.Parse("graph {Tokens=one}")
	fmt.Println(err)
	// Output:
	// Silu [64] cpu 256
	// graph: line 1, column 18: strconv.Atoi: parsing "one": invalid syntax
}

func ExampleGraph_WriteDOT() {
	g, err := graph.Parse("graph {Tokens=1 Outputs=1}\n%0 = Input() \"x\" F32 [64]\noutput %0")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := g.WriteDOT(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// digraph minfer {
	//   graph [rankdir=TB, newrank=true, nodesep=0.25, ranksep=0.25, fontname="Helvetica", fontsize=14, labelloc=t, label="prefill of 1 token, outputs: 1, cells: 0 of F32"];
	//   node [shape=box, style=filled, fillcolor=white, fontname="Helvetica", fontsize=11, margin="0.12,0.06"];
	//   edge [color="#444444", arrowsize=0.7];
	//   n0 [label="%0 x\nInput F32 [64]", shape=ellipse, peripheries=2];
	// }
}

func ExampleGraph_WriteJSON() {
	g, err := graph.Parse("graph {Tokens=1 Outputs=1}\n%0 = Input() \"x\" F32 [64]\noutput %0")
	if err != nil {
		fmt.Println(err)
		return
	}
	var out bytes.Buffer
	if err := g.WriteJSON(&out); err != nil {
		fmt.Println(err)
		return
	}
	var read struct {
		Format string
		Nodes  []struct{ Name, Op, DType string }
	}
	if err := json.Unmarshal(out.Bytes(), &read); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(read.Format, read.Nodes)
	// Output: minfer-graph [{x Input F32}]
}

// A pass that leaves a graph in disorder is found out.
func ExampleGraph_Verify() {
	g, err := graph.Parse("graph {Tokens=1 Outputs=1}\n%0 = Input() \"x\" F32 [64]\n%1 = Silu(%0) \"y\" F32 [64]\noutput %1")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := g.Node(1).SetSources(1); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(g.Verify())
	// Output: graph: node "y" (Silu): reads node 1, which does not come before it
}

func ExampleGraph_Diff() {
	const text = "graph {Tokens=1 Outputs=1}\n%0 = Input() \"x\" F32 [64]\n%1 = Silu(%0) \"y\" F32 [64]\noutput %1"
	a, err := graph.Parse(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := a.Clone()
	b.Node(1).Op = graph.Gelu{}
	fmt.Println(a.Diff(b))
	// Output:
	// node 1 differs:
	// 	%1 = Silu(%0) "y" F32 [64]
	// 	%1 = Gelu(%0) "y" F32 [64]
}
