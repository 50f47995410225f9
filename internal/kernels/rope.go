package kernels

import (
	"fmt"
	"math"
	"slices"
)

// RoPEParams are the parameters of a rotary position embedding.
//
// Pair i of Dim/2 turns by pos * Base^(-2i/Dim), divided by Factors[i] if there are
// any, and times Scale, which is 1 over the factor of linear scaling.
//
// With ExtFactor above 0 the angles follow YaRN (Peng et al., 2023): pairs that
// turn more than BetaFast times within OrigContext positions are not scaled, those
// that turn less than BetaSlow times are, and between them the two are mixed
// linearly in i; sines and cosines are multiplied by 1 + 0.1*ln(1/Scale) besides.
type RoPEParams struct {
	Dim         int // features rotated, even
	Base        float32
	Scale       float32
	Factors     []float32 // nil or Dim/2 divisors
	ExtFactor   float32
	AttnFactor  float32 // multiplies sines and cosines; 0 means 1
	BetaFast    float32
	BetaSlow    float32
	OrigContext int
}

// RoPEStyle says which features make a pair.
type RoPEStyle uint8

const (
	// Interleaved pairs features 2i and 2i+1 (Llama).
	Interleaved RoPEStyle = iota
	// HalfSplit pairs features i and i+Dim/2 (GPT-NeoX, Qwen).
	HalfSplit
)

// RoPE computes angles. It does not change once made, and is safe for concurrent
// use.
type RoPE struct {
	freq  []float64 // radians per position, by pair
	scale float64   // of sines and cosines
}

// NewRoPE checks the parameters and computes the frequencies.
func NewRoPE(p RoPEParams) (*RoPE, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	r := &RoPE{freq: make([]float64, p.Dim/2), scale: 1}
	if p.AttnFactor != 0 {
		r.scale = float64(p.AttnFactor)
	}
	scale, ext := float64(p.Scale), float64(p.ExtFactor)
	var low, high float64
	if ext != 0 {
		low, high = p.yarnRange()
		r.scale *= 1 + float64(0.1*ln(1/scale))
	}
	step := ln(float64(p.Base)) / float64(p.Dim)
	for i := range r.freq {
		f := exp64(float64(-step * float64(2*i)))
		if p.Factors != nil {
			f /= float64(p.Factors[i])
		}
		by := scale
		if ext != 0 {
			ramp := (float64(i) - low) / max(0.001, high-low)
			mix := float64((1 - min(1, max(0, ramp))) * ext)
			by = float64(scale*(1-mix)) + mix
		}
		r.freq[i] = f * by
	}
	return r, nil
}

func (p *RoPEParams) check() error {
	positive := func(v float32) bool { return v > 0 && !math.IsInf(float64(v), 0) }
	switch {
	case p.Dim <= 0 || p.Dim%2 != 0:
		return fmt.Errorf("kernels: RoPE over %d features: it takes a positive even number", p.Dim)
	case !positive(p.Base):
		return fmt.Errorf("kernels: RoPE base %v: it must be positive", p.Base)
	case !positive(p.Scale):
		return fmt.Errorf("kernels: RoPE scale %v: it must be positive", p.Scale)
	case p.Factors != nil && len(p.Factors) != p.Dim/2:
		return fmt.Errorf("kernels: %d RoPE factors for %d pairs", len(p.Factors), p.Dim/2)
	case p.AttnFactor != 0 && !positive(p.AttnFactor):
		return fmt.Errorf("kernels: RoPE attention factor %v: it must be positive", p.AttnFactor)
	case p.ExtFactor != 0 && (!positive(p.ExtFactor) || !positive(p.BetaFast) || !positive(p.BetaSlow) || p.OrigContext <= 0 || p.Base == 1):
		return fmt.Errorf("kernels: YaRN with factor %v, beta %v and %v, original context %d, base %v: all must be positive and the base not 1",
			p.ExtFactor, p.BetaFast, p.BetaSlow, p.OrigContext, p.Base)
	}
	for i, f := range p.Factors {
		if !positive(f) {
			return fmt.Errorf("kernels: RoPE factor %d is %v: it must be positive", i, f)
		}
	}
	return nil
}

// yarnRange returns the pairs between which YaRN goes over from unscaled to scaled.
// Both ends are rounded outwards and kept within the features.
func (p *RoPEParams) yarnRange() (low, high float64) {
	pair := func(turns float32) float64 {
		return float64(p.Dim) * ln(float64(p.OrigContext)/(float64(turns)*2*math.Pi)) / (2 * ln(float64(p.Base)))
	}
	return max(0, math.Floor(pair(p.BetaFast))), min(float64(p.Dim-1), math.Ceil(pair(p.BetaSlow)))
}

// Frequencies returns the angle of each pair in radians per position, and what sines and
// cosines are multiplied by. The slice must not be changed.
func (r *RoPE) Frequencies() (freq []float64, scale float64) { return r.freq, r.scale }

// Pairs is the number of pairs rotated.
func (r *RoPE) Pairs() int { return len(r.freq) }

// CosSin writes the cosine and sine of each pair's angle at a position, within
// (-2^20, 2^20), to the first Pairs values of cos and sin.
func (r *RoPE) CosSin(cos, sin []float32, pos int) {
	cos, sin = cos[:len(r.freq)], sin[:len(r.freq)]
	for i, f := range r.freq {
		s, c := sincos(float64(float64(pos) * f))
		cos[i], sin[i] = float32(c*r.scale), float32(s*r.scale)
	}
}

// RoPERows holds the cosines and sines of a batch, so that the layers of a model
// share them. The zero value is ready.
type RoPERows struct {
	rope     *RoPE
	pos      []int32
	cos, sin []float32 // [len(pos)][Pairs]
}

// Update computes the rows of the positions, unless they are those that it holds
// already.
func (t *RoPERows) Update(r *RoPE, positions []int32) {
	if t.rope == r && slices.Equal(t.pos, positions) {
		return
	}
	t.rope, t.pos = r, append(t.pos[:0], positions...)
	n := r.Pairs()
	t.cos, t.sin = grow(t.cos, n*len(positions)), grow(t.sin, n*len(positions))
	for i, p := range positions {
		r.CosSin(t.cos[i*n:][:n], t.sin[i*n:][:n], int(p))
	}
}

// Row returns the cosines and sines of token i.
func (t *RoPERows) Row(i int) (cos, sin []float32) {
	n := t.rope.Pairs()
	return t.cos[i*n:][:n], t.sin[i*n:][:n]
}

// All returns the cosines and sines of all tokens, pairs of each.
func (t *RoPERows) All() (cos, sin []float32, pairs int) { return t.cos, t.sin, t.rope.Pairs() }

// Rotate rotates the first 2*len(cos) features of each head of headDim values and
// copies the others. out may be x.
func Rotate(out, x []float32, headDim int, style RoPEStyle, cos, sin []float32) {
	sin = sin[:len(cos)]
	n := len(cos)
	for h := 0; h+headDim <= len(x); h += headDim {
		xh, oh := x[h:h+headDim], out[h:h+headDim]
		if style == HalfSplit {
			rotateHalves(oh[:n], oh[n:2*n], xh[:n], xh[n:2*n], cos, sin)
		} else {
			rotatePairs(oh, xh, cos, sin)
		}
		copy(oh[2*n:], xh[2*n:])
	}
}

func rotateHalves(o0, o1, x0, x1, cos, sin []float32) {
	for i, c := range cos {
		o0[i], o1[i] = rotate(x0[i], x1[i], c, sin[i])
	}
}

func rotatePairs(out, x, cos, sin []float32) {
	for i, c := range cos {
		out[2*i], out[2*i+1] = rotate(x[2*i], x[2*i+1], c, sin[i])
	}
}

func rotate(x0, x1, c, s float32) (y0, y1 float32) {
	return FMA(x0, c, -float32(x1*s)), FMA(x0, s, float32(x1*c))
}
