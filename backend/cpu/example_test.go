package cpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"

	"github.com/minfer/minfer/backend"
	_ "github.com/minfer/minfer/backend/cpu"
	"github.com/minfer/minfer/graph"
)

// The device joins by its import, and is opened by name. Here it multiplies a vector
// by a matrix of two rows.
func Example() {
	device, err := backend.Open("cpu", backend.Config{Threads: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()

	w := backend.Weight{Name: "w", Type: "F32", In: 2, Out: 2, Data: bytesOf(1, 2, 3, 4)}
	if err := device.LoadWeights(context.Background(), []backend.Weight{w}, nil); err != nil {
		log.Fatal(err)
	}
	b := graph.NewBuilder(graph.Params{})
	x := b.Input("x", graph.F32, 2)
	b.Output(b.MatMul("y", x, graph.Weight{Name: "w", Type: "F32", In: 2, Out: 2}, graph.Weight{}))
	g, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}

	in, err := device.Alloc(8)
	if err != nil {
		log.Fatal(err)
	}
	out, err := device.Alloc(8)
	if err != nil {
		log.Fatal(err)
	}
	if err := device.WriteHost(in, bytesOf(10, 1)); err != nil {
		log.Fatal(err)
	}
	vector := backend.Operand{Buffer: in, Shape: graph.ShapeOf(2), Type: graph.F32}
	product := backend.Operand{Buffer: out, Shape: graph.ShapeOf(2), Type: graph.F32}
	if err := device.Execute(g.Lookup("y"), []backend.Operand{vector}, product, nil); err != nil {
		log.Fatal(err)
	}
	result := make([]byte, 8)
	if err := device.ReadHost(result, out); err != nil {
		log.Fatal(err)
	}
	for ; len(result) > 0; result = result[4:] {
		fmt.Println(math.Float32frombits(binary.LittleEndian.Uint32(result)))
	}
	// Output:
	// 12
	// 34
}

func bytesOf(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
