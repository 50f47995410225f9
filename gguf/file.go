package gguf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/minfer/minfer/internal/mmap"
	"golang.org/x/exp/slices"
)

// File is an open model: one file, or all parts of a split model. Its methods
// may be called by several goroutines at once. The metadata is that of the
// first part; the tensors are those of all parts.
type File struct {
	mu     sync.RWMutex // Close against readers of the bytes
	closed bool

	parts   []*part
	tensors []Tensor
	byName  []int32 // indices of tensors, sorted by name
	mapped  bool
}

// Option changes how Open opens a file.
type Option func(*config)

type config struct{ plainReads bool }

// WithoutMmap makes [Open] read from the file instead of mapping it. Data then
// returns fresh memory each time. Use it where the file may be truncated or
// overwritten while it is open, or lies on a file system that cannot map.
func WithoutMmap() Option { return func(c *config) { c.plainReads = true } }

func configOf(opts []Option) config {
	var c config
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return c
}

// Open opens the model at path, memory-mapped where the platform and the file
// system can; otherwise the file stays open and is read, and [File.Mapped] says
// so. If path is the first part of a split model, named
// NAME-00001-of-0000N.gguf, the other parts are opened beside it. The error is
// a *FormatError for a bad file and wraps the system's error otherwise.
func Open(path string, opts ...Option) (*File, error) {
	f := &File{}
	if err := mmap.Guard(func() error { return f.openParts(path, configOf(opts)) }); err != nil {
		_ = f.Close() // of a file that was only read; err is what matters
		if errors.Is(err, ErrFault) {
			err = fmt.Errorf("gguf: %s: %w", path, err)
		}
		return nil, err
	}
	return f, nil
}

// NewReader opens a model of size bytes that is read through r, which must
// stay readable and unchanged until Close. Close does not close r. Split models
// have to be opened by path.
func NewReader(r io.ReaderAt, size int64) (*File, error) {
	if r == nil || size < 0 {
		return nil, fmt.Errorf("gguf: NewReader needs a reader and a size of at least 0, have size %d", size)
	}
	return newSingle(&part{r: r, size: size, window: readAhead})
}

// NewBytes opens a model that lies in memory, without copying it: b must not
// change until Close. Split models have to be opened by path.
func NewBytes(b []byte) (*File, error) {
	return newSingle(&part{mem: b, size: int64(len(b))})
}

// newSingle opens a file that has no path, and so no other parts beside it.
func newSingle(p *part) (*File, error) {
	f := &File{parts: []*part{p}}
	if err := p.parse(); err != nil {
		return nil, err
	}
	s, err := p.split()
	if err != nil {
		return nil, err
	}
	if s.count > 1 {
		return nil, p.fault(s.at, theSplit, "%w", s.needsName())
	}
	if err := f.index(); err != nil {
		return nil, err
	}
	return f, nil
}

// openPart opens, parses and adds one file, which Close then releases.
func (f *File) openPart(path string, cfg config) (*part, error) {
	p := &part{path: path, index: len(f.parts), window: readAhead}
	if err := p.attach(cfg); err != nil {
		return nil, err
	}
	f.parts = append(f.parts, p)
	return p, p.parse()
}

// attach maps or opens the file of p.
func (p *part) attach(cfg config) error {
	if mmap.Supported && !cfg.plainReads {
		m, err := mmap.Open(p.path)
		if err == nil {
			p.mem, p.close, p.mapping = m.Bytes(), m.Close, m
			p.size = int64(len(p.mem))
			return nil
		}
		if !errors.Is(err, mmap.ErrCannotMap) {
			return err
		}
	}
	info, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", p.path, mmap.ErrNotRegular)
	}
	file, err := os.Open(p.path)
	if err != nil {
		return err
	}
	if info, err = file.Stat(); err != nil {
		return errors.Join(err, file.Close())
	}
	p.r, p.close, p.size = file, file.Close, info.Size()
	return nil
}

// release unmaps or closes the file of p.
func (p *part) release() error {
	p.mem, p.r, p.mapping = nil, nil, nil
	if p.close == nil {
		return nil
	}
	err := p.close()
	p.close = nil
	return err
}

// index gathers the tensors of all parts under their names.
func (f *File) index() error {
	total := 0
	for _, p := range f.parts {
		total += len(p.tensors)
		f.mapped = f.mapped || p.mapping != nil
	}
	if len(f.parts) == 1 {
		f.tensors = f.parts[0].tensors
	} else {
		f.tensors = make([]Tensor, 0, total)
		for _, p := range f.parts {
			f.tensors = append(f.tensors, p.tensors...)
		}
	}
	var again, first int
	f.byName, first, again = sortedByName(total, f.tensorName)
	if again >= 0 {
		a, b := f.tensors[first], f.tensors[again]
		p := f.parts[b.Part]
		return p.fault(p.at[again-f.firstOf(b.Part)], tensorNamed(b.Name), "described before at byte %d of part %d: %w",
			f.parts[a.Part].at[first-f.firstOf(a.Part)], a.Part+1, ErrDuplicate)
	}
	for _, p := range f.parts {
		p.tensors, p.at = nil, nil // only needed until here
	}
	return nil
}

// firstOf is the index of the first tensor of a part among all tensors.
func (f *File) firstOf(part int) int {
	n := 0
	for _, p := range f.parts[:part] {
		n += len(p.tensors)
	}
	return n
}

func (f *File) tensorName(i int32) string { return f.tensors[i].Name }

// Close releases the file or mapping. It may be called more than once. Every
// slice that Data returned from a mapped file is invalid afterwards: touching it
// crashes the program. Keys, Tensors and everything copied out stay valid.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	var errs []error
	for _, p := range f.parts {
		errs = append(errs, p.release())
	}
	return errors.Join(errs...)
}

// Version is the format version, 2 or 3.
func (f *File) Version() uint32 { return f.parts[0].version }

// Mapped says whether Data returns slices of a memory mapping. For a split model
// it is enough that one part is mapped.
func (f *File) Mapped() bool { return f.mapped }

// Parts is the number of files: 1, or more for a split model.
func (f *File) Parts() int { return len(f.parts) }

// Size is the number of bytes of all parts.
func (f *File) Size() int64 {
	var n int64
	for _, p := range f.parts {
		n += p.size
	}
	return n
}

// Alignment is the alignment of tensor data in the first part.
func (f *File) Alignment() int { return int(min(f.parts[0].alignment, math.MaxInt)) }

// Tensors lists all tensors in file order, part after part.
func (f *File) Tensors() []Tensor { return slices.Clone(f.tensors) }

// Tensor finds a tensor by its name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := lookup(f.byName, name, f.tensorName)
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// CheckTensor says whether the tensor's data can be had. A tensor of an unknown
// or removed type (ErrUnsupportedType), or whose rows are not whole blocks
// (ErrShape), is listed so that the file can be inspected, but refused here. The
// error is a *TensorError.
func (f *File) CheckTensor(t Tensor) error {
	_, err := f.own(t)
	return err
}

// Check is CheckTensor for every tensor; it reports all that are refused.
func (f *File) Check() error {
	var errs []error
	for _, t := range f.tensors {
		if err := t.check(); err != nil {
			errs = append(errs, &TensorError{t.Name, t.Type, err})
		}
	}
	return errors.Join(errs...)
}

// own finds the file's own record of t, so that a Tensor that a caller made or
// changed cannot reach bytes outside the tensor.
func (f *File) own(t Tensor) (Tensor, error) {
	own, ok := f.Tensor(t.Name)
	if !ok {
		return Tensor{}, &TensorError{t.Name, t.Type, ErrNoTensor}
	}
	if err := own.check(); err != nil {
		return Tensor{}, &TensorError{own.Name, own.Type, err}
	}
	return own, nil
}

// Data returns the bytes of a tensor, found by its name. From a mapped file or
// NewBytes the slice is the file's memory: no copy is made, it must not be
// written to, and it is invalid after Close. Otherwise it is freshly read. The
// error is a *TensorError.
func (f *File) Data(t Tensor) ([]byte, error) {
	t, err := f.own(t)
	if err != nil {
		return nil, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return nil, &TensorError{t.Name, t.Type, ErrClosed}
	}
	p := f.parts[t.Part]
	if p.r == nil {
		end := t.Offset + t.Size
		return p.mem[t.Offset:end:end], nil
	}
	if t.Size > math.MaxInt {
		return nil, &TensorError{t.Name, t.Type, fmt.Errorf("%d bytes do not fit in memory: %w", t.Size, ErrTooLarge)}
	}
	dst := make([]byte, t.Size) // Open found this many bytes in the file
	if err := p.readAt(dst, int64(t.Offset)); err != nil {
		return nil, &TensorError{t.Name, t.Type, err}
	}
	return dst, nil
}

// ReadTensor copies a tensor's bytes, found by its name, into dst and returns
// their number, t.Size. A dst that is too short is left alone: io.ErrShortBuffer.
func (f *File) ReadTensor(t Tensor, dst []byte) (int, error) {
	t, err := f.own(t)
	if err != nil {
		return 0, err
	}
	if uint64(len(dst)) < t.Size {
		return 0, &TensorError{t.Name, t.Type, fmt.Errorf("%d bytes into %d: %w", t.Size, len(dst), io.ErrShortBuffer)}
	}
	dst = dst[:t.Size]
	if err := f.readAt(t.Part, dst, int64(t.Offset)); err != nil {
		return 0, &TensorError{t.Name, t.Type, err}
	}
	return len(dst), nil
}

// Reader returns a reader and io.ReaderAt over a tensor's bytes, found by its
// name. It gives ErrClosed after Close, also for a mapped file.
func (f *File) Reader(t Tensor) (*io.SectionReader, error) {
	t, err := f.own(t)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(partReader{f, t.Part}, int64(t.Offset), int64(t.Size)), nil
}

// partReader reads a part, guarded against Close.
type partReader struct {
	f    *File
	part int
}

// ReadAt follows io.ReaderAt.
func (r partReader) ReadAt(dst []byte, off int64) (int, error) {
	left := r.f.parts[r.part].size - off
	if off < 0 || left < 0 {
		return 0, io.EOF
	}
	var eof error
	if int64(len(dst)) > left {
		dst, eof = dst[:left], io.EOF
	}
	if err := r.f.readAt(r.part, dst, off); err != nil {
		return 0, fmt.Errorf("gguf: %w", err)
	}
	return len(dst), eof
}

// readAt copies bytes that are known to be inside the part.
func (f *File) readAt(part int, dst []byte, off int64) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return ErrClosed
	}
	return mmap.Guard(func() error { return f.parts[part].readAt(dst, off) })
}

// Prefetch asks the operating system to read a tensor's pages in now. It is a
// hint: files that are not mapped, and tensors that are not there, are ignored.
func (f *File) Prefetch(t Tensor) { f.advise(t, mmap.WillNeed) }

// Release tells the operating system that a tensor's pages are not needed soon,
// for instance because the weights were copied into another layout. The bytes
// stay readable; the next access reads the file again. It is a hint like Prefetch.
func (f *File) Release(t Tensor) { f.advise(t, mmap.DontNeed) }

// advise drops errors: advice that is not taken changes no result.
func (f *File) advise(t Tensor, advice mmap.Advice) {
	t, err := f.own(t)
	if err != nil {
		return
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if m := f.parts[t.Part].mapping; m != nil && !f.closed {
		_ = m.Advise(int(t.Offset), int(t.Size), advice)
	}
}
