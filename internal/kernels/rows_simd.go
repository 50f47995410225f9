//go:build amd64 && !purego

package kernels

// The methods below work off the first elements of rows, as many as fill vectors, and
// return their number. Slices are at least as long as the one whose length counts.

func (t Tier) avx2() bool { return t == AVX2 || t == AVXVNNI }

func (t Tier) avx512() bool { return t == AVX512 || t == AMX }

func (t Tier) add(out, a, b []float32) int {
	n := len(a) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		addAVX512(&out[0], &a[0], &b[0], n)
		return n
	case t.avx2():
		addAVX2(&out[0], &a[0], &b[0], n)
		return n
	}
	return 0
}

func (t Tier) mul(out, a, b []float32) int {
	n := len(a) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		mulAVX512(&out[0], &a[0], &b[0], n)
		return n
	case t.avx2():
		mulAVX2(&out[0], &a[0], &b[0], n)
		return n
	}
	return 0
}

func (t Tier) scale(out, x []float32, factor float32) int {
	n := len(x) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		scaleAVX512(&out[0], &x[0], factor, n)
		return n
	case t.avx2():
		scaleAVX2(&out[0], &x[0], factor, n)
		return n
	}
	return 0
}

func (t Tier) silu(out, x []float32) int {
	n := len(x) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		siluAVX512(&out[0], &x[0], n)
		return n
	case t.avx2():
		siluAVX2(&out[0], &x[0], n)
		return n
	}
	return 0
}

func (t Tier) gelu(out, x []float32) int {
	n := len(x) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		geluAVX512(&out[0], &x[0], n)
		return n
	case t.avx2():
		geluAVX2(&out[0], &x[0], n)
		return n
	}
	return 0
}

func (t Tier) swiglu(out, gate, up []float32) int {
	n := len(gate) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		swigluAVX512(&out[0], &gate[0], &up[0], n)
		return n
	case t.avx2():
		swigluAVX2(&out[0], &gate[0], &up[0], n)
		return n
	}
	return 0
}

func (t Tier) squares(lanes *[16]float32, x []float32) int {
	n := len(x) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		squaresAVX512(&x[0], &lanes[0], n)
		return n
	case t.avx2():
		squaresAVX2(&x[0], &lanes[0], n)
		return n
	}
	return 0
}

func (t Tier) weigh(out, x, weight []float32, factor float32) int {
	n := len(x) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		weighAVX512(&out[0], &x[0], &weight[0], factor, n)
		return n
	case t.avx2():
		weighAVX2(&out[0], &x[0], &weight[0], factor, n)
		return n
	}
	return 0
}

func (t Tier) expSum(out, x []float32, lanes *[16]float32, m float32) int {
	n := len(x) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		expSumAVX512(&out[0], &x[0], &lanes[0], m, n)
		return n
	case t.avx2():
		expSumAVX2(&out[0], &x[0], &lanes[0], m, n)
		return n
	}
	return 0
}

func (t Tier) rotateHalves(o0, o1, x0, x1, cos, sin []float32) int {
	n := len(cos) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		rotateHalvesAVX512(&o0[0], &o1[0], &x0[0], &x1[0], &cos[0], &sin[0], n)
		return n
	case t.avx2():
		rotateHalvesAVX2(&o0[0], &o1[0], &x0[0], &x1[0], &cos[0], &sin[0], n)
		return n
	}
	return 0
}

func (t Tier) decodeF16(dst []float32, src []uint16) int {
	n := len(src) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		decodeF16AVX512(&dst[0], &src[0], n)
		return n
	case t.avx2():
		decodeF16AVX2(&dst[0], &src[0], n)
		return n
	}
	return 0
}

func (t Tier) encodeF16(dst []uint16, src []float32) int {
	n := len(src) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		encodeF16AVX512(&dst[0], &src[0], n)
		return n
	case t.avx2():
		encodeF16AVX2(&dst[0], &src[0], n)
		return n
	}
	return 0
}

func (t Tier) decodeBF16(dst []float32, src []uint16) int {
	n := len(src) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		decodeBF16AVX512(&dst[0], &src[0], n)
		return n
	case t.avx2():
		decodeBF16AVX2(&dst[0], &src[0], n)
		return n
	}
	return 0
}

func (t Tier) encodeBF16(dst []uint16, src []float32) int {
	n := len(src) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		encodeBF16AVX512(&dst[0], &src[0], n)
		return n
	case t.avx2():
		encodeBF16AVX2(&dst[0], &src[0], n)
		return n
	}
	return 0
}

// maximum returns the largest of the first n elements too.
func (t Tier) maximum(x []float32) (m float32, n int) {
	n = len(x) &^ 15
	switch {
	case n == 0:
	case t.avx512():
		return maximumAVX512(&x[0], n), n
	case t.avx2():
		return maximumAVX2(&x[0], n), n
	}
	return minusInf, 0
}

func (t Tier) rotatePairs(out, x, cos, sin []float32) int {
	n := len(cos) &^ 3
	if n == 0 || !t.avx512() && !t.avx2() {
		return 0
	}
	rotatePairsAVX2(&out[0], &x[0], &cos[0], &sin[0], n)
	return n
}

// finishHeads is FinishHeads for heads that are rotated as a whole, half by half. It reports whether it did.
func (t Tier) finishHeads(out, x []float32, outStride, xStride, rows int, h *Heads, cos, sin []float32, pairs, angleStride int) bool {
	if h.Style != HalfSplit || h.Dim != 2*pairs || pairs%16 != 0 || pairs == 0 || rows == 0 || h.Normed && h.Weight == nil || !t.avx512() && !t.avx2() {
		return false
	}
	last := rows - 1
	_, _, _, _ = out[last*outStride+h.Dim-1], x[last*xStride+h.Dim-1], cos[last*angleStride+pairs-1], sin[last*angleStride+pairs-1]
	finish, weight := rotateHeadsAVX2, &x[0]
	switch {
	case h.Normed && t.avx512():
		finish, weight = normRotateHeadsAVX512, &h.Weight[:h.Dim][0]
	case h.Normed:
		finish, weight = normRotateHeadsAVX2, &h.Weight[:h.Dim][0]
	case t.avx512():
		finish = rotateHeadsAVX512
	}
	finish(&out[0], &x[0], weight, &cos[0], &sin[0], floatBytes*outStride, floatBytes*xStride, floatBytes*angleStride, pairs, rows, h.Eps)
	return true
}

// scatterF16 stores elements kvBlock apart.
func (t Tier) scatterF16(dst []uint16, src []float32) int {
	n := len(src) &^ 15
	if n == 0 || !t.avx512() && !t.avx2() {
		return 0
	}
	_ = dst[(n-1)*kvBlock]
	scatterF16AVX2(&dst[0], &src[0], n)
	return n
}

// storeBlockF16 stores n elements, a multiple of 16, of the rows of 16 cells to their block.
func (t Tier) storeBlockF16(dst []uint16, rows []float32, stride, n int, keys bool) bool {
	if n == 0 || !t.avx512() && !t.avx2() {
		return false
	}
	store := storeValuesF16AVX2
	if keys {
		store = storeKeysF16AVX2
	}
	store(&dst[:kvBlock*n][0], &rows[:(kvBlock-1)*stride+n][0], floatBytes*stride, n)
	return true
}
