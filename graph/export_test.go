package graph_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"image/png"
	"os/exec"
	"testing"

	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/testfiles"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// exported has two devices, a dead node and a name that needs escapes.
func exported(t *testing.T) *graph.Graph {
	t.Helper()
	g := decoder(t)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		n.Device = "gpu"
		if k := n.Op.Kind(); k == graph.KindEmbed || k == graph.KindInput && n.Name == "token_ids" {
			n.Device = "cpu"
		}
	}
	m := g.Lookup("blk.1.gated")
	gate := g.Lookup("blk.1.gate_silu")
	m.Op = graph.SwiGLU{}
	if err := m.SetSources(gate.Sources()[0], m.Sources()[1]); err != nil {
		t.Fatal(err)
	}
	gate.Name = `the "old" gate\silu` + "\x00\n"
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestWriteDOT(t *testing.T) {
	g := exported(t)
	var a, b bytes.Buffer
	if err := g.WriteDOT(&a); err != nil {
		t.Fatal(err)
	}
	if err := g.Clone().WriteDOT(&b); err != nil || a.String() != b.String() {
		t.Fatalf("equal graphs are drawn differently (%v)", err)
	}
	testfiles.Golden(t, *update, "decoder.dot", a.Bytes())

	dot, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("Graphviz is not installed; the text was compared, but not drawn")
	}
	cmd := exec.Command(dot, "-Tpng")
	cmd.Stdin = &a
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.Decode(bytes.NewReader(out)); err != nil {
		t.Error(err)
	}
}

func TestWriteJSON(t *testing.T) {
	g := exported(t)
	var b bytes.Buffer
	if err := g.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	testfiles.Golden(t, *update, "decoder.json", b.Bytes())
	var back struct {
		Format  string
		Version int
		Params  map[string]any
		Nodes   []struct {
			ID      int
			Name    string
			Op      string
			Payload map[string]any
			Shape   []int
			Dtype   string
			Device  string
			Sources []int
			Weights []struct{ Name, Type string }
			Dead    bool
		}
		Inputs, Outputs []int
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Format != "minfer-graph" || back.Version != 1 || back.Params["KVType"] != "F16" || len(back.Nodes) != len(g.Nodes) {
		t.Errorf("%+v", back)
	}
	dead := 0
	for i, n := range back.Nodes {
		if n.ID != i || n.Name != g.Nodes[i].Name || len(n.Sources) != len(g.Nodes[i].Sources()) || len(n.Shape) != 4 {
			t.Errorf("node %d is %+v", i, n)
		}
		if n.Dead {
			dead++
		}
	}
	if dead != 1 {
		t.Errorf("%d dead nodes, want 1", dead)
	}
}

// failing is a writer that takes so many bytes.
type failing struct{ left int }

var errFull = errors.New("full")

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, errFull
	}
	f.left -= len(p)
	return len(p), nil
}

func TestExportErrors(t *testing.T) {
	g := exported(t)
	if err := g.WriteDOT(&failing{100}); !errors.Is(err, errFull) {
		t.Errorf("DOT: %v", err)
	}
	if err := g.WriteJSON(&failing{100}); !errors.Is(err, errFull) {
		t.Errorf("JSON: %v", err)
	}
	nan, err := graph.Parse("graph {}\n%0 = Input() \"x\" F32 [1]\n%1 = Scale(%0) {Factor=NaN} \"y\" F32 [1]\noutput %1")
	if err != nil {
		t.Fatal(err)
	}
	if err := nan.WriteJSON(&bytes.Buffer{}); err == nil {
		t.Error("JSON of a NaN")
	}
}
