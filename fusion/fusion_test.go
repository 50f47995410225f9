package fusion_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/fusion"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/graphtest"
)

func has(string) *backend.Capabilities { return null.Everything() }

func hasNot(string) *backend.Capabilities { return null.Only(graph.KindMul, graph.KindSilu) }

const head = `graph {Tokens=1 Outputs=1 Fusion={SwiGLU=true}}
%0 = Input() "x" F32 [4] @a
%1 = Input() "y" F32 [4] @a
`

// rewriting is a graph before and after a pass.
type rewriting struct {
	name, before, after string // after is "" if nothing must change
	caps                func(string) *backend.Capabilities
	rewrites            int
}

func TestSwiGLU(t *testing.T) {
	tests := []rewriting{
		{name: "gate first", rewrites: 1, before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%2 %1) "m" F32 [4] @a
output %3
`, after: `%2 = Silu(%0) "s" F32 [4] @a
%3 = SwiGLU(%0 %1) "m" F32 [4] @a
output %3
`},
		{name: "gate second", rewrites: 1, before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%1 %2) "m" F32 [4] @a
output %3
`, after: `%2 = Silu(%0) "s" F32 [4] @a
%3 = SwiGLU(%0 %1) "m" F32 [4] @a
output %3
`},
		{name: "two gates, one of them stays", rewrites: 1, before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Silu(%1) "t" F32 [4] @a
%4 = Mul(%2 %3) "m" F32 [4] @a
output %4
`, after: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Silu(%1) "t" F32 [4] @a
%4 = SwiGLU(%0 %3) "m" F32 [4] @a
output %4
`},
		{name: "second gate where the first cannot", rewrites: 1, before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Silu(%1) "t" F32 [4] @a
%4 = Mul(%2 %3) "m" F32 [4] @a
output %2 %4
`, after: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Silu(%1) "t" F32 [4] @a
%4 = SwiGLU(%1 %2) "m" F32 [4] @a
output %2 %4
`},
		{name: "a chain of two", rewrites: 2, before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%2 %1) "m" F32 [4] @a
%4 = Silu(%3) "t" F32 [4] @a
%5 = Mul(%4 %1) "n" F32 [4] @a
output %5
`, after: `%2 = Silu(%0) "s" F32 [4] @a
%3 = SwiGLU(%0 %1) "m" F32 [4] @a
%4 = Silu(%3) "t" F32 [4] @a
%5 = SwiGLU(%3 %1) "n" F32 [4] @a
output %5
`},
		{name: "a dead reader does not count", rewrites: 1, before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Add(%2 %1) "dead" F32 [4] @a
%4 = Mul(%2 %1) "m" F32 [4] @a
output %4
`, after: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Add(%2 %1) "dead" F32 [4] @a
%4 = SwiGLU(%0 %1) "m" F32 [4] @a
output %4
`},
		{name: "another reader", before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%2 %1) "m" F32 [4] @a
%4 = Add(%3 %2) "n" F32 [4] @a
output %4
`},
		{name: "squared", before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%2 %2) "m" F32 [4] @a
output %3
`},
		{name: "an output", before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%2 %1) "m" F32 [4] @a
output %2 %3
`},
		{name: "other device", before: `%2 = Silu(%0) "s" F32 [4] @b
%3 = Mul(%2 %1) "m" F32 [4] @a
output %3
`},
		{name: "through a view", before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Reshape(%2) {Shape=[4 1 1 1]} "r" F32 [4] @a
%4 = Mul(%3 %1) "m" F32 [4] @a
output %4
`},
		{name: "other activation", before: `%2 = Gelu(%0) "s" F32 [4] @a
%3 = Mul(%2 %1) "m" F32 [4] @a
output %3
`},
		{name: "sum", before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Add(%2 %1) "m" F32 [4] @a
output %3
`},
		{name: "dead", before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%2 %1) "m" F32 [4] @a
output %0
`},
		{name: "device has it not", caps: hasNot, before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%2 %1) "m" F32 [4] @a
output %3
`},
		{name: "device is not known", caps: func(string) *backend.Capabilities { return nil }, before: `%2 = Silu(%0) "s" F32 [4] @a
%3 = Mul(%2 %1) "m" F32 [4] @a
output %3
`},
	}
	testPass(t, head, "SwiGLU=true", tests)
}

func TestFFNDown(t *testing.T) {
	const head = `graph {Tokens=1 Outputs=1 Fusion={FFNDown=true}}
%0 = Input() "x" F32 [4] @a
%1 = FusedFFN(%0) {Gate={Weight="g" Type="Q8_0" In=4 Out=6} Up={Weight="u" Bias="b" Type="Q8_0" In=4 Out=6}} "act" F32 [6] @a
`
	const fused = `%2 = FusedFFNDown(%0) {Gate={Weight="g" Type="Q8_0" In=4 Out=6} Up={Weight="u" Bias="b" Type="Q8_0" In=4 Out=6} Down={Weight="d" Bias="c" Type="Q8_0" In=6 Out=4}} "down" F32 [4] @a
output %2
`
	const down = `%2 = MatMul(%1) {Weight="d" Bias="c" Type="Q8_0" In=6 Out=4} "down" F32 [4] @a
`
	testPass(t, head, "FFNDown=true", []rewriting{
		{name: "down of a gated block", rewrites: 1, before: down + "output %2\n", after: fused},
		{name: "another reader", before: down + `%3 = Scale(%1) {Factor=2} "twice" F32 [6] @a
output %2 %3
`},
		{name: "an output", before: down + "output %1 %2\n"},
		{name: "other device", before: strings.Replace(down, "@a", "@b", 1) + "output %2\n"},
		{name: "no product", before: `%2 = Scale(%1) {Factor=2} "twice" F32 [6] @a
output %2
`},
		{name: "product of something else", before: `%2 = MatMul(%0) {Weight="d" Type="Q8_0" In=4 Out=4} "down" F32 [4] @a
output %2
`},
		{name: "device has it for other weights", before: down + "output %2\n", caps: func(string) *backend.Capabilities {
			c := null.Everything()
			c.Supports = func(op graph.Op, _ graph.DType) bool {
				f, ok := op.(graph.FusedFFNDown)
				return !ok || f.Down.Type != "Q8_0"
			}
			return c
		}},
		{name: "device has it not", before: down + "output %2\n", caps: hasNot},
	})
}

// testPass runs a pass on graphs that begin with head, and sees that without the switch nothing happens.
func testPass(t *testing.T, head, on string, tests []rewriting) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := head + tt.before
			if tt.after != "" {
				want = head + tt.after
			}
			caps := tt.caps
			if caps == nil {
				caps = has
			}
			g := parse(t, head+tt.before)
			for round, rewrites := range []int{tt.rewrites, 0} { // a second run finds nothing more
				n, err := fusion.Run(g, caps)
				if err != nil || n != rewrites {
					t.Fatalf("round %d: %d rewrites and %v, want %d", round, n, err, rewrites)
				}
				if g.String() != want {
					t.Fatalf("got\n%swant\n%s", g, want)
				}
			}
			off := parse(t, strings.Replace(head, on, "QKV=true", 1)+tt.before)
			before := off.String()
			if n, err := fusion.Run(off, caps); n != 0 || err != nil || off.String() != before {
				t.Errorf("switched off, but %d rewrites and %v", n, err)
			}
		})
	}
}

func parse(t testing.TB, text string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Whatever the graph, a rewritten one is valid, has no live pair left that could be fused,
// and computes the same: unfolding the fused nodes gives the graph that was there.
func TestRandomGraphs(t *testing.T) {
	total := 0
	for seed := range uint64(200) {
		r := graphtest.NewRand(seed)
		g := graphtest.Random(r, 40, graphtest.Among(graph.KindMul, graph.KindSilu, graph.KindScale, graph.KindReshape, graph.KindFusedFFN, graph.KindMatMul))
		for i := range g.Nodes {
			g.Nodes[i].Device = "a"
		}
		g.Params.Fusion = graph.Fusion{SwiGLU: true, FFNDown: true}
		before := g.Clone()
		n, err := fusion.Run(g, has)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		total += n
		for _, id := range g.Outputs {
			if a, b := formula(before, id), formula(g, id); a != b {
				t.Fatalf("seed %d: output %d was %s and is %s", seed, id, a, b)
			}
		}
	}
	if total < 50 {
		t.Errorf("only %d rewrites", total)
	}
}

// formula writes what a node computes, fused nodes as what they stand for, with the
// operands of products in a canonical order.
func formula(g *graph.Graph, id graph.NodeID) string {
	n := g.Node(id)
	arg := make([]string, len(n.Sources()))
	for i, s := range n.Sources() {
		arg[i] = formula(g, s)
	}
	if n.Op == (graph.SwiGLU{}) {
		arg[0] = fmt.Sprintf("Silu(%s)", arg[0])
	}
	switch n.Op.Kind() {
	case graph.KindSwiGLU, graph.KindMul:
		return fmt.Sprintf("Mul(%s,%s)", min(arg[0], arg[1]), max(arg[0], arg[1]))
	case graph.KindInput:
		return n.Name
	case graph.KindFusedFFNDown:
		op := n.Op.(graph.FusedFFNDown)
		return fmt.Sprintf("%s(%s(%s))", graph.OpString(op.Down), graph.OpString(graph.FusedFFN{Gate: op.Gate, Up: op.Up}), arg[0])
	}
	return fmt.Sprintf("%s(%s)", graph.OpString(n.Op), strings.Join(arg, ","))
}

func ExampleRun() {
	g, err := graph.Parse(`graph {Tokens=1 Outputs=1 Fusion={SwiGLU=true}}
%0 = Input() "gate" F32 [4] @cpu
%1 = Input() "up" F32 [4] @cpu
%2 = Silu(%0) "s" F32 [4] @cpu
%3 = Mul(%2 %1) "m" F32 [4] @cpu
output %3
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	everything := &backend.Capabilities{Supports: func(graph.Op, graph.DType) bool { return true }}
	n, err := fusion.Run(g, func(device string) *backend.Capabilities { return everything })
	fmt.Println(n, err)
	fmt.Print(g)
	// Output:
	// 1 <nil>
	// graph {Tokens=1 Outputs=1 Fusion={SwiGLU=true}}
	// %0 = Input() "gate" F32 [4] @cpu
	// %1 = Input() "up" F32 [4] @cpu
	// %2 = Silu(%0) "s" F32 [4] @cpu
	// %3 = SwiGLU(%0 %1) "m" F32 [4] @cpu
	// output %3
}
