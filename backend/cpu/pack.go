package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/mmap"
	"github.com/minfer/minfer/internal/quant"
)

// packTask packs row blocks of a weight.
type packTask struct {
	dst []byte
	w   *kernels.Weight
}

func (t *packTask) run(s *kernels.Scratch, lo, hi int) { kernels.Pack(t.dst, t.w, lo, hi, s.Tier) }

// pack copies matrices into the order in which the products read them, all into one piece
// of memory on huge pages, and gives back what was copied. Loaded holds nil for what is
// known already. When it fails, nothing has been given back.
func (d *device) pack(ctx context.Context, weights []backend.Weight, loaded []*weight, progress func(done, total int64)) error {
	memory, err := d.roomFor(loaded)
	if err != nil {
		return err
	}
	if err := d.packInto(ctx, memory.Bytes(), weights, loaded, progress); err != nil {
		return errors.Join(err, memory.Close())
	}
	d.packed = append(d.packed, memory)
	for _, w := range loaded {
		if w == nil || w.packed == nil {
			continue
		}
		w.matrix.Data = nil
		if w.source.Release != nil {
			w.source.Data = nil
			w.source.Release()
		}
	}
	return nil
}

// packs reports whether the device computes products with a copy of the weight.
func (d *device) packs(w *weight) bool {
	return w != nil && d.tier != kernels.Generic && w.vector == nil && !w.source.Table
}

// rounds reports whether the device computes products with the weight rounded to Q8_0.
func (d *device) rounds(w *weight) bool {
	return w != nil && d.round && w.vector == nil && !w.source.Table &&
		!w.matrix.Integer() && w.matrix.In%d.rounded().Block == 0
}

// rounded is the format that floats are rounded to.
func (d *device) rounded() *quant.Format {
	f, err := quant.Lookup("Q8_0")
	if err != nil {
		panic(err) // the format is one of the package's own
	}
	return f
}

// roomFor makes memory for the copies.
func (d *device) roomFor(loaded []*weight) (*mmap.Mapping, error) {
	total := 0
	for _, w := range loaded {
		if !d.packs(w) {
			continue
		}
		n, err := d.packedSize(w)
		if err != nil {
			return nil, err
		}
		if total > math.MaxInt-wholeLines(n) {
			return nil, fmt.Errorf("%w: the copies of all weights", ErrSize)
		}
		total += wholeLines(n)
	}
	memory, err := mmap.Anonymous(total)
	if err != nil {
		return nil, fmt.Errorf("cpu: memory for the copies of weights: %w", err)
	}
	return memory, nil
}

// packedSize is the bytes of a weight's copy.
func (d *device) packedSize(w *weight) (int, error) {
	format := w.matrix.Format
	if d.rounds(w) {
		format = d.rounded()
	}
	n, err := kernels.PackedSize(format, w.matrix.In, w.matrix.Out)
	if err != nil {
		return 0, misfit(w.source.Name, "%w", err)
	}
	return n, nil
}

func (d *device) packInto(ctx context.Context, free []byte, weights []backend.Weight, loaded []*weight, progress func(done, total int64)) error {
	var done, total int64
	for i := range weights {
		total += int64(len(weights[i].Data))
	}
	for i, w := range loaded {
		err := ctx.Err()
		if err == nil && d.rounds(w) {
			err = d.roundWeight(w)
		}
		if err == nil && d.packs(w) {
			err = d.packWeight(w, free)
		}
		if err != nil {
			return err
		}
		if w != nil && w.packed != nil {
			free = free[wholeLines(len(w.packed.Data)):]
		}
		if done += int64(len(weights[i].Data)); progress != nil {
			progress(done, total)
		}
	}
	d.work.pack = packTask{}
	return nil
}

// packWeight makes the copy of a weight at the beginning of free.
func (d *device) packWeight(w *weight, free []byte) error {
	m := w.matrix
	packed, err := kernels.NewPacked(m.Format, m.In, m.Out, free)
	if err != nil {
		return misfit(w.source.Name, "%w", err)
	}
	d.work.pack = packTask{dst: packed.Data, w: m}
	if err := d.pool.run(&d.work.pack, w.blocks(), costMove*m.In*kernels.PackedRows); err != nil {
		return err
	}
	w.packed = packed
	return nil
}

// roundTask rounds rows of a weight. The first error stays.
type roundTask struct {
	dst    []byte
	format *quant.Format
	w      *kernels.Weight
	size   int // bytes of a row

	once sync.Once
	err  error
}

func (t *roundTask) run(s *kernels.Scratch, lo, hi int) {
	if err := kernels.QuantizeRows(t.dst[lo*t.size:hi*t.size], t.format, t.w, lo, hi, s); err != nil {
		t.once.Do(func() { t.err = err })
	}
}

// roundWeight makes the weight's matrix one of Q8_0.
func (d *device) roundWeight(w *weight) error {
	m, format := w.matrix, d.rounded()
	size, err := format.RowBytes(m.In)
	if err != nil {
		return misfit(w.source.Name, "%w", err)
	}
	t := &roundTask{dst: make([]byte, m.Out*size), format: format, w: m, size: size}
	if err := d.pool.run(t, m.Out, costMove*m.In); err != nil {
		return err
	}
	if t.err != nil {
		return misfit(w.source.Name, "%w", t.err)
	}
	if w.matrix, err = kernels.NewWeight(format, m.In, m.Out, t.dst); err != nil {
		return misfit(w.source.Name, "%w", err)
	}
	return nil
}

// wholeLines rounds bytes up, so that what follows them begins with a line of the cache.
func wholeLines(n int) int {
	return (n + backend.Alignment - 1) / backend.Alignment * backend.Alignment
}
