//go:build !purego

package kernels

// kernelsOf returns the functions of a tier, or nil for Generic.
func kernelsOf(t Tier) *vectorKernels {
	switch t {
	case AMX:
		return &kernelsAMX
	case AVX512:
		return &kernels512
	case AVXVNNI:
		return &kernelsVNNI
	case AVX2:
		return &kernelsAVX2
	}
	return nil
}

// Formats are in the order of packedLayouts' indexes.

var kernels512 = vectorKernels{
	maxTile:   6,
	vecTokens: 24,
	acts:      768 << 10,
	vec: [packedFormats][4]productFunc{
		{vec512Q4_0x1, vec512Q4_0x2, vec512Q4_0x4, vec512Q4_0x6},
		{vec512Q4_1x1, vec512Q4_1x2, vec512Q4_1x4, vec512Q4_1x6},
		{vec512Q5_0x1, vec512Q5_0x2, vec512Q5_0x4, vec512Q5_0x6},
		{vec512Q5_1x1, vec512Q5_1x2, vec512Q5_1x4, vec512Q5_1x6},
		{vec512Q8_0x1, vec512Q8_0x2, vec512Q8_0x4, vec512Q8_0x6},
		{vec512Q2_Kx1, vec512Q2_Kx2, vec512Q2_Kx4, vec512Q2_Kx6},
		{vec512Q3_Kx1, vec512Q3_Kx2, vec512Q3_Kx4, vec512Q3_Kx6},
		{vec512Q4_Kx1, vec512Q4_Kx2, vec512Q4_Kx4, vec512Q4_Kx6},
		{vec512Q5_Kx1, vec512Q5_Kx2, vec512Q5_Kx4, vec512Q5_Kx6},
		{vec512Q6_Kx1, vec512Q6_Kx2, vec512Q6_Kx4, vec512Q6_Kx6},
		{vec512IQ4_NLx1, vec512IQ4_NLx2, vec512IQ4_NLx4, vec512IQ4_NLx6},
		{vec512IQ4_XSx1, vec512IQ4_XSx2, vec512IQ4_XSx4, vec512IQ4_XSx6},
		{vec512MXFP4x1, vec512MXFP4x2, vec512MXFP4x4, vec512MXFP4x6},
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
	tile: [2][2][4]partFunc{
		{
			{tile512g32x1, tile512g32x2, tile512g32x4, tile512g32x6},
			{tile512g32minx1, tile512g32minx2, tile512g32minx4, tile512g32minx6},
		},
		{
			{tile512g16x1, tile512g16x2, tile512g16x4, tile512g16x6},
			{tile512g16minx1, tile512g16minx2, tile512g16minx4, tile512g16minx6},
		},
	},
	pair:     [2][2]partFunc{{pair512g32x6, pair512g32minx6}, {pair512g16x6, pair512g16minx6}},
	quantize: quantize512,

	quantizeTile:   quantize512x6,
	quantizeMatrix: quantize512x16,

	read:    read512,
	dots:    dots512,
	fmas:    fmas512,
	dotSize: 64,
}

// kernelsAMX are those of AVX-512 but for many tokens. A matrixFunc takes as long for 9 of them as for 16, and even with 16
// three of the vec functions are as fast.
var kernelsAMX = func() vectorKernels {
	k := kernels512
	k.vecTokens = 18
	k.acts = 1280 << 10 // processors with tiles have caches of 2 MB
	k.expand = [packedFormats]expandFunc{
		expandAMXQ4_0,
		expandAMXQ4_1,
		expandAMXQ5_0,
		expandAMXQ5_1,
		expandAMXQ8_0,
		expandAMXQ2_K,
		expandAMXQ3_K,
		expandAMXQ4_K,
		expandAMXQ5_K,
		expandAMXQ6_K,
		expandAMXIQ4_NL,
		expandAMXIQ4_XS,
		expandAMXMXFP4,
	}
	k.matrix = [2][2]matrixFunc{{matrixAMXg32x16, matrixAMXg32minx16}, {matrixAMXg16x16, matrixAMXg16minx16}}
	return k
}()

var kernelsVNNI = vectorKernels{
	maxTile:   4,
	vecTokens: 12,
	acts:      768 << 10,
	vec: [packedFormats][4]productFunc{
		{vecVNNIQ4_0x1, vecVNNIQ4_0x2, vecVNNIQ4_0x4},
		{vecVNNIQ4_1x1, vecVNNIQ4_1x2, vecVNNIQ4_1x4},
		{vecVNNIQ5_0x1, vecVNNIQ5_0x2, vecVNNIQ5_0x4},
		{vecVNNIQ5_1x1, vecVNNIQ5_1x2, vecVNNIQ5_1x4},
		{vecVNNIQ8_0x1, vecVNNIQ8_0x2, vecVNNIQ8_0x4},
		{vecVNNIQ2_Kx1, vecVNNIQ2_Kx2, vecVNNIQ2_Kx4},
		{vecVNNIQ3_Kx1, vecVNNIQ3_Kx2, vecVNNIQ3_Kx4},
		{vecVNNIQ4_Kx1, vecVNNIQ4_Kx2, vecVNNIQ4_Kx4},
		{vecVNNIQ5_Kx1, vecVNNIQ5_Kx2, vecVNNIQ5_Kx4},
		{vecVNNIQ6_Kx1, vecVNNIQ6_Kx2, vecVNNIQ6_Kx4},
		{vecVNNIIQ4_NLx1, vecVNNIIQ4_NLx2, vecVNNIIQ4_NLx4},
		{vecVNNIIQ4_XSx1, vecVNNIIQ4_XSx2, vecVNNIIQ4_XSx4},
		{vecVNNIMXFP4x1, vecVNNIMXFP4x2, vecVNNIMXFP4x4},
	},
	expand: [packedFormats]expandFunc{
		expandVNNIQ4_0,
		expandVNNIQ4_1,
		expandVNNIQ5_0,
		expandVNNIQ5_1,
		expandVNNIQ8_0,
		expandVNNIQ2_K,
		expandVNNIQ3_K,
		expandVNNIQ4_K,
		expandVNNIQ5_K,
		expandVNNIQ6_K,
		expandVNNIIQ4_NL,
		expandVNNIIQ4_XS,
		expandVNNIMXFP4,
	},
	tile: [2][2][4]partFunc{
		{
			{tileVNNIg32x1, tileVNNIg32x2, tileVNNIg32x4},
			{tileVNNIg32minx1, tileVNNIg32minx2, tileVNNIg32minx4},
		},
		{
			{tileVNNIg16x1, tileVNNIg16x2, tileVNNIg16x4},
			{tileVNNIg16minx1, tileVNNIg16minx2, tileVNNIg16minx4},
		},
	},
	quantize: quantize256,
	read:     read256,
	dots:     dotsVNNI,
	fmas:     fmas256,
	dotSize:  32,
}

var kernelsAVX2 = vectorKernels{
	maxTile:   4,
	vecTokens: 12,
	acts:      768 << 10,
	vec: [packedFormats][4]productFunc{
		{vecAVX2Q4_0x1, vecAVX2Q4_0x2, vecAVX2Q4_0x4},
		{vecAVX2Q4_1x1, vecAVX2Q4_1x2, vecAVX2Q4_1x4},
		{vecAVX2Q5_0x1, vecAVX2Q5_0x2, vecAVX2Q5_0x4},
		{vecAVX2Q5_1x1, vecAVX2Q5_1x2, vecAVX2Q5_1x4},
		{vecAVX2Q8_0x1, vecAVX2Q8_0x2, vecAVX2Q8_0x4},
		{vecAVX2Q2_Kx1, vecAVX2Q2_Kx2, vecAVX2Q2_Kx4},
		{vecAVX2Q3_Kx1, vecAVX2Q3_Kx2, vecAVX2Q3_Kx4},
		{vecAVX2Q4_Kx1, vecAVX2Q4_Kx2, vecAVX2Q4_Kx4},
		{vecAVX2Q5_Kx1, vecAVX2Q5_Kx2, vecAVX2Q5_Kx4},
		{vecAVX2Q6_Kx1, vecAVX2Q6_Kx2, vecAVX2Q6_Kx4},
		{vecAVX2IQ4_NLx1, vecAVX2IQ4_NLx2, vecAVX2IQ4_NLx4},
		{vecAVX2IQ4_XSx1, vecAVX2IQ4_XSx2, vecAVX2IQ4_XSx4},
		{vecAVX2MXFP4x1, vecAVX2MXFP4x2, vecAVX2MXFP4x4},
	},
	expand: [packedFormats]expandFunc{
		expandAVX2Q4_0,
		expandAVX2Q4_1,
		expandAVX2Q5_0,
		expandAVX2Q5_1,
		expandAVX2Q8_0,
		expandAVX2Q2_K,
		expandAVX2Q3_K,
		expandAVX2Q4_K,
		expandAVX2Q5_K,
		expandAVX2Q6_K,
		expandAVX2IQ4_NL,
		expandAVX2IQ4_XS,
		expandAVX2MXFP4,
	},
	tile: [2][2][4]partFunc{
		{
			{tileAVX2g32x1, tileAVX2g32x2, tileAVX2g32x4},
			{tileAVX2g32minx1, tileAVX2g32minx2, tileAVX2g32minx4},
		},
		{
			{tileAVX2g16x1, tileAVX2g16x2, tileAVX2g16x4},
			{tileAVX2g16minx1, tileAVX2g16minx2, tileAVX2g16minx4},
		},
	},
	wide:     [4]partFunc{tileAVX2wideg32x1, tileAVX2wideg32x2, tileAVX2wideg32x4},
	quantize: quantize256,
	read:     read256,
	dots:     dotsAVX2,
	fmas:     fmas256,
	dotSize:  32,
}
