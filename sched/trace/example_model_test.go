package trace_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	goruntime "runtime/trace"
	"strings"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
	"github.com/minfer/minfer/sched/trace"
)

// open opens the model of the examples; text says what its tokens stand for.
func open() (m *minfer.Model, s *minfer.Session, text func(minfer.Token) string) {
	m, err := minfer.Open("../../testdata/storyteller-q4_0.gguf", minfer.WithBackends("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	if s, err = m.NewSession(); err != nil {
		log.Fatal(err)
	}
	return m, s, func(t minfer.Token) string { return string(m.Tokenizer().TokenBytes(t)) }
}

// generate generates some tokens.
func generate(s *minfer.Session, tokens int) {
	for _, err := range s.Generate(context.Background(), "One, two,", minfer.MaxTokens(tokens), minfer.Temperature(0)) {
		if err != nil {
			log.Fatal(err)
		}
	}
}

// A trace of the first two passes, of the sums of the residual stream only.
func ExampleNewRecorder() {
	m, s, text := open()
	defer m.Close()
	limits := trace.DefaultLimits()
	limits.Passes = 2
	sums := func(n *graph.Node) bool { return strings.HasSuffix(n.Name, "_residual") }
	var file bytes.Buffer // or a file
	recorder, err := trace.NewRecorder(&file, m.TraceModel(), text, trace.WithLimits(limits), trace.Only(sums))
	if err != nil {
		log.Fatal(err)
	}
	stop := m.Observe(recorder)
	generate(s, 4)
	stop()
	if err := recorder.Close(); err != nil {
		log.Fatal(err)
	}
	for record, err := range trace.Records(&file) {
		if err != nil {
			log.Fatal(err)
		}
		if p, ok := record.(*trace.PassRecord); ok {
			fmt.Printf("%s, tokens: %d: %d nodes, %d elements of each, histograms of %d bins\n",
				p.Phase, len(p.Tokens), len(p.Nodes), len(p.Nodes[0].Sample.Values), len(p.Nodes[0].Histogram))
		}
	}
	// Output:
	// prefill, tokens: 4: 9 nodes, 32 elements of each, histograms of 16 bins
	// decode, tokens: 1: 8 nodes, 32 elements of each, histograms of 16 bins
}

// loudest is a sink that keeps no trace: it only looks for the largest value in a layer.
type loudest struct {
	names []string // of the nodes of the graph
	value float64
	where string
}

func (l *loudest) Put(r trace.Record) error {
	switch r := r.(type) {
	case *trace.Graph:
		l.names = nil
		for _, n := range r.Schedule.Graph.Nodes {
			l.names = append(l.names, n.Name)
		}
	case *trace.PassRecord:
		for _, n := range r.Nodes {
			if inLayer := graph.LayerName(l.names[n.Node]) != ""; inLayer && n.Stats != nil && float64(n.Stats.Max) > l.value {
				l.value, l.where = float64(n.Stats.Max), fmt.Sprintf("%s, at %q", l.names[n.Node], r.Texts[len(r.Texts)-1])
			}
		}
	}
	return nil
}

// Records can go elsewhere than into a file.
func ExampleNewRecorderTo() {
	m, s, text := open()
	defer m.Close()
	l := &loudest{}
	none := func(*graph.Node) (rows, columns int) { return 0, 0 } // statistics will do
	recorder, err := trace.NewRecorderTo(l, m.TraceModel(), text, trace.Sampling(none))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Observe(recorder)()
	generate(s, 4)
	fmt.Printf("%.1f in %s\n", l.value, l.where)
	// Output: 72.5 in blk.3.ffn_residual, at " four"
}

// The decode passes of a trace, as a trace.
func ExampleNewWriter() {
	w := trace.NewWriter(os.Stdout)
	for record, err := range trace.Records(strings.NewReader(file)) {
		if err != nil {
			log.Fatal(err)
		}
		if p, ok := record.(*trace.PassRecord); ok && p.Phase != "decode" {
			continue
		}
		if _, ok := record.(*trace.Graph); ok {
			continue // whoever reads this knows the model
		}
		if err := w.Put(record); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// {"kind":"header","format":"minfer-trace","version":1,"model":{"name":"Storyteller","architecture":"","layers":0,"embedding":0,"vocab":0,"devices":["cpu"]},"limits":{"rows":0,"columns":0,"bins":0,"top":0,"topRows":0,"attention":0,"passes":0},"began":""}
	// {"kind":"pass","pass":1,"graph":1,"phase":"decode","start":0,"time":90000,"tokens":[12],"positions":[0],"sessions":[1],"nodes":[{"node":1,"device":"cpu","start":1000,"time":25000,"bytes":1024,"stats":{"min":-2,"max":2.5,"mean":0.01,"rms":0.9}}]}
}

// growth is an observer that sees how the residual stream grows.
type growth struct {
	trace.Nothing
	reader trace.Reader
}

func (g *growth) After(s *sched.Step) error {
	if !strings.HasSuffix(s.Node().Name, "ffn_residual") {
		return nil
	}
	row, err := g.reader.Row(s, -1)
	if err == nil {
		fmt.Printf("%s: rms %.2f\n", s.Node().Name, trace.Describe(row).RMS)
	}
	return err
}

// An observer that reads the last row of some nodes.
func ExampleReader() {
	m, s, _ := open()
	defer m.Close()
	defer m.Observe(&growth{})()
	if _, err := s.Eval(context.Background(), []minfer.Token{7, 8, 9}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// blk.0.ffn_residual: rms 3.15
	// blk.1.ffn_residual: rms 4.19
	// blk.2.ffn_residual: rms 6.93
	// blk.3.ffn_residual: rms 10.21
}

// An execution trace names passes and nodes; go tool trace shows them.
func ExampleNewProfiler() {
	m, s, _ := open()
	defer m.Close()
	defer m.Observe(trace.NewProfiler())()
	var file bytes.Buffer // or a file
	if err := goruntime.Start(&file); err != nil {
		log.Fatal(err)
	}
	generate(s, 2)
	goruntime.Stop()
	for _, name := range []string{"prefill", "decode", "blk.2.ffn_down"} {
		fmt.Println(name, bytes.Contains(file.Bytes(), []byte(name)))
	}
	// Output:
	// prefill true
	// decode true
	// blk.2.ffn_down true
}
