package sched

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/graph"
)

// The picture's measures, in units of its user space.
const (
	svgWidth  = 1200
	svgLeft   = 92 // of a panel: room for its scale
	svgRight  = 24
	svgPanel  = 380 // height of a device's panel
	svgGap    = 62  // above a panel: its title
	svgFooter = 92
)

// svgFills are the fills of kinds of operations: pale enough for black text on them, apart for the
// colour-blind (after Okabe and Ito, 2008, lightened).
var svgFills = []struct {
	name  string
	fill  string
	kinds []graph.Kind
}{
	{"inputs", "#d9d9d9", []graph.Kind{graph.KindInput}},
	{"residual stream", "#9fd3c0", []graph.Kind{graph.KindAdd, graph.KindEmbed}},
	{"norms", "#f3e08a", []graph.Kind{graph.KindRMSNorm, graph.KindQKNorm}},
	{"products", "#8fc1e3", []graph.Kind{graph.KindMatMul}},
	{"attention", "#f2b48a", []graph.Kind{graph.KindAttention, graph.KindRoPE, graph.KindFusedQKV, graph.KindFusedQKVNorm, graph.KindQKVBiasRopeStore}},
	{"activations", "#dfb3d0", []graph.Kind{graph.KindSilu, graph.KindGelu, graph.KindSwiGLU, graph.KindMul, graph.KindFusedFFN, graph.KindFusedFFNDown, graph.KindSoftmax}},
	{"others", "#c9cfd6", nil},
}

func fillOf(k graph.Kind) string {
	for _, f := range svgFills {
		for _, kind := range f.kinds {
			if kind == k {
				return f.fill
			}
		}
	}
	return svgFills[len(svgFills)-1].fill
}

// WriteSVG draws the memory of the schedule: a panel for every device, in which time runs to the
// right, node by node, and a box is a value, as high as it is large, at its offset, from the node
// that makes it to the last that reads it. A value that takes over another's memory goes on in its
// box. Below are the regions of keys and values, which outlive the graph. Equal schedules give
// equal bytes.
func (s *Schedule) WriteSVG(w io.Writer) error {
	p := svgWriter{schedule: s, w: bufio.NewWriter(w), end: make([]graph.NodeID, len(s.Memory.Values))}
	p.findEnds()
	height := svgFooter + len(s.Memory.Arenas)*(svgGap+svgPanel)
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="Helvetica, Arial, sans-serif">`+"\n", svgWidth, height, svgWidth, height)
	p.printf(`<rect width="100%%" height="100%%" fill="white"/>` + "\n")
	for i := range s.Memory.Arenas {
		p.panel(&s.Memory.Arenas[i], i*(svgGap+svgPanel)+svgGap)
	}
	p.footer(height - svgFooter)
	p.printf("</svg>\n")
	return p.w.Flush()
}

type svgWriter struct {
	schedule *Schedule
	w        *bufio.Writer  // keeps its first error until it is flushed
	end      []graph.NodeID // by node: where its box ends
}

// findEnds has boxes end after the last reader of the value, but for one that another value takes
// over: there the next box begins.
func (p *svgWriter) findEnds() {
	for i := range p.schedule.Memory.Values {
		v := &p.schedule.Memory.Values[i]
		p.end[i] = graph.NodeID(len(p.end))
		if v.Last != alloc.Forever {
			p.end[i] = v.Last + 1
		}
		if v.InPlace != graph.None {
			p.end[v.InPlace] = v.Node
		}
	}
}

func (p *svgWriter) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

func (p *svgWriter) text(x, y float64, size int, anchor, text string) {
	p.printf(`<text x="%s" y="%s" font-size="%d" text-anchor="%s" fill="#222">%s</text>`+"\n", short(x), short(y), size, anchor, html.EscapeString(text))
}

// short is a coordinate without digits that nobody sees.
func short(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// x is where a node begins.
func (p *svgWriter) x(id graph.NodeID) float64 {
	return svgLeft + float64(svgWidth-svgLeft-svgRight)*float64(id)/float64(len(p.schedule.Graph.Nodes))
}

func (p *svgWriter) panel(a *alloc.Arena, top int) {
	p.text(svgLeft, float64(top)-30, 17, "start", fmt.Sprintf("%s: %s for the values of one pass", a.Device, byteSize(a.Bytes)))
	p.text(svgLeft, float64(top)-11, 12, "start", fmt.Sprintf("%s, %d nodes; %d values in turn have memory of their own", p.schedule.Graph.Params.Title(), len(p.schedule.Graph.Nodes), a.Values))
	p.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="#fafafa" stroke="#888"/>`+"\n", svgLeft, top, svgWidth-svgLeft-svgRight, svgPanel)
	const lines = 4
	for i := range lines + 1 {
		y := float64(top) + svgPanel*float64(lines-i)/lines
		p.text(svgLeft-8, y+4, 11, "end", byteSize(a.Bytes*i/lines))
		if i > 0 && i < lines {
			p.printf(`<line x1="%d" y1="%s" x2="%d" y2="%s" stroke="#ddd"/>`+"\n", svgLeft, short(y), svgWidth-svgRight, short(y))
		}
	}
	p.layers(top)
	for i := range p.schedule.Memory.Values {
		if v := &p.schedule.Memory.Values[i]; v.Device == a.Device && v.Bytes > 0 && !isView(p.schedule.Graph, v) {
			p.value(a, v, top)
		}
	}
}

// isView says that a value is another seen differently, which is drawn already.
func isView(g *graph.Graph, v *alloc.Value) bool { return g.Node(v.Node).Op.Kind().Traits().Alias }

// layers marks where layers begin, as often as there is room for it.
func (p *svgWriter) layers(top int) {
	before, lastX := "", -100.0
	labelled := make(map[string]bool)
	for i := range p.schedule.Graph.Nodes {
		layer := graph.LayerName(p.schedule.Graph.Nodes[i].Name)
		if layer == before {
			continue
		}
		before = layer
		x := p.x(graph.NodeID(i))
		p.printf(`<line x1="%s" y1="%d" x2="%s" y2="%d" stroke="#ccc" stroke-dasharray="2 3"/>`+"\n", short(x), top, short(x), top+svgPanel)
		if layer != "" && x-lastX > 42 && !labelled[layer] {
			labelled[layer] = true
			p.text(x+2, float64(top+svgPanel)+14, 11, "start", layer)
			lastX = x
		}
	}
}

func (p *svgWriter) value(a *alloc.Arena, v *alloc.Value, top int) {
	n := p.schedule.Graph.Node(v.Node)
	left, right := p.x(v.First), p.x(p.end[v.Node])
	scale := float64(svgPanel) / float64(a.Bytes)
	height := float64(v.Bytes) * scale
	y := float64(top+svgPanel) - float64(v.Offset)*scale - height
	p.printf(`<g><title>%s</title><rect x="%s" y="%s" width="%s" height="%s" fill="%s" stroke="#555" stroke-width="0.6"/>`,
		html.EscapeString(fmt.Sprintf("%s (%v, %v%v), %s: %s", n.Name, n.Op.Kind(), n.Type, n.Shape, byteSize(v.Bytes), p.schedule.placeOf(v.Node))),
		short(left), short(y), short(right-left), short(height), fillOf(n.Op.Kind()))
	name := strings.TrimPrefix(strings.TrimPrefix(n.Name, graph.LayerName(n.Name)), ".")
	const letter = 6.2 // a letter's width at the size below
	if height >= 13 && float64(len(name))*letter < right-left {
		p.printf(`<text x="%s" y="%s" font-size="11" text-anchor="middle" fill="#222">%s</text>`, short((left+right)/2), short(y+height/2+4), html.EscapeString(name))
	}
	p.printf("</g>\n")
}

// footer has what colours stand for, and the regions.
func (p *svgWriter) footer(top int) {
	x := float64(svgLeft)
	y := float64(top) + 38
	for _, f := range svgFills {
		p.printf(`<rect x="%s" y="%s" width="14" height="14" fill="%s" stroke="#555" stroke-width="0.6"/>`+"\n", short(x), short(y-12), f.fill)
		p.text(x+20, y, 12, "start", f.name)
		x += 20 + 7.2*float64(len(f.name)) + 20
	}
	p.text(svgLeft, y+28, 13, "start", p.regions())
}

// regions says what keys and values take, by device.
func (p *svgWriter) regions() string {
	var devices []string
	layers, bytes := make(map[string]int), make(map[string]int)
	cells := 0
	for _, r := range p.schedule.Memory.Regions {
		if layers[r.Device] == 0 {
			devices = append(devices, r.Device)
		}
		layers[r.Device]++
		bytes[r.Device] += regionBytes(r)
		cells = r.Cells
	}
	var parts []string
	for _, d := range devices {
		parts = append(parts, fmt.Sprintf("%s on %s for %d layers", byteSize(bytes[d]), d, layers[d]))
	}
	for _, c := range p.schedule.Memory.Staging {
		parts = append(parts, fmt.Sprintf("%s on %s for a copy of %s", byteSize(c.Bytes), c.Device, p.schedule.Graph.Node(c.Value).Name))
	}
	return fmt.Sprintf("Beside it, kept from pass to pass: keys and values of %d tokens: %s.", cells, strings.Join(parts, ", "))
}

// byteSize is a number of bytes, rounded.
func byteSize(n int) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
