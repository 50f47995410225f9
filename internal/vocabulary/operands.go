package vocabulary

import (
	"errors"
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// Errors of operands. They come in a *backend.NodeError.
var (
	// ErrOperand: operands are too few, or have types and shapes that the operation does not take.
	ErrOperand = errors.New("operands do not fit")
	// ErrOverlap: the result shares memory with a source in a way that the operation's traits do not allow.
	ErrOverlap = errors.New("result overlaps a source")
	// ErrRange: a token id, row, position or cell is out of range.
	ErrRange = errors.New("index out of range")
)

// Misshaped returns what wraps ErrOperand.
func Misshaped(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrOperand}, args...)...)
}

// CheckOverlap refuses a result that shares memory with a source, but for the very memory of one that the traits let it
// take over. A plan that is wrong about lifetimes shows here and not as a wrong number.
func CheckOverlap(t *graph.Traits, in []backend.Operand, out backend.Operand) error {
	if t.Region {
		return nil // the result is the region, not the operand
	}
	o := out.Buffer
	for i := range in {
		b := in[i].Buffer
		if b.ID == 0 || b.ID != o.ID || b.Offset >= o.Offset+o.Size || o.Offset >= b.Offset+b.Size {
			continue
		}
		takes := t.InPlace && (i == 0 || i == 1 && t.EitherSource)
		if !takes || b.Offset != o.Offset {
			return fmt.Errorf("%w: source %d at %d of %d bytes, result at %d of %d", ErrOverlap, i, b.Offset, b.Size, o.Offset, o.Size)
		}
	}
	return nil
}

// CheckIndex refuses an index outside of 0 to n-1.
func CheckIndex(what string, indices []int32, n int) error {
	for i, v := range indices {
		if v < 0 || int(v) >= n {
			return fmt.Errorf("%w: %s %d of token %d, want 0 to %d", ErrRange, what, v, i, n-1)
		}
	}
	return nil
}

// CheckDistinct refuses tokens that store to the same cell, as they do so at the same time.
func CheckDistinct(cells []int32) error {
	ascending := true
	for i := 1; i < len(cells) && ascending; i++ {
		ascending = cells[i-1] < cells[i]
	}
	if ascending {
		return nil
	}
	seen := make(map[int32]int, len(cells))
	for i, c := range cells {
		if first, dup := seen[c]; dup {
			return fmt.Errorf("%w: tokens %d and %d both store to cell %d", ErrRange, first, i, c)
		}
		seen[c] = i
	}
	return nil
}

// Attended returns how many positions a token attends to, its window apart. It refuses more than there are: in the
// region of so many cells or, with spans, in the token's span.
func Attended(op *graph.Attention, positions, spans []int32, token, cells int) (n int, err error) {
	p, have := int(positions[token]), cells
	if p < 0 {
		return 0, fmt.Errorf("%w: position %d of token %d", ErrRange, p, token)
	}
	if spans != nil {
		if have, err = listed(SpanOf(spans, token), token, cells); err != nil {
			return 0, err
		}
	}
	n = p + 1
	if op.Mode == graph.Full {
		n = have
	}
	if n < 1 || n > have {
		return 0, fmt.Errorf("%w: token %d at position %d attends to %d of %d cells", ErrRange, token, p, n, have)
	}
	return n, nil
}

// SpanOf returns a token's span of those of all tokens: graph.MaxRuns times a first cell and a number of cells.
func SpanOf(spans []int32, token int) []int32 { return spans[2*graph.MaxRuns*token:][:2*graph.MaxRuns] }

// listed returns the number of cells that a token's span lists.
func listed(span []int32, token, cells int) (total int, err error) {
	for i := 0; i < len(span); i += 2 {
		first, n := int(span[i]), int(span[i+1])
		if n < 0 || n > 0 && (first < 0 || first >= cells || n > cells-first) {
			return 0, fmt.Errorf("%w: token %d lists %d cells from %d on, the region has %d", ErrRange, token, n, first, cells)
		}
		total += n
	}
	return total, nil
}
