package graph

import (
	"encoding/json"
	"fmt"
	"io"
)

// jsonFormat and jsonVersion identify the JSON form. The version grows when a reader of
// the old one would misread the new one; new fields alone do not count.
const (
	jsonFormat  = "minfer-graph"
	jsonVersion = 1
)

type jsonGraph struct {
	Format  string     `json:"format"`
	Version int        `json:"version"`
	UID     uint64     `json:"uid,omitempty"`
	Params  Params     `json:"params"`
	Nodes   []jsonNode `json:"nodes"`
	Inputs  []NodeID   `json:"inputs"`
	Outputs []NodeID   `json:"outputs"`
}

type jsonNode struct {
	ID      NodeID       `json:"id"`
	Name    string       `json:"name"`
	Op      string       `json:"op"`
	Payload Op           `json:"payload"`
	Shape   Shape        `json:"shape"`
	Type    DType        `json:"dtype"`
	Device  string       `json:"device,omitempty"`
	Sources []NodeID     `json:"sources"`
	Weights []jsonWeight `json:"weights,omitempty"`
	Dead    bool         `json:"dead,omitempty"`
}

type jsonWeight struct {
	Name string `json:"name"`
	Type string `json:"type,omitempty"`
	In   int    `json:"in,omitempty"`
	Out  int    `json:"out"`
}

// MarshalJSON returns the graph as JSON, for tools: an object with "format":
// "minfer-graph" and "version": 1, the parameters, and the nodes in order, each with its
// payload, its shape of four extents, its sources and the weights that it names.
// Equal graphs give equal bytes. The only errors are those of a payload with a number that
// JSON does not have, a NaN or an infinity.
func (g *Graph) MarshalJSON() ([]byte, error) { return json.Marshal(g.jsonForm()) }

func (g *Graph) jsonForm() jsonGraph {
	out := jsonGraph{
		Format: jsonFormat, Version: jsonVersion, UID: g.UID, Params: g.Params,
		Nodes:   make([]jsonNode, len(g.Nodes)),
		Inputs:  append([]NodeID{}, g.Inputs...),
		Outputs: append([]NodeID{}, g.Outputs...),
	}
	live := g.Live()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		out.Nodes[i] = jsonNode{
			ID: n.ID, Name: n.Name, Op: n.Op.Kind().String(), Payload: n.Op, Shape: n.Shape, Type: n.Type,
			Device: n.Device, Sources: append([]NodeID{}, n.Sources()...), Dead: !live[i],
		}
		for _, u := range Weights(n.Op) {
			out.Nodes[i].Weights = append(out.Nodes[i].Weights, jsonWeight(u))
		}
	}
	return out
}

// WriteJSON writes what MarshalJSON returns, indented.
func (g *Graph) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(g.jsonForm()); err != nil {
		return fmt.Errorf("graph: JSON: %w", err)
	}
	return nil
}
