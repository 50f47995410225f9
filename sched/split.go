package sched

import (
	"fmt"
	"io"
	"strings"

	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/slices"
)

// Split is a run of nodes that one device computes.
type Split struct {
	Device string
	// First and Last are the first and the last node that is computed. Between them lie
	// nodes of this device, nodes that nothing computes, and dead ones.
	First, Last graph.NodeID
	// Inputs are the values of other devices that are copied in when the split starts, by
	// their first reader. A value that an earlier split brought to the device is not
	// copied again, and not listed.
	Inputs []graph.NodeID
	// Outputs are the values made in the split that other devices read, ascending.
	Outputs []graph.NodeID
}

// Splits cuts an assigned graph into runs of one device.
func Splits(g *graph.Graph) []Split {
	type copied struct {
		value  graph.NodeID
		device string
	}
	var splits []Split
	splitOf := make([]int, len(g.Nodes)) // 1 + index, 0 for what no split computes
	brought := make(map[copied]bool)
	live := g.Live()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if !live[i] || !graph.Computed(n.Op) {
			if live[i] && n.Op.Kind().Traits().Alias {
				splitOf[i] = splitOf[n.Sources()[0]]
			}
			continue
		}
		if len(splits) == 0 || splits[len(splits)-1].Device != n.Device {
			splits = append(splits, Split{Device: n.Device, First: n.ID})
		}
		splitOf[i] = len(splits)
		s := &splits[len(splits)-1]
		s.Last = n.ID
		for _, id := range n.Sources() {
			key := copied{id, n.Device}
			if g.Node(id).Device == n.Device || brought[key] {
				continue
			}
			brought[key] = true
			s.Inputs = append(s.Inputs, id)
			if at := splitOf[id]; at > 0 && !slices.Contains(splits[at-1].Outputs, id) {
				splits[at-1].Outputs = append(splits[at-1].Outputs, id)
			}
		}
	}
	for i := range splits {
		slices.Sort(splits[i].Outputs)
	}
	return splits
}

// WriteTrace writes an overview of an assigned graph: a line for the graph, and for every
// split a line with its device, its nodes, what crosses into it and out of it, and how
// many of each operation it computes, in order of their first appearance.
func WriteTrace(w io.Writer, g *graph.Graph) error {
	splits := Splits(g)
	live := g.Live()
	dead := 0
	for _, l := range live {
		if !l {
			dead++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "graph %d: %s, nodes: %d (%d dead), splits: %d\n", g.UID, g.Params.Title(), len(g.Nodes), dead, len(splits))
	for i, s := range splits {
		fmt.Fprintf(&b, "  split %d: %s, nodes %d to %d, in%s, out%s:%s\n", i, s.Device, s.First, s.Last,
			nameList(g, s.Inputs), nameList(g, s.Outputs), opCounts(g, s, live))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func nameList(g *graph.Graph, ids []graph.NodeID) string {
	if len(ids) == 0 {
		return " nothing"
	}
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, " %s", g.Node(id).Name)
	}
	return b.String()
}

func opCounts(g *graph.Graph, s Split, live []bool) string {
	counts := make(map[graph.Kind]int)
	var order []graph.Kind
	for id := s.First; id <= s.Last; id++ {
		n := g.Node(id)
		if !live[id] || !graph.Computed(n.Op) {
			continue
		}
		k := n.Op.Kind()
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	var b strings.Builder
	for _, k := range order {
		fmt.Fprintf(&b, " %d %v", counts[k], k)
	}
	return b.String()
}
