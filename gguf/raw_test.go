package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/exp/slices"
)

// raw builds files by hand, right ones and wrong ones, in the notation of the
// format's description.
type raw struct{ b []byte }

func header(version uint32, tensors, keys uint64) *raw {
	r := &raw{[]byte("GGUF")}
	return r.u32(version).u64(tensors).u64(keys)
}

func (r *raw) u8(v uint8) *raw   { r.b = append(r.b, v); return r }
func (r *raw) u32(v uint32) *raw { r.b = binary.LittleEndian.AppendUint32(r.b, v); return r }
func (r *raw) u64(v uint64) *raw { r.b = binary.LittleEndian.AppendUint64(r.b, v); return r }
func (r *raw) zeros(n int) *raw  { r.b = append(r.b, make([]byte, n)...); return r }
func (r *raw) str(s string) *raw { r.u64(uint64(len(s))); r.b = append(r.b, s...); return r }

// key starts a key/value pair.
func (r *raw) key(name string, kind uint32) *raw { return r.str(name).u32(kind) }

// tensor adds a description.
func (r *raw) tensor(name string, typ uint32, offset uint64, dims ...uint64) *raw {
	r.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		r.u64(d)
	}
	return r.u32(typ).u64(offset)
}

// pad fills up to a multiple of align.
func (r *raw) pad(align int) *raw { return r.zeros((align - len(r.b)%align) % align) }

// opener is a way to the parser. The file at path() has the bytes b.
type opener struct {
	name string
	open func(b []byte, path func() string) (*File, error)
}

// inMemory are the ways that need no file.
var inMemory = []opener{
	{"bytes", func(b []byte, _ func() string) (*File, error) { return NewBytes(b) }},
	{"reader", func(b []byte, _ func() string) (*File, error) {
		return NewReader(bytes.NewReader(b), int64(len(b)))
	}},
	{"reader with a window of 1", func(b []byte, _ func() string) (*File, error) {
		return newSingle(&part{r: bytes.NewReader(b), size: int64(len(b)), window: 1})
	}},
}

// openers are all the ways.
var openers = append(slices.Clip(inMemory),
	opener{"mapped", func(_ []byte, path func() string) (*File, error) { return Open(path()) }},
	opener{"plain reads", func(_ []byte, path func() string) (*File, error) { return Open(path(), WithoutMmap()) }},
)

// tempOf makes the file for an opener when it is first asked for.
func tempOf(t testing.TB, b []byte) func() string {
	return sync.OnceValue(func() string { return tempFile(t, b) })
}

func tempFile(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, o opener, b []byte) (*File, error) { return o.open(b, tempOf(t, b)) }

// text is an error without the path, which only some openers know.
func text(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var bad *FormatError
	if !errors.As(err, &bad) {
		t.Fatalf("error is not a *FormatError: %v", err)
	}
	plain := *bad
	plain.Path = ""
	return plain.Error()
}

// verdict opens b in every way, as version 3 and as version 2, and fails unless
// all of them agree to the letter. It returns what the first one said.
func verdict(t testing.TB, b []byte) (*File, error) {
	t.Helper()
	return verdictOf(t, b, openers)
}

func verdictOf(t testing.TB, b []byte, ways []opener) (*File, error) {
	t.Helper()
	first, firstErr := NewBytes(b)
	if (first == nil) == (firstErr == nil) {
		t.Fatalf("file %v and error %v", first, firstErr)
	}
	check := func(b []byte, as string) {
		path := tempOf(t, b)
		for _, o := range ways {
			f, err := o.open(b, path)
			if got, want := text(t, err), text(t, firstErr); got != want {
				t.Errorf("%s%s says %q, want %q", o.name, as, got, want)
			}
			if f != nil {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	check(b, "")
	if bytes.HasPrefix(b, header(3, 0, 0).b[:8]) {
		old := bytes.Clone(b)
		old[4] = 2
		check(old, " as version 2")
	}
	return first, firstErr
}

// refused asserts that every way of opening b fails with the sentinel, and
// returns the details.
func refused(t *testing.T, b []byte, want error) *FormatError {
	t.Helper()
	_, err := verdict(t, b)
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
	var bad *FormatError
	if !errors.As(err, &bad) {
		t.Fatalf("error is no *FormatError: %v", err)
	}
	if bad.Offset < 0 || bad.Offset > int64(len(b)) {
		t.Errorf("offset %d outside the file of %d bytes: %v", bad.Offset, len(b), err)
	}
	return bad
}

// accepted asserts that every way of opening b succeeds.
func accepted(t *testing.T, b []byte) *File {
	t.Helper()
	f, err := verdict(t, b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// allocated is how many bytes do allocates in all, freed or not.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
