package alloc_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/graphtest"
)

// scatter gives the nodes of a graph random devices, within the rules: a layer's nodes
// together, views with their sources.
func scatter(g *graph.Graph, r *rand.Rand, devices ...string) {
	layers := make(map[int]string)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		n.Device = devices[r.IntN(len(devices))]
		if layer, ok := graph.LayerOf(n.Op); ok {
			if layers[layer] == "" {
				layers[layer] = n.Device
			}
			n.Device = layers[layer]
		}
		if n.Op.Kind().Traits().Alias {
			n.Device = g.Node(n.Sources()[0]).Device
		}
	}
}

// word is what four bytes of memory hold: a part of the value that a node made.
type word struct {
	node graph.NodeID
	at   int
}

// memory replays a plan with symbols for values, and so checks it without knowing how it
// was made: whatever a node reads must still be what was written.
type memory struct {
	t      *testing.T
	g      *graph.Graph
	p      *alloc.Plan
	arenas map[string][]word
	maker  []word // where the value of a node comes from: itself, or for views, a part of another's
}

func newMemory(t *testing.T, g *graph.Graph, p *alloc.Plan) *memory {
	m := &memory{t: t, g: g, p: p, arenas: make(map[string][]word), maker: make([]word, len(g.Nodes))}
	for _, a := range p.Arenas {
		m.arenas[a.Device] = make([]word, a.Bytes/4)
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		m.maker[i] = word{n.ID, 0}
		if n.Op.Kind().Traits().Alias {
			m.maker[i] = m.maker[n.Sources()[0]]
			if v, ok := n.Op.(graph.View); ok {
				m.maker[i].at += v.Offset
			}
		}
	}
	return m
}

func (m *memory) at(id graph.NodeID) []word {
	v := &m.p.Values[id]
	arena := m.arenas[v.Device]
	if v.Offset < 0 || v.Bytes != m.g.Node(id).Bytes() || v.Offset+v.Bytes > 4*len(arena) {
		m.t.Fatalf("node %d lies at %d+%d of an arena of %d bytes on %s", id, v.Offset, v.Bytes, 4*len(arena), v.Device)
	}
	return arena[v.Offset/4 : (v.Offset+v.Bytes)/4]
}

func (m *memory) write(id graph.NodeID) {
	for i, w := 0, m.at(id); i < len(w); i++ {
		w[i] = word{id, i}
	}
}

func (m *memory) check(reader string, id graph.NodeID) {
	if m.p.Values[id].Region {
		return
	}
	want := m.maker[id]
	for i, w := range m.at(id) {
		if w != (word{want.node, want.at + i}) {
			m.t.Fatalf("%s reads node %d (%q), but finds a part of node %d there\n%v", reader, id, m.g.Node(id).Name, w.node, m.g)
		}
	}
}

func (m *memory) run() {
	live := m.g.Live()
	for _, id := range m.g.Inputs {
		if live[id] {
			m.write(id)
		}
	}
	for i := range m.g.Nodes {
		n := &m.g.Nodes[i]
		if !live[i] {
			continue
		}
		for _, s := range n.Sources() {
			m.check(fmt.Sprintf("node %d (%q)", n.ID, n.Name), s)
		}
		if graph.Computed(n.Op) && !m.p.Values[i].Region {
			m.checkInPlace(n)
			m.write(n.ID)
		}
	}
	for _, id := range append(append([]graph.NodeID(nil), m.g.Inputs...), m.g.Outputs...) {
		if live[id] {
			m.check("the host", id)
		}
	}
}

// checkInPlace sees to it that a result lies on a source only if it may and says so.
func (m *memory) checkInPlace(n *graph.Node) {
	out := m.p.Values[n.ID]
	t := n.Op.Kind().Traits()
	for i, s := range n.Sources() {
		in := m.p.Values[s]
		if in.Region || in.Device != out.Device || in.Offset >= out.Offset+out.Bytes || out.Offset >= in.Offset+in.Bytes {
			continue
		}
		if !t.InPlace || i > 0 && !t.EitherSource || in.Offset != out.Offset || in.Bytes != out.Bytes || out.InPlace == graph.None {
			m.t.Fatalf("node %d (%v) lies on its source %d: %+v and %+v", n.ID, n.Op.Kind(), s, out, in)
		}
	}
}

func TestPlanKeepsEveryValueUntilItsLastReader(t *testing.T) {
	var inPlace, peak, need, total int
	for seed := range uint64(150) {
		r := graphtest.NewRand(seed)
		g := graphtest.Random(r, 10+r.IntN(80), graphtest.Every)
		scatter(g, r, []string{"a", "b", "c"}[:1+r.IntN(3)]...)
		p, err := alloc.NewPlan(g)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		newMemory(t, g, p).run()
		for i, v := range p.Values {
			if v.InPlace != graph.None {
				inPlace++
			}
			if v.Dead && v.Bytes != 0 || v.Region && v.Bytes != 0 {
				t.Fatalf("seed %d: node %d has memory: %+v", seed, i, v)
			}
			if v.Root == v.Node && v.Offset%backend.Alignment != 0 {
				t.Fatalf("seed %d: node %d lies at %d", seed, i, v.Offset)
			}
			total += v.Bytes
		}
		for _, a := range p.Arenas {
			peak += a.Bytes
			need += neededAtOnce(p, a.Device)
		}
		again, err := alloc.NewPlan(g.Clone())
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("seed %d: planning twice gives two plans", seed)
		}
	}
	if inPlace < 300 {
		t.Errorf("only %d nodes of all graphs took over memory", inPlace)
	}
	// Gaps cost something, but not much over all these graphs.
	if peak > need*110/100 {
		t.Errorf("arenas of %d bytes, where %d are needed at once", peak, need)
	}
	t.Logf("%d in place, arenas %d bytes, needed at once %d, all values %d", inPlace, peak, need, total)
}

// neededAtOnce returns the most bytes that the values of a device take at any node, each
// piece of memory counted from its first value to its last reader.
func neededAtOnce(p *alloc.Plan, device string) int {
	type piece struct {
		bytes       int
		first, last graph.NodeID
	}
	pieces := make(map[graph.NodeID]*piece)
	for i, v := range p.Values {
		if v.Dead || v.Region || v.Device != device {
			continue
		}
		m := pieces[v.Root]
		if m == nil {
			root := p.Values[v.Root]
			m = &piece{(root.Bytes + backend.Alignment - 1) / backend.Alignment * backend.Alignment, root.First, root.Last}
			pieces[v.Root] = m
		}
		m.last = max(m.last, p.Values[i].Last)
	}
	most := 0
	for at := range graph.NodeID(len(p.Values)) {
		now := 0
		for _, m := range pieces {
			if m.first <= at && at <= m.last {
				now += m.bytes
			}
		}
		most = max(most, now)
	}
	return most
}

// A checker that cannot fail is no checker.
func TestCheckerSeesOverlap(t *testing.T) {
	g := parse(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = MatMul(%0) {Weight="w" Type="F32" In=16 Out=16} "y" F32 [16] @a
%2 = MatMul(%1) {Weight="w" Type="F32" In=16 Out=16} "z" F32 [16] @a
%3 = Add(%1 %2) "sum" F32 [16] @a
output %3
`)
	p, err := alloc.NewPlan(g)
	if err != nil {
		t.Fatal(err)
	}
	p.Values[2].Offset = p.Values[1].Offset
	m := newMemory(t, g, p)
	m.write(1)
	m.write(2)
	if m.at(1)[0] == (word{1, 0}) {
		t.Error("two values in one place went unnoticed")
	}
}

func parse(t *testing.T, text string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func plan(t *testing.T, text string) (*graph.Graph, *alloc.Plan) {
	t.Helper()
	g := parse(t, text)
	p, err := alloc.NewPlan(g)
	if err != nil {
		t.Fatal(err)
	}
	newMemory(t, g, p).run()
	return g, p
}

func TestInPlace(t *testing.T) {
	const head = "graph {Tokens=1 Outputs=1 Cells=16}\n" + `%0 = Input() "x" F32 [16] @a` + "\n" +
		`%1 = MatMul(%0) {Weight="w" Type="F32" In=16 Out=16} "y" F32 [16] @a` + "\n"
	tests := []struct {
		name, body string
		node       graph.NodeID
		want       graph.NodeID
	}{
		{"only reader", `%2 = Silu(%1) "s" F32 [16] @a
output %2`, 2, 1},
		{"input", `%2 = Silu(%0) "s" F32 [16] @a
output %2`, 2, graph.None},
		{"view of an input", `%2 = Reshape(%0) {Shape=[4 4 1 1]} "r" F32 [4 4] @a
%3 = Silu(%2) "s" F32 [4 4] @a
output %3`, 3, graph.None},
		{"output", `%2 = Silu(%1) "s" F32 [16] @a
output %1 %2`, 2, graph.None},
		{"an output may take over", `%2 = Silu(%1) "s" F32 [16] @a
%3 = Scale(%2) {Factor=2} "t" F32 [16] @a
output %2 %3`, 2, 1},
		{"view is an output", `%2 = Reshape(%1) {Shape=[4 4 1 1]} "r" F32 [4 4] @a
%3 = Silu(%1) "s" F32 [16] @a
output %2 %3`, 3, graph.None},
		{"read again later", `%2 = Silu(%1) "s" F32 [16] @a
%3 = Add(%1 %2) "sum" F32 [16] @a
output %3`, 2, graph.None},
		{"last of two readers", `%2 = MatMul(%1) {Weight="w" Type="F32" In=16 Out=16} "z" F32 [16] @a
%3 = Add(%1 %2) "sum" F32 [16] @a
output %3`, 3, 1},
		{"second source", `%2 = MatMul(%1) {Weight="w" Type="F32" In=16 Out=16} "z" F32 [16] @a
%3 = Add(%0 %2) "sum" F32 [16] @a
output %3`, 3, 2},
		{"view read later", `%2 = Reshape(%1) {Shape=[4 4 1 1]} "r" F32 [4 4] @a
%3 = Silu(%1) "s" F32 [16] @a
%4 = MatMul(%2) {Weight="v" Type="F32" In=4 Out=1} "m" F32 [1 4] @a
output %3 %4`, 3, graph.None},
		{"view made later", `%2 = Silu(%1) "s" F32 [16] @a
%3 = View(%1) {Offset=4 Shape=[8 1 1 1]} "v" F32 [8] @a
%4 = Silu(%3) "t" F32 [8] @a
output %2 %4`, 2, graph.None},
		{"through a view", `%2 = Reshape(%1) {Shape=[4 4 1 1]} "r" F32 [4 4] @a
%3 = Silu(%2) "s" F32 [4 4] @a
output %3`, 3, 2},
		{"a part, the whole being over", `%2 = View(%1) {Offset=4 Shape=[8 1 1 1]} "v" F32 [8] @a
%3 = Silu(%2) "s" F32 [8] @a
output %3`, 3, 2},
		{"two parts that overlap", `%2 = View(%1) {Shape=[8 1 1 1]} "v" F32 [8] @a
%3 = View(%1) {Offset=4 Shape=[8 1 1 1]} "w" F32 [8] @a
%4 = Add(%2 %3) "sum" F32 [8] @a
output %4`, 4, graph.None},
		{"two parts side by side", `%2 = View(%1) {Shape=[8 1 1 1]} "v" F32 [8] @a
%3 = View(%1) {Offset=8 Shape=[8 1 1 1]} "w" F32 [8] @a
%4 = Add(%2 %3) "sum" F32 [8] @a
output %4`, 4, 2},
		{"the same twice", `%2 = Mul(%1 %1) "sq" F32 [16] @a
output %2`, 2, 1},
		{"other device reads too", `%2 = MatMul(%1) {Weight="w" Type="F32" In=16 Out=16} "z" F32 [16] @b
%3 = Silu(%1) "s" F32 [16] @a
output %2 %3`, 3, graph.None},
		{"from another device", `%2 = Silu(%1) "s" F32 [16] @b
output %2`, 2, graph.None},
		{"dead readers do not count", `%2 = Silu(%1) "s" F32 [16] @a
%3 = Add(%1 %2) "dead" F32 [16] @a
output %2`, 2, 1},
		{"operation cannot", `%2 = MatMul(%1) {Weight="w" Type="F32" In=16 Out=16} "z" F32 [16] @a
output %2`, 2, graph.None},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, p := plan(t, head+tt.body)
			v := p.Values[tt.node]
			if v.InPlace != tt.want {
				t.Errorf("node %d takes over %d, want %d", tt.node, v.InPlace, tt.want)
			}
			if tt.want != graph.None && v.Offset != p.Values[tt.want].Offset {
				t.Errorf("it lies at %d, the source at %d", v.Offset, p.Values[tt.want].Offset)
			}
		})
	}
}

// The queries are rotated in place only if neither keys nor values are the same memory:
// they are read as well, and not element by element.
func TestInPlaceOfAFusedStore(t *testing.T) {
	const op = `QKVBiasRopeStore(%s) {RoPE={Base=10000 Scale=1 Dim=4 Heads=2 HeadDim=4} KVHeads=2} "store" F32 [8] @a`
	const head = `graph {Tokens=1 Outputs=1 Cells=16}
%0 = Input() "x" F32 [8] @a
%1 = Input() "positions" I32 [1] @a
%2 = Input() "cells" I32 [1] @a
%3 = MatMul(%0) {Weight="w" Type="F32" In=8 Out=8} "q" F32 [8] @a
%4 = MatMul(%0) {Weight="w" Type="F32" In=8 Out=8} "k" F32 [8] @a
%5 = `
	_, p := plan(t, head+fmt.Sprintf(op, "%3 %4 %4 %1 %2")+"\noutput %5")
	if got := p.Values[5].InPlace; got != 3 {
		t.Errorf("takes over %d, want 3", got)
	}
	_, p = plan(t, head+fmt.Sprintf(op, "%3 %3 %4 %1 %2")+"\noutput %5")
	if got := p.Values[5].InPlace; got != graph.None {
		t.Errorf("takes over %d though the keys are the queries", got)
	}
}

// Liveness follows build order. Input "late" is declared after nodes that are done before
// it is read: an order that puts nodes without sources first, or frees by it, would
// hand its memory to "b".
func TestInputDeclaredLateIsThereFromTheStart(t *testing.T) {
	_, p := plan(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "early" F32 [16] @a
%1 = MatMul(%0) {Weight="w" Type="F32" In=16 Out=16} "b" F32 [16] @a
%2 = MatMul(%1) {Weight="w" Type="F32" In=16 Out=16} "c" F32 [16] @a
%3 = Input() "late" F32 [16] @a
%4 = MatMul(%2) {Weight="w" Type="F32" In=16 Out=16} "d" F32 [16] @a
%5 = Add(%4 %3) "sum" F32 [16] @a
output %5
`)
	late := p.Values[3]
	if late.First != 0 || late.Last != alloc.Forever {
		t.Errorf("input lives from %d to %d, want from 0 on forever", late.First, late.Last)
	}
	for _, id := range []graph.NodeID{0, 1, 2, 4, 5} {
		if v := p.Values[id]; v.Offset == late.Offset {
			t.Errorf("node %d shares the memory of an input", id)
		}
	}
	if got, want := p.Arena("a"), 4*64; got != want { // two inputs, and two values at a time
		t.Errorf("arena of %d bytes, want %d", got, want)
	}
}

// A node without sources other than an input cannot be, but a node whose only source is
// an input is as early in any order but that of building.
func TestLastReaderIsByBuildOrder(t *testing.T) {
	g, p := plan(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "ids" I32 [1] @a
%1 = Embed(%0) {Weight="t" Type="F32" Dim=16 Vocab=4} "e" F32 [16] @a
%2 = MatMul(%1) {Weight="w" Type="F32" In=16 Out=16} "f" F32 [16] @a
%3 = MatMul(%2) {Weight="w" Type="F32" In=16 Out=16} "g" F32 [16] @a
%4 = Embed(%0) {Weight="t" Type="F32" Dim=16 Vocab=4} "h" F32 [16] @a
%5 = MatMul(%3) {Weight="w" Type="F32" In=16 Out=16} "i" F32 [16] @a
%6 = Add(%5 %4) "j" F32 [16] @a
%7 = Add(%6 %1) "k" F32 [16] @a
output %7
`)
	want := []graph.NodeID{alloc.Forever, 7, 3, 5, 6, 6, 7, alloc.Forever}
	for i, v := range p.Values {
		if v.Last != want[i] {
			t.Errorf("node %q is read last by %d, want %d", g.Nodes[i].Name, v.Last, want[i])
		}
	}
}

func TestStagingOfAValueForTwoDevices(t *testing.T) {
	_, p := plan(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Scale(%0) {Factor=2} "y" F32 [16] @a
%2 = Silu(%1) "on_b" F32 [16] @b
%3 = Silu(%1) "on_c" F32 [16] @c
%4 = Add(%2 %1) "again_b" F32 [16] @b
output %3 %4
`)
	want := []alloc.Staging{
		{Value: 1, Device: "b", Bytes: 64, Reader: 2},
		{Value: 1, Device: "c", Bytes: 64, Reader: 3},
	}
	if !reflect.DeepEqual(p.Staging, want) {
		t.Errorf("staging %+v, want %+v", p.Staging, want)
	}
	if p.Values[1].Last != 4 {
		t.Errorf("last reader %d, want 4 on another device", p.Values[1].Last)
	}
}

func TestRegionsOfAPlan(t *testing.T) {
	g, err := graphtest.Decoder(graph.Params{Tokens: 2, Outputs: 1, Cells: 20, KVType: graph.F16}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range g.Nodes {
		g.Nodes[i].Device = "a"
	}
	p, err := alloc.NewPlan(g)
	if err != nil {
		t.Fatal(err)
	}
	want := []alloc.Region{
		{Layer: 0, Device: "a", Width: 8, Cells: 20, Type: graph.F16},
		{Layer: 1, Device: "a", Width: 8, Cells: 20, Type: graph.F16},
	}
	if !reflect.DeepEqual(p.Regions, want) {
		t.Errorf("regions %+v, want %+v", p.Regions, want)
	}
	newMemory(t, g, p).run()
}

func TestPlanErrors(t *testing.T) {
	const head = "graph {Tokens=1 Outputs=1 Cells=16}\n" + `%0 = Input() "x" F32 [8] @a` + "\n" + `%1 = Input() "n" I32 [1] @a` + "\n"
	tests := []struct{ name, text, want string }{
		{"no device", head + `%2 = Silu(%0) "s" F32 [8]
output %2`, `alloc: node "s" (Silu): has no device: no memory plan`},
		{"view elsewhere", head + `%2 = Reshape(%0) {Shape=[4 2 1 1]} "r" F32 [4 2] @b
output %2`, `alloc: node "r" (Reshape): is a view on device "b" of a value on device "a": no memory plan`},
		{"layer on two devices", head + `%2 = KVStore(%0 %0 %1) {Layer=3} "store" F32 [8] @a
%3 = KVLoad(%2) {Layer=3} "kv" F32 [8 16] @b
%4 = Attention(%0 %3 %1) {Layer=3 Heads=2 KVHeads=2 HeadDim=4 Scale=1} "attn" F32 [8] @b
output %4`, `alloc: node "kv" (KVLoad): wants regions of layer 3 with 16 cells of 8 F32 on device "b", but earlier nodes of the layer want regions of layer 3 with 16 cells of 8 F32 on device "a": no memory plan`},
		{"region read by other than attention", head + `%2 = KVStore(%0 %0 %1) "store" F32 [8] @a
%3 = KVLoad(%2) "kv" F32 [8 16] @a
%4 = Silu(%3) "s" F32 [8 16] @a
output %4`, `alloc: node "s" (Silu): reads the key and value region "kv", which only attention can: no memory plan`},
		{"view of a region", head + `%2 = KVStore(%0 %0 %1) "store" F32 [8] @a
%3 = KVLoad(%2) "kv" F32 [8 16] @a
%4 = Reshape(%3) {Shape=[128 1 1 1]} "r" F32 [128] @a
output %4`, `alloc: node "r" (Reshape): is a view of a key and value region: no memory plan`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := alloc.NewPlan(parse(t, tt.text))
			if err == nil || err.Error() != tt.want {
				t.Fatalf("got  %v\nwant %s", err, tt.want)
			}
			if !errors.Is(err, alloc.ErrPlan) {
				t.Error("is not ErrPlan")
			}
		})
	}
	broken := parse(t, head+`%2 = Silu(%0) "s" F32 [8] @a
output %2`)
	broken.Nodes[2].Shape[0] = 9
	if _, err := alloc.NewPlan(broken); !errors.Is(err, graph.ErrInvalid) || !strings.Contains(err.Error(), `"s"`) {
		t.Errorf("a faulty graph: %v", err)
	}
}

func TestDeadNodesGetNothing(t *testing.T) {
	_, p := plan(t, `graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Input() "unused" F32 [16]
%2 = Silu(%0) "dead" F32 [16]
%3 = Scale(%0) {Factor=2} "y" F32 [16] @a
output %3
`)
	for _, id := range []int{1, 2} {
		if v := p.Values[id]; !v.Dead || v.Bytes != 0 {
			t.Errorf("node %d: %+v", id, v)
		}
	}
	if p.Arena("a") != 128 {
		t.Errorf("arena of %d bytes, want 128", p.Arena("a"))
	}
}

func BenchmarkPlan(b *testing.B) {
	g, err := graphtest.Decoder(graph.Params{Tokens: 64, Outputs: 1, Cells: 512}, 32)
	if err != nil {
		b.Fatal(err)
	}
	for i := range g.Nodes {
		g.Nodes[i].Device = "a"
	}
	for b.Loop() {
		p, err := alloc.NewPlan(g)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(p.Arena("a")), "peak-B")
	}
}
