package graph

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"

	"golang.org/x/exp/slices"
)

// palette are the fills of devices in the order of their first appearance: pale, so that
// black text stands out on paper too, and apart for the colour-blind (after Okabe and Ito,
// 2008, lightened).
var palette = [...]string{"#cfe6f5", "#fbe3b5", "#cdeae0", "#f6d3c2", "#efd9e8", "#f7f4c0", "#d9d9d9"}

// WriteDOT writes the graph in the language of Graphviz. Nodes are labelled with their
// number and name, operation, type and shape, and weights, filled by device, and boxed by layer
// where their names begin with "blk." and a number. Layers stand beside each other in rows, so
// that the picture fits a page; an input that several layers read is drawn again in each. Inputs
// are round, outputs have two borders, fused operations a thick one, and nodes that nothing
// depends on are dashed. Edges from one device to another are red. Of each note, the lines that
// it has on a node are added to the label. Equal graphs give equal bytes.
func (g *Graph) WriteDOT(w io.Writer, notes ...func(NodeID) []string) error {
	d := dotWriter{graph: g, w: bufio.NewWriter(w), notes: notes, live: g.Live(), output: make([]bool, len(g.Nodes)), fill: make(map[string]string)}
	for _, id := range g.Outputs {
		d.output[id] = true
	}
	d.findLayers()
	d.header()
	d.nodes()
	d.edges()
	d.printf("}\n")
	return d.w.Flush()
}

type dotWriter struct {
	graph  *Graph
	w      *bufio.Writer
	notes  []func(NodeID) []string
	live   []bool
	output []bool
	fill   map[string]string // by device
	layers []dotLayer        // in the order of the nodes; the first is what belongs to none
	layer  []int             // by node
	row    int               // layers side by side
}

// dotLayer is the nodes of a layer, and the inputs that are drawn in it again.
type dotLayer struct {
	name          string
	nodes, inputs []NodeID
}

// findLayers sorts nodes into layers, and finds how many of these stand in a row: as many as
// make a page in landscape of layers that are some four times as high as wide.
func (d *dotWriter) findLayers() {
	d.layers = []dotLayer{{}}
	d.layer = make([]int, len(d.graph.Nodes))
	index := map[string]int{"": 0}
	for i := range d.graph.Nodes {
		n := &d.graph.Nodes[i]
		name := LayerName(n.Name)
		at, known := index[name]
		if !known {
			at = len(d.layers)
			index[name] = at
			d.layers = append(d.layers, dotLayer{name: name})
		}
		d.layer[i] = at
		l := &d.layers[at]
		l.nodes = append(l.nodes, NodeID(i))
		for _, s := range n.Sources() {
			if d.again(s, NodeID(i)) && !slices.Contains(l.inputs, s) {
				l.inputs = append(l.inputs, s)
			}
		}
	}
	n := len(d.layers) - 1
	rows := int(math.Ceil(math.Sqrt(float64(n) / 5)))
	d.row = (n + max(rows, 1) - 1) / max(rows, 1)
}

// again says that a layer has a picture of its own of an input that it reads.
func (d *dotWriter) again(source, reader NodeID) bool {
	return d.layer[reader] != 0 && d.layer[source] == 0 && d.graph.Node(source).Op.Kind() == KindInput
}

// printf writes to a buffer that keeps its first error until it is flushed.
func (d *dotWriter) printf(format string, args ...any) { fmt.Fprintf(d.w, format, args...) }

func (d *dotWriter) header() {
	p := d.graph.Params
	title := fmt.Sprintf("%v, %d tokens, %d outputs, %d cells of %v", p.Phase, p.Tokens, p.Outputs, p.Cells, p.KVType)
	d.printf("digraph minfer {\n")
	d.printf("  graph [rankdir=TB, newrank=true, nodesep=0.25, ranksep=0.35, fontname=\"Helvetica\", fontsize=14, labelloc=t, label=%s];\n", quote(title))
	d.printf("  node [shape=box, style=filled, fillcolor=white, fontname=\"Helvetica\", fontsize=11, margin=\"0.12,0.06\"];\n")
	d.printf("  edge [color=\"#444444\", arrowsize=0.7];\n")
	var devices []string
	for i := range d.graph.Nodes {
		device := d.graph.Nodes[i].Device
		if device == "" || d.fill[device] != "" {
			continue
		}
		d.fill[device] = palette[len(devices)%len(palette)]
		devices = append(devices, device)
	}
	for i, device := range devices {
		d.printf("  device%d [shape=plaintext, fillcolor=%q, label=%s];\n", i, d.fill[device], quote("on "+device))
	}
}

// nodes writes the nodes, those of a layer in a box. Edges that nobody sees keep the rows of layers
// below each other.
func (d *dotWriter) nodes() {
	for i, l := range d.layers {
		if i == 0 {
			for _, id := range l.nodes {
				d.node("  ", id)
			}
			continue
		}
		d.printf("  subgraph cluster_%d {\n    label=%s; color=\"#999999\"; labeljust=l;\n", i, quote(l.name))
		for _, id := range l.inputs {
			d.printf("    n%d_%d [label=%s, shape=ellipse];\n", id, i, quote(d.graph.Node(id).Name))
		}
		for _, id := range l.nodes {
			d.node("    ", id)
		}
		d.printf("  }\n")
		if above := i - d.row; above > 0 {
			nodes := d.layers[above].nodes
			d.printf("  n%d -> n%d [style=invis, weight=10];\n", nodes[len(nodes)-1], l.nodes[0])
		}
	}
}

// LayerName returns the part of a node's name that names its layer: "blk.7" for "blk.7.attn_q", and
// "" for a name that is not of that form.
func LayerName(name string) string {
	rest, ok := strings.CutPrefix(name, "blk.")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if !ok || digits == 0 || !strings.HasPrefix(rest[digits:], ".") {
		return ""
	}
	return name[:len("blk.")+digits]
}

func (d *dotWriter) node(indent string, id NodeID) {
	n := d.graph.Node(id)
	prefix := d.layers[d.layer[id]].name + "."
	lines := []string{fmt.Sprintf("%%%d %s", id, strings.TrimPrefix(n.Name, prefix)), fmt.Sprintf("%v %v %v", n.Op.Kind(), n.Type, n.Shape)}
	for _, u := range Weights(n.Op) {
		line := strings.TrimPrefix(u.Name, prefix)
		if u.Type != "" {
			line += fmt.Sprintf(" %s [%d %d]", u.Type, u.In, u.Out)
		}
		lines = append(lines, line)
	}
	for _, note := range d.notes {
		lines = append(lines, note(id)...)
	}
	d.printf("%sn%d [label=%s", indent, id, quote(lines...))
	if fill := d.fill[n.Device]; fill != "" {
		d.printf(", fillcolor=%q", fill)
	}
	if n.Op.Kind() == KindInput {
		d.printf(", shape=ellipse")
	}
	if d.output[id] {
		d.printf(", peripheries=2")
	}
	if n.Op.Kind().Traits().Fused {
		d.printf(", penwidth=2.5")
	}
	if !d.live[id] {
		d.printf(", style=\"filled,dashed\", fontcolor=\"#666666\"")
	}
	d.printf("];\n")
}

func (d *dotWriter) edges() {
	for i := range d.graph.Nodes {
		for _, s := range d.graph.Nodes[i].Sources() {
			d.edge(s, NodeID(i))
		}
	}
}

func (d *dotWriter) edge(from, to NodeID) {
	var attributes []string
	switch {
	case !d.live[to]:
		attributes = append(attributes, "style=dashed")
	case d.graph.Nodes[from].Device != d.graph.Nodes[to].Device:
		attributes = append(attributes, `color="#c00000", penwidth=2`)
	}
	name := fmt.Sprintf("n%d", from)
	if a, b := d.layer[from], d.layer[to]; d.again(from, to) {
		name += fmt.Sprintf("_%d", b)
	} else if a != 0 && b != 0 && a != b {
		attributes = append(attributes, "constraint=false") // the layers stand beside each other
	}
	d.printf("  %s -> n%d", name, to)
	if len(attributes) > 0 {
		d.printf(" [%s]", strings.Join(attributes, ", "))
	}
	d.printf(";\n")
}

// quote returns lines as a string of the language, one below the other. Graphviz refuses
// NUL bytes, and other control characters have no glyph.
func quote(lines ...string) string {
	for i, l := range lines {
		l = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(l, "?"))
		lines[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(l)
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
