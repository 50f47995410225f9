package kernels

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/minfer/minfer/internal/quant"
)

// fastTiers are those whose kernels are compared with the definition.
func fastTiers(t testing.TB) []Tier {
	tiers := Tiers()[1:]
	if len(tiers) == 0 {
		t.Skip("this machine or build has the definition only")
	}
	return tiers
}

// fenced is a slice between guard words, and how to see that they are untouched.
type fenced[T comparable] struct {
	all  []T
	x    []T
	word T
}

const fenceWords = 33 // odd, so that slices are not aligned

func newFenced[T comparable](n int, word T) *fenced[T] {
	g := &fenced[T]{all: make([]T, n+2*fenceWords), word: word}
	for i := range g.all {
		g.all[i] = word
	}
	g.x = g.all[fenceWords : fenceWords+n : fenceWords+n]
	return g
}

func (g *fenced[T]) check(t *testing.T, name string) {
	t.Helper()
	for i, v := range g.all {
		if (i < fenceWords || i >= fenceWords+len(g.x)) && v != g.word {
			t.Fatalf("%s: wrote beyond its row, at %d of %d", name, i-fenceWords, len(g.x))
		}
	}
}

// trickyFloats are the borders of the exponential, special values, and ordinary numbers.
func trickyFloats(n int, seed uint64) []float32 {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	special := []float32{0, float32(math.Copysign(0, -1)), inf, -inf, nan, 1, -1, 0x1p-149, -0x1p-126, 0x1.fffffep127,
		-0x1.fffffep127, -0x1.5d589ep+06, -0x1.5d58ap+06, 0x1.5d589ep+06, 0x1.62e42ep+06, 0x1.62e43p+06, -0x1.62e42ep+06, 87, -88, 0.34657359, -0.34657362, 0x1p-30}
	r := lcg(seed)
	x := make([]float32, n)
	for i := range x {
		switch r.next() >> 30 {
		case 0:
			x[i] = special[r.next()%uint32(len(special))]
		case 1:
			x[i] = math.Float32frombits(r.next())
		default:
			x[i] = float32(int32(r.next())) * 0x1p-24
		}
	}
	return x
}

// TestRowTiers holds each tier's rows to the definition: every length from 0 on, in place and
// not, ordinary and special values.
func TestRowTiers(t *testing.T) {
	lengths := []int{200, 333, 1024, 4099}
	for n := range 100 {
		lengths = append(lengths, n)
	}
	kernels := []struct {
		name        string
		fast, plain func(t Tier, out, a, b []float32)
	}{
		{"add", func(t Tier, out, a, b []float32) { t.Add(out, a, b) }, func(_ Tier, out, a, b []float32) { Add(out, a, b) }},
		{"mul", func(t Tier, out, a, b []float32) { t.Mul(out, a, b) }, func(_ Tier, out, a, b []float32) { Mul(out, a, b) }},
		{"scale", func(t Tier, out, a, _ []float32) { t.Scale(out, a, 1.7) }, func(_ Tier, out, a, _ []float32) { Scale(out, a, 1.7) }},
		{"silu", func(t Tier, out, a, _ []float32) { t.SiluTo(out, a) }, func(_ Tier, out, a, _ []float32) { SiluTo(out, a) }},
		{"gelu", func(t Tier, out, a, _ []float32) { t.GeluTo(out, a) }, func(_ Tier, out, a, _ []float32) { GeluTo(out, a) }},
		{"swiglu", func(t Tier, out, a, b []float32) { t.SwiGLU(out, a, b) }, func(_ Tier, out, a, b []float32) { SwiGLU(out, a, b) }},
		{"softmax", func(t Tier, out, a, _ []float32) { t.Softmax(out, a) }, func(_ Tier, out, a, _ []float32) { Softmax(out, a) }},
		{"rmsnorm", func(t Tier, out, a, b []float32) { t.RMSNorm(out, a, b, 1e-5) }, func(_ Tier, out, a, b []float32) { RMSNorm(out, a, b, 1e-5) }},
		{"rmsnorm without weight", func(t Tier, out, a, _ []float32) { t.RMSNorm(out, a, nil, 1e-5) }, func(_ Tier, out, a, _ []float32) { RMSNorm(out, a, nil, 1e-5) }},
	}
	for _, tier := range fastTiers(t) {
		for _, k := range kernels {
			for i, n := range lengths {
				name := fmt.Sprintf("%s %v of %d", k.name, tier, n)
				a, b := randFloats(n, uint64(i)), randFloats(n, uint64(i+1000))
				if i%2 == 0 {
					a, b = trickyFloats(n, uint64(i)), trickyFloats(n, uint64(i+1000))
				}
				want := make([]float32, n)
				k.plain(Generic, want, a, b)
				out := newFenced(n, float32(-77))
				k.fast(tier, out.x, a, b)
				sameBits(t, name, out.x, want)
				copy(out.x, a)
				k.fast(tier, out.x, out.x, b)
				sameBits(t, name+" in place", out.x, want)
				out.check(t, name)
			}
		}
	}
}

// TestExpTiers goes through many arguments of the exponential, by way of the softmax, whose
// maximum is 0, and of Silu.
func TestExpTiers(t *testing.T) {
	const n = 1 << 16
	r := lcg(3)
	x, want, got := make([]float32, n), make([]float32, n), make([]float32, n)
	for round := range 4 {
		for i := range x {
			x[i] = math.Float32frombits(r.next())
			if round%2 == 0 {
				x[i] = -float32(r.next()) * 0x1p-25
			}
		}
		x[0] = 0
		for _, tier := range fastTiers(t) {
			var lanes, wantLanes [16]float32
			done := tier.expSum(got, x, &lanes, 0.25)
			expSum(want[:done], x[:done], &wantLanes, 0.25)
			sameBits(t, fmt.Sprint("exp ", tier), got[:done], want[:done])
			sameBits(t, fmt.Sprint("lanes ", tier), lanes[:], wantLanes[:])
			tier.SiluTo(got, x)
			SiluTo(want, x)
			sameBits(t, fmt.Sprint("silu ", tier), got, want)
		}
	}
}

func TestRotateTiers(t *testing.T) {
	for _, tier := range fastTiers(t) {
		for _, style := range []RoPEStyle{Interleaved, HalfSplit} {
			for pairs := 1; pairs <= 70; pairs++ {
				dim := 2*pairs + pairs%3
				x, cos, sin := randFloats(3*dim, uint64(pairs)), randFloats(pairs, 2), randFloats(pairs, 3)
				name := fmt.Sprintf("%v style %d pairs %d", tier, style, pairs)
				want := make([]float32, 3*dim)
				Rotate(want, x, dim, style, cos, sin)
				out := newFenced(3*dim, float32(-77))
				tier.Rotate(out.x, x, dim, style, cos, sin)
				sameBits(t, name, out.x, want)
				copy(out.x, x)
				tier.Rotate(out.x, out.x, dim, style, cos, sin)
				sameBits(t, name+" in place", out.x, want)
				out.check(t, name)
			}
		}
	}
}

// TestConvertTiers converts every half-precision number, and float32 numbers around what
// rounds.
// TestFinishHeadsTiers: the heads of a token, and a head of successive tokens, in place and elsewhere, are what QKNorm and
// Rotate make of them.
func TestFinishHeadsTiers(t *testing.T) {
	fastTiers(t)
	for i, pairs := range []int{1, 8, 16, 20, 32, 48, 64, 128} {
		for _, h := range []Heads{
			{Dim: 2 * pairs, Style: HalfSplit},
			{Dim: 2 * pairs, Style: HalfSplit, Normed: true, Weight: randFloats(2*pairs, 4), Eps: 1e-6},
			{Dim: 2 * pairs, Style: HalfSplit, Normed: true, Eps: 0.3},
			{Dim: 2*pairs + 16, Style: HalfSplit, Normed: true, Weight: randFloats(2*pairs+16, 5), Eps: 1e-5},
			{Dim: 2 * pairs, Style: Interleaved, Normed: true, Weight: randFloats(2*pairs, 6), Eps: 1e-5},
		} {
			for rows := range 5 {
				for _, angleStride := range []int{0, pairs, pairs + 3} {
					outStride, xStride := h.Dim+3*i, h.Dim+rows
					cos, sin := randFloats(5*(pairs+3), 1), randFloats(5*(pairs+3), 2)
					x := randFloats(5*xStride, 3)
					if rows == 2 {
						x = trickyFloats(5*xStride, uint64(pairs))
					}
					want := newFenced(5*outStride, float32(-77))
					for r := range rows {
						o, in, at := want.x[r*outStride:][:h.Dim], x[r*xStride:][:h.Dim], r*angleStride
						if h.Normed {
							QKNorm(o, in, h.Weight, h.Dim, h.Eps)
							in = o
						}
						Rotate(o, in, h.Dim, h.Style, cos[at:][:pairs], sin[at:][:pairs])
					}
					for _, tier := range Tiers() {
						name := fmt.Sprintf("%v: %d heads of %+v, %d pairs, angles %d apart", tier, rows, h, pairs, angleStride)
						out := newFenced(5*outStride, float32(-77))
						tier.FinishHeads(out.x, x, outStride, xStride, rows, &h, cos, sin, pairs, angleStride)
						sameBits(t, name, out.all, want.all)
						own := slices.Clone(x)
						tier.FinishHeads(own, own, xStride, xStride, rows, &h, cos, sin, pairs, angleStride)
						for r := range rows {
							sameBits(t, name+", in place", own[r*xStride:][:h.Dim], want.x[r*outStride:][:h.Dim])
						}
					}
				}
			}
		}
	}
}

func TestConvertTiers(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	r := lcg(9)
	wide := make([]float32, 1<<17)
	for i := range wide {
		wide[i] = math.Float32frombits(r.next())
		if i%2 == 0 { // near a half-precision number, or a midpoint
			h := quant.F16ToF32(uint16(r.next()))
			wide[i] = math.Float32frombits(math.Float32bits(h) + 0x1000*(r.next()%3) + r.next()%3 - 1)
		}
	}
	for _, tier := range fastTiers(t) {
		for _, c := range []struct {
			name             string
			decode           func(dst []float32, src []uint16)
			encode           func(dst []uint16, src []float32)
			fastDecode       func(dst []float32, src []uint16)
			fastEncode       func(dst []uint16, src []float32)
			infinity, signed uint16
		}{
			{"F16", quant.DecodeF16, quant.EncodeF16, tier.DecodeF16, tier.EncodeF16, 0x7c00, 0x7fff},
			{"BF16", quant.DecodeBF16, quant.EncodeBF16, tier.DecodeBF16, tier.EncodeBF16, 0x7f80, 0x7fff},
		} {
			for _, n := range []int{0, 1, 7, 15, 16, 17, 31, 32, 47, 1 << 16} {
				name := fmt.Sprintf("%s %v of %d", c.name, tier, n)
				want := make([]float32, n)
				c.decode(want, all[:n])
				out := newFenced(n, float32(-77))
				c.fastDecode(out.x, all[:n])
				sameBits(t, name, out.x, want)
				out.check(t, name)

				half := make([]uint16, n)
				c.encode(half, wide[:n])
				got := newFenced(n, uint16(77))
				c.fastEncode(got.x, wide[:n])
				got.check(t, name)
				for i, h := range got.x {
					nan := h&c.signed > c.infinity && half[i]&c.signed > c.infinity
					if h != half[i] && !nan {
						t.Fatalf("%s: %x becomes %04x, want %04x", name, math.Float32bits(wide[i]), h, half[i])
					}
				}
			}
		}
	}
}
