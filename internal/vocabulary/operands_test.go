package vocabulary

import (
	"errors"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// TestAttended: a token attends to what lies before it or in its span, and to no cell that is not there.
func TestAttended(t *testing.T) {
	span := func(pairs ...int32) []int32 { return append(pairs, make([]int32, 2*graph.MaxRuns-len(pairs))...) }
	full := graph.Full
	for _, c := range []struct {
		name     string
		mode     graph.AttentionMode
		position int32
		span     []int32
		want     int // 0: refused
	}{
		{"first", graph.Causal, 0, nil, 1},
		{"last", graph.Causal, 15, nil, 16},
		{"beyond", graph.Causal, 16, nil, 0},
		{"before", graph.Causal, -1, nil, 0},
		{"end of a span", graph.Causal, 4, span(0, 2, 10, 3), 5},
		{"beyond a span", graph.Causal, 5, span(0, 2, 10, 3), 0},
		{"all of a span", full, 0, span(0, 2, 10, 3), 5},
		{"nothing", full, 0, span(), 0},
		{"span to the end", full, 0, span(10, 6), 6},
		{"span beyond the end", full, 0, span(10, 7), 0},
		{"span before the region", full, 0, span(-1, 2), 0},
		{"less than no cells", full, 0, span(0, 4, 3, -1), 0},
	} {
		op := graph.Attention{Mode: c.mode, ExplicitSpan: c.span != nil}
		n, err := Attended(&op, []int32{c.position}, c.span, 0, 16)
		if n != c.want || (err == nil) != (c.want > 0) || err != nil && !errors.Is(err, ErrRange) {
			t.Errorf("%s: %d positions, %v, want %d", c.name, n, err, c.want)
		}
	}
}

// TestCheckOverlap: memory is taken over whole, from a source that may be, or not at all.
func TestCheckOverlap(t *testing.T) {
	at := func(id, from, size int) backend.Operand {
		return backend.Operand{Buffer: backend.Buffer{ID: id, Offset: from, Size: size}}
	}
	for _, c := range []struct {
		name   string
		traits graph.Traits
		in     []backend.Operand
		out    backend.Operand
		want   bool // allowed
	}{
		{"apart", graph.Traits{}, []backend.Operand{at(1, 0, 64)}, at(1, 64, 64), true},
		{"other memory", graph.Traits{}, []backend.Operand{at(1, 0, 64)}, at(2, 0, 64), true},
		{"the same", graph.Traits{}, []backend.Operand{at(1, 0, 64)}, at(1, 0, 64), false},
		{"taken over", graph.Traits{InPlace: true}, []backend.Operand{at(1, 0, 64)}, at(1, 0, 64), true},
		{"a part", graph.Traits{InPlace: true}, []backend.Operand{at(1, 0, 64)}, at(1, 32, 64), false},
		{"the second", graph.Traits{InPlace: true}, []backend.Operand{at(2, 0, 64), at(1, 0, 64)}, at(1, 0, 64), false},
		{"either", graph.Traits{InPlace: true, EitherSource: true}, []backend.Operand{at(2, 0, 64), at(1, 0, 64)}, at(1, 0, 64), true},
	} {
		if err := CheckOverlap(&c.traits, c.in, c.out); (err == nil) != c.want || err != nil && !errors.Is(err, ErrOverlap) {
			t.Errorf("%s: %v, allowed is %v", c.name, err, c.want)
		}
	}
}

// TestCheckIndices: bounds are those of the list, and cells are distinct in whatever order.
func TestCheckIndices(t *testing.T) {
	for _, c := range []struct {
		list           []int32
		within, unique bool
	}{
		{[]int32{0, 1, 9}, true, true},
		{[]int32{9, 0, 4}, true, true},
		{[]int32{4, 0, 4}, true, false},
		{[]int32{3, 3}, true, false},
		{[]int32{0, 10}, false, true},
		{[]int32{-1}, false, true},
		{nil, true, true},
	} {
		for i, err := range []error{CheckIndex("row", c.list, 10), CheckDistinct(c.list)} {
			if want := [...]bool{c.within, c.unique}[i]; (err == nil) != want || err != nil && !errors.Is(err, ErrRange) {
				t.Errorf("%v, check %d: %v, want none: %v", c.list, i, err, want)
			}
		}
	}
}
