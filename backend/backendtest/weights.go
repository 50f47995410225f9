package backendtest

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/quant"
)

// scaleFields are the places of the f16 numbers in a block of each format that has
// any. All other bytes may be anything.
var scaleFields = map[string][]int{
	"Q4_0": {0}, "Q4_1": {0, 2}, "Q5_0": {0}, "Q5_1": {0, 2}, "Q8_0": {0},
	"Q2_K": {80, 82}, "Q3_K": {108}, "Q4_K": {0, 2}, "Q5_K": {0, 2}, "Q6_K": {208},
	"IQ4_NL": {0}, "IQ4_XS": {0},
}

// randomWeight makes a weight of the type, and returns its values row by row. Formats
// with an encoder get normal values; the others random blocks with sane scales.
func randomWeight(t *testing.T, r *rand.Rand, name string, f *quant.Format, in, out int) (backend.Weight, []float32) {
	t.Helper()
	n, err := f.RowBytes(in)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, n*out)
	switch fields, known := scaleFields[f.Name]; {
	case f.Group == 0:
		if err := f.Quantize(data, normal(r, in*out)); err != nil {
			t.Fatal(err)
		}
	case known || f.Name == "MXFP4":
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		for b := 0; b < len(data); b += f.Bytes {
			for _, at := range fields {
				scale := float32(0.5+r.Float64()) / 64
				binary.LittleEndian.PutUint16(data[b+at:], quant.F32ToF16(scale))
			}
			if f.Name == "MXFP4" {
				data[b] = byte(118 + r.IntN(8)) // an exponent: 2^-9 to 2^-2
			}
		}
	default:
		t.Fatalf("no generator of random blocks for the format %s", f.Name)
	}
	values := make([]float32, in*out)
	f.Dequantize(values, data)
	return backend.Weight{Name: name, Type: f.Name, In: in, Out: out, Data: data}, values
}

// vector makes a weight of float32 values.
func vector(name string, values []float32) backend.Weight {
	return backend.Weight{Name: name, Type: "F32", In: len(values), Out: 1, Data: input{f: values}.bytes()}
}
