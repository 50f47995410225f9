package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/mmap"
)

// packTask packs row blocks of a weight.
type packTask struct {
	dst []byte
	w   *kernels.Weight
}

func (t *packTask) run(_ *kernels.Scratch, lo, hi int) { kernels.Pack(t.dst, t.w, lo, hi) }

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
		if w != nil && w.packed != nil && w.source.Release != nil {
			w.source.Data, w.matrix.Data = nil, nil
			w.source.Release()
		}
	}
	return nil
}

// packs reports whether the device computes products with a copy of the weight.
func (d *device) packs(w *weight) bool {
	return w != nil && d.tier != kernels.Generic && w.vector == nil && !w.source.Table
}

// roomFor makes memory for the copies.
func (d *device) roomFor(loaded []*weight) (*mmap.Mapping, error) {
	total := 0
	for _, w := range loaded {
		if !d.packs(w) {
			continue
		}
		n, err := kernels.PackedSize(w.matrix.Format, w.matrix.In, w.matrix.Out)
		if err != nil {
			return nil, misfit(w.source.Name, "%w", err)
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

func (d *device) packInto(ctx context.Context, free []byte, weights []backend.Weight, loaded []*weight, progress func(done, total int64)) error {
	var done, total int64
	for i := range weights {
		total += int64(len(weights[i].Data))
	}
	for i, w := range loaded {
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.packs(w) {
			m := w.matrix
			packed, err := kernels.NewPacked(m.Format, m.In, m.Out, free)
			if err != nil {
				return misfit(w.source.Name, "%w", err)
			}
			d.work.pack = packTask{dst: packed.Data, w: m}
			if err := d.pool.run(&d.work.pack, w.blocks(), costMove*m.In*kernels.PackedRows); err != nil {
				return err
			}
			w.packed, free = packed, free[wholeLines(len(packed.Data)):]
		}
		if done += int64(len(weights[i].Data)); progress != nil {
			progress(done, total)
		}
	}
	d.work.pack = packTask{}
	return nil
}

// wholeLines rounds bytes up, so that what follows them begins with a line of the cache.
func wholeLines(n int) int {
	return (n + backend.Alignment - 1) / backend.Alignment * backend.Alignment
}
