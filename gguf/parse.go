package gguf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/minfer/minfer/internal/mmap"
	"golang.org/x/exp/slices"
)

// Limits on what a file may claim. They lie far above real models and keep the
// memory of opening a file below its size plus 16 MiB.
const (
	// MaxKeys is the most metadata keys of a file.
	MaxKeys = 1 << 16
	// MaxTensors is the most tensors of a model, all parts together.
	MaxTensors = 1 << 16
	// MaxDims is the most dimensions of a tensor.
	MaxDims = 4
	// MaxKeyLen is the most bytes of a metadata key.
	MaxKeyLen = 1<<16 - 1
	// MaxTensorNameLen is the most bytes of a tensor name.
	MaxTensorNameLen = 1 << 10
	// MaxArrayDepth is how deep arrays may nest: 1 is an array of plain values.
	MaxArrayDepth = 4
	// DefaultAlignment holds for files without general.alignment.
	DefaultAlignment = 32
)

const (
	magic        = "GGUF"
	alignmentKey = "general.alignment"
	readAhead    = 64 << 10

	minKeyBytes    = 8 + 1 + 4 + 1         // name, kind, value
	minTensorBytes = 8 + 1 + 4 + 0 + 4 + 8 // name, dimension count, no dimension, type, offset
)

// entry is where a metadata value lies. The value itself stays in the file
// until someone asks: a vocabulary of 150k strings costs nothing to open.
type entry struct {
	key   string
	at    int64 // of the key
	off   int64 // of the value; of an array, its first element; of a string, its first byte
	n     int64 // bytes from off
	count uint64
	kind  ValueKind
	elem  ValueKind // of an array
}

// part is one file of a model: its bytes, and what its header says.
type part struct {
	path  string
	index int
	size  int64
	mem   []byte      // the whole file, when it lies in memory or is mapped
	r     io.ReaderAt // otherwise
	close func() error

	window int64 // bytes that a cursor reads ahead through r

	mapping *mmap.Mapping // nil unless mapped

	version   uint32
	alignment int64
	dataStart int64
	entries   []entry
	byKey     []int32 // indices of entries, sorted by key
	tensors   []Tensor
	at        []int64 // of each tensor's description
}

// subject is what an error is about. It becomes text only when there is one:
// a file has many names and few errors.
type subject struct {
	noun string
	name string
	i, n uint64 // instead of a name that is not known yet: number i of n
}

var (
	theHeader = subject{noun: "header"}
	theSplit  = subject{noun: "split model"}
)

func keyNamed(key string) subject     { return subject{noun: "key", name: key} }
func tensorNamed(name string) subject { return subject{noun: "tensor", name: name} }

// String is the subject in words.
func (s subject) String() string {
	switch {
	case s.name != "":
		return fmt.Sprintf("%s %q", s.noun, clip(s.name))
	case s.n != 0:
		return fmt.Sprintf("%s %d of %d", s.noun, s.i, s.n)
	}
	return s.noun
}

// fault makes a FormatError at byte off.
func (p *part) fault(off int64, what subject, format string, args ...any) *FormatError {
	return &FormatError{Path: p.path, Part: p.index, Offset: off, What: what.String(), Size: p.size, Err: fmt.Errorf(format, args...)}
}

// truncated makes a FormatError for something that ends at byte need.
func (p *part) truncated(off int64, what subject, need uint64) *FormatError {
	err := p.fault(off, what, "needs %d bytes but the file has %d: %w", need, p.size, ErrTruncated)
	err.Need = need
	return err
}

// readAt fills dst from byte off; a short read is an error even where the
// source does not say so.
func (p *part) readAt(dst []byte, off int64) error {
	if p.r == nil {
		copy(dst, p.mem[off:off+int64(len(dst))])
		return nil
	}
	n, err := p.r.ReadAt(dst, off)
	if n == len(dst) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w after it was opened: %w", ErrTruncated, io.ErrUnexpectedEOF)
	}
	return err
}

// cursor walks a part from front to back. Over a mapped file its window is the
// whole file; over an io.ReaderAt it is a buffer that moves along. Everything
// else is shared, so both kinds of file get the same verdict.
type cursor struct {
	p      *part
	pos    int64
	window []byte
	start  int64 // where in the file the window begins
	what   subject
}

func (p *part) cursor() *cursor { return &cursor{p: p, window: p.mem, what: theHeader} }

func (c *cursor) left() int64 { return c.p.size - c.pos }

func (c *cursor) fault(format string, args ...any) error {
	return c.p.fault(c.pos, c.what, format, args...)
}

// take returns the next n bytes, valid until the next call.
func (c *cursor) take(n int) ([]byte, error) {
	if int64(n) > c.left() {
		return nil, c.p.truncated(c.pos, c.what, uint64(c.pos)+uint64(n))
	}
	lo := c.pos - c.start
	if lo < 0 || lo+int64(n) > int64(len(c.window)) {
		if err := c.refill(n); err != nil {
			return nil, err
		}
		lo = 0
	}
	c.pos += int64(n)
	return c.window[lo : lo+int64(n)], nil
}

// refill moves the window to the position; n bytes are known to be there.
func (c *cursor) refill(n int) error {
	size := int(min(max(c.p.window, int64(n)), c.left()))
	if cap(c.window) < size {
		c.window = make([]byte, size)
	}
	c.window, c.start = c.window[:size], c.pos
	if err := c.p.readAt(c.window, c.pos); err != nil {
		c.window = c.window[:0]
		return c.fault("read: %w", err)
	}
	return nil
}

func (c *cursor) u32() (uint32, error) {
	b, err := c.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (c *cursor) u64() (uint64, error) {
	b, err := c.take(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// name reads a key or tensor name of 1 to most bytes.
func (c *cursor) name(most uint64) (string, error) {
	at := c.pos
	n, err := c.u64()
	if err != nil {
		return "", err
	}
	switch {
	case n == 0:
		return "", c.p.fault(at, c.what, "empty name: %w", ErrName)
	case n > most:
		return "", c.p.fault(at, c.what, "name of %d bytes, at most %d are allowed: %w", n, most, ErrTooLarge)
	}
	b, err := c.take(int(n))
	if err != nil {
		return "", err
	}
	return string(b), nil
}

// skip passes over n bytes.
func (c *cursor) skip(n uint64) error {
	if n > uint64(c.left()) {
		need, carry := bits.Add64(uint64(c.pos), n, 0)
		if carry != 0 {
			need = math.MaxUint64
		}
		return c.p.truncated(c.pos, c.what, need)
	}
	c.pos += int64(n)
	return nil
}

// kind reads a value kind.
func (c *cursor) kind() (ValueKind, error) {
	at := c.pos
	k, err := c.u32()
	if err != nil {
		return 0, err
	}
	if !ValueKind(k).valid() {
		return 0, c.p.fault(at, c.what, "%w %d", ErrKind, k)
	}
	return ValueKind(k), nil
}

// array reads an array's element kind and count. The count is held against the
// bytes that are left, so that whoever uses it can trust it.
func (c *cursor) array(depth int) (ValueKind, uint64, error) {
	at := c.pos
	elem, err := c.kind()
	if err != nil {
		return 0, 0, err
	}
	count, err := c.u64()
	if err != nil {
		return 0, 0, err
	}
	if elem == KindArray && depth >= MaxArrayDepth {
		return 0, 0, c.p.fault(at, c.what, "more than %d levels: %w", MaxArrayDepth, ErrNesting)
	}
	if count > uint64(c.left()/elem.minSize()) {
		err := c.p.fault(at, c.what, "array of %d %s values cannot fit in the %d bytes left: %w", count, elem, c.left(), ErrTruncated)
		if hi, lo := bits.Mul64(count, uint64(elem.minSize())); hi == 0 && lo <= math.MaxUint64-uint64(c.pos) {
			err.Need = lo + uint64(c.pos)
		} else {
			err.Need = math.MaxUint64
		}
		return 0, 0, err
	}
	return elem, count, nil
}

// elements passes over an array's elements and checks them.
func (c *cursor) elements(elem ValueKind, count uint64, depth int) error {
	switch elem {
	case KindString:
		for range count {
			n, err := c.u64()
			if err != nil {
				return err
			}
			if err := c.skip(n); err != nil {
				return err
			}
		}
		return nil
	case KindArray:
		for range count {
			inner, n, err := c.array(depth + 1)
			if err != nil {
				return err
			}
			if err := c.elements(inner, n, depth+1); err != nil {
				return err
			}
		}
		return nil
	case KindBool:
		return c.bools(count)
	}
	return c.skip(count * uint64(kinds[elem].size)) // cannot wrap: the product fits the file
}

// bools checks that count bytes are 0 or 1.
func (c *cursor) bools(count uint64) error {
	for count > 0 {
		b, err := c.take(int(min(count, readAhead)))
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(b, func(v byte) bool { return v > 1 }); i >= 0 {
			return c.p.fault(c.pos-int64(len(b)-i), c.what, "bool is %d, want 0 or 1: %w", b[i], ErrValue)
		}
		count -= uint64(len(b))
	}
	return nil
}

// parse reads and checks everything before the tensor data, and that the
// tensor data is there.
func (p *part) parse() error {
	c := p.cursor()
	tensors, keys, err := p.header(c)
	if err != nil {
		return err
	}
	if err := p.metadata(c, keys); err != nil {
		return err
	}
	if err := p.setAlignment(); err != nil {
		return err
	}
	if err := p.descriptions(c, tensors); err != nil {
		return err
	}
	return p.place(c.pos)
}

// header reads the magic, the version and the two counts.
func (p *part) header(c *cursor) (tensors, keys uint64, err error) {
	head := make([]byte, min(int64(len(magic)), p.size))
	if err := p.readAt(head, 0); err != nil {
		return 0, 0, c.fault("read: %w", err)
	}
	if string(head) != magic[:len(head)] {
		return 0, 0, c.fault("begins with %q, want %q: %w", head, magic, ErrNotGGUF)
	}
	if err := c.skip(uint64(len(magic))); err != nil {
		return 0, 0, err
	}
	if p.version, err = c.u32(); err != nil {
		return 0, 0, err
	}
	if err := p.checkVersion(); err != nil {
		return 0, 0, err
	}
	if tensors, err = c.u64(); err != nil {
		return 0, 0, err
	}
	if keys, err = c.u64(); err != nil {
		return 0, 0, err
	}
	if err := c.count("tensors", tensors, MaxTensors, minTensorBytes, 8); err != nil {
		return 0, 0, err
	}
	return tensors, keys, c.count("keys", keys, MaxKeys, minKeyBytes, 16)
}

func (p *part) checkVersion() error {
	const at = int64(len(magic))
	swapped := bits.ReverseBytes32(p.version)
	switch {
	case p.version == 2 || p.version == 3:
		return nil
	case swapped >= 1 && swapped <= math.MaxUint8:
		return p.fault(at, theHeader, "version %d in big-endian byte order, only little-endian files are supported: %w", swapped, ErrByteOrder)
	}
	return p.fault(at, theHeader, "version %d not supported, want 2 or 3: %w", p.version, ErrVersion)
}

// count refuses a number of things that is over the limit or that cannot fit
// in the bytes left, before anything is made for them.
func (c *cursor) count(things string, n, most uint64, each, at int64) error {
	if n > most {
		return c.p.fault(at, c.what, "%d %s, at most %d are allowed: %w", n, things, most, ErrTooLarge)
	}
	if n > uint64(c.left()/each) {
		return c.p.truncated(at, subject{noun: fmt.Sprintf("header: %d %s", n, things)}, uint64(c.pos)+n*uint64(each))
	}
	return nil
}

// metadata reads where each key's value lies.
func (p *part) metadata(c *cursor, keys uint64) error {
	p.entries = make([]entry, 0, keys) // count held it against limit and file size
	for i := range keys {
		c.what = subject{noun: "key", i: i + 1, n: keys}
		e := entry{at: c.pos}
		var err error
		if e.key, err = c.name(MaxKeyLen); err != nil {
			return err
		}
		c.what = keyNamed(e.key)
		if err := c.value(&e); err != nil {
			return err
		}
		p.entries = append(p.entries, e)
	}
	var first, again int
	p.byKey, first, again = sortedByName(len(p.entries), func(i int32) string { return p.entries[i].key })
	if again >= 0 {
		e := p.entries[again]
		return p.fault(e.at, keyNamed(e.key), "occurs before at byte %d: %w", p.entries[first].at, ErrDuplicate)
	}
	return nil
}

// value reads a kind and passes over its value, noting the extent in e.
func (c *cursor) value(e *entry) (err error) {
	if e.kind, err = c.kind(); err != nil {
		return err
	}
	e.off = c.pos
	switch e.kind {
	case KindString:
		if e.count, err = c.u64(); err != nil {
			return err
		}
		e.off = c.pos
		err = c.skip(e.count)
	case KindArray:
		if e.elem, e.count, err = c.array(1); err != nil {
			return err
		}
		e.off = c.pos
		err = c.elements(e.elem, e.count, 1)
	default:
		err = c.elements(e.kind, 1, 1)
	}
	e.n = c.pos - e.off
	return err
}

// sortedByName sorts the indices 0..n-1 by name. If a name occurs twice it also
// gives the earliest repetition and what it repeats; otherwise again is -1.
// A sorted index takes a tenth of a map's memory.
func sortedByName(n int, name func(int32) string) (order []int32, first, again int) {
	order = make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(name(a), name(b)), cmp.Compare(a, b))
	})
	again = -1
	for i := 1; i < n; i++ {
		before, here := order[i-1], order[i]
		if name(before) == name(here) && (again < 0 || int(here) < again) {
			first, again = int(before), int(here)
		}
	}
	return order, first, again
}

// lookup finds a name in an index made by sortedByName.
func lookup(order []int32, want string, name func(int32) string) (int, bool) {
	at, ok := slices.BinarySearchFunc(order, want, func(i int32, want string) int {
		return cmp.Compare(name(i), want)
	})
	if !ok {
		return 0, false
	}
	return int(order[at]), true
}

func (p *part) find(key string) (*entry, bool) {
	i, ok := lookup(p.byKey, key, func(i int32) string { return p.entries[i].key })
	if !ok {
		return nil, false
	}
	return &p.entries[i], true
}

// setAlignment reads general.alignment. The format asks for a multiple of 8 and
// other readers for a power of two; a file has to please both.
func (p *part) setAlignment() error {
	p.alignment = DefaultAlignment
	e, ok := p.find(alignmentKey)
	if !ok {
		return nil
	}
	what := keyNamed(alignmentKey)
	if e.kind != KindUint32 {
		return p.fault(e.at, what, "is of kind %s, want uint32: %w", e.kind, ErrAlignment)
	}
	var b [4]byte
	if err := p.readAt(b[:], e.off); err != nil {
		return p.fault(e.off, what, "read: %w", err)
	}
	align := binary.LittleEndian.Uint32(b[:])
	if !validAlignment(align) {
		return p.fault(e.off, what, "is %d, want a power of two from 8: %w", align, ErrAlignment)
	}
	p.alignment = int64(align)
	return nil
}

func validAlignment(align uint32) bool { return align >= 8 && bits.OnesCount32(align) == 1 }

// descriptions reads the names, shapes, types and offsets of the tensors.
func (p *part) descriptions(c *cursor, count uint64) error {
	p.tensors = make([]Tensor, 0, count) // held against limit and file size by header
	p.at = make([]int64, 0, count)
	var dims []uint64 // one slab for the dimensions of many tensors
	for i := range count {
		at := c.pos
		c.what = subject{noun: "tensor", i: i + 1, n: count}
		name, err := c.name(MaxTensorNameLen)
		if err != nil {
			return err
		}
		c.what = tensorNamed(name)
		t := Tensor{Name: name, Part: p.index}
		if cap(dims)-len(dims) < MaxDims {
			dims = make([]uint64, 0, min(count-i, 1024)*MaxDims)
		}
		if dims, err = c.description(&t, dims); err != nil {
			return err
		}
		p.tensors, p.at = append(p.tensors, t), append(p.at, at)
	}
	return nil
}

// description reads one tensor after its name. Its dimensions go to the end of
// slab, which is returned.
func (c *cursor) description(t *Tensor, slab []uint64) ([]uint64, error) {
	at := c.pos
	n, err := c.u32()
	if err != nil {
		return nil, err
	}
	if n > MaxDims {
		return nil, c.p.fault(at, c.what, "%d dimensions, at most %d are allowed: %w", n, MaxDims, ErrShape)
	}
	from := len(slab)
	for range n {
		d, err := c.u64()
		if err != nil {
			return nil, err
		}
		slab = append(slab, d)
	}
	t.Dims = slab[from:len(slab):len(slab)]
	id, err := c.u32()
	if err != nil {
		return nil, err
	}
	t.Type = Type(id)
	if t.Offset, err = c.u64(); err != nil {
		return nil, err
	}
	if err := checkDims(t.Dims); err != nil {
		return nil, c.p.fault(at, c.what, "%w", err)
	}
	if t.check() != nil {
		return slab, nil // stays listed; CheckTensor and Data refuse it
	}
	if t.Size, err = sizeOf(t.Type, t.Dims); err != nil {
		return nil, c.p.fault(at, c.what, "%w", err)
	}
	return slab, nil
}

// place turns the tensors' offsets, which count from the data section, into
// offsets in the file, and checks that each lies inside the file, alone.
func (p *part) place(end int64) error {
	if len(p.tensors) == 0 {
		p.dataStart = end
		return nil
	}
	mask := p.alignment - 1
	p.dataStart = (end + mask) &^ mask // below 2^63: both are below 2^62
	for i := range p.tensors {
		if err := p.placeTensor(&p.tensors[i], p.at[i]); err != nil {
			return err
		}
	}
	return p.checkOverlap()
}

func (p *part) placeTensor(t *Tensor, at int64) error {
	if t.Offset%uint64(p.alignment) != 0 {
		return p.fault(at, tensorNamed(t.Name), "offset %d is not a multiple of %d: %w", t.Offset, p.alignment, ErrAlignment)
	}
	start, carry1 := bits.Add64(t.Offset, uint64(p.dataStart), 0)
	end, carry2 := bits.Add64(start, t.Size, 0)
	if carry1|carry2 != 0 {
		end = math.MaxUint64
	}
	if end > uint64(p.size) {
		return p.truncated(at, subject{noun: "data of tensor", name: t.Name}, end)
	}
	t.Offset = start
	return nil
}

// checkOverlap finds two tensors that share bytes. Tensors without a size (of a
// type that is not known) cannot be held to it.
func (p *part) checkOverlap() error {
	order := make([]int32, 0, len(p.tensors))
	sorted := true
	for i, t := range p.tensors {
		if t.Size == 0 {
			continue
		}
		if len(order) > 0 && p.tensors[order[len(order)-1]].Offset > t.Offset {
			sorted = false
		}
		order = append(order, int32(i))
	}
	if !sorted {
		slices.SortFunc(order, func(a, b int32) int {
			return cmp.Or(cmp.Compare(p.tensors[a].Offset, p.tensors[b].Offset), cmp.Compare(a, b))
		})
	}
	for i := 1; i < len(order); i++ {
		a, b := p.tensors[order[i-1]], p.tensors[order[i]]
		if a.Offset+a.Size > b.Offset {
			return p.fault(p.at[order[i]], tensorNamed(b.Name), "data at byte %d, but tensor %q ends at byte %d: %w",
				b.Offset, clip(a.Name), a.Offset+a.Size, ErrOverlap)
		}
	}
	return nil
}
