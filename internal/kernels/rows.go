package kernels

import "github.com/minfer/minfer/internal/quant"

// The methods of a Tier compute what the functions of the same names define, to the bit.

// Add sets out[i] to a[i] + b[i].
func (t Tier) Add(out, a, b []float32) {
	out, b = out[:len(a)], b[:len(a)]
	n := t.add(out, a, b)
	Add(out[n:], a[n:], b[n:])
}

// Mul sets out[i] to a[i] * b[i].
func (t Tier) Mul(out, a, b []float32) {
	out, b = out[:len(a)], b[:len(a)]
	n := t.mul(out, a, b)
	Mul(out[n:], a[n:], b[n:])
}

// Scale sets out[i] to x[i] * factor.
func (t Tier) Scale(out, x []float32, factor float32) {
	out = out[:len(x)]
	n := t.scale(out, x, factor)
	Scale(out[n:], x[n:], factor)
}

// SiluTo sets out[i] to Silu(x[i]).
func (t Tier) SiluTo(out, x []float32) {
	out = out[:len(x)]
	n := t.silu(out, x)
	SiluTo(out[n:], x[n:])
}

// GeluTo sets out[i] to Gelu(x[i]).
func (t Tier) GeluTo(out, x []float32) {
	out = out[:len(x)]
	n := t.gelu(out, x)
	GeluTo(out[n:], x[n:])
}

// SwiGLU sets out[i] to Silu(gate[i]) * up[i].
func (t Tier) SwiGLU(out, gate, up []float32) {
	out, up = out[:len(gate)], up[:len(gate)]
	n := t.swiglu(out, gate, up)
	SwiGLU(out[n:], gate[n:], up[n:])
}

// RMSNorm divides x by its root mean square and multiplies it by weight, unless that is nil.
func (t Tier) RMSNorm(out, x, weight []float32, eps float32) {
	out = out[:len(x)]
	var lanes [16]float32
	n := t.squares(&lanes, x)
	addSquares(&lanes, x[n:])
	s := normFactor(&lanes, len(x), eps)
	if weight == nil {
		t.Scale(out, x, s)
		return
	}
	weight = weight[:len(x)]
	n = t.weigh(out, x, weight, s)
	weigh(out[n:], x[n:], weight[n:], s)
}

// QKNorm is RMSNorm over each head of headDim values.
func (t Tier) QKNorm(out, x, weight []float32, headDim int, eps float32) {
	for h := 0; h+headDim <= len(x); h += headDim {
		t.RMSNorm(out[h:h+headDim], x[h:h+headDim], weight, eps)
	}
}

// Softmax sets out[i] to Exp(x[i]-max x) * (1/sum).
func (t Tier) Softmax(out, x []float32) {
	out = out[:len(x)]
	m, n := t.maximum(x)
	m = maximum(m, x[n:])
	var lanes [16]float32
	n = t.expSum(out, x, &lanes, m)
	expSum(out[n:], x[n:], &lanes, m)
	t.Scale(out, out, 1/sumLanes(&lanes))
}

// Rotate rotates the first 2*len(cos) features of each head of headDim values.
func (t Tier) Rotate(out, x []float32, headDim int, style RoPEStyle, cos, sin []float32) {
	sin = sin[:len(cos)]
	n := len(cos)
	for h := 0; h+headDim <= len(x); h += headDim {
		xh, oh := x[h:h+headDim], out[h:h+headDim]
		if style == HalfSplit {
			x0, x1, o0, o1 := xh[:n], xh[n:2*n], oh[:n], oh[n:2*n]
			done := t.rotateHalves(o0, o1, x0, x1, cos, sin)
			rotateHalves(o0[done:], o1[done:], x0[done:], x1[done:], cos[done:], sin[done:])
		} else {
			done := t.rotatePairs(oh[:2*n], xh[:2*n], cos, sin)
			rotatePairs(oh[2*done:2*n], xh[2*done:2*n], cos[done:], sin[done:])
		}
		copy(oh[2*n:], xh[2*n:])
	}
}

// Heads says what becomes of heads of queries or keys.
type Heads struct {
	Dim    int
	Normed bool
	Weight []float32 // of the norm; nil for none
	Eps    float32
	Style  RoPEStyle
}

// FinishHeads does to rows, of a head each, what QKNorm, if they are normed, and Rotate do. They lie xStride values apart, results
// outStride, and their cosines and sines angleStride: 0 for the heads of one token, Pairs for a head of successive tokens. out may be x.
func (t Tier) FinishHeads(out, x []float32, outStride, xStride, rows int, h *Heads, cos, sin []float32, pairs, angleStride int) {
	if t.finishHeads(out, x, outStride, xStride, rows, h, cos, sin, pairs, angleStride) {
		return
	}
	for i := range rows {
		o, in, at := out[i*outStride:][:h.Dim], x[i*xStride:][:h.Dim], i*angleStride
		if h.Normed {
			t.RMSNorm(o, in, h.Weight, h.Eps)
			in = o
		}
		t.Rotate(o, in, h.Dim, h.Style, cos[at:][:pairs], sin[at:][:pairs])
	}
}

// DecodeF16 converts src to float32.
func (t Tier) DecodeF16(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	n := t.decodeF16(dst, src)
	quant.DecodeF16(dst[n:], src[n:])
}

// EncodeF16 rounds src to half precision.
func (t Tier) EncodeF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := t.encodeF16(dst, src)
	quant.EncodeF16(dst[n:], src[n:])
}

// DecodeBF16 converts src to float32.
func (t Tier) DecodeBF16(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	n := t.decodeBF16(dst, src)
	quant.DecodeBF16(dst[n:], src[n:])
}

// EncodeBF16 rounds src to bfloat16.
func (t Tier) EncodeBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := t.encodeBF16(dst, src)
	quant.EncodeBF16(dst[n:], src[n:])
}
