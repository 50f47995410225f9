package kernels

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/minfer/minfer/internal/quant"
)

// TestPackAs: packing in another format is encoding the whole weight and then packing it.
func TestPackAs(t *testing.T) {
	for _, to := range []string{"Q8_0", "Q4_0", "BF16"} {
		for _, name := range floatNames {
			const in, out = 96, 37
			w := randWeight(t, name, in, out, 1)
			format, _ := quant.Lookup(to)
			n, _ := format.RowBytes(in)
			encoded := make([]byte, n*out)
			row := make([]float32, in)
			for r := range out {
				w.GetRow(row, r)
				if err := format.Quantize(encoded[r*n:][:n], row); err != nil {
					t.Fatal(err)
				}
			}
			other, err := NewWeight(format, in, out, encoded)
			if err != nil {
				t.Fatal(err)
			}
			want := mustPack(t, other)
			got := bytes.Repeat([]byte{0xa5}, len(want.Data))
			var s Scratch
			for _, b := range []int{2, 0, 1} {
				if err := PackAs(got, format, w, b, b+1, &s); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got, want.Data) {
				t.Errorf("%s as %s differs from encoding, then packing", name, to)
			}
		}
	}
}

func TestPackAsRefuses(t *testing.T) {
	var s Scratch
	q8, _ := quant.Lookup("Q8_0")
	q6, _ := quant.Lookup("Q6_K")
	w := randWeight(t, "F32", 256, 20, 1)
	if err := PackAs(make([]byte, 1<<16), q6, w, 0, 2, &s); !errors.Is(err, quant.ErrNoEncoder) {
		t.Errorf("a format without an encoder: %v", err)
	}
	if err := PackAs(make([]byte, 1<<16), q8, randWeight(t, "F32", 33, 20, 1), 0, 2, &s); err == nil {
		t.Error("rows of 33 values in blocks of 32: no error")
	}
	if err := QuantizeRows(make([]byte, 1<<16), q8, randWeight(t, "F32", 33, 20, 1), 0, 2, &s); !errors.Is(err, quant.ErrLength) {
		t.Errorf("rows of 33 values in blocks of 32: %v", err)
	}
	binary.LittleEndian.PutUint32(w.Row(18)[40:], math.Float32bits(float32(math.Inf(1))))
	err := PackAs(make([]byte, 1<<16), q8, w, 0, 2, &s)
	if !errors.Is(err, quant.ErrValue) || !strings.Contains(fmt.Sprint(err), "row 18") {
		t.Errorf("an infinity in row 18: %v", err)
	}
}
