package null_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestMemory(t *testing.T) {
	d := null.New("a", null.Everything(), null.Limit(100))
	dirty := must[backend.Buffer](t)(d.Alloc(40))
	clean := must[backend.Buffer](t)(d.AllocFresh(40))
	got := make([]byte, 40)
	if err := d.ReadHost(got, dirty); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{0xFF}, 40)) {
		t.Errorf("new memory holds %v (%v)", got, err)
	}
	if err := d.ReadHost(got, clean); err != nil || !bytes.Equal(got, make([]byte, 40)) {
		t.Errorf("fresh memory holds %v (%v)", got, err)
	}
	if _, err := d.Alloc(21); !errors.Is(err, null.ErrMemory) {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := d.WriteHost(clean.Slice(10, 4), []byte{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	if err := d.ReadHost(got[:6], clean.Slice(9, 6)); err != nil || !bytes.Equal(got[:6], []byte{0, 1, 2, 3, 4, 0}) {
		t.Errorf("window holds %v (%v)", got[:6], err)
	}
	if err := d.WriteHost(clean.Slice(30, 20), make([]byte, 20)); !errors.Is(err, null.ErrMemory) {
		t.Errorf("beyond the end: %v", err)
	}
	if err := d.ReadHost(got, clean.Slice(0, 39)); !errors.Is(err, null.ErrMemory) {
		t.Errorf("more than the buffer: %v", err)
	}
	d.Free(clean)
	if err := d.ReadHost(got[:1], clean); !errors.Is(err, null.ErrMemory) {
		t.Errorf("after Free: %v", err)
	}
	if s := d.PoolStats(); s.Buffers != 1 || s.BufferBytes != 40 {
		t.Errorf("%+v", s)
	}
	defer func() {
		if recover() == nil {
			t.Error("freeing twice went unnoticed")
		}
	}()
	d.Free(clean)
}

// A copy that nobody waits for has not arrived, and one waited for brings what the source
// holds then.
func TestAsyncCopies(t *testing.T) {
	a, b := null.New("a", null.Everything(), null.Async()), null.New("b", null.Everything())
	from, to := must[backend.Buffer](t)(a.AllocFresh(4)), must[backend.Buffer](t)(b.AllocFresh(4))
	fence := must[backend.Fence](t)(a.CopyAcross(b, to, from))
	got := make([]byte, 4)
	if err := b.ReadHost(got, to); err != nil || got[0] != 0xFF || a.Pending() != 1 {
		t.Errorf("before the wait: %v, %d pending (%v)", got, a.Pending(), err)
	}
	if err := a.WriteHost(from, []byte{9, 9, 9, 9}); err != nil {
		t.Fatal(err)
	}
	if err := a.WaitCopy(fence); err != nil {
		t.Fatal(err)
	}
	if err := b.ReadHost(got, to); err != nil || got[0] != 9 || a.Pending() != 0 {
		t.Errorf("after the wait: %v, %d pending (%v)", got, a.Pending(), err)
	}
	if err := a.WaitCopy(fence + 1); err == nil {
		t.Error("waited for a copy that was never begun")
	}
	if _, err := a.CopyAcross(b, to.Slice(0, 3), from); !errors.Is(err, null.ErrMemory) {
		t.Errorf("sizes differ: %v", err)
	}
	must[backend.Fence](t)(a.CopyAcross(b, to, from))
	if err := a.Synchronize(); err != nil || a.Pending() != 0 {
		t.Errorf("%d pending after Synchronize (%v)", a.Pending(), err)
	}
}

func TestExecuteChecksOperands(t *testing.T) {
	d := null.New("a", null.Only(graph.KindAdd, graph.KindMatMul, graph.KindRoPE))
	buf := must[backend.Buffer](t)(d.Alloc(256))
	op := func(at int) backend.Operand {
		return backend.Operand{Buffer: buf.Slice(at, 16), Shape: graph.ShapeOf(4), Type: graph.F32}
	}
	node := func(op graph.Op, sources ...graph.NodeID) *graph.Node {
		n := &graph.Node{ID: 9, Name: "n", Op: op, Shape: graph.ShapeOf(4)}
		if err := n.SetSources(sources...); err != nil {
			t.Fatal(err)
		}
		return n
	}
	add, matmul := node(graph.Add{}, 0, 1), node(graph.MatMul{}, 0)
	freed := must[backend.Buffer](t)(d.Alloc(16))
	d.Free(freed)
	gone := op(0)
	gone.Buffer = freed
	small := op(0)
	small.Buffer.Size = 8
	tests := []struct {
		name string
		node *graph.Node
		in   []backend.Operand
		out  backend.Operand
		kv   *backend.KV
		ok   bool
	}{
		{"apart", add, []backend.Operand{op(0), op(64)}, op(128), nil, true},
		{"in place of the first", add, []backend.Operand{op(0), op(64)}, op(0), nil, true},
		{"in place of the second", add, []backend.Operand{op(0), op(64)}, op(64), nil, true},
		{"partly over a source", add, []backend.Operand{op(0), op(64)}, op(8), nil, false},
		{"in place, not allowed", matmul, []backend.Operand{op(0)}, op(0), nil, false},
		{"too few sources", add, []backend.Operand{op(0)}, op(128), nil, false},
		{"freed", add, []backend.Operand{op(0), gone}, op(128), nil, false},
		{"too small", add, []backend.Operand{op(0), op(64)}, small, nil, false},
		{"regions for nothing", add, []backend.Operand{op(0), op(64)}, op(128), &backend.KV{}, false},
		{"not supported", node(graph.Silu{}, 0), []backend.Operand{op(0)}, op(64), nil, false},
	}
	for _, tt := range tests {
		err := d.Execute(tt.node, tt.in, tt.out, tt.kv)
		var ne *backend.NodeError
		if (err == nil) != tt.ok || err != nil && !errors.As(err, &ne) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestFaultsAndLog(t *testing.T) {
	d := null.New("a", null.Everything(), null.Logged())
	boom := errors.New("boom")
	if err := d.Synchronize(); err != nil {
		t.Fatal(err)
	}
	d.FailOn(null.Synchronize, 2, boom)
	for i, want := range []error{nil, boom, nil} {
		if err := d.Synchronize(); err != want {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	if d.Calls(null.Synchronize) != 4 || len(d.Log()) != 4 || d.Log()[0].Method != null.Synchronize {
		t.Errorf("%d calls, log %v", d.Calls(null.Synchronize), d.Log())
	}
	d.ClearLog()
	if len(d.Log()) != 0 {
		t.Error("log is not empty")
	}
	if err := d.LoadWeights(context.Background(), []backend.Weight{{Data: make([]byte, 5)}}, func(done, total int64) {
		if done != 5 || total != 5 {
			t.Errorf("%d of %d", done, total)
		}
	}); err != nil || d.PoolStats().WeightBytes != 5 {
		t.Errorf("%+v (%v)", d.PoolStats(), err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Synchronize(); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func ExampleNew() {
	gpu := null.New("gpu", null.Only(graph.KindMatMul), null.Async())
	fmt.Println(gpu.Name(), gpu.Capabilities().Supports(graph.Add{}, graph.F32))
	// Output: gpu false
}
