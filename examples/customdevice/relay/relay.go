// Package relay is a device for minfer that lives outside of the library: it hands work to
// a computer that the host cannot look into. To keep the example whole, that other
// computer is a goroutine, which owns a CPU device that nobody else can reach; with a
// network connection in the place of the channel, it could be another machine.
//
// Importing the package registers the device "relay". It takes the matrix products and
// the operations around them, and leaves lookups and attention to others:
//
//	m, err := minfer.Open(path, minfer.WithBackends("relay", "cpu"))
//
// [Register] makes kinds of relay that take other operations.
//
// # Memory
//
// A buffer lies on the other side. Bytes get there by WriteHost and come back by ReadHost
// or CopyAcross; the handles that the host has are numbers in a table of this side.
//
// # Order and errors
//
// Commands go through a queue and are carried out in order. Execute, WriteHost, Free and
// CopyAcross only put a command there and return, so the host gets ahead of the device.
// What can be checked on this side, such as handles, fails at once. A node that fails
// later makes the device skip all nodes and copies behind it, until a call that waits
// has reported the error: ReadHost or Synchronize. After that it is in working order.
//
// # Results
//
// Results have the bits of the CPU device, since one computes them.
//
// A device is used by one goroutine at a time, as package backend says.
package relay

import (
	"fmt"
	"sync/atomic"

	"github.com/minfer/minfer/backend"
	_ "github.com/minfer/minfer/backend/cpu" // what computes on the other side
	"github.com/minfer/minfer/graph"
)

// Options describe a kind of relay.
type Options struct {
	Name     string // what hosts choose it by
	ID       backend.ID
	Priority int // among devices that nobody has named; the CPU has 100

	// Takes reports whether the device runs an operation that the CPU has, with results
	// of the given type. Nil means all.
	Takes func(op graph.Op, t graph.DType) bool
	// NoExplicitSpan and NoPackedKV take from attention what these capabilities stand for.
	NoExplicitSpan, NoPackedKV bool

	// Available says why the device cannot be used here. Nil means that it can.
	Available func() error
	// Before, if not nil, is called on the device's side before each node runs. An error
	// fails the node.
	Before func(n *graph.Node) error
	// Queue is how many commands may wait. 0 means 64.
	Queue int
}

// Kind is a registered kind of relay, with counts over all its devices.
type Kind struct {
	options      Options
	capabilities backend.Capabilities
	nodes        atomic.Int64
	written      atomic.Int64
	read         atomic.Int64
	copied       atomic.Int64
}

// Traffic is what went to devices of a kind and came back.
type Traffic struct {
	Nodes   int64 // nodes that were run
	Written int64 // bytes that the host wrote, other devices included
	Read    int64 // bytes that the host read
	Copied  int64 // bytes copied to other devices
}

// Traffic returns the counts so far.
func (k *Kind) Traffic() Traffic {
	return Traffic{k.nodes.Load(), k.written.Load(), k.read.Load(), k.copied.Load()}
}

// Register makes a kind of relay known, from then on and for good. Like backend.Register
// it panics if the name or the ID is taken.
func Register(o Options) *Kind {
	if o.Queue == 0 {
		o.Queue = 64
	}
	k := &Kind{options: o}
	k.capabilities = backend.Capabilities{
		Supports:     k.supports,
		ExplicitSpan: !o.NoExplicitSpan,
		PackedKV:     !o.NoPackedKV,
	}
	backend.Register(backend.Entry{
		Name:         o.Name,
		ID:           o.ID,
		Priority:     o.Priority,
		Available:    k.available,
		Capabilities: &k.capabilities,
		Open:         k.open,
	})
	return k
}

// supports is asked of operations with their payload. What nobody computes, such as a
// view, comes with the operations that read it.
func (k *Kind) supports(op graph.Op, t graph.DType) bool {
	cpu, _, err := backend.Lookup("cpu")
	if err != nil || !cpu.Capabilities.Supports(op, t) {
		return false
	}
	return k.options.Takes == nil || !graph.Computed(op) || k.options.Takes(op, t)
}

func (k *Kind) available() error {
	if _, _, err := backend.Lookup("cpu"); err != nil {
		return err
	}
	if k.options.Available == nil {
		return nil
	}
	return k.options.Available()
}

func (k *Kind) open(c backend.Config) (backend.Backend, error) {
	engine, err := backend.Open("cpu", backend.Config{Threads: c.Threads})
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return newDevice(k, c.Name, engine), nil
}

// Default is the kind that importing the package registers. Its priority is below the
// CPU's, so that it is used only when it is named.
var Default = Register(Options{Name: "relay", ID: 1000, Priority: 50, Takes: takes})

// takes are the operations of the default kind: matrix products and what lies between
// them, so that not every value has to cross.
func takes(op graph.Op, _ graph.DType) bool {
	switch op.(type) {
	case graph.MatMul, graph.RMSNorm, graph.Add, graph.Silu, graph.Mul, graph.SwiGLU, graph.FusedFFN:
		return true
	}
	return false
}
