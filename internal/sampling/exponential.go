package sampling

import "math"

// The functions here return the same bits on every platform. math.Exp and
// math.Log do not: some architectures have assembly versions, and the compiler
// fuses multiplications and additions where the hardware can. A conversion to
// float64 around a product keeps it from being fused.

const (
	ln2 = math.Ln2
	// ln 2 in two parts, the first with so few bits (32) that its product with
	// any whole number in range is exact.
	ln2High = 6.93147180369123816490e-01
	ln2Low  = 1.90821492927058770002e-10
)

// exponential looks up powers of 2 at steps of 1/256.
const (
	stepBits  = 8
	steps     = 1 << stepBits
	stepHigh  = ln2High / steps
	stepLow   = ln2Low / steps
	stepsPerE = steps / math.Ln2
)

// roots[i] is 2 to the power of i/steps. Square roots and products are rounded
// alike everywhere.
var roots = func() (r [steps]float64) {
	for i := range r {
		r[i] = 1
		root := 2.0
		for bit := steps / 2; bit > 0; bit >>= 1 {
			root = math.Sqrt(root)
			if i&bit != 0 {
				r[i] = float64(r[i] * root)
			}
		}
	}
	return r
}()

// exponential is e to the power of x <= 0, to within four units in the last
// place; exactly 1 at 0 and exactly 0 below -708, where results would become
// subnormal.
func exponential(x float64) float64 {
	if x < -708 {
		return 0
	}
	// x = n*ln2/256 + r with |r| <= ln2/512. At the magnitude of shift a float64
	// has no fraction, so adding it rounds, and leaves n in the low bits.
	const shift = 0x1.8p52
	shifted := float64(x*stepsPerE) + shift
	n := shifted - shift
	k := int(int32(math.Float64bits(shifted)))
	r := x - float64(n*stepHigh) - float64(n*stepLow)
	// e^r - 1 by its series; the first term left out is below 4e-17.
	p := float64(r*(1.0/24)) + 1.0/6
	p = float64(r*p) + 0.5
	p = float64(float64(r*r)*p) + r
	y := roots[k&(steps-1)]
	y += float64(y * p)
	return float64(y * math.Float64frombits(uint64(1023+k>>stepBits)<<52))
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
	low := float64(float64(2*s)*series) + float64(float64(e)*ln2Low)
	return float64(float64(e)*ln2High) + (float64(2*s) + low)
}

// block is how many logits are exponentiated at a time.
const block = 256

// distances sets d to (x-top)/t for the logits of one block.
//
// Exponentials follow in a loop of their own, because amd64's conversion from
// float32 waits for whatever was in its destination register before: side by
// side, each element would wait for the last one's exponential.
func distances(d []float64, row []float32, top float32, t float64) {
	for i, x := range row {
		d[i] = float64(x) - float64(top)
	}
	if t == 1 {
		return
	}
	for i := range d {
		d[i] /= t
	}
}

// sumExp is the sum of exp((x-top)/t) over the row, in ascending order.
func sumExp(row []float32, top float32, t float64) float64 {
	var sum float64
	var buffer [block]float64
	for len(row) > 0 {
		d := buffer[:min(len(row), block)]
		distances(d, row[:len(d)], top, t)
		for i := range d {
			d[i] = exponential(d[i])
		}
		for _, e := range d {
			sum += e
		}
		row = row[len(d):]
	}
	return sum
}

// nucleus returns the sum of exp(x-top) over the row, in ascending order, and a
// distance d from top such that the tokens with x >= top+d have at least the
// share p of it: a bound that costs no sorting, a quarter below the exact one at
// most. It is -Inf where the tail is needed.
func nucleus(row []float32, top float32, p float64) (mass, d float64) {
	const perUnit, bins = 4, 128
	// masses[i] belongs to the distances from -i/perUnit down to
	// -(i+1)/perUnit, the last one to all below as well.
	var masses [bins]float64
	var buffer, weights [block]float64
	for len(row) > 0 {
		d, w := buffer[:min(len(row), block)], weights[:min(len(row), block)]
		distances(d, row[:len(d)], top, 1)
		for i := range d {
			w[i] = exponential(d[i])
		}
		for i, e := range w {
			mass += e
			bin := bins - 1
			if d[i] > -(bins-1)/float64(perUnit) {
				bin = int(d[i] * -perUnit)
			}
			masses[bin] += e
		}
		row = row[len(d):]
	}
	// The margin is far above the rounding of the sums.
	var reached float64
	for i, m := range masses[:bins-1] {
		if reached += m; reached >= float64((p+1e-9)*mass) {
			return mass, -float64(i+1) / perUnit
		}
	}
	return mass, math.Inf(-1)
}
