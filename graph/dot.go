package graph

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"

	"golang.org/x/exp/slices"
)

// palette are the fills of devices in the order of their first appearance: pale, so that
// black text stands out on paper too, and apart for the colour-blind (after Okabe and Ito,
// 2008, lightened).
var palette = [...]string{"#cfe6f5", "#fbe3b5", "#cdeae0", "#f6d3c2", "#efd9e8", "#f7f4c0", "#d9d9d9"}

// DOTOption changes what WriteDOT draws.
type DOTOption func(*dotWriter)

// WithNotes adds lines to the labels of nodes.
func WithNotes(note func(NodeID) []string) DOTOption {
	return func(d *dotWriter) { d.note = note }
}

// EveryLayer draws every layer, also where they are alike.
func EveryLayer() DOTOption { return func(d *dotWriter) { d.every = true } }

// WriteDOT writes the graph in the language of Graphviz. Nodes are labelled with their
// number and name, operation, type and shape, and weights, filled by device, and boxed by layer
// where their names begin with "blk." and a number. Inputs are round, outputs have two borders, fused
// operations a thick one, and nodes that nothing depends on are dashed. Edges from one device to another
// are red.
//
// So that the picture can be read on a page, layers that follow each other and are alike, in all but their weights, are
// drawn as one: the first of them, with dashed edges that lead back from it to the next. What remains stands
// side by side in rows, and an input that several layers read is drawn again in each. Equal graphs give equal
// bytes.
func (g *Graph) WriteDOT(w io.Writer, opts ...DOTOption) error {
	d := dotWriter{graph: g, w: bufio.NewWriter(w), note: func(NodeID) []string { return nil }, live: g.Live(), output: make([]bool, len(g.Nodes)), fill: make(map[string]string)}
	for _, option := range opts {
		option(&d)
	}
	for _, id := range g.Outputs {
		d.output[id] = true
	}
	d.findLayers()
	d.fold()
	d.header()
	d.nodes()
	d.edges()
	d.printf("}\n")
	return d.w.Flush()
}

type dotWriter struct {
	graph  *Graph
	w      *bufio.Writer
	note   func(NodeID) []string
	every  bool // layers that are alike are all drawn
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
	as            int // the layer that it is drawn as: itself, or an earlier one that is alike
	alike         int // layers that are drawn as this one, itself included
}

// findLayers sorts nodes into layers.
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
			d.layers = append(d.layers, dotLayer{name: name, as: at, alike: 1})
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
}

// fold finds the layers that are drawn as the one before, and how many of the others stand in a row: as many as
// make a page in landscape of layers that are some four times as high as wide.
func (d *dotWriter) fold() {
	drawn, before := 0, ""
	for i := 1; i < len(d.layers); i++ {
		form := d.form(i)
		if i > 1 && form == before && !d.every {
			d.layers[i].as = d.layers[i-1].as
			d.layers[d.layers[i].as].alike++
		} else {
			drawn++
		}
		before = form
	}
	rows := max(1, int(math.Ceil(math.Sqrt(float64(drawn)/5))))
	d.row = (drawn + rows - 1) / rows
}

// own is what the payload of an operation has of its layer.
var own = regexp.MustCompile(`(Layer=\d+|Type="[^"]*") ?`)

// form is what layers that are alike have in common: all but where they stand and which weights they read. Of a value that
// comes from outside, it says whether it is the first such, or the second.
func (d *dotWriter) form(layer int) string {
	var b strings.Builder
	l := &d.layers[layer]
	var outside []NodeID
	for _, id := range l.nodes {
		n := d.graph.Node(id)
		op := own.ReplaceAllString(strings.ReplaceAll(OpString(n.Op), l.name+".", ""), "")
		op = strings.TrimSuffix(op, "{}") // of layer 0, which is left out
		fmt.Fprintf(&b, "%s %s %v %v %s %v %v", strings.TrimPrefix(n.Name, l.name+"."), op, n.Type, n.Shape, n.Device, d.live[id], d.output[id])
		for _, s := range n.Sources() {
			if at := slices.Index(l.nodes, s); at >= 0 {
				fmt.Fprintf(&b, " .%d", at)
			} else if d.again(s, id) {
				fmt.Fprintf(&b, " %%%d", s)
			} else {
				if !slices.Contains(outside, s) {
					outside = append(outside, s)
				}
				fmt.Fprintf(&b, " ^%d", slices.Index(outside, s))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// drawn is the node that a node is drawn as.
func (d *dotWriter) drawn(id NodeID) NodeID {
	l := &d.layers[d.layer[id]]
	if d.layer[id] == l.as {
		return id
	}
	return d.layers[l.as].nodes[slices.Index(l.nodes, id)]
}

// again says that a layer has a picture of its own of an input that it reads.
func (d *dotWriter) again(source, reader NodeID) bool {
	return d.layer[reader] != 0 && d.layer[source] == 0 && d.graph.Node(source).Op.Kind() == KindInput
}

// printf writes to a buffer that keeps its first error until it is flushed.
func (d *dotWriter) printf(format string, args ...any) { fmt.Fprintf(d.w, format, args...) }

func (d *dotWriter) header() {
	p := d.graph.Params
	title := fmt.Sprintf("%s, outputs: %d, cells: %d of %v", p.Title(), p.Outputs, p.Cells, p.KVType)
	d.printf("digraph minfer {\n")
	d.printf("  graph [rankdir=TB, newrank=true, nodesep=0.25, ranksep=0.25, fontname=\"Helvetica\", fontsize=14, labelloc=t, label=%s];\n", quote(title))
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
	for _, id := range d.layers[0].nodes {
		d.node("  ", id)
	}
	var drawn []int
	for i, l := range d.layers {
		if i == 0 || l.as != i {
			continue
		}
		d.printf("  subgraph cluster_%d {\n    label=%s; color=\"#999999\"; labeljust=l;\n", i, quote(d.title(i)...))
		for _, id := range l.inputs {
			d.printf("    n%d_%d [label=%s, shape=ellipse];\n", id, i, quote(d.graph.Node(id).Name))
		}
		for _, id := range l.nodes {
			d.node("    ", id)
		}
		d.printf("  }\n")
		if drawn = append(drawn, i); len(drawn) > d.row {
			nodes := d.layers[drawn[len(drawn)-1-d.row]].nodes
			d.printf("  n%d -> n%d [style=invis, weight=10];\n", nodes[len(nodes)-1], l.nodes[0])
		}
	}
}

// title is what stands above a layer.
func (d *dotWriter) title(i int) []string {
	l := &d.layers[i]
	if l.alike == 1 {
		return []string{l.name}
	}
	return []string{fmt.Sprintf("%s to %s", l.name, d.layers[i+l.alike-1].name), fmt.Sprintf("%d layers alike; numbers are those of %s", l.alike, l.name)}
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
	for i, u := range Weights(n.Op) {
		line := strings.TrimPrefix(u.Name, prefix)
		if u.Type != "" {
			line += fmt.Sprintf(" %s [%d %d]", d.types(id, i), u.In, u.Out)
		}
		lines = append(lines, line)
	}
	lines = append(lines, d.note(id)...)
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

// types are those of a node's weight in all layers that are drawn as the node's.
func (d *dotWriter) types(id NodeID, weight int) string {
	at := d.layer[id]
	l := &d.layers[at]
	if at == 0 {
		return Weights(d.graph.Node(id).Op)[weight].Type
	}
	var types []string
	for _, other := range d.layers[at : at+l.alike] {
		t := Weights(d.graph.Node(other.nodes[slices.Index(l.nodes, id)]).Op)[weight].Type
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return strings.Join(types, " or ")
}

func (d *dotWriter) edges() {
	done := make(map[[2]NodeID]bool)
	for i := range d.graph.Nodes {
		for _, s := range d.graph.Nodes[i].Sources() {
			if ends := [2]NodeID{d.drawn(s), d.drawn(NodeID(i))}; !done[ends] {
				done[ends] = true
				d.edge(s, NodeID(i))
			}
		}
	}
}

func (d *dotWriter) edge(from, to NodeID) {
	a, b := d.layer[from], d.layer[to]
	next := a != 0 && a != b && d.layers[a].as == d.layers[b].as
	var attributes []string
	switch {
	case !d.live[to], next:
		attributes = append(attributes, "style=dashed")
	case d.graph.Nodes[from].Device != d.graph.Nodes[to].Device:
		attributes = append(attributes, `color="#c00000", penwidth=2`)
	}
	name := fmt.Sprintf("n%d", d.drawn(from))
	if d.again(from, to) {
		name += fmt.Sprintf("_%d", d.layers[b].as)
	} else if a != 0 && b != 0 && a != b {
		attributes = append(attributes, "constraint=false") // the layers stand beside each other
	}
	d.printf("  %s -> n%d", name, d.drawn(to))
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
