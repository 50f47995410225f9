//go:build amd64 && !purego && linux

package kernels

import (
	"fmt"
	"testing"
)

// BenchmarkPackedFloatVector reads more weights than any cache holds.
func BenchmarkPackedFloatVector(b *testing.B) {
	const in, size = 896, 320 << 20
	for _, name := range floatNames {
		var p *Packed
		for _, tokens := range []int{1, 2, 4, 6} {
			b.Run(fmt.Sprintf("%s/tokens=%d", name, tokens), func(b *testing.B) {
				if p == nil {
					p = bigPacked(b, name, in, size)
				}
				x := randFloats(tokens*in, 2)
				benchTiers(b, func(b *testing.B, tier Tier) {
					w := p
					if tier == Generic {
						w, _ = NewPacked(p.Format, in, 4096, p.Data)
					}
					s, out := Scratch{Tier: tier}, make([]float32, tokens*w.Out)
					b.SetBytes(int64(len(w.Data)))
					for b.Loop() {
						MatMulPackedFloat(out, w.Out, w, 0, w.Blocks(), nil, x, in, tokens, &s)
					}
				})
			})
			p = nil // its memory is released with the benchmark
		}
	}
}

// BenchmarkPackedFloatMatrix has the shapes of the largest matrices of a small model.
func BenchmarkPackedFloatMatrix(b *testing.B) {
	for _, name := range floatNames {
		for _, shape := range [][3]int{{896, 4864, 512}, {4864, 896, 512}, {896, 4864, 16}} {
			in, out, tokens := shape[0], shape[1], shape[2]
			p := mustPack(b, randWeight(b, name, in, out, 1))
			x := randFloats(tokens*in, 2)
			b.Run(fmt.Sprintf("%s/%dx%dx%d", name, out, in, tokens), func(b *testing.B) {
				benchTiers(b, func(b *testing.B, tier Tier) {
					w := p
					if tier == Generic {
						w, _ = NewPacked(p.Format, in, 64, p.Data)
					}
					s, y := Scratch{Tier: tier}, make([]float32, tokens*w.Out)
					for b.Loop() {
						MatMulPackedFloat(y, w.Out, w, 0, w.Blocks(), nil, x, in, tokens, &s)
					}
					reportMACs(b, in*w.Out*tokens)
				})
			})
		}
	}
}
