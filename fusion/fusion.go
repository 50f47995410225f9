// Package fusion rewrites an assigned graph so that chains of operations become
// single ones where the device has them.
//
// # When
//
// [Run] comes after assignment, because whether a rewrite pays is a question to the
// device that runs the nodes, and before memory is planned, because a rewrite leaves
// nodes behind that need none.
//
// # Passes
//
// Passes are rows of an ordered table, each with a name, the switch in graph.Fusion
// that turns it on, and the operation it makes. A pass rewrites a node in place and
// never adds, moves or removes one: execution order and ids stay as they were, and
// what is no longer read is dead (graph.Graph.Live). Equal graphs are rewritten
// equally.
//
// A rewrite must not change a bit of any result on the same device. It happens only
// where nobody else reads the values that it does away with, and they are not
// outputs, and all of its nodes are on one device.
//
// The larger fusions (graph.FusedQKV and its kin) are not found by rewriting: a
// model's definition builds them itself when Params says so. But one of them is rewritten in turn:
// a graph.FusedFFN takes in the product that reads it, on a device that keeps what is between them in
// a form of its own.
//
// # Sources
//
// SwiGLU: Shazeer, GLU Variants Improve Transformer, 2020.
package fusion

import (
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// pass is a rewrite that looks at one node at a time, in build order.
type pass struct {
	name    string
	enabled func(graph.Fusion) bool
	// fuse returns the operation that a node is to become, and its sources; or nil.
	fuse func(m *matcher, n *graph.Node) (graph.Op, []graph.NodeID)
}

// passes run in this order.
var passes = []pass{
	{
		name:    "swiglu",
		enabled: func(f graph.Fusion) bool { return f.SwiGLU },
		fuse:    swiglu,
	},
	{
		name:    "ffn-down",
		enabled: func(f graph.Fusion) bool { return f.FFNDown },
		fuse:    ffnDown,
	},
}

// Run rewrites g by every pass that its Params switch on, where caps says that the
// node's device has the fused operation, and returns how many rewrites it made. Caps
// returns nil for a device that is not known. The rewritten graph is verified; an
// error means that a pass broke a rule of graph.Graph.Verify, and names it.
func Run(g *graph.Graph, caps func(device string) *backend.Capabilities) (rewrites int, err error) {
	for _, p := range passes {
		if !p.enabled(g.Params.Fusion) {
			continue
		}
		n := p.run(g, caps)
		if n == 0 {
			continue
		}
		rewrites += n
		if err := g.Verify(); err != nil {
			return rewrites, fmt.Errorf("fusion: pass %s left a faulty graph: %w", p.name, err)
		}
	}
	return rewrites, nil
}

func (p *pass) run(g *graph.Graph, caps func(string) *backend.Capabilities) int {
	m := newMatcher(g)
	rewrites := 0
	for i := range g.Nodes {
		n := &g.Nodes[i]
		c := caps(n.Device)
		if !m.live[i] || c == nil {
			continue
		}
		op, sources := p.fuse(m, n)
		if op == nil || !c.Supports(op, n.Type) {
			continue
		}
		if n.SetSources(sources...) == nil {
			n.Op = op
			rewrites++
		}
	}
	return rewrites
}

// matcher answers what a pass has to know of the nodes around the one it looks at.
// Its counts are those before the pass. A pass that fuses a node makes it dead and
// gives its sources the fused node as a reader instead, so no count grows.
type matcher struct {
	graph     *graph.Graph
	live      []bool
	consumers []int
	output    []bool
}

func newMatcher(g *graph.Graph) *matcher {
	m := &matcher{graph: g, live: g.Live(), consumers: g.Consumers(), output: make([]bool, len(g.Nodes))}
	for _, id := range g.Outputs {
		m.output[id] = true
	}
	return m
}

// private returns the node if reader is all that reads its value and both run on one
// device, so that the value need not exist; otherwise nil.
func (m *matcher) private(id graph.NodeID, reader *graph.Node) *graph.Node {
	n := m.graph.Node(id)
	if m.consumers[id] != 1 || m.output[id] || n.Device != reader.Device {
		return nil
	}
	return n
}

// swiglu rewrites Mul(Silu(x), y) and Mul(y, Silu(x)) to SwiGLU(x, y).
func swiglu(m *matcher, n *graph.Node) (graph.Op, []graph.NodeID) {
	if n.Op != (graph.Mul{}) {
		return nil, nil
	}
	for side, id := range n.Sources() {
		gate := m.private(id, n)
		if gate == nil || gate.Op != (graph.Silu{}) {
			continue
		}
		return graph.SwiGLU{}, []graph.NodeID{gate.Sources()[0], n.Sources()[1-side]}
	}
	return nil, nil
}

// ffnDown rewrites MatMul(FusedFFN(x)) to FusedFFNDown(x).
func ffnDown(m *matcher, n *graph.Node) (graph.Op, []graph.NodeID) {
	down, ok := n.Op.(graph.MatMul)
	if !ok {
		return nil, nil
	}
	ffn := m.private(n.Sources()[0], n)
	if ffn == nil {
		return nil, nil
	}
	op, ok := ffn.Op.(graph.FusedFFN)
	if !ok {
		return nil, nil
	}
	return graph.FusedFFNDown{Gate: op.Gate, Up: op.Up, Down: down}, ffn.Sources()
}
