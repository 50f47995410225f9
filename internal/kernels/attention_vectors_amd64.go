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
