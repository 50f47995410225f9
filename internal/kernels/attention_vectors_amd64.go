//go:build !purego

package kernels

var attend512 = attendVectors{
	product: [2][][]attendProduct{
		{
			{productF16AVX512R1T1, productF16AVX512R2T1, productF16AVX512R3T1, productF16AVX512R4T1, productF16AVX512R5T1, productF16AVX512R6T1, productF16AVX512R7T1},
			{productF16AVX512R1T2, productF16AVX512R2T2, productF16AVX512R3T2, productF16AVX512R4T2, productF16AVX512R5T2, productF16AVX512R6T2, productF16AVX512R7T2},
			nil,
			{productF16AVX512R1T4, productF16AVX512R2T4, productF16AVX512R3T4, productF16AVX512R4T4, productF16AVX512R5T4, productF16AVX512R6T4, nil},
		},
		{
			{productF32AVX512R1T1, productF32AVX512R2T1, productF32AVX512R3T1, productF32AVX512R4T1, productF32AVX512R5T1, productF32AVX512R6T1, productF32AVX512R7T1},
			{productF32AVX512R1T2, productF32AVX512R2T2, productF32AVX512R3T2, productF32AVX512R4T2, productF32AVX512R5T2, productF32AVX512R6T2, productF32AVX512R7T2},
			nil,
			{productF32AVX512R1T4, productF32AVX512R2T4, productF32AVX512R3T4, productF32AVX512R4T4, productF32AVX512R5T4, productF32AVX512R6T4, nil},
		},
	},
	rows: 6, most: 7, tiles: 4,
	softmax: softmaxAVX512, factors: factorsAVX512, merge: mergeAVX512,
}

var attend256 = attendVectors{
	product: [2][][]attendProduct{
		{
			{productF16AVX2R1T1, productF16AVX2R2T1, productF16AVX2R3T1},
			{productF16AVX2R1T2, productF16AVX2R2T2, productF16AVX2R3T2},
		},
		{
			{productF32AVX2R1T1, productF32AVX2R2T1, productF32AVX2R3T1},
			{productF32AVX2R1T2, productF32AVX2R2T2, productF32AVX2R3T2},
		},
	},
	rows: 3, most: 3, tiles: 2,
	softmax: softmaxAVX2, factors: factorsAVX2, merge: mergeAVX2,
}

func (t Tier) vectors() *attendVectors {
	switch {
	case t.avx512():
		return &attend512
	case t.avx2():
		return &attend256
	}
	return nil
}

func (v *attendVectors) tier() Tier {
	if v == &attend512 {
		return AVX512
	}
	return AVX2
}

// scaleRows sets the rows of out, n values each, to x*factor. Rows of x lie stride values apart. It reports
// whether it did.
func (v *attendVectors) scaleRows(out, x []float32, stride, n int, factor float32) bool {
	if n%kvBlock != 0 {
		return false
	}
	scale := scaleRowsAVX2
	if v == &attend512 {
		scale = scaleRowsAVX512
	}
	rows := len(out) / n
	scale(&out[0], &x[:(rows-1)*stride+n][0], floatBytes*stride, n, rows, factor)
	return true
}

// finishRows divides the sums of tokens t0 to t1-1 by the weights' sums and writes them where they belong. It reports whether it did.
func (v *attendVectors) finishRows(w *attendWork, t0, t1 int) bool {
	if w.dim != w.width {
		return false
	}
	finish := finishAVX2
	if v == &attend512 {
		finish = finishAVX512
	}
	out, stride, n := w.where.results, w.where.stride, w.heads*w.dim
	finish(&out[t0*stride : (t1-1)*stride+n][0], &w.acc[t0*n : t1*n][0], &w.l[t0*w.heads : t1*w.heads][0],
		floatBytes*stride, w.dim, w.heads, t1-t0)
	return true
}
