package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/customdevice/relay"
	"github.com/minfer/minfer/examples/storyteller"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched/trace"
)

// A relay that takes all operations, those on keys and values among them.
var _ = relay.Register(relay.Options{Name: "relay-everything", ID: 1010, Priority: 1, Takes: func(graph.Op, graph.DType) bool { return true }})

// schedule is what is read of a graph in a trace.
type schedule struct {
	Graph struct{ Nodes []struct{ Name string } }
}

// traced evaluates a prompt and a token on some devices and returns the logits, and the nodes of each
// pass by name.
func traced(t *testing.T, devices ...string) ([]float32, []map[string]trace.Node) {
	t.Helper()
	var file bytes.Buffer
	limits := trace.Limits{Rows: 8, Columns: 1 << 20, Attention: 8, Top: 3, TopRows: 1}
	m, err := minfer.OpenBytes(storyteller.Model, minfer.WithBackends(devices...), minfer.WithTrace(&file, trace.WithLimits(limits)))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSession(minfer.WithContext(64))
	if err != nil {
		t.Fatal(err)
	}
	var logits []float32
	for _, tokens := range [][]minfer.Token{{3, 1, 4, 1, 5}, {9}} {
		if logits, err = s.Eval(context.Background(), tokens); err != nil {
			t.Fatal(err)
		}
	}
	logits = slices.Clone(logits)
	var passes []map[string]trace.Node
	graphs := make(map[uint64]schedule)
	for r, err := range trace.Records(&file) {
		if err != nil {
			t.Fatal(err)
		}
		switch r := r.(type) {
		case *trace.Graph:
			var of schedule
			if err := json.Unmarshal(r.Raw, &of); err != nil {
				t.Fatal(err)
			}
			graphs[r.UID] = of
		case *trace.PassRecord:
			nodes := make(map[string]trace.Node)
			for _, n := range r.Nodes {
				nodes[graphs[r.Graph].Graph.Nodes[n.Node].Name] = n
			}
			passes = append(passes, nodes)
		}
	}
	return logits, passes
}

// TestTracesAreTheSameEverywhere: what a device elsewhere computes is read from there, what its heads
// attend to is asked there, and all of it is what the CPU has.
func TestTracesAreTheSameEverywhere(t *testing.T) {
	logits, want := traced(t, "cpu")
	for _, devices := range [][]string{{"relay", "cpu"}, {"relay-everything", "cpu"}} {
		got, passes := traced(t, devices...)
		if !slices.Equal(got, logits) {
			t.Errorf("%v: other logits", devices)
		}
		for i, p := range passes {
			elsewhere := 0
			for name, n := range p {
				if n.Device == devices[0] {
					elsewhere++
				}
				w, both := want[i][name] // what is fused depends on the devices
				if !both || n.Stats == nil || w.Stats == nil {
					continue
				}
				if *n.Stats != *w.Stats || !slices.Equal(n.Sample.Values, w.Sample.Values) {
					t.Errorf("%v: pass %d, %s: %+v, want %+v", devices, i, name, n.Stats, w.Stats)
				}
				if a := n.Attention; a != nil && (a.Unavailable != "" || !bytes.Equal(a.Weights, w.Attention.Weights)) {
					t.Errorf("%v: pass %d, %s attends to others: %s", devices, i, name, a.Unavailable)
				}
			}
			if elsewhere == 0 {
				t.Errorf("%v: pass %d ran on the CPU alone", devices, i)
			}
		}
	}
}
