package kernels

import (
	"fmt"
	"testing"
)

func BenchmarkMatMulInt(b *testing.B) {
	const in, out = 1024, 512
	for _, name := range []string{"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"} {
		w := randWeight(b, name, in, out, 1)
		for _, tokens := range []int{1, 2, 64} {
			b.Run(fmt.Sprintf("%s/tokens=%d/impl=go", name, tokens), func(b *testing.B) {
				var acts QActs
				var s Scratch
				acts.Quantize(randFloats(tokens*in, 2), in, tokens, in)
				y := make([]float32, tokens*out)
				for b.Loop() {
					MatMulInt(y, out, w, 0, out, nil, &acts, &s)
				}
				reportMACs(b, in*out*tokens)
			})
		}
	}
}

func BenchmarkMatMulFloat(b *testing.B) {
	const in, out = 1024, 512
	for _, name := range []string{"F32", "F16"} {
		w := randWeight(b, name, in, out, 1)
		for _, tokens := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/tokens=%d/impl=go", name, tokens), func(b *testing.B) {
				var s Scratch
				x := randFloats(tokens*in, 2)
				y := make([]float32, tokens*out)
				for b.Loop() {
					MatMulFloat(y, out, w, 0, out, nil, x, in, tokens, &s)
				}
				reportMACs(b, in*out*tokens)
			})
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	x := randFloats(4096, 1)
	for _, tokens := range []int{1, 4} {
		b.Run(fmt.Sprintf("tokens=%d/impl=go", tokens), func(b *testing.B) {
			var acts QActs
			b.SetBytes(int64(len(x) * 4))
			for b.Loop() {
				acts.Quantize(x, len(x)/tokens, tokens, len(x)/tokens)
			}
		})
	}
}

func BenchmarkRows(b *testing.B) {
	x, y, z := randFloats(4096, 1), randFloats(4096, 2), make([]float32, 4096)
	for _, k := range []struct {
		name string
		run  func()
	}{
		{"RMSNorm", func() { RMSNorm(z, x, y, 1e-5) }},
		{"SwiGLU", func() { SwiGLU(z, x, y) }},
		{"Gelu", func() { GeluTo(z, x) }},
		{"Softmax", func() { Softmax(z, x) }},
		{"Add", func() { Add(z, x, y) }},
	} {
		b.Run(k.name+"/impl=go", func(b *testing.B) {
			b.SetBytes(int64(len(x) * 4))
			for b.Loop() {
				k.run()
			}
		})
	}
}

func BenchmarkRoPE(b *testing.B) {
	r := mustRoPE(b, RoPEParams{Dim: 128, Base: 1e6, Scale: 1})
	cos, sin := make([]float32, 64), make([]float32, 64)
	x := randFloats(128*16, 1)
	b.Run("CosSin/impl=go", func(b *testing.B) {
		for b.Loop() {
			r.CosSin(cos, sin, 12345)
		}
	})
	b.Run("Rotate/impl=go", func(b *testing.B) {
		b.SetBytes(int64(len(x) * 4))
		for b.Loop() {
			Rotate(x, x, 128, HalfSplit, cos, sin)
		}
	})
}

func BenchmarkAttend(b *testing.B) {
	const n, dim = 1024, 64
	for _, heads := range []int{1, 7} {
		for _, wide := range []bool{false, true} {
			b.Run(fmt.Sprintf("heads=%d/f32=%v/impl=go", heads, wide), func(b *testing.B) {
				k, v := randKV(n, dim, wide, 1)
				a := &Attention{K: k, V: v, HeadDim: dim, Scale: 0.125, N: n}
				q, out := randFloats(heads*dim, 3), make([]float32, heads*dim)
				var s Scratch
				for b.Loop() {
					Attend(out, q, a, &s)
				}
				reportMACs(b, 2*n*dim*heads)
			})
		}
	}
}

func reportMACs(b *testing.B, macs int) {
	b.ReportMetric(float64(macs)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}
