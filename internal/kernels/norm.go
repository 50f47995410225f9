package kernels

import "math"

// RMSNorm sets out to x divided by its root mean square, times weight if that is
// not nil:
//
//	s = 1 / sqrt(sum/n + eps)     sum of squares by fma in 16 lanes
//	out[i] = x[i]*s * weight[i]
//
// out may be x.
func RMSNorm(out, x, weight []float32, eps float32) {
	var lanes [16]float32
	addSquares(&lanes, x)
	s := normFactor(&lanes, len(x), eps)
	out = out[:len(x)]
	if weight == nil {
		Scale(out, x, s)
		return
	}
	weigh(out, x, weight[:len(x)], s)
}

// addSquares adds the squares of x to its lanes.
func addSquares(lanes *[16]float32, x []float32) {
	i := 0
	for ; i+16 <= len(x); i += 16 {
		v := (*[16]float32)(x[i:])
		for j := range lanes {
			lanes[j] = FMA(v[j], v[j], lanes[j])
		}
	}
	for j, v := range x[i:] {
		lanes[j] = FMA(v, v, lanes[j])
	}
}

func normFactor(squares *[16]float32, n int, eps float32) float32 {
	mean := sumLanes(squares) / float32(n)
	return 1 / float32(math.Sqrt(float64(mean+eps)))
}

func weigh(out, x, weight []float32, factor float32) {
	for i, v := range x {
		out[i] = v * factor * weight[i]
	}
}

// QKNorm is RMSNorm over each head of headDim values by itself, with one weight
// vector for all. out may be x.
func QKNorm(out, x, weight []float32, headDim int, eps float32) {
	for h := 0; h+headDim <= len(x); h += headDim {
		RMSNorm(out[h:h+headDim], x[h:h+headDim], weight, eps)
	}
}

// Softmax sets out[i] to Exp(x[i]-max x) * (1/sum), the sum of the exponentials in
// 16 lanes. A NaN, or nothing but -Inf, makes the row NaN. out may be x.
func Softmax(out, x []float32) {
	out = out[:len(x)]
	m := maximum(minusInf, x)
	var lanes [16]float32
	expSum(out, x, &lanes, m)
	Scale(out, out, 1/sumLanes(&lanes))
}

var minusInf = float32(math.Inf(-1))

// maximum returns the largest of m and x. It ignores NaN.
func maximum(m float32, x []float32) float32 {
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// expSum sets out[i] to Exp(x[i]-m) and adds it to its lane.
func expSum(out, x []float32, lanes *[16]float32, m float32) {
	for i, v := range x {
		p := Exp(v - m)
		out[i] = p
		lanes[i&15] += p
	}
}
