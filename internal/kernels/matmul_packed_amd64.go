//go:build !purego

package kernels

// kernelsOf returns the functions of a tier, or nil for Generic.
func kernelsOf(t Tier) *vectorKernels {
	if t == AVX512 {
		return &kernels512
	}
	return nil
}

// The functions of AVX-512. Formats are in the order of packedLayouts' indexes.
var kernels512 = vectorKernels{
	vec: [packedFormats][3]productFunc{
		{vec512Q4_0x1, vec512Q4_0x2, vec512Q4_0x4},
		{vec512Q4_1x1, vec512Q4_1x2, vec512Q4_1x4},
		{vec512Q5_0x1, vec512Q5_0x2, vec512Q5_0x4},
		{vec512Q5_1x1, vec512Q5_1x2, vec512Q5_1x4},
		{vec512Q8_0x1, vec512Q8_0x2, vec512Q8_0x4},
		{vec512Q2_Kx1, vec512Q2_Kx2, vec512Q2_Kx4},
		{vec512Q3_Kx1, vec512Q3_Kx2, vec512Q3_Kx4},
		{vec512Q4_Kx1, vec512Q4_Kx2, vec512Q4_Kx4},
		{vec512Q5_Kx1, vec512Q5_Kx2, vec512Q5_Kx4},
		{vec512Q6_Kx1, vec512Q6_Kx2, vec512Q6_Kx4},
		{vec512IQ4_NLx1, vec512IQ4_NLx2, vec512IQ4_NLx4},
		{vec512IQ4_XSx1, vec512IQ4_XSx2, vec512IQ4_XSx4},
		{vec512MXFP4x1, vec512MXFP4x2, vec512MXFP4x4},
	},
	expand: [packedFormats]expandFunc{
		expand512Q4_0,
		expand512Q4_1,
		expand512Q5_0,
		expand512Q5_1,
		expand512Q8_0,
		expand512Q2_K,
		expand512Q3_K,
		expand512Q4_K,
		expand512Q5_K,
		expand512Q6_K,
		expand512IQ4_NL,
		expand512IQ4_XS,
		expand512MXFP4,
	},
	tile: [2][2][4]productFunc{
		{
			{tile512g32x1, tile512g32x2, tile512g32x4, tile512g32x8},
			{tile512g32minx1, tile512g32minx2, tile512g32minx4, tile512g32minx8},
		},
		{
			{tile512g16x1, tile512g16x2, tile512g16x4, tile512g16x8},
			{tile512g16minx1, tile512g16minx2, tile512g16minx4, tile512g16minx8},
		},
	},
	pair:     [2][2]productFunc{{pair512g32x8, pair512g32minx8}, {pair512g16x8, pair512g16minx8}},
	quantize: quantize512,
}
