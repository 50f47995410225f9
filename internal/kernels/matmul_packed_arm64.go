//go:build !purego

package kernels

// kernelsOf returns the functions of a tier, or nil for Generic.
func kernelsOf(t Tier) *vectorKernels {
	if t == NEON {
		return &kernelsNEON
	}
	return nil
}

// Formats are in the order of packedLayouts' indexes. Expanded quants are signed: 128 is not added
// to them.
var kernelsNEON = vectorKernels{
	maxTile:   4,
	vecTokens: 8,
	acts:      768 << 10,
	vec: [packedFormats][4]productFunc{
		{vecNEONQ4_0x1, vecNEONQ4_0x2, vecNEONQ4_0x4},
		{vecNEONQ4_1x1, vecNEONQ4_1x2, vecNEONQ4_1x4},
		{vecNEONQ5_0x1, vecNEONQ5_0x2, vecNEONQ5_0x4},
		{vecNEONQ5_1x1, vecNEONQ5_1x2, vecNEONQ5_1x4},
		{vecNEONQ8_0x1, vecNEONQ8_0x2, vecNEONQ8_0x4},
		{vecNEONQ2_Kx1, vecNEONQ2_Kx2, vecNEONQ2_Kx4},
		{vecNEONQ3_Kx1, vecNEONQ3_Kx2, vecNEONQ3_Kx4},
		{vecNEONQ4_Kx1, vecNEONQ4_Kx2, vecNEONQ4_Kx4},
		{vecNEONQ5_Kx1, vecNEONQ5_Kx2, vecNEONQ5_Kx4},
		{vecNEONQ6_Kx1, vecNEONQ6_Kx2, vecNEONQ6_Kx4},
		{vecNEONIQ4_NLx1, vecNEONIQ4_NLx2, vecNEONIQ4_NLx4},
		{vecNEONIQ4_XSx1, vecNEONIQ4_XSx2, vecNEONIQ4_XSx4},
		{vecNEONMXFP4x1, vecNEONMXFP4x2, vecNEONMXFP4x4},
	},
	expand: [packedFormats]expandFunc{
		expandNEONQ4_0,
		expandNEONQ4_1,
		expandNEONQ5_0,
		expandNEONQ5_1,
		expandNEONQ8_0,
		expandNEONQ2_K,
		expandNEONQ3_K,
		expandNEONQ4_K,
		expandNEONQ5_K,
		expandNEONQ6_K,
		expandNEONIQ4_NL,
		expandNEONIQ4_XS,
		expandNEONMXFP4,
	},
	tile: [2][2][4]partFunc{
		{
			{tileNEONg32x1, tileNEONg32x2, tileNEONg32x4},
			{tileNEONg32minx1, tileNEONg32minx2, tileNEONg32minx4},
		},
		{
			{tileNEONg16x1, tileNEONg16x2, tileNEONg16x4},
			{tileNEONg16minx1, tileNEONg16minx2, tileNEONg16minx4},
		},
	},
	quantize: quantizeNEON,
	read:     readNEON,
	dots:     dotsNEON,
	fmas:     fmasNEON,
	dotSize:  16,
}
