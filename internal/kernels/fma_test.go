package kernels

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// fmaBig is the reference: exact arithmetic, rounded once by math/big.
func fmaBig(a, b, c float32) float32 {
	x, y := &bigFloats[0], &bigFloats[1]
	x.SetFloat64(float64(a))
	y.SetFloat64(float64(b))
	x.Mul(x, y)
	x.Add(x, y.SetFloat64(float64(c)))
	f, _ := x.Float32()
	return f
}

// bigFloats have the precision of any product plus any other number.
var bigFloats = func() (f [2]big.Float) {
	for i := range f {
		f[i].SetPrec(640)
	}
	return
}()

func finite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }

// checkFMA compares magnitude and sign; the sign of an exact zero is float64's.
func checkFMA(t *testing.T, a, b, c float32) {
	t.Helper()
	got := FMA(a, b, c)
	var want float32
	if finite(a) && finite(b) && finite(c) {
		want = fmaBig(a, b, c)
		if want == 0 && float64(a)*float64(b)+float64(c) == 0 {
			want = float32(float64(a)*float64(b) + float64(c))
		}
	} else {
		want = float32(float64(a)*float64(b) + float64(c))
		if want != want {
			if got == got {
				t.Fatalf("FMA(%g, %g, %g) = %g, want NaN", a, b, c, got)
			}
			return
		}
	}
	if math.Float32bits(got) != math.Float32bits(want) {
		t.Fatalf("FMA(%x, %x, %x) = %x, want %x", a, b, c, got, want)
	}
}

func TestFMARoundsOnce(t *testing.T) {
	special := []float32{0, 1, 3, 0x1p-149, 0x1p-148, 0x1p-126, 0x1.fffffcp-127, 0x1.fffffep127, 0x1p127,
		0x1p-75, 0x1.000002p0, 0x1.fffffep0, 0x1p-24, 0x1p-25, 0x1p24, 0x1.000002p24,
		float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))}
	for _, a := range special {
		for _, b := range special {
			for _, c := range special {
				checkFMA(t, a, b, c)
				checkFMA(t, -a, b, c)
				checkFMA(t, a, b, -c)
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	near := func(lo, hi int) float32 { // few or many bits, exponent within [lo, hi)
		m := rng.Uint32() & 0x7fffff
		if rng.IntN(2) == 0 {
			m &= ^uint32(0) << rng.IntN(24)
		}
		e := uint32(lo + 127 + rng.IntN(hi-lo))
		return math.Float32frombits(rng.Uint32()&0x80000000 | e<<23 | m)
	}
	for range 120_000 {
		// Any bits.
		checkFMA(t, math.Float32frombits(rng.Uint32()), math.Float32frombits(rng.Uint32()), math.Float32frombits(rng.Uint32()))
		// An addend just beside a midpoint of the product's rounding, or far below it.
		a, b := near(-3, 3), near(-3, 3)
		checkFMA(t, a, b, near(-60, 30))
		// Sums at the edge of the subnormals.
		checkFMA(t, near(-80, -60), near(-80, -60), math.Float32frombits(rng.Uint32()&0x80ffffff))
		// c + half a unit of c + something tiny: where rounding twice goes wrong.
		c := near(-10, 10)
		half := math.Float32frombits(math.Float32bits(c)&0x7f800000) * 0x1p-24
		checkFMA(t, half, 1+float32(rng.IntN(3)-1)*0x1p-23, c)
		checkFMA(t, half*(1+0x1p-23), 1-0x1p-23, c) // half*(1 - 2^-46)
		checkFMA(t, -half*(1+0x1p-23), 1-0x1p-23, c)
		// The same among the subnormals, whose half unit is 2^-150.
		tiny := math.Float32frombits(rng.Uint32() & 0x80ffffff)
		checkFMA(t, 0x1p-75*(1+0x1p-23), 0x1p-75*(1-0x1p-23), tiny)
		checkFMA(t, 0x1p-75*(1+0x1p-23), 0x1p-75*(1+0x1p-23), tiny)
		checkFMA(t, 0x1p-75*(1+0x1p-23), -0x1p-75*(1-0x1p-23), tiny)
	}
}

// TestFMANeedsCare shows that the careful path is not vacuous.
func TestFMANeedsCare(t *testing.T) {
	a, b, c := float32(0x1p-24)*(1+0x1p-23), float32(1-0x1p-23), float32(1+0x1p-23)
	naive := float32(float64(a)*float64(b) + float64(c))
	if got := FMA(a, b, c); got != fmaBig(a, b, c) || got == naive {
		t.Errorf("FMA = %x, exact %x, rounded twice %x", got, fmaBig(a, b, c), naive)
	}
}
