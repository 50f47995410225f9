package minfer_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math"
	"strings"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched/trace"
)

// outliers is an observer that notes where values grow large.
type outliers struct {
	trace.Nothing // does the rest
	reader        trace.Reader
	largest       float32
	node          string
}

func (o *outliers) After(step *minfer.Step) error {
	values, err := o.reader.Value(step) // from whatever device it is on
	for _, x := range values {
		if a := float32(math.Abs(float64(x))); a > o.largest {
			o.largest, o.node = a, step.Node().Name
		}
	}
	return err
}

// An observer of one's own.
func ExampleModel_Observe() {
	m, s := exampleModel()
	defer m.Close()
	o := &outliers{}
	stop := m.Observe(o)
	if _, err := s.Eval(context.Background(), []minfer.Token{7, 8, 9}); err != nil {
		log.Fatal(err)
	}
	stop()
	fmt.Printf("%s has a value of size %.1f\n", o.node, o.largest)
	// Output: blk.3.attn_residual has a value of size 30.0
}

func ExampleWithTrace() {
	var file bytes.Buffer // or a file
	m, err := minfer.Open("testdata/storyteller-q4_0.gguf", minfer.WithBackends("cpu"), minfer.WithTrace(&file))
	if err != nil {
		log.Fatal(err)
	}
	s, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	for _, err := range s.Chat().Say(context.Background(), "Count to 12.", minfer.Temperature(0), minfer.MaxTokens(3)) {
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		log.Fatal(err)
	}
	for record, err := range trace.Records(&file) {
		if err != nil {
			log.Fatal(err)
		}
		switch r := record.(type) {
		case *trace.PassRecord:
			fmt.Printf("%s, tokens: %d, nodes: %d, likeliest next %q\n", r.Phase, len(r.Tokens), len(r.Nodes), r.Logits[0].Top[0].Text)
		case *trace.ChoiceRecord:
			fmt.Printf("chosen %q\n", r.Text)
		}
	}
	// Output:
	// prefill, tokens: 19, nodes: 37, likeliest next "One"
	// chosen "One"
	// decode, tokens: 1, nodes: 40, likeliest next ","
	// chosen ","
	// decode, tokens: 1, nodes: 40, likeliest next " two"
	// chosen " two"
}

// A recorder that is attached for a while, to a model that is in use.
func ExampleModel_TraceModel() {
	m, s := exampleModel()
	defer m.Close()
	var file bytes.Buffer
	text := func(t minfer.Token) string { return string(m.Tokenizer().TokenBytes(t)) }
	recorder, err := trace.NewRecorder(&file, m.TraceModel(), text, trace.Chrome())
	if err != nil {
		log.Fatal(err)
	}
	stop := m.Observe(recorder)
	if _, err := s.Eval(context.Background(), []minfer.Token{7, 8, 9}); err != nil {
		log.Fatal(err)
	}
	stop()
	if err := recorder.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Count(file.String(), `"ph":"X"`), "spans for Perfetto")
	// Output: 38 spans for Perfetto
}

// What a decode step will do, before it does it.
func ExampleExplain() {
	m, _ := exampleModel()
	defer m.Close()
	schedule, err := minfer.Explain(m, graph.Params{Tokens: 1, Cells: 64})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("values take", schedule.Memory.Arena("cpu"), "bytes on the CPU")
	for _, line := range strings.Split(schedule.String(), "\n") {
		if strings.HasPrefix(line, ";") || strings.Contains(line, `"blk.3.ffn_residual"`) {
			fmt.Println(line)
		}
	}
	// Output:
	// values take 7360 bytes on the CPU
	// ; split 0: cpu, nodes 3 to 45: 1 Embed 9 RMSNorm 4 FusedQKVNorm 4 Attention 9 MatMul 8 Add 4 FusedFFN
	// %43 = Add(%39 %42) "blk.3.ffn_residual" F32 [256] @cpu  ; cpu[192:1216] in place of %39, last read by %44
}

// What the model would say if its layers ended earlier.
func ExampleModel_Head() {
	m, s := exampleModel()
	defer m.Close()
	o := &stream{width: m.Info().Embedding} // keeps the last row of every sum of the residual stream
	stop := m.Observe(o)
	prompt, err := m.Tokenizer().Encode("One, two,", minfer.EncodeOptions{})
	if err == nil {
		_, err = s.Eval(context.Background(), prompt)
	}
	stop()
	if err != nil {
		log.Fatal(err)
	}
	logits, err := m.Head(context.Background(), o.rows)
	if err != nil {
		log.Fatal(err)
	}
	for i := 1; i < len(logits); i += 2 { // the second sum of each layer
		best := trace.Likeliest(logits[i], 1, func(t minfer.Token) string { return string(m.Tokenizer().TokenBytes(t)) })[0]
		fmt.Printf("layer %d: %q %.2f\n", i/2, best.Text, best.Prob)
	}
	// Output:
	// layer 0: " three" 0.51
	// layer 1: " three" 0.76
	// layer 2: " three" 0.13
	// layer 3: " three" 0.80
}
