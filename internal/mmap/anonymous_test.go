package mmap

import (
	"testing"
	"unsafe"
)

func TestAnonymous(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 5 << 20} {
		m, err := Anonymous(size)
		if err != nil {
			t.Fatal(err)
		}
		b := m.Bytes()
		if len(b) != size {
			t.Fatalf("%d bytes, want %d", len(b), size)
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("byte %d of %d is %d, want 0", i, size, b[i])
			}
			b[i] = byte(i)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if m.Bytes() != nil {
			t.Error("bytes after Close")
		}
	}
	if _, err := Anonymous(-1); err == nil {
		t.Error("a negative size was granted")
	}
}

func TestPagesAround(t *testing.T) {
	b := make([]byte, 1<<16)
	for _, cut := range []int{0, 1, 100, 4095, 4096, 5000} {
		part := b[cut : len(b)-cut]
		first, size := pagesAround(part, 4096)
		start := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
		end, last := first+size, start+uintptr(len(part))
		if first%4096 != 0 || end%4096 != 0 {
			t.Errorf("cut by %d: %#x to %#x are not whole pages", cut, first, end)
		}
		if first > start || start-first >= 4096 || end < last || end-last >= 4096 {
			t.Errorf("cut by %d: pages %#x to %#x around %#x to %#x", cut, first, end, start, last)
		}
	}
	WantHuge(make([]byte, 8<<20))
	WantHuge(nil)
	MakeHuge(nil)
}

func TestHuge(t *testing.T) {
	for _, n := range []int{1, 128 << 10, HugePage, HugePage + 1} {
		b := Huge(n)
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); len(b) != n || at%HugePage != 0 {
			t.Errorf("%d bytes: %d at %#x", n, len(b), at)
		}
		for i, v := range b {
			if v != 0 {
				t.Fatalf("%d bytes: byte %d is %d", n, i, v)
			}
		}
	}
}
