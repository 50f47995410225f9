package alloc

import (
	"fmt"

	"github.com/minfer/minfer/backend"
	"golang.org/x/exp/maps"
	"golang.org/x/exp/slices"
)

// copyChunk bounds the host memory through which regions move when they grow.
const copyChunk = 1 << 20

// KVPair returns the regions of a layer, if it has any yet. The KV is the allocator's: its
// address stays, its buffers change when the regions grow.
func (a *Allocator) KVPair(layer int) (*backend.KV, bool) {
	r := a.regions[layer]
	if r == nil {
		return nil, false
	}
	return &r.kv, true
}

// KVDevice returns the name of the device that holds the regions of a layer.
func (a *Allocator) KVDevice(layer int) (string, bool) {
	r := a.regions[layer]
	if r == nil {
		return "", false
	}
	return r.device.backend.Name(), true
}

// ensureRegions makes the regions that are missing, and all of them large enough.
func (a *Allocator) ensureRegions(want []Region) error {
	cells := a.cells
	for _, w := range want {
		if r := a.regions[w.Layer]; r != nil {
			have := Region{w.Layer, r.device.backend.Name(), r.kv.Width, r.kv.Cells, r.kv.Type}
			if have.Device != w.Device || have.Width != w.Width || have.Type != w.Type {
				return fmt.Errorf("alloc: %v were asked for, but there are %v: %w", w, have, ErrRegion)
			}
		}
		rounded, err := wholeBlocks(w.Cells)
		if err != nil {
			return err
		}
		cells = max(cells, rounded)
	}
	if err := a.GrowKV(cells); err != nil {
		return err
	}
	for _, w := range want {
		if a.regions[w.Layer] != nil {
			continue
		}
		d := a.device(w.Device)
		kv, err := newPair(d.backend, backend.KV{Width: w.Width, Type: w.Type}, cells)
		if err != nil {
			return fmt.Errorf("alloc: %v: %w", w, err)
		}
		a.regions[w.Layer] = &region{device: d, kv: kv}
	}
	a.cells = max(a.cells, cells)
	return nil
}

// wholeBlocks rounds a number of cells up to whole blocks.
func wholeBlocks(cells int) (int, error) {
	const most = 1 << 30 // far beyond any context, and safe to round up on 32 bits
	if cells < 0 || cells > most {
		return 0, fmt.Errorf("alloc: %d cells, want 0 to %d: %w", cells, most, ErrRegion)
	}
	return (cells + backend.KVBlock - 1) / backend.KVBlock * backend.KVBlock, nil
}

// newPair makes zeroed regions like kv with another number of cells.
func newPair(d backend.Backend, kv backend.KV, cells int) (backend.KV, error) {
	kv.Cells = cells
	size, err := regionBytes(&kv, cells)
	if err != nil {
		return kv, err
	}
	if kv.K, err = d.AllocFresh(size); err != nil {
		return kv, err
	}
	if kv.V, err = d.AllocFresh(size); err != nil {
		d.Free(kv.K)
	}
	return kv, err
}

// regionBytes returns what a number of cells take in one of the two regions.
func regionBytes(kv *backend.KV, cells int) (int, error) {
	const maxInt = int(^uint(0) >> 1)
	row := kv.Type.Bytes(kv.Width)
	if row <= 0 || cells > maxInt/row {
		return 0, fmt.Errorf("%d cells of %d %v do not fit into an address space: %w", cells, kv.Width, kv.Type, ErrRegion)
	}
	return cells * row, nil
}

// BlockBytes returns what the backend.KVBlock cells of a block take in one of a layer's two
// regions.
func BlockBytes(kv *backend.KV) int { return backend.KVBlock * kv.Type.Bytes(kv.Width) }

// Cells returns the number of rows of every region: what was asked for so far, in whole blocks.
func (a *Allocator) Cells() int { return a.cells }

// GrowKV enlarges all regions to the given number of cells, rounded up to whole blocks, and
// keeps what they hold; cells beyond that are zero. Regions never shrink. When it fails, some
// regions may be larger than Cells says and all of them hold what they held; it can be
// called again.
func (a *Allocator) GrowKV(cells int) error {
	if a.closed {
		return ErrClosed
	}
	cells, err := wholeBlocks(cells)
	if err != nil {
		return err
	}
	layers := maps.Keys(a.regions)
	slices.Sort(layers) // so that errors name the same layer every time
	for _, layer := range layers {
		r := a.regions[layer]
		if r.kv.Cells >= cells {
			continue
		}
		if err := a.grow(r, cells); err != nil {
			return fmt.Errorf("alloc: layer %d cannot grow from %d to %d cells on %s: %w", layer, r.kv.Cells, cells, r.device.backend.Name(), err)
		}
	}
	a.cells = max(a.cells, cells)
	return nil
}

func (a *Allocator) grow(r *region, cells int) error {
	d := r.device.backend
	bigger, err := newPair(d, r.kv, cells)
	if err != nil {
		return err
	}
	err = a.move(d, bigger.K, r.kv.K)
	if err == nil {
		err = a.move(d, bigger.V, r.kv.V)
	}
	if err != nil {
		d.Free(bigger.K)
		d.Free(bigger.V)
		return err
	}
	a.generation++
	d.Free(r.kv.K)
	d.Free(r.kv.V)
	r.kv = bigger
	return nil
}

// move copies all of src to the front of dst.
func (a *Allocator) move(d backend.Backend, dst, src backend.Buffer) error {
	if a.chunk == nil {
		a.chunk = make([]byte, copyChunk)
	}
	for at := 0; at < src.Size; at += copyChunk {
		part := a.chunk[:min(copyChunk, src.Size-at)]
		if err := d.ReadHost(part, src.Slice(at, len(part))); err != nil {
			return err
		}
		if err := d.WriteHost(dst.Slice(at, len(part)), part); err != nil {
			return err
		}
	}
	return nil
}

// ReadKV copies cells of a layer's regions to k and v, in the device's own layout, which only
// the same kind of device can read: see backend.KVOrder. First and cells are multiples of backend.KVBlock, and k
// and v have BlockBytes for every block.
func (a *Allocator) ReadKV(layer, first, cells int, k, v []byte) error {
	return a.transfer(layer, first, cells, k, v, func(d backend.Backend, b backend.Buffer, host []byte) error {
		return d.ReadHost(host, b)
	})
}

// WriteKV copies k and v to cells of a layer's regions; it is the inverse of ReadKV.
func (a *Allocator) WriteKV(layer, first, cells int, k, v []byte) error {
	return a.transfer(layer, first, cells, k, v, func(d backend.Backend, b backend.Buffer, host []byte) error {
		return d.WriteHost(b, host)
	})
}

func (a *Allocator) transfer(layer, first, cells int, k, v []byte, do func(backend.Backend, backend.Buffer, []byte) error) error {
	if a.closed {
		return ErrClosed
	}
	r := a.regions[layer]
	if r == nil {
		return fmt.Errorf("alloc: layer %d has no regions: %w", layer, ErrRegion)
	}
	if first < 0 || cells < 0 || first%backend.KVBlock != 0 || cells%backend.KVBlock != 0 || first > r.kv.Cells || cells > r.kv.Cells-first {
		return fmt.Errorf("alloc: layer %d: cells %d to %d are not whole blocks of %d within %d cells: %w", layer, first, first+cells, backend.KVBlock, r.kv.Cells, ErrRegion)
	}
	row := r.kv.Type.Bytes(r.kv.Width)
	size := cells * row
	if len(k) != size || len(v) != size {
		return fmt.Errorf("alloc: layer %d: %d cells take %d bytes, given %d for keys and %d for values: %w", layer, cells, size, len(k), len(v), ErrRegion)
	}
	if err := do(r.device.backend, r.kv.K.Slice(first*row, size), k); err != nil {
		return fmt.Errorf("alloc: keys of layer %d: %w", layer, err)
	}
	if err := do(r.device.backend, r.kv.V.Slice(first*row, size), v); err != nil {
		return fmt.Errorf("alloc: values of layer %d: %w", layer, err)
	}
	return nil
}
