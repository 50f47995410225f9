package main

import (
	"context"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched/trace"
)

// lens is an observer that keeps what the residual stream is after each layer, for the last token
// of a pass.
type lens struct {
	trace.Nothing
	width  int
	reader trace.Reader

	graph uint64                // whose ends these are:
	ends  map[graph.NodeID]bool // the nodes that layers end with
	pass  uint64
	names []string
	rows  [][]float32
}

func (l *lens) BeginPass(_ context.Context, p *minfer.Pass) error {
	l.pass, l.names, l.rows = p.Number, l.names[:0], nil
	if g := p.Graph(); g.UID != l.graph {
		l.graph, l.ends = g.UID, layerEnds(g, l.width)
	}
	return nil
}

// layerEnds finds the last sum of each layer, and the embedding.
func layerEnds(g *graph.Graph, width int) map[graph.NodeID]bool {
	last := make(map[string]graph.NodeID)
	live := g.Live()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		kind, layer := n.Op.Kind(), graph.LayerName(n.Name)
		sum := kind == graph.KindAdd && layer != "" || kind == graph.KindEmbed
		if sum && live[i] && n.Shape[0] == width {
			last[layer] = n.ID
		}
	}
	ends := make(map[graph.NodeID]bool)
	for _, id := range last {
		ends[id] = true
	}
	return ends
}

func (l *lens) After(s *minfer.Step) error {
	if !l.ends[s.Node().ID] {
		return nil
	}
	row, err := l.reader.Row(s, -1)
	l.names = append(l.names, s.Node().Name)
	l.rows = append(l.rows, append([]float32(nil), row...))
	return err
}

// top is how many tokens are listed for a layer.
const top = 5

// record asks the model what its layers say, once the pass is over.
func (l *lens) record(ctx context.Context, m *minfer.Model) (*trace.LensRecord, error) {
	logits, err := m.Head(ctx, l.rows)
	if err != nil {
		return nil, err
	}
	text := func(t minfer.Token) string { return string(m.Tokenizer().TokenBytes(t)) }
	r := &trace.LensRecord{Pass: l.pass}
	for i, row := range logits {
		r.Layers = append(r.Layers, trace.LensLayer{Node: l.names[i], Top: trace.Likeliest(row, top, text)})
	}
	return r, nil
}
