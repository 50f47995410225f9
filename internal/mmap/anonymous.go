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
// throughout, such as large activations. It is a wish, and nothing where the system has none.
func WantHuge(b []byte) {
	const huge = 2 << 20
	if len(b) < 2*huge {
		return // too small to hold whole huge pages for sure
	}
	lo, hi := wholePages(b, huge)
	if lo < hi {
		wantHuge(b[lo:hi])
	}
}

// wholePages returns the range of b that consists of whole pages of memory.
func wholePages(b []byte, page int) (lo, hi int) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	lo = int(-start & uintptr(page-1))
	hi = len(b) - int((start+uintptr(len(b)))&uintptr(page-1))
	return lo, hi
}
