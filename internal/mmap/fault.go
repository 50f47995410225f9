package mmap

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrFault reports memory that could not be read: that of a mapped file which was cut short in the
// meantime, or which lies on a disk that failed.
var ErrFault = errors.New("memory of a mapped file cannot be read; the file was cut short, or its disk failed")

// Guard runs f. A fault in it, which would end the program, becomes an error that wraps ErrFault;
// other panics go on. Memory is guarded in the goroutine of f only.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			if err = AsFault(v); err == nil {
				panic(v)
			}
		}
	}()
	return f()
}

// AsFault returns an error that wraps ErrFault if v, which recover returned, is a fault under
// debug.SetPanicOnFault, and nil if it is anything else.
func AsFault(v any) error {
	fault, ok := v.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		return nil
	}
	return fmt.Errorf("%w (address %#x)", ErrFault, fault.Addr())
}
