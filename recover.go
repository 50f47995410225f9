package minfer

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic that was caught at the library's boundary: a fault of the
// library, of a device or of a model definition.
type PanicError struct {
	During string
	Value  any
	Stack  []byte
}

// Error returns what panicked and where.
func (e *PanicError) Error() string {
	return fmt.Sprintf("minfer: panic while %s: %v\n%s", e.During, e.Value, e.Stack)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// recovered, deferred, turns a panic into an error.
func recovered(err *error, during string) {
	if v := recover(); v != nil {
		*err = &PanicError{During: during, Value: v, Stack: debug.Stack()}
	}
}
