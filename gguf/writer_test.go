package gguf

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
)

// The exact bytes of a small file, built by hand beside the writer.
func TestWriterBytes(t *testing.T) {
	w := NewWriter()
	w.SetUint32("a.b", 7)
	w.SetStrings("s", []string{"x", "yz"})
	if err := w.AddTensor("w", TypeF32, []uint64{2, 1}, []byte{1, 2, 3, 4, 5, 6, 7, 8}); err != nil {
		t.Fatal(err)
	}
	if err := w.AddTensorReader("v", TypeI8, []uint64{3}, strings.NewReader("abc")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n, err := w.WriteTo(&out)
	if err != nil || n != int64(out.Len()) {
		t.Fatalf("wrote %d of %d bytes, %v", n, out.Len(), err)
	}
	want := header(3, 2, 2).
		key("a.b", 4).u32(7).
		key("s", 9).u32(8).u64(2).str("x").str("yz").
		tensor("w", 0, 0, 2, 1).tensor("v", 24, 32, 3).pad(32)
	want.b = append(want.b, 1, 2, 3, 4, 5, 6, 7, 8)
	want.pad(32)
	want.b = append(want.b, "abc"...)
	want.pad(32)
	if !bytes.Equal(out.Bytes(), want.b) {
		t.Errorf("wrote\n%q\nwant\n%q", out.Bytes(), want.b)
	}
}

func TestWriterOptions(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		for _, align := range []uint32{8, 64, 4096} {
			var out bytes.Buffer
			if _, err := smallWriter(t, WithVersion(version), WithAlignment(align)).WriteTo(&out); err != nil {
				t.Fatal(err)
			}
			f := accepted(t, out.Bytes())
			if f.Version() != version || f.Alignment() != int(align) {
				t.Errorf("version %d, alignment %d", f.Version(), f.Alignment())
			}
			if v, err := f.Uint32(alignmentKey); v != align || err != nil {
				t.Errorf("alignment key %d, %v", v, err)
			}
			for _, w := range f.Tensors() {
				if w.Offset%uint64(align) != 0 {
					t.Errorf("%v at %d", w, w.Offset)
				}
			}
		}
	}
}

// A file read and written again is the same file.
func TestRewrite(t *testing.T) {
	b := smallModel(t)
	if again := rewrite(t, accepted(t, b)); !bytes.Equal(again, b) {
		t.Error("the rewritten file differs")
	}
}

// rewrite copies a file through a Writer; nil where the Writer is stricter than
// the reader.
func rewrite(t testing.TB, f *File) []byte {
	t.Helper()
	w := NewWriter(WithVersion(f.Version()))
	for _, key := range f.Keys() {
		v, ok := f.Value(key)
		if !ok {
			t.Fatalf("no value for %q", key)
		}
		w.Set(key, v)
	}
	for _, d := range f.Tensors() {
		data, err := f.Data(d)
		if err != nil {
			return nil
		}
		if err := w.AddTensor(d.Name, d.Type, d.Dims, data); err != nil {
			if len(d.Name) > maxWrittenName {
				return nil
			}
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestWriterRefuses(t *testing.T) {
	ok := []byte{1, 2, 3, 4}
	cases := []struct {
		name string
		do   func(w *Writer) error
		want error
	}{
		{"version", func(w *Writer) error { WithVersion(1)(w); return w.Err() }, ErrVersion},
		{"empty key", func(w *Writer) error { w.SetBool("", true); return w.Err() }, ErrName},
		{"long key", func(w *Writer) error { w.SetBool(strings.Repeat("k", MaxKeyLen+1), true); return w.Err() }, ErrTooLarge},
		{"key twice", func(w *Writer) error { w.SetBool("k", true); w.SetInt8("k", 1); return w.Err() }, ErrDuplicate},
		{"alignment 24", func(w *Writer) error { WithAlignment(24)(w); return w.Err() }, ErrAlignment},
		{"alignment of wrong kind", func(w *Writer) error { w.SetInt32(alignmentKey, 32); return w.Err() }, ErrAlignment},
		{"kind", func(w *Writer) error { w.Set("k", struct{}{}); return w.Err() }, ErrKind},
		{"int", func(w *Writer) error { w.Set("k", 1); return w.Err() }, ErrKind},
		{"nil", func(w *Writer) error { w.Set("k", nil); return w.Err() }, ErrKind},
		{"mixed array", func(w *Writer) error { w.Set("k", []any{uint8(1)}); return w.Err() }, ErrKind},
		{"deep array", func(w *Writer) error { w.Set("k", []any{[]any{[]any{[]any{[]bool{}}}}}); return w.Err() }, ErrNesting},
		{"empty name", func(w *Writer) error { return w.AddTensor("", TypeI8, []uint64{4}, ok) }, ErrName},
		{"long name", func(w *Writer) error { return w.AddTensor(strings.Repeat("t", 64), TypeI8, []uint64{4}, ok) }, ErrTooLarge},
		{"tensor twice", func(w *Writer) error {
			w.AddTensor("t", TypeI8, []uint64{4}, ok)
			return w.AddTensor("t", TypeI8, []uint64{4}, ok)
		}, ErrDuplicate},
		{"five dimensions", func(w *Writer) error { return w.AddTensor("t", TypeI8, []uint64{4, 1, 1, 1, 1}, ok) }, ErrShape},
		{"overflow", func(w *Writer) error { return w.AddTensor("t", TypeI8, []uint64{1 << 40, 1 << 40}, ok) }, ErrTooLarge},
		{"too little data", func(w *Writer) error { return w.AddTensor("t", TypeI8, []uint64{5}, ok) }, ErrShape},
		{"too much data", func(w *Writer) error { return w.AddTensor("t", TypeI8, []uint64{3}, ok) }, ErrShape},
		{"half a block", func(w *Writer) error { return w.AddTensor("t", TypeQ8_0, []uint64{16}, make([]byte, 17)) }, ErrShape},
		{"removed type", func(w *Writer) error { return w.AddTensor("t", TypeQ4_0_4_4, []uint64{32}, ok) }, ErrUnsupportedType},
		{"unknown type", func(w *Writer) error { return w.AddTensor("t", 1000, []uint64{32}, ok) }, ErrUnsupportedType},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := NewWriter()
			err := c.do(w)
			if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "gguf: ") {
				t.Errorf("error is %v, want %v", err, c.want)
			}
			var out bytes.Buffer
			if n, err := w.WriteTo(&out); n != 0 || !errors.Is(err, c.want) || out.Len() != 0 {
				t.Errorf("WriteTo wrote %d bytes, %v", n, err)
			}
			w.SetBool("later", true)
			if err := w.AddTensor("later", TypeI8, []uint64{4}, ok); !errors.Is(err, c.want) {
				t.Errorf("the error does not stick: %v", err)
			}
		})
	}
	if err := NewWriter().AddTensorReader("t", TypeI8, []uint64{1}, nil); err == nil {
		t.Error("a nil reader is taken")
	}
}

func TestWriterReaders(t *testing.T) {
	broken := errors.New("broken")
	cases := []struct {
		name string
		r    io.Reader
		want error
	}{
		{"exact", strings.NewReader("abcd"), nil},
		{"byte by byte", iotest.OneByteReader(strings.NewReader("abcd")), nil},
		{"EOF with the data", iotest.DataErrReader(strings.NewReader("abcd")), nil},
		{"short", strings.NewReader("abc"), io.ErrUnexpectedEOF},
		{"long", strings.NewReader("abcde"), ErrShape},
		{"failing", io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(broken)), broken},
		{"failing at the end", io.MultiReader(strings.NewReader("abcd"), iotest.ErrReader(broken)), broken},
	}
	for _, c := range cases {
		w := NewWriter()
		if err := w.AddTensorReader("t", TypeI8, []uint64{4}, c.r); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		n, err := w.WriteTo(&out)
		if !errors.Is(err, c.want) || n != int64(out.Len()) {
			t.Errorf("%s: %d of %d bytes, %v", c.name, n, out.Len(), err)
		}
		if err == nil {
			accepted(t, out.Bytes())
		}
	}
	w := smallWriter(t)
	if n, err := w.WriteTo(failingWriter{100}); !errors.Is(err, io.ErrShortWrite) || n < 0 || n > 1<<16 {
		t.Errorf("writer that fails: %d, %v", n, err)
	}
	// Sizes whose sum wraps are refused before anything is written.
	w = NewWriter()
	for _, name := range []string{"a", "b", "c"} {
		if err := w.AddTensorReader(name, TypeI64, []uint64{math.MaxInt32, 1 << 28}, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); !errors.Is(err, ErrTooLarge) || out.Len() != 0 {
		t.Errorf("sum of sizes: %d bytes written, %v", out.Len(), err)
	}
}

type failingWriter struct{ left int }

func (f failingWriter) Write(b []byte) (int, error) {
	if len(b) > f.left {
		return f.left, io.ErrShortWrite
	}
	return len(b), nil
}
