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

// HugePage is the size of a huge page.
const HugePage = 2 << 20

// Huge returns n zeroed bytes of ordinary memory that begins with a huge page, where the system has them. The last
// page belongs to them as a whole.
func Huge(n int) []byte {
	b := Aligned((n + HugePage - 1) / HugePage * HugePage)
	MakeHuge(b)
	return b[:n]
}

// Aligned returns n zeroed bytes of ordinary memory that begins where a huge page could, in pages of the system's choice.
func Aligned(n int) []byte {
	b := make([]byte, n+HugePage)
	at := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % HugePage
	return b[at:][:n]
}

// MakeHuge is WantHuge for memory of any size that may have been touched before, and makes huge pages of it at once. What
// was touched stays as it is.
func MakeHuge(b []byte) {
	if len(b) > 0 {
		start, size := pagesAround(b, HugePage)
		wantHuge(start, size)
		collapse(start, size)
	}
}

// WantHuge asks for huge pages under ordinary memory that is going to be read and written
// throughout, such as large activations. It is a wish, and nothing where the system has none. Where
// b begins or ends within a huge page, what else lies in that page gets it too: memory that is
// allocated piece by piece would otherwise have them under half of each piece.
func WantHuge(b []byte) {
	if len(b) >= HugePage {
		wantHuge(pagesAround(b, HugePage))
	}
}

// pagesAround returns where the pages begin that b lies in, and their size in bytes. These are numbers
// and no memory: what is not b may not be read or written, nor may it be memory at all.
func pagesAround(b []byte, page uintptr) (start, size uintptr) {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	start = first &^ (page - 1)
	return start, (first + uintptr(len(b)) - start + page - 1) &^ (page - 1)
}
