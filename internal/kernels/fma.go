package kernels

import "math"

// FMA returns a*b + c rounded once, as a hardware fused multiply-add does, on
// every architecture.
//
// In float64 the product of two float32 values is exact, so only the sum and the
// conversion back round. Rounding twice differs from rounding once only if the
// first result is a midpoint of the second grid. A midpoint between two float32
// values, normal or subnormal, has 28 zero bits at its low end, and so have zero
// and infinity: whatever has them takes the careful path.
func FMA(a, b, c float32) float32 {
	s := mulAdd(a, b, c)
	if tied(s) {
		s = fmaOdd(a, b, c)
	}
	return float32(s)
}

// fmaOdd returns the sum rounded to odd, which makes the second rounding see on
// which side of a midpoint the exact result lies (Boldo and Melquiond, 2008). The
// rounding error of the sum is Knuth's TwoSum; the product is exact, so it does
// not matter whether the compiler fuses it.
func fmaOdd(a, b, c float32) float64 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	t := s - p
	e := (p - (s - t)) + (z - t)
	u := math.Float64bits(s)
	if e == 0 || e != e || u&1 != 0 {
		return s
	}
	// s is even and not exact: its odd neighbour on the side of the exact sum is
	// one bit away. s cannot be 0, since a sum of two floats is only 0 exactly.
	if (e > 0) == (s > 0) {
		u++
	} else {
		u--
	}
	return math.Float64frombits(u)
}

// FMA is just too large for the compiler to inline. A loop that cannot afford a
// call for every term spells it out from these two, which are inlined:
//
//	s := mulAdd(a, b, c)
//	if tied(s) {
//		s = fmaOdd(a, b, c)
//	}
//	result := float32(s)

func mulAdd(a, b, c float32) float64 { return float64(a)*float64(b) + float64(c) }

func tied(s float64) bool { return math.Float64bits(s)<<36 == 0 }

// sumLanes adds 16 lanes in the canonical tree.
func sumLanes(l *[16]float32) float32 {
	for step := 8; step > 0; step /= 2 {
		for j := range step {
			l[j] += l[j+step]
		}
	}
	return l[0]
}
