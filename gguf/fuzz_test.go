package gguf

import (
	"bytes"
	"testing"
)

// FuzzOpen holds the ways of opening against each other: error or file, never
// both, and the same one everywhere. What opens must be readable, and what can
// be written must come back.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(header(3, 0, 0).b)
	f.Add(smallModel(f))
	f.Add(header(2, 1, 0).tensor("w", 0, 0, 8).pad(32).zeros(32).b)
	f.Add(header(3, 1, 1).key(alignmentKey, 4).u32(64).tensor("w", 1000, 0, 1).pad(64).b)
	f.Add(header(3, 0, 1).key("a", 9).u32(9).u64(1).u32(9).u64(1).u32(7).u64(1).u8(1).b)
	f.Add(header(3, 0, 1).key("a", 8).u64(1 << 31).b)
	f.Add(header(3, 0, 2).key(splitNoKey, 2).u8(0).u8(0).key(splitCountKey, 2).u8(2).u8(0).b)
	f.Fuzz(func(t *testing.T, b []byte) {
		ways := inMemory
		if len(b)%8 == 0 { // files are slow
			ways = openers
		}
		file, err := verdictOf(t, b, ways)
		if err != nil {
			return
		}
		defer file.Close()
		readable(t, b, file)
		if again := rewrite(t, file); again != nil {
			sameFile(t, file, again)
		}
	})
}

// readable reads everything that an open file offers.
func readable(t *testing.T, b []byte, f *File) {
	t.Helper()
	for _, key := range f.Keys() {
		if _, ok := f.Value(key); !ok {
			t.Errorf("key %q has no value", key)
		}
	}
	for _, w := range f.Tensors() {
		data, err := f.Data(w)
		if (err == nil) != (f.CheckTensor(w) == nil) {
			t.Errorf("%v: Data says %v, CheckTensor says %v", w, err, f.CheckTensor(w))
		}
		if err == nil && !bytes.Equal(data, b[w.Offset:w.Offset+w.Size]) {
			t.Errorf("%v: wrong data", w)
		}
	}
}

// sameFile checks that a rewritten file is stable: once through the writer, the
// layout does not change any more.
func sameFile(t *testing.T, f *File, again []byte) {
	t.Helper()
	g, err := NewBytes(again)
	if err != nil {
		t.Fatalf("the rewritten file does not open: %v", err)
	}
	if len(g.Keys()) != len(f.Keys()) || len(g.Tensors()) != len(f.Tensors()) {
		t.Errorf("%d keys and %d tensors became %d and %d", len(f.Keys()), len(f.Tensors()), len(g.Keys()), len(g.Tensors()))
	}
	for _, w := range f.Tensors() {
		x, _ := f.Data(w)
		y, err := g.Data(w)
		if err != nil || !bytes.Equal(x, y) {
			t.Errorf("%v: data differs, %v", w, err)
		}
	}
	if third := rewrite(t, g); !bytes.Equal(third, again) {
		t.Error("rewriting twice gives another file")
	}
}
