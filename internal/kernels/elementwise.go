package kernels

import "math"

// A minimax fit of (e^r-1-r)/r^2 to the relative error of e^r on [-ln2/2, ln2/2];
// its error is 3.1e-9.
const (
	expC2 = 0.499999934320667
	expC3 = 0.1666652039847194
	expC4 = 0.041668390795631845
	expC5 = 0.008368745161960674
	expC6 = 0.0013814539619211145
)

// Exp returns e^x within one unit in the last place.
//
// It is exactly 0 where e^x is below 2^-126, so that no subnormal arises, +Inf
// where e^x exceeds the largest float32, and NaN for NaN. Elsewhere
//
//	t = fma(x, 1/ln 2, 1.5*2^23);  n = t - 1.5*2^23          x/ln 2 as an integer
//	r = fma(n, -ln2Lo, fma(n, -ln2Hi, x))
//	p = 1 + r + r^2 (c2 + c3 r + ... + c6 r^4)               Horner's rule in fma
//
// and the result is p * 2^n, exactly.
func Exp(x float32) float32 {
	const (
		lowest  = -0x1.5d589ep+06 // the first above ln 2^-126
		highest = 0x1.62e42ep+06  // the last below ln of the largest float32
		log2e   = 1.44269504088896340736
		ln2Hi   = 0x1.62e4p-1
		ln2Lo   = 1.42860682030941723212e-6
	)
	if !(x >= lowest) {
		if x != x {
			return x
		}
		return 0
	}
	if x > highest {
		return float32(math.Inf(1))
	}
	t := FMA(x, log2e, roundMagic)
	n := t - roundMagic
	r := x
	if n != 0 {
		// The first difference is exact: n*ln2Hi has 23 bits, and cancels x.
		r = FMA(n, -ln2Lo, x-float32(n*ln2Hi))
	}
	s4 := mulAdd(expC6, r, expC5)
	s3 := mulAdd(float32(s4), r, expC4)
	s2 := mulAdd(float32(s3), r, expC3)
	s1 := mulAdd(float32(s2), r, expC2)
	s0 := mulAdd(float32(s1), r, 1)
	s := mulAdd(float32(s0), r, 1)
	p := float32(s)
	if tied(s4) || tied(s3) || tied(s2) || tied(s1) || tied(s0) || tied(s) {
		p = expPolynomial(r)
	}
	// The result is normal, so adding n to the exponent multiplies by 2^n.
	e := math.Float32bits(t) - math.Float32bits(roundMagic)
	return math.Float32frombits(math.Float32bits(p) + e<<23)
}

func expPolynomial(r float32) float32 {
	p := FMA(FMA(FMA(FMA(expC6, r, expC5), r, expC4), r, expC3), r, expC2)
	return FMA(FMA(p, r, 1), r, 1)
}

// Silu returns x / (1 + Exp(-x)).
func Silu(x float32) float32 { return x / (1 + Exp(-x)) }

// Gelu returns the Gaussian error linear unit in its tanh form,
// x/2 * (1 + tanh(sqrt(2/pi) * x * (1 + 0.044715*x^2))), computed as
// x / (1 + Exp(u)) with u = fma(-2*sqrt(2/pi)*0.044715, x*x, -2*sqrt(2/pi)) * x.
func Gelu(x float32) float32 {
	const k = -2 * 0.79788456080286535588
	return x / (1 + Exp(FMA(k*0.044715, x*x, k)*x))
}

// SiluTo sets out[i] to Silu(x[i]). out may be x.
func SiluTo(out, x []float32) {
	out = out[:len(x)]
	for i, v := range x {
		out[i] = Silu(v)
	}
}

// GeluTo sets out[i] to Gelu(x[i]). out may be x.
func GeluTo(out, x []float32) {
	out = out[:len(x)]
	for i, v := range x {
		out[i] = Gelu(v)
	}
}

// SwiGLU sets out[i] to Silu(gate[i]) * up[i]. out may be either source.
func SwiGLU(out, gate, up []float32) {
	out, up = out[:len(gate)], up[:len(gate)]
	for i, g := range gate {
		out[i] = Silu(g) * up[i]
	}
}

// Add sets out[i] to a[i] + b[i]. out may be either source.
func Add(out, a, b []float32) {
	out, b = out[:len(a)], b[:len(a)]
	for i, v := range a {
		out[i] = v + b[i]
	}
}

// Mul sets out[i] to a[i] * b[i]. out may be either source.
func Mul(out, a, b []float32) {
	out, b = out[:len(a)], b[:len(a)]
	for i, v := range a {
		out[i] = v * b[i]
	}
}

// Scale sets out[i] to x[i] * factor. out may be x.
func Scale(out, x []float32, factor float32) {
	out = out[:len(x)]
	for i, v := range x {
		out[i] = v * factor
	}
}

// GetRows copies rows ids of src, of d values each, to consecutive rows of out.
func GetRows(out, src []float32, d int, ids []int32) {
	for i, id := range ids {
		copy(out[i*d:][:d], src[int(id)*d:][:d])
	}
}

// Permute copies src, of the given shape with the first dimension fastest, to out
// such that dimension i of out is dimension dims[i] of src.
func Permute(out, src []float32, shape, dims [4]int) {
	stride := [4]int{1, shape[0], shape[0] * shape[1], shape[0] * shape[1] * shape[2]}
	var n, by [4]int
	for i, d := range dims {
		n[i], by[i] = shape[d], stride[d]
	}
	o := 0
	for i3 := range n[3] {
		for i2 := range n[2] {
			for i1 := range n[1] {
				from := i3*by[3] + i2*by[2] + i1*by[1]
				if by[0] == 1 {
					copy(out[o:][:n[0]], src[from:])
					o += n[0]
					continue
				}
				for i0 := range n[0] {
					out[o] = src[from+i0*by[0]]
					o++
				}
			}
		}
	}
}
