package minfer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/perfettotest"
	"github.com/minfer/minfer/sched/trace"
)

// seen collects what an observer is told.
type seen struct {
	trace.Nothing
	schedules []*minfer.Schedule
	params    []graph.Params
	ran       [][]string // names of the nodes of each pass
	tokens    []minfer.Token
	chosen    []minfer.Token
	failures  []error
	fail      string // the node at which After fails
	before    []string
}

func (s *seen) BeginPass(_ context.Context, p *minfer.Pass) error {
	s.schedules = append(s.schedules, p.Program.Schedule())
	s.params = append(s.params, p.Graph().Params)
	s.ran = append(s.ran, nil)
	s.tokens = append(s.tokens, p.Tokens...)
	return nil
}

func (s *seen) Before(step *minfer.Step) { s.before = append(s.before, step.Node().Name) }

func (s *seen) After(step *minfer.Step) error {
	if step.Node().Name == s.fail {
		return errSeen
	}
	last := len(s.ran) - 1
	s.ran[last] = append(s.ran[last], step.Node().Name)
	return nil
}

func (s *seen) EndPass(_ *minfer.Pass, err error) error {
	s.failures = append(s.failures, err)
	return nil
}

func (s *seen) Chose(c minfer.Choice) { s.chosen = append(s.chosen, c.Token) }

var errSeen = errors.New("seen enough")

// TestPreviewIsWhatRuns: what Explain shows is what is executed: the same nodes on the same
// devices at the same offsets, in the same order.
func TestPreviewIsWhatRuns(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		m := openModel(t, path)
		o := &seen{}
		defer m.Observe(o)()
		s, err := m.NewSession(minfer.WithContext(64))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{7, 1, 2} {
			eval(t, s, someTokens(m, n, n)...)
		}
		fork, err := s.Fork()
		if err != nil {
			t.Fatal(err)
		}
		eval(t, s, someTokens(m, 1, 5)...)
		eval(t, fork, someTokens(m, 1, 6)...) // scattered over the cells, so with spans
		if len(o.schedules) != 5 || !o.params[3].ExplicitSpan && !o.params[4].ExplicitSpan {
			t.Fatalf("%d passes, with %+v", len(o.schedules), o.params)
		}
		for i, ran := range o.schedules {
			preview, err := minfer.Explain(m, o.params[i])
			if err != nil {
				t.Fatal(err)
			}
			if diff := preview.Graph.Diff(ran.Graph); diff != "" {
				t.Errorf("pass %d: %s", i, diff)
			}
			if !reflect.DeepEqual(preview.Memory, ran.Memory) || !reflect.DeepEqual(preview.Splits, ran.Splits) {
				t.Errorf("pass %d: memory or splits are not those that were shown", i)
			}
			var want []string
			live := preview.Graph.Live()
			for j := range preview.Graph.Nodes {
				if n := &preview.Graph.Nodes[j]; live[j] && graph.Computed(n.Op) {
					want = append(want, n.Name)
				}
			}
			if !reflect.DeepEqual(o.ran[i], want) {
				t.Errorf("pass %d ran %q, shown were %q", i, o.ran[i], want)
			}
		}
	})
}

func TestObserverSeesTokens(t *testing.T) {
	m := openStoryteller(t)
	o := &seen{}
	stop := m.Observe(o)
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	answer := mustRead(t, s.Generate(context.Background(), chatML("Count to 12."), minfer.ParseSpecial(), minfer.Temperature(0), minfer.MaxTokens(9)))
	if !reflect.DeepEqual(o.chosen, answer.tokens) {
		t.Errorf("chosen were %v, told of %v", answer.tokens, o.chosen)
	}
	if all := s.Tokens(); !reflect.DeepEqual(o.tokens, all[:len(all)-1]) {
		t.Errorf("evaluated were %v, told of %v", all[:len(all)-1], o.tokens)
	}
	stop()
	stop()
	passes := len(o.ran)
	eval(t, s, 1)
	if len(o.ran) != passes {
		t.Error("told of a pass after stop")
	}
}

func TestObserverFails(t *testing.T) {
	m := openStoryteller(t)
	good, bad := &seen{}, &seen{fail: "blk.1.attn_norm"}
	defer m.Observe(good)()
	stop := m.Observe(bad)
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	want := eval(t, openSession(t, openStoryteller(t)), 1, 2, 3)
	if _, err := s.Eval(context.Background(), []minfer.Token{1, 2, 3}); !errors.Is(err, errSeen) {
		t.Fatalf("%v", err)
	}
	for _, o := range []*seen{good, bad} {
		if len(o.failures) != 1 || !errors.Is(o.failures[0], errSeen) {
			t.Errorf("the end of the pass came with %v", o.failures)
		}
	}
	stop()
	wantRow(t, "after a failed observer", eval(t, s, 1, 2, 3), want)
}

func openSession(t testing.TB, m *minfer.Model) *minfer.Session {
	t.Helper()
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// allLimits are those under which all that a recorder can do is done.
var allLimits = trace.Limits{Rows: 4, Columns: 1 << 20, Bins: 8, Top: 5, TopRows: 8, Attention: 64}

// TestObserversChangeNothing: logits are the same with and without, fused and not.
func TestObserversChangeNothing(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		for _, fusion := range []graph.Fusion{{}, {SwiGLU: true, QKV: true, QKVNorm: true, QKVBiasRopeStore: true, FFN: true, FFNDown: true}} {
			plain := openModel(t, path, minfer.WithFusion(fusion))
			var out bytes.Buffer
			traced := openModel(t, path, minfer.WithFusion(fusion), minfer.WithTrace(&out, trace.WithLimits(allLimits)), minfer.WithProfiling())
			a, b := openSession(t, plain), openSession(t, traced)
			for i, n := range []int{9, 1, 1, 3, 1} {
				tokens := someTokens(plain, n, i)
				wantRows(t, "traced", evalAll(t, b, tokens), evalAll(t, a, tokens))
			}
			checkTrace(t, &out, 5)
		}
	})
}

// checkTrace reads a trace back and holds its passes against what must be so.
func checkTrace(t *testing.T, r *bytes.Buffer, passes int) {
	t.Helper()
	got := 0
	for record, err := range trace.Records(r) {
		if err != nil {
			t.Fatal(err)
		}
		p, ok := record.(*trace.PassRecord)
		if !ok {
			continue
		}
		got++
		if len(p.Nodes) == 0 || len(p.Logits) == 0 || p.Time <= 0 || len(p.Texts) != len(p.Tokens) {
			t.Fatalf("pass %d has %d nodes, %d logits", p.Pass, len(p.Nodes), len(p.Logits))
		}
		attentions := 0
		for _, n := range p.Nodes {
			if a := n.Attention; a != nil {
				attentions++
				checkWeights(t, a)
			}
		}
		if attentions == 0 {
			t.Errorf("pass %d has no attention", p.Pass)
		}
	}
	if got != passes {
		t.Errorf("%d passes in the trace, want %d", got, passes)
	}
}

// checkWeights: what a head gives to all positions adds up to 1, and the future gets nothing.
func checkWeights(t *testing.T, a *trace.Attention) {
	t.Helper()
	if a.Unavailable != "" || len(a.Weights) != a.Rows*a.Heads*a.Keys {
		t.Fatalf("%d weights of %d rows, %d heads, %d keys: %s", len(a.Weights), a.Rows, a.Heads, a.Keys, a.Unavailable)
	}
	for r := range a.Rows {
		future := a.Keys - a.Rows + r + 1
		for h := range a.Heads {
			row := a.Weights[(r*a.Heads+h)*a.Keys:][:a.Keys]
			sum := 0
			for i, w := range row {
				sum += int(w)
				if i >= future && w != 0 {
					t.Errorf("row %d, head %d: position %d has %d", r, h, i, w)
				}
			}
			if math.Abs(float64(sum)-255) > float64(a.Keys)/2+1 {
				t.Errorf("row %d, head %d: weights add up to %d of 255", r, h, sum)
			}
		}
	}
}

func TestTraceEndsWithTheModel(t *testing.T) {
	var out bytes.Buffer
	m, err := minfer.Open(storyteller, minfer.WithTrace(&out, trace.Chrome()))
	if err != nil {
		t.Fatal(err)
	}
	mustRead(t, openSession(t, m).Generate(context.Background(), "a", minfer.MaxTokens(3)))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if drawn, err := perfettotest.Import(out.Bytes()); err != nil || len(drawn) < 100 {
		t.Errorf("%d events, %v", len(drawn), err)
	}
}

// TestTraceEndsWithItsLastPass: where passes are limited, the trace ends with the token that was chosen after the last of
// them, whatever the model does then; a limit that is not reached changes nothing.
func TestTraceEndsWithItsLastPass(t *testing.T) {
	for _, test := range []struct {
		passes int
		want   string
	}{
		{1, "header graph prefill choice"},
		{2, "header graph prefill choice graph decode choice"},
		{3, "header graph prefill choice graph decode choice decode choice"},
		{0, "header graph prefill choice graph decode choice decode choice decode choice"},
		{9, "header graph prefill choice graph decode choice decode choice decode choice"},
	} {
		var out bytes.Buffer
		m := openStoryteller(t, minfer.WithTrace(&out, trace.WithLimits(trace.Limits{Passes: test.passes})))
		mustRead(t, openSession(t, m).Generate(context.Background(), "One, two,", minfer.MaxTokens(4), minfer.Temperature(0)))
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for r, err := range trace.Records(&out) {
			if err != nil {
				t.Fatal(err)
			}
			switch r := r.(type) {
			case *trace.Header:
				kinds = append(kinds, "header")
			case *trace.Graph:
				kinds = append(kinds, "graph")
			case *trace.PassRecord:
				kinds = append(kinds, r.Phase)
			case *trace.ChoiceRecord:
				kinds = append(kinds, "choice")
			}
		}
		if got := strings.Join(kinds, " "); got != test.want {
			t.Errorf("limit %d: %s, want %s", test.passes, got, test.want)
		}
	}
}

// TestPerfettoShowsTheTrace: as Perfetto imports it, a timeline has every pass, node and token of the trace that it was made
// of, in the row of the passes or that of the device, at its time.
func TestPerfettoShowsTheTrace(t *testing.T) {
	var out, timeline bytes.Buffer
	m, err := minfer.Open(storyteller, minfer.WithBackends("cpu"), minfer.WithTrace(&out))
	if err != nil {
		t.Fatal(err)
	}
	mustRead(t, openSession(t, m).Generate(context.Background(), "Once upon a time", minfer.MaxTokens(20)))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	want := make(map[string][]perfettotest.Slice) // by row
	put := func(row string, s perfettotest.Slice) { want[row] = append(want[row], s) }
	type nodes struct {
		Graph struct{ Nodes []struct{ Name string } }
	}
	graphs := make(map[uint64]nodes)
	w := trace.NewChromeWriter(&timeline)
	for r, err := range trace.Records(&out) {
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Put(r); err != nil {
			t.Fatal(err)
		}
		switch r := r.(type) {
		case *trace.Graph:
			var g nodes
			if err := json.Unmarshal(r.Raw, &g); err != nil {
				t.Fatal(err)
			}
			graphs[r.UID] = g
		case *trace.PassRecord:
			put("passes", perfettotest.Slice{Name: fmt.Sprintf("%s of %d", r.Phase, len(r.Tokens)), Start: r.Start, Duration: r.Time})
			for _, n := range r.Nodes {
				put(n.Device, perfettotest.Slice{Name: graphs[r.Graph].Graph.Nodes[n.Node].Name, Start: n.Start, Duration: n.Time})
			}
		case *trace.ChoiceRecord:
			put("passes", perfettotest.Slice{Name: fmt.Sprintf("token %q", r.Text), Start: r.At})
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := perfettotest.Import(timeline.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range got {
		if len(want[g.Thread]) == 0 {
			t.Fatalf("%+v is in no record", g)
		}
		w := want[g.Thread][0]
		want[g.Thread] = want[g.Thread][1:]
		// What a clock cannot tell apart is moved by a few nanoseconds.
		near := func(a, b int64) bool { return a-b <= 10 && b-a <= 10 }
		if g.Name != w.Name || !near(g.Start, w.Start) || !near(g.Duration, w.Duration) || g.Process != "minfer Storyteller" {
			t.Fatalf("%+v, want %+v", g, w)
		}
	}
	if len(want) != 2 || len(want["passes"])+len(want["cpu"]) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// TestPerfettoReadsTheTrace: what Perfetto itself makes of a timeline is what Import does.
func TestPerfettoReadsTheTrace(t *testing.T) {
	var out bytes.Buffer
	m, err := minfer.Open(storyteller, minfer.WithTrace(&out, trace.Chrome()))
	if err != nil {
		t.Fatal(err)
	}
	mustRead(t, openSession(t, m).Generate(context.Background(), "He said: \"\\n\n</script>é 猫\x00\"", minfer.MaxTokens(20)))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	want, err := perfettotest.Import(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got := perfettotest.Processed(t, out.Bytes()); !reflect.DeepEqual(got, want) {
		for i := range min(len(got), len(want)) {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("slice %d is %+v to Perfetto and %+v to Import", i, got[i], want[i])
			}
		}
		t.Errorf("%d slices to Perfetto, %d to Import", len(got), len(want))
	}
}

func TestTraceIntoAFullDisk(t *testing.T) {
	m, err := minfer.Open(storyteller, minfer.WithTrace(&roomFor{bytes: 10000}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openSession(t, m).Eval(context.Background(), []minfer.Token{1}); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
	if err := m.Close(); !errors.Is(err, errFull) {
		t.Errorf("the end of the trace: %v", err)
	}
	if _, err := minfer.Open(storyteller, minfer.WithTrace(&roomFor{})); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}

var errFull = errors.New("no room")

// roomFor takes so many bytes and then fails.
type roomFor struct{ bytes int }

func (r *roomFor) Write(b []byte) (int, error) {
	if r.bytes < len(b) {
		return 0, errFull
	}
	r.bytes -= len(b)
	return len(b), nil
}

// TestHead: the head of the last sum of the residual stream is the model's own answer.
func TestHead(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		m := openModel(t, path)
		o := &stream{width: m.Info().Embedding}
		stop := m.Observe(o)
		want := eval(t, openSession(t, m), someTokens(m, 5, 1)...)
		stop()
		rows, err := m.Head(context.Background(), o.rows)
		if err != nil {
			t.Fatal(err)
		}
		wantRow(t, "head", rows[len(rows)-1][:len(want)], want)
		one, err := m.Head(context.Background(), o.rows[len(rows)-1:])
		if err != nil {
			t.Fatal(err)
		}
		wantRow(t, "head of one row", one[0][:len(want)], want)
		if _, err := m.Head(context.Background(), [][]float32{{1}}); !errors.Is(err, minfer.ErrOption) {
			t.Errorf("a row of another width: %v", err)
		}
	})
}

// stream collects the last row of every sum of the residual stream.
type stream struct {
	trace.Nothing
	width  int
	values trace.Reader
	rows   [][]float32
}

func (o *stream) After(s *minfer.Step) error {
	if n := s.Node(); n.Op.Kind() != graph.KindAdd || n.Shape[0] != o.width {
		return nil
	}
	row, err := o.values.Row(s, -1)
	o.rows = append(o.rows, append([]float32(nil), row...))
	return err
}

// TestProfilingLabels: the goroutine that evaluates has its labels back afterwards.
func TestProfilingLabels(t *testing.T) {
	m := openStoryteller(t, minfer.WithProfiling())
	s := openSession(t, m)
	pprof.Do(context.Background(), pprof.Labels("mine", "yes"), func(ctx context.Context) {
		if _, err := s.Eval(ctx, []minfer.Token{1, 2}); err != nil {
			t.Error(err)
		}
		var goroutines bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&goroutines, 1); err != nil {
			t.Error(err)
		}
		// Others, such as one that the collector has just begun, may still carry what they were born with.
		for _, stack := range strings.Split(goroutines.String(), "\n\n") {
			if strings.Contains(stack, "TestProfilingLabels.func") && !strings.Contains(stack, "# labels: {\"mine\":\"yes\"}\n") {
				t.Errorf("labels afterwards:\n%s", stack)
			}
		}
	})
}

// TestTraceOfAStepIsSmall is about the 0.5B model where it is to be had.
func TestTraceOfAStepIsSmall(t *testing.T) {
	path := os.Getenv("MINFER_TRACE_MODEL")
	if path == "" {
		path = storyteller
	}
	var out bytes.Buffer
	m := openModel(t, path, minfer.WithTrace(&out))
	s := openSession(t, m)
	eval(t, s, 1, 2, 3)
	eval(t, s, 4)
	out.Reset()
	eval(t, s, 5)
	t.Logf("%d bytes for a decode step of %d layers", out.Len(), m.Info().Layers)
	if out.Len() > 2<<20 {
		t.Errorf("%d bytes for a decode step", out.Len())
	}
}

// TestTraceKeepsBytes: texts and bytes of a trace together are what went in, also where a token is a part of a
// character.
func TestTraceKeepsBytes(t *testing.T) {
	const prompt = "é 猫 🦊 \n"
	var out bytes.Buffer
	m := openStoryteller(t, minfer.WithTrace(&out))
	tokens, err := m.Tokenizer().Encode(prompt, minfer.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eval(t, openSession(t, m), tokens...)
	var got []byte
	parts := 0
	for r, err := range trace.Records(&out) {
		if err != nil {
			t.Fatal(err)
		}
		p, ok := r.(*trace.PassRecord)
		if !ok {
			continue
		}
		parts += len(p.Bytes)
		for row, text := range p.Texts {
			if b := p.Bytes[row]; b != nil {
				text = string(b)
			}
			got = append(got, text...)
		}
	}
	if string(got) != prompt || parts == 0 {
		t.Errorf("%q, with %d tokens that are no text", got, parts)
	}
}

// TestAnyLimits: whatever the limits, a trace is one, and its samples are no larger than values.
func TestAnyLimits(t *testing.T) {
	for _, n := range []int{math.MinInt, -1, 0, 1, math.MaxInt} {
		var out bytes.Buffer
		limits := trace.Limits{Rows: n, Columns: n, Bins: n, Top: n, TopRows: n, Attention: n}
		m := openStoryteller(t, minfer.WithTrace(&out, trace.WithLimits(limits)))
		eval(t, openSession(t, m), 1, 2, 3)
		for r, err := range trace.Records(&out) {
			if err != nil {
				t.Fatalf("limits of %d: %v", n, err)
			}
			if p, ok := r.(*trace.PassRecord); ok {
				for _, node := range p.Nodes {
					if node.Sample != nil && len(node.Sample.Values) > node.Bytes/2 {
						t.Fatalf("limits of %d: %d values of %d bytes", n, len(node.Sample.Values), node.Bytes)
					}
				}
			}
		}
	}
}

// TestObserversThatMisbehave: a panic of an observer is an error of the evaluation, in which other observers
// are still told of the end of the pass, and the model goes on as before.
func TestObserversThatMisbehave(t *testing.T) {
	m := openStoryteller(t)
	s := openSession(t, m)
	want := eval(t, s, 1, 2, 3)
	for _, where := range []string{"BeginPass", "Before", "After", "EndPass"} {
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		first, last := &seen{}, &seen{}
		stops := []func(){m.Observe(first), m.Observe(&panics{where: where}), m.Observe(last)}
		_, err := s.Eval(context.Background(), []minfer.Token{1, 2, 3})
		if err == nil || !strings.Contains(err.Error(), "a fault of the observer") {
			t.Errorf("%s: %v", where, err)
		}
		if len(first.failures) != 1 || (where != "BeginPass" && len(last.failures) != 1) {
			t.Errorf("%s: others are told of %v and %v", where, first.failures, last.failures)
		}
		for _, stop := range stops {
			stop()
		}
		wantRow(t, "after a panic in "+where, eval(t, s, 1, 2, 3), want)
	}
	stop := m.Observe(&panics{where: "Chose"})
	var err error
	for _, err = range openSession(t, m).Generate(context.Background(), "a", minfer.MaxTokens(3)) {
	}
	if panicked := (*minfer.PanicError)(nil); !errors.As(err, &panicked) {
		t.Errorf("Chose: %v", err)
	}
	stop()
	eval(t, openSession(t, m), 1)
}

type panics struct {
	trace.Nothing
	where string
}

func (p *panics) at(where string) {
	if p.where == where {
		panic("a fault of the observer")
	}
}
func (p *panics) BeginPass(context.Context, *minfer.Pass) error { p.at("BeginPass"); return nil }
func (p *panics) Before(*minfer.Step)                           { p.at("Before") }
func (p *panics) After(*minfer.Step) error                      { p.at("After"); return nil }
func (p *panics) EndPass(*minfer.Pass, error) error             { p.at("EndPass"); return nil }
func (p *panics) Chose(minfer.Choice)                           { p.at("Chose") }

// TestTraceOfManySessions: sessions that share passes are traced while recorders come and go, a writer fails
// midway and the model is closed at last; every trace that was not cut off is whole.
func TestTraceOfManySessions(t *testing.T) {
	var throughout, short bytes.Buffer
	m, err := minfer.Open(storyteller, minfer.WithTrace(&throughout))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := m.NewGraphCache(256)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 4 {
		s, err := m.NewSession(minfer.WithCache(cache), minfer.WithContext(64))
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			defer s.Close()
			for _, err := range s.Generate(context.Background(), "One, two,", minfer.MaxTokens(12), minfer.Seed(uint64(i))) {
				if err != nil && !errors.Is(err, errFull) {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		short.Reset()
		for _, w := range []io.Writer{&short, &roomFor{bytes: 50000}} {
			r, err := trace.NewRecorder(w, m.TraceModel(), func(int32) string { return "" }, trace.Chrome())
			if err != nil {
				t.Fatal(err)
			}
			stop := m.Observe(r)
			group.Go(stop)
			if err := r.Close(); err != nil && !errors.Is(err, errFull) { // while it is told of passes
				t.Error(err)
			}
			stop()
		}
		if _, err := perfettotest.Import(short.Bytes()); err != nil {
			t.Errorf("a trace that was ended in between: %v", err)
		}
	}
	group.Wait()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	rows := make(map[uint64]int)
	for r, err := range trace.Records(&throughout) {
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := r.(*trace.PassRecord); ok && p.Error == "" {
			for _, session := range p.Sessions {
				rows[session]++
			}
		}
	}
	if len(rows) != 4 {
		t.Errorf("rows by session: %v", rows)
	}
}

// BenchmarkObserver compares decode steps: of a model that had no observer yet, of one whose observer
// is gone, with one that does nothing, and with a trace. Of the storyteller, and of a model of 24
// layers in which next to nothing is computed, so that what observers cost is seen best; and of the
// one that MINFER_TRACE_MODEL names, if there is one.
func BenchmarkObserver(b *testing.B) {
	empty := filepath.Join(b.TempDir(), "empty.gguf")
	if err := os.WriteFile(empty, smallModel{vocab: 300, embed: gguf.TypeF32, ffn: gguf.TypeF32, layers: 24}.bytes(b), 0o644); err != nil {
		b.Fatal(err)
	}
	paths := []string{storyteller, empty}
	if own := os.Getenv("MINFER_TRACE_MODEL"); own != "" {
		paths = append(paths, own)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".gguf")
		for _, kind := range []string{"none", "detached", "nothing", "trace"} {
			b.Run("model="+name+"/observer="+kind, func(b *testing.B) { benchmarkObserver(b, path, kind) })
		}
	}
}

func benchmarkObserver(b *testing.B, path, kind string) {
	m := openModel(b, path, minfer.WithThreads(1))
	switch kind {
	case "detached":
		m.Observe(trace.Nothing{})()
	case "nothing":
		defer m.Observe(trace.Nothing{})()
	case "trace":
		r, err := trace.NewRecorder(io.Discard, m.TraceModel(), func(int32) string { return "" })
		if err != nil {
			b.Fatal(err)
		}
		defer m.Observe(r)()
	}
	s := openSession(b, m)
	eval(b, s, someTokens(m, 16, 1)...)
	for b.Loop() {
		eval(b, s, 7)
		if err := s.Rewind(16); err != nil {
			b.Fatal(err)
		}
	}
}

// closes ends a recorder in the middle of a pass.
type closes struct {
	trace.Nothing
	recorder *trace.Recorder
}

func (c *closes) After(*minfer.Step) error { return c.recorder.Close() }

// TestTraceClosedWithinPass: a recorder that is closed in the middle of a pass does not end the evaluation.
func TestTraceClosedWithinPass(t *testing.T) {
	m := openStoryteller(t)
	want := eval(t, openSession(t, m), 1, 2, 3)
	r, err := trace.NewRecorder(io.Discard, m.TraceModel(), func(int32) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	defer m.Observe(r)()
	defer m.Observe(&closes{recorder: r})()
	wantRow(t, "with a recorder that is closed", eval(t, openSession(t, m), 1, 2, 3), want)
}
