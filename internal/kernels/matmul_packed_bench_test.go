//go:build amd64 && !purego && linux

package kernels

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/minfer/minfer/internal/quant"
)

// hugeBytes returns n bytes of zeros in large pages where the system gives them.
func hugeBytes(b *testing.B, n int) []byte {
	const page = 2 << 20
	m, err := syscall.Mmap(-1, 0, n+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { syscall.Munmap(m) })
	syscall.Madvise(m, 14) // MADV_HUGEPAGE
	return m[:n]
}

// bigPacked makes a weight of ordinary values of at least size bytes, by repeating some rows.
func bigPacked(b *testing.B, name string, in, size int) *Packed {
	const rows = 256
	w := randWeight(b, name, in, rows, 1)
	small := mustPack(b, w)
	times := size/len(small.Data) + 1
	data := hugeBytes(b, times*len(small.Data))
	for i := range times {
		copy(data[i*len(small.Data):], small.Data)
	}
	p, err := NewPacked(w.Format, in, rows*times, data)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func benchTiers(b *testing.B, run func(b *testing.B, tier Tier)) {
	for _, tier := range Tiers() {
		impl := "asm"
		if tier == Generic {
			impl = "go"
		}
		b.Run(fmt.Sprintf("tier=%v/impl=%s", tier, impl), func(b *testing.B) { run(b, tier) })
	}
}

// BenchmarkRoof measures what the machine can do, for comparison: reading memory, in
// large pages, and dot products and fused multiply-adds in registers.
func BenchmarkRoof(b *testing.B) {
	b.Run("read", func(b *testing.B) {
		data := hugeBytes(b, 320<<20)
		for i := range data {
			data[i] = byte(i)
		}
		benchTiers(b, func(b *testing.B, tier Tier) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				tier.ReadMemory(data)
			}
		})
	})
	for name, roof := range map[string]func(Tier, int) int{"dots": Tier.DotProducts, "fmas": Tier.MultiplyAdds} {
		b.Run(name, func(b *testing.B) {
			benchTiers(b, func(b *testing.B, tier Tier) {
				if tier == Generic {
					b.Skip("plain Go has no vectors")
				}
				macs := 0
				for b.Loop() {
					macs = roof(tier, 1e6)
				}
				reportMACs(b, macs)
			})
		})
	}
}

// BenchmarkPackedVector reads more weights than any cache holds.
func BenchmarkPackedVector(b *testing.B) {
	const in, size = 1024, 320 << 20
	for _, name := range integerFormats {
		for _, tokens := range []int{1, 2, 4} {
			var p *Packed // made only if one of the tiers is to be measured
			b.Run(fmt.Sprintf("%s/tokens=%d", name, tokens), func(b *testing.B) {
				owner := b // the memory is freed when the last tier is done
				benchTiers(b, func(b *testing.B, tier Tier) {
					if p == nil {
						p = bigPacked(owner, name, in, size)
					}
					w := p
					if tier == Generic {
						w, _ = NewPacked(p.Format, in, 4096, p.Data)
					}
					acts, s, out := QActs{Tier: tier}, Scratch{}, make([]float32, tokens*w.Out)
					acts.Quantize(randFloats(tokens*in, 2), in, tokens, in)
					b.SetBytes(int64(len(w.Data)))
					for b.Loop() {
						MatMulPacked(out, w.Out, w, 0, w.Blocks(), nil, &acts, &s)
					}
				})
			})
		}
	}
}

// BenchmarkPackedMatrix has the shape of the largest matrix of a small model.
func BenchmarkPackedMatrix(b *testing.B) {
	for _, name := range integerFormats {
		for _, shape := range [][3]int{{1024, 4864, 512}, {4864, 1024, 512}, {1024, 4864, 8}} {
			in, out, tokens := shape[0], shape[1], shape[2]
			f, _ := quant.Lookup(name)
			in -= in % f.Block
			w := mustPack(b, randWeight(b, name, in, out, 1))
			x := randFloats(tokens*in, 2)
			b.Run(fmt.Sprintf("%s/%dx%dx%d", name, out, in, tokens), func(b *testing.B) {
				benchTiers(b, func(b *testing.B, tier Tier) {
					w := w
					if tier == Generic {
						w, _ = NewPacked(w.Format, in, 64, w.Data)
					}
					acts, s, y := QActs{Tier: tier}, Scratch{}, make([]float32, tokens*w.Out)
					acts.Quantize(x, in, tokens, in)
					for b.Loop() {
						MatMulPacked(y, w.Out, w, 0, w.Blocks(), nil, &acts, &s)
					}
					reportMACs(b, in*w.Out*tokens)
				})
			})
		}
	}
}

// BenchmarkPack packs some memory's worth of rows, to a place that is in the cache.
func BenchmarkPack(b *testing.B) {
	const in, rows, times = 1024, 1024, 64
	for _, name := range formatNames {
		b.Run(name, func(b *testing.B) {
			w := randWeight(b, name, in, rows, 1)
			p := mustPack(b, w)
			size := len(w.Data)
			data := hugeBytes(b, times*size)
			for i := range times {
				copy(data[i*size:], w.Data)
			}
			benchTiers(b, func(b *testing.B, tier Tier) {
				b.SetBytes(times * int64(size))
				for b.Loop() {
					for i := range times {
						w.Data = data[i*size:][:size]
						for r := range rows / PackedRows {
							Pack(p.Data[:len(p.Data)/rows*PackedRows], &Weight{w.Format, in, PackedRows, w.Data[r*PackedRows*w.rowBytes:][:PackedRows*w.rowBytes], w.rowBytes}, 0, 1, tier)
						}
					}
				}
			})
		})
	}
}

func BenchmarkQuantizePanel(b *testing.B) {
	const in = 1024
	for _, tokens := range []int{1, 4, 64} {
		b.Run(fmt.Sprintf("tokens=%d", tokens), func(b *testing.B) {
			benchTiers(b, func(b *testing.B, tier Tier) {
				x := randFloats(tokens*in, 1)
				acts := QActs{Tier: tier}
				b.SetBytes(int64(len(x) * 4))
				for b.Loop() {
					acts.Quantize(x, in, tokens, in)
				}
			})
		})
	}
}
