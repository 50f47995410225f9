package sampling

import "math"

// The functions here return the same bits on every platform. math.Exp and
// math.Log do not: some architectures have assembly versions, and the compiler
// fuses multiplications and additions where the hardware can. A conversion to
// float64 around a product keeps it from being fused.

const (
	ln2 = math.Ln2
	// ln2/32 in two parts, the first with so few bits that its product with
	// any whole number in range is exact.
	stepHigh = 6.93147180369123816490e-01 / 32
	stepLow  = 1.90821492927058770002e-10 / 32
	perStep  = 32 / math.Ln2
)

// roots[i] is 2 to the power of i/32. Square roots and products are rounded
// alike everywhere.
var roots = func() (r [32]float64) {
	for i := range r {
		r[i] = 1
		root := 2.0
		for bit := 16; bit > 0; bit >>= 1 {
			root = math.Sqrt(root)
			if i&bit != 0 {
				r[i] = float64(r[i] * root)
			}
		}
	}
	return r
}()

// exponential is e to the power of x <= 0, to within two units in the last
// place; exactly 1 at 0 and exactly 0 below -708, where results would become
// subnormal.
func exponential(x float64) float64 {
	if x < -708 {
		return 0
	}
	// x = n*ln2/32 + r with |r| <= ln2/64.
	n := math.Floor(float64(x*perStep) + 0.5)
	r := x - float64(n*stepHigh) - float64(n*stepLow)
	// e^r - 1 by its series; the first term left out is below 4e-18.
	p := float64(r*(1.0/720)) + 1.0/120
	p = float64(r*p) + 1.0/24
	p = float64(r*p) + 1.0/6
	p = float64(r*p) + 0.5
	p = float64(float64(r*r)*p) + r
	k := int(n)
	y := roots[k&31]
	y += float64(y * p)
	return float64(y * math.Float64frombits(uint64(1023+k>>5)<<52))
}

// logarithm is the natural logarithm of x > 0, to within a few units in the
// last place.
func logarithm(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = float64(2*m), e-1
	}
	// ln m = 2 artanh(s) = 2s (1 + s^2/3 + s^4/5 + ...), |s| < 0.172.
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	var series float64
	for k := 23; k >= 3; k -= 2 {
		series = float64((series + 1/float64(k)) * s2)
	}
	low := float64(float64(2*s)*series) + float64(float64(e)*(stepLow*32))
	return float64(float64(e)*(stepHigh*32)) + (float64(2*s) + low)
}

// sumExp is the sum of exp((x-top)/t) over the row.
func sumExp(row []float32, top float32, t float64) float64 {
	var sum float64
	reference := float64(top)
	if t == 1 {
		for _, x := range row {
			sum += exponential(float64(x) - reference)
		}
		return sum
	}
	for _, x := range row {
		sum += exponential((float64(x) - reference) / t)
	}
	return sum
}
