//go:build !purego

package kernels

var attendNEON = attendVectors{
	product: [2][][]attendProduct{
		{
			{productF16NEONR1T1, productF16NEONR2T1, productF16NEONR3T1},
			{productF16NEONR1T2, productF16NEONR2T2, productF16NEONR3T2},
		},
		{
			{productF32NEONR1T1, productF32NEONR2T1, productF32NEONR3T1},
			{productF32NEONR1T2, productF32NEONR2T2, productF32NEONR3T2},
		},
	},
	rows: 3, most: 3, tiles: 2,
	softmax: softmaxNEON, factors: factorsNEON, merge: mergeNEON,
}

func (t Tier) vectors() *attendVectors {
	if t == NEON {
		return &attendNEON
	}
	return nil
}

func (v *attendVectors) tier() Tier { return NEON }

func (*attendVectors) scaleRows(_, _ []float32, _, _ int, _ float32) bool { return false }

func (*attendVectors) finishRows(_ *attendWork, _, _ int) bool { return false }
