package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

const mib = 1 << 20

// Lengths of strings that go past the end: llama.cpp-family readers have
// allocated them.
func TestStringLongerThanFile(t *testing.T) {
	value := func(length uint64) []byte {
		return header(3, 0, 1).key("a", 8).u64(length).b
	}
	cases := []struct {
		name string
		b    []byte
		size int
	}{
		{"key of 2^48-1 bytes", header(3, 0, 1).u64(0xFFFFFFFFFFFF).b, 32},
		{"value of 2^64-1 bytes", value(math.MaxUint64), 45},
		{"value of 2^31 bytes", value(1 << 31), 45},
		{"value one byte too long", value(1), 45},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if len(c.b) != c.size {
				t.Fatalf("recipe makes %d bytes, want %d", len(c.b), c.size)
			}
			// In the first, one key needs more bytes than are left, whatever its length.
			refused(t, c.b, ErrTruncated)
			name := tempFile(t, c.b)
			path := func() string { return name }
			for _, o := range openers {
				if n := allocated(func() { o.open(c.b, path) }); n >= mib {
					t.Errorf("%s: %d bytes allocated", o.name, n)
				}
			}
		})
	}
	// With room for a key, the length itself is what is refused.
	bad := refused(t, header(3, 0, 1).u64(0xFFFFFFFFFFFF).zeros(40).b, ErrTooLarge)
	if bad.What != "key 1 of 1" || bad.Offset != 24 {
		t.Errorf("error is about %s at %d", bad.What, bad.Offset)
	}
	bad = refused(t, value(7), ErrTruncated)
	if bad.Need != 52 || bad.Size != 45 {
		t.Errorf("need %d of size %d, want 52 of 45", bad.Need, bad.Size)
	}
}

func TestHeaderSweep(t *testing.T) {
	bigEndian := binary.BigEndian.AppendUint32([]byte("GGUF"), 3)
	bigEndian = append(bigEndian, make([]byte, 16)...)
	cases := []struct {
		name string
		b    []byte
		want error // nil: loads as an empty file
		text string
	}{
		{"0 bytes", nil, ErrTruncated, ""},
		{"1 byte", []byte("G"), ErrTruncated, ""},
		{"3 bytes", []byte("GGU"), ErrTruncated, ""},
		{"3 wrong bytes", []byte("PK\x03"), ErrNotGGUF, ""},
		{"4 bytes", []byte("GGUF"), ErrTruncated, ""},
		{"7 bytes", []byte("GGUF\x03\x00\x00"), ErrTruncated, ""},
		{"8 bytes", header(3, 0, 0).b[:8], ErrTruncated, ""},
		{"23 bytes", header(3, 0, 0).b[:23], ErrTruncated, ""},
		{"version 0", header(0, 0, 0).b, ErrVersion, "version 0 not supported"},
		{"version 1", header(1, 0, 0).b, ErrVersion, "version 1 not supported"},
		{"version 2", header(2, 0, 0).b, nil, ""},
		{"version 3", header(3, 0, 0).b, nil, ""},
		{"version 4", header(4, 0, 0).b, ErrVersion, "version 4 not supported"},
		{"version 2^32-1", header(math.MaxUint32, 0, 0).b, ErrVersion, ""},
		{"big-endian", bigEndian, ErrByteOrder, "byte order"},
		{"reversed magic", append([]byte("FUGG"), make([]byte, 20)...), ErrNotGGUF, `begins with "FUGG"`},
		{"2^63 keys", header(3, 0, 1<<63).b, ErrTooLarge, ""},
		{"2^64-1 tensors", header(3, math.MaxUint64, 0).b, ErrTooLarge, ""},
		{"2^40 keys", header(3, 0, 1<<40).b, ErrTooLarge, ""},
		{"one key, no bytes", header(3, 0, 1).b, ErrTruncated, ""},
		{"one tensor, no bytes", header(3, 1, 0).b, ErrTruncated, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.want == nil {
				f := accepted(t, c.b)
				if len(f.Keys()) != 0 || len(f.Tensors()) != 0 {
					t.Errorf("keys %v, tensors %v", f.Keys(), f.Tensors())
				}
				return
			}
			if bad := refused(t, c.b, c.want); !strings.Contains(bad.Error(), c.text) {
				t.Errorf("error is %q, want it to say %q", bad, c.text)
			}
			if n := allocated(func() { NewBytes(c.b) }); n >= mib {
				t.Errorf("%d bytes allocated", n)
			}
		})
	}
}

func TestAlignment(t *testing.T) {
	alignment := func(v uint32) []byte { return header(3, 0, 1).key(alignmentKey, 4).u32(v).b }
	for _, v := range []uint32{0, 1, 3, 4, 13, 24, 1<<31 + 8} {
		refused(t, alignment(v), ErrAlignment)
	}
	for _, v := range []uint32{8, 32, 64, 1 << 31} {
		if got := accepted(t, alignment(v)).Alignment(); got != int(min(uint64(v), math.MaxInt)) {
			t.Errorf("alignment is %d, want %d", got, v)
		}
	}
	refused(t, header(3, 0, 1).key(alignmentKey, 5).u32(32).b, ErrAlignment)
	bad := refused(t, header(3, 0, 2).key(alignmentKey, 4).u32(32).key(alignmentKey, 4).u32(32).b, ErrDuplicate)
	if bad.Offset != 57 || !strings.Contains(bad.Error(), "at byte 24") {
		t.Errorf("duplicate reported as %v", bad)
	}

	with := func(v uint32) *raw {
		return header(3, 1, 1).key(alignmentKey, 4).u32(v).tensor("w", 0, 0, 1)
	}
	f := accepted(t, with(64).pad(64).u32(math.Float32bits(7)).b)
	w, _ := f.Tensor("w")
	data, err := f.Data(w)
	if err != nil || w.Offset%64 != 0 || math.Float32frombits(binary.LittleEndian.Uint32(data)) != 7 {
		t.Errorf("data %v at byte %d, %v", data, w.Offset, err)
	}
	bad = refused(t, with(1<<31).pad(64).u32(0).b, ErrTruncated)
	if bad.Need != 1<<31+4 || !strings.Contains(bad.What, `"w"`) {
		t.Errorf("error is %v, need %d", bad, bad.Need)
	}
}

func TestDimensionsOverflow(t *testing.T) {
	cases := []struct {
		name string
		typ  uint32
		dims []uint64
	}{
		{"product wraps to a small number", 24, []uint64{1<<32 + 1, 1<<32 + 1}},
		{"product of 2^64-2", 24, []uint64{math.MaxInt64, 2}},
		{"bytes wrap to 0", 0, []uint64{1 << 62, 4}},
		{"bytes overflow, values do not", 28, []uint64{1 << 61, 2}},
		{"zero hides an overflow", 24, []uint64{0, 1 << 40, 1 << 40}},
		{"dimension of 2^63", 24, []uint64{1 << 63}},
		{"unknown type", 1000, []uint64{1 << 40, 1 << 40}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bad := refused(t, header(3, 1, 0).tensor("w", c.typ, 0, c.dims...).pad(32).zeros(64).b, ErrTooLarge)
			if bad.What != `tensor "w"` {
				t.Errorf("error is about %s", bad.What)
			}
		})
	}
	for _, n := range []uint32{5, math.MaxUint32} {
		bad := refused(t, header(3, 1, 0).str("w").u32(n).zeros(100).b, ErrShape)
		if bad.What != `tensor "w"` {
			t.Errorf("error is about %s", bad.What)
		}
	}
	const huge = 0x7FFFFFFFFFFFFFC0
	_, err := verdict(t, header(3, 2, 0).tensor("a", 24, 0, huge).tensor("b", 24, huge, huge).pad(32).zeros(64).b)
	// Where int has 32 bits the dimension itself is refused.
	if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrTooLarge) || !strings.Contains(fmt.Sprint(err), `tensor "a"`) {
		t.Errorf("sum of sizes wraps: %v", err)
	}
	bad := refused(t, header(3, 1, 0).tensor("w", 24, math.MaxUint64-31, 64).pad(32).zeros(64).b, ErrTruncated)
	if bad.Need != math.MaxUint64 {
		t.Errorf("end of a tensor that wraps is given as %d", bad.Need)
	}
}

func TestNestedArrays(t *testing.T) {
	nested := func(levels int) []byte {
		r := header(3, 0, 1).key("a", 9)
		for range levels - 1 {
			r.u32(9).u64(1)
		}
		return r.u32(4).u64(0).b
	}
	b := nested(100001)
	if len(b) < 1_200_000 {
		t.Fatalf("recipe makes %d bytes", len(b))
	}
	refused(t, b, ErrNesting)
	refused(t, nested(MaxArrayDepth+1), ErrNesting)
	accepted(t, nested(MaxArrayDepth))
	refused(t, header(3, 0, 1).key("a", 9).u32(77).u64(0).b, ErrKind)
	refused(t, header(3, 0, 1).key("a", 77).u64(0).b, ErrKind)

	f := accepted(t, header(3, 0, 2).key("a", 9).u32(9).u64(2).
		u32(4).u64(2).u32(7).u32(8).
		u32(8).u64(1).str("x").
		key("b", 0).u8(5).b)
	v, ok := f.Value("a")
	if got := fmt.Sprintf("%T %v %v", v, v, ok); got != "[]interface {} [[7 8] [x]] true" {
		t.Errorf("nested array is %s", got)
	}
	if b, err := f.Int("b"); b != 5 || err != nil {
		t.Errorf("value after the array is %d, %v", b, err)
	}
}

func TestArrayLongerThanFile(t *testing.T) {
	for _, kind := range []uint32{0, 4, 7, 8, 9, 12} {
		for _, count := range []uint64{3, 1 << 31, 1 << 60, math.MaxUint64} {
			b := header(3, 0, 1).key("a", 9).u32(kind).u64(count).zeros(2).b
			bad := refused(t, b, ErrTruncated)
			// The count itself is refused, not the first element that is not there.
			if bad.Need <= uint64(len(b)) || bad.Offset != 37 {
				t.Errorf("kind %d count %d: need %d bytes of %d, at byte %d", kind, count, bad.Need, len(b), bad.Offset)
			}
			if n := allocated(func() { NewBytes(b) }); n >= mib {
				t.Errorf("kind %d count %d: %d bytes allocated", kind, count, n)
			}
		}
	}
}

func TestBadBool(t *testing.T) {
	refused(t, header(3, 0, 1).key("a", 7).u8(2).b, ErrValue)
	bad := refused(t, header(3, 0, 1).key("a", 9).u32(7).u64(3).u8(1).u8(0).u8(255).b, ErrValue)
	if bad.Offset != 51 {
		t.Errorf("offset is %d, want 51", bad.Offset)
	}
}

// A download that broke off: the header is whole, the data is not.
func TestTruncatedData(t *testing.T) {
	whole := header(3, 1, 0).tensor("w", 0, 0, 8).pad(32).zeros(32).b
	accepted(t, whole)
	if len(whole) != 96 {
		t.Fatalf("recipe makes %d bytes", len(whole))
	}
	bad := refused(t, whole[:95], ErrTruncated)
	if bad.Need != 96 || bad.Size != 95 || !strings.Contains(bad.Error(), `tensor "w"`) ||
		!strings.Contains(bad.Error(), "needs 96 bytes but the file has 95") {
		t.Errorf("error is %v (need %d, size %d)", bad, bad.Need, bad.Size)
	}
}

// Cutting a real file anywhere must be noticed when it opens.
func TestTruncatedAnywhere(t *testing.T) {
	whole := smallModel(t)
	f := accepted(t, whole)
	last := f.Tensors()[len(f.Tensors())-1]
	end := int(last.Offset + last.Size) // what follows is padding
	if end > len(whole) {
		t.Fatal("bad fixture")
	}
	for n := range end {
		_, err := NewBytes(whole[:n])
		if !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
		}
		if n%37 == 0 || n == end-1 {
			refused(t, whole[:n], ErrTruncated)
		}
	}
	for n := end; n <= len(whole); n++ {
		if _, err := NewBytes(whole[:n]); err != nil {
			t.Fatalf("padding cut to %d bytes: %v", n, err)
		}
	}
}

func TestUnusableTensors(t *testing.T) {
	cases := []struct {
		typ  uint32
		ne0  uint64
		want error
		text string
	}{
		{4, 32, ErrUnsupportedType, `tensor "w": unsupported tensor type 4 (Q4_2, removed`},
		{36, 32, ErrUnsupportedType, `tensor "w": unsupported tensor type 36 (IQ4_NL_4_4, removed`},
		{1000, 32, ErrUnsupportedType, `tensor "w": unsupported tensor type 1000`},
		{math.MaxUint32, 32, ErrUnsupportedType, `tensor "w": unsupported tensor type 4294967295`},
		{12, 896, ErrShape, `tensor "w": row length 896 is not a multiple of the Q4_K block of 256`},
		{8, 33, ErrShape, `tensor "w": row length 33 is not a multiple of the Q8_0 block of 32`},
	}
	for _, c := range cases {
		t.Run(c.text, func(t *testing.T) {
			f := accepted(t, header(3, 2, 1).key("k", 4).u32(9).
				tensor("w", c.typ, 0, c.ne0).tensor("good", 24, 1024, 4).pad(32).zeros(1024).u32(0x04030201).b)
			if v, err := f.Int("k"); v != 9 || err != nil {
				t.Errorf("metadata: %d, %v", v, err)
			}
			w, ok := f.Tensor("w")
			if !ok || w.Type != Type(c.typ) || w.Dims[0] != c.ne0 || w.Size != 0 || w.RowBytes() != 0 {
				t.Errorf("listed as %+v", w)
			}
			_, dataErr := f.Data(w)
			_, readErr := f.ReadTensor(w, make([]byte, 4096))
			_, readerErr := f.Reader(w)
			for _, err := range []error{f.CheckTensor(w), f.Check(), dataErr, readErr, readerErr} {
				var bad *TensorError
				if !errors.Is(err, c.want) || !errors.As(err, &bad) || bad.Name != "w" || bad.Type != Type(c.typ) {
					t.Errorf("error is %v", err)
				} else if !strings.Contains(err.Error(), c.text) {
					t.Errorf("error is %q, want it to say %q", err, c.text)
				}
			}
			good, _ := f.Tensor("good")
			if data, err := f.Data(good); err != nil || !bytes.Equal(data, []byte{1, 2, 3, 4}) {
				t.Errorf("the other tensor: %v, %v", data, err)
			}
		})
	}
	refused(t, header(3, 1, 0).tensor("w", 1000, 1<<40, 32).pad(32).b, ErrTruncated)
}

func TestMisplacedTensors(t *testing.T) {
	two := func(a, b uint64) []byte {
		return header(3, 2, 0).tensor("a", 0, a, 16).tensor("b", 0, b, 16).pad(32).zeros(160).b
	}
	accepted(t, two(0, 64))
	accepted(t, two(64, 0))  // any order
	accepted(t, two(32, 96)) // gaps
	for _, c := range [][2]uint64{{0, 0}, {0, 32}, {32, 0}, {64, 64}} {
		bad := refused(t, two(c[0], c[1]), ErrOverlap)
		if !strings.Contains(bad.Error(), `"a"`) || !strings.Contains(bad.Error(), `"b"`) {
			t.Errorf("error names not both: %v", bad)
		}
	}
	bad := refused(t, two(0, 68), ErrAlignment)
	if bad.What != `tensor "b"` {
		t.Errorf("error is about %s", bad.What)
	}
}

func TestBadNames(t *testing.T) {
	refused(t, header(3, 0, 1).key("", 0).u8(0).zeros(8).b, ErrName)
	refused(t, header(3, 1, 0).tensor("", 0, 0, 1).pad(32).zeros(32).b, ErrName)
	long := strings.Repeat("k", MaxKeyLen)
	accepted(t, header(3, 0, 1).key(long, 0).u8(0).b)
	refused(t, header(3, 0, 1).key(long+"k", 0).u8(0).b, ErrTooLarge)
	long = strings.Repeat("t", MaxTensorNameLen)
	accepted(t, header(3, 1, 0).tensor(long, 0, 0, 1).pad(32).u32(0).b)
	refused(t, header(3, 1, 0).tensor(long+"t", 0, 0, 1).pad(32).u32(0).b, ErrTooLarge)

	bad := refused(t, header(3, 0, 4).key("b", 0).u8(0).key("a", 0).u8(0).key("b", 0).u8(1).key("a", 0).u8(1).b, ErrDuplicate)
	if bad.What != `key "b"` {
		t.Errorf("the first repetition is %s", bad.What)
	}
	bad = refused(t, header(3, 2, 0).tensor("w", 0, 0, 1).tensor("w", 0, 32, 1).pad(32).zeros(36).b, ErrDuplicate)
	if bad.What != `tensor "w"` || bad.Offset != 57 {
		t.Errorf("error is %v", bad)
	}
}

// Files made to have as many small things as they can must not cost more memory
// than the documented bound.
func TestMemoryBound(t *testing.T) {
	keys := header(3, 0, MaxKeys)
	for i := range MaxKeys {
		keys.key(fmt.Sprintf("%x", i), 0).u8(0)
	}
	tensors := header(3, MaxTensors, 0)
	for i := range MaxTensors {
		tensors.tensor(fmt.Sprintf("%x", i), 0, uint64(i)*32, 1, 1, 1, 1)
	}
	tensors.pad(32).zeros(32 * MaxTensors)
	empty := header(3, 0, 1).key("a", 9).u32(8).u64(1 << 20).zeros(8 << 20)
	arrays := header(3, 0, 1).key("a", 9).u32(9).u64(1 << 19).zeros(12 << 19)
	for name, b := range map[string][]byte{"keys": keys.b, "tensors": tensors.b, "empty strings": empty.b, "empty arrays": arrays.b} {
		path := tempOf(t, b)
		path() // write the file before anything is measured
		for _, o := range openers {
			if strings.Contains(o.name, "window") {
				continue // reads byte by byte, which is slow and no user's way
			}
			var f *File
			var err error
			if n, most := allocated(func() { f, err = o.open(b, path) }), uint64(len(b))+16*mib; n >= most {
				t.Errorf("%s, %s: opening %d bytes allocates %d", name, o.name, len(b), n)
			}
			if err != nil {
				t.Fatalf("%s, %s: %v", name, o.name, err)
			}
			f.Close()
		}
	}
	refused(t, header(3, 0, MaxKeys+1).zeros(100).b, ErrTooLarge)
	refused(t, header(3, MaxTensors+1, 0).zeros(100).b, ErrTooLarge)
}

// Opening touches arrays but must not hold or decode them.
func TestArraysAreLazy(t *testing.T) {
	w := NewWriter()
	tokens := make([]string, 150_000)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token%d", i)
	}
	w.SetStrings("tokens", tokens)
	w.SetFloat32s("scores", make([]float32, len(tokens)))
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	var f *File
	if n := allocated(func() { f, _ = NewBytes(out.Bytes()) }); n > 64<<10 {
		t.Errorf("opening %d bytes of vocabulary allocates %d", out.Len(), n)
	}
	got, err := f.Strings("tokens")
	if err != nil || len(got) != len(tokens) || got[149_999] != "token149999" {
		t.Fatalf("%d strings, %v", len(got), err)
	}
}
