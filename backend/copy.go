package backend

import (
	"fmt"
	"runtime/debug"

	"github.com/minfer/minfer/graph"
)

// CopyThroughHost copies a buffer of one device to one of another by way of the host's
// memory. It is what CopyAcross comes to for devices with no shorter way. Scratch is
// grown as needed and returned for the next call.
func CopyThroughHost(dst Backend, to Buffer, src Backend, from Buffer, scratch []byte) ([]byte, error) {
	if to.Size != from.Size {
		return scratch, fmt.Errorf("backend: copy of %d bytes from %s into %d bytes of %s", from.Size, src.Name(), to.Size, dst.Name())
	}
	if cap(scratch) < from.Size {
		scratch = make([]byte, from.Size)
	}
	scratch = scratch[:from.Size]
	if err := src.ReadHost(scratch, from); err != nil {
		return scratch, err
	}
	return scratch, dst.WriteHost(to, scratch)
}

// NodeError says which node a device could not run, and why. It names the node, the
// values and the device.
type NodeError struct {
	Device string
	Node   string
	Op     string
	Err    error
}

// Error returns the device, the node and the reason.
func (e *NodeError) Error() string {
	return fmt.Sprintf("backend: %s cannot run node %q (%s): %v", e.Device, e.Node, e.Op, e.Err)
}

// Unwrap returns the reason.
func (e *NodeError) Unwrap() error { return e.Err }

// PanicError is a panic that a device caught, in whichever goroutine it happened. The device is
// not to be trusted any more, and returns the error from then on.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // of the goroutine that panicked
}

// CaughtPanic returns the error for what recover returned. It is called by the deferred function
// that recovered.
func CaughtPanic(v any) *PanicError { return &PanicError{Value: v, Stack: debug.Stack()} }

// Error returns the value and the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// NewNodeError returns a NodeError for a node of a device.
func NewNodeError(device string, n *graph.Node, err error) error {
	return &NodeError{Device: device, Node: n.Name, Op: graph.OpString(n.Op), Err: err}
}
