// Package mmap maps a whole file into memory, read only.
//
// A model file is a few hundred megabytes to a few hundred gigabytes of which
// a run may need only a part. Mapping lets a model open in milliseconds, lets
// the operating system drop and re-read pages under memory pressure, and lets
// several processes share one copy.
//
// # Lifetime
//
// The slice that [Mapping.Bytes] returns is the mapping itself. It is valid
// until [Mapping.Close]; touching it afterwards faults, and Go cannot recover
// from that fault. Nothing in this package unmaps a file behind the caller's
// back: a Mapping that is dropped without Close stays mapped until the process
// ends, because a finalizer could not know who still holds the bytes.
//
// # Truncation
//
// A file that another process shortens while it is mapped makes the pages past
// the new end fault with SIGBUS (Unix); on Windows a mapped file cannot be
// shortened. Replace model files by renaming a new file over the old name,
// never by writing into them.
//
// # Platforms
//
// Linux, macOS and iOS, the BSDs, Solaris and illumos use mmap(2), Windows uses
// CreateFileMapping. Everywhere else (js/wasm, plan9, ...) [Supported] is false
// and Open reads the file into ordinary memory.
package mmap

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
)

// Errors of this package, for errors.Is.
var (
	// ErrNotRegular reports a directory, pipe, socket or device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrCannotMap reports a file that is there but cannot be mapped: it does not
	// fit the address space, or its file system knows no mappings. It can be read.
	ErrCannotMap = errors.New("file cannot be mapped")
	// ErrClosed reports the use of a Mapping after Close.
	ErrClosed = errors.New("mapping is closed")
)

// Advice tells the operating system how a range will be used. It never changes
// what the bytes are.
type Advice int

const (
	// Normal takes back any earlier advice.
	Normal Advice = iota
	// Sequential expects reads from front to back: read far ahead, drop behind.
	Sequential
	// Random expects scattered reads: do not read ahead.
	Random
	// WillNeed starts reading the range in now.
	WillNeed
	// DontNeed lets the range's pages go; the next access reads the file again.
	DontNeed
)

// Mapping is a file's contents as one byte slice. Bytes and Advise may be
// called by several goroutines at once; Close must come after the last use of
// the bytes.
type Mapping struct {
	mu     sync.Mutex
	data   []byte
	closed bool
	unmap  func([]byte) error
}

// Open maps the file at path. An empty file gives an empty mapping, although
// the operating systems refuse to map nothing. The file need not stay open and
// may be renamed or unlinked while it is mapped.
func Open(path string) (*Mapping, error) {
	// The check comes before opening: opening a pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("mmap: %s: %w", path, ErrNotRegular)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	defer f.Close()
	// The size that counts is that of the file now open, not of the name a moment ago.
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	if info.Size() == 0 {
		return &Mapping{}, nil
	}
	if info.Size() > math.MaxInt {
		return nil, fmt.Errorf("mmap: %s has %d bytes: %w", path, info.Size(), ErrCannotMap)
	}
	data, unmap, err := mapFile(f, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("mmap: %s: %w: %w", path, ErrCannotMap, err)
	}
	return &Mapping{data: data, unmap: unmap}, nil
}

// Bytes returns the mapped file. The slice must not be written to (the pages
// are read only and a write faults) nor used after Close. It is nil for an
// empty file and after Close.
func (m *Mapping) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data
}

// Close unmaps the file. It may be called more than once; later calls do nothing.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	data := m.data
	m.data = nil
	if data == nil || m.unmap == nil {
		return nil
	}
	if err := m.unmap(data); err != nil {
		return fmt.Errorf("mmap: unmap: %w", err)
	}
	return nil
}

// Advise passes advice on the n bytes from off. The range is cut to the file
// and to whole pages: outwards for advice that is only a preference, inwards
// for DontNeed, so that a neighbour's bytes are not dropped. Where the platform
// knows no such advice it does nothing.
func (m *Mapping) Advise(off, n int, advice Advice) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("mmap: advise: %w", ErrClosed)
	}
	lo, hi := pageRange(off, n, len(m.data), os.Getpagesize(), advice == DontNeed)
	if lo >= hi {
		return nil
	}
	if err := advise(m.data[lo:hi], advice); err != nil {
		return fmt.Errorf("mmap: advise: %w", err)
	}
	return nil
}

// pageRange cuts [off, off+n) to a file of size bytes and rounds it to pages,
// inwards or outwards. The last page of a file counts as whole.
func pageRange(off, n, size, page int, inwards bool) (lo, hi int) {
	if off < 0 || n <= 0 || off >= size {
		return 0, 0
	}
	lo, hi = off, size
	if n < size-off {
		hi = off + n
	}
	if inwards {
		if rest := lo % page; rest != 0 {
			if page-rest >= size-lo {
				return 0, 0
			}
			lo += page - rest
		}
		if hi != size {
			hi -= hi % page
		}
		return lo, hi
	}
	lo -= lo % page
	if rest := hi % page; rest != 0 {
		hi += min(page-rest, size-hi)
	}
	return lo, hi
}
