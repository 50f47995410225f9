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

func TestWholePages(t *testing.T) {
	b := make([]byte, 1<<16)
	for _, cut := range []int{0, 1, 100, 4095} {
		part := b[cut : len(b)-cut]
		lo, hi := wholePages(part, 4096)
		start := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
		if (start+uintptr(lo))%4096 != 0 || (start+uintptr(hi))%4096 != 0 {
			t.Errorf("cut by %d: range [%d, %d) does not begin and end with pages", cut, lo, hi)
		}
		if lo < 0 || lo >= 4096 || hi > len(part) || len(part)-hi >= 4096 {
			t.Errorf("cut by %d: range [%d, %d) of %d bytes leaves whole pages out", cut, lo, hi, len(part))
		}
	}
	WantHuge(make([]byte, 8<<20))
	WantHuge(nil)
}
