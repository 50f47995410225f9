package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// splitPart is one part of a split model; it has a tensor for each name.
func splitPart(no, count uint16, total int32, tensors ...string) *Writer {
	w := NewWriter()
	if no == 0 {
		w.SetString("general.architecture", "test")
	}
	w.SetUint16(splitNoKey, no)
	w.SetUint16(splitCountKey, count)
	w.SetInt32(splitTensorsKey, total)
	for _, name := range tensors {
		w.AddTensor(name, TypeI8, []uint64{4}, []byte(name + "....")[:4])
	}
	return w
}

// writeParts writes the writers that are not nil as the parts of dir/model.
func writeParts(t *testing.T, parts ...*Writer) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, w := range parts {
		if w == nil {
			continue
		}
		var out bytes.Buffer
		if _, err := w.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "model"+partSuffix(uint64(i+1), uint64(len(parts))))
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSplitModel(t *testing.T) {
	dir := writeParts(t, splitPart(0, 3, 4, "a", "b"), splitPart(1, 3, 4), splitPart(2, 3, 4, "d", "c"))
	for _, opts := range [][]Option{nil, {WithoutMmap()}} {
		f, err := Open(filepath.Join(dir, "model-00001-of-00003.gguf"), opts...)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, w := range f.Tensors() {
			data, err := f.Data(w)
			names = append(names, fmt.Sprintf("%s %d %s", w.Name, w.Part, data))
			if err != nil {
				t.Error(err)
			}
		}
		if got := strings.Join(names, ", "); got != "a 0 a..., b 0 b..., d 2 d..., c 2 c..." {
			t.Errorf("tensors are %s", got)
		}
		if w, ok := f.Tensor("c"); !ok || w.Part != 2 {
			t.Errorf("c is in part %d, %v", w.Part, ok)
		}
		if n, err := f.Int(splitNoKey); n != 0 || err != nil || f.Parts() != 3 || !f.Has("general.architecture") {
			t.Errorf("metadata is that of part %d, %v; %d parts", n, err, f.Parts())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadSplits(t *testing.T) {
	other := func(set func(w *Writer)) *Writer { w := NewWriter(); set(w); return w }
	cases := []struct {
		name  string
		parts []*Writer
		open  int // the part that is opened, from 0
		want  error
		text  string
	}{
		{"missing part", []*Writer{splitPart(0, 3, 0), splitPart(1, 3, 0), nil}, 0, ErrSplit, "part 3 of 3, model-00003-of-00003.gguf"},
		{"not the first", []*Writer{splitPart(0, 2, 0), splitPart(1, 2, 0)}, 1, ErrSplit, "model-00001-of-00002.gguf"},
		{"swapped parts", []*Writer{splitPart(0, 3, 0), splitPart(2, 3, 0), splitPart(1, 3, 0)}, 0, ErrSplit, "should have split.no 1 and split.count 3 but has 2 and 3"},
		{"part of another split", []*Writer{splitPart(0, 2, 0), splitPart(1, 5, 0)}, 0, ErrSplit, "split.count 2 but has 1 and 5"},
		{"part without split keys", []*Writer{splitPart(0, 2, 0), NewWriter()}, 0, ErrSplit, "but has 0 and 0"},
		{"name and keys differ", []*Writer{splitPart(0, 2, 0), splitPart(1, 2, 0), splitPart(2, 2, 0)}, 0, ErrSplit, "NAME-00001-of-00002.gguf"},
		{"name without keys", []*Writer{NewWriter(), NewWriter()}, 0, ErrSplit, "named as part 1 of 2"},
		{"tensor count", []*Writer{splitPart(0, 2, 3, "a"), splitPart(1, 2, 3, "b")}, 0, ErrSplit, "is 3, but the 2 parts have 2 tensors"},
		{"negative tensor count", []*Writer{splitPart(0, 2, -1, "a"), splitPart(1, 2, 3, "b")}, 0, ErrSplit, "is -1"},
		{"tensor in two parts", []*Writer{splitPart(0, 2, 2, "a"), splitPart(1, 2, 2, "a")}, 0, ErrDuplicate, `tensor "a"`},
		{"count of wrong kind", []*Writer{other(func(w *Writer) { w.SetString(splitCountKey, "2") }), nil}, 0, ErrSplit, "is of kind string"},
		{"no number", []*Writer{other(func(w *Writer) { w.SetUint16(splitCountKey, 2) }), nil}, 0, ErrSplit, `key "split.no": missing`},
		{"number too high", []*Writer{splitPart(2, 2, 0), nil}, 0, ErrSplit, "there are only 2 parts"},
		{"absurd count", []*Writer{other(func(w *Writer) { w.SetUint64(splitCountKey, 1<<63) }), nil}, 0, ErrSplit, "at most 65535"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := writeParts(t, c.parts...)
			path := filepath.Join(dir, "model"+partSuffix(uint64(c.open+1), uint64(len(c.parts))))
			var said string
			for _, opts := range [][]Option{nil, {WithoutMmap()}} {
				f, err := Open(path, opts...)
				var bad *FormatError
				if f != nil || !errors.Is(err, c.want) || !errors.As(err, &bad) || !strings.Contains(err.Error(), c.text) {
					t.Fatalf("error is %v, want %v saying %q", err, c.want, c.text)
				}
				if c.name == "missing part" {
					if !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%v is not fs.ErrNotExist", err)
					}
				} else if said != "" && said != err.Error() {
					t.Errorf("mapped: %s\nread: %v", said, err)
				}
				said = err.Error()
			}
		})
	}
}

// A bad later part is reported under its own path and number.
func TestSplitWithTruncatedPart(t *testing.T) {
	dir := writeParts(t, splitPart(0, 2, 1), splitPart(1, 2, 1, "a"))
	second := filepath.Join(dir, "model-00002-of-00002.gguf")
	b, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(second, b[:len(b)-32], 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(filepath.Join(dir, "model-00001-of-00002.gguf"))
	var bad *FormatError
	if !errors.Is(err, ErrTruncated) || !errors.As(err, &bad) || bad.Part != 1 || bad.Path != second {
		t.Errorf("error is %v", err)
	}
}

// A part in memory, or under a name that does not lead to the others, is refused
// with the same words in all ways of opening.
func TestSplitPartAlone(t *testing.T) {
	for no := range uint16(2) {
		var out bytes.Buffer
		if _, err := splitPart(no, 2, 0).WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		bad := refused(t, out.Bytes(), ErrSplit)
		if !strings.Contains(bad.Error(), fmt.Sprintf("part %d of 2", no+1)) || !strings.Contains(bad.Error(), "NAME-00001-of-00002.gguf") {
			t.Errorf("error is %v", bad)
		}
	}
	var out bytes.Buffer
	if _, err := splitPart(0, 1, 0).WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	accepted(t, out.Bytes()) // the only part is the whole model
}

func TestPartNames(t *testing.T) {
	cases := []struct {
		path      string
		prefix    string
		no, count uint64
		ok        bool
	}{
		{"a/b-00001-of-00003.gguf", "a/b", 1, 3, true},
		{"-00012-of-99999.gguf", "", 12, 99999, true},
		{"x-00001-of-00002-00002-of-00004.gguf", "x-00001-of-00002", 2, 4, true},
		{"x-1-of-3.gguf", "", 0, 0, false},
		{"x-00001-of-00003.bin", "", 0, 0, false},
		{"x-00001-00003.gguf", "", 0, 0, false},
		{"x00001-of-00003.gguf", "", 0, 0, false},
		{"x-0000a-of-00003.gguf", "", 0, 0, false},
		{"x-+0001-of-00003.gguf", "", 0, 0, false},
	}
	for _, c := range cases {
		prefix, no, count, ok := parsePartName(c.path)
		if ok != c.ok || ok && (prefix != c.prefix || no != c.no || count != c.count) {
			t.Errorf("%s: %q %d %d %v", c.path, prefix, no, count, ok)
		}
	}
}
