//go:build !purego

package kernels

// The methods below work off the first elements of rows, as many as fill vectors, and
// return their number. Slices are at least as long as the one whose length counts.

// whole returns how many of n elements are whole sixteens, if the tier has vectors.
func (t Tier) whole(n int) int {
	if t != NEON {
		return 0
	}
	return n &^ 15
}

func (t Tier) add(out, a, b []float32) int {
	n := t.whole(len(a))
	if n > 0 {
		addNEON(&out[0], &a[0], &b[0], n)
	}
	return n
}

func (t Tier) mul(out, a, b []float32) int {
	n := t.whole(len(a))
	if n > 0 {
		mulNEON(&out[0], &a[0], &b[0], n)
	}
	return n
}

func (t Tier) scale(out, x []float32, factor float32) int {
	n := t.whole(len(x))
	if n > 0 {
		scaleNEON(&out[0], &x[0], factor, n)
	}
	return n
}

func (t Tier) silu(out, x []float32) int {
	n := t.whole(len(x))
	if n > 0 {
		siluNEON(&out[0], &x[0], n)
	}
	return n
}

func (t Tier) gelu(out, x []float32) int {
	n := t.whole(len(x))
	if n > 0 {
		geluNEON(&out[0], &x[0], n)
	}
	return n
}

func (t Tier) swiglu(out, gate, up []float32) int {
	n := t.whole(len(gate))
	if n > 0 {
		swigluNEON(&out[0], &gate[0], &up[0], n)
	}
	return n
}

func (t Tier) squares(lanes *[16]float32, x []float32) int {
	n := t.whole(len(x))
	if n > 0 {
		squaresNEON(&x[0], &lanes[0], n)
	}
	return n
}

func (t Tier) weigh(out, x, weight []float32, factor float32) int {
	n := t.whole(len(x))
	if n > 0 {
		weighNEON(&out[0], &x[0], &weight[0], factor, n)
	}
	return n
}

func (t Tier) expSum(out, x []float32, lanes *[16]float32, m float32) int {
	n := t.whole(len(x))
	if n > 0 {
		expSumNEON(&out[0], &x[0], &lanes[0], m, n)
	}
	return n
}

func (t Tier) rotateHalves(o0, o1, x0, x1, cos, sin []float32) int {
	n := t.whole(len(cos))
	if n > 0 {
		rotateHalvesNEON(&o0[0], &o1[0], &x0[0], &x1[0], &cos[0], &sin[0], n)
	}
	return n
}

func (t Tier) decodeF16(dst []float32, src []uint16) int {
	n := t.whole(len(src))
	if n > 0 {
		decodeF16NEON(&dst[0], &src[0], n)
	}
	return n
}

func (t Tier) encodeF16(dst []uint16, src []float32) int {
	n := t.whole(len(src))
	if n > 0 {
		encodeF16NEON(&dst[0], &src[0], n)
	}
	return n
}

func (t Tier) decodeBF16(dst []float32, src []uint16) int {
	n := t.whole(len(src))
	if n > 0 {
		decodeBF16NEON(&dst[0], &src[0], n)
	}
	return n
}

func (t Tier) encodeBF16(dst []uint16, src []float32) int {
	n := t.whole(len(src))
	if n > 0 {
		encodeBF16NEON(&dst[0], &src[0], n)
	}
	return n
}

// maximum returns the largest of the first n elements too.
func (t Tier) maximum(x []float32) (m float32, n int) {
	n = t.whole(len(x))
	if n == 0 {
		return minusInf, 0
	}
	return maximumNEON(&x[0], n), n
}

func (t Tier) rotatePairs(out, x, cos, sin []float32) int {
	n := len(cos) &^ 3
	if n == 0 || t != NEON {
		return 0
	}
	rotatePairsNEON(&out[0], &x[0], &cos[0], &sin[0], n)
	return n
}

// scatterF16 stores elements kvBlock apart.
func (t Tier) scatterF16(dst []uint16, src []float32) int {
	n := t.whole(len(src))
	if n > 0 {
		_ = dst[(n-1)*kvBlock]
		scatterF16NEON(&dst[0], &src[0], n)
	}
	return n
}

// lines makes lines of the first of n words of 16 rows, as many as fill vectors, and returns their number.
func (t Tier) lines(dst, src []byte, stride, n int, flip uint32) int {
	groups := n / 4
	if t != NEON || groups == 0 {
		return 0
	}
	_, _ = dst[4*groups*lineSize-1], src[(PackedRows-1)*stride+16*groups-1]
	linesNEON(&dst[0], &src[0], stride, groups, int(flip))
	return 4 * groups
}

func (Tier) storeBlockF16([]uint16, []float32, int, int, bool) bool { return false }

func (Tier) finishHeads(_, _ []float32, _, _, _ int, _ *Heads, _, _ []float32, _, _ int) bool {
	return false
}
