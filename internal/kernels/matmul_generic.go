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
		isum := dot16((*[16]int8)(w[b*32:]), (*[16]int8)(q[b*32:])) + dot16((*[16]int8)(w[b*32+16:]), (*[16]int8)(q[b*32+16:]))
		acc = FMA(float32(isum), scale[b]*db, acc)
		if mins != nil {
			acc = FMA(mins[b], sums[b], acc)
		}
	}
	return acc
}

// dotRow16 is dotRow32 for groups of 16 values.
func dotRow16(w []int8, scale, mins []float32, q []int8, d, sums []float32) float32 {
	var acc float32
	scale = scale[:2*len(d)]
	for g, sg := range scale {
		isum := dot16((*[16]int8)(w[g*16:]), (*[16]int8)(q[g*16:]))
		acc = FMA(float32(isum), sg*d[g/2], acc)
		if mins != nil {
			acc = FMA(mins[g], sums[g], acc)
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
// 12*2*128*127 < 2^20 in magnitude, the one at bit 42 at most 32*128*127 < 2^21,
// and what lies above bit 63 is lost without harm.
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

// middle returns the coefficient at bit 42. Half of bit 42 is added because the
// coefficients below may be negative and have borrowed from it.
func middle(s int64) float32 { return float32(int32((s + 1<<41) >> 42)) }

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

func dotTile32(packed []int64, scale, mins []float32, tile []actBlock) (acc [tileTokens]float32) {
	var a0, a1, a2, a3 float32
	scale = scale[:len(tile)]
	for b := range tile {
		t, w := &tile[b], (*[blockWords]int64)(packed[b*blockWords:])
		s0, s1, s2, s3 := dotWords(w, t)
		sb := scale[b]
		a0 = FMA(middle(s0), sb*t.d[0], a0)
		a1 = FMA(middle(s1), sb*t.d[1], a1)
		a2 = FMA(middle(s2), sb*t.d[2], a2)
		a3 = FMA(middle(s3), sb*t.d[3], a3)
		if mins != nil {
			mb := mins[b]
			a0 = FMA(mb, t.s32[0], a0)
			a1 = FMA(mb, t.s32[1], a1)
			a2 = FMA(mb, t.s32[2], a2)
			a3 = FMA(mb, t.s32[3], a3)
		}
	}
	return [tileTokens]float32{a0, a1, a2, a3}
}

func dotTile16(packed []int64, scale, mins []float32, tile []actBlock) (acc [tileTokens]float32) {
	var a0, a1, a2, a3 float32
	scale = scale[:2*len(tile)]
	for g, sg := range scale {
		t, w := &tile[g/2], (*[6]int64)(packed[g*6:])
		s0, s1, s2, s3 := dotHalf(w, (*[6][tileTokens]int64)(t.q[g%2*6:]))
		a0 = FMA(middle(s0), sg*t.d[0], a0)
		a1 = FMA(middle(s1), sg*t.d[1], a1)
		a2 = FMA(middle(s2), sg*t.d[2], a2)
		a3 = FMA(middle(s3), sg*t.d[3], a3)
		if mins != nil {
			mg, sums := mins[g], &t.s16[g%2]
			a0 = FMA(mg, sums[0], a0)
			a1 = FMA(mg, sums[1], a1)
			a2 = FMA(mg, sums[2], a2)
			a3 = FMA(mg, sums[3], a3)
		}
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

// matMulFloatRows widens four rows at a time; their four chains run side by side.
func matMulFloatRows(out []float32, outStride int, w *Weight, r0, r1 int, x []float32, xStride, tokens int, s *Scratch) {
	const rows = 4
	s.floats = grow(s.floats, rows*w.In)
	for r := r0; r < r1; r += rows {
		n := min(rows, r1-r)
		for i := range n {
			w.GetRow(s.floats[i*w.In:], r+i)
		}
		for t := range tokens {
			xt, o := x[t*xStride:][:w.In], out[t*outStride+r:][:n]
			if n == rows {
				o[0], o[1], o[2], o[3] = dotFloat4(s.floats, xt)
				continue
			}
			for i := range o {
				o[i] = dotFloat(s.floats[i*w.In:], xt)
			}
		}
	}
}

// dotFloat4 multiplies four rows of len(x) values, one after the other in w, with x.
func dotFloat4(w, x []float32) (a0, a1, a2, a3 float32) {
	n := len(x)
	w0, w1, w2, w3 := w[:n], w[n:][:n], w[2*n:][:n], w[3*n:][:n]
	for k, v := range x {
		a0 = FMA(w0[k], v, a0)
		a1 = FMA(w1[k], v, a1)
		a2 = FMA(w2[k], v, a2)
		a3 = FMA(w3[k], v, a3)
	}
	return
}

func dotFloat(w, x []float32) (a float32) {
	w = w[:len(x)]
	for k, v := range x {
		a = FMA(w[k], v, a)
	}
	return
}
