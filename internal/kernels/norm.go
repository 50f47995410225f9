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
	mean := sumLanes(&lanes) / float32(len(x))
	s := 1 / float32(math.Sqrt(float64(mean+eps)))
	out = out[:len(x)]
	if weight == nil {
		for i, v := range x {
			out[i] = v * s
		}
		return
	}
	weight = weight[:len(x)]
	for i, v := range x {
		out[i] = v * s * weight[i]
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
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	var lanes [16]float32
	for i, v := range x {
		p := Exp(v - m)
		out[i] = p
		lanes[i&15] += p
	}
	Scale(out, out, 1/sumLanes(&lanes))
}
