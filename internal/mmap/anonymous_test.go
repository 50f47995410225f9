package mmap

import "testing"

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
