package kernels

import (
	"fmt"
	"math"
	"testing"
)

// attendCase is one head group over a shuffled region.
type attendCase struct {
	n, window, heads, dim int
	wide                  bool
	runs                  []Run
}

// cellOf follows the runs the slow way.
func (c *attendCase) cellOf(p int) int {
	left := p
	for _, r := range c.runs {
		if left < int(r.Len) {
			return int(r.Cell) + left
		}
		left -= int(r.Len)
	}
	return p
}

// define is the formula of the package comment for one head, position by position.
func (c *attendCase) define(k, v *KVRegion, kvHead int, q []float32, scale float32) []float32 {
	first := 0
	if c.window > 0 {
		first = max(0, c.n-c.window)
	}
	m, l := float32(math.Inf(-1)), float32(0)
	acc := make([]float32, c.dim)
	row := make([]float32, c.dim)
	for chunk := 0; chunk < c.n; chunk += 128 {
		end := min(chunk+128, c.n)
		if end <= first {
			continue
		}
		scores := map[int]float32{}
		mc := float32(math.Inf(-1))
		for p := max(chunk, first); p < end; p++ {
			k.Load(row, c.cellOf(p), kvHead*c.dim)
			var s float32
			for d := range row {
				s = FMA(q[d]*scale, row[d], s)
			}
			scores[p] = s
			if s > mc {
				mc = s
			}
		}
		var lanes [16]float32
		part := make([]float32, c.dim)
		for p := max(chunk, first); p < end; p++ {
			w := Exp(scores[p] - mc)
			lanes[p%16] += w
			v.Load(row, c.cellOf(p), kvHead*c.dim)
			for d := range row {
				part[d] = FMA(w, row[d], part[d])
			}
		}
		for _, step := range []int{8, 4, 2, 1} {
			for j := range step {
				lanes[j] += lanes[j+step]
			}
		}
		next := m
		if mc > next {
			next = mc
		}
		f, g := Exp(m-next), Exp(mc-next)
		m, l = next, FMA(lanes[0], g, l*f)
		for d := range acc {
			acc[d] = FMA(part[d], g, acc[d]*f)
		}
	}
	for d := range acc {
		acc[d] *= 1 / l
	}
	return acc
}

// exact is softmax attention in float64.
func (c *attendCase) exact(k, v *KVRegion, kvHead int, q []float32, scale float32) []float64 {
	out, row := make([]float64, c.dim), make([]float32, c.dim)
	var total float64
	for p := range c.n {
		if c.window > 0 && p <= c.n-1-c.window {
			continue
		}
		k.Load(row, c.cellOf(p), kvHead*c.dim)
		var s float64
		for d := range row {
			s += float64(q[d]) * float64(row[d])
		}
		w := math.Exp(s * float64(scale))
		total += w
		v.Load(row, c.cellOf(p), kvHead*c.dim)
		for d := range row {
			out[d] += w * float64(row[d])
		}
	}
	for d := range out {
		out[d] /= total
	}
	return out
}

func TestAttend(t *testing.T) {
	const cells, kvHeads = 700, 2
	whole := []Run{{0, 600}}
	split := []Run{{500, 100}, {0, 0}, {20, 7}, {130, 129}, {300, 200}}
	var cases []attendCase
	for _, n := range []int{1, 2, 15, 16, 17, 127, 128, 129, 255, 256, 257, 300, 436} {
		for _, window := range []int{0, 1, 5, 128, 130, 200} {
			cases = append(cases, attendCase{n: n, window: window, heads: 1 + n%3, dim: 16, wide: n%2 == 0, runs: split})
		}
	}
	cases = append(cases,
		attendCase{n: 300, heads: 7, dim: 64, runs: whole}, attendCase{n: 300, heads: 7, dim: 64},
		attendCase{n: 260, heads: 2, dim: 13, wide: true, runs: whole}, attendCase{n: 131, heads: 1, dim: 1, runs: nil})
	var s Scratch
	for _, c := range cases {
		k, v := randKV(cells, kvHeads*c.dim, c.wide, 1)
		q := randFloats(c.heads*c.dim, uint64(c.n))
		scale := float32(1 / math.Sqrt(float64(c.dim)))
		a := &Attention{K: k, V: v, HeadDim: c.dim, KVHead: 1, Scale: scale, N: c.n, Runs: c.runs, Window: c.window}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		out := make([]float32, len(q))
		Attend(out, q, a, &s)
		for h := range c.heads {
			name := fmt.Sprintf("n %d window %d head %d dim %d", c.n, c.window, h, c.dim)
			qh, oh := q[h*c.dim:][:c.dim], out[h*c.dim:][:c.dim]
			sameBits(t, name, oh, c.define(k, v, 1, qh, scale))
			for d, want := range c.exact(k, v, 1, qh, scale) {
				if math.Abs(float64(oh[d])-want) > 4e-6 {
					t.Fatalf("%s: element %d is %g, exact %g", name, d, oh[d], want)
				}
			}
			alone := append([]float32{}, qh...)
			Attend(alone, alone, a, &s)
			sameBits(t, name+" alone, in place", alone, oh)
		}
	}
}

// TestAttendMasks: what lies in masked cells, or beyond the query's
// position, has no influence even when it is not a number.
func TestAttendMasks(t *testing.T) {
	const n, window, dim = 300, 50, 8
	k, v := randKV(400, dim, true, 1)
	q := randFloats(dim, 3)
	a := &Attention{K: k, V: v, HeadDim: dim, Scale: 1, N: n, Window: window}
	var s Scratch
	want, got := make([]float32, dim), make([]float32, dim)
	Attend(want, q, a, &s)
	for c := range 400 {
		if c < n-window || c >= n {
			k.Store(c, fullOf(dim, float32(math.NaN())))
			v.Store(c, fullOf(dim, float32(math.Inf(1))))
		}
	}
	Attend(got, q, a, &s)
	sameBits(t, "with damage in masked cells", got, want)
	a.N++
	Attend(got, q, a, &s)
	for d, o := range got {
		if o == o {
			t.Errorf("element %d of a query that sees a NaN is %g", d, o)
		}
	}
}

func fullOf(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

// TestAttendLargeScores: scores far apart neither overflow nor vanish together.
func TestAttendLargeScores(t *testing.T) {
	k, v := NewKeys(260, 1, true), NewValues(260, 1, true)
	for c := range 260 {
		k.Store(c, []float32{float32(c * 1000)})
		v.Store(c, []float32{float32(c)})
	}
	var s Scratch
	out := make([]float32, 1)
	for _, q := range []float32{1, -1} {
		a := &Attention{K: k, V: v, HeadDim: 1, Scale: 1, N: 260}
		Attend(out, []float32{q}, a, &s)
		want := float32(259)
		if q < 0 {
			want = 0
		}
		sameBits(t, "the largest score alone", out, []float32{want})
	}
}

func TestKVRegion(t *testing.T) {
	const cells = 37 // two blocks and some
	special := []float32{1, -2.5, 65504, 65520, 0x1p-24, 0x1p-25, 0x1.8p-25, 1 + 0x1p-11, 1 + 0x1.8p-10, float32(math.NaN())}
	inf := float32(math.Inf(1))
	half := []float32{1, -2.5, 65504, inf, 0x1p-24, 0, 0x1p-24, 1, 1 + 0x1p-9, float32(math.NaN())}
	for _, dim := range []int{10, 16, 41, 64} {
		row, want := make([]float32, dim), make([]float32, dim)
		for d := range dim {
			row[d], want[d] = special[d%10], half[d%10]
		}
		for _, wide := range []bool{false, true} {
			if wide {
				want = row
			}
			for i, k := range []*KVRegion{NewKeys(cells, dim, wide), NewValues(cells, dim, wide)} {
				for _, tier := range Tiers() {
					k.Tier = tier
					name := fmt.Sprintf("dim %d wide %v region %d tier %v", dim, wide, i, tier)
					checkRegion(t, name, k, cells, row, want)
				}
			}
		}
	}
}

// checkRegion stores a row to some cells and sees that it is there, and nowhere else.
func checkRegion(t *testing.T, name string, k *KVRegion, cells int, row, want []float32) {
	t.Helper()
	if k.Cells() != cells {
		t.Fatalf("%s: %d cells, want %d", name, k.Cells(), cells)
	}
	zero, got := make([]float32, k.Dim), make([]float32, k.Dim)
	for _, cell := range []int{0, 15, 17, 31, 32, 36} {
		k.Store(cell, row)
		for c := range cells {
			k.Load(got, c, 0)
			if c != cell {
				sameBits(t, name+", another cell", got, zero)
				continue
			}
			sameBits(t, name, got, want)
			part := got[:k.Dim-3]
			k.Load(part, c, 2)
			sameBits(t, name+", part of it", part, want[2:k.Dim-1])
		}
		k.Store(cell, zero)
	}
}

// TestStoreRows: many rows lie as if each were stored by itself, whether or not their cells make up blocks.
func TestStoreRows(t *testing.T) {
	const cells = 75
	lists := map[string][]int32{
		"in order":      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17},
		"within blocks": {14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33},
		"a gap":         {32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 48, 47},
		"the end":       {48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74},
		"short":         {16, 17, 18},
	}
	for _, dim := range []int{1, 8, 16, 24, 32, 48, 96, 128} {
		rows := randFloats(27*dim, uint64(dim))
		copy(rows[3:], trickyFloats(20, uint64(dim)))
		for name, list := range lists {
			for _, wide := range []bool{false, true} {
				for i, make := range []func(int, int, bool) *KVRegion{NewKeys, NewValues} {
					want := make(cells, dim, wide)
					for j, c := range list {
						want.Store(int(c), rows[j*dim:])
					}
					for _, tier := range Tiers() {
						got := make(cells, dim, wide)
						got.Tier = tier
						cut := dim / 2 // of rows that are stored in two parts, at the end of a vector or not
						got.StoreRows(list, 0, cut, rows[:len(list)*dim], dim)
						got.StoreRows(list, cut, dim-cut, rows[cut:len(list)*dim], dim)
						what := fmt.Sprintf("%s: dim %d wide %v region %d tier %v", name, dim, wide, i, tier)
						a, b := []float32{}, []float32{}
						for c := range cells {
							row := [2][]float32{fullOf(dim, 0), fullOf(dim, 0)}
							want.Load(row[0], c, 0)
							got.Load(row[1], c, 0)
							a, b = append(a, row[0]...), append(b, row[1]...)
						}
						sameBits(t, what, b, a)
					}
				}
			}
		}
	}
}

func TestAttentionCheck(t *testing.T) {
	region := NewValues(10, 8, false)
	good := Attention{K: region, V: region, HeadDim: 4, KVHead: 1, Scale: 1, N: 5, Runs: []Run{{7, 3}, {0, 0}, {0, 2}}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Attention){
		"no positions":   func(a *Attention) { a.N = 0 },
		"too many":       func(a *Attention) { a.N, a.Runs = 11, nil },
		"runs too short": func(a *Attention) { a.N = 6 },
		"run beyond":     func(a *Attention) { a.Runs = []Run{{8, 5}} },
		"overflowing":    func(a *Attention) { a.Runs = []Run{{math.MaxInt32, math.MaxInt32}} },
		"negative cell":  func(a *Attention) { a.Runs = []Run{{-1, 6}} },
		"negative run":   func(a *Attention) { a.Runs = []Run{{0, -1}, {0, 6}} },
		"window":         func(a *Attention) { a.Window = -1 },
		"head":           func(a *Attention) { a.KVHead = 2 },
		"head size":      func(a *Attention) { a.HeadDim = 0 },
	} {
		a := good
		spoil(&a)
		if a.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
