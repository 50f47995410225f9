package graph

import (
	"errors"
	"fmt"

	"golang.org/x/exp/slices"
)

// Node is one operation in a graph. Nodes are comparable.
type Node struct {
	ID     NodeID
	Name   string // unique in the graph, such as "blk.0.attn_q"
	Op     Op
	Shape  Shape
	Type   DType
	Device string // the device that runs it; "" before assignment

	sources    [MaxSources]NodeID
	numSources uint8
}

// Sources returns the ids of the nodes whose values the node reads. The slice
// belongs to the node and must not be changed.
func (n *Node) Sources() []NodeID { return n.sources[:n.numSources] }

// SetSources replaces the node's sources. Passes use it; they call Verify after.
func (n *Node) SetSources(ids ...NodeID) error {
	if len(ids) > MaxSources {
		return fmt.Errorf("graph: node %q given %d sources, at most %d are possible", n.Name, len(ids), MaxSources)
	}
	n.sources = [MaxSources]NodeID{}
	n.numSources = uint8(copy(n.sources[:], ids))
	return nil
}

// Bytes returns the memory that the node's value takes.
func (n *Node) Bytes() int { return n.Type.Bytes(n.Shape.Elements()) }

// Graph is a forward pass: nodes in execution order. See the package comment.
type Graph struct {
	Params  Params
	Nodes   []Node
	Inputs  []NodeID // filled by the host before every execution
	Outputs []NodeID // read by the host after it
	UID     uint64   // given by the cache that stores the graph; 0 before
}

// Node returns the node with the given id.
func (g *Graph) Node(id NodeID) *Node { return &g.Nodes[id] }

// Lookup returns the node with the given name, or nil.
func (g *Graph) Lookup(name string) *Node {
	for i := range g.Nodes {
		if g.Nodes[i].Name == name {
			return &g.Nodes[i]
		}
	}
	return nil
}

// Equal reports whether both graphs have the same parameters, nodes, inputs and
// outputs. The UID does not count.
func (g *Graph) Equal(h *Graph) bool { return g.Diff(h) == "" }

// Diff describes the first difference between two graphs, or returns "".
func (g *Graph) Diff(h *Graph) string {
	if g.Params != h.Params {
		return fmt.Sprintf("params differ: %+v and %+v", g.Params, h.Params)
	}
	for i := range g.Nodes {
		if i >= len(h.Nodes) {
			return fmt.Sprintf("node %d only in the first: %v", i, g.line(NodeID(i)))
		}
		if g.Nodes[i] != h.Nodes[i] {
			return fmt.Sprintf("node %d differs:\n\t%v\n\t%v", i, g.line(NodeID(i)), h.line(NodeID(i)))
		}
	}
	if len(h.Nodes) > len(g.Nodes) {
		return fmt.Sprintf("node %d only in the second: %v", len(g.Nodes), h.line(NodeID(len(g.Nodes))))
	}
	if !slices.Equal(g.Inputs, h.Inputs) || !slices.Equal(g.Outputs, h.Outputs) {
		return fmt.Sprintf("inputs %v and %v, outputs %v and %v", g.Inputs, h.Inputs, g.Outputs, h.Outputs)
	}
	return ""
}

// Clone returns a copy that shares nothing with the graph.
func (g *Graph) Clone() *Graph {
	c := *g
	c.Nodes = slices.Clone(g.Nodes)
	c.Inputs = slices.Clone(g.Inputs)
	c.Outputs = slices.Clone(g.Outputs)
	return &c
}

// Live reports for each node whether it has to be executed: an output, a store, or
// a source of a live node. Rewrites leave nodes behind that are not.
func (g *Graph) Live() []bool {
	live := make([]bool, len(g.Nodes))
	for _, id := range g.Outputs {
		live[id] = true
	}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := &g.Nodes[i]
		if n.Op.Kind().Traits().Stores {
			live[i] = true
		}
		if !live[i] {
			continue
		}
		for _, s := range n.Sources() {
			live[s] = true
		}
	}
	return live
}

// Consumers counts for each node how many sources of live nodes refer to it.
func (g *Graph) Consumers() []int {
	counts := make([]int, len(g.Nodes))
	live := g.Live()
	for i := range g.Nodes {
		if !live[i] {
			continue
		}
		for _, s := range g.Nodes[i].Sources() {
			counts[s]++
		}
	}
	return counts
}

// ErrInvalid is what every error of Verify, Parse and the builder wraps.
var ErrInvalid = errors.New("invalid graph")

// Error is a fault in a graph, at one of its nodes.
type Error struct {
	Node   string // the node's name
	Op     string // its operation
	Reason string // what is wrong, with the shapes
}

// Error returns the fault with the node and operation it was found at.
func (e *Error) Error() string {
	return fmt.Sprintf("graph: node %q (%s): %s", e.Node, e.Op, e.Reason)
}

// Unwrap returns ErrInvalid.
func (e *Error) Unwrap() error { return ErrInvalid }

func (n *Node) errorf(format string, args ...any) error {
	op := "no operation"
	if n.Op != nil {
		op = n.Op.Kind().String()
	}
	return &Error{Node: n.Name, Op: op, Reason: fmt.Sprintf(format, args...)}
}

// Verify proves the rules that every graph keeps: ids are dense, names unique,
// sources come before their readers (so there is no cycle), every operation has
// as many sources as it takes, and every shape and type is what its operation
// makes of its sources. It returns the first fault as an *Error.
func (g *Graph) Verify() error {
	names := make(map[string]NodeID, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.ID != NodeID(i) {
			return n.errorf("has id %d at index %d", n.ID, i)
		}
		if n.Op == nil {
			return n.errorf("no operation")
		}
		if first, dup := names[n.Name]; dup || n.Name == "" {
			return n.errorf("name is empty or taken by node %d", first)
		}
		names[n.Name] = n.ID
		if err := g.verifySources(n); err != nil {
			return err
		}
		shape, dtype, err := infer(n, g.sourceNodes(n))
		if err != nil {
			return err
		}
		if shape != n.Shape || dtype != n.Type {
			return n.errorf("is %v%v, but its operation yields %v%v", n.Type, n.Shape, dtype, shape)
		}
	}
	return g.verifyEnds()
}

func (g *Graph) verifySources(n *Node) error {
	t := n.Op.Kind().Traits()
	if c := len(n.Sources()); c < t.MinSources || c > t.MaxSources {
		return n.errorf("has %d sources, takes %d to %d", c, t.MinSources, t.MaxSources)
	}
	for _, s := range n.Sources() {
		if s < 0 || s >= n.ID {
			return n.errorf("reads node %d, which does not come before it", s)
		}
	}
	return nil
}

func (g *Graph) verifyEnds() error {
	for _, ids := range [][]NodeID{g.Inputs, g.Outputs} {
		for _, id := range ids {
			if id < 0 || int(id) >= len(g.Nodes) {
				return fmt.Errorf("graph: input or output %d of %d nodes: %w", id, len(g.Nodes), ErrInvalid)
			}
		}
	}
	declared := make(map[NodeID]bool, len(g.Inputs))
	for _, id := range g.Inputs {
		declared[id] = true
	}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; (n.Op.Kind() == KindInput) != declared[n.ID] {
			return n.errorf("the list of inputs and the Input nodes disagree about it")
		}
	}
	return nil
}

func (g *Graph) sourceNodes(n *Node) []*Node {
	nodes := make([]*Node, len(n.Sources()))
	for i, s := range n.Sources() {
		nodes[i] = &g.Nodes[s]
	}
	return nodes
}
