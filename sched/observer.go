package sched

import (
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// Observer is told of every node that is computed, and may read its value.
type Observer interface {
	// Before is called when the node's sources are there and it is about to run.
	Before(step *Step)
	// After is called when the node has run; the device may still be computing, and
	// Step.Read waits for it. An error ends the execution.
	After(step *Step) error
}

// SetObserver sets who is told of every node, or nobody if o is nil, which costs nothing.
// With an observer, devices do not replay recorded runs, and those that must be told
// that values will be read (backend.Capturer) are.
func (p *Program) SetObserver(o Observer) {
	if (p.observer != nil) != (o != nil) {
		for _, d := range p.devices {
			if c, ok := d.(backend.Capturer); ok {
				c.Capture(o != nil)
			}
		}
	}
	p.observer = o
}

// Step is a node about to be computed, or just computed.
type Step struct {
	program         *Program
	node            *graph.Node
	device          backend.Backend
	in              []backend.Operand
	out             backend.Operand
	kv              *backend.KV
	waits, waitsEnd int // range in Program.copies to wait for first
}

// Node returns the node, which must not be changed.
func (s *Step) Node() *graph.Node { return s.node }

// Device returns the name of the device that computes the node.
func (s *Step) Device() string { return s.node.Device }

// Bytes returns the size of the node's value: 0 if it is a key and value region.
func (s *Step) Bytes() int { return s.out.Buffer.Size }

// Read waits for the node's value and copies its first len(dst) bytes to dst, in the
// layout of package graph. It is of use within Observer.After, since later nodes may
// reuse the memory.
func (s *Step) Read(dst []byte) error { return s.read(s.out, dst) }

// ReadSource copies the first len(dst) bytes of the node's source i to dst. It is of use
// within Observer.Before, since the node may compute in place.
func (s *Step) ReadSource(i int, dst []byte) error {
	if i < 0 || i >= len(s.in) {
		return fmt.Errorf("sched: node %q has no source %d: %w", s.node.Name, i, ErrOutput)
	}
	return s.read(s.in[i], dst)
}

func (s *Step) read(o backend.Operand, dst []byte) error {
	if len(dst) > o.Buffer.Size {
		return fmt.Errorf("sched: %d bytes of a value of node %q, which has %d: %w", len(dst), s.node.Name, o.Buffer.Size, ErrOutput)
	}
	return s.device.ReadHost(dst, o.Buffer)
}
