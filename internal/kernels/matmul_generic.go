package kernels

// One token: each row is unpacked and multiplied at once. Several tokens: rows are
// unpacked and packed three quants to a word, so that one 64-bit multiplication
// does three products of the integer dot product. Both are exact in the integer
// part and the same in the float part, so both return the same bits.

// matMulIntRows is the definition in its simplest form.
func matMulIntRows(out []float32, outStride int, w *Weight, r0, r1 int, acts *QActs, s *Scratch) {
	f := w.Format
	nb := w.In / BlockSize
	s.row.Grow(f, w.In)
	for r := r0; r < r1; r++ {
		f.Unpack(&s.row, w.Row(r))
		for t := range acts.Tokens {
			q, d := acts.Q[t*w.In:][:w.In], acts.D[t*nb:][:nb]
			var sums, mins []float32
			if f.Min {
				mins = s.row.Min
			}
			var acc float32
			if f.Group == 32 {
				if f.Min {
					sums = acts.S32[t*nb:][:nb]
				}
				acc = dotRow32(s.row.Q, s.row.Scale, mins, q, d, sums)
			} else {
				if f.Min {
					sums = acts.S16[2*t*nb:][:2*nb]
				}
				acc = dotRow16(s.row.Q, s.row.Scale, mins, q, d, sums)
			}
			out[t*outStride+r] = acc
		}
	}
}

// dotRow32 multiplies a row whose groups have 32 values. mins is nil for formats
// without minimum.
func dotRow32(w []int8, scale, mins []float32, q []int8, d, sums []float32) float32 {
	var acc float32
	scale = scale[:len(d)]
	for b, db := range d {
		isum := float32(dot32((*[32]int8)(w[b*32:]), (*[32]int8)(q[b*32:])))
		v := mulAdd(isum, scale[b]*db, acc)
		if tied(v) {
			v = fmaOdd(isum, scale[b]*db, acc)
		}
		acc = float32(v)
		if mins != nil {
			v = mulAdd(mins[b], sums[b], acc)
			if tied(v) {
				v = fmaOdd(mins[b], sums[b], acc)
			}
			acc = float32(v)
		}
	}
	return acc
}

// dotRow16 is dotRow32 for groups of 16 values.
func dotRow16(w []int8, scale, mins []float32, q []int8, d, sums []float32) float32 {
	var acc float32
	scale = scale[:2*len(d)]
	for g, sg := range scale {
		isum := float32(dot16((*[16]int8)(w[g*16:]), (*[16]int8)(q[g*16:])))
		v := mulAdd(isum, sg*d[g/2], acc)
		if tied(v) {
			v = fmaOdd(isum, sg*d[g/2], acc)
		}
		acc = float32(v)
		if mins != nil {
			v = mulAdd(mins[g], sums[g], acc)
			if tied(v) {
				v = fmaOdd(mins[g], sums[g], acc)
			}
			acc = float32(v)
		}
	}
	return acc
}

func dot16(a, b *[16]int8) int32 {
	s := int32(a[0])*int32(b[0]) + int32(a[1])*int32(b[1]) + int32(a[2])*int32(b[2]) + int32(a[3])*int32(b[3])
	t := int32(a[4])*int32(b[4]) + int32(a[5])*int32(b[5]) + int32(a[6])*int32(b[6]) + int32(a[7])*int32(b[7])
	s += int32(a[8])*int32(b[8]) + int32(a[9])*int32(b[9]) + int32(a[10])*int32(b[10]) + int32(a[11])*int32(b[11])
	t += int32(a[12])*int32(b[12]) + int32(a[13])*int32(b[13]) + int32(a[14])*int32(b[14]) + int32(a[15])*int32(b[15])
	return s + t
}

func dot32(a, b *[32]int8) int32 {
	s := int32(a[0])*int32(b[0]) + int32(a[1])*int32(b[1]) + int32(a[2])*int32(b[2]) + int32(a[3])*int32(b[3])
	t := int32(a[4])*int32(b[4]) + int32(a[5])*int32(b[5]) + int32(a[6])*int32(b[6]) + int32(a[7])*int32(b[7])
	s += int32(a[8])*int32(b[8]) + int32(a[9])*int32(b[9]) + int32(a[10])*int32(b[10]) + int32(a[11])*int32(b[11])
	t += int32(a[12])*int32(b[12]) + int32(a[13])*int32(b[13]) + int32(a[14])*int32(b[14]) + int32(a[15])*int32(b[15])
	s += int32(a[16])*int32(b[16]) + int32(a[17])*int32(b[17]) + int32(a[18])*int32(b[18]) + int32(a[19])*int32(b[19])
	t += int32(a[20])*int32(b[20]) + int32(a[21])*int32(b[21]) + int32(a[22])*int32(b[22]) + int32(a[23])*int32(b[23])
	s += int32(a[24])*int32(b[24]) + int32(a[25])*int32(b[25]) + int32(a[26])*int32(b[26]) + int32(a[27])*int32(b[27])
	t += int32(a[28])*int32(b[28]) + int32(a[29])*int32(b[29]) + int32(a[30])*int32(b[30]) + int32(a[31])*int32(b[31])
	return s + t
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

func matMulIntTiles(out []float32, outStride int, w *Weight, r0, r1 int, acts *QActs, s *Scratch) {
	nb := w.In / BlockSize
	words := nb * blockWords
	s.packed = grow(s.packed, tileRows*words)
	for r := r0; r < r1; r += tileRows {
		n := min(tileRows, r1-r)
		s.unpackTile(w, r, n)
		for t := 0; t < acts.Tokens; t += tileTokens {
			tile := acts.tiles[t/tileTokens*nb:][:nb]
			for i := range n {
				v := s.dotTile(w, i, s.packed[i*words:][:words], tile)
				for j := range min(tileTokens, acts.Tokens-t) {
					out[(t+j)*outStride+r+i] = v[j]
				}
			}
		}
	}
}

// unpackTile packs n rows from r on, and keeps their scales and minima.
func (s *Scratch) unpackTile(w *Weight, r, n int) {
	words := w.In / BlockSize * blockWords
	s.row.Grow(w.Format, w.In)
	for i := range n {
		w.Format.Unpack(&s.row, w.Row(r+i))
		packWeights(s.packed[i*words:][:words], s.row.Q)
		s.scales[2*i] = append(s.scales[2*i][:0], s.row.Scale...)
		if w.Format.Min {
			s.scales[2*i+1] = append(s.scales[2*i+1][:0], s.row.Min...)
		}
	}
}

func (s *Scratch) dotTile(w *Weight, i int, packed []int64, tile []actBlock) [tileTokens]float32 {
	scale, mins := s.scales[2*i], s.scales[2*i+1]
	if !w.Format.Min {
		mins = nil
	}
	if w.Format.Group == 32 {
		return dotTile32(packed, scale, mins, tile)
	}
	return dotTile16(packed, scale, mins, tile)
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

// addScaled sets a[i] to FMA(p, v[i], a[i]).
func addScaled(a []float32, p float32, v []float32) {
	v = v[:len(a)]
	for i := range a {
		s := mulAdd(p, v[i], a[i])
		if tied(s) {
			s = fmaOdd(p, v[i], a[i])
		}
		a[i] = float32(s)
	}
}
