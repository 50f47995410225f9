package chattemplate

import (
	"errors"
	"fmt"
)

// Causes of a *[RenderError], for errors.Is.
var (
	// ErrRaised: the template itself called raise_exception; Message has its text.
	ErrRaised = errors.New("raised by the template")
	// ErrLimit: a budget ran out; errors.As to *[LimitError] says which.
	ErrLimit = errors.New("limit exceeded")
	// ErrUndefined: an undefined value was used for more than printing or testing.
	ErrUndefined = errors.New("undefined value")
	// ErrType: an operation met an operand of the wrong type.
	ErrType = errors.New("wrong type")
	// ErrValue: an operand of the right type but with an impossible value.
	ErrValue = errors.New("wrong value")
	// ErrSecurity: the template reached for something the sandbox withholds.
	ErrSecurity = errors.New("refused by the sandbox")
)

// SyntaxError says where a template's source stops making sense. Line and
// Column count from 1; Column counts bytes.
type SyntaxError struct {
	Line, Column int
	Message      string
	// Err is nil, or the *LimitError that stopped the parser.
	Err error
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("chattemplate: line %d, column %d: %s", e.Line, e.Column, e.Message)
}

func (e *SyntaxError) Unwrap() error { return e.Err }

// RenderError is every failure of Render. Err is one of the sentinels above, a
// *LimitError, or the context's error; Line and Column (from 1) lead to the
// innermost statement or expression that failed, 0 where none had begun.
type RenderError struct {
	Line, Column int
	Message      string
	Err          error
}

func (e *RenderError) Error() string {
	if e.Line == 0 {
		return "chattemplate: " + e.Message
	}
	return fmt.Sprintf("chattemplate: line %d, column %d: %s", e.Line, e.Column, e.Message)
}

func (e *RenderError) Unwrap() error { return e.Err }

// LimitError names the budget that ran out and its size.
type LimitError struct {
	What  string // "source bytes", "syntax nodes", "nesting", "steps", "memory bytes", "output bytes", "integer bits"
	Limit int64
}

func (e *LimitError) Error() string { return fmt.Sprintf("more than %d %s", e.Limit, e.What) }

// Is makes every LimitError match ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

func failf(cause error, format string, args ...any) error {
	return &RenderError{Message: fmt.Sprintf(format, args...), Err: cause}
}

func typeErrorf(format string, args ...any) error  { return failf(ErrType, format, args...) }
func valueErrorf(format string, args ...any) error { return failf(ErrValue, format, args...) }

func limitError(what string, limit int64) error {
	err := &LimitError{What: what, Limit: limit}
	return &RenderError{Message: err.Error(), Err: err}
}
