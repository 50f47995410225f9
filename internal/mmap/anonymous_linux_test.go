package mmap

import (
	"testing"
	"unsafe"
)

// TestCollapse: memory that has been touched keeps what is in it.
func TestCollapse(t *testing.T) {
	b := make([]byte, 3*HugePage)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	collapse(uintptr(unsafe.Pointer(&b[0]))&^(HugePage-1)+HugePage, 2*HugePage)
	for i := range b {
		if b[i] != byte(i^i>>8) {
			t.Fatalf("byte %d has changed", i)
		}
	}
}
