package kernels

import "github.com/minfer/minfer/internal/quant"

// KVRegion is the keys or the values of one layer: a row of Dim values for each
// cell, in F16 or F32, whichever of the two is not nil.
//
// Callers reach rows through its methods only, so that the order inside may change.
type KVRegion struct {
	Dim int
	F16 []uint16
	F32 []float32
}

// NewKVRegion makes a region of zeros, with float32 elements if wide.
func NewKVRegion(cells, dim int, wide bool) *KVRegion {
	if wide {
		return &KVRegion{Dim: dim, F32: make([]float32, cells*dim)}
	}
	return &KVRegion{Dim: dim, F16: make([]uint16, cells*dim)}
}

// Cells is the number of rows.
func (k *KVRegion) Cells() int { return (len(k.F16) + len(k.F32)) / k.Dim }

// Store writes the first Dim values of row to a cell. In F16 they are rounded to
// nearest even, and to infinity beyond its range.
func (k *KVRegion) Store(cell int, row []float32) {
	row = row[:k.Dim]
	if k.F32 != nil {
		copy(k.F32[cell*k.Dim:][:k.Dim], row)
		return
	}
	quant.EncodeF16(k.F16[cell*k.Dim:][:k.Dim], row)
}

// Load writes elements [at, at+len(dst)) of a cell's row to dst.
func (k *KVRegion) Load(dst []float32, cell, at int) {
	if k.F32 != nil {
		copy(dst, k.F32[cell*k.Dim+at:][:len(dst)])
		return
	}
	quant.DecodeF16(dst, k.F16[cell*k.Dim+at:][:len(dst)])
}
