package cpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/mmap"
	"github.com/minfer/minfer/internal/quant"
)

// pack copies matrices into the order in which the products read them, all into one piece
// of memory on huge pages, and gives back what was copied. Loaded holds nil for what is
// known already.
func (d *device) pack(ctx context.Context, weights []backend.Weight, loaded []*weight, progress func(done, total int64)) error {
	memory, err := d.roomFor(loaded)
	if err != nil {
		return err
	}
	if err := d.packInto(ctx, memory.Bytes(), weights, loaded, progress); err != nil {
		return errors.Join(err, memory.Close())
	}
	d.packed = append(d.packed, memory)
	return nil
}

// packs reports whether the device computes products with a copy of the weight.
func (d *device) packs(w *weight) bool {
	return w != nil && w.vector == nil && !w.source.Table && (d.rounds(w) || d.tier != kernels.Generic && !d.inPlace)
}

// rounds reports whether the device computes products with the weight rounded to Q8_0.
func (d *device) rounds(w *weight) bool {
	return d.round && !w.matrix.Integer() && w.matrix.In%rounded.Block == 0
}

// rounded is the format that floats are rounded to.
var rounded = func() *quant.Format {
	f, err := quant.Lookup("Q8_0")
	if err != nil {
		panic(err) // the format is one of the package's own
	}
	return f
}()

// packedFormat is the format of a weight's copy.
func (d *device) packedFormat(w *weight) *quant.Format {
	if d.rounds(w) {
		return rounded
	}
	return w.matrix.Format
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
	n, err := kernels.PackedSize(d.packedFormat(w), w.matrix.In, w.matrix.Out)
	if err != nil {
		return 0, misfit(w.source.Name, "%w", err)
	}
	return n, nil
}

// packInto makes the copies, the largest first: of what is packed, a weight has two copies only while it
// is its turn, so that memory holds the whole model once and a small weight besides.
func (d *device) packInto(ctx context.Context, free []byte, weights []backend.Weight, loaded []*weight, progress func(done, total int64)) error {
	var done, total int64
	order := make([]int, len(weights))
	for i := range weights {
		order[i] = i
		total += int64(len(weights[i].Data))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(weights[b].Data), len(weights[a].Data)) })
	for _, i := range order {
		w := loaded[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.packs(w) {
			n, err := d.packWeight(w, free)
			if err != nil {
				return err
			}
			free = free[wholeLines(n):]
		}
		if done += int64(len(weights[i].Data)); progress != nil {
			progress(done, total)
		}
	}
	return nil
}

// packWeight makes the copy of a weight at the beginning of free, and returns its size.
func (d *device) packWeight(w *weight, free []byte) (int, error) {
	m, format := w.matrix, d.packedFormat(w)
	packed, err := kernels.NewPacked(format, m.In, m.Out, free)
	if err != nil {
		return 0, misfit(w.source.Name, "%w", err)
	}
	t := &packTask{dst: packed.Data, format: format, w: m}
	if err := d.pool.run(t, packed.Blocks(), costMove*m.In*kernels.PackedRows); err != nil {
		return 0, err
	}
	if t.err != nil {
		return 0, misfit(w.source.Name, "%w", t.err)
	}
	w.packed = packed
	w.matrix = &kernels.Weight{Format: format, In: m.In, Out: m.Out} // its bytes are not needed any more
	w.source.Data = nil
	if w.source.Release != nil {
		w.source.Release()
	}
	return len(packed.Data), nil
}

// packTask packs row blocks of a weight. The first error stays.
type packTask struct {
	dst    []byte
	format *quant.Format
	w      *kernels.Weight

	once sync.Once
	err  error
}

func (t *packTask) run(s *kernels.Scratch, lo, hi int) {
	if t.format == t.w.Format {
		kernels.Pack(t.dst, t.w, lo, hi, s.Tier)
		return
	}
	if err := kernels.PackAs(t.dst, t.format, t.w, lo, hi, s); err != nil {
		t.once.Do(func() { t.err = err })
	}
}

// wholeLines rounds bytes up, so that what follows them begins with a line of the cache.
func wholeLines(n int) int {
	return (n + backend.Alignment - 1) / backend.Alignment * backend.Alignment
}
