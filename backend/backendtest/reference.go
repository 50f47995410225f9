package backendtest

import (
	"math"
	"sort"

	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/quant"
)

// The definitions of the operations, in float64 and in the simplest form.

func refSilu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func refGelu(x float64) float64 {
	return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func refNorm(x, weight []float32, eps float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+eps)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v) * scale
		if weight != nil {
			out[i] *= float64(weight[i%len(weight)])
		}
	}
	return out
}

func refSoftmax(x []float64) []float64 {
	most, sum := math.Inf(-1), 0.0
	for _, v := range x {
		most = max(most, v)
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = math.Exp(v - most)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// refTopK returns the k greatest values of a row, and their indices.
func refTopK(x []float32, k int) []float32 {
	var order []int
	for i, v := range x {
		if !math.IsInf(float64(v), -1) {
			order = append(order, i)
		}
	}
	isNaN := func(i int) bool { return x[i] != x[i] }
	sort.SliceStable(order, func(a, b int) bool {
		i, j := order[a], order[b]
		return isNaN(i) && !isNaN(j) || x[i] > x[j]
	})
	out := make([]float32, 2*k)
	for i := range k {
		if out[i], out[k+i] = float32(math.Inf(-1)), -1; i < len(order) {
			out[i], out[k+i] = x[order[i]], float32(order[i])
		}
	}
	return out
}

// refMatMul multiplies tokens rows of x by the rows of w. Energy is the sum of the
// squares of all products: the errors of the factors add up to a share of it, however
// much the products cancel out in the results.
func refMatMul(w, x, bias []float32, in, out int) (y []float64, energy float64) {
	for ; len(x) > 0; x = x[in:] {
		for r := range out {
			sum := 0.0
			for i, v := range w[r*in : (r+1)*in] {
				product := float64(v) * float64(x[i])
				sum += product
				energy += product * product
			}
			if bias != nil {
				sum += float64(bias[r])
			}
			y = append(y, sum)
		}
	}
	return y, energy
}

// refRoPE rotates rows of x. Factors is nil or has a divisor for each pair.
func refRoPE(op graph.RoPE, x []float32, positions []int32, factors []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	width := op.Heads * op.HeadDim
	for t, p := range positions {
		for h := range op.Heads {
			head := out[t*width+h*op.HeadDim:][:op.HeadDim]
			for i := range op.Dim / 2 {
				a, b := 2*i, 2*i+1
				if op.Style == graph.RoPEHalves {
					a, b = i, i+op.Dim/2
				}
				angle, size := refAngle(op, float64(p), i, factors)
				sin, cos := math.Sincos(angle)
				head[a], head[b] = size*(head[a]*cos-head[b]*sin), size*(head[a]*sin+head[b]*cos)
			}
		}
	}
	return out
}

// refAngle returns the angle of pair i at position p, and the factor of its magnitude.
func refAngle(op graph.RoPE, p float64, i int, factors []float32) (angle, size float64) {
	base, dim := float64(op.Base), float64(op.Dim)
	plain := p * math.Pow(base, -2*float64(i)/dim)
	if factors != nil {
		plain /= float64(factors[i])
	}
	size = 1
	if op.AttnFactor != 0 {
		size = float64(op.AttnFactor)
	}
	scaled := plain * float64(op.Scale)
	if op.ExtFactor == 0 {
		return scaled, size
	}
	// The pair that turns so many times within the original context.
	pair := func(turns float32) float64 {
		return dim * math.Log(float64(op.OrigContext)/(2*math.Pi*float64(turns))) / (2 * math.Log(base))
	}
	low := max(0, math.Floor(pair(op.BetaFast)))
	high := min(dim-1, math.Ceil(pair(op.BetaSlow)))
	keep := 1 - min(1, max(0, (float64(i)-low)/max(0.001, high-low)))
	keep *= float64(op.ExtFactor)
	return scaled*(1-keep) + plain*keep, size * (1 + 0.1*math.Log(1/float64(op.Scale)))
}

// refKV is a layer's keys and values as they are after storing.
type refKV struct {
	k, v  []float32
	width int
	half  bool
}

func newRefKV(cells, width int, t graph.DType) *refKV {
	return &refKV{k: make([]float32, cells*width), v: make([]float32, cells*width), width: width, half: t == graph.F16}
}

// store leaves out cells that no device may accept; the test that hands them over says so
// itself.
func (r *refKV) store(k, v []float32, cells []int32) {
	for t, c := range cells {
		if c < 0 || int(c) >= len(r.k)/r.width {
			continue
		}
		for i := range r.width {
			r.k[int(c)*r.width+i] = r.round(k[t*r.width+i])
			r.v[int(c)*r.width+i] = r.round(v[t*r.width+i])
		}
	}
}

func (r *refKV) round(v float32) float32 {
	if r.half {
		return quant.F16ToF32(quant.F32ToF16(v))
	}
	return v
}

// refAttention attends from each row of q to the cells that cellsOf lists for it.
func refAttention(op graph.Attention, q []float32, kv *refKV, cellsOf func(token int) []int32) []float64 {
	out := make([]float64, len(q))
	group := op.Heads / op.KVHeads
	for i := 0; i < len(q); i += op.HeadDim {
		token, head := i/op.HeadDim/op.Heads, i/op.HeadDim%op.Heads
		at := head / group * op.HeadDim
		cells := cellsOf(token)
		scores := make([]float64, len(cells))
		for j, c := range cells {
			for d := range op.HeadDim {
				scores[j] += float64(q[i+d]) * float64(kv.k[int(c)*kv.width+at+d]) * float64(op.Scale)
			}
		}
		for j, p := range refSoftmax(scores) {
			for d := range op.HeadDim {
				out[i+d] += p * float64(kv.v[int(cells[j])*kv.width+at+d])
			}
		}
	}
	return out
}
