//go:build cgo && (darwin || metalemu)

package metal

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// Errors of memory. They are wrapped with what was asked for.
var (
	// ErrBuffer: a handle is not that of memory in use, or reaches beyond it.
	ErrBuffer = errors.New("metal: bad buffer")
	// ErrSize: an allocation of no bytes, or of more than the device can have in one piece.
	ErrSize = errors.New("metal: bad size of allocation")
)

// region is a stretch of a block. What is bound to a kernel, and what commands are known to read and write, are regions.
type region struct {
	block      *block
	from, size int
}

// bytes is the region as the host sees it.
func (r region) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(r.block.contents, r.from)), r.size)
}

// slice returns size bytes of the region, from byte from on.
func (r region) slice(from, size int) region { return region{r.block, r.from + from, size} }

func (r region) overlaps(o region) bool {
	return r.block == o.block && r.from < o.from+o.size && o.from < r.from+r.size
}

// A handle's ID is the index of its slot, counted from 1, in the low bits and how often the slot has been given away in the high ones.
const (
	slotBits = 20
	slotMask = 1<<slotBits - 1
	maxUses  = math.MaxInt >> slotBits
)

type slot struct {
	block *block // nil while the slot is free
	uses  int
}

// memory hands out buffers. Freed blocks are kept for reuse, up to the most that was ever in use.
type memory struct {
	gpu     *gpu
	slots   []slot
	spare   []int                   // slots that are free
	free    [bits.UintSize][]*block // by the power of two below the size
	dropped []*block                // to be let go of when no command can be using them

	buffers               int
	used, peak, freeBytes int64
}

func (m *memory) alloc(size int, fresh bool) (backend.Buffer, error) {
	if size <= 0 || size > m.gpu.maxBuffer-backend.Alignment {
		return backend.Buffer{}, fmt.Errorf("%w: %d bytes, want 1 to %d", ErrSize, size, m.gpu.maxBuffer-backend.Alignment)
	}
	rounded := (size + backend.Alignment - 1) &^ (backend.Alignment - 1)
	var b *block
	if !fresh {
		b = m.reuse(rounded)
	}
	if b == nil {
		var err error
		if b, err = m.gpu.newBlock(rounded); err != nil {
			return backend.Buffer{}, err
		}
	}
	i, err := m.slot()
	if err != nil {
		b.release()
		return backend.Buffer{}, err
	}
	s := &m.slots[i]
	s.block = b
	s.uses = s.uses%maxUses + 1
	m.buffers++
	m.used += int64(b.size)
	m.peak = max(m.peak, m.used)
	m.trim()
	return backend.Buffer{ID: s.uses<<slotBits | (i + 1), Size: size}, nil
}

func (m *memory) slot() (int, error) {
	if n := len(m.spare); n > 0 {
		i := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return i, nil
	}
	if len(m.slots) == slotMask {
		return 0, fmt.Errorf("%w: %d buffers are in use already", ErrSize, slotMask)
	}
	m.slots = append(m.slots, slot{})
	return len(m.slots) - 1, nil
}

func class(size int) int { return bits.Len(uint(size)) - 1 }

// reuse takes the smallest block of at least the size from the size's class.
func (m *memory) reuse(size int) *block {
	list := m.free[class(size)]
	best := -1
	for i, b := range list {
		if b.size >= size && (best < 0 || b.size < list[best].size) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return m.take(class(size), best)
}

// take removes a block from the free list of a class.
func (m *memory) take(class, i int) *block {
	list := m.free[class]
	b := list[i]
	m.freeBytes -= int64(b.size)
	list[i] = list[len(list)-1]
	list[len(list)-1] = nil
	m.free[class] = list[:len(list)-1]
	return b
}

// release gives a buffer back. A handle that alloc did not return is ignored.
func (m *memory) release(b backend.Buffer) {
	s := m.find(b.ID)
	if s == nil || b.Offset != 0 {
		return
	}
	block := s.block
	s.block = nil
	m.spare = append(m.spare, b.ID&slotMask-1)
	m.buffers--
	m.used -= int64(block.size)
	c := class(block.size)
	m.free[c] = append(m.free[c], block)
	m.freeBytes += int64(block.size)
	m.trim()
}

// trim drops free blocks, the smallest first, until what is in use and what is kept together are within the most that was
// ever in use.
func (m *memory) trim() {
	for c := 0; c < len(m.free) && m.used+m.freeBytes > m.peak; {
		if len(m.free[c]) == 0 {
			c++
			continue
		}
		m.dropped = append(m.dropped, m.take(c, 0))
	}
}

// discard lets go of what was dropped.
func (m *memory) discard() {
	for i, b := range m.dropped {
		b.release()
		m.dropped[i] = nil
	}
	m.dropped = m.dropped[:0]
}

func (m *memory) close() {
	for i := range m.slots {
		m.slots[i].block.release()
	}
	for _, list := range m.free {
		for _, b := range list {
			b.release()
		}
	}
	m.discard()
}

func (m *memory) find(id int) *slot {
	i := id&slotMask - 1
	if id <= 0 || i < 0 || i >= len(m.slots) {
		return nil
	}
	s := &m.slots[i]
	if s.block == nil || s.uses != id>>slotBits {
		return nil
	}
	return s
}

// view returns the memory of a buffer.
func (m *memory) view(b backend.Buffer) (region, error) {
	s := m.find(b.ID)
	switch {
	case s == nil:
		return region{}, fmt.Errorf("%w: id %d is not in use", ErrBuffer, b.ID)
	case b.Offset < 0 || b.Size < 0 || b.Offset > s.block.size || b.Size > s.block.size-b.Offset:
		return region{}, fmt.Errorf("%w: bytes %d to %d+%d of an allocation of %d", ErrBuffer, b.Offset, b.Offset, b.Size, s.block.size)
	}
	return region{s.block, b.Offset, b.Size}, nil
}

// window is view for the first n bytes of a buffer.
func (m *memory) window(b backend.Buffer, n int) (region, error) {
	r, err := m.view(b)
	if err == nil && n > b.Size {
		err = fmt.Errorf("%w: %d bytes of a buffer of %d", ErrBuffer, n, b.Size)
	}
	return r.slice(0, n), err
}

// operand returns the memory of a value of four-byte elements.
func (m *memory) operand(o backend.Operand, t graph.DType) (region, error) {
	if o.Type != t {
		return region{}, fmt.Errorf("value is %v%v, want %v", o.Type, o.Shape, t)
	}
	n := 4
	for _, d := range o.Shape {
		if d <= 0 || d > maxIndex/n {
			return region{}, fmt.Errorf("shape %v cannot be", o.Shape)
		}
		n *= d
	}
	if o.Buffer.Offset%4 != 0 {
		return region{}, fmt.Errorf("%w: offset %d for elements of 4 bytes", ErrBuffer, o.Buffer.Offset)
	}
	return m.window(o.Buffer, n)
}
