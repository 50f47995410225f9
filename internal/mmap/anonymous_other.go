//go:build !linux

package mmap

// mapAnonymous takes memory from the heap: large allocations begin at pages of their
// own, and these systems give huge pages without being asked, or not at all.
func mapAnonymous(size int) ([]byte, func([]byte) error, error) {
	return make([]byte, size), func([]byte) error { return nil }, nil
}

func wantHuge(start, size uintptr) {}

func collapse(start, size uintptr) {}
