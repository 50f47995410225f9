package kernels

import (
	"math/bits"
	"unsafe"
)

// Activations for vector kernels lie in panels: the tokens of a batch are cut into tiles
// of the largest width a tier has, 4 or 6, and then, what is left, of 4, 2 and 1, and the blocks of a tile's tokens into records.
// Where a tier has functions for whole matrices, and tokens are many enough for them, all tiles have the width of
// those, and the last is filled up with zeros.
// A record of c tokens has, of a block of 32 values (little-endian, [c] meaning one for
// each token):
//
//	[c][32] int8  quants
//	[c] float32   D
//	[c] int32     -128 * sum of the 32 quants
//	[c] float32   D * float32(sum of the 32 quants)
//
// A second panel has, for formats whose groups are 16 values:
//
//	[2][c] int32    -128 * sum of 16 quants
//	[2][c] float32  D * float32(sum of 16 quants)
//
// The negative sums are where a kernel starts to add products whose unsigned weights are 128 too
// large; where it is a smaller power of two, it shifts them.
const (
	panelBlock  = 44 // bytes of a token's block
	panelSums16 = 16 // and of its sums of 16
)

// tiling returns the number of tokens for which a batch has room, and the width of its largest tiles.
func (k *vectorKernels) tiling(tokens int) (room, largest int) {
	if k.matrix[0][0] == nil || tokens <= k.vecTokens {
		return tokens, k.maxTile
	}
	return (tokens + matrixTokens - 1) / matrixTokens * matrixTokens, matrixTokens
}

// tileWidth returns the number of tokens in the first tile of so many.
func tileWidth(tokens, largest int) int {
	if tokens >= largest {
		return largest
	}
	return 1 << (bits.Len(uint(tokens)) - 1)
}

// tileOf returns the tile of token t, its first token and its width.
func tileOf(tokens, t, largest int) (first, width int) {
	first = min(t, tokens-tokens%largest) / largest * largest
	for {
		width = tileWidth(tokens-first, largest)
		if t < first+width {
			return first, width
		}
		first += width
	}
}

// panel returns the records from the tile on whose first token is t.
func (a *QActs) panel(t int) []byte { return a.panels[t*(a.In/BlockSize)*panelBlock:] }

// panel16 is panel for the sums of 16.
func (a *QActs) panel16(t int) []byte { return a.sums16[t*(a.In/BlockSize)*panelSums16:] }

// resetPanels makes room for the panels.
func (a *QActs) resetPanels(k *vectorKernels) {
	room, largest := k.tiling(a.Tokens)
	n := room * (a.In / BlockSize)
	a.panels = GrowLarge(a.panels, n*panelBlock)
	a.sums16 = GrowLarge(a.sums16, n*panelSums16)
	if room > a.Tokens {
		// Results of what is beyond the tokens are not used, but numbers that are out of the ordinary take long.
		clear(a.panel(room - largest))
		clear(a.panel16(room - largest))
	}
}

// tile returns the tile of token t, its first token and its width.
func (a *QActs) tile(k *vectorKernels, t int) (first, width int) {
	room, largest := k.tiling(a.Tokens)
	return tileOf(room, t, largest)
}

// quantizePanel quantises blocks of the tokens t to t1-1 as far as they are in one tile, and returns how many tokens that are.
func (a *QActs) quantizePanel(k *vectorKernels, t, t1, block int, x []float32, stride, blocks int) (tokens int) {
	first, width := a.tile(k, t)
	tokens = min(t1, first+width) - t
	together, most := k.quantizesTogether(width), 1
	if tokens < width || together == nil {
		together, most = nil, blocks
	}
	for n := 0; blocks > 0; blocks -= n {
		records, records16 := a.panel(first)[block*width*panelBlock:], a.panel16(first)[block*width*panelSums16:]
		n = 0
		if together != nil {
			n = together(unsafe.SliceData(x), unsafe.SliceData(records), unsafe.SliceData(records16), blocks, stride)
		}
		if n == 0 {
			n = most
			for i := range tokens {
				lane := t + i - first
				k.quantize(unsafe.SliceData(x[i*stride:]), unsafe.SliceData(records[lane*BlockSize:]),
					unsafe.SliceData(records[width*BlockSize+4*lane:]), unsafe.SliceData(records16[4*lane:]), n, width)
			}
		}
		block, x = block+n, x[n*BlockSize:]
	}
	return tokens
}

// quantizesTogether returns the function for all tokens of a tile of a width, if there is one.
func (k *vectorKernels) quantizesTogether(width int) func(x *float32, q, sums16 *byte, blocks, stride int) (done int) {
	switch width {
	case matrixTokens:
		return k.quantizeMatrix
	case k.maxTile:
		return k.quantizeTile
	}
	return nil
}
