package quant

import "fmt"

// IntRow is a row of weights in the integer form of the package comment: value i,
// in group g, is Scale[g]*Q[i] + Min[g]. The zero IntRow is ready for use; one
// that is used again and again stops allocating once it has seen its longest row.
type IntRow struct {
	Q     []int8    // one per value
	Scale []float32 // one per group
	Min   []float32 // one per group; nil when the format has no minimum

	// spareMin keeps the memory of Min while the row holds a format without one.
	spareMin []float32
}

// Grow makes room for n values of f, so that Reset and Unpack of so many values
// or fewer do not allocate. The contents are undefined afterwards. It panics
// unless f has an integer form and n is a multiple of f.Block and not negative.
func (r *IntRow) Grow(f *Format, n int) {
	if f.Group == 0 || n < 0 || n%f.Block != 0 {
		panic(fmt.Sprintf("quant: no integer row of %d values of %s", n, f.Name))
	}
	groups := n / f.Group
	if cap(r.Q) < n {
		r.Q = make([]int8, n)
	}
	if cap(r.Scale) < groups {
		r.Scale = make([]float32, groups)
	}
	if r.Min != nil {
		r.spareMin, r.Min = r.Min, nil
	}
	if f.Min && cap(r.spareMin) < groups {
		r.spareMin = make([]float32, groups)
	}
}

// Reset gives the slices the lengths for n values of f, allocating only what is
// too short. The contents are undefined. It panics as Grow does.
func (r *IntRow) Reset(f *Format, n int) {
	r.Grow(f, n)
	groups := n / f.Group
	r.Q = r.Q[:n]
	r.Scale = r.Scale[:groups]
	if f.Min {
		r.Min = r.spareMin[:groups]
	}
}

// Unpack decodes all blocks of src into row's integer form, after Reset to the
// number of values that src holds. It panics unless f.Group is positive and
// len(src) is a multiple of f.Bytes.
func (f *Format) Unpack(row *IntRow, src []byte) {
	n := len(src) / f.Bytes * f.Block
	f.check(n, len(src))
	row.Reset(f, n)
	f.unpackBlocks(row.Q, row.Scale, row.Min, src)
}
