// Package otelspans makes OpenTelemetry spans of what a model evaluates. It is a module of its own,
// so that only programs that want it get the packages it needs.
//
//	defer model.Observe(otelspans.New(tracer))()
//
// # Spans
//
// Every forward pass is a span, "minfer.prefill" or "minfer.decode", a child of the span in the
// context of the call that evaluates: of Session.Generate, Chat.Say, Session.Eval. Its attributes
// are minfer.pass (a number), minfer.tokens, minfer.outputs, minfer.graph (the uid) and
// minfer.devices. A pass of several sessions together is a child of none. A pass that fails has the
// error recorded.
//
// With [WithNodes] every node is a span below its pass, named by its operation, with minfer.node and
// minfer.device; that is hundreds of spans for a token, so it is off unless asked for. Times of
// nodes are until the device has computed them, which has a device that works ahead of the host wait.
//
// Tokens and texts are in no span.
//
// # Concurrency
//
// An observer is one model's: it may be attached to one at a time.
package otelspans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/sched/trace"
)

// Option changes what becomes a span.
type Option func(*observer)

// WithNodes makes a span of every node.
func WithNodes() Option { return func(o *observer) { o.nodes = true } }

// New returns an observer that makes spans by a tracer.
func New(t oteltrace.Tracer, opts ...Option) minfer.Observer {
	o := &observer{tracer: t}
	for _, option := range opts {
		option(o)
	}
	return o
}

type observer struct {
	trace.Nothing
	tracer oteltrace.Tracer
	nodes  bool

	ctx  context.Context // with the span of the pass under way
	pass oteltrace.Span
	node oteltrace.Span // nil between nodes
}

func (o *observer) BeginPass(ctx context.Context, p *minfer.Pass) error {
	params := p.Graph().Params
	o.ctx, o.pass = o.tracer.Start(ctx, "minfer."+params.Phase.String(), oteltrace.WithAttributes(
		attribute.Int64("minfer.pass", int64(p.Number)),
		attribute.Int("minfer.tokens", params.Tokens),
		attribute.Int("minfer.outputs", params.Outputs),
		attribute.Int64("minfer.graph", int64(p.Graph().UID)),
		attribute.String("minfer.devices", params.Devices),
	))
	return nil
}

func (o *observer) Before(s *minfer.Step) {
	if o.nodes {
		n := s.Node()
		_, o.node = o.tracer.Start(o.ctx, n.Op.Kind().String(), oteltrace.WithAttributes(
			attribute.String("minfer.node", n.Name), attribute.String("minfer.device", s.Device())))
	}
}

func (o *observer) After(s *minfer.Step) error {
	if o.node == nil {
		return nil
	}
	err := s.Wait()
	o.end(&o.node, err)
	return err
}

func (o *observer) EndPass(_ *minfer.Pass, err error) error {
	if o.node != nil {
		o.end(&o.node, err) // it failed
	}
	o.end(&o.pass, err)
	o.ctx = nil
	return nil
}

// end ends a span, with what went wrong.
func (o *observer) end(span *oteltrace.Span, err error) {
	if err != nil {
		(*span).RecordError(err)
		(*span).SetStatus(codes.Error, err.Error())
	}
	(*span).End()
	*span = nil
}
