//go:build amd64 && !purego

package kernels

// What packing does to bits, with the vectors of a tier or without. Assembly does not check bounds.

// lines makes lines of the first of n words of 16 rows, as many as fill vectors, and returns their number.
func (t Tier) lines(dst, src []byte, stride, n int, flip uint32) int {
	groups := n / 4
	if t == Generic || groups == 0 {
		return 0
	}
	_, _ = dst[4*groups*lineSize-1], src[(PackedRows-1)*stride+16*groups-1]
	linesAVX2(&dst[0], &src[0], stride, groups, flip)
	return 4 * groups
}

func (t Tier) halves(dst, src []byte, stride int, flip uint16) bool {
	if t == Generic {
		return false
	}
	_, _ = dst[2*PackedRows-1], src[(PackedRows-1)*stride+1]
	halvesAVX2(&dst[0], &src[0], stride, flip)
	return true
}

func (t Tier) splitNibbles(low, high, x []byte) {
	if t == Generic {
		splitNibbles(low, high, x)
		return
	}
	_, _, _ = low[4*lineSize-1], high[4*lineSize-1], x[8*lineSize-1]
	splitNibblesAVX2(&low[0], &high[0], &x[0])
}

func (t Tier) splitPairs(dst []byte, step int, x []byte, apart int) {
	if t == Generic {
		splitPairs(dst, step, x, apart)
		return
	}
	_, _ = dst[3*step+lineSize-1], x[3*apart+lineSize-1]
	splitPairsAVX2(&dst[0], step, &x[0], apart)
}

func (t Tier) splitBits(dst []byte, step int, x []byte) {
	if t == Generic {
		splitBits(dst, step, x)
		return
	}
	_, _ = dst[7*step+lineSize-1], x[8*lineSize-1]
	splitBitsAVX2(&dst[0], step, &x[0])
}

func (t Tier) joinTriples(dst []byte, step int) {
	if t == Generic {
		joinTriples(dst, step)
		return
	}
	_ = dst[7*step+3*lineSize-1]
	joinTriplesAVX2(&dst[0], step)
}

func (t Tier) gatherBits(dst, line []byte) {
	if t == Generic {
		gatherBits(dst, line)
		return
	}
	_, _ = dst[lineSize-1], line[lineSize-1]
	gatherBitsAVX2(&dst[0], &line[0])
}

func (t Tier) splitWords(a, b, c, d, line []byte) {
	if t == Generic {
		splitWords(a, b, c, d, line)
		return
	}
	const last = PackedRows - 1
	_, _, _, _, _ = a[last], b[last], c[last], d[last], line[lineSize-1]
	splitWordsAVX2(&a[0], &b[0], &c[0], &d[0], &line[0])
}

func (t Tier) unzip(dst, x []byte, lines int) {
	if t == Generic {
		unzip(dst, x, lines)
		return
	}
	_, _ = dst[lines*lineSize-1], x[lines*lineSize-1]
	unzipAVX2(&dst[0], &x[0], lines)
}
