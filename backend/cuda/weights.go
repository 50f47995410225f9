//go:build cuda

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/cuda/internal/driver"
	"github.com/minfer/minfer/internal/quant"
	"gorgonia.org/cu"
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
func (e *WeightError) Error() string { return fmt.Sprintf("cuda: weight %q: %v", e.Weight, e.Err) }

// Unwrap returns what is wrong.
func (e *WeightError) Unwrap() error { return e.Err }

func misfit(name, format string, args ...any) error {
	return &WeightError{Weight: name, Err: fmt.Errorf("%w: "+format, append([]any{ErrWeight}, args...)...)}
}

// weight is a tensor on the device.
type weight struct {
	source backend.Weight // without Data once the device has a copy
	data   *byte          // where Data was
	format *quant.Format
	layout *layout
	matrix block // in the order of kernels/formats.h
	vector block // the values of a float tensor of one row

	// The kernels of the format, and whether that for prompts brings the next super-block meanwhile.
	ahead                                    bool
	matvec1, matvecN, matmul, gateUp1, embed *kernel
}

// layout says how a format's bytes lie on the device: where each field of a block of the file
// goes in a row's part of a super-block. Fields of several blocks follow each other.
type layout struct {
	pieces, words int // of 16 and of 4 bytes
	fields        []field
}

type field struct{ from, size, to int }

var layouts = map[string]*layout{
	"F32":    {64, 0, []field{{0, 4, 0}}},
	"F16":    {32, 0, []field{{0, 2, 0}}},
	"BF16":   {32, 0, []field{{0, 2, 0}}},
	"Q4_0":   {9, 0, []field{{0, 2, 0}, {2, 16, 16}}},
	"Q4_1":   {10, 0, []field{{0, 2, 0}, {2, 2, 16}, {4, 16, 32}}},
	"Q5_0":   {11, 0, []field{{0, 2, 0}, {2, 4, 16}, {6, 16, 48}}},
	"Q5_1":   {12, 0, []field{{0, 2, 0}, {2, 2, 16}, {4, 4, 32}, {8, 16, 64}}},
	"Q8_0":   {17, 0, []field{{0, 2, 0}, {2, 32, 16}}},
	"Q2_K":   {5, 1, []field{{0, 84, 0}}},
	"Q3_K":   {6, 4, []field{{0, 110, 0}}},
	"Q4_K":   {9, 0, []field{{0, 144, 0}}},
	"Q5_K":   {11, 0, []field{{0, 176, 0}}},
	"Q6_K":   {13, 1, []field{{0, 210, 0}}},
	"IQ4_NL": {9, 0, []field{{0, 2, 0}, {2, 16, 16}}},
	"IQ4_XS": {8, 2, []field{{8, 128, 0}, {0, 8, 128}}},
	"MXFP4":  {8, 2, []field{{1, 16, 0}, {0, 1, 128}}},
}

// rowGroup is the number of rows that lie together.
const rowGroup = 32

// bytes is the size of a super-block of one row.
func (l *layout) bytes() int { return 16*l.pieces + 4*l.words }

// groupBytes is the size of a group of rows.
func (w *weight) groupBytes() int { return rowGroup * w.layout.bytes() * supersOf(w.source.In) }

// groups is the number of groups of rows.
func (w *weight) groups() int { return (w.source.Out + rowGroup - 1) / rowGroup }

func (w *weight) integer() bool { return w.format.Group != 0 }

// isVector reports whether the weight is one of a norm, a bias or the like.
func (w *weight) isVector() bool { return w.source.Out == 1 && !w.integer() }

// size is the bytes of the device that loading the weight takes.
func (w *weight) size() int {
	if w.isVector() {
		return roundUp(4*w.source.In, granularity)
	}
	return roundUp(w.groups()*w.groupBytes(), granularity)
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
	known := &weight{source: w, data: unsafe.SliceData(w.Data), format: format, layout: layouts[format.Name]}
	if w.Out > math.MaxInt32-rowGroup || w.In > maxIn && !known.isVector() {
		return nil, misfit(w.Name, "%d rows of %d values, the device has room for rows of %d", w.Out, w.In, maxIn)
	}
	return known, nil
}

// same reports whether loading w again would change nothing. Bytes at the same place are the
// same, since the caller may not write them.
func (k *weight) same(w backend.Weight) bool {
	s := &k.source
	return s.Type == w.Type && s.In == w.In && s.Out == w.Out && k.data == unsafe.SliceData(w.Data)
}

func (k *weight) free() error { return errors.Join(freeBlock(k.matrix), freeBlock(k.vector)) }

func (k *weight) held() int64 { return int64(k.matrix.size + k.vector.size) }

// LoadWeights checks every weight before it makes any of them known, and copies them to the
// device. A weight that is known already with the same bytes is left as it is; one with others is
// replaced. A fault is a *WeightError.
func (d *device) LoadWeights(ctx context.Context, weights []backend.Weight, progress func(done, total int64)) error {
	if err := d.usable(); err != nil {
		return err
	}
	loaded := make([]*weight, len(weights))
	var total, done int64
	for i, w := range weights {
		total += int64(len(w.Data))
		if known := d.weights[w.Name]; known == nil || !known.same(w) {
			var err error
			if loaded[i], err = newWeight(w); err != nil {
				return err
			}
		}
	}
	d.recordings.current = nil
	for i, w := range loaded {
		err := ctx.Err()
		if err == nil && w != nil {
			err = d.do(func() error { return d.upload(ctx, w) })
		}
		if err != nil {
			return errors.Join(err, d.do(func() error { return drop(loaded) }))
		}
		if done += int64(len(weights[i].Data)); progress != nil {
			progress(done, total)
		}
	}
	return d.do(func() error { return d.adopt(loaded) })
}

// drop frees weights that were uploaded for nothing.
func drop(loaded []*weight) error {
	var errs []error
	for _, w := range loaded {
		if w != nil {
			errs = append(errs, w.free())
		}
	}
	return errors.Join(errs...)
}

// adopt makes weights known, in the place of those of the same names.
func (d *device) adopt(loaded []*weight) error {
	var errs []error
	for _, w := range loaded {
		if w == nil {
			continue
		}
		if old := d.weights[w.source.Name]; old != nil {
			errs = append(errs, d.flush())
			d.recordings.clear()
			d.weightBytes -= old.held()
			errs = append(errs, old.free())
			for key, t := range d.ropes { // one may have been made with the old factors
				errs = append(errs, t.free())
				delete(d.ropes, key)
			}
		}
		d.weights[w.source.Name] = w
		d.weightBytes += w.held()
		w.source.Data = nil
		if w.source.Release != nil {
			w.source.Release()
		}
	}
	return errors.Join(errs...)
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
		total += int64(w.size())
	}
	return total, nil
}

// FreeMemory implements backend.MemoryMeter.
func (d *device) FreeMemory() (free int64, err error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	err = d.do(func() error {
		free, _, err = cu.MemInfo()
		return err
	})
	return free, err
}

// upload copies a weight to the device and finds its kernels. The context is the thread's.
func (d *device) upload(ctx context.Context, w *weight) (err error) {
	if w.isVector() {
		values := make([]float32, w.source.In)
		w.format.Dequantize(values, w.source.Data)
		w.vector, err = d.uploadFloats(values)
		return err
	}
	if w.matrix, err = newBlock(w.size()); err != nil {
		return err
	}
	// While one half of the pinned memory is on its way, the other is filled.
	half := staging / 2
	per := half / w.groupBytes()
	if per == 0 {
		return d.uploadLarge(ctx, w)
	}
	if err := d.flushWait(); err != nil {
		return err
	}
	for g, turn := 0, 0; g < w.groups(); g, turn = g+per, turn+1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(per, w.groups()-g)
		part := d.out.bytes[turn%2*half:][:n*w.groupBytes()]
		w.pack(part, g, n)
		if turn > 0 {
			if err := d.stream.Synchronize(); err != nil {
				return d.fail(err)
			}
		}
		if err := d.send(w.matrix.ptr+uint64(g*w.groupBytes()), turn%2*half, len(part)); err != nil {
			return err
		}
	}
	if err := d.flushWait(); err != nil {
		return err
	}
	return d.findKernels(w)
}

// uploadLarge is upload for groups of rows that are longer than the pinned memory.
func (d *device) uploadLarge(ctx context.Context, w *weight) error {
	buf := make([]byte, w.groupBytes())
	for g := range w.groups() {
		w.pack(buf, g, 1)
		for at := 0; at < len(buf); at += staging {
			if err := errors.Join(ctx.Err(), d.flushWait()); err != nil {
				return err
			}
			n := copy(d.out.bytes, buf[at:])
			if err := d.send(w.matrix.ptr+uint64(g*w.groupBytes()+at), 0, n); err != nil {
				return err
			}
		}
	}
	if err := d.flushWait(); err != nil {
		return err
	}
	return d.findKernels(w)
}

// send hands a copy from pinned memory to the driver.
func (d *device) send(to uint64, at, n int) error {
	var o driver.Op
	o.Kind = driver.ToDevice
	o.Ptr(to).Ptr(d.out.addr(at)).Ptr(uint64(n))
	_, err := driver.Run(d.stream, []driver.Op{o})
	return err
}

// flushWait hands queued work over and waits, so that pinned memory is free.
func (d *device) flushWait() error {
	if err := d.flush(); err != nil {
		return err
	}
	d.out.used = 0
	return d.settle()
}

// uploadFloats makes a vector. The context is the thread's.
func (d *device) uploadFloats(values []float32) (b block, err error) {
	raw := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
	return d.uploadBytes(raw)
}

func (d *device) uploadBytes(raw []byte) (b block, err error) {
	if b, err = newBlock(roundUp(len(raw), granularity)); err != nil {
		return b, err
	}
	for at := 0; at < len(raw); at += staging {
		if err := d.flushWait(); err != nil {
			return b, err
		}
		n := copy(d.out.bytes, raw[at:])
		if err := d.send(b.ptr+uint64(at), 0, n); err != nil {
			return b, err
		}
	}
	return b, d.flushWait()
}

// pack writes n groups of rows from group g on, in the device's order.
func (w *weight) pack(dst []byte, g, n int) {
	workers := min(n, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() {
			for k := i; k < n; k += workers {
				w.packGroup(dst[k*w.groupBytes():][:w.groupBytes()], (g+k)*rowGroup)
			}
		})
	}
	wait.Wait()
}

// packGroup writes the group that begins with a row.
func (w *weight) packGroup(dst []byte, first int) {
	l, f := w.layout, w.format
	clear(dst)
	rowBytes := len(w.source.Data) / w.source.Out
	record := make([]byte, l.bytes())
	size := rowGroup * l.bytes()
	for lane := range min(rowGroup, w.source.Out-first) {
		row := w.source.Data[(first+lane)*rowBytes:][:rowBytes]
		for super := 0; len(row) > 0; super++ {
			n := min(len(row), superBlock/f.Block*f.Bytes)
			l.gather(record, row[:n], f.Bytes)
			l.scatter(dst[super*size:][:size], record, lane)
			row = row[n:]
		}
	}
}

// gather brings the blocks of a super-block into a row's order.
func (l *layout) gather(record, blocks []byte, size int) {
	clear(record)
	for i := 0; i*size < len(blocks); i++ {
		for _, f := range l.fields {
			copy(record[f.to+i*f.size:][:f.size], blocks[i*size+f.from:])
		}
	}
}

// scatter puts a row's part of a super-block among those of the others.
func (l *layout) scatter(dst, record []byte, lane int) {
	for i := range l.pieces {
		copy(dst[512*i+16*lane:][:16], record[16*i:])
	}
	for i := range l.words {
		copy(dst[512*l.pieces+128*i+4*lane:][:4], record[16*l.pieces+4*i:])
	}
}

// findKernels finds the kernels of the weight's format. The context is the thread's.
func (d *device) findKernels(w *weight) error {
	name := w.format.Name
	type wanted struct {
		module, prefix string
		to             **kernel
	}
	list := []wanted{{name, "matvec1_", &w.matvec1}, {name, "matvec4_", &w.matvecN}, {name, "gate_up1_", &w.gateUp1},
		{name, "embed_", &w.embed}, {"tensor_" + name, "matmul_", &w.matmul}}
	if w.ahead = w.integer() && d.major >= 8 && w.tileBytes(true) <= d.kernels.shared; w.ahead {
		list[len(list)-1].prefix = "matmul_ahead_"
	}
	if name := w.format.Name; d.major >= 8 && (name == "F16" || name == "BF16") {
		list = []wanted{{"halves", "few1_", &w.matvec1}, {"halves", "few8_", &w.matvecN}, {"halves", "tile_", &w.matmul}, {"floats", "embed_", &w.embed}}
	} else if !w.integer() {
		list = []wanted{{"floats", "matvec1_", &w.matvec1}, {"floats", "matvec8_", &w.matvecN}, {"floats", "embed_", &w.embed}}
	}
	for _, k := range list {
		var err error
		if *k.to, err = d.kernels.load(k.module, k.prefix+name); err != nil {
			return err
		}
	}
	return nil
}

// weightMatrix finds the weight of a product or a table.
func (d *device) weightMatrix(name, format string, in, out int) (*weight, error) {
	w := d.weights[name]
	if w == nil {
		return nil, &WeightError{Weight: name, Err: ErrMissingWeight}
	}
	if s := &w.source; s.Type != format || s.In != in || s.Out != out {
		return nil, misfit(name, "it is %s[%d %d], the node wants %s[%d %d]", s.Type, s.In, s.Out, format, in, out)
	}
	if w.matrix.size == 0 {
		if err := d.do(func() error { return d.spread(w) }); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// spread makes the matrix of a weight that was taken for a vector, as one of F32.
func (d *device) spread(w *weight) (err error) {
	w.layout = layouts["F32"]
	if w.format, err = quant.Lookup("F32"); err != nil {
		return err
	}
	if w.matrix, err = newBlock(w.groupBytes()); err != nil {
		return err
	}
	d.weightBytes += int64(w.matrix.size)
	d.fill(w.matrix)
	d.launch(d.kernels.base("spread"), (w.source.In+255)/256, 1, 1, 256, 0).Ptr(w.matrix.ptr).Ptr(w.vector.ptr).Int(w.source.In)
	return d.findKernels(w)
}

// weightVector returns the float vector of n values with the name, or 0 for no name.
func (d *device) weightVector(name string, n int) (uint64, error) {
	if name == "" {
		return 0, nil
	}
	w := d.weights[name]
	if w == nil {
		return 0, &WeightError{Weight: name, Err: ErrMissingWeight}
	}
	if s := &w.source; w.vector.size == 0 || s.In != n {
		return 0, misfit(name, "it is %s[%d %d], the node wants a vector of %d floats", s.Type, s.In, s.Out, n)
	}
	return w.vector.ptr, nil
}

// hostVector returns the values of a float vector, for what the host computes from them.
func (d *device) hostVector(name string, n int) ([]float32, error) {
	p, err := d.weightVector(name, n)
	if err != nil || p == 0 {
		return nil, err
	}
	values := make([]float32, n)
	err = d.do(func() error {
		if err := d.flushWait(); err != nil {
			return err
		}
		return cu.MemcpyDtoH(unsafe.Pointer(&values[0]), cu.DevicePtr(p), int64(4*n))
	})
	return values, err
}
