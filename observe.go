package minfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
	"github.com/minfer/minfer/sched/trace"
)

// Observer is told of every forward pass, of every node in it, and of the tokens that are chosen;
// within After it may read the node's value, whatever device that is on. Embed trace.Nothing to
// be told of some of that. See Model.Observe.
type Observer = trace.Observer

// Pass is a forward pass, as an Observer sees it.
type Pass = trace.Pass

// Step is a node that is about to be computed or has just been, as an Observer sees it.
type Step = sched.Step

// Choice is a token that was chosen, as an Observer sees it.
type Choice = trace.Choice

// Schedule is all that the execution of a graph is: its nodes in order, assigned to devices and with
// fused operations in place, where each value lies and for how long, and which device runs what. It
// can be printed, drawn (WriteDOT; WriteSVG is its memory) and exported (WriteJSON).
type Schedule = sched.Schedule

// Explain returns what a forward pass with some parameters would execute, to the last offset. Of p,
// Tokens, Outputs, Cells, ExplicitSpan, Mode and Result are looked at; Cells are rounded up to
// what a cache would have, and zero fields filled in with what a session would use.
func Explain(m *Model, p graph.Params) (*Schedule, error) {
	g, err := m.Graph(p)
	if err != nil {
		return nil, err
	}
	s, err := sched.NewSchedule(g)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	return s, nil
}

// Observe has an observer told of everything that the model evaluates, from the next pass on. Stop
// ends that; it waits for the pass under way. Results are the same to the last bit with and without
// observers. Devices that work ahead of the host, or from recordings, run node by node meanwhile.
// Without observers nothing is spent on them.
//
// An error of an observer ends the evaluation that it observes, like the error of a device; and so does a
// panic, as a *PanicError.
func (m *Model) Observe(o Observer) (stop func()) {
	if m.none() {
		return func() {}
	}
	m.engine.observers.add(&o)
	return sync.OnceFunc(func() {
		m.engine.observers.remove(&o)
		if m.engine.enterToFree() {
			m.engine.leave()
		}
	})
}

// WithTrace writes a trace of everything that the model evaluates to w, from Open to Close: for every
// pass and node the time, device, bytes, multiply-adds, statistics and a sample of values, the
// likeliest tokens and those that were chosen. Options say how much of it; trace.Chrome has it
// written as events for Perfetto instead. The form is described in docs/trace.md. An error of w ends
// the evaluation under way, and all that follow.
//
// Unlike anything else that the library writes, a trace holds the text that passes through.
func WithTrace(w io.Writer, opts ...trace.Option) Option {
	return func(c *config) {
		c.observe = append(c.observe, func(m *Model) (Observer, error) {
			return trace.NewRecorder(w, m.TraceModel(), m.tokenText, opts...)
		})
	}
}

// WithProfiling marks every pass and node for Go's own tools: as tasks and regions in execution
// traces (runtime/trace), as labels in CPU profiles. See trace.NewProfiler.
func WithProfiling() Option {
	return func(c *config) {
		c.observe = append(c.observe, func(*Model) (Observer, error) { return trace.NewProfiler(), nil })
	}
}

// startObservers makes the observers that options ask for.
func (m *Model) startObservers(c *config) error {
	for _, start := range c.observe {
		o, err := start(m)
		if err != nil {
			return fmt.Errorf("minfer: %w", err)
		}
		m.engine.observers.add(&o)
		if closer, ok := o.(io.Closer); ok {
			m.closers = append(m.closers, closer)
		}
	}
	return nil
}

// TraceModel returns what a trace says of the model, for trace.NewRecorder.
func (m *Model) TraceModel() trace.Model {
	if m.none() {
		return trace.Model{}
	}
	t := trace.Model{
		Name: m.info.Name, Architecture: m.info.Architecture, Layers: m.info.Layers, Embedding: m.info.Embedding,
		Vocab: m.info.Vocab, Devices: slices.Clone(m.info.Devices), Weights: make(map[string]int64),
	}
	for _, tensor := range m.file.Tensors() {
		t.Weights[tensor.Name] = int64(tensor.Size)
	}
	return t
}

// observers are those of a model. The list is replaced and never changed, so a pass sees the same
// one from its beginning to its end.
type observers struct {
	list   atomic.Pointer[[]*Observer]
	mu     sync.Mutex // held while the list is replaced
	passes uint64     // guarded by the engine's turn
}

func (o *observers) add(x *Observer) {
	o.replace(func(list []*Observer) []*Observer { return append(list, x) })
}

func (o *observers) remove(x *Observer) {
	o.replace(func(list []*Observer) []*Observer {
		return slices.DeleteFunc(list, func(y *Observer) bool { return x == y })
	})
}

func (o *observers) replace(change func([]*Observer) []*Observer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*Observer
	if old := o.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if list = change(list); len(list) == 0 {
		o.list.Store(nil)
		return
	}
	o.list.Store(&list)
}

// each calls f for every observer.
func (o *observers) each(f func(Observer)) {
	if list := o.list.Load(); list != nil {
		for _, x := range *list {
			f(*x)
		}
	}
}

// watched is the observers of one pass. Where one panics, that is an error of the evaluation, and no more:
// devices and scheduler are as after any other.
type watched struct {
	observers []*Observer
	failure   error // of Before, which cannot say so itself
}

func (w *watched) Before(s *Step) {
	defer recovered(&w.failure, observing)
	for _, o := range w.observers {
		(*o).Before(s)
	}
}

func (w *watched) After(s *Step) (err error) {
	if w.failure != nil {
		return w.failure
	}
	defer recovered(&err, observing)
	for _, o := range w.observers {
		if err := (*o).After(s); err != nil {
			return err
		}
	}
	return nil
}

func beginPass(ctx context.Context, o Observer, p *Pass) (err error) {
	defer recovered(&err, observing)
	return o.BeginPass(ctx, p)
}

func endPass(o Observer, p *Pass, failure error) (err error) {
	defer recovered(&err, observing)
	return o.EndPass(p, failure)
}

// execute runs a program whose inputs are written, with the observers that there are.
func (c *GraphCache) execute(p *sched.Program) error {
	list := c.model.engine.observers.list.Load()
	if list == nil {
		p.SetObserver(nil)
		return p.Execute(&c.run)
	}
	c.model.engine.observers.passes++
	pass := c.batch.pass(p)
	pass.Number = c.model.engine.observers.passes
	return observed(&c.run, pass, *list)
}

func observed(ctx context.Context, pass *Pass, list []*Observer) (err error) {
	begun := 0
	defer func() {
		for _, o := range list[:begun] {
			if failed := endPass(*o, pass, err); failed != nil {
				err = errors.Join(err, fmt.Errorf("minfer: observer: %w", failed))
			}
		}
	}()
	for _, o := range list {
		begun++
		if err := beginPass(ctx, *o, pass); err != nil {
			return fmt.Errorf("minfer: observer: %w", err)
		}
	}
	pass.Program.SetObserver(&watched{observers: list})
	return pass.Program.Execute(ctx)
}

// pass describes the batch to observers.
func (b *batch) pass(p *sched.Program) *Pass {
	pass := &Pass{Program: p, Tokens: b.tokens, Positions: b.positions, Cells: b.cells, Outputs: b.tails}
	var jobs []*job // by row
	for _, j := range b.jobs {
		for range j.tokens {
			if j.err == nil {
				pass.Sessions = append(pass.Sessions, j.session)
				jobs = append(jobs, j)
			}
		}
	}
	pass.Keys = func(row int) []int32 {
		cells := make([]int32, jobs[row].cells.Len())
		for i := range cells {
			cells[i] = int32(jobs[row].cells.Cell(i))
		}
		return cells
	}
	return pass
}

// lastSession is the number of the session that was made last.
var lastSession atomic.Uint64

// Head applies the model's head, the last norm and the projection to the vocabulary, to activations
// of the residual stream: what an Observer reads after a layer, a row of Info.Embedding values. It
// returns the logits that each row leads to: what the model would say if its layers ended there
// (the logit lens of nostalgebraist, 2020). A model whose graph does not end in such a chain is an
// error that wraps ErrInvalidModel.
func (m *Model) Head(ctx context.Context, activations [][]float32) (logits [][]float32, err error) {
	if m.none() {
		return nil, ErrClosed
	}
	if len(activations) == 0 {
		return nil, ErrNoTokens
	}
	for i, row := range activations {
		if len(row) != m.hyper.Embedding {
			return nil, optionErrorf("Head", "row %d has %d activations, want %d", i, len(row), m.hyper.Embedding)
		}
	}
	ctx = orBackground(ctx)
	if err := m.engine.enter(ctx); err != nil {
		return nil, err
	}
	defer m.engine.leave()
	err = m.engine.note(func() (err error) {
		defer recovered(&err, "applying the head")
		logits, err = m.engine.head(ctx, activations)
		return err
	}())
	return logits, err
}

// headInput is the name of the residual stream in the graph of a head.
const headInput = "residual"

func (e *engine) head(ctx context.Context, activations [][]float32) (_ [][]float32, err error) {
	g, err := e.headGraph(len(activations))
	if err != nil {
		return nil, err
	}
	memory := alloc.New(e.devices)
	defer func() { err = errors.Join(err, memory.Close()) }()
	p, err := sched.Prepare(g, memory)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	defer p.Release()
	var input []float32
	for _, row := range activations {
		input = append(input, row...)
	}
	if err := p.WriteInputF32(headInput, input); err != nil {
		return nil, err
	}
	if err := p.Execute(ctx); err != nil {
		return nil, err
	}
	vocab := g.Node(g.Outputs[0]).Shape[0]
	rows := make([][]float32, len(activations))
	for i := range rows {
		rows[i] = make([]float32, vocab)
		if err := p.ReadOutput(0, i, rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// headGraph takes the end of a forward pass: the chain of operations of one source that leads from
// the last sum of the residual stream to the logits.
func (e *engine) headGraph(rows int) (*graph.Graph, error) {
	full, err := e.construct(e.params(max(rows, 2), rows, 0))
	if err != nil {
		return nil, err
	}
	var chain []*graph.Node
	n := full.Node(full.Outputs[0])
	for n.Op.Kind() != graph.KindAdd && len(n.Sources()) == 1 {
		chain = append(chain, n)
		n = full.Node(n.Sources()[0])
	}
	if width := e.def.Hyperparameters().Embedding; n.Op.Kind() != graph.KindAdd || n.Shape != graph.ShapeOf(width, rows) {
		return nil, fmt.Errorf("minfer: the head does not begin at a sum of %d features, but at node %q (%v%v): %w", width, n.Name, n.Op.Kind(), n.Shape, ErrInvalidModel)
	}
	b := graph.NewBuilder(full.Params)
	at := b.Input(headInput, graph.F32, n.Shape[:]...)
	for i := len(chain) - 1; i >= 0; i-- {
		at = b.Node(chain[i].Name, chain[i].Op, at)
	}
	b.Output(at)
	g, err := b.Build()
	if err == nil {
		err = sched.Assign(g, e.assign)
	}
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	return g, nil
}
