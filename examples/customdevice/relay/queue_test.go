package relay_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/examples/customdevice/relay"
	"github.com/minfer/minfer/graph"
)

// before is what the relay of these tests calls before each node.
var before atomic.Pointer[func(*graph.Node) error]

var _ = relay.Register(relay.Options{Name: "relay-watched", ID: 2001, Before: func(n *graph.Node) error {
	if f := before.Load(); f != nil {
		return (*f)(n)
	}
	return nil
}})

func watch(t *testing.T, f func(*graph.Node) error) {
	before.Store(&f)
	t.Cleanup(func() { before.Store(nil) })
}

// bench is a device with a value of four numbers, and a node that doubles it in place.
type bench struct {
	*testing.T
	backend.Backend
	value backend.Operand
	twice *graph.Node
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, Backend: opener("relay-watched")(t)}
	t.Cleanup(func() {
		if err := b.Close(); err != nil && !errors.Is(err, backend.ErrClosed) {
			t.Error(err)
		}
	})
	buf, err := b.Alloc(16)
	b.check(err)
	b.value = backend.Operand{Buffer: buf, Shape: graph.ShapeOf(4), Type: graph.F32}
	gb := graph.NewBuilder(graph.Params{})
	gb.Output(gb.Scale("twice", gb.Input("x", graph.F32, 4), 2))
	g, err := gb.Build()
	b.check(err)
	b.twice = g.Lookup("twice")
	b.write(1)
	return b
}

func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func fourTimes(v float32) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)), 4)
}

func (b *bench) write(v float32) {
	b.Helper()
	b.check(b.WriteHost(b.value.Buffer, fourTimes(v)))
}

func (b *bench) double() error {
	return b.Execute(b.twice, []backend.Operand{b.value}, b.value, nil)
}

func (b *bench) holds(v float32) {
	b.Helper()
	got := make([]byte, 16)
	b.check(b.ReadHost(got, b.value.Buffer))
	if !bytes.Equal(got, fourTimes(v)) {
		b.Fatalf("the value is % x, want % x", got, fourTimes(v))
	}
}

// TestHostGetsAhead holds the device up, and checks that calls return all the same, in
// order, and that reading waits.
func TestHostGetsAhead(t *testing.T) {
	b := newBench(t)
	cpu, err := backend.Open("cpu", backend.Config{Threads: 1})
	b.check(err)
	defer cpu.Close()
	there, err := cpu.Alloc(16)
	b.check(err)
	b.check(cpu.WriteHost(there, fourTimes(0)))
	hold := make(chan struct{})
	watch(t, func(*graph.Node) error { <-hold; return nil })

	b.check(b.double()) // 2
	fence, err := b.CopyAcross(cpu, there, b.value.Buffer)
	b.check(err)
	b.check(b.double()) // 4
	b.write(10)
	b.check(b.double()) // 20

	read := make([]byte, 16)
	arrived := make(chan error, 1)
	go func() { arrived <- b.ReadHost(read, b.value.Buffer) }()
	select {
	case <-arrived:
		t.Fatal("reading did not wait for the device")
	default:
	}
	close(hold)
	b.check(<-arrived)
	if !bytes.Equal(read, fourTimes(20)) {
		t.Errorf("the value is % x, want four times 20", read)
	}
	got := make([]byte, 16)
	b.check(cpu.ReadHost(got, there))
	if !bytes.Equal(got, fourTimes(0)) {
		t.Error("the copy arrived before anybody waited for it")
	}
	b.check(b.WaitCopy(fence))
	b.check(cpu.ReadHost(got, there))
	if !bytes.Equal(got, fourTimes(2)) {
		t.Errorf("the copy is % x, want four times 2: the value when it was asked for", got)
	}
	if err := b.WaitCopy(fence); !errors.Is(err, relay.ErrFence) {
		t.Errorf("waiting again returned %v", err)
	}
}

// TestFailureIsReportedOnce has a node fail, by an error and by a panic, and looks at
// who is told.
func TestFailureIsReportedOnce(t *testing.T) {
	boom := errors.New("boom")
	for _, how := range []func(*graph.Node) error{
		func(*graph.Node) error { return boom },
		func(*graph.Node) error { panic(boom) },
	} {
		b := newBench(t)
		other := newBench(t)
		watch(t, how)
		b.check(b.double())
		fence, err := b.CopyAcross(other.Backend, other.value.Buffer, b.value.Buffer)
		b.check(err)
		b.check(b.double()) // is skipped: it may depend on the first
		var e *backend.NodeError
		if err := b.WaitCopy(fence); !errors.As(err, &e) || e.Node != "twice" || e.Device != "relay-watched" {
			t.Errorf("the copy returned %v", err)
		}
		if err := b.Synchronize(); !errors.As(err, &e) || e.Node != "twice" {
			t.Errorf("Synchronize returned %v", err)
		}
		b.check(b.Synchronize())
		before.Store(nil)
		b.holds(1)
		b.check(b.double())
		b.holds(2)
		other.holds(1)

		watch(t, how)
		b.check(b.double())
		if err := b.ReadHost(make([]byte, 16), b.value.Buffer); !errors.As(err, &e) {
			t.Errorf("ReadHost returned %v", err)
		}
		before.Store(nil)
		b.holds(2)
	}
}

// TestCallerKeepsItsArguments changes all that was given to calls before the device gets
// to them.
func TestCallerKeepsItsArguments(t *testing.T) {
	b := newBench(t)
	hold := make(chan struct{})
	watch(t, func(*graph.Node) error { <-hold; return nil })
	node, in := *b.twice, []backend.Operand{b.value}
	b.check(b.Execute(&node, in, b.value, nil))
	node.Op, in[0] = graph.Scale{Factor: 100}, backend.Operand{}
	data := fourTimes(3)
	second, err := func() (backend.Buffer, error) { close(hold); return b.Alloc(16) }()
	b.check(err)
	b.check(b.WriteHost(second, data))
	clear(data)
	b.holds(2)
	got := make([]byte, 16)
	b.check(b.ReadHost(got, second))
	if !bytes.Equal(got, fourTimes(3)) {
		t.Errorf("the second value is % x", got)
	}
}

// TestCloseWithWorkQueued closes a device that has not got to its commands yet.
func TestCloseWithWorkQueued(t *testing.T) {
	b := newBench(t)
	var ran atomic.Int32
	hold := make(chan struct{})
	watch(t, func(*graph.Node) error { <-hold; ran.Add(1); return nil })
	for range 5 {
		b.check(b.double())
	}
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	close(hold)
	b.check(<-closed)
	if n := ran.Load(); n != 5 {
		t.Errorf("%d of 5 nodes ran before the device was closed", n)
	}
	if err := b.double(); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("after Close, Execute returned %v", err)
	}
	if err := b.WaitCopy(1); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("after Close, WaitCopy returned %v", err)
	}
	if err := b.Close(); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("Close again returned %v", err)
	}
	if err := b.LoadWeights(context.Background(), nil, nil); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("after Close, LoadWeights returned %v", err)
	}
}

// TestHandlesAreOfOneDevice checks that a handle of another device is refused, even of
// the device that computes on the other side.
func TestHandlesAreOfOneDevice(t *testing.T) {
	b := newBench(t)
	cpu, err := backend.Open("cpu", backend.Config{Threads: 1})
	b.check(err)
	defer cpu.Close()
	theirs, err := cpu.Alloc(16)
	b.check(err)
	if err := b.WriteHost(theirs, fourTimes(9)); !errors.Is(err, relay.ErrBuffer) {
		t.Errorf("WriteHost returned %v", err)
	}
	if err := cpu.ReadHost(make([]byte, 16), b.value.Buffer); err == nil {
		t.Error("the CPU read from a handle of the relay")
	}
	b.holds(1)
}
