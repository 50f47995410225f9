package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// palette are the fills of devices in the order of their first appearance: pale, so that
// black text stands out on paper too, and apart for the colour-blind (after Okabe and Ito,
// 2008, lightened).
var palette = [...]string{"#cfe6f5", "#fbe3b5", "#cdeae0", "#f6d3c2", "#efd9e8", "#f7f4c0", "#d9d9d9"}

// WriteDOT writes the graph in the language of Graphviz. Nodes are labelled with their
// name, operation, weights, and type and shape, filled by device, and boxed by layer
// where their names begin with "blk." and a number. Inputs are round, outputs have two
// borders, fused operations a thick one, and nodes that nothing depends on are dashed. Edges
// from one device to another are red. Of each note, what it says of a node is added to the
// label. Equal graphs give equal bytes.
func (g *Graph) WriteDOT(w io.Writer, notes ...func(NodeID) string) error {
	d := dotWriter{graph: g, w: bufio.NewWriter(w), notes: notes, live: g.Live(), output: make([]bool, len(g.Nodes)), fill: make(map[string]string)}
	for _, id := range g.Outputs {
		d.output[id] = true
	}
	d.header()
	d.nodes()
	d.edges()
	d.printf("}\n")
	return d.w.Flush()
}

type dotWriter struct {
	graph  *Graph
	w      *bufio.Writer
	notes  []func(NodeID) string
	live   []bool
	output []bool
	fill   map[string]string // by device
}

// printf writes to a buffer that keeps its first error until it is flushed.
func (d *dotWriter) printf(format string, args ...any) { fmt.Fprintf(d.w, format, args...) }

func (d *dotWriter) header() {
	p := d.graph.Params
	title := fmt.Sprintf("%v, %d tokens, %d outputs, %d cells of %v", p.Phase, p.Tokens, p.Outputs, p.Cells, p.KVType)
	d.printf("digraph minfer {\n")
	d.printf("  graph [rankdir=TB, nodesep=0.25, ranksep=0.35, fontname=\"Helvetica\", fontsize=14, labelloc=t, label=%s];\n", quote(title))
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

// nodes writes runs of nodes of one layer as boxes.
func (d *dotWriter) nodes() {
	layers := make(map[string][]NodeID)
	var order []string
	for i := range d.graph.Nodes {
		l := LayerName(d.graph.Nodes[i].Name)
		if layers[l] == nil {
			order = append(order, l)
		}
		layers[l] = append(layers[l], NodeID(i))
	}
	for i, l := range order {
		indent := "  "
		if l != "" {
			d.printf("  subgraph cluster_%d {\n    label=%s; color=\"#999999\"; labeljust=l;\n", i, quote(l))
			indent = "    "
		}
		for _, id := range layers[l] {
			d.node(indent, id)
		}
		if l != "" {
			d.printf("  }\n")
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
	lines := []string{n.Name, n.Op.Kind().String()}
	for _, u := range Weights(n.Op) {
		line := u.Name
		if u.Type != "" {
			line += fmt.Sprintf(" %s [%d %d]", u.Type, u.In, u.Out)
		}
		lines = append(lines, line)
	}
	lines = append(lines, n.Type.String()+" "+n.Shape.String())
	for _, note := range d.notes {
		if line := note(id); line != "" {
			lines = append(lines, line)
		}
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
			d.printf("  n%d -> n%d", s, i)
			switch {
			case !d.live[i]:
				d.printf(" [style=dashed]")
			case d.graph.Nodes[s].Device != d.graph.Nodes[i].Device:
				d.printf(" [color=\"#c00000\", penwidth=2]")
			}
			d.printf(";\n")
		}
	}
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
