package cpu

import (
	"math"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
)

// TestAttentionCut: however tokens, heads and chunks are divided among threads, and
// whatever the instructions, attention gives the same bits.
func TestAttentionCut(t *testing.T) {
	const cells, dim = 1200, 32
	shared := []kernels.Run{{Cell: 160, Len: 640}, {Cell: 800, Len: 400}}
	other := []kernels.Run{{Cell: 512, Len: 512}}
	for _, c := range []struct {
		name           string
		heads, kvHeads int
		window         int
		positions      []int32
		runs           [][]kernels.Run
	}{
		{"one token", 14, 2, 0, []int32{1000}, nil},
		{"one token of a window", 14, 2, 300, []int32{1000}, nil},
		{"one key head", 2, 1, 0, []int32{700}, [][]kernels.Run{shared}},
		{"two sequences", 4, 1, 0, []int32{700, 500}, [][]kernels.Run{shared, other}},
		{"short and long", 4, 2, 0, []int32{2, 1100}, nil},
		{"prompt", 4, 2, 0, sequence(300, 90), nil},
		{"batch", 8, 4, 0, []int32{400, 401, 402, 300, 301, 20}, [][]kernels.Run{shared, shared, shared, other, other, shared}},
	} {
		width := c.kvHeads * dim
		k, v := kernels.NewKeys(cells, width, false), kernels.NewValues(cells, width, false)
		row := make([]float32, width)
		for cell := range cells {
			for d := range row {
				row[d] = float32(math.Sin(float64(cell*width + d)))
			}
			k.Store(cell, row)
			v.Store(cell, row)
		}
		q := make([]float32, len(c.positions)*c.heads*dim)
		for i := range q {
			q[i] = float32(math.Cos(float64(i))) * 3
		}
		var spans []int32
		for _, runs := range c.runs {
			for _, r := range runs {
				spans = append(spans, r.Cell, r.Len)
			}
			spans = append(spans, make([]int32, 2*(graph.MaxRuns-len(runs)))...)
		}
		var want []float32
		for _, threads := range []int{1, 2, 3, 8} {
			for _, tier := range kernels.Tiers() {
				b, err := open(backend.Config{Threads: threads, Instructions: tier.String()})
				if err != nil {
					t.Fatal(err)
				}
				d := b.(*device)
				w := &d.work.attend
				w.payload = graph.Attention{Heads: c.heads, KVHeads: c.kvHeads, HeadDim: dim, Scale: 0.3, Window: c.window}
				w.op, w.out, w.q, w.k, w.v, w.positions = &w.payload, make([]float32, len(q)), q, k, v, c.positions
				for range 2 { // the second time with memory of the first
					longest, err := w.measure(spans, cells)
					if err == nil {
						err = d.attend(w, longest)
					}
					if err != nil {
						t.Fatal(err)
					}
					if want == nil {
						want = append(want, w.out...)
					}
					for i, x := range w.out {
						if x != want[i] {
							t.Fatalf("%s: %d threads, %v: value %d is %g, want %g", c.name, threads, tier, i, x, want[i])
						}
					}
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func sequence(from, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(from + i)
	}
	return x
}
