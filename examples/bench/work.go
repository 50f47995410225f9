package main

import (
	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
)

// work is what a pass has to do at the least.
type work struct {
	bytes  float64 // of weights, and of keys and values, that it reads
	ints   float64 // multiplications with weights that are stored as integers
	floats float64 // and with others
}

// workOf adds up the matrix products of a pass over so many tokens, and the keys and values that
// each of them attends to at a depth.
func workOf(m *minfer.Model, tokens, depth int) (w work, err error) {
	g, err := m.Graph(graph.Params{Tokens: tokens, Outputs: 1, Cells: depth + tokens})
	if err != nil {
		return w, err
	}
	sizes, live := m.TraceModel().Weights, g.Live()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if !live[i] {
			continue
		}
		switch op := n.Op.(type) {
		case graph.Embed:
			continue // reads rows, not the matrix
		case graph.Attention:
			w.bytes += float64(2 * depth * g.Params.KVType.Bytes(op.KVHeads*op.HeadDim))
			continue
		}
		macs := float64(graph.MultiplyAdds(n, 0))
		for _, use := range graph.Weights(n.Op) {
			w.bytes += float64(sizes[use.Name])
			switch use.Type {
			case "F32", "F16", "BF16":
				w.floats += macs
				macs = 0
			}
		}
		w.ints += macs
	}
	return w, nil
}

// fraction is how near a rate of passes comes to the roof: what takes longest there, over the time
// that the pass takes.
func (w work) fraction(r roof, passes float64) float64 {
	if r.Read == 0 {
		return 0
	}
	compute := 0.0
	if r.Int8 > 0 && r.FMA > 0 {
		compute = w.ints/r.Int8 + w.floats/r.FMA
	}
	return passes * max(w.bytes/r.Read, compute)
}
