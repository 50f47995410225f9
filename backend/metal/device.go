//go:build cgo && (darwin || metalemu)

package metal

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// device is an open Metal device. See the package comment.
type device struct {
	backend.RowOrder

	name   string
	closed bool
	gpu    *gpu
	memory memory
	queue  commands

	weights     map[string]*weight
	weightBytes int64

	ropes map[graph.RoPE]*ropeTable
	acts  quantised
	rows  rowTiles
	// Memory of operations, which grows to the largest need.
	scratch [numScratches]*block

	transfers []transfer // copies to other devices that are not waited for yet
	lastFence backend.Fence
}

// The uses of scratch memory. What is used at the same time has to be apart.
const (
	scratchQuants = iota
	scratchMeta
	scratchKeys
	scratchValues
	scratchGate
	scratchUp
	scratchPartials
	scratchTop
	numScratches
)

// transfer is a copy that happens when it is waited for: the bytes lie in memory that the host reads.
type transfer struct {
	fence    backend.Fence
	to       backend.Backend
	dst, src backend.Buffer
}

// ErrFence is the reason for which WaitCopy refuses a fence that it did not give.
var ErrFence = errors.New("metal: no such copy")

func available() error {
	g, err := findGPU()
	if err != nil {
		return err
	}
	g.release()
	return nil
}

func open(c backend.Config) (backend.Backend, error) { return openWith(c, kernelSource()) }

// openWith opens a device with kernels of the caller's.
func openWith(c backend.Config, source string) (backend.Backend, error) {
	if c.Instance != 0 {
		return nil, fmt.Errorf("metal: there is one, number 0, not number %d", c.Instance)
	}
	if c.Name == "" {
		c.Name = "metal"
	}
	g, err := findGPU()
	if err != nil {
		return nil, err
	}
	if err := g.compile(source); err != nil {
		g.release()
		return nil, err
	}
	d := &device{
		name: c.Name, gpu: g,
		weights: make(map[string]*weight),
		ropes:   make(map[graph.RoPE]*ropeTable),
	}
	d.memory.gpu = g
	d.queue.gpu = g
	d.queue.device = c.Name
	return d, nil
}

func (d *device) Name() string                        { return d.name }
func (d *device) Capabilities() *backend.Capabilities { return &capabilities }

// usable returns why the device takes no more calls, or nil.
func (d *device) usable() error {
	if d.closed {
		return backend.ErrClosed
	}
	return nil
}

func (d *device) Alloc(size int) (backend.Buffer, error) {
	if err := d.usable(); err != nil {
		return backend.Buffer{}, err
	}
	return d.memory.alloc(size, false)
}

// AllocFresh zeroes the memory from the host: nothing can be under way on memory that is new.
func (d *device) AllocFresh(size int) (backend.Buffer, error) {
	if err := d.usable(); err != nil {
		return backend.Buffer{}, err
	}
	b, err := d.memory.alloc(size, true)
	if err != nil {
		return backend.Buffer{}, err
	}
	r, err := d.memory.view(b)
	if err != nil {
		return backend.Buffer{}, err
	}
	clear(r.bytes())
	return b, nil
}

// Free gives memory back. It may serve another buffer while commands still use it: they come before all that the new
// owner has the device do, and the host is made to wait for them.
func (d *device) Free(b backend.Buffer) {
	if !d.closed {
		d.memory.release(b)
		d.discard()
	}
}

// discard lets go of memory that is kept no longer, once no command can be using it.
func (d *device) discard() {
	if len(d.memory.dropped) > 0 && d.queue.idle() {
		d.memory.discard()
	}
}

func (d *device) ReadHost(dst []byte, src backend.Buffer) error {
	if err := d.usable(); err != nil {
		return err
	}
	r, err := d.memory.window(src, len(dst))
	if err != nil {
		return err
	}
	if err := d.settle(r, false); err != nil {
		return err
	}
	copy(dst, r.bytes())
	return nil
}

func (d *device) WriteHost(dst backend.Buffer, src []byte) error {
	if err := d.usable(); err != nil {
		return err
	}
	r, err := d.memory.window(dst, len(src))
	if err != nil {
		return err
	}
	return d.hostWrite(r, func(b []byte) { copy(b, src) })
}

// settle waits for the commands that the host has to see done before it reads memory, or writes it.
func (d *device) settle(r region, write bool) error {
	if !d.queue.conflicts(r, write) {
		return nil
	}
	return d.wait()
}

// wait waits for all commands.
func (d *device) wait() error {
	err := d.queue.finish()
	if err != nil {
		d.acts.valid = false // what was to be computed is not there
	}
	d.discard()
	return err
}

// hostWrite has the host write memory.
func (d *device) hostWrite(r region, write func([]byte)) error {
	if err := d.settle(r, true); err != nil {
		return err
	}
	d.acts.forget(r)
	write(r.bytes())
	return nil
}

// CopyAcross has the commands begin. The bytes are read when the copy is waited for.
func (d *device) CopyAcross(dst backend.Backend, to, from backend.Buffer) (backend.Fence, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if to.Size != from.Size {
		return 0, fmt.Errorf("%w: copy of %d bytes into %d bytes of %s", ErrBuffer, from.Size, to.Size, dst.Name())
	}
	if _, err := d.memory.window(from, from.Size); err != nil {
		return 0, err
	}
	if err := d.queue.flush(); err != nil {
		return 0, err
	}
	d.lastFence++
	d.transfers = append(d.transfers, transfer{fence: d.lastFence, to: dst, dst: to, src: from})
	return d.lastFence, nil
}

func (d *device) WaitCopy(f backend.Fence) error {
	if err := d.usable(); err != nil {
		return err
	}
	for i, t := range d.transfers {
		if t.fence != f {
			continue
		}
		last := len(d.transfers) - 1
		d.transfers[i] = d.transfers[last]
		d.transfers[last] = transfer{}
		d.transfers = d.transfers[:last]
		r, err := d.memory.window(t.src, t.src.Size)
		if err != nil {
			return err
		}
		if err := d.settle(r, false); err != nil {
			return err
		}
		return t.to.WriteHost(t.dst, r.bytes())
	}
	return fmt.Errorf("%w: fence %d", ErrFence, f)
}

func (d *device) Synchronize() error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.wait()
}

func (d *device) PoolStats() backend.PoolStats {
	return backend.PoolStats{
		Buffers:     d.memory.buffers,
		BufferBytes: d.memory.used,
		FreeBytes:   d.memory.freeBytes,
		WeightBytes: d.weightBytes,
	}
}

// Close waits for the commands under way and lets go of all memory.
func (d *device) Close() error {
	if d.closed {
		return backend.ErrClosed
	}
	err := d.queue.finish()
	for _, w := range d.weights {
		w.drop()
	}
	for _, t := range d.ropes {
		t.table.release()
	}
	for _, b := range d.scratch {
		b.release()
	}
	d.rows.block.release()
	d.memory.close()
	d.gpu.release()
	*d = device{name: d.name, closed: true}
	return err
}

// scratchOf returns scratch memory of a use, for as long as the operation that asks is being encoded.
func (d *device) scratchOf(use, size int) (region, error) {
	b := d.scratch[use]
	if b == nil || b.size < size {
		grown, err := d.gpu.newBlock(max(size, 4096))
		if err != nil {
			return region{}, err
		}
		d.drop(b)
		d.scratch[use], b = grown, grown
	}
	return region{b, 0, size}, nil
}

// drop lets go of a block that commands may still use.
func (d *device) drop(b *block) {
	if b != nil {
		d.memory.dropped = append(d.memory.dropped, b)
		d.discard()
	}
}

// bytesOf is a value as it lies in memory.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// elementsOf is memory of the host as elements.
func elementsOf[T int32 | float32](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
