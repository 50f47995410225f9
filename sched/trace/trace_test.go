package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/null"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/perfettotest"
	"github.com/minfer/minfer/sched"
	"github.com/minfer/minfer/sched/trace"
)

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

func TestDescribe(t *testing.T) {
	for _, test := range []struct {
		x    []float32
		want trace.Statistics
	}{
		{[]float32{3, -4}, trace.Statistics{Min: -4, Max: 3, Mean: -0.5, RMS: math.Sqrt(12.5)}},
		{[]float32{nan, 2, inf, -inf, 2}, trace.Statistics{Min: 2, Max: 2, Mean: 2, RMS: 2, NaN: 1, Inf: 2}},
		{[]float32{nan}, trace.Statistics{NaN: 1}},
		{nil, trace.Statistics{}},
		{[]float32{math.MaxFloat32, -math.MaxFloat32}, trace.Statistics{Min: -math.MaxFloat32, Max: math.MaxFloat32, RMS: math.MaxFloat32}},
	} {
		if got := *trace.Describe(test.x); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.x, got, test.want)
		}
	}
}

func TestNumbersSurviveJSON(t *testing.T) {
	want := []trace.Number{0, -1.5, 1e-45, math.MaxFloat32, trace.Number(inf), trace.Number(-inf), trace.Number(nan), 0.1}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != `[0,-1.5,1e-45,3.4028235e+38,"+Inf","-Inf","NaN",0.1]` {
		t.Errorf("%s", text)
	}
	var got []trace.Number
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Float32bits(float32(got[i])) != math.Float32bits(float32(want[i])) {
			t.Errorf("%v came back as %v", want[i], got[i])
		}
	}
	for _, bad := range []string{`["0"]`, `["Infinity"]`, `[true]`, `[null1]`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestLikeliest(t *testing.T) {
	name := func(t int32) string {
		if t == 5 {
			return "\xe4\xbd" // two thirds of a character
		}
		return string(rune('a' + t))
	}
	got := trace.Likeliest([]float32{1, nan, 3, 3, -inf, 2}, 3, name)
	e := math.E
	sum := 2 + 1/e + 1/(e*e)
	want := []trace.Candidate{{2, "c", 3, trace.Number(1 / sum), nil}, {3, "d", 3, trace.Number(1 / sum), nil}, {5, "\xe4\xbd", 2, trace.Number(1 / e / sum), []byte("\xe4\xbd")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := trace.Likeliest(nil, 3, name); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// all is a record of every kind.
func all() []trace.Record {
	return []trace.Record{
		&trace.Header{Format: trace.Format, Version: trace.Version, Model: trace.Model{Name: "m", Devices: []string{"a", "b"}}, Began: "2025-01-01T00:00:00Z"},
		&trace.Graph{UID: 7, Raw: json.RawMessage(`{"graph":{"nodes":[{"name":"x","op":"Input"},{"name":"y","op":"Scale"}]}}`), Captured: []string{"b"}},
		&trace.PassRecord{Pass: 1, Graph: 7, Phase: "prefill", Start: 1000, Time: 5000, Tokens: []int32{1, 2}, Texts: []string{"q", "r"}, Positions: []int32{0, 1}, Sessions: []uint64{1, 1},
			Nodes: []trace.Node{{Node: 1, Device: "b", Start: 2000, Time: 1500, Bytes: 8, MultiplyAdds: 3,
				Stats: &trace.Statistics{Min: -1, Max: 1, RMS: 1}, Histogram: []int{1, 0, 1},
				Sample:    &trace.Sample{Rows: []int{1}, Stride: 1, Values: []trace.Number{-1, trace.Number(inf)}},
				Attention: &trace.Attention{Heads: 1, Rows: 1, Keys: 2, Weights: []byte{5, 250}}}},
			Logits: []trace.Logits{{Session: 1, Position: 1, Top: []trace.Candidate{{Token: 3, Text: "s", Logit: 2, Prob: 0.5}}}}, Error: "none"},
		&trace.ChoiceRecord{Choice: trace.Choice{Session: 1, Position: 2, Token: 3, Text: "s"}, At: 7000},
		&trace.LensRecord{Pass: 1, Layers: []trace.LensLayer{{Node: "y", Top: []trace.Candidate{{Token: 3}}}}},
	}
}

func TestRecordsComeBack(t *testing.T) {
	var file bytes.Buffer
	w := trace.NewWriter(&file)
	want := all()
	for _, r := range want {
		if err := w.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Replace(file.String(), "\n", "\n\n{\"kind\":\"of a later version\",\"x\":[1]}\n", 1)
	var got []trace.Record
	for r, err := range trace.Records(strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}

func TestWhatIsNoTrace(t *testing.T) {
	header := `{"kind":"header","format":"minfer-trace","version":1}` + "\n"
	for _, text := range []string{
		"", "GGUF", `{"kind":"pass"}`, strings.Replace(header, "1", "2", 1), `{"kind":"header","format":"minfer-graph","version":1}`,
		header + "{", header + `{"kind":"pass","tokens":7}`, "[1]",
	} {
		var failure error
		for _, err := range trace.Records(strings.NewReader(text)) {
			failure = err
		}
		if !errors.Is(failure, trace.ErrFormat) {
			t.Errorf("%q: %v", text, failure)
		}
	}
}

func FuzzRecords(f *testing.F) {
	var file bytes.Buffer
	for _, r := range all() {
		line, err := trace.Line(r)
		if err != nil {
			f.Fatal(err)
		}
		file.Write(line)
	}
	f.Add(file.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		chrome := trace.NewChromeWriter(&bytes.Buffer{})
		for r, err := range trace.Records(bytes.NewReader(b)) {
			if (r == nil) == (err == nil) {
				t.Fatalf("%v, %v", r, err)
			}
			if err == nil {
				_ = chrome.Put(r) // must not panic
			}
		}
	})
}

func TestChrome(t *testing.T) {
	var file bytes.Buffer
	c := trace.NewChromeWriter(&file)
	for _, r := range all() {
		if err := c.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `[
{"ph":"M","ts":0,"pid":1,"tid":1,"name":"process_name","args":{"name":"minfer m"}},
{"ph":"M","ts":0,"pid":1,"tid":1,"name":"thread_name","args":{"name":"passes"}},
{"ph":"M","ts":0,"pid":1,"tid":2,"name":"thread_name","args":{"name":"a"}},
{"ph":"M","ts":0,"pid":1,"tid":3,"name":"thread_name","args":{"name":"b"}},
{"ph":"X","ts":1,"dur":5,"pid":1,"tid":1,"cat":"pass","name":"prefill of 2","args":{"error":"none","graph":7,"pass":1,"tokens":2}},
{"ph":"X","ts":2,"dur":1.5,"pid":1,"tid":3,"cat":"Scale","name":"y","args":{"bytes":8,"inf":0,"macs":3,"nan":0,"node":1,"rms":1}},
{"ph":"i","ts":7,"pid":1,"tid":1,"s":"t","cat":"token","name":"token \"s\"","args":{"position":2,"session":1,"token":3}}
]
`
	if file.String() != want {
		t.Errorf("got\n%s", file.String())
	}
	if _, err := perfettotest.Import(file.Bytes()); err != nil {
		t.Error(err)
	}
	empty := &bytes.Buffer{}
	if err := trace.NewChromeWriter(empty).Close(); err != nil || empty.String() != "[]\n" {
		t.Errorf("an empty one is %q, %v", empty, err)
	}
}

// TestTimelineOfACoarseClock: nodes that begin when the one before ends, to the nanosecond and at times that
// are no binary fractions of a microsecond, do not overlap in Perfetto; neither do those that take no time.
func TestTimelineOfACoarseClock(t *testing.T) {
	records := all()[:2]
	records[1].(*trace.Graph).Raw = json.RawMessage(`{"graph":{"nodes":[{"name":"x","op":"Scale"}]}}`)
	want, at := 0, int64(0)
	for pass := range 3 {
		p := &trace.PassRecord{Pass: uint64(pass), Graph: 7, Phase: "decode", Start: at, Tokens: []int32{1}}
		for i := range 400 {
			took := int64(i % 7 * 100)
			p.Nodes = append(p.Nodes, trace.Node{Device: []string{"a", "b"}[i/200], Start: at, Time: took})
			at += took
			want++
		}
		p.Time = at - p.Start
		records = append(records, p)
		for _, text := range []string{"<|im_end|>", "\n\u2028\x00\"", "\U0001f98a", "\u200b\ufffd"} {
			records = append(records, &trace.ChoiceRecord{Choice: trace.Choice{Text: text}, At: at})
			want++
		}
		want++
	}
	var file bytes.Buffer
	c := trace.NewChromeWriter(&file)
	for _, r := range records {
		if err := c.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	slices, err := perfettotest.Import(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if len(slices) != want {
		t.Errorf("%d events, want %d", len(slices), want)
	}
	for _, s := range slices {
		if s.Duration > 0 && s.Depth != 0 {
			t.Errorf("%q at %d is within another", s.Name, s.Start)
		}
	}
}

// replaying is a device that runs recorded nodes at once, and leaves values out unless told not to.
type replaying struct {
	*null.Device
	recorded bool
	replays  int
	capture  bool
}

func (d *replaying) Replay(uint64, int, int) (bool, error) {
	if d.recorded {
		d.replays++
	}
	was := d.recorded
	d.recorded = true
	return was, nil
}

func (d *replaying) Capture(on bool) { d.capture = on }

// sink keeps records, and sees whether the device was told when values were read.
type sink struct{ records []trace.Record }

func (s *sink) Put(r trace.Record) error {
	s.records = append(s.records, r)
	return nil
}

// TestCapturedDevice: a device that runs from recordings leaves them while there is a recorder, the
// trace says so, and it goes back afterwards.
func TestCapturedDevice(t *testing.T) {
	d := &replaying{Device: null.New("a", null.Everything())}
	g, err := graph.Parse(`graph {Tokens=1 Outputs=1}
%0 = Input() "x" F32 [16] @a
%1 = Scale(%0) {Factor=2} "y" F32 [16] @a
%2 = Silu(%1) "z" F32 [16] @a
output %2
`)
	if err != nil {
		t.Fatal(err)
	}
	g.UID = 9
	p, err := sched.Prepare(g, alloc.New([]backend.Backend{d}))
	if err != nil {
		t.Fatal(err)
	}
	run := func() {
		t.Helper()
		if err := p.Execute(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	run()
	run()
	if d.replays != 1 {
		t.Fatalf("%d replays", d.replays)
	}
	s := &sink{}
	r, err := trace.NewRecorderTo(s, trace.Model{}, func(int32) string { return "" }, trace.Only(func(n *graph.Node) bool { return n.Name == "z" }))
	if err != nil {
		t.Fatal(err)
	}
	pass := &trace.Pass{Number: 1, Program: p, Tokens: []int32{1}, Positions: []int32{0}, Sessions: []uint64{1}, Outputs: []int32{0}}
	p.SetObserver(r)
	if err := r.BeginPass(context.Background(), pass); err != nil {
		t.Fatal(err)
	}
	run()
	if err := r.EndPass(pass, nil); err != nil {
		t.Fatal(err)
	}
	p.SetObserver(nil)
	run()
	if d.replays != 2 || d.capture {
		t.Errorf("%d replays, capture %v, want 2 and false", d.replays, d.capture)
	}
	if len(s.records) != 3 {
		t.Fatalf("%d records", len(s.records))
	}
	if of := s.records[1].(*trace.Graph); of.UID != 9 || !reflect.DeepEqual(of.Captured, []string{"a"}) {
		t.Errorf("graph %d captured %q", of.UID, of.Captured)
	}
	nodes := s.records[2].(*trace.PassRecord).Nodes
	if len(nodes) != 1 || nodes[0].Node != 2 || nodes[0].Bytes != 64 {
		t.Errorf("nodes %+v", nodes)
	}
}
