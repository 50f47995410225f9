package gguf

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every kind of value comes back as it was set, in every way of opening.
func TestValuesRoundTrip(t *testing.T) {
	b := smallModel(t)
	want := map[string]any{
		"general.architecture": "test",
		"u8":                   uint8(200), "i8": int8(-100), "u16": uint16(60000), "i16": int16(-30000),
		"u32": uint32(4000000000), "i32": int32(-2000000000), "u64": uint64(1<<63 + 1), "i64": int64(math.MinInt64),
		"f32": float32(0.1), "f64": 0.1, "yes": true, "no": false, "empty": "", "bytes": "\xff\x00é",
		"u8s": []uint8{0, 255}, "i8s": []int8{-128, 127}, "u16s": []uint16{0, 65535}, "i16s": []int16{-32768, 32767},
		"u32s": []uint32{0, math.MaxUint32}, "i32s": []int32{math.MinInt32, math.MaxInt32},
		"u64s": []uint64{0, math.MaxUint64}, "i64s": []int64{math.MinInt64, math.MaxInt64},
		"f32s": []float32{0.5, -0.25}, "f64s": []float64{0.1, 1e300}, "bools": []bool{true, false, true},
		"strings": []string{"a", "", "\xe6\xad", "long enough to matter"}, "none": []string{},
		"nested": []any{[]uint32{1, 2}, []string{"x"}, []any{[]bool{true}}},
	}
	for _, o := range openers {
		f, err := open(t, o, b)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if keys := f.Keys(); len(keys) != len(want) || keys[0] != "general.architecture" || keys[1] != "u8" || keys[len(keys)-1] != "nested" {
			t.Errorf("%s: keys are %v", o.name, keys)
		}
		for key, v := range want {
			got, ok := f.Value(key)
			if !ok || !cmp.Equal(got, v) {
				t.Errorf("%s: %s is %v (%T), want %v (%T)", o.name, key, got, got, v, v)
			}
		}
	}
}

func TestTypedAccessors(t *testing.T) {
	f := accepted(t, smallModel(t))
	get := func(v any, err error) any {
		if err != nil {
			return err
		}
		return v
	}
	g := func(key string, call func(string) (any, error)) any { return get(call(key)) }
	str := func(k string) (any, error) { return f.String(k) }
	boolean := func(k string) (any, error) { return f.Bool(k) }
	u32 := func(k string) (any, error) { return f.Uint32(k) }
	u64 := func(k string) (any, error) { return f.Uint64(k) }
	i32 := func(k string) (any, error) { return f.Int32(k) }
	i64 := func(k string) (any, error) { return f.Int64(k) }
	integer := func(k string) (any, error) { return f.Int(k) }
	f32 := func(k string) (any, error) { return f.Float32(k) }
	f64 := func(k string) (any, error) { return f.Float64(k) }
	strs := func(k string) (any, error) { return f.Strings(k) }
	u32s := func(k string) (any, error) { return f.Uint32s(k) }
	i32s := func(k string) (any, error) { return f.Int32s(k) }
	uints := func(k string) (any, error) { return f.Uints(k) }
	ints := func(k string) (any, error) { return f.Ints(k) }
	f32s := func(k string) (any, error) { return f.Float32s(k) }
	bools := func(k string) (any, error) { return f.Bools(k) }
	length := func(k string) (any, error) { return f.ArrayLen(k) }
	cases := []struct {
		key  string
		call func(string) (any, error)
		want any // a sentinel for an error
	}{
		{"bytes", str, "\xff\x00é"}, {"empty", str, ""}, {"u8", str, ErrWrongKind}, {"missing", str, ErrMissingKey},
		{"yes", boolean, true}, {"no", boolean, false}, {"u8", boolean, ErrWrongKind}, {"missing", boolean, ErrMissingKey},
		{"u8", u32, uint32(200)}, {"u16", u32, uint32(60000)}, {"u32", u32, uint32(4000000000)},
		{"u64", u32, ErrOutOfRange}, {"i8", u32, ErrOutOfRange}, {"f32", u32, ErrWrongKind}, {"yes", u32, ErrWrongKind},
		{"u32s", u32, ErrWrongKind}, {"missing", u32, ErrMissingKey},
		{"u64", u64, uint64(1<<63 + 1)}, {"i64", u64, ErrOutOfRange}, {"i32", u64, ErrOutOfRange},
		{"u32", i32, ErrOutOfRange}, {"i32", i32, int32(-2000000000)},
		{"u64", i64, ErrOutOfRange}, {"i64", i64, int64(math.MinInt64)},
		{"i8", integer, -100}, {"i16", integer, -30000}, {"u64", integer, ErrOutOfRange}, {"missing", integer, ErrMissingKey},
		{"f32", f32, float32(0.1)}, {"f64", f32, float32(0.1)}, {"u8", f32, ErrWrongKind}, {"missing", f32, ErrMissingKey},
		{"f32", f64, float64(float32(0.1))}, {"f64", f64, 0.1}, {"empty", f64, ErrWrongKind},
		{"strings", strs, []string{"a", "", "\xe6\xad", "long enough to matter"}}, {"none", strs, []string{}},
		{"u8s", strs, ErrWrongKind}, {"empty", strs, ErrWrongKind}, {"missing", strs, ErrMissingKey},
		{"u8s", u32s, []uint32{0, 255}}, {"u64s", u32s, ErrOutOfRange}, {"i8s", u32s, ErrOutOfRange}, {"f32s", u32s, ErrWrongKind},
		{"i16s", i32s, []int32{-32768, 32767}}, {"u32s", i32s, ErrOutOfRange}, {"missing", i32s, ErrMissingKey},
		{"u64s", uints, []uint64{0, math.MaxUint64}}, {"i64s", uints, ErrOutOfRange}, {"u16s", uints, []uint64{0, 65535}},
		{"i16s", ints, []int{-32768, 32767}}, {"u64s", ints, ErrOutOfRange},
		{"f32s", f32s, []float32{0.5, -0.25}}, {"f64s", f32s, ErrOutOfRange}, {"u8s", f32s, ErrWrongKind},
		{"bools", bools, []bool{true, false, true}}, {"u8s", bools, ErrWrongKind}, {"yes", bools, ErrWrongKind},
		{"strings", length, 4}, {"none", length, 0}, {"nested", length, 3}, {"u8", length, ErrWrongKind}, {"missing", length, ErrMissingKey},
	}
	for _, c := range cases {
		got := g(c.key, c.call)
		if want, ok := c.want.(error); ok {
			err, _ := got.(error)
			var bad *KeyError
			if !errors.Is(err, want) || !errors.As(err, &bad) || bad.Key != c.key || !strings.Contains(err.Error(), `"`+c.key+`"`) {
				t.Errorf("%s: %v, want %v", c.key, got, want)
			}
		} else if !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v (%T), want %v (%T)", c.key, got, got, c.want, c.want)
		}
	}
	if arch, err := f.Architecture(); arch != "test" || err != nil {
		t.Errorf("architecture %q, %v", arch, err)
	}
	if k, ok := f.KindOf("i16"); k != KindInt16 || !ok {
		t.Errorf("kind of i16 is %v, %v", k, ok)
	}
	if k, ok := f.ElemKindOf("strings"); k != KindString || !ok {
		t.Errorf("element kind of strings is %v, %v", k, ok)
	}
	if _, ok := f.ElemKindOf("i16"); ok || f.Has("missing") || !f.Has("none") {
		t.Error("Has or ElemKindOf is wrong")
	}
	if _, ok := f.KindOf("missing"); ok {
		t.Error("a missing key has a kind")
	}
	if _, ok := f.Value("missing"); ok {
		t.Error("a missing key has a value")
	}
}

func TestFloatRange(t *testing.T) {
	w := NewWriter()
	w.SetFloat64("big", 1e300)
	w.SetFloat64("inf", math.Inf(-1))
	w.SetFloat64("nan", math.NaN())
	w.SetFloat64("tiny", 1e-300)
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	f := accepted(t, out.Bytes())
	if v, err := f.Float32("big"); v != 0 || !errors.Is(err, ErrOutOfRange) {
		t.Errorf("big: %v, %v", v, err)
	}
	if v, err := f.Float32("inf"); !math.IsInf(float64(v), -1) || err != nil {
		t.Errorf("inf: %v, %v", v, err)
	}
	if v, err := f.Float32("nan"); v == v || err != nil {
		t.Errorf("nan: %v, %v", v, err)
	}
	if v, err := f.Float32("tiny"); v != 0 || err != nil {
		t.Errorf("tiny: %v, %v", v, err)
	}
}

// A KeyError says what is there and what would be right.
func TestKeyErrorText(t *testing.T) {
	f := accepted(t, smallModel(t))
	_, err := f.Uint32("strings")
	if got, want := err.Error(), `gguf: key "strings": wrong kind of value: have array of string, want uint32`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	_, err = f.Uint32("i8")
	if got, want := err.Error(), `gguf: key "i8": value out of range: have int8 -100, want uint32`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	_, err = f.Uint32("nope")
	if got, want := err.Error(), `gguf: key "nope" (uint32): missing key`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// switching is a reader whose file is replaced while it is open.
type switching struct{ b []byte }

func (s *switching) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(s.b)) {
		return 0, io.EOF
	}
	n := copy(p, s.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Lengths are read again at access; a file that was overwritten in between
// gives an error, not a panic.
func TestFileChangesWhileOpen(t *testing.T) {
	b := smallModel(t)
	for _, fill := range []byte{0, 1, 0x7F, 0xFF} {
		s := &switching{b}
		f, err := NewReader(s, int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		changed := make([]byte, len(b))
		for i := range changed {
			changed[i] = fill
		}
		s.b = changed
		for _, key := range f.Keys() {
			f.Value(key)
		}
		if fill != 0 {
			if _, err := f.Strings("strings"); !errors.Is(err, ErrChanged) {
				t.Errorf("filled with %d: %v", fill, err)
			}
			if _, ok := f.Value("nested"); ok {
				t.Errorf("filled with %d: nested array still decodes", fill)
			}
		}
		s.b = nil
		if _, err := f.String("bytes"); !errors.Is(err, ErrTruncated) {
			t.Errorf("after truncation: %v", err)
		}
		w, _ := f.Tensor("matrix")
		if _, err := f.Data(w); !errors.Is(err, ErrTruncated) {
			t.Errorf("after truncation: %v", err)
		}
	}
	if _, err := NewReader(&switching{b[:100]}, int64(len(b))); !errors.Is(err, ErrTruncated) {
		t.Errorf("a reader shorter than it says: %v", err)
	}
	if _, err := NewReader(nil, 0); err == nil {
		t.Error("a nil reader opens")
	}
	if _, err := NewReader(&switching{b}, -1); err == nil {
		t.Error("a negative size opens")
	}
}
