package sched

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// PanicError is a panic of a device, caught. Whether the device is still of use is for
// the device to say; the program has given up the execution.
type PanicError struct {
	Device string // "" if it happened outside of a node
	Node   string
	Value  any    // what was given to panic
	Stack  []byte // of the goroutine that panicked, as debug.Stack has it
}

// Error returns where it happened and the value, without the stack.
func (e *PanicError) Error() string {
	if e.Node == "" {
		return fmt.Sprintf("sched: panic between nodes: %v", e.Value)
	}
	return fmt.Sprintf("sched: panic in node %q on %s: %v", e.Node, e.Device, e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Execute runs the graph. When it returns, all work is done or given up and the program
// can be executed again; after an error, outputs and cells written are arbitrary. The
// error wraps ctx.Err() if the context ended first, is a *backend.NodeError if a device
// could not run a node, and a *PanicError if it panicked.
func (p *Program) Execute(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	p.capture(true)
	err := p.runAll(ctx)
	if err != nil {
		// A device may have been recording the run that was given up.
		p.recording = recordings.Add(1)
	}
	late := p.drain()
	p.capture(false)
	switch {
	case err == nil:
		return late
	case late == nil || sameFailure(err, late):
		return err
	}
	return errors.Join(err, late)
}

// sameFailure reports whether both errors are about one failing node: a device that runs
// asynchronously tells everyone who waits for what depends on it.
func sameFailure(a, b error) bool {
	var x, y *backend.NodeError
	return errors.As(a, &x) && errors.As(b, &y) && x == y
}

func (p *Program) runAll(ctx context.Context) (err error) {
	p.current = nil
	defer p.catch(&err)
	for i := range p.runs {
		if err := p.runSplit(ctx, &p.runs[i]); err != nil {
			return err
		}
	}
	return nil
}

// catch turns a panic into an error.
func (p *Program) catch(err *error) {
	v := recover()
	if v == nil {
		return
	}
	e := &PanicError{Value: v, Stack: debug.Stack()}
	if p.current != nil {
		e.Node, e.Device = p.current.node.Name, p.current.node.Device
	}
	*err = e
}

func (p *Program) runSplit(ctx context.Context, r *run) error {
	if err := p.startCopies(r.copies[0], r.copies[1]); err != nil {
		return err
	}
	if r.replayer != nil && p.observer == nil && !p.noReplay {
		if done, err := p.replay(ctx, r); done || err != nil {
			return err
		}
	}
	for i := r.steps[0]; i < r.steps[1]; i++ {
		if err := p.runStep(ctx, &p.steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// replay launches the split at once, if the device has recorded it. A launch cannot wait
// in between, so all copies have to be there.
func (p *Program) replay(ctx context.Context, r *run) (bool, error) {
	if err := stopped(ctx, p.steps[r.steps[0]].node); err != nil {
		return false, err
	}
	if err := p.waitCopies(r.copies[0], r.copies[1]); err != nil {
		return false, err
	}
	done, err := r.replayer.Replay(p.recording, int(r.split.First), int(r.split.Last)+1)
	if err != nil {
		return false, fmt.Errorf("sched: replay of nodes %d to %d on %s: %w", r.split.First, r.split.Last, r.split.Device, err)
	}
	if done {
		p.replays++
	}
	return done, nil
}

func (p *Program) runStep(ctx context.Context, s *Step) error {
	if err := stopped(ctx, s.node); err != nil {
		return err
	}
	p.current = s
	if err := p.waitCopies(s.waits, s.waitsEnd); err != nil {
		return err
	}
	if p.observer != nil {
		p.observer.Before(s)
	}
	if err := s.device.Execute(s.node, s.in, s.out, s.kv); err != nil {
		return nodeError(s, err)
	}
	if p.observer != nil {
		if err := p.observer.After(s); err != nil {
			return fmt.Errorf("sched: observer at node %q: %w", s.node.Name, err)
		}
	}
	p.current = nil
	return nil
}

func stopped(ctx context.Context, next *graph.Node) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sched: stopped before node %q: %w", next.Name, err)
	}
	return nil
}

// nodeError makes sure that the error says which node it was.
func nodeError(s *Step, err error) error {
	if e := (*backend.NodeError)(nil); errors.As(err, &e) {
		return err
	}
	return backend.NewNodeError(s.node.Device, s.node, err)
}

func (p *Program) startCopies(from, to int) error {
	for i := from; i < to; i++ {
		c := &p.copies[i]
		fence, err := c.from.CopyAcross(c.to, c.copy, c.source)
		if err != nil {
			return p.copyError(c, err)
		}
		c.fence, c.pending = fence, true
	}
	return nil
}

// waitCopies waits for those of a range of copies that have not been waited for.
func (p *Program) waitCopies(from, to int) error {
	for i := from; i < to; i++ {
		c := &p.copies[i]
		if !c.pending {
			continue
		}
		c.pending = false
		if err := c.from.WaitCopy(c.fence); err != nil {
			return p.copyError(c, err)
		}
	}
	return nil
}

func (p *Program) copyError(c *transfer, err error) error {
	return fmt.Errorf("sched: copy of %q from %s to %s: %w", p.graph.Node(c.value).Name, c.from.Name(), c.to.Name(), err)
}

// drain waits until nothing is in flight, and returns the first error on the way. It
// goes on after errors: a copy that is never waited for would write into a later
// execution.
func (p *Program) drain() error {
	p.current = nil
	var first error
	for i := range p.copies {
		if err := p.waitGuarded(i); err != nil && first == nil {
			first = err
		}
	}
	for _, d := range p.devices {
		if err := p.synchronize(d); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (p *Program) waitGuarded(i int) (err error) {
	defer p.catch(&err)
	return p.waitCopies(i, i+1)
}

func (p *Program) synchronize(d backend.Backend) (err error) {
	defer p.catch(&err)
	if err := d.Synchronize(); err != nil {
		return fmt.Errorf("sched: %s: %w", d.Name(), err)
	}
	return nil
}
