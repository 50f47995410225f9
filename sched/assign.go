package sched

import (
	"fmt"
	"strings"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/slices"
)

// Device is a device as assignment sees it.
type Device struct {
	Name         string
	Capabilities *backend.Capabilities
}

// AssignError says why a node has no device. It wraps backend.ErrUnsupported.
type AssignError struct {
	Node    string
	Op      string      // with its payload
	Type    graph.DType // of the result
	Reason  string      // what is wrong, if it is not that no device can run the node
	Refusal []Refusal   // what each device that was asked said
}

// Refusal is why one device does not run a node.
type Refusal struct {
	Device string
	Reason string
}

// Error names the node, the operation with its payload, and every device that was asked.
func (e *AssignError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sched: node %q (%s, yields %v) ", e.Node, e.Op, e.Type)
	if e.Reason != "" {
		b.WriteString(e.Reason)
	} else {
		b.WriteString("runs on none of the devices")
	}
	separator := ": "
	for _, r := range e.Refusal {
		b.WriteString(separator + r.Device + " " + r.Reason)
		separator = "; "
	}
	return b.String()
}

// Unwrap returns backend.ErrUnsupported.
func (e *AssignError) Unwrap() error { return backend.ErrUnsupported }

// Assign gives every node of g a device. Devices are in the order of preference; see the
// package comment for the rules. It fails with an *AssignError if a node that counts can
// run nowhere, or not where it has been placed.
func Assign(g *graph.Graph, devices []Device) error {
	if len(devices) == 0 {
		return fmt.Errorf("sched: no devices to assign the graph to: %w", backend.ErrUnsupported)
	}
	a := &assigner{graph: g, devices: devices, live: g.Live()}
	for _, step := range []func() error{a.checkPlacements, a.placeLayers, a.placeComputed, a.placeInputs, a.placeViews} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Layers says on which device the key and value regions of each layer lie.
type Layers map[int]string

// PlaceLayers finds a device for the regions of every layer: the first that can run all
// nodes that touch them, in all of the graphs. Regions outlive a graph, so the graphs
// that share them have to agree, even if one has operations that another has not. Nodes
// that are placed already stay. It fails with an *AssignError.
func PlaceLayers(devices []Device, graphs ...*graph.Graph) (Layers, error) {
	if len(devices) == 0 {
		return nil, fmt.Errorf("sched: no devices to place layers on: %w", backend.ErrUnsupported)
	}
	var all layerNodes
	for _, g := range graphs {
		a := &assigner{graph: g, devices: devices, live: g.Live()}
		if err := a.checkPlacements(); err != nil {
			return nil, err
		}
		all.collect(a)
	}
	layers := make(Layers)
	for _, layer := range all.order {
		device, err := placeLayer(devices, layer, all.nodes[layer])
		if err != nil {
			return nil, err
		}
		layers[layer] = device
	}
	return layers, nil
}

// Pin places the nodes of g that touch regions where those are, for Assign to keep.
func (l Layers) Pin(g *graph.Graph) {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if layer, ok := graph.LayerOf(n.Op); ok && l[layer] != "" {
			n.Device = l[layer]
		}
	}
}

type assigner struct {
	graph   *graph.Graph
	devices []Device
	live    []bool
}

func newAssignError(n *graph.Node) *AssignError {
	return &AssignError{Node: n.Name, Op: graph.OpString(n.Op), Type: n.Type}
}

// refuses returns why a device does not run a node, or "". Nodes that no device
// computes are refused by none.
func (a *assigner) refuses(d *Device, n *graph.Node) string {
	if !graph.Computed(n.Op) {
		return ""
	}
	c := d.Capabilities
	if c == nil || c.Supports == nil || !c.Supports(n.Op, n.Type) {
		return "does not have it"
	}
	if at, ok := n.Op.(graph.Attention); ok && at.ExplicitSpan && !c.ExplicitSpan {
		return "has no attention over explicit spans"
	}
	if _, ok := graph.LayerOf(n.Op); ok && a.regionType(n) == graph.F16 && !c.PackedKV {
		return "has no key and value regions of F16"
	}
	return ""
}

// regionType returns what the regions that a node touches hold.
func (a *assigner) regionType(n *graph.Node) graph.DType {
	if n.Op.Kind() == graph.KindAttention {
		return a.graph.Node(n.Sources()[1]).Type
	}
	return a.graph.Params.KVType
}

func (a *assigner) device(name string) *Device {
	for i := range a.devices {
		if a.devices[i].Name == name {
			return &a.devices[i]
		}
	}
	return nil
}

// checkPlacements sees whether nodes that come with a device can stay there.
func (a *assigner) checkPlacements() error {
	for i := range a.graph.Nodes {
		n := &a.graph.Nodes[i]
		if n.Device == "" || !a.live[i] {
			continue
		}
		d := a.device(n.Device)
		if d == nil {
			e := newAssignError(n)
			e.Reason = fmt.Sprintf("is placed on %q, which is not one of the devices %s", n.Device, a.names())
			return e
		}
		if why := a.refuses(d, n); why != "" {
			e := newAssignError(n)
			e.Reason = "cannot stay where it is placed"
			e.Refusal = []Refusal{{d.Name, why}}
			return e
		}
	}
	return nil
}

func (a *assigner) names() string {
	names := make([]string, len(a.devices))
	for i := range a.devices {
		names[i] = a.devices[i].Name
	}
	return strings.Join(names, ", ")
}

// layerNodes are the nodes that touch the regions of each layer.
type layerNodes struct {
	order []int // of the layers' first appearance
	nodes map[int][]layerNode
}

type layerNode struct {
	*graph.Node
	of *assigner
}

func (l *layerNodes) collect(a *assigner) {
	if l.nodes == nil {
		l.nodes = make(map[int][]layerNode)
	}
	for i := range a.graph.Nodes {
		n := &a.graph.Nodes[i]
		layer, ok := graph.LayerOf(n.Op)
		if !ok || !a.live[i] {
			continue
		}
		if l.nodes[layer] == nil {
			l.order = append(l.order, layer)
		}
		l.nodes[layer] = append(l.nodes[layer], layerNode{n, a})
	}
}

// placeLayers puts all nodes that touch the regions of a layer on one device.
func (a *assigner) placeLayers() error {
	var all layerNodes
	all.collect(a)
	for _, layer := range all.order {
		device, err := placeLayer(a.devices, layer, all.nodes[layer])
		if err != nil {
			return err
		}
		for _, n := range all.nodes[layer] {
			n.Device = device
		}
	}
	return nil
}

// placeLayer returns the device for the nodes of a layer.
func placeLayer(devices []Device, layer int, nodes []layerNode) (string, error) {
	candidates := devices
	var placed *graph.Node
	for _, n := range nodes {
		switch {
		case n.Device == "":
		case placed == nil:
			placed = n.Node
			candidates = []Device{*n.of.device(n.Device)}
		case placed.Device != n.Device:
			e := newAssignError(n.Node)
			e.Reason = fmt.Sprintf("is placed on %q and node %q of the same layer %d on %q, but a layer's regions lie on one device",
				n.Device, placed.Name, layer, placed.Device)
			return "", e
		}
	}
	// The node to report is the first that the most preferred candidate refuses.
	failed := newAssignError(nodes[0].Node)
	for i := range candidates {
		d := &candidates[i]
		culprit, why := refusesAny(d, nodes)
		if culprit == nil {
			return d.Name, nil
		}
		if i == 0 {
			failed = newAssignError(culprit)
			failed.Reason = fmt.Sprintf("and the other nodes of layer %d that touch its regions run together on none of the devices", layer)
		}
		failed.Refusal = append(failed.Refusal, Refusal{d.Name, fmt.Sprintf("(asked for %q, %s) %s", culprit.Name, graph.OpString(culprit.Op), why)})
	}
	return "", failed
}

func refusesAny(d *Device, nodes []layerNode) (*graph.Node, string) {
	for _, n := range nodes {
		if why := n.of.refuses(d, n.Node); why != "" {
			return n.Node, why
		}
	}
	return nil, ""
}

// placeComputed puts every other node on the first device that can run it.
func (a *assigner) placeComputed() error {
	for i := range a.graph.Nodes {
		n := &a.graph.Nodes[i]
		if n.Device != "" || !graph.Computed(n.Op) {
			continue
		}
		failed := newAssignError(n)
		for j := range a.devices {
			d := &a.devices[j]
			why := a.refuses(d, n)
			if why == "" {
				n.Device = d.Name
				break
			}
			failed.Refusal = append(failed.Refusal, Refusal{d.Name, why})
		}
		if n.Device == "" && a.live[i] {
			return failed
		}
	}
	return nil
}

// placeInputs puts every input where it is read first, looking through views. One that
// nobody reads goes to the first device.
func (a *assigner) placeInputs() error {
	for _, id := range a.graph.Inputs {
		n := a.graph.Node(id)
		if n.Device != "" {
			continue
		}
		n.Device = a.devices[0].Name
		views := map[graph.NodeID]bool{id: true}
		for i := int(id) + 1; i < len(a.graph.Nodes); i++ {
			r := &a.graph.Nodes[i]
			if !a.live[i] || !slices.ContainsFunc(r.Sources(), func(s graph.NodeID) bool { return views[s] }) {
				continue
			}
			if r.Device != "" {
				n.Device = r.Device
				break
			}
			views[r.ID] = true // a view: its place is the input's
		}
	}
	return nil
}

// placeViews puts every view where its source is, since it is the same memory.
func (a *assigner) placeViews() error {
	for i := range a.graph.Nodes {
		n := &a.graph.Nodes[i]
		if !n.Op.Kind().Traits().Alias {
			continue
		}
		src := a.graph.Node(n.Sources()[0])
		if n.Device == "" {
			n.Device = src.Device
		}
		if n.Device != src.Device && a.live[i] {
			e := newAssignError(n)
			e.Reason = fmt.Sprintf("is placed on %q, but is a view of node %q on %q", n.Device, src.Name, src.Device)
			return e
		}
	}
	return nil
}
