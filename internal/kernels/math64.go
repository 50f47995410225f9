package kernels

import "math"

// The standard library's Exp, Log and Sincos have assembly on some architectures,
// and on others the compiler fuses their sums, so their last bits differ from
// machine to machine. These are Taylor series in a fixed order, every product
// rounded before it is added. Their errors are a few units of the 53rd bit.

const (
	ln2Hi64 = 0x1.62e42feep-1 // 32 bits, so that a product with a small integer is exact
	ln2Lo64 = 1.90821492927058770002e-10

	// The first 33 bits of pi/2, and the rest.
	pio2Hi = 0x1.921fb544p+0
	pio2Lo = 6.07710050650619224932e-11
)

// ln returns the natural logarithm of a positive finite number.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	// ln m = 2 artanh s, and |s| < 0.172.
	s := (m - 1) / (m + 1)
	z := s * s
	var p float64
	for k := 23; k >= 1; k -= 2 {
		p = float64(p*z) + 1/float64(k)
	}
	n := float64(e)
	return float64(n*ln2Hi64) + (float64(n*ln2Lo64) + float64(2*s*p))
}

// exp64 returns e^x for |x| up to 700.
func exp64(x float64) float64 {
	n := math.RoundToEven(x * math.Log2E)
	r := (x - float64(n*ln2Hi64)) - float64(n*ln2Lo64)
	p := 1.0
	for k := 14; k >= 1; k-- {
		p = 1 + float64(p*r)/float64(k)
	}
	return math.Ldexp(p, int(n))
}

// Coefficients of the series: (-1)^k/(2k+1)! and (-1)^k/(2k)!.
var sinCoef, cosCoef = func() (s, c [9]float64) {
	f := 1.0 // exact up to 18!
	for k := range s {
		sign := float64(1 - 2*(k&1))
		c[k] = sign / f
		f *= float64(2*k + 1)
		s[k] = sign / f
		f *= float64(2*k + 2)
	}
	return
}()

// sincos returns sine and cosine of x, for |x| below 2^20, with an absolute error
// of about 2^-50.
func sincos(x float64) (sin, cos float64) {
	n := math.RoundToEven(x * (2 / math.Pi))
	r := (x - float64(n*pio2Hi)) - float64(n*pio2Lo)
	z := r * r
	var p, q float64
	for k := 8; k >= 0; k-- {
		p = float64(p*z) + sinCoef[k]
		q = float64(q*z) + cosCoef[k]
	}
	p *= r
	switch int64(n) & 3 {
	case 1:
		return q, -p
	case 2:
		return -p, -q
	case 3:
		return -q, p
	}
	return p, q
}
