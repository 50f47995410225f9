package sched

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/graph"
)

// Schedule is all that the execution of a graph is: the nodes in their order, where their
// values lie, and how they are cut into runs of one device. [Prepare] adds memory to one and
// nothing else, so what a schedule shows is what is executed. It is immutable, and safe for
// concurrent use.
type Schedule struct {
	Graph  *graph.Graph
	Memory *alloc.Plan
	Splits []Split
}

// NewSchedule plans the execution of an assigned graph, which must not be changed afterwards.
// It touches no device. Errors are those of alloc.NewPlan.
func NewSchedule(g *graph.Graph) (*Schedule, error) {
	plan, err := alloc.NewPlan(g)
	if err != nil {
		return nil, err
	}
	return &Schedule{Graph: g, Memory: plan, Splits: Splits(g)}, nil
}

// String returns the graph's text form with comments: before the first node of a split, what
// runs where and what is copied there; after each node, where its value lies, whose memory it
// took over, and who reads it last. graph.Parse reads it back, but for the comments.
func (s *Schedule) String() string {
	live := s.Graph.Live()
	return s.Graph.Annotated(func(id graph.NodeID) string {
		var b strings.Builder
		for i, split := range s.Splits {
			if split.First == id {
				fmt.Fprintf(&b, "split %d: %s, nodes %d to %d:%s\n", i, split.Device, split.First, split.Last, opCounts(s.Graph, split, live))
				s.writeCopies(&b, split)
			}
		}
		b.WriteString(s.placeOf(id))
		return b.String()
	})
}

func (s *Schedule) writeCopies(b *strings.Builder, split Split) {
	for _, id := range split.Inputs {
		from, n := s.Memory.Values[id], s.Graph.Node(id)
		fmt.Fprintf(b, "copy %%%d %q, %d bytes, %s to %s\n", id, n.Name, n.Bytes(), from.Device, split.Device)
	}
}

// placeOf says where a node's value lies.
func (s *Schedule) placeOf(id graph.NodeID) string {
	v := &s.Memory.Values[id]
	switch {
	case v.Dead:
		return "dead"
	case v.Region:
		layer, _ := graph.LayerOf(s.Graph.Node(id).Op)
		return fmt.Sprintf("keys and values of layer %d on %s", layer, v.Device)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s[%d:%d]", v.Device, v.Offset, v.Offset+v.Bytes)
	if v.InPlace != graph.None {
		fmt.Fprintf(&b, " in place of %%%d", v.InPlace)
	} else if v.Root != id {
		fmt.Fprintf(&b, " within %%%d", v.Root)
	}
	switch {
	case v.Input:
		b.WriteString(", written by the host")
	case v.Output:
		b.WriteString(", read by the host")
	case v.Last == id:
		b.WriteString(", read by nobody")
	default:
		fmt.Fprintf(&b, ", last read by %%%d", v.Last)
	}
	return b.String()
}

// WriteDOT writes the graph in the language of Graphviz, as graph.Graph.WriteDOT does, and on
// every node where its value lies, whose memory it took over, and who reads it last.
func (s *Schedule) WriteDOT(w io.Writer, opts ...graph.DOTOption) error {
	notes := graph.WithNotes(func(id graph.NodeID) []string { return []string{s.placeOf(id)} })
	return s.Graph.WriteDOT(w, append([]graph.DOTOption{notes}, opts...)...)
}

// jsonFormat and jsonVersion identify the JSON form. The version grows when a reader of
// the old one would misread the new one; new fields alone do not count.
const (
	jsonFormat  = "minfer-schedule"
	jsonVersion = 1
)

type jsonSchedule struct {
	Format  string       `json:"format"`
	Version int          `json:"version"`
	Graph   *graph.Graph `json:"graph"`
	Values  []jsonValue  `json:"values"`  // by node
	Arenas  []jsonArena  `json:"arenas"`  // bytes of each device's
	Regions []jsonRegion `json:"regions"` // of keys and values
	Splits  []jsonSplit  `json:"splits"`
}

type jsonValue struct {
	Node    graph.NodeID  `json:"node"`
	Offset  *int          `json:"offset,omitempty"` // into the device's arena
	Bytes   int           `json:"bytes,omitempty"`
	Root    *graph.NodeID `json:"root,omitempty"`    // the node whose memory it lies in, if another
	InPlace *graph.NodeID `json:"inPlace,omitempty"` // the source that it overwrites
	First   graph.NodeID  `json:"first"`             // the memory holds it from here
	Last    *graph.NodeID `json:"last,omitempty"`    // to here; to the end if there is none
	Kind    string        `json:"kind"`              // value, input, output, region or dead
}

type jsonArena struct {
	Device string `json:"device"`
	Bytes  int    `json:"bytes"`
	Values int    `json:"values"`
}

type jsonRegion struct {
	Layer  int         `json:"layer"`
	Device string      `json:"device"`
	Width  int         `json:"width"`
	Cells  int         `json:"cells"`
	Type   graph.DType `json:"dtype"`
	Bytes  int         `json:"bytes"` // keys and values together
}

type jsonSplit struct {
	Device  string         `json:"device"`
	First   graph.NodeID   `json:"first"`
	Last    graph.NodeID   `json:"last"`
	Copies  []jsonCopy     `json:"copies,omitempty"`
	Outputs []graph.NodeID `json:"outputs,omitempty"`
}

type jsonCopy struct {
	Value graph.NodeID `json:"value"`
	From  string       `json:"from"`
	Bytes int          `json:"bytes"`
}

// MarshalJSON returns the schedule as JSON, for tools: an object with "format":
// "minfer-schedule" and "version": 1, the graph as graph.Graph.MarshalJSON has it, and by node
// where values lie. Equal schedules give equal bytes.
func (s *Schedule) MarshalJSON() ([]byte, error) {
	out := jsonSchedule{Format: jsonFormat, Version: jsonVersion, Graph: s.Graph, Values: make([]jsonValue, len(s.Memory.Values))}
	for i := range s.Memory.Values {
		out.Values[i] = s.jsonValue(&s.Memory.Values[i])
	}
	for _, a := range s.Memory.Arenas {
		out.Arenas = append(out.Arenas, jsonArena(a))
	}
	for _, r := range s.Memory.Regions {
		out.Regions = append(out.Regions, jsonRegion{r.Layer, r.Device, r.Width, r.Cells, r.Type, regionBytes(r)})
	}
	for _, split := range s.Splits {
		j := jsonSplit{Device: split.Device, First: split.First, Last: split.Last, Outputs: split.Outputs}
		for _, id := range split.Inputs {
			j.Copies = append(j.Copies, jsonCopy{id, s.Memory.Values[id].Device, s.Graph.Node(id).Bytes()})
		}
		out.Splits = append(out.Splits, j)
	}
	return json.Marshal(out)
}

func regionBytes(r alloc.Region) int { return 2 * r.Cells * r.Type.Bytes(r.Width) }

func (s *Schedule) jsonValue(v *alloc.Value) jsonValue {
	j := jsonValue{Node: v.Node, Bytes: v.Bytes, First: v.First, Kind: "value"}
	switch {
	case v.Dead:
		j.Kind = "dead"
	case v.Region:
		j.Kind = "region"
	case v.Input:
		j.Kind = "input"
	case v.Output:
		j.Kind = "output"
	}
	if v.Dead || v.Region {
		return j
	}
	j.Offset = &v.Offset
	if v.Root != v.Node {
		j.Root = &v.Root
	}
	if v.InPlace != graph.None {
		j.InPlace = &v.InPlace
	}
	if v.Last != alloc.Forever {
		j.Last = &v.Last
	}
	return j
}

// WriteJSON writes what MarshalJSON returns, indented.
func (s *Schedule) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		return fmt.Errorf("sched: JSON: %w", err)
	}
	return nil
}
