package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/mmap"
)

// Errors of memory. They are wrapped with what was asked for.
var (
	// ErrBuffer: a handle is not that of memory in use, or reaches beyond it.
	ErrBuffer = errors.New("cpu: bad buffer")
	// ErrSize: an allocation of no bytes, or of more than the system gives.
	ErrSize = errors.New("cpu: bad size of allocation")
)

// A handle's ID is the index of its slot, counted from 1, in the low bits and how
// often the slot has been given away in the high ones.
const (
	slotBits = 20
	slotMask = 1<<slotBits - 1
	maxUses  = math.MaxInt >> slotBits
)

type slot struct {
	bytes []byte // nil while the slot is free
	uses  int
	huge  int // so many of its first bytes have been made huge pages
}

// memory hands out buffers.
type memory struct {
	makeHuge func([]byte) // mmap.MakeHuge, or what tests look at it with

	slots []slot
	spare []int                   // slots that are free
	shelf []byte                  // what is left of memory for sparse pieces smaller than a huge page
	free  [bits.UintSize][][]byte // memory given back, by the power of two below its size

	buffers               int
	used, peak, freeBytes int64
}

// alloc returns size bytes, from the free list or, if fresh, never from there.
func (m *memory) alloc(size int, fresh bool) (backend.Buffer, error) {
	if size <= 0 || size > math.MaxInt-2*backend.Alignment {
		return backend.Buffer{}, fmt.Errorf("%w: %d bytes", ErrSize, size)
	}
	rounded := (size + backend.Alignment - 1) &^ (backend.Alignment - 1)
	var b []byte
	if !fresh {
		b = m.reuse(rounded)
	}
	if b == nil {
		var err error
		if fresh && rounded >= hugeFrom && rounded < mmap.HugePage {
			b = m.sparse(rounded)
		} else if b, err = aligned(rounded, fresh); err != nil {
			return backend.Buffer{}, err
		}
	}
	i, err := m.slot()
	if err != nil {
		return backend.Buffer{}, err
	}
	s := &m.slots[i]
	s.bytes, s.huge = b, 0
	s.uses = s.uses%maxUses + 1
	m.buffers++
	m.used += int64(len(b))
	m.peak = max(m.peak, m.used)
	m.trim()
	return backend.Buffer{ID: s.uses<<slotBits | (i + 1), Size: size}, nil
}

// slot returns the index of a free slot.
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

// probeFrom is the size from which on the system is asked first: the runtime ends the program when
// it is refused memory.
const probeFrom = 1 << 30

// hugeFrom is the size from which on the values of a pass lie in huge pages. What passes write and read is far apart in time, so that
// the place of each ordinary page would have to be looked up in memory again.
const hugeFrom = 128 << 10

// aligned returns zeroed bytes that begin at a multiple of the alignment. A size that
// the runtime or the system refuses outright is an error; one that the machine cannot provide is
// found by nobody before it is used. Sparse memory is going to be used little by little.
func aligned(size int, sparse bool) (b []byte, err error) {
	if size >= probeFrom {
		probe, err := mmap.Anonymous(size)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSize, err)
		}
		if err := probe.Close(); err != nil {
			return nil, err
		}
	}
	defer func() {
		if v := recover(); v != nil {
			b, err = nil, fmt.Errorf("%w: %d bytes: %v", ErrSize, size, v)
		}
	}()
	if !sparse && size >= hugeFrom {
		return mmap.Huge(size), nil
	}
	b = make([]byte, size+backend.Alignment-1)
	mmap.WantHuge(b)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (backend.Alignment - 1)
	return b[skip : skip+size : skip+size], nil
}

// shelfSize is how much sparse pieces share.
const shelfSize = 4 * mmap.HugePage

// sparse returns zeroed bytes that follow those of the last call, so that huge pages can be made of pieces which are smaller
// (see inHugePages). They are not from the beginning, since they would make memory resident that may never be used.
func (m *memory) sparse(size int) []byte {
	if len(m.shelf) < size {
		m.shelf = mmap.Aligned(shelfSize)
	}
	b := m.shelf[:size:size]
	m.shelf = m.shelf[size:]
	return b
}

// fewBytes lie in so few ordinary pages that huge ones make no difference.
const fewBytes = 16 << 10

// inHugePages makes huge pages of the first n bytes of a buffer, and of what the last of them has of it beyond, if that
// has not been done yet.
func (m *memory) inHugePages(b backend.Buffer, n int) {
	s := m.find(b.ID)
	if s == nil || len(s.bytes) < fewBytes {
		return
	}
	if n = min(n, len(s.bytes)); n > s.huge {
		end := uintptr(unsafe.Pointer(unsafe.SliceData(s.bytes))) + uintptr(n)
		n = min(n+int(-end%mmap.HugePage), len(s.bytes)) // the buffer may begin within a page
		m.makeHuge(s.bytes[s.huge:n])
		s.huge = n
	}
}

func class(size int) int { return bits.Len(uint(size)) - 1 }

// reuse takes the smallest piece of at least the size from the size's class.
func (m *memory) reuse(size int) []byte {
	list := m.free[class(size)]
	best := -1
	for i, b := range list {
		if len(b) >= size && (best < 0 || len(b) < len(list[best])) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	b := list[best]
	m.dropFree(class(size), best)
	return b
}

func (m *memory) dropFree(class, i int) {
	list := m.free[class]
	m.freeBytes -= int64(len(list[i]))
	list[i] = list[len(list)-1]
	list[len(list)-1] = nil
	m.free[class] = list[:len(list)-1]
}

// release gives a buffer back. A handle that alloc did not return is ignored.
func (m *memory) release(b backend.Buffer) {
	s := m.find(b.ID)
	if s == nil || b.Offset != 0 {
		return
	}
	bytes := s.bytes
	s.bytes = nil
	m.spare = append(m.spare, b.ID&slotMask-1)
	m.buffers--
	m.used -= int64(len(bytes))
	c := class(len(bytes))
	m.free[c] = append(m.free[c], bytes)
	m.freeBytes += int64(len(bytes))
	m.trim()
}

// trim lets go of free memory, the smallest pieces first, until what is in use and what
// is kept together are within the most that was ever in use.
func (m *memory) trim() {
	for c := 0; c < len(m.free) && m.used+m.freeBytes > m.peak; {
		if len(m.free[c]) == 0 {
			c++
			continue
		}
		m.dropFree(c, 0)
	}
}

// find returns the slot of a handle, or nil if it is none that is in use.
func (m *memory) find(id int) *slot {
	i := id&slotMask - 1
	if id <= 0 || i < 0 || i >= len(m.slots) {
		return nil
	}
	s := &m.slots[i]
	if s.bytes == nil || s.uses != id>>slotBits {
		return nil
	}
	return s
}

// view returns the first n bytes of a buffer.
func (m *memory) view(b backend.Buffer, n int) ([]byte, error) {
	s := m.find(b.ID)
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: id %d is not in use", ErrBuffer, b.ID)
	case b.Offset < 0 || b.Size < 0 || b.Offset > len(s.bytes) || b.Size > len(s.bytes)-b.Offset:
		return nil, fmt.Errorf("%w: bytes %d to %d+%d of an allocation of %d", ErrBuffer, b.Offset, b.Offset, b.Size, len(s.bytes))
	case n < 0 || n > b.Size:
		return nil, fmt.Errorf("%w: %d bytes of a buffer of %d", ErrBuffer, n, b.Size)
	}
	return s.bytes[b.Offset : b.Offset+n : b.Offset+n], nil
}

// elements returns the first n elements of a buffer.
func elements[T float32 | int32 | uint32 | uint16](m *memory, b backend.Buffer, n int) ([]T, error) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if n <= 0 || n > math.MaxInt/size {
		return nil, fmt.Errorf("%w: %d elements", ErrBuffer, n)
	}
	if b.Offset%size != 0 {
		return nil, fmt.Errorf("%w: offset %d for elements of %d bytes", ErrBuffer, b.Offset, size)
	}
	bytes, err := m.view(b, n*size)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(bytes))), n), nil
}

// operand returns the elements of a value of the given type.
func operand[T float32 | int32 | uint32](m *memory, o backend.Operand, t graph.DType) ([]T, error) {
	if o.Type != t {
		return nil, fmt.Errorf("value is %v%v, want %v", o.Type, o.Shape, t)
	}
	n := 1
	for _, d := range o.Shape {
		if d <= 0 || d > math.MaxInt/8/n {
			return nil, fmt.Errorf("shape %v cannot be", o.Shape)
		}
		n *= d
	}
	return elements[T](m, o.Buffer, n)
}

func (m *memory) floats(o backend.Operand) ([]float32, error) {
	return operand[float32](m, o, graph.F32)
}

func (m *memory) ints(o backend.Operand) ([]int32, error) {
	return operand[int32](m, o, graph.I32)
}

// littleEndian reports whether numbers in memory are as the host sees them.
func littleEndian() bool {
	return binary.NativeEndian.Uint16([]byte{1, 0}) == 1
}
