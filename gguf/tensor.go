package gguf

import (
	"fmt"
	"math"
	"math/bits"
)

// Tensor describes one tensor of a file. Its dimensions are in ggml's order,
// the fastest first: a matrix that maps in values to out values has Dims
// [in, out] and lies in the file as out rows of in values.
type Tensor struct {
	Name   string
	Type   Type
	Dims   []uint64 // at most MaxDims; none for a scalar; must not be modified
	Offset uint64   // of the first data byte, from the beginning of the part's file
	Size   uint64   // bytes of data; 0 if CheckTensor refuses the tensor
	Part   int      // which part of a split model, from 0
}

// Elements is the number of values, 1 for a scalar. It does not overflow for a
// tensor of an open file.
func (t Tensor) Elements() uint64 {
	n := uint64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Shape is Dims padded with ones. Open has refused dimensions that do not fit an int.
func (t Tensor) Shape() [4]int {
	shape := [4]int{1, 1, 1, 1}
	for i, d := range t.Dims[:min(len(t.Dims), MaxDims)] {
		shape[i] = int(d)
	}
	return shape
}

// RowBytes is the number of bytes of one row, the values along the first
// dimension; 0 for an unsupported type.
func (t Tensor) RowBytes() uint64 {
	if t.check() != nil {
		return 0
	}
	return t.row() / uint64(t.Type.BlockSize()) * uint64(t.Type.BlockBytes())
}

// String describes the tensor in one line: name, type, dimensions.
func (t Tensor) String() string {
	return fmt.Sprintf("%s %s %v", t.Name, t.Type, t.Dims)
}

// row is the number of values along the first dimension.
func (t Tensor) row() uint64 {
	if len(t.Dims) == 0 {
		return 1
	}
	return t.Dims[0]
}

// check says why a tensor that is listed has no usable data.
func (t Tensor) check() error {
	switch {
	case t.Type.Removed():
		return fmt.Errorf("%w %d (%s, removed from the format)", ErrUnsupportedType, uint32(t.Type), t.Type)
	case !t.Type.Known():
		return fmt.Errorf("%w %d", ErrUnsupportedType, uint32(t.Type))
	case t.row()%uint64(t.Type.BlockSize()) != 0:
		return fmt.Errorf("row length %d is not a multiple of the %s block of %d: %w", t.row(), t.Type, t.Type.BlockSize(), ErrShape)
	}
	return nil
}

// checkDims refuses shapes whose number of values, or any dimension, no int
// could hold. A dimension of 0 hides an overflow of the others from no one.
func checkDims(dims []uint64) error {
	n := uint64(1)
	for _, d := range dims {
		if d > math.MaxInt {
			return fmt.Errorf("dimension %d of %v, at most %d are allowed: %w", d, dims, math.MaxInt, ErrTooLarge)
		}
		hi, lo := bits.Mul64(n, max(d, 1))
		if hi != 0 || lo > math.MaxInt64 {
			return fmt.Errorf("dimensions %v multiply to more than 2^63-1 values: %w", dims, ErrTooLarge)
		}
		n = lo
	}
	return nil
}

// sizeOf is the bytes of a tensor whose type and dimensions passed the checks.
func sizeOf(t Type, dims []uint64) (uint64, error) {
	n := uint64(1)
	for _, d := range dims {
		n *= d
	}
	hi, lo := bits.Mul64(n/uint64(t.BlockSize()), uint64(t.BlockBytes()))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("%s values of shape %v take more than 2^63-1 bytes: %w", t, dims, ErrTooLarge)
	}
	return lo, nil
}
