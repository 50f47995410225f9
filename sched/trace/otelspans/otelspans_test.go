package otelspans_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/sched/trace"
	"github.com/minfer/minfer/sched/trace/otelspans"
)

var model = filepath.Join("..", "..", "..", "testdata", "storyteller-q4_0.gguf")

func Example() {
	spans := tracetest.NewSpanRecorder() // or an exporter
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("example")
	m, err := minfer.Open(model, minfer.WithBackends("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	defer m.Observe(otelspans.New(tracer))()
	s, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	ctx, request := tracer.Start(context.Background(), "request")
	for _, err := range s.Generate(ctx, "Once upon a time", minfer.MaxTokens(3)) {
		if err != nil {
			log.Fatal(err)
		}
	}
	request.End()
	for _, span := range spans.Ended() {
		fmt.Println(span.Name(), span.Parent().SpanID() == request.SpanContext().SpanID())
	}
	// Output:
	// minfer.prefill true
	// minfer.decode true
	// minfer.decode true
	// request false
}

// With nodes, the span of a pass has one below it for each.
func ExampleWithNodes() {
	spans := tracetest.NewSpanRecorder() // or an exporter
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("example")
	m, err := minfer.Open(model, minfer.WithBackends("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	defer m.Observe(otelspans.New(tracer, otelspans.WithNodes()))()
	s, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Eval(context.Background(), []minfer.Token{7}); err != nil {
		log.Fatal(err)
	}
	count := make(map[string]int)
	for _, span := range spans.Ended() {
		count[span.Name()]++
	}
	fmt.Println(count)
	// Output: map[Add:8 Attention:4 Embed:1 FusedFFN:4 FusedQKVNorm:4 MatMul:9 RMSNorm:9 minfer.decode:1]
}

// failing is an observer that fails at a node.
type failing struct{ trace.Nothing }

var errHere = errors.New("here")

func (failing) After(s *minfer.Step) error {
	if s.Node().Name == "blk.1.attn_norm" {
		return errHere
	}
	return nil
}

func TestNodesAndErrors(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
	m, err := minfer.Open(model, minfer.WithBackends("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defer m.Observe(failing{})()
	defer m.Observe(otelspans.New(tracer, otelspans.WithNodes()))()
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Eval(context.Background(), []minfer.Token{1}); !errors.Is(err, errHere) {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(spans.Started()) != len(ended) || len(ended) < 5 {
		t.Fatalf("%d spans began and %d ended", len(spans.Started()), len(ended))
	}
	pass := ended[len(ended)-1]
	if pass.Name() != "minfer.decode" || pass.Status().Description == "" {
		t.Errorf("the last span is %q, %+v", pass.Name(), pass.Status())
	}
	for _, span := range ended[:len(ended)-1] {
		if span.Parent().SpanID() != pass.SpanContext().SpanID() {
			t.Errorf("%s is not below the pass", span.Name())
		}
	}
	if failed := ended[len(ended)-2]; failed.Name() != "RMSNorm" || failed.Status().Description == "" {
		t.Errorf("the span of the node is %q, %+v", failed.Name(), failed.Status())
	}
}
