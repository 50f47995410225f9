package sampling

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

var (
	// ErrInvalid: parameters that no sampler can follow. Errors are *InvalidError.
	ErrInvalid = errors.New("sampling: invalid parameters")
	// ErrNonFinite: the logits hold NaN or +Inf, or nothing but -Inf. Errors are *NonFiniteError.
	ErrNonFinite = errors.New("sampling: non-finite logits")
	// ErrLength: the row of logits is shorter than the vocabulary. Errors are *LengthError.
	ErrLength = errors.New("sampling: too few logits")
	// ErrNoCandidate: the constraint and the bans of LogitBias leave no token.
	ErrNoCandidate = errors.New("sampling: no token is left: the constraint and the logit biases of -Inf exclude the whole vocabulary")
	// ErrState: bytes that are not the saved state of a sampler.
	ErrState = errors.New("sampling: invalid sampler state")
)

// InvalidError lists everything that is wrong with a set of parameters. It
// matches ErrInvalid.
type InvalidError struct {
	Faults []string
}

func (e *InvalidError) Error() string {
	return "sampling: invalid parameters: " + strings.Join(e.Faults, "; ")
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// NonFiniteError counts the logits that are no numbers a model in order can
// produce. Single -Inf are legal (they mask tokens) and are counted only to
// tell when nothing else is there. It matches ErrNonFinite.
type NonFiniteError struct {
	Source string // who made the logits: "model" or "constraint"
	NaN    int
	PosInf int
	NegInf int
	Total  int   // logits looked at
	First  int32 // id of the first NaN or +Inf; -1 if all logits are -Inf
}

func (e *NonFiniteError) Error() string {
	if e.First < 0 {
		return fmt.Sprintf("sampling: all %d logits of the %s are -Inf, want at least one finite", e.Total, e.Source)
	}
	return fmt.Sprintf("sampling: %d NaN and %d +Inf among the %d logits of the %s, the first at token %d, want finite numbers (or -Inf to mask a token)",
		e.NaN, e.PosInf, e.Total, e.Source, e.First)
}

// Is reports whether target is ErrNonFinite.
func (e *NonFiniteError) Is(target error) bool { return target == ErrNonFinite }

// LengthError says how many logits came and how many were needed. It matches
// ErrLength.
type LengthError struct {
	Got, Want int
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("sampling: %d logits for a vocabulary of %d, want at least as many", e.Got, e.Want)
}

// Is reports whether target is ErrLength.
func (e *LengthError) Is(target error) bool { return target == ErrLength }

// census looks at a row that the fast scan refused and says what is wrong.
func census(row []float32, source string) *NonFiniteError {
	e := &NonFiniteError{Source: source, Total: len(row), First: -1}
	for i, x := range row {
		v := float64(x)
		switch {
		case math.IsInf(v, -1):
			e.NegInf++
			continue
		case math.IsNaN(v):
			e.NaN++
		case math.IsInf(v, 1):
			e.PosInf++
		default:
			continue
		}
		if e.First < 0 {
			e.First = int32(i)
		}
	}
	return e
}
