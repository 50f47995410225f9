package minfer_test

import (
	"testing"
	"time"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/mmap"
)

// BenchmarkStepOverhead is a decode step of a model with the layers of one of half a billion
// parameters, but with matrices so small that next to nothing is computed: what is left is the
// session, the scheduler, the checks of the device and the hand-over to its threads. The share is of a step
// that reads 346 MB of weights, the Qwen2-0.5B in Q4_0, at the limit of the machine's memory.
func BenchmarkStepOverhead(b *testing.B) {
	const layers, weights = 24, 346e6
	bytes := smallModel{vocab: 300, embed: gguf.TypeF32, ffn: gguf.TypeF32, layers: layers}.bytes(b)
	limit := readLimit(b)
	for _, threads := range []int{1, 2} {
		b.Run(map[int]string{1: "threads=1", 2: "threads=2"}[threads], func(b *testing.B) {
			m, err := minfer.OpenBytes(bytes, minfer.WithThreads(threads))
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			s, err := m.NewSession()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			token := []minfer.Token{7}
			for b.Loop() {
				if s.Len() == s.Context() {
					if err := s.Rewind(0); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := s.Eval(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
			step := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(100*step/(weights/limit), "%-of-a-step")
		})
	}
}

// readLimit is how many bytes of memory a thread reads in a second.
func readLimit(b *testing.B) float64 {
	tier, err := kernels.DefaultTier()
	if err != nil {
		b.Fatal(err)
	}
	m, err := mmap.Anonymous(256 << 20)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	data := m.Bytes()
	for i := range data {
		data[i] = byte(i)
	}
	best := time.Duration(1 << 62)
	for range 5 {
		begun := time.Now()
		tier.ReadMemory(data)
		best = min(best, time.Since(begun))
	}
	return float64(len(data)) / best.Seconds()
}
