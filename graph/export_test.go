package graph_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"os/exec"
	"strings"
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

// TestDOTFoldsLayers: of layers that are alike the first is drawn, with the types that its weights have in any of
// them; those of another window, device or shape are drawn for themselves; and with EveryLayer all are.
func TestDOTFoldsLayers(t *testing.T) {
	var text strings.Builder
	text.WriteString("graph {Tokens=2 Outputs=2 Cells=4 KVType=F16}\n%0 = Input() \"x\" F32 [8 2]\n%1 = Input() \"positions\" I32 [2]\n%2 = Scale(%0) {Factor=2} \"embed\" F32 [8 2]\n")
	last, id := 2, 3
	line := func(format string, args ...any) {
		fmt.Fprintf(&text, "%%%d = "+format+"\n", append([]any{id}, args...)...)
		last = id
		id++
	}
	for layer := range 9 {
		kind, factor := []string{"Q4_K", "Q6_K"}[layer%2], float32(1)
		if layer == 6 {
			factor = 3
		}
		before := last
		line(`RMSNorm(%%%d) {Weight="blk.%d.norm.weight" Eps=1e-05} "blk.%[3]d.norm" F32 [8 2]`, last, layer)
		line(`MatMul(%%%d) {Weight="blk.%d.up.weight" Type="%s" In=8 Out=8} "blk.%[3]d.up" F32 [8 2]`, last, layer, kind)
		line(`Scale(%%%d) {Factor=%g} "blk.%d.scaled" F32 [8 2]`, last, factor, layer)
		line(`Add(%%%d %%%d) "blk.%d.sum" F32 [8 2]`, before, last, layer)
	}
	fmt.Fprintf(&text, "output %%%d\n", last)
	g, err := graph.Parse(text.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	draw := func(opts ...graph.DOTOption) string {
		var b strings.Builder
		if err := g.WriteDOT(&b, opts...); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	folded := draw(graph.WithNotes(func(id graph.NodeID) []string { return []string{fmt.Sprint("note ", id)} }))
	for _, want := range []string{
		`label="blk.0 to blk.5\n6 layers alike; numbers are those of blk.0"`, `label="blk.6"`, `label="blk.7"`, `label="blk.8"`,
		`%4 up\nMatMul F32 [8 2]\nup.weight Q4_K or Q6_K [8 8]\nnote 4"`,
		"n2 -> n3;", "n6 -> n3 [style=dashed, constraint=false];", "n6 -> n6 [style=dashed, constraint=false];", "n6 -> n27 [constraint=false];",
	} {
		if !strings.Contains(folded, want) {
			t.Errorf("no %q in\n%s", want, folded)
		}
	}
	if nodes := strings.Count(folded, "[label="); nodes != 3+4*4 {
		t.Errorf("%d nodes are drawn, want %d", nodes, 3+4*4)
	}
	whole := draw(graph.EveryLayer())
	if nodes := strings.Count(whole, "[label="); nodes != len(g.Nodes) || strings.Contains(whole, "alike") || strings.Contains(whole, " or ") {
		t.Errorf("%d nodes are drawn, want %d", nodes, len(g.Nodes))
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
