//go:build !purego

package kernels

// floatRoutinesOf returns the routines of a tier, or nil for Generic.
func floatRoutinesOf(t Tier) *floatRoutines {
	switch t {
	case AVX512, AMX:
		return &float512
	case AVX2, AVXVNNI:
		return &float256
	}
	return nil
}

// The routines of each instruction set. Kinds are in the order of floatKind.

var float512 = floatRoutines{
	tiles: []floatTiles{
		{
			4,
			[...]widenFunc{widen4F32AVX512, widen4F16AVX512, widen4BF16AVX512},
			[...]tileFunc{tile4x1AVX512, tile4x2AVX512, tile4x3AVX512, tile4x4AVX512, tile4x5AVX512, tile4x6AVX512},
		},
		{
			2,
			[...]widenFunc{widen2F32AVX512, widen2F16AVX512, widen2BF16AVX512},
			[...]tileFunc{tile2x1AVX512, tile2x2AVX512, tile2x3AVX512, tile2x4AVX512, tile2x5AVX512, tile2x6AVX512},
		},
		{
			1,
			[...]widenFunc{widen1F32AVX512, widen1F16AVX512, widen1BF16AVX512},
			[...]tileFunc{tile1x1AVX512, tile1x2AVX512, tile1x3AVX512, tile1x4AVX512, tile1x5AVX512, tile1x6AVX512},
		},
	},
	direct: []floatDirect{
		{4, [...][maxFloatTokens]directFunc{
			{direct4x1F32AVX512, direct4x2F32AVX512, direct4x3F32AVX512, direct4x4F32AVX512, direct4x5F32AVX512, direct4x6F32AVX512},
			{direct4x1F16AVX512, direct4x2F16AVX512, direct4x3F16AVX512, direct4x4F16AVX512, direct4x5F16AVX512, direct4x6F16AVX512},
			{direct4x1BF16AVX512, direct4x2BF16AVX512, direct4x3BF16AVX512, direct4x4BF16AVX512, direct4x5BF16AVX512, direct4x6BF16AVX512},
		}},
		{1, [...][maxFloatTokens]directFunc{
			{direct1x1F32AVX512},
			{direct1x1F16AVX512},
			{direct1x1BF16AVX512},
		}},
	},
}

var float256 = floatRoutines{
	tiles: []floatTiles{
		{
			1,
			[...]widenFunc{widen1F32AVX2, widen1F16AVX2, widen1BF16AVX2},
			[...]tileFunc{tile1x1AVX2, tile1x2AVX2, tile1x3AVX2, tile1x4AVX2, tile1x5AVX2, tile1x6AVX2},
		},
	},
	direct: []floatDirect{
		{4, [...][maxFloatTokens]directFunc{
			{direct4x1F32AVX2},
			{direct4x1F16AVX2},
			{direct4x1BF16AVX2},
		}},
		{1, [...][maxFloatTokens]directFunc{
			{direct1x1F32AVX2, direct1x2F32AVX2, direct1x3F32AVX2, direct1x4F32AVX2, direct1x5F32AVX2, direct1x6F32AVX2},
			{direct1x1F16AVX2, direct1x2F16AVX2, direct1x3F16AVX2, direct1x4F16AVX2, direct1x5F16AVX2, direct1x6F16AVX2},
			{direct1x1BF16AVX2, direct1x2BF16AVX2, direct1x3BF16AVX2, direct1x4BF16AVX2, direct1x5BF16AVX2, direct1x6BF16AVX2},
		}},
	},
}
