package sched

import (
	"strconv"
	"strings"

	"github.com/minfer/minfer/graph"
)

// LayersOf tells for each node which of the model's layers it belongs to: that whose regions
// it touches, or that a weight which it names has in its name, as "blk.7.attn_q.weight" has; and
// if neither, the last that its sources belong to. A node before all layers belongs to -1.
func LayersOf(g *graph.Graph) []int {
	layers := make([]int, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		layer, ok := ownLayer(n.Op)
		if !ok {
			layer = -1
			for _, s := range n.Sources() {
				layer = max(layer, layers[s])
			}
		}
		layers[i] = layer
	}
	return layers
}

func ownLayer(op graph.Op) (layer int, ok bool) {
	if layer, ok = graph.LayerOf(op); ok {
		return layer, true
	}
	for _, use := range graph.Weights(op) {
		for _, part := range strings.Split(use.Name, ".") {
			if n, err := strconv.Atoi(part); err == nil && n >= 0 {
				return n, true
			}
		}
	}
	return 0, false
}
