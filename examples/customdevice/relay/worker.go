package relay

import (
	"errors"
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// worker is the other side. Everything in it belongs to the goroutine of serve.
type worker struct {
	device string
	kind   *Kind
	engine backend.Backend
	// failure is the first error that has not been reported yet.
	failure error
}

// request is a node to run, in terms of the other side.
type request struct {
	node graph.Node
	in   []backend.Operand
	out  backend.Operand
	kv   *backend.KV
}

// serve carries out commands until there will be no more.
func (w *worker) serve(queue <-chan func(*worker), stopped chan<- error) {
	for command := range queue {
		command(w)
	}
	stopped <- w.engine.Close()
}

// fail notes an error to be reported, unless there is one already.
func (w *worker) fail(err error) {
	if w.failure == nil {
		w.failure = err
	}
}

// report returns the error to be reported, once.
func (w *worker) report() error {
	err := w.failure
	w.failure = nil
	return err
}

// execute runs a node, or skips it after a failure, since it may depend on what failed.
func (w *worker) execute(r *request) {
	if w.failure != nil {
		return
	}
	if err := w.run(r); err != nil {
		// The host knows this device, not the one that computes for it.
		if e := (*backend.NodeError)(nil); errors.As(err, &e) {
			err = e.Err
		}
		w.fail(backend.NewNodeError(w.device, &r.node, err))
	}
}

func (w *worker) run(r *request) (err error) {
	defer func() {
		// A panic here would end the host's program, from a goroutine it does not know of.
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	if before := w.kind.options.Before; before != nil {
		if err := before(&r.node); err != nil {
			return err
		}
	}
	w.kind.nodes.Add(1)
	return w.engine.Execute(&r.node, r.in, r.out, r.kv)
}
