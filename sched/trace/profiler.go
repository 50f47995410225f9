package trace

import (
	"context"
	"runtime/pprof"
	"runtime/trace"
	"strconv"

	"github.com/minfer/minfer/sched"
)

// NewProfiler returns an observer for Go's own tools. In an execution trace (runtime/trace), every
// pass is a task and every node a region in it. In a CPU profile, samples carry the labels
// minfer.phase and minfer.op. Labels are of the goroutine that evaluates; worker threads of a
// device have none, so a profile by label wants minfer.WithThreads(1).
func NewProfiler() Observer { return &profiler{} }

type profiler struct {
	Nothing
	outer  context.Context // with the caller's labels
	inner  context.Context // with the pass's
	task   *trace.Task
	region *trace.Region
}

func (p *profiler) BeginPass(ctx context.Context, pass *Pass) error {
	p.outer = ctx
	params := pass.Graph().Params
	ctx, p.task = trace.NewTask(ctx, params.Phase.String())
	trace.Log(ctx, "tokens", strconv.Itoa(params.Tokens))
	p.inner = pprof.WithLabels(ctx, pprof.Labels("minfer.phase", params.Phase.String()))
	return nil
}

func (p *profiler) Before(s *sched.Step) {
	p.region = trace.StartRegion(p.inner, s.Node().Name)
	pprof.SetGoroutineLabels(pprof.WithLabels(p.inner, pprof.Labels("minfer.op", s.Node().Op.Kind().String())))
}

func (p *profiler) After(*sched.Step) error {
	p.region.End()
	p.region = nil
	return nil
}

func (p *profiler) EndPass(*Pass, error) error {
	if p.region != nil {
		p.region.End() // of the node that failed
		p.region = nil
	}
	p.task.End()
	pprof.SetGoroutineLabels(p.outer)
	*p = profiler{} // keeps no context
	return nil
}
