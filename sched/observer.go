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
	// Step.Wait and Step.Read wait for it. An error ends the execution.
	After(step *Step) error
}

// SetObserver sets who is told of every node from the next execution on, or nobody if o is
// nil, which costs nothing. While a program with an observer is executed, devices do not
// replay recorded runs, and those that must be told that values will be read
// (backend.Capturer) are; Program.Captured lists both.
func (p *Program) SetObserver(o Observer) { p.observer = o }

// capture tells devices that values of nodes will be read, or no longer.
func (p *Program) capture(on bool) {
	if p.observer == nil {
		return
	}
	for _, d := range p.devices {
		if c, ok := d.(backend.Capturer); ok {
			c.Capture(on)
		}
	}
}

// Captured lists the devices of the program's splits that run otherwise when there is an
// observer: node by node instead of from a recording, or without shortcuts that leave
// values out. Results are the same.
func (p *Program) Captured() []string {
	var names []string
	seen := make(map[string]bool)
	for _, r := range p.runs {
		_, captures := r.device.(backend.Capturer)
		replays := r.replayer != nil && !p.noReplay
		if (captures || replays) && !seen[r.split.Device] {
			seen[r.split.Device] = true
			names = append(names, r.split.Device)
		}
	}
	return names
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

// Graph returns the graph that the node is of, which must not be changed.
func (s *Step) Graph() *graph.Graph { return s.program.graph }

// Device returns the name of the device that computes the node.
func (s *Step) Device() string { return s.node.Device }

// Bytes returns the size of the node's value: 0 if it is a key and value region.
func (s *Step) Bytes() int { return s.out.Buffer.Size }

// Wait returns when the device has computed the node, and all before it.
func (s *Step) Wait() error { return s.device.Synchronize() }

// Read waits for the node's value and copies len(dst) bytes of it, from byte offset on, to
// dst, in the layout of package graph. It is of use within Observer.After, since later nodes
// may reuse the memory.
func (s *Step) Read(offset int, dst []byte) error { return s.read(s.out, offset, dst) }

// ReadSource is Read for the node's source i. It is of use within Observer.Before, since the
// node may compute in place.
func (s *Step) ReadSource(i, offset int, dst []byte) error {
	if i < 0 || i >= len(s.in) {
		return fmt.Errorf("sched: node %q has no source %d: %w", s.node.Name, i, ErrOutput)
	}
	return s.read(s.in[i], offset, dst)
}

func (s *Step) read(o backend.Operand, offset int, dst []byte) error {
	if offset < 0 || len(dst) > o.Buffer.Size || offset > o.Buffer.Size-len(dst) {
		return fmt.Errorf("sched: %d bytes from %d on of a value of node %q, which has %d: %w", len(dst), offset, s.node.Name, o.Buffer.Size, ErrOutput)
	}
	return s.device.ReadHost(dst, o.Buffer.Slice(offset, len(dst)))
}
