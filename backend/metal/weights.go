//go:build cgo && (darwin || metalemu)

package metal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/backend"
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
func (e *WeightError) Error() string { return fmt.Sprintf("metal: weight %q: %v", e.Weight, e.Err) }

// Unwrap returns what is wrong.
func (e *WeightError) Unwrap() error { return e.Err }

func misfit(name, format string, args ...any) error {
	return &WeightError{Weight: name, Err: fmt.Errorf("%w: "+format, append([]any{ErrWeight}, args...)...)}
}

// weight is a tensor as the device has it: where it lies in the mapped file, and the decoded values of a vector.
type weight struct {
	source   backend.Weight
	rowBytes int
	window   *window // nil for a vector
	at       int     // bytes of the window before the tensor
	vector   *block  // the float values of a tensor of one row, or nil
}

// window is pages of a mapped file that are a block of the device, for the weights within.
type window struct {
	block *block
	uses  int
	pin   runtime.Pinner // for memory of Go's
}

// newWeight checks a weight.
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
	if w.In >= maxIndex || w.Out >= maxIndex || rowBytes >= maxIndex {
		return nil, misfit(w.Name, "%d rows of %d values are more than kernels count", w.Out, w.In)
	}
	return &weight{source: w, rowBytes: rowBytes}, nil
}

// isVector reports whether the weight is a vector of floats, which is decoded.
func (w *weight) isVector() (*quant.Format, bool) {
	format, err := quant.Lookup(w.source.Type)
	return format, err == nil && w.source.Out == 1 && format.Group == 0
}

// same reports whether loading w again would change nothing. Bytes at the same place are the same, since the caller may
// not write them.
func (k *weight) same(w backend.Weight) bool {
	s := &k.source
	if s.Type != w.Type || s.In != w.In || s.Out != w.Out || len(s.Data) != len(w.Data) {
		return false
	}
	return unsafe.SliceData(s.Data) == unsafe.SliceData(w.Data) || bytes.Equal(s.Data, w.Data)
}

func (k *weight) bytes() int64 {
	n := int64(len(k.source.Data))
	if _, ok := k.isVector(); ok {
		n += 4 * int64(k.source.In)
	}
	return n
}

// drop gives up the memory of a weight. No command may be using it.
func (k *weight) drop() {
	k.vector.release()
	if w := k.window; w != nil {
		if w.uses--; w.uses == 0 {
			w.block.release()
			w.pin.Unpin()
		}
	}
}

// rowsOf is the tensor's memory.
func (k *weight) rowsOf() region { return region{k.window.block, k.at, len(k.source.Data)} }

// LoadWeights checks every weight before it makes any of them known. Tensors are used where they are: the pages that they
// lie in become buffers of the device, as few as there can be. Vectors of floats are decoded besides. A weight that is known
// already with the same bytes is left as it is; one with others is replaced. A fault is a *WeightError.
func (d *device) LoadWeights(ctx context.Context, weights []backend.Weight, progress func(done, total int64)) (err error) {
	if err := d.usable(); err != nil {
		return err
	}
	var loaded []*weight
	for _, w := range weights {
		if known := d.weights[w.Name]; known != nil && known.same(w) {
			continue
		}
		k, err := newWeight(w)
		if err != nil {
			return err
		}
		loaded = append(loaded, k)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			for _, k := range loaded {
				k.drop()
			}
		}
	}()
	if err := d.mapWeights(loaded); err != nil {
		return err
	}
	var done, total int64
	for i := range weights {
		total += int64(len(weights[i].Data))
	}
	for _, k := range loaded {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.decode(k); err != nil {
			return err
		}
		if done += int64(len(k.source.Data)); progress != nil {
			progress(done, total)
		}
	}
	if progress != nil && done < total {
		progress(total, total)
	}
	return d.replace(loaded)
}

// replace makes weights known, in place of others of the same names.
func (d *device) replace(loaded []*weight) error {
	for _, k := range loaded {
		name := k.source.Name
		if old := d.weights[name]; old != nil {
			if err := d.wait(); err != nil {
				return err
			}
			d.weightBytes -= old.bytes()
			old.drop()
			for r, t := range d.ropes { // one may have been made with the old factors
				t.table.release()
				delete(d.ropes, r)
			}
		}
		d.weights[name] = k
		d.weightBytes += k.bytes()
	}
	return nil
}

// mapWeights makes windows for tensors. Neighbours share one, up to the longest buffer that the device has.
func (d *device) mapWeights(loaded []*weight) error {
	tensors := slices.Clone(loaded)
	slices.SortFunc(tensors, func(a, b *weight) int { return cmp.Compare(a.address(), b.address()) })
	page := uintptr(os.Getpagesize())
	for len(tensors) > 0 {
		first := tensors[0].address() &^ (page - 1)
		var end uintptr
		n := 0
		for _, k := range tensors {
			begin, last := k.address()&^(page-1), (k.address()+uintptr(len(k.source.Data))+page-1)&^(page-1)
			// Only what adjoins is surely mapped as one.
			if n > 0 && (begin > end || last-first > uintptr(d.gpu.maxBuffer)) {
				break
			}
			end = max(end, last)
			n++
		}
		if err := d.mapWindow(tensors[:n], first, int(end-first)); err != nil {
			return err
		}
		tensors = tensors[n:]
	}
	return nil
}

func (k *weight) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(k.source.Data))) }

func (d *device) mapWindow(tensors []*weight, first uintptr, size int) error {
	if size > d.gpu.maxBuffer {
		return misfit(tensors[0].source.Name, "%d bytes with the pages around them, the device has buffers of %d", size, d.gpu.maxBuffer)
	}
	block, err := d.gpu.mapBlock(first, size)
	if err != nil {
		return &WeightError{Weight: tensors[0].source.Name, Err: err}
	}
	w := &window{block: block}
	for _, k := range tensors {
		w.pin.Pin(unsafe.SliceData(k.source.Data))
		w.uses++
		k.window, k.at = w, int(k.address()-first)
	}
	return nil
}

// decode makes the float values of a vector.
func (d *device) decode(k *weight) (err error) {
	format, ok := k.isVector()
	if !ok {
		return nil
	}
	if k.vector, err = d.gpu.newBlock(4 * k.source.In); err != nil {
		return &WeightError{Weight: k.source.Name, Err: err}
	}
	k.vector.constant = true
	r := region{k.vector, 0, 4 * k.source.In}
	// The file may have been cut short since it was mapped.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = misfit(k.source.Name, "its bytes cannot be read: %v", v)
		}
	}()
	format.Dequantize(elementsOf[float32](r.bytes()), k.source.Data)
	return nil
}

// MeasureWeights implements backend.WeightMeter.
func (d *device) MeasureWeights(list []backend.Weight) (total int64, err error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	for _, source := range list {
		w, err := newWeight(source)
		if err != nil {
			return 0, err
		}
		total += w.bytes()
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

// vector finds the float vector of n values with the name. Without a name it is instead, which is bound but not read.
func (d *device) vector(name string, n int, instead region) (region, error) {
	if name == "" {
		return instead, nil
	}
	w := d.weights[name]
	if w == nil {
		return region{}, &WeightError{Weight: name, Err: ErrMissingWeight}
	}
	if w.vector == nil || w.source.In != n {
		s := &w.source
		return region{}, misfit(name, "it is %s[%d %d], the node wants a vector of %d floats", s.Type, s.In, s.Out, n)
	}
	return region{w.vector, 0, 4 * n}, nil
}
