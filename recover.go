package minfer

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/minfer/minfer/internal/mmap"
)

// PanicError is a panic that was caught at the library's boundary: a fault of the
// library, of a device, of a model definition, or of a function that the host gave it. After a
// panic in the middle of an evaluation, unless it is an Observer's, the model returns the error from all further
// ones; other models go on.
type PanicError struct {
	During string // what was being done
	Value  any    // what was given to panic
	Stack  []byte // of the goroutine that panicked
}

// observing is what a panic of an observer happens during.
const observing = "telling an observer"

// Error returns what panicked and where.
func (e *PanicError) Error() string {
	return fmt.Sprintf("minfer: panic while %s: %v\n%s", e.During, e.Value, e.Stack)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// orBackground lets a host leave the context out: a nil one never ends.
func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// recovered, deferred, turns a panic into an error, and a fault in mapped memory into ErrFault.
func recovered(err *error, during string) {
	if v := recover(); v != nil {
		if fault := mmap.AsFault(v); fault != nil {
			*err = fmt.Errorf("minfer: %s: %w", during, fault)
			return
		}
		*err = &PanicError{During: during, Value: v, Stack: debug.Stack()}
	}
}
