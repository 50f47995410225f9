package gguf

import (
	"bytes"
	"testing"
)

// smallModel is a file with every kind of value and a few tensors.
func smallModel(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := smallWriter(t).WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func smallWriter(t testing.TB, opts ...WriterOption) *Writer {
	t.Helper()
	w := NewWriter(opts...)
	w.SetString("general.architecture", "test")
	w.SetUint8("u8", 200)
	w.SetInt8("i8", -100)
	w.SetUint16("u16", 60000)
	w.SetInt16("i16", -30000)
	w.SetUint32("u32", 4000000000)
	w.SetInt32("i32", -2000000000)
	w.SetUint64("u64", 1<<63+1)
	w.SetInt64("i64", -1<<63)
	w.SetFloat32("f32", 0.1)
	w.SetFloat64("f64", 0.1)
	w.SetBool("yes", true)
	w.SetBool("no", false)
	w.SetString("empty", "")
	w.SetString("bytes", "\xff\x00é")
	w.SetUint8s("u8s", []uint8{0, 255})
	w.SetInt8s("i8s", []int8{-128, 127})
	w.SetUint16s("u16s", []uint16{0, 65535})
	w.SetInt16s("i16s", []int16{-32768, 32767})
	w.SetUint32s("u32s", []uint32{0, 1<<32 - 1})
	w.SetInt32s("i32s", []int32{-1 << 31, 1<<31 - 1})
	w.SetUint64s("u64s", []uint64{0, 1<<64 - 1})
	w.SetInt64s("i64s", []int64{-1 << 63, 1<<63 - 1})
	w.SetFloat32s("f32s", []float32{0.5, -0.25})
	w.SetFloat64s("f64s", []float64{0.1, 1e300})
	w.SetBools("bools", []bool{true, false, true})
	w.SetStrings("strings", []string{"a", "", "\xe6\xad", "long enough to matter"})
	w.SetStrings("none", nil)
	w.Set("nested", []any{[]uint32{1, 2}, []string{"x"}, []any{[]bool{true}}})
	add := func(name string, typ Type, dims []uint64, size int) {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i*7 + len(name))
		}
		if err := w.AddTensor(name, typ, dims, data); err != nil {
			t.Fatal(err)
		}
	}
	add("matrix", TypeQ8_0, []uint64{64, 3}, 204)
	add("vector", TypeF32, []uint64{5}, 20)
	add("scalar", TypeF64, nil, 8)
	add("nothing", TypeF16, []uint64{4, 0}, 0)
	add("cube", TypeI8, []uint64{2, 3, 1, 2}, 12)
	return w
}
