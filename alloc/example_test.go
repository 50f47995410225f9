package alloc_test

import (
	"fmt"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
)

const chain = `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @cpu
%1 = MatMul(%0) {Weight="w" Type="F32" In=16 Out=16} "y" F32 [16] @cpu
%2 = Silu(%1) "z" F32 [16] @cpu
output %2
`

func ExampleNewPlan() {
	g, err := graph.Parse(chain)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := alloc.NewPlan(g)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, v := range p.Values {
		fmt.Printf("%s: %d bytes at %d\n", g.Nodes[i].Name, v.Bytes, v.Offset)
	}
	fmt.Println("arena:", p.Arena("cpu"))
	// Output:
	// x: 64 bytes at 0
	// y: 64 bytes at 64
	// z: 64 bytes at 64
	// arena: 128
}

func ExampleAllocator() {
	device := null.New("cpu", null.Everything())
	a := alloc.New([]backend.Backend{device})
	defer a.Close()

	g, err := graph.Parse(chain)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := alloc.NewPlan(g)
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := a.Bind(g, p)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Operand(2).Buffer.Size, a.Stats().Devices[0].Arena)
	// Output: 64 128
}
