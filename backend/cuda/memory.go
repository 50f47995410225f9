//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"gorgonia.org/cu"
)

// Errors of memory. They are wrapped with what was asked for.
var (
	// ErrBuffer: a handle is not that of memory in use, or reaches beyond it.
	ErrBuffer = errors.New("cuda: bad buffer")
	// ErrSize: an allocation of no bytes, or of more than an address space holds.
	ErrSize = errors.New("cuda: bad size of allocation")
)

// A handle's ID is the index of its slot, counted from 1, in the low bits and how often the slot
// has been given away in the high ones.
const (
	slotBits = 20
	slotMask = 1<<slotBits - 1
	maxUses  = math.MaxInt >> slotBits
)

// block is memory of the device.
type block struct {
	ptr  uint64
	size int
}

type slot struct {
	block
	inUse bool
	uses  int
}

// memory hands out buffers. It calls the driver, so the context has to be the thread's.
type memory struct {
	slots []slot
	spare []int                  // slots that are free
	free  [bits.UintSize][]block // memory given back, by the power of two below its size
	flush func() error           // hands over queued work, before memory that it uses goes

	buffers               int
	used, peak, freeBytes int64
}

// newBlock returns memory from the driver.
func newBlock(size int) (block, error) {
	p, err := cu.MemAlloc(int64(size))
	if err != nil {
		return block{}, fmt.Errorf("cuda: %d bytes of memory: %w", size, err)
	}
	return block{uint64(p), size}, nil
}

// alloc returns size bytes, from the free list or, if fresh, never from there.
func (m *memory) alloc(size int, fresh bool) (b backend.Buffer, at block, err error) {
	if size <= 0 || size > math.MaxInt-2*granularity {
		return b, at, fmt.Errorf("%w: %d bytes", ErrSize, size)
	}
	rounded := roundUp(size, granularity)
	if !fresh {
		at = m.reuse(rounded)
	}
	if at.size == 0 {
		if at, err = newBlock(rounded); err != nil {
			return b, at, err
		}
	}
	i := len(m.slots)
	if n := len(m.spare); n > 0 {
		i = m.spare[n-1]
		m.spare = m.spare[:n-1]
	} else if i == slotMask {
		return b, at, fmt.Errorf("%w: %d buffers are in use already", ErrSize, slotMask)
	} else {
		m.slots = append(m.slots, slot{})
	}
	s := &m.slots[i]
	s.block, s.inUse, s.uses = at, true, s.uses%maxUses+1
	m.buffers++
	m.used += int64(at.size)
	m.peak = max(m.peak, m.used)
	return backend.Buffer{ID: s.uses<<slotBits | (i + 1), Size: size}, at, m.trim()
}

// granularity is what allocations are multiples of: what the driver aligns them to.
const granularity = 256

func roundUp(n, to int) int { return (n + to - 1) / to * to }

func class(size int) int { return bits.Len(uint(size)) - 1 }

// reuse takes the smallest piece of at least the size from the size's class.
func (m *memory) reuse(size int) block {
	list := m.free[class(size)]
	best := -1
	for i, b := range list {
		if b.size >= size && (best < 0 || b.size < list[best].size) {
			best = i
		}
	}
	if best < 0 {
		return block{}
	}
	return m.takeFree(class(size), best)
}

func (m *memory) takeFree(class, i int) block {
	list := m.free[class]
	b := list[i]
	m.freeBytes -= int64(b.size)
	list[i] = list[len(list)-1]
	m.free[class] = list[:len(list)-1]
	return b
}

// release gives a buffer back. A handle that alloc did not return is ignored.
func (m *memory) release(b backend.Buffer) error {
	s := m.find(b.ID)
	if s == nil || b.Offset != 0 {
		return nil
	}
	s.inUse = false
	m.spare = append(m.spare, b.ID&slotMask-1)
	m.buffers--
	m.used -= int64(s.size)
	m.free[class(s.size)] = append(m.free[class(s.size)], s.block)
	m.freeBytes += int64(s.size)
	return m.trim()
}

// trim lets go of free memory, the smallest pieces first, until what is in use and what is kept
// together are within the most that was ever in use.
func (m *memory) trim() error {
	for c := 0; c < len(m.free) && m.used+m.freeBytes > m.peak; {
		if len(m.free[c]) == 0 {
			c++
			continue
		}
		if err := m.flush(); err != nil {
			return err
		}
		if err := freeBlock(m.takeFree(c, 0)); err != nil {
			return err
		}
	}
	return nil
}

// freeBlock waits for work that uses the memory.
func freeBlock(b block) error {
	if b.size == 0 {
		return nil
	}
	if err := cu.MemFree(cu.DevicePtr(b.ptr)); err != nil {
		return fmt.Errorf("cuda: giving back %d bytes: %w", b.size, err)
	}
	return nil
}

// find returns the slot of a handle, or nil if it is none that is in use.
func (m *memory) find(id int) *slot {
	i := id&slotMask - 1
	if id <= 0 || i < 0 || i >= len(m.slots) {
		return nil
	}
	s := &m.slots[i]
	if !s.inUse || s.uses != id>>slotBits {
		return nil
	}
	return s
}

// view returns the address of the first n bytes of a buffer.
func (m *memory) view(b backend.Buffer, n int) (uint64, error) {
	s := m.find(b.ID)
	switch {
	case s == nil:
		return 0, fmt.Errorf("%w: id %d is not in use", ErrBuffer, b.ID)
	case b.Offset < 0 || b.Size < 0 || b.Offset > s.size || b.Size > s.size-b.Offset:
		return 0, fmt.Errorf("%w: bytes %d to %d+%d of an allocation of %d", ErrBuffer, b.Offset, b.Offset, b.Size, s.size)
	case n < 0 || n > b.Size:
		return 0, fmt.Errorf("%w: %d bytes of a buffer of %d", ErrBuffer, n, b.Size)
	}
	return s.ptr + uint64(b.Offset), nil
}

// elements returns the address of n elements of a size.
func (m *memory) elements(b backend.Buffer, n, size int) (uint64, error) {
	if n <= 0 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%w: %d elements", ErrBuffer, n)
	}
	if b.Offset%size != 0 {
		return 0, fmt.Errorf("%w: offset %d for elements of %d bytes", ErrBuffer, b.Offset, size)
	}
	return m.view(b, n*size)
}

// value is an operand's memory.
type value struct {
	ptr uint64
	n   int // elements
}

// operand returns the memory of a value of the given type, whose elements have 4 bytes.
func (m *memory) operand(o backend.Operand, t graph.DType) (value, error) {
	if o.Type != t {
		return value{}, fmt.Errorf("value is %v%v, want %v", o.Type, o.Shape, t)
	}
	n := 1
	for _, d := range o.Shape {
		if d <= 0 || d > math.MaxInt32/n {
			return value{}, fmt.Errorf("shape %v cannot be", o.Shape)
		}
		n *= d
	}
	p, err := m.elements(o.Buffer, n, 4)
	return value{p, n}, err
}

func (m *memory) floats(o backend.Operand) (value, error) { return m.operand(o, graph.F32) }
func (m *memory) ints(o backend.Operand) (value, error)   { return m.operand(o, graph.I32) }

// close gives everything back.
func (m *memory) close() error {
	var errs []error
	for _, s := range m.slots {
		if s.inUse {
			errs = append(errs, freeBlock(s.block))
		}
	}
	for _, list := range m.free {
		for _, b := range list {
			errs = append(errs, freeBlock(b))
		}
	}
	*m = memory{}
	return errors.Join(errs...)
}
