package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"unsafe"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/quant"
)

// Errors of weights, in a *WeightError.
var (
	// ErrMissingWeight: a node names a weight that was not loaded.
	ErrMissingWeight = errors.New("weight is not loaded")
	// ErrWeight: a weight's bytes, type or shape are not what they have to be.
	ErrWeight = errors.New("weight does not fit")
)

// WeightError is a fault of a weight.
type WeightError struct {
	Weight string
	Err    error // ErrMissingWeight, or what wraps ErrWeight
}

// Error returns the weight's name and what is wrong.
func (e *WeightError) Error() string { return fmt.Sprintf("cpu: weight %q: %v", e.Weight, e.Err) }

// Unwrap returns what is wrong.
func (e *WeightError) Unwrap() error { return e.Err }

func misfit(name, format string, args ...any) error {
	return &WeightError{Weight: name, Err: fmt.Errorf("%w: "+format, append([]any{ErrWeight}, args...)...)}
}

// weight is a tensor as the device has it.
type weight struct {
	matrix *kernels.Weight
	packed *kernels.Packed // the matrix again in the order of the products, or nil
	source backend.Weight
	vector []float32 // the decoded values of a float tensor of one row

	// Of a product that begins with this weight:
	firsts [][]byte // what each thread reads first, once known
	next   *weight  // with which the one after it began, the last time
}

func newWeight(w backend.Weight) (*weight, error) {
	format, err := quant.Lookup(w.Type)
	if err != nil {
		return nil, misfit(w.Name, "%w", err)
	}
	rowBytes, err := format.RowBytes(w.In)
	if err != nil {
		return nil, misfit(w.Name, "%w", err)
	}
	if w.In <= 0 || w.Out <= 0 || len(w.Data)/w.Out != rowBytes || len(w.Data)%w.Out != 0 {
		return nil, misfit(w.Name, "%d bytes for %d rows of %d values in %s, %d bytes each", len(w.Data), w.Out, w.In, w.Type, rowBytes)
	}
	matrix, err := kernels.NewWeight(format, w.In, w.Out, w.Data)
	if err != nil {
		return nil, misfit(w.Name, "%w", err)
	}
	known := &weight{matrix: matrix, source: w}
	if w.Out == 1 && !matrix.Integer() {
		known.vector = make([]float32, w.In)
		matrix.GetRow(known.vector, 0)
	}
	return known, nil
}

// same reports whether loading w again would change nothing. Bytes at the same place
// are the same, since the caller may not write them.
func (k *weight) same(w backend.Weight) bool {
	s := &k.source
	if s.Type != w.Type || s.In != w.In || s.Out != w.Out || len(s.Data) != len(w.Data) {
		return false
	}
	return unsafe.SliceData(s.Data) == unsafe.SliceData(w.Data) || bytes.Equal(s.Data, w.Data)
}

func (k *weight) bytes() int64 {
	if k.packed != nil {
		return int64(len(k.packed.Data))
	}
	return int64(len(k.source.Data)) + 4*int64(len(k.vector))
}

// blocks returns the number of row blocks, the unit in which products are split.
func (k *weight) blocks() int { return (k.matrix.Out + kernels.PackedRows - 1) / kernels.PackedRows }

// row writes row r to dst.
func (k *weight) row(dst []float32, r int, s *kernels.Scratch) {
	if k.packed != nil {
		k.packed.GetRow(dst, r, s)
		return
	}
	k.matrix.GetRow(dst, r)
}

// LoadWeights checks every weight before it makes any of them known. Matrices are copied
// into the order in which the products read them, unless the device computes in plain Go or in place;
// other bytes are used where they are. A weight that is known already with the same bytes is left
// as it is; one with others is replaced. A fault is a *WeightError.
func (d *device) LoadWeights(ctx context.Context, weights []backend.Weight, progress func(done, total int64)) (err error) {
	if err := d.usable(); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer d.keepPanic(&err)
	loaded := make([]*weight, len(weights))
	for i, w := range weights {
		if known := d.weights[w.Name]; known == nil || !known.same(w) {
			if loaded[i], err = newWeight(w); err != nil {
				return err
			}
		}
	}
	if err := d.pack(ctx, weights, loaded, progress); err != nil {
		return err
	}
	for i, w := range loaded {
		if w == nil {
			continue
		}
		name := weights[i].Name
		if old := d.weights[name]; old != nil {
			d.weightBytes -= old.bytes()
			clear(d.ropes) // one may have been made with the old factors
		}
		d.weights[name] = w
		d.weightBytes += w.bytes()
	}
	return nil
}

// MeasureWeights implements backend.WeightMeter.
func (d *device) MeasureWeights(list []backend.Weight) (total int64, err error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer d.keepPanic(&err)
	for _, source := range list {
		w, err := newWeight(source)
		if err != nil {
			return 0, err
		}
		if !d.packs(w) {
			total += w.bytes()
			continue
		}
		n, err := d.packedSize(w)
		if err != nil {
			return 0, err
		}
		total += int64(n)
	}
	return total, nil
}

// matrix finds the weight of a product or a table.
func (d *device) matrix(name, format string, in, out int) (*weight, error) {
	w := d.weights[name]
	if w == nil {
		return nil, &WeightError{Weight: name, Err: ErrMissingWeight}
	}
	if s := &w.source; s.Type != format || s.In != in || s.Out != out {
		return nil, misfit(name, "it is %s[%d %d], the node wants %s[%d %d]", s.Type, s.In, s.Out, format, in, out)
	}
	return w, nil
}

// vector finds the float vector of n values with the name, or nil for no name.
func (d *device) vector(name string, n int) ([]float32, error) {
	if name == "" {
		return nil, nil
	}
	w := d.weights[name]
	if w == nil {
		return nil, &WeightError{Weight: name, Err: ErrMissingWeight}
	}
	if len(w.vector) != n {
		s := &w.source
		return nil, misfit(name, "it is %s[%d %d], the node wants a vector of %d floats", s.Type, s.In, s.Out, n)
	}
	return w.vector, nil
}
