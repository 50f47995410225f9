package gguf

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"

	"github.com/minfer/minfer/internal/mmap"
)

// All ways of reading a tensor give the same bytes, in every way of opening.
func TestTensorData(t *testing.T) {
	b := smallModel(t)
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) {
			f, err := open(t, o, b)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for _, w := range f.Tensors() {
				want := b[w.Offset : w.Offset+w.Size]
				data, err := f.Data(w)
				if err != nil || !bytes.Equal(data, want) || cap(data) != len(data) {
					t.Errorf("%v: Data gives %v, %v", w, data, err)
				}
				dst := make([]byte, len(want)+3)
				if n, err := f.ReadTensor(w, dst); n != len(want) || err != nil || !bytes.Equal(dst[:n], want) {
					t.Errorf("%v: ReadTensor gives %d, %v", w, n, err)
				}
				if w.Size > 0 {
					if _, err := f.ReadTensor(w, dst[:w.Size-1]); !errors.Is(err, io.ErrShortBuffer) {
						t.Errorf("%v: short buffer: %v", w, err)
					}
				}
				r, err := f.Reader(w)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%v: Reader gives %v, %v", w, got, err)
				}
				f.Prefetch(w)
				f.Release(w)
				if again, err := f.Data(w); err != nil || !bytes.Equal(again, want) {
					t.Errorf("%v: after Release: %v, %v", w, again, err)
				}
			}
		})
	}
}

func TestTensorFacts(t *testing.T) {
	f := accepted(t, smallModel(t))
	cases := []struct {
		name     string
		elements uint64
		shape    [4]int
		row      uint64
		size     uint64
	}{
		{"matrix", 192, [4]int{64, 3, 1, 1}, 68, 204},
		{"vector", 5, [4]int{5, 1, 1, 1}, 20, 20},
		{"scalar", 1, [4]int{1, 1, 1, 1}, 8, 8},
		{"nothing", 0, [4]int{4, 0, 1, 1}, 8, 0},
		{"cube", 12, [4]int{2, 3, 1, 2}, 2, 12},
	}
	for i, c := range cases {
		w, ok := f.Tensor(c.name)
		if !ok || w.Elements() != c.elements || w.Shape() != c.shape || w.RowBytes() != c.row || w.Size != c.size {
			t.Errorf("%s is %+v: %d elements, shape %v, rows of %d bytes", c.name, w, w.Elements(), w.Shape(), w.RowBytes())
		}
		if f.Tensors()[i].Name != c.name {
			t.Errorf("tensor %d is %s", i, f.Tensors()[i].Name)
		}
	}
	if _, ok := f.Tensor("missing"); ok {
		t.Error("a missing tensor is found")
	}
	if _, err := f.Data(Tensor{Name: "missing"}); !errors.Is(err, ErrNoTensor) {
		t.Errorf("data of a missing tensor: %v", err)
	}
	if got := f.Tensors()[0].String(); got != "matrix Q8_0 [64 3]" {
		t.Errorf("described as %q", got)
	}
}

// A Tensor is a description, not a capability: one that was tampered with
// reaches no other bytes.
func TestForgedTensor(t *testing.T) {
	b := smallModel(t)
	f := accepted(t, b)
	real, _ := f.Tensor("vector")
	forged := real
	forged.Offset, forged.Size, forged.Part = 0, 1<<40, 7
	data, err := f.Data(forged)
	if err != nil || !bytes.Equal(data, b[real.Offset:real.Offset+real.Size]) {
		t.Errorf("forged tensor gives %d bytes, %v", len(data), err)
	}
}

func TestNoCopy(t *testing.T) {
	b := smallModel(t)
	f, err := NewBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	w, _ := f.Tensor("vector")
	data, err := f.Data(w)
	if err != nil || &data[0] != &b[w.Offset] {
		t.Errorf("Data copies: %v", err)
	}
	path := tempFile(t, b)
	mapped, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	if mapped.Mapped() != mmap.Supported {
		t.Errorf("mapped: %v", mapped.Mapped())
	}
	if n := testing.AllocsPerRun(10, func() { data, err = mapped.Data(w) }); mmap.Supported && n != 0 {
		t.Errorf("Data of a mapped file allocates %v times", n)
	}
	plain, err := Open(path, WithoutMmap())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if plain.Mapped() {
		t.Error("a file opened without mmap is mapped")
	}
}

func TestClose(t *testing.T) {
	for _, o := range openers {
		t.Run(o.name, func(t *testing.T) {
			f, err := open(t, o, smallModel(t))
			if err != nil {
				t.Fatal(err)
			}
			w, _ := f.Tensor("vector")
			r, err := f.Reader(w)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			_, stringErr := f.String("bytes")
			_, dataErr := f.Data(w)
			_, readErr := f.ReadTensor(w, make([]byte, 100))
			_, readerErr := r.ReadAt(make([]byte, 1), 0)
			for _, err := range []error{stringErr, dataErr, readErr, readerErr} {
				if !errors.Is(err, ErrClosed) {
					t.Errorf("error is %v", err)
				}
			}
			if _, ok := f.Value("bytes"); ok {
				t.Error("a closed file has values")
			}
			f.Prefetch(w)
			f.Release(w)
			if len(f.Keys()) == 0 || len(f.Tensors()) != 5 || f.Version() != 3 || !f.Has("bytes") {
				t.Error("what was parsed at open is gone after Close")
			}
		})
	}
}

// Accessors run beside each other and beside Close; whoever comes too late gets
// ErrClosed.
func TestConcurrentUse(t *testing.T) {
	path := tempFile(t, smallModel(t))
	for _, opts := range [][]Option{nil, {WithoutMmap()}} {
		f, err := Open(path, opts...)
		if err != nil {
			t.Fatal(err)
		}
		w, _ := f.Tensor("matrix")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				dst := make([]byte, w.Size)
				for range 200 {
					if s, err := f.Strings("strings"); err == nil && len(s) != 4 || err != nil && !errors.Is(err, ErrClosed) {
						t.Errorf("strings %v, %v", s, err)
					}
					if _, err := f.ReadTensor(w, dst); err != nil && !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() { f.Close() })
		wg.Wait()
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	for _, opts := range [][]Option{nil, {WithoutMmap()}} {
		if _, err := Open(filepath.Join(dir, "none.gguf"), opts...); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing file: %v", err)
		}
		if _, err := Open(dir, opts...); !errors.Is(err, mmap.ErrNotRegular) {
			t.Errorf("a directory: %v", err)
		}
	}
	path := tempFile(t, []byte("<!DOCTYPE html>"))
	_, err := Open(path)
	want := "gguf: " + path + `: header: begins with "<!DO", want "GGUF": not a GGUF file (at byte 0)`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
}

// A file that cannot be mapped is read, and says so.
func TestFallsBackToReading(t *testing.T) {
	const path = "/sys/kernel/uevent_seqnum" // regular, with a size, not mappable, shorter than it says
	if _, err := mmap.Open(path); !errors.Is(err, mmap.ErrCannotMap) {
		t.Skip("this system has no file that cannot be mapped")
	}
	_, mapped := Open(path)
	_, read := Open(path, WithoutMmap())
	if mapped == nil || read == nil || mapped.Error() != read.Error() || !errors.As(mapped, new(*FormatError)) {
		t.Errorf("mapped: %v\nread: %v", mapped, read)
	}
}

// brokenAt is a reader that fails for every read that touches byte at.
type brokenAt struct {
	r  io.ReaderAt
	at int64
}

var errBroken = errors.New("broken disk")

func (b brokenAt) ReadAt(p []byte, off int64) (int, error) {
	if off <= b.at && b.at < off+int64(len(p)) {
		return 0, errBroken
	}
	return b.r.ReadAt(p, off)
}

// Wherever reading fails, the reader's own error comes out.
func TestReadErrors(t *testing.T) {
	b := smallModel(t)
	good := accepted(t, b)
	dataStart := int64(good.Tensors()[0].Offset)
	for at := range int64(len(b)) {
		p := &part{r: brokenAt{bytes.NewReader(b), at}, size: int64(len(b)), window: 1}
		f, err := newSingle(p)
		if err != nil {
			if !errors.Is(err, errBroken) || !errors.As(err, new(*FormatError)) || at >= dataStart {
				t.Fatalf("byte %d: %v", at, err)
			}
			continue
		}
		failed := 0
		for _, w := range f.Tensors() {
			covers := int64(w.Offset) <= at && at < int64(w.Offset+w.Size)
			_, err := f.Data(w)
			r, _ := f.Reader(w)
			_, readErr := io.ReadAll(r)
			if errors.Is(err, errBroken) != covers || errors.Is(readErr, errBroken) != covers {
				t.Errorf("byte %d: %v: %v, %v", at, w, err, readErr)
			}
		}
		for _, key := range f.Keys() {
			if _, ok := f.Value(key); !ok {
				failed++
			}
		}
		if failed > 1 || at >= dataStart && failed != 0 {
			t.Errorf("byte %d: %d keys cannot be read", at, failed)
		}
	}
}

func TestReaderBounds(t *testing.T) {
	f := accepted(t, smallModel(t))
	r := partReader{f, 0}
	if n, err := r.ReadAt(make([]byte, 4), f.Size()-2); n != 2 || err != io.EOF {
		t.Errorf("across the end: %d, %v", n, err)
	}
	for _, off := range []int64{-1, f.Size() + 1} {
		if n, err := r.ReadAt(make([]byte, 4), off); n != 0 || err != io.EOF {
			t.Errorf("at %d: %d, %v", off, n, err)
		}
	}
}
