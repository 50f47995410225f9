package mmap

import (
	"fmt"
	"unsafe"
)

// Anonymous returns a mapping of size zeroed bytes that belong to no file and may be
// written. Where the system has huge pages it is asked for them: a matrix that is read
// from end to end for every token then costs a fraction of the address translations.
// On platforms without mappings it is ordinary memory.
func Anonymous(size int) (*Mapping, error) {
	if size < 0 {
		return nil, fmt.Errorf("mmap: %d anonymous bytes", size)
	}
	if size == 0 {
		return &Mapping{}, nil
	}
	data, unmap, err := mapAnonymous(size)
	if err != nil {
		return nil, fmt.Errorf("mmap: %d anonymous bytes: %w", size, err)
	}
	return &Mapping{data: data, unmap: unmap}, nil
}

// WantHuge asks for huge pages under ordinary memory that is going to be read and written
// throughout, such as large activations. It is a wish, and nothing where the system has none. Where
// b begins or ends within a huge page, what else lies in that page gets it too: memory that is
// allocated piece by piece would otherwise have them under half of each piece.
func WantHuge(b []byte) {
	const huge = 2 << 20
	if len(b) >= huge {
		wantHuge(pagesAround(b, huge))
	}
}

// pagesAround returns the pages that b lies in. What is not b may not be read or written, nor may it be
// memory at all.
func pagesAround(b []byte, page int) []byte {
	p := unsafe.Pointer(unsafe.SliceData(b))
	before := int(uintptr(p) & uintptr(page-1))
	n := (before + len(b) + page - 1) &^ (page - 1)
	return unsafe.Slice((*byte)(unsafe.Add(p, -before)), n)
}
