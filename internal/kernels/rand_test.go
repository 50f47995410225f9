package kernels

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/minfer/minfer/internal/quant"
)

// lcg is a generator whose numbers do not depend on any library's version, since
// fixed results are kept for them.
type lcg uint64

func (r *lcg) next() uint32 {
	*r = *r*6364136223846793005 + 1442695040888963407
	return uint32(*r >> 32)
}

// float returns a multiple of 2^-12 that is roughly normal, of deviation 1.
func (r *lcg) float() float32 {
	var s int32
	for range 3 {
		s += int32(r.next()>>19) - 4096 // [-4096, 4096)
	}
	return float32(s) / 4096
}

func randFloats(n int, seed uint64) []float32 {
	r := lcg(seed)
	x := make([]float32, n)
	for i := range x {
		x[i] = r.float() * (1 + float32(r.next()>>9)*0x1p-23)
	}
	return x
}

// formatNames are all formats of weights.
var formatNames = []string{"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
	"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"}

// halves are the offsets of the half-precision fields in a block of each format.
var halves = map[string][]int{"Q4_0": {0}, "Q4_1": {0, 2}, "Q5_0": {0}, "Q5_1": {0, 2}, "Q8_0": {0},
	"Q2_K": {80, 82}, "Q3_K": {108}, "Q4_K": {0, 2}, "Q5_K": {0, 2}, "Q6_K": {208}, "IQ4_NL": {0}, "IQ4_XS": {0}}

// randWeight makes a weight of random quants and ordinary scales. Its data begins
// at an odd address.
func randWeight(t testing.TB, name string, in, out int, seed uint64) *Weight {
	t.Helper()
	f, err := quant.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.RowBytes(in)
	if err != nil {
		t.Fatal(err)
	}
	r := lcg(seed)
	data := make([]byte, n*out+1)[1:]
	for i := range data {
		data[i] = byte(r.next() >> 24)
	}
	for b := 0; b < len(data); b += f.Bytes {
		v := r.float() / 16
		switch {
		case name == "F32":
			binary.LittleEndian.PutUint32(data[b:], math.Float32bits(v*1.1))
		case name == "F16":
			binary.LittleEndian.PutUint16(data[b:], quant.F32ToF16(v))
		case name == "BF16":
			binary.LittleEndian.PutUint16(data[b:], uint16(math.Float32bits(v)>>16))
		case name == "MXFP4":
			data[b] = 118 + data[b]%8
		default:
			for _, at := range halves[name] {
				binary.LittleEndian.PutUint16(data[b+at:], quant.F32ToF16(r.float()/32))
			}
		}
	}
	w, err := NewWeight(f, in, out, data)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// randKV makes a region of keys and one of values.
func randKV(cells, dim int, wide bool, seed uint64) (k, v *KVRegion) {
	k, v = NewKeys(cells, dim, wide), NewValues(cells, dim, wide)
	for i, r := range []*KVRegion{k, v} {
		x := randFloats(cells*dim, seed+uint64(i))
		for c := range cells {
			r.Store(c, x[c*dim:])
		}
	}
	return k, v
}

func mustRoPE(t testing.TB, p RoPEParams) *RoPE {
	t.Helper()
	r, err := NewRoPE(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
