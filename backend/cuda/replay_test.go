//go:build cuda

package cuda

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// bench is a device with the values of a small graph.
type bench struct {
	t      *testing.T
	d      *device
	g      *graph.Graph
	values []backend.Operand
}

// newBench builds out = table[ids] + table[ids], over four ids.
func newBench(t *testing.T) *bench {
	d := openTest(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	table := make([]byte, 0, 4*3*8)
	for i := range 3 * 8 {
		table = binary.LittleEndian.AppendUint32(table, math.Float32bits(float32(i)))
	}
	w := backend.Weight{Name: "table", Type: "F32", In: 8, Out: 3, Data: table}
	if err := d.LoadWeights(t.Context(), []backend.Weight{w}, nil); err != nil {
		t.Fatal(err)
	}
	b := graph.NewBuilder(graph.Params{})
	ids := b.Input("ids", graph.I32, 4)
	rows := b.Node("rows", graph.Embed{Weight: "table", Type: "F32", Dim: 8, Vocab: 3}, ids)
	b.Output(b.Add("out", rows, rows))
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	x := &bench{t: t, d: d, g: g}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		buf, err := d.Alloc(n.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		x.values = append(x.values, backend.Operand{Buffer: buf, Shape: n.Shape, Type: n.Type})
	}
	return x
}

// run runs the graph as the scheduler does, and reports whether it was replayed.
func (x *bench) run(uid uint64, ids ...int32) (replayed bool, err error) {
	x.t.Helper()
	raw := make([]byte, 16)
	for i, v := range ids {
		binary.LittleEndian.PutUint32(raw[4*i:], uint32(v))
	}
	if err := x.d.WriteHost(x.values[0].Buffer, raw); err != nil {
		return false, err
	}
	if replayed, err = x.d.Replay(uid, 1, 3); err != nil || replayed {
		return replayed, errors.Join(err, x.d.Synchronize())
	}
	for i := 1; i < len(x.g.Nodes); i++ {
		n := &x.g.Nodes[i]
		var in []backend.Operand
		for _, s := range n.Sources() {
			in = append(in, x.values[s])
		}
		if err := x.d.Execute(n, in, x.values[i], nil); err != nil {
			return false, err
		}
	}
	return false, x.d.Synchronize()
}

// check runs the graph and compares.
func (x *bench) check(uid uint64, want bool, ids ...int32) {
	x.t.Helper()
	replayed, err := x.run(uid, ids...)
	if err != nil {
		x.t.Fatal(err)
	}
	if replayed != want {
		x.t.Errorf("replayed: %v, want %v", replayed, want)
	}
	got := make([]byte, x.values[2].Buffer.Size)
	if err := x.d.ReadHost(got, x.values[2].Buffer); err != nil {
		x.t.Fatal(err)
	}
	for i, id := range ids {
		for k := range 8 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*(8*i+k):]))
			if w := 2 * float32(8*int(id)+k); v != w {
				x.t.Fatalf("token %d, feature %d: %v, want %v", i, k, v, w)
			}
		}
	}
}

func TestReplay(t *testing.T) {
	x := newBench(t)
	x.check(1, false, 0, 1, 2, 0)
	x.check(1, false, 2, 1, 2, 0) // recorded
	x.check(1, true, 1, 1, 0, 0)
	x.check(2, false, 0, 2, 2, 0) // another binding
	x.check(1, true, 2, 2, 2, 2)
	x.check(2, false, 1, 0, 0, 2)
	x.check(2, true, 1, 2, 0, 2)

	// A fault in a replayed run names its node, and leaves the device in working order.
	var node *backend.NodeError
	if _, err := x.run(1, 0, 1, 7, 0); !errors.As(err, &node) || node.Node != "rows" || !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "7") {
		t.Errorf("an id out of range in a replayed run: %v", err)
	}
	x.check(1, true, 0, 1, 1, 0)

	// While values are read in between, nothing is replayed.
	x.d.Capture(true)
	x.check(1, false, 2, 0, 1, 0)
	x.check(1, false, 2, 0, 1, 1)
	x.d.Capture(false)
	x.check(1, true, 0, 0, 1, 2)

	// Memory that a recording uses moves.
	if err := x.d.do(func() error { return x.d.grow(&x.d.scratch[scratchParts], 1<<20) }); err != nil {
		t.Fatal(err)
	}
	x.check(1, false, 1, 0, 1, 2)
	x.check(1, false, 1, 1, 1, 2)
	x.check(1, true, 1, 2, 1, 2)

	// A run that is broken off is not recorded.
	x.check(3, false, 1, 0, 1, 2)
	if _, err := x.d.Replay(3, 1, 3); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Execute(x.g.Node(1), []backend.Operand{x.values[0]}, x.values[1], nil); err != nil {
		t.Fatal(err)
	}
	if err := x.d.WriteHost(x.values[0].Buffer, make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Synchronize(); err != nil {
		t.Fatal(err)
	}
	x.check(3, false, 1, 0, 1, 2)
	x.check(3, true, 1, 2, 1, 2)

	// Only so many are kept.
	for uid := range uint64(2 * maxRecordings) {
		x.check(100+uid, false, 0, 1, 2, 0)
	}
	if n := len(x.d.recordings.list); n > maxRecordings {
		t.Errorf("%d recordings are kept, want at most %d", n, maxRecordings)
	}
}
