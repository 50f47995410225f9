package kernels

import "github.com/minfer/minfer/internal/quant"

// Both products below are exact in the integer part and follow the contract in the
// float part, so they return the same bits. They do several of the small products
// at once by packing quants into 64-bit words: when one factor holds a, b, c from
// the lowest field up and the other z, y, x, one field of the product is ax+by+cz.

// matMulIntRows is for one or two tokens: rows are used as they are unpacked, two at
// a time so that the latency of one chain is hidden behind the other.
func matMulIntRows(out []float32, outStride int, w intMatrix, r0, r1 int, acts *QActs, s *Scratch) {
	format, in := w.shape()
	nb := in / BlockSize
	for r := r0; r < r1; r += 2 {
		first, second := &s.rows[0], &s.rows[1]
		w.unpackRow(first, r)
		if r+1 < r1 {
			w.unpackRow(second, r+1)
		} else {
			second = first
		}
		for t := range acts.Tokens {
			a := tokenActs{d: acts.D[t*nb:][:nb], quads: acts.quads[2*t*nb:][:2*nb]}
			var y0, y1 float32
			if format.Group == 32 {
				a.sums = acts.S32[t*nb:][:nb]
				y0, y1 = dotRows32(first, second, &a)
			} else {
				a.sums = acts.S16[2*t*nb:][:2*nb]
				y0, y1 = dotRows16(first, second, &a)
			}
			out[t*outStride+r] = y0
			if r+1 < r1 {
				out[t*outStride+r+1] = y1
			}
		}
	}
}

// tokenActs are the activations of one token.
type tokenActs struct {
	d     []float32
	sums  []float32 // by group of the weight
	quads []actQuad
}

// dotRows32 multiplies two rows whose groups have 32 values.
func dotRows32(w0, w1 *quant.IntRow, a *tokenActs) (acc0, acc1 float32) {
	n := len(a.d)
	q0, q1, scale0, scale1, mins0, mins1 := w0.Q[:32*n], w1.Q[:32*n], w0.Scale[:n], w1.Scale[:n], w0.Min, w1.Min
	bias := biasOf(mins0)
	quads, sums := a.quads[:2*n], a.sums[:n]
	var v float64
	for b, d := range a.d {
		quad := (*[2]actQuad)(quads[2*b:])
		isum0 := float32(dot32((*[32]int8)(q0[b*32:]), quad, bias))
		isum1 := float32(dot32((*[32]int8)(q1[b*32:]), quad, bias))
		d0, d1 := scale0[b]*d, scale1[b]*d
		if v = mulAdd(isum0, d0, acc0); tied(v) {
			v = fmaOdd(isum0, d0, acc0)
		}
		acc0 = float32(v)
		if v = mulAdd(isum1, d1, acc1); tied(v) {
			v = fmaOdd(isum1, d1, acc1)
		}
		acc1 = float32(v)
		if mins0 == nil {
			continue
		}
		m0, m1, sum := mins0[b], mins1[b], sums[b]
		if v = mulAdd(m0, sum, acc0); tied(v) {
			v = fmaOdd(m0, sum, acc0)
		}
		acc0 = float32(v)
		if v = mulAdd(m1, sum, acc1); tied(v) {
			v = fmaOdd(m1, sum, acc1)
		}
		acc1 = float32(v)
	}
	return acc0, acc1
}

// dotRows16 multiplies two rows whose groups have 16 values.
func dotRows16(w0, w1 *quant.IntRow, a *tokenActs) (acc0, acc1 float32) {
	n := 2 * len(a.d)
	q0, q1, scale0, scale1, mins0, mins1 := w0.Q[:16*n], w1.Q[:16*n], w0.Scale[:n], w1.Scale[:n], w0.Min, w1.Min
	bias := biasOf(mins0)
	quads, sums := a.quads[:n], a.sums[:n]
	var v float64
	for g := range quads {
		quad := &quads[g]
		isum0 := float32(dot16((*[16]int8)(q0[g*16:]), quad, bias))
		isum1 := float32(dot16((*[16]int8)(q1[g*16:]), quad, bias))
		d := a.d[g/2]
		d0, d1 := scale0[g]*d, scale1[g]*d
		if v = mulAdd(isum0, d0, acc0); tied(v) {
			v = fmaOdd(isum0, d0, acc0)
		}
		acc0 = float32(v)
		if v = mulAdd(isum1, d1, acc1); tied(v) {
			v = fmaOdd(isum1, d1, acc1)
		}
		acc1 = float32(v)
		if mins0 == nil {
			continue
		}
		m0, m1, sum := mins0[g], mins1[g], sums[g]
		if v = mulAdd(m0, sum, acc0); tied(v) {
			v = fmaOdd(m0, sum, acc0)
		}
		acc0 = float32(v)
		if v = mulAdd(m1, sum, acc1); tied(v) {
			v = fmaOdd(m1, sum, acc1)
		}
		acc1 = float32(v)
	}
	return acc0, acc1
}

// actQuad is a group of 16 activations as four words of four 16-bit fields: the
// even and the odd ones of the first eight, then of the second, each with the first
// in the highest field.
type actQuad struct {
	q   [4]int64
	sum int64
}

func (a *actQuad) set(q *[16]int8) {
	a.sum = int64(sum16(q))
	for i := range a.q {
		j := i/2*8 + i%2
		a.q[i] = int64(q[j])<<48 + int64(q[j+2])<<32 + int64(q[j+4])<<16 + int64(q[j+6])
	}
}

// biasOf returns what makes the quants of a format of four bits or fewer
// non-negative: they are 0 to 15 if it has a minimum, -8 to 7 if not.
func biasOf(mins []float32) int64 {
	if mins != nil {
		return 0
	}
	return 8
}

const (
	byteOnes = 0x0101010101010101
	nibbles  = 0x000f000f000f000f // the low nibble of each 16-bit field
)

// dot16 returns the exact dot product of 16 weights and a group of activations.
//
// Nibbles of biased weights are multiplied four at a time. The highest field of the
// product, 16 bits, is their dot product: even summed over four words it is at most
// 16*15*127 < 2^15 in magnitude, and so are the fields below. Weights that the bias
// brings into four bits take one such sum, others one for each nibble.
func dot16(w *[16]int8, a *actQuad, bias int64) int64 {
	x0, x1 := load8((*[8]int8)(w[:8]))^128*byteOnes, load8((*[8]int8)(w[8:]))^128*byteOnes // w+128
	sub := uint64(128-bias) * byteOnes
	y0, y1 := x0-sub, x1-sub
	if (y0|y1)&(0xf0*byteOnes) == 0 {
		return highest(mulNibbles(y0, y1, a)) - bias*a.sum
	}
	return highest(mulNibbles(x0, x1, a)) + highest(mulNibbles(x0>>4, x1>>4, a))<<4 - a.sum<<7
}

// dot32 is dot16 for two groups.
func dot32(w *[32]int8, a *[2]actQuad, bias int64) int64 {
	x0, x1 := load8((*[8]int8)(w[:8]))^128*byteOnes, load8((*[8]int8)(w[8:16]))^128*byteOnes
	x2, x3 := load8((*[8]int8)(w[16:24]))^128*byteOnes, load8((*[8]int8)(w[24:]))^128*byteOnes
	sub := uint64(128-bias) * byteOnes
	y0, y1, y2, y3 := x0-sub, x1-sub, x2-sub, x3-sub
	if (y0|y1|y2|y3)&(0xf0*byteOnes) == 0 {
		return highest(mulNibbles(y0, y1, &a[0])) + highest(mulNibbles(y2, y3, &a[1])) - bias*(a[0].sum+a[1].sum)
	}
	lo := highest(mulNibbles(x0, x1, &a[0])) + highest(mulNibbles(x2, x3, &a[1]))
	hi := highest(mulNibbles(x0>>4, x1>>4, &a[0])) + highest(mulNibbles(x2>>4, x3>>4, &a[1]))
	return lo + hi<<4 - (a[0].sum+a[1].sum)<<7
}

// mulNibbles multiplies the low nibbles of 16 bytes with the activations.
func mulNibbles(x0, x1 uint64, a *actQuad) int64 {
	return int64(x0&nibbles)*a.q[0] + int64(x0>>8&nibbles)*a.q[1] + int64(x1&nibbles)*a.q[2] + int64(x1>>8&nibbles)*a.q[3]
}

// highest returns the highest field; see middle for the rounding.
func highest(s int64) int64 { return (s + 1<<47) >> 48 }

// load8 is one load, little-endian, where the machine can do it.
func load8(q *[8]int8) uint64 {
	return uint64(uint8(q[0])) | uint64(uint8(q[1]))<<8 | uint64(uint8(q[2]))<<16 | uint64(uint8(q[3]))<<24 |
		uint64(uint8(q[4]))<<32 | uint64(uint8(q[5]))<<40 | uint64(uint8(q[6]))<<48 | uint64(uint8(q[7]))<<56
}

const (
	tileTokens = 4 // tokens that share the load of a weight word
	tileRows   = 8 // rows that pass over a tile of activations while it is in the cache
	blockWords = 12
)

// actBlock is a block of 32 activations of four tokens, in the order in which the
// packed product reads them. Each 16 quants are 6 words of three: bits 0, 21, 42.
type actBlock struct {
	q   [blockWords][tileTokens]int64
	d   [tileTokens]float32
	s32 [tileTokens]float32
	s16 [2][tileTokens]float32
}

func (a *actBlock) set(lane int, q *[32]int8, d, s32, lo, hi float32) {
	a.d[lane], a.s32[lane], a.s16[0][lane], a.s16[1][lane] = d, s32, lo, hi
	for h := range 2 {
		for i := range 5 {
			j := h*16 + i*3
			a.q[h*6+i][lane] = int64(q[j]) + int64(q[j+1])<<21 + int64(q[j+2])<<42
		}
		a.q[h*6+5][lane] = int64(q[h*16+15])
	}
}

// packWeights packs a row in the opposite order, which makes the coefficient at
// bit 42 of a product the dot product of the three quants.
//
// Sums over a block stay apart: the coefficient at bit 21 is at most
// 12*2*128*127 < 2^20 in magnitude, the one at bit 42 at most 32*128*127 < 2^20.
// Bit 63 has the next coefficient's lowest bit; the rest of that is lost without harm.
func packWeights(dst []int64, q []int8) {
	for len(dst) >= 6 && len(q) >= 16 {
		d, v := (*[6]int64)(dst), (*[16]int8)(q)
		d[0] = int64(v[2]) + int64(v[1])<<21 + int64(v[0])<<42
		d[1] = int64(v[5]) + int64(v[4])<<21 + int64(v[3])<<42
		d[2] = int64(v[8]) + int64(v[7])<<21 + int64(v[6])<<42
		d[3] = int64(v[11]) + int64(v[10])<<21 + int64(v[9])<<42
		d[4] = int64(v[14]) + int64(v[13])<<21 + int64(v[12])<<42
		d[5] = int64(v[15]) << 42
		dst, q = dst[6:], q[16:]
	}
}

// middle returns the coefficient at bits 42 to 62. Half of bit 42 is added because
// the coefficients below may be negative and have borrowed from it.
func middle(s int64) float32 { return float32(int32((s + 1<<41) << 1 >> 43)) }

func matMulIntTiles(out []float32, outStride int, w intMatrix, r0, r1 int, acts *QActs, s *Scratch) {
	format, in := w.shape()
	nb := in / BlockSize
	words := nb * blockWords
	s.packed = grow(s.packed, tileRows*words)
	for r := r0; r < r1; r += tileRows {
		n := min(tileRows, r1-r)
		s.unpackTile(w, in, r, n)
		for t := 0; t < acts.Tokens; t += tileTokens {
			tile := acts.tiles[t/tileTokens*nb:][:nb]
			for i := range n {
				v := s.dotTile(format, i, s.packed[i*words:][:words], tile)
				for j := range min(tileTokens, acts.Tokens-t) {
					out[(t+j)*outStride+r+i] = v[j]
				}
			}
		}
	}
}

// unpackTile packs n rows from r on, and keeps their scales and minima.
func (s *Scratch) unpackTile(w intMatrix, in, r, n int) {
	words := in / BlockSize * blockWords
	for i := range n {
		row := &s.rows[i]
		w.unpackRow(row, r+i)
		packWeights(s.packed[i*words:][:words], row.Q)
	}
}

func (s *Scratch) dotTile(format *quant.Format, i int, packed []int64, tile []actBlock) [tileTokens]float32 {
	row := &s.rows[i]
	if format.Group == 32 {
		return dotTile32(packed, row.Scale, row.Min, tile)
	}
	return dotTile16(packed, row.Scale, row.Min, tile)
}

func dotTile32(packed []int64, scale, mins []float32, tile []actBlock) [tileTokens]float32 {
	var a0, a1, a2, a3 float32
	var v float64
	scale = scale[:len(tile)]
	for b := range tile {
		t, w, s := &tile[b], (*[blockWords]int64)(packed[b*blockWords:]), scale[b]
		s0, s1, s2, s3 := dotWords(w, t)
		m0, m1, m2, m3 := middle(s0), middle(s1), middle(s2), middle(s3)
		d0, d1, d2, d3 := s*t.d[0], s*t.d[1], s*t.d[2], s*t.d[3]
		v = mulAdd(m0, d0, a0)
		if tied(v) {
			v = fmaOdd(m0, d0, a0)
		}
		a0 = float32(v)
		v = mulAdd(m1, d1, a1)
		if tied(v) {
			v = fmaOdd(m1, d1, a1)
		}
		a1 = float32(v)
		v = mulAdd(m2, d2, a2)
		if tied(v) {
			v = fmaOdd(m2, d2, a2)
		}
		a2 = float32(v)
		v = mulAdd(m3, d3, a3)
		if tied(v) {
			v = fmaOdd(m3, d3, a3)
		}
		a3 = float32(v)
		if mins == nil {
			continue
		}
		m := mins[b]
		v = mulAdd(m, t.s32[0], a0)
		if tied(v) {
			v = fmaOdd(m, t.s32[0], a0)
		}
		a0 = float32(v)
		v = mulAdd(m, t.s32[1], a1)
		if tied(v) {
			v = fmaOdd(m, t.s32[1], a1)
		}
		a1 = float32(v)
		v = mulAdd(m, t.s32[2], a2)
		if tied(v) {
			v = fmaOdd(m, t.s32[2], a2)
		}
		a2 = float32(v)
		v = mulAdd(m, t.s32[3], a3)
		if tied(v) {
			v = fmaOdd(m, t.s32[3], a3)
		}
		a3 = float32(v)
	}
	return [tileTokens]float32{a0, a1, a2, a3}
}

func dotTile16(packed []int64, scale, mins []float32, tile []actBlock) [tileTokens]float32 {
	var a0, a1, a2, a3 float32
	var v float64
	scale = scale[:2*len(tile)]
	for g, s := range scale {
		t, w := &tile[g/2], (*[6]int64)(packed[g*6:])
		s0, s1, s2, s3 := dotHalf(w, (*[6][tileTokens]int64)(t.q[g%2*6:]))
		m0, m1, m2, m3 := middle(s0), middle(s1), middle(s2), middle(s3)
		d0, d1, d2, d3 := s*t.d[0], s*t.d[1], s*t.d[2], s*t.d[3]
		v = mulAdd(m0, d0, a0)
		if tied(v) {
			v = fmaOdd(m0, d0, a0)
		}
		a0 = float32(v)
		v = mulAdd(m1, d1, a1)
		if tied(v) {
			v = fmaOdd(m1, d1, a1)
		}
		a1 = float32(v)
		v = mulAdd(m2, d2, a2)
		if tied(v) {
			v = fmaOdd(m2, d2, a2)
		}
		a2 = float32(v)
		v = mulAdd(m3, d3, a3)
		if tied(v) {
			v = fmaOdd(m3, d3, a3)
		}
		a3 = float32(v)
		if mins == nil {
			continue
		}
		m, sums := mins[g], &t.s16[g%2]
		v = mulAdd(m, sums[0], a0)
		if tied(v) {
			v = fmaOdd(m, sums[0], a0)
		}
		a0 = float32(v)
		v = mulAdd(m, sums[1], a1)
		if tied(v) {
			v = fmaOdd(m, sums[1], a1)
		}
		a1 = float32(v)
		v = mulAdd(m, sums[2], a2)
		if tied(v) {
			v = fmaOdd(m, sums[2], a2)
		}
		a2 = float32(v)
		v = mulAdd(m, sums[3], a3)
		if tied(v) {
			v = fmaOdd(m, sums[3], a3)
		}
		a3 = float32(v)
	}
	return [tileTokens]float32{a0, a1, a2, a3}
}

// dotWords multiplies a block of weights with four tokens.
func dotWords(w *[blockWords]int64, t *actBlock) (s0, s1, s2, s3 int64) {
	a0, a1, a2, a3 := dotHalf((*[6]int64)(w[:6]), (*[6][tileTokens]int64)(t.q[:6]))
	b0, b1, b2, b3 := dotHalf((*[6]int64)(w[6:]), (*[6][tileTokens]int64)(t.q[6:]))
	return a0 + b0, a1 + b1, a2 + b2, a3 + b3
}

func dotHalf(w *[6]int64, q *[6][tileTokens]int64) (s0, s1, s2, s3 int64) {
	v := w[0]
	s0, s1, s2, s3 = v*q[0][0], v*q[0][1], v*q[0][2], v*q[0][3]
	v = w[1]
	s0, s1, s2, s3 = s0+v*q[1][0], s1+v*q[1][1], s2+v*q[1][2], s3+v*q[1][3]
	v = w[2]
	s0, s1, s2, s3 = s0+v*q[2][0], s1+v*q[2][1], s2+v*q[2][2], s3+v*q[2][3]
	v = w[3]
	s0, s1, s2, s3 = s0+v*q[3][0], s1+v*q[3][1], s2+v*q[3][2], s3+v*q[3][3]
	v = w[4]
	s0, s1, s2, s3 = s0+v*q[4][0], s1+v*q[4][1], s2+v*q[4][2], s3+v*q[4][3]
	v = w[5]
	return s0 + v*q[5][0], s1 + v*q[5][1], s2 + v*q[5][2], s3 + v*q[5][3]
}

// matMulFloatRows widens a few rows at a time, for all tokens.
func matMulFloatRows(out []float32, outStride int, w *Weight, r0, r1 int, x []float32, xStride, tokens int, s *Scratch) {
	s.floats = grow(s.floats, tileRows*w.In)
	for r := r0; r < r1; r += tileRows {
		n := min(tileRows, r1-r)
		for i := range n {
			w.GetRow(s.floats[i*w.In:], r+i)
		}
		for t := range tokens {
			dotRows(out[t*outStride+r:][:n], s.floats, x[t*xStride:][:w.In])
		}
	}
}

// dotRows sets out[i] to the product of x with the i-th row of len(x) values in w.
// The chains of eight rows run side by side.
func dotRows(out, w, x []float32) {
	n := len(x)
	i := 0
	for ; i+8 <= len(out); i += 8 {
		dotFloat8((*[8]float32)(out[i:]), w[i*n:][:8*n], x)
	}
	for ; i < len(out); i++ {
		out[i] = dotFloat(w[i*n:][:n], x)
	}
}

func dotFloat8(out *[8]float32, w, x []float32) {
	n := len(x)
	w0, w1, w2, w3 := w[:n], w[n:][:n], w[2*n:][:n], w[3*n:][:n]
	w4, w5, w6, w7 := w[4*n:][:n], w[5*n:][:n], w[6*n:][:n], w[7*n:][:n]
	var a0, a1, a2, a3, a4, a5, a6, a7 float32
	var s float64
	for k, v := range x {
		if s = mulAdd(w0[k], v, a0); tied(s) {
			s = fmaOdd(w0[k], v, a0)
		}
		a0 = float32(s)
		if s = mulAdd(w1[k], v, a1); tied(s) {
			s = fmaOdd(w1[k], v, a1)
		}
		a1 = float32(s)
		if s = mulAdd(w2[k], v, a2); tied(s) {
			s = fmaOdd(w2[k], v, a2)
		}
		a2 = float32(s)
		if s = mulAdd(w3[k], v, a3); tied(s) {
			s = fmaOdd(w3[k], v, a3)
		}
		a3 = float32(s)
		if s = mulAdd(w4[k], v, a4); tied(s) {
			s = fmaOdd(w4[k], v, a4)
		}
		a4 = float32(s)
		if s = mulAdd(w5[k], v, a5); tied(s) {
			s = fmaOdd(w5[k], v, a5)
		}
		a5 = float32(s)
		if s = mulAdd(w6[k], v, a6); tied(s) {
			s = fmaOdd(w6[k], v, a6)
		}
		a6 = float32(s)
		if s = mulAdd(w7[k], v, a7); tied(s) {
			s = fmaOdd(w7[k], v, a7)
		}
		a7 = float32(s)
	}
	*out = [8]float32{a0, a1, a2, a3, a4, a5, a6, a7}
}

func dotFloat(w, x []float32) (a float32) {
	w = w[:len(x)]
	for k, v := range x {
		a = FMA(w[k], v, a)
	}
	return
}

// addScaled sets a[i] to FMA(p, v[i], a[i]). With p widened beforehand one term does
// not wait for the one before.
func addScaled(a []float32, p float32, v []float32) {
	v = v[:len(a)]
	wide := float64(p)
	for i := range a {
		s := float64(v[i])*wide + float64(a[i])
		if tied(s) {
			s = fmaOdd(p, v[i], a[i])
		}
		a[i] = float32(s)
	}
}
