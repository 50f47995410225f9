package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
)

var update = flag.Bool("update", false, "write what the tests get to testdata")

const model = "../storyteller/storyteller-q8_0.gguf"

// inspect runs the program.
func inspect(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems bytes.Buffer
	code = run(args, &out, &problems)
	return out.String(), problems.String(), code
}

func TestListing(t *testing.T) {
	const golden = "testdata/storyteller.txt"
	got, stderr, code := inspect(t, model)
	if code != 0 || stderr != "" {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	lines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(lines), len(wantLines)) {
		if i >= len(lines) || i >= len(wantLines) || lines[i] != wantLines[i] {
			t.Fatalf("%d lines, want the %d of %s; line %d is the first to differ", len(lines), len(wantLines), golden, i+1)
		}
	}
}

func TestAllShowsAll(t *testing.T) {
	short, _, _ := inspect(t, model)
	long, _, code := inspect(t, model, "-all")
	if code != 0 || strings.Contains(long, "...]") || strings.Contains(long, `"... (`) {
		t.Errorf("-all: code %d, and something is still shortened", code)
	}
	// The last merge and the end of the template are only in the long form.
	for _, want := range []string{`{{- '<|im_start|>assistant\\n' }}\n{%- endif %}"`} {
		if strings.Contains(short, want) || !strings.Contains(long, want) {
			t.Errorf("%q is to be in the long form only", want)
		}
	}
}

// odd is a file that this library cannot run: another architecture, another tokenizer, and
// tensors of types that no longer, or do not yet, exist.
func odd(t *testing.T) []byte {
	t.Helper()
	w := gguf.NewWriter()
	w.SetString("general.architecture", "gizmo")
	w.SetString("general.name", "Odd\x1b[31m one")
	w.Set("gizmo.nested", []any{[]int32{1, 2}, []int32{}})
	w.SetString("tokenizer.ggml.model", "runes")
	const removed, future = "old.weight", "new.weight"
	for _, name := range []string{"plain.weight", removed, future} {
		if err := w.AddTensor(name, gguf.TypeF32, []uint64{8, 2}, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	setType(t, data, removed, uint32(gguf.TypeQ4_2))
	setType(t, data, future, 999)
	return data
}

// setType changes a matrix's type in a file: it comes after the name, the number of
// dimensions and two of them.
func setType(t *testing.T, file []byte, name string, id uint32) {
	t.Helper()
	at := bytes.Index(file, []byte(name))
	if at < 0 {
		t.Fatalf("no %q in the file", name)
	}
	binary.LittleEndian.PutUint32(file[at+len(name)+4+2*8:], id)
}

func TestUnusableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd.gguf")
	if err := os.WriteFile(path, odd(t), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := inspect(t, path)
	if code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	for _, want := range []string{
		`architecture  not usable: arch: `,
		`"gizmo"`,
		`tensors       not usable: `,
		`"Odd\x1b[31m one"`,
		`[2]array  [[1 2] []]`,
		`not usable: tokenizer: `,
		`plain.weight  F32       [8 2]  64 B`,
		`old.weight    Q4_2      [8 2]`,
		`new.weight    type 999  [8 2]`,
		`type 999  1 tensors  16 weights  of unknown size`,
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in:\n%s", want, stdout)
		}
	}
	if strings.ContainsRune(stdout, '\x1b') {
		t.Error("an escape character of the file reaches the terminal")
	}
	if stdout, stderr, code := inspect(t, path, "-text"); stdout != "" || code != 1 || !strings.Contains(stderr, `"gizmo"`) {
		t.Errorf("the graph of an unknown architecture: code %d, %q, %q", code, stdout, stderr)
	}
}

func TestSplitFile(t *testing.T) {
	folder := t.TempDir()
	first := filepath.Join(folder, "x-00001-of-00002.gguf")
	for i, path := range []string{first, filepath.Join(folder, "x-00002-of-00002.gguf")} {
		w := gguf.NewWriter()
		if i == 0 {
			w.SetString("general.architecture", "gizmo")
		}
		w.SetUint16("split.no", uint16(i))
		w.SetUint16("split.count", 2)
		w.SetInt32("split.tensors.count", 3)
		for _, name := range [][]string{{"a"}, {"b", "c"}}[i] {
			if err := w.AddTensor(name, gguf.TypeF16, []uint64{1024}, make([]byte, 2048)); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Create(path)
		if err == nil {
			_, err = w.WriteTo(f)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, code := inspect(t, first)
	if want := "Parts\n  1 of 2  1 tensors  2.00 KiB\n  2 of 2  2 tensors  4.00 KiB\n"; code != 0 || !strings.Contains(stdout, want) {
		t.Errorf("code %d, %s\nwant in it:\n%s\ngot:\n%s", code, stderr, want, stdout)
	}
	if want := "Tokenizer\n  none\n"; !strings.Contains(stdout, want) {
		t.Errorf("%q is not in:\n%s", want, stdout)
	}
}

func TestGraphs(t *testing.T) {
	for _, test := range []struct {
		args     []string
		params   graph.Params // Tokens, Phase, Cells and KVType of it count
		has, not string
	}{
		{[]string{"-text", model}, graph.Params{Tokens: 16, Cells: 1024, KVType: graph.F16}, "FusedFFNDown(", "SwiGLU("},
		{[]string{"-text", "-tokens", "5", "-ctx", "100", "-kv", "f32", model}, graph.Params{Tokens: 5, Cells: 112, KVType: graph.F32}, "FusedQKVNorm(", " QKNorm("},
		{[]string{model, "-text", "-phase", "decode", "-backends", "cpu"}, graph.Params{Tokens: 1, Phase: graph.Decode, Cells: 1024, KVType: graph.F16}, "FusedFFN(", "SwiGLU("},
	} {
		stdout, stderr, code := inspect(t, test.args...)
		if code != 0 {
			t.Errorf("%q: code %d: %s", test.args, code, stderr)
			continue
		}
		g, err := graph.Parse(stdout)
		if err != nil {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		p := graph.Params{Tokens: g.Params.Tokens, Phase: g.Params.Phase, Cells: g.Params.Cells, KVType: g.Params.KVType}
		if p != test.params {
			t.Errorf("%q: params %+v, want %+v", test.args, p, test.params)
		}
		if !strings.Contains(stdout, test.has) || strings.Contains(stdout, test.not) {
			t.Errorf("%q: want %q and not %q in\n%s", test.args, test.has, test.not, stdout)
		}
		for i := range g.Nodes {
			if g.Nodes[i].Device != "cpu" {
				t.Errorf("%q: node %q is on %q", test.args, g.Nodes[i].Name, g.Nodes[i].Device)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	stdout, stderr, code := inspect(t, "-json", model)
	if code != 0 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `"blk.3.ffn_down.weight"`) {
		t.Errorf("code %d, %s, %d bytes of JSON", code, stderr, len(stdout))
	}
}

func TestDOT(t *testing.T) {
	stdout, stderr, code := inspect(t, "-dot", "-phase", "decode", "-all", model)
	if code != 0 || !strings.HasPrefix(stdout, "digraph ") || !strings.Contains(stdout, `label="blk.3"`) {
		t.Fatalf("code %d, %s\n%s", code, stderr, stdout)
	}
	stdout, stderr, code = inspect(t, "-dot", "-phase", "decode", model)
	if code != 0 || !strings.Contains(stdout, `label="blk.0 to blk.3\n4 layers alike; numbers are those of blk.0"`) {
		t.Fatalf("code %d, %s\n%s", code, stderr, stdout)
	}
	dot, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("Graphviz is not installed, so it is not asked to draw")
	}
	draw := exec.Command(dot, "-Tpng")
	draw.Stdin = strings.NewReader(stdout)
	picture, err := draw.Output()
	if err != nil || !bytes.HasPrefix(picture, []byte("\x89PNG")) {
		t.Errorf("dot draws %d bytes, %v", len(picture), err)
	}
}

func TestErrors(t *testing.T) {
	folder := t.TempDir()
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "0 files given"},
		{[]string{model, model}, "2 files given"},
		{[]string{filepath.Join(folder, "none.gguf")}, "none.gguf: "},
		{[]string{"main.go"}, "not a GGUF file"},
		{[]string{"-text", "main.go"}, "not a GGUF file"},
		{[]string{"-dot", "-json", model}, "one of -dot, -json, -svg and -text"},
		{[]string{"-text", "-phase", "both", model}, "-phase both: want"},
		{[]string{"-text", "-tokens", "1", model}, "-tokens 1: want 2 or more"},
		{[]string{"-text", "-ctx", "-1", model}, "-ctx -1: want"},
		{[]string{"-text", "-kv", "q8", model}, "-kv q8: want"},
		{[]string{"-text", "-backends", "abacus", model}, `"abacus": unknown device`},
		{[]string{"-nonsense", model}, "-nonsense"},
	} {
		stdout, stderr, code := inspect(t, test.args...)
		if stdout != "" || code != 1 || !strings.HasPrefix(stderr, "inspect: ") || !strings.Contains(stderr, test.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: code %d, stdout %q, stderr %q, want one line with %q", test.args, code, stdout, stderr, test.want)
		}
	}
	if stdout, stderr, code := inspect(t, "-h"); stdout != "" || code != 0 || !strings.Contains(stderr, "usage: inspect") {
		t.Errorf("-h: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestOutputThatFails(t *testing.T) {
	for _, args := range [][]string{{model}, {"-text", model}, {"-dot", model}, {"-json", model}, {"-svg", model}, {"-diff", model, model, "x"}} {
		var problems bytes.Buffer
		if code := run(args, full{}, &problems); code != 1 || !strings.Contains(problems.String(), "no room") {
			t.Errorf("%q: code %d: %s", args, code, problems.String())
		}
	}
}

// TestSchedule: what is shown besides the graph: memory, splits, and what overwrites what.
func TestSchedule(t *testing.T) {
	text, stderr, code := inspect(t, "-text", model)
	if code != 0 {
		t.Fatal(stderr)
	}
	for _, want := range []string{"\n; split 0: cpu, nodes ", " in place of %", ", last read by %", "  ; keys and values of layer 3 on cpu\n", ", written by the host\n", ", read by the host\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("-text lacks %q", want)
		}
	}
	out, _, _ := inspect(t, "-json", model)
	var schedule struct {
		Format string
		Graph  struct{ Nodes []struct{ Name string } }
		Values []struct {
			Node, Bytes int
			Offset      *int
		}
		Arenas []struct{ Bytes int }
		Splits []struct{ First, Last int }
	}
	if err := json.Unmarshal([]byte(out), &schedule); err != nil {
		t.Fatal(err)
	}
	if schedule.Format != "minfer-schedule" || len(schedule.Values) != len(schedule.Graph.Nodes) || len(schedule.Splits) != 1 || len(schedule.Arenas) != 1 {
		t.Errorf("%s, %d values of %d nodes, %d splits, %d arenas", schedule.Format, len(schedule.Values), len(schedule.Graph.Nodes), len(schedule.Splits), len(schedule.Arenas))
	}
	for _, v := range schedule.Values {
		if v.Offset != nil && *v.Offset+v.Bytes > schedule.Arenas[0].Bytes {
			t.Errorf("node %d lies outside of the arena", v.Node)
		}
	}
	picture, stderr, code := inspect(t, "-svg", "-phase", "decode", model)
	if code != 0 || !strings.HasPrefix(picture, "<svg ") || !strings.Contains(picture, "keys and values of 1024 tokens: 2.00 MiB on cpu for 4 layers") {
		t.Errorf("code %d, %s\n%s", code, stderr, picture)
	}
	if err := xml.Unmarshal([]byte(picture), new(struct{})); err != nil {
		t.Error(err)
	}
}

// shared is a model of the same weights in another type.
func shared(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "testdata", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDiff(t *testing.T) {
	const prompt = "Once upon a time there was a fox"
	other := shared(t, "storyteller-q4_0.gguf")
	stdout, stderr, code := inspect(t, "-diff", model, other, prompt)
	if code != 0 || !strings.Contains(stdout, "\nThe first node that differs is embed (Embed): by ") || !strings.Contains(stdout, "token_embd.weight Q8_0 (Q6_K)") {
		t.Errorf("two quantisations: code %d, %s\n%s", code, stderr, stdout)
	}
	stdout, stderr, code = inspect(t, "-diff", "-all", "-bound", "0.05", model, other, prompt)
	if code != 0 || !strings.Contains(stdout, "blk.2.ffn_down") || !strings.Contains(stdout, "\nThe first node further apart than 0.05 is blk.0.") {
		t.Errorf("a wider bound: code %d, %s\n%s", code, stderr, stdout)
	}
	// Fused operations, instruction sets and devices make no difference at all.
	for _, args := range [][]string{{"-unfused", "second"}, {"-unfused", "first", "-against", "cpu"}} {
		stdout, stderr, code = inspect(t, append(args, "-diff", "-bound", "0", model, model, "Once")...)
		if code != 0 || !strings.Contains(stdout, "All are equal, to the bit.") {
			t.Errorf("%q: code %d, %s\n%s", args, code, stderr, stdout)
		}
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-diff", model, other}, "2 arguments given"},
		{[]string{"-diff", "-dot", model, other, "x"}, "-diff shows no graph"},
		{[]string{"-diff", "-bound", "-1", model, other, "x"}, "-bound -1"},
		{[]string{"-diff", "-unfused", "none", model, other, "x"}, "-unfused none"},
		{[]string{"-diff", model, other, ""}, "no tokens"},
		{[]string{"-diff", "main.go", other, "x"}, "not a GGUF file"},
		{[]string{"-diff", model, other, strings.Repeat("fox ", 3000)}, "context"},
	} {
		if stdout, stderr, code := inspect(t, test.args...); stdout != "" || code != 1 || !strings.Contains(stderr, test.want) {
			t.Errorf("%.80q: code %d, %q, want %q in %q", test.args, code, stdout, test.want, stderr)
		}
	}
}

// spoilt is a copy of a model in which row 100 of a matrix is row 0.
func spoilt(t *testing.T, path, tensor string) string {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := f.Tensor(tensor)
	if err := f.Close(); err != nil || !ok {
		t.Fatal(err, ok)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, row := data[w.Offset:w.Offset+w.Size], w.Size/w.Dims[1]
	copy(rows[100*row:101*row], rows)
	copied := filepath.Join(t.TempDir(), "spoilt.gguf")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

// TestPlantedFaults: the report of a model against a copy of which one row of one matrix is another's names the node that
// reads it, however small the difference is and whatever other nodes then do.
func TestPlantedFaults(t *testing.T) {
	const prompt = "Once upon a time there was a fox"
	for _, test := range []struct {
		tensor string
		args   []string
		want   []string
	}{
		{"blk.2.ffn_down.weight", nil, []string{"that differs is blk.2.ffn_down (FusedFFNDown)", "most in feature 100 of token", "blk.2.ffn_down.weight Q8_0\n", "nodes before the first are equal to the bit"}},
		{"blk.1.ffn_up.weight", []string{"-phase", "decode"}, []string{"that differs is blk.1.ffn_act (FusedFFN)", "most in feature 100 of token", "blk.1.ffn_up.weight Q8_0\n"}},
		{"blk.1.ffn_up.weight", []string{"-unfused", "both"}, []string{"that differs is blk.1.ffn_up (MatMul)", "reads blk.1.ffn_up.weight Q8_0\n"}},
		{"blk.3.attn_v.weight", nil, []string{"that differs is blk.3.attn (Attention)", "blk.3.qkv reads ", "blk.3.attn_v.weight Q8_0"}},
		{"blk.3.attn_v.weight", []string{"-unfused", "both", "-phase", "decode"}, []string{"that differs is blk.3.attn_v (MatMul)", "over tokens: 1."}},
	} {
		bad := spoilt(t, model, test.tensor)
		stdout, stderr, code := inspect(t, append(test.args, "-diff", model, bad, prompt)...)
		for _, want := range test.want {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%s %q: code %d, %s; want %q in\n%s", test.tensor, test.args, code, stderr, want, stdout)
			}
		}
	}
}

// TestSuspects: where all nodes differ, those are named that add to what their inputs differ by.
func TestSuspects(t *testing.T) {
	g, err := graph.Parse(`graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [4]
%1 = MatMul(%0) {Weight="a" Type="F32" In=4 Out=4} "blk.0.a" F32 [4]
%2 = MatMul(%1) {Weight="b" Type="F32" In=4 Out=4} "blk.0.b" F32 [4]
%3 = Add(%1 %2) "blk.0.c" F32 [4]
%4 = MatMul(%3) {Weight="d" Type="F32" In=4 Out=4} "d" F32 [4]
output %4
`)
	if err != nil {
		t.Fatal(err)
	}
	run := func(a, b, c, d float32) *recording {
		r := &recording{graph: g, values: make(map[string][]float32)}
		for name, x := range map[string]float32{"blk.0.a": a, "blk.0.b": b, "blk.0.c": c, "d": d} {
			r.values[name] = []float32{100, 0, x, 0}
		}
		return r
	}
	all, missing := compare(run(0, 0, 0, 0), run(1, 5, 4, 4))
	if missing != 0 || len(all) != 4 || !firstLayer(all, 0) || firstLayer(all, 3) {
		t.Fatalf("%d compared, %d missing", len(all), missing)
	}
	for i, want := range []float64{0.01, math.Sqrt(0.05*0.05 - 0.01*0.01), 0, 0} {
		if math.Abs(all[i].adds-want) > 1e-9 {
			t.Errorf("%s adds %g, want %g", all[i].node.Name, all[i].adds, want)
		}
	}
	if s := suspects(all); len(s) != 2 || s[0].node.Name != "blk.0.b" || s[1].node.Name != "blk.0.a" {
		t.Errorf("suspects %+v", s)
	}
}

func TestMeasure(t *testing.T) {
	nan := float32(math.NaN())
	for _, test := range []struct {
		a, b   []float32
		want   distance
		beyond bool
	}{
		{[]float32{3, 4}, []float32{3, 4}, distance{finite: true}, false},
		{[]float32{3, 4}, []float32{3, 4.5}, distance{differing: 1, relative: 0.1, most: 0.5, at: 1, finite: true}, true},
		{[]float32{nan, 4}, []float32{nan, 4}, distance{finite: true}, false},
		{[]float32{1, 4}, []float32{nan, 4}, distance{differing: 1, relative: math.Inf(1), most: math.Inf(1)}, true},
		{[]float32{0}, []float32{1}, distance{differing: 1, relative: math.Inf(1), most: 1, finite: true}, true},
	} {
		got := measure(test.a, test.b)
		if got != test.want || got.beyond(0.05) != test.beyond {
			t.Errorf("%v, %v: %+v, want %+v", test.a, test.b, got, test.want)
		}
	}
}
