package kernels

import (
	"math"
	"testing"
)

func TestTopK(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negative := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		x    []float32
		k    int
		want []float32
	}{
		{[]float32{1, 3, 2, 3}, 3, []float32{3, 3, 2, 1, 3, 2}},
		{[]float32{negative, 0, negative}, 2, []float32{negative, 0, 0, 1}},
		{[]float32{1, nan, inf, nan}, 3, []float32{nan, nan, inf, 1, 3, 2}},
		{[]float32{nan, nan, 5}, 1, []float32{nan, 0}},
		{[]float32{-inf, -1, -inf}, 2, []float32{-1, -inf, 1, -1}},
		{nil, 2, []float32{-inf, -inf, -1, -1}},
	} {
		got := make([]float32, 2*c.k)
		TopK(got, c.x)
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(c.want[i]) {
				t.Fatalf("%d of %v: %v, want %v", c.k, c.x, got, c.want)
			}
		}
	}
}
