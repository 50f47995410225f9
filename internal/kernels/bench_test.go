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
	const n = 4864
	x, y, z, half := randFloats(n, 1), randFloats(n, 2), make([]float32, n), make([]uint16, n)
	keys, few, sixteen := NewKeys(16, n, false), NewKeys(16, n/16, false), []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	for _, k := range []struct {
		name string
		run  func(t Tier)
	}{
		{"RMSNorm", func(t Tier) { t.RMSNorm(z, x, y, 1e-5) }},
		{"SwiGLU", func(t Tier) { t.SwiGLU(z, x, y) }},
		{"Gelu", func(t Tier) { t.GeluTo(z, x) }},
		{"Softmax", func(t Tier) { t.Softmax(z, x) }},
		{"Add", func(t Tier) { t.Add(z, x, y) }},
		{"EncodeF16", func(t Tier) { t.EncodeF16(half, x) }},
		{"DecodeF16", func(t Tier) { t.DecodeF16(z, half) }},
		{"StoreKeys", func(t Tier) { keys.Tier = t; keys.Store(3, x) }},
		{"StoreBlock", func(t Tier) { few.Tier = t; few.StoreRows(sixteen, 0, n/16, x, n/16) }},
	} {
		for _, t := range Tiers() {
			b.Run(k.name+"/impl="+tierNamed(t), func(b *testing.B) {
				for b.Loop() {
					k.run(t)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/value")
			})
		}
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
	r.CosSin(cos, sin, 12345)
	for _, t := range Tiers() {
		b.Run("Rotate/impl="+tierNamed(t), func(b *testing.B) {
			for b.Loop() {
				t.Rotate(x, x, 128, HalfSplit, cos, sin)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(x)), "ns/value")
		})
	}
}

func reportMACs(b *testing.B, macs int) {
	b.ReportMetric(float64(macs)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}
