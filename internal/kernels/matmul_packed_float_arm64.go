//go:build !purego

package kernels

// floatRoutinesOf returns the routines of a tier, or nil for Generic.
func floatRoutinesOf(t Tier) *floatRoutines {
	if t == NEON {
		return &floatNEON
	}
	return nil
}

// Kinds are in the order of floatKind.
var floatNEON = floatRoutines{
	tiles: []floatTiles{
		{
			1,
			[...]widenFunc{widen1F32NEON, widen1F16NEON, widen1BF16NEON},
			[...]tileFunc{tile1x1NEON, tile1x2NEON, tile1x3NEON, tile1x4NEON, tile1x5NEON, tile1x6NEON},
		},
	},
	direct: []floatDirect{
		{4, [...][maxFloatTokens]directFunc{
			{direct4x1F32NEON},
			{direct4x1F16NEON},
			{direct4x1BF16NEON},
		}},
		{1, [...][maxFloatTokens]directFunc{
			{direct1x1F32NEON, direct1x2F32NEON, direct1x3F32NEON, direct1x4F32NEON, direct1x5F32NEON, direct1x6F32NEON},
			{direct1x1F16NEON, direct1x2F16NEON, direct1x3F16NEON, direct1x4F16NEON, direct1x5F16NEON, direct1x6F16NEON},
			{direct1x1BF16NEON, direct1x2BF16NEON, direct1x3BF16NEON, direct1x4BF16NEON, direct1x5BF16NEON, direct1x6BF16NEON},
		}},
	},
}
