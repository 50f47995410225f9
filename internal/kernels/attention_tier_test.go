package kernels

import (
	"fmt"
	"math"
	"testing"
)

// tileCase is tokens of one group over regions.
type tileCase struct {
	dim, heads int
	wide       bool
	window     int
	runs       []Run
	lengths    []int
}

func (c tileCase) String() string {
	return fmt.Sprintf("dim %d heads %d f32 %v window %d runs %v lengths %v", c.dim, c.heads, c.wide, c.window, c.runs, c.lengths)
}

// definition computes every token by itself in plain Go.
func (c *tileCase) definition(a Attention, q []float32, stride int) []float32 {
	var s Scratch
	out := make([]float32, len(q))
	for i, n := range c.lengths {
		a.N = n
		Attend(out[i*stride:][:c.heads*c.dim], q[i*stride:][:c.heads*c.dim], &a, &s)
	}
	return out
}

func sequenceOf(from, n int) []int {
	x := make([]int, n)
	for i := range x {
		x[i] = from + i
	}
	return x
}

// checkTile compares each tier with the definition: the tile, each token alone, and its chunks
// one by one.
func checkTile(t *testing.T, c tileCase, k, v *KVRegion, q []float32, kvHead int) {
	t.Helper()
	size := c.heads * c.dim
	stride := size + 5
	a := Attention{K: k, V: v, HeadDim: c.dim, KVHead: kvHead, Scale: float32(1 / math.Sqrt(float64(c.dim))), Runs: c.runs, Window: c.window}
	for _, n := range c.lengths {
		a.N = n
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
	}
	q = q[:stride*len(c.lengths)]
	want := c.definition(a, q, stride)
	for _, tier := range Tiers() {
		if tier == AVXVNNI || tier == Generic && len(c.lengths) > 12 {
			continue // computes as AVX2 does; takes long
		}
		s := Scratch{Tier: tier}
		name := fmt.Sprintf("%v: %v", tier, c)
		out := newFenced(len(q), float32(-77))
		AttendTile(out.x, q, stride, size, &a, c.lengths, &s)
		for i := range c.lengths {
			sameBits(t, fmt.Sprintf("%s, token %d", name, i), out.x[i*stride:][:size], want[i*stride:][:size])
			for j := size; j < stride; j++ {
				if out.x[i*stride+j] != -77 {
					t.Fatalf("%s: wrote between the rows", name)
				}
			}
		}
		out.check(t, name)
		i := len(c.lengths) - 1
		a.N = c.lengths[i]
		last, alone := q[i*stride:][:size], newFenced(size, float32(-77))
		Attend(alone.x, last, &a, &s)
		sameBits(t, name+", alone", alone.x, want[i*stride:][:size])
		alone.check(t, name+", alone")

		checkChunks(t, name, a, last, tier)
	}
}

// checkChunks compares all heads of a token, in pieces, with the definition of each. The first heads have
// the queries q, the others ones like them.
func checkChunks(t *testing.T, name string, a Attention, q []float32, tier Tier) {
	t.Helper()
	kvHeads, group := a.K.Dim/a.HeadDim, len(q)/a.HeadDim
	all, want := make([]float32, kvHeads*len(q)), make([]float32, kvHeads*len(q))
	var plain Scratch
	for h := range kvHeads {
		qh := all[h*len(q):][:len(q)]
		for d := range qh {
			qh[d] = q[(d+3*h)%len(q)]
		}
		one := a
		one.KVHead = h
		Attend(want[h*len(q):][:len(q)], qh, &one, &plain)
	}
	s := Scratch{Tier: tier}
	heads := kvHeads * group
	first, count := a.Chunks()
	parts, out := newFenced(count*PartialLen(heads, a.HeadDim), float32(-77)), newFenced(len(all), float32(-77))
	for from := 0; from < count; from += 2 {
		to := min(count, from+2)
		AttendChunks(parts.x[from*PartialLen(heads, a.HeadDim):], all, &a, first+from, first+to, &s)
	}
	parts.check(t, name+", chunks")
	for from := 0; from < heads; from += 3 {
		MergeChunks(out.x, parts.x, &a, from, min(heads, from+3), &s)
	}
	out.check(t, name+", merged")
	sameBits(t, name+", merged", out.x, want)
}

func TestAttendTiers(t *testing.T) {
	fastTiers(t)
	const cells = 720
	aligned := []Run{{320, 160}, {0, 0}, {64, 16}, {480, 240}, {0, 32}}
	odd := []Run{{500, 100}, {0, 0}, {20, 7}, {130, 129}, {300, 196}}
	half := []Run{{320, 160}, {68, 100}, {480, 200}} // begins well, ends badly
	var cases []tileCase
	for _, dim := range []int{1, 13, 16, 32, 40, 64, 80, 96, 112, 128, 256} {
		for i, runs := range [][]Run{nil, aligned, odd, half} {
			c := tileCase{dim: dim, heads: 1 + (dim+3*i)%8, runs: runs, wide: (dim/16+i)%2 == 0, lengths: sequenceOf(122, 12)}
			cases = append(cases, c)
			c.wide, c.window, c.lengths, c.heads = !c.wide, 100, sequenceOf(247, 12), 2
			cases = append(cases, c)
		}
	}
	for heads := 1; heads <= 9; heads++ {
		cases = append(cases,
			tileCase{dim: 48, heads: heads, wide: heads%3 == 0, runs: aligned, lengths: sequenceOf(120, 18+64/heads)},
			tileCase{dim: 32, heads: heads, lengths: []int{400}},
			tileCase{dim: 32, heads: heads, wide: true, lengths: []int{400}})
	}
	for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 143, 144, 145, 255, 256, 257, 383, 384, 385} {
		for _, window := range []int{0, 1, 5, 16, 128, 130, 200} {
			cases = append(cases, tileCase{dim: 32, heads: 3, wide: n%3 == 0, window: window, runs: aligned, lengths: sequenceOf(n, 1+n%9)})
		}
	}
	cases = append(cases, // not ascending, with jumps, all the same
		tileCase{dim: 32, heads: 2, lengths: []int{300, 4, 4, 9, 600, 301, 1}},
		tileCase{dim: 32, heads: 2, window: 40, lengths: []int{1, 170, 171, 500, 700}},
		tileCase{dim: 48, heads: 4, runs: aligned, lengths: []int{440, 440, 440, 440}},
		// several parts, of which a chunk completes none, one, or some tokens
		tileCase{dim: 40, heads: 3, runs: odd, lengths: sequenceOf(90, 100)},
		tileCase{dim: 32, heads: 3, runs: aligned, lengths: sequenceOf(30, 140)},
		tileCase{dim: 32, heads: 3, wide: true, window: 70, lengths: sequenceOf(60, 150)})
	type shape struct {
		dim  int
		wide bool
	}
	keys, values := map[shape]*KVRegion{}, map[shape]*KVRegion{}
	q := randFloats(80*9*256, 7)
	for _, c := range cases {
		s := shape{c.dim, c.wide}
		if keys[s] == nil {
			keys[s], values[s] = randKV(cells, 2*c.dim, c.wide, 1)
		}
		checkTile(t, c, keys[s], values[s], q, 1)
	}
}

// TestAttendTiersSpecial: infinite, NaN and subnormal numbers in what is seen do what they do
// in the definition, and in what is not seen nothing.
func TestAttendTiersSpecial(t *testing.T) {
	fastTiers(t)
	const cells, dim = 320, 32
	for _, wide := range []bool{false, true} {
		for seed := range uint64(24) {
			k, v := randKV(cells, dim, wide, seed)
			r := lcg(seed)
			special := trickyFloats(cells*dim, seed)
			row := make([]float32, dim)
			for range 1 + seed%5 {
				cell, d := int(r.next()%cells), int(r.next()%dim)
				region := []*KVRegion{k, v}[r.next()>>31]
				region.Load(row, cell, 0)
				row[d] = special[cell*dim+d]
				region.Store(cell, row)
			}
			q := randFloats(40*(2*dim+5), seed)
			if seed%4 == 0 {
				q[5] = float32(math.Inf(1))
			}
			window := int(seed%3) * 50
			checkTile(t, tileCase{dim: dim, heads: 2, wide: wide, window: window, lengths: sequenceOf(260, 33)}, k, v, q, 0)
			checkTile(t, tileCase{dim: dim, heads: 2, wide: wide, window: window, lengths: []int{17, 129}}, k, v, q, 0)
		}
	}
	// Values so small that weighing makes zeros of either sign, and keys of one sign only.
	k, v := NewKeys(cells, dim, false), NewValues(cells, dim, false)
	row := make([]float32, dim)
	for c := range cells {
		for d := range row {
			row[d] = float32(c%3-1) * 0x1p-24
		}
		v.Store(c, row)
		for d := range row {
			row[d] = -40 * float32(c%7)
		}
		k.Store(c, row)
	}
	checkTile(t, tileCase{dim: dim, heads: 2, window: 150, lengths: sequenceOf(200, 30)}, k, v, fullOf(40*(2*dim+5), 1), 0)
	infinite := fullOf(dim, float32(math.Inf(-1)))
	for c := range 130 {
		k.Store(c, infinite) // a chunk without a finite score
	}
	checkTile(t, tileCase{dim: dim, heads: 2, lengths: sequenceOf(100, 60)}, k, v, fullOf(70*(2*dim+5), 1), 0)
}

// TestAttendSteadyState: once buffers have grown, nothing is allocated.
func TestAttendSteadyState(t *testing.T) {
	k, v := randKV(512, 64, false, 1)
	q, out := randFloats(8*64, 2), make([]float32, 8*64)
	lengths := []int{397, 398, 399, 400}
	a := &Attention{K: k, V: v, HeadDim: 32, KVHead: 1, Scale: 1, N: 400}
	parts := make([]float32, 4*PartialLen(4, 32))
	for _, tier := range Tiers() {
		s := Scratch{Tier: tier}
		run := func() {
			Attend(out[:64], q[:64], a, &s)
			AttendTile(out, q, 64, 64, a, lengths, &s)
			AttendChunks(parts, q[:128], a, 0, 4, &s)
			MergeChunks(out[:128], parts, a, 0, 4, &s)
		}
		run()
		if n := testing.AllocsPerRun(10, run); n != 0 {
			t.Errorf("%v: %v allocations", tier, n)
		}
	}
}

// FuzzAttendTiers compares tiers with the definition for whatever shape, order of cells and
// lengths the bytes spell.
func FuzzAttendTiers(f *testing.F) {
	f.Add(uint8(64), uint8(7), uint8(0), uint16(300), uint8(9), []byte{20, 20, 2, 3, 10, 20}, uint64(1))
	f.Add(uint8(32), uint8(2), uint8(90), uint16(130), uint8(40), []byte{}, uint64(2))
	f.Add(uint8(24), uint8(1), uint8(0), uint16(5), uint8(3), []byte{0, 3, 30, 17, 4, 1}, uint64(3))
	f.Fuzz(func(t *testing.T, dim, heads, window uint8, from uint16, tokens uint8, spelled []byte, seed uint64) {
		const cells = 512
		c := tileCase{dim: int(dim)%160 + 1, heads: int(heads)%9 + 1, window: int(window), wide: seed%2 == 1}
		var runs []Run
		total := 0
		for i := 0; i+1 < len(spelled) && i < 16; i += 2 {
			// An even byte spells whole blocks, an odd one any cell.
			r := Run{Cell: int32(spelled[i]) * 2 % cells, Len: int32(spelled[i+1])}
			if spelled[i]%2 == 0 {
				r = Run{Cell: int32(spelled[i]) * 8 % cells &^ 15, Len: int32(spelled[i+1]) * 8 &^ 15}
			}
			r.Len = min(r.Len, cells-r.Cell)
			runs, total = append(runs, r), total+int(r.Len)
		}
		total = min(total, cells)
		if total == 0 {
			runs, total = nil, cells
		}
		c.runs = runs
		first := 1 + int(from)%total
		c.lengths = sequenceOf(first, min(1+int(tokens)%80, total-first+1))
		k, v := randKV(cells, 2*c.dim, c.wide, seed)
		checkTile(t, c, k, v, randFloats(80*(c.heads*c.dim+5), seed+9), int(seed/2)%2)
	})
}
