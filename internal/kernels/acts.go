package kernels

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/minfer/minfer/internal/mmap"
)

// BlockSize is the number of activations that share a scale.
const BlockSize = 32

// minAmax is the smallest largest magnitude of a block that is not taken for zero. Above it
// the scale is a normal number: fitting lowers amax/127 by less than 2 %.
const minAmax = 0x1p-126 * 130

// roundMagic is 1.5 * 2^23: a float32 of magnitude below 2^22 that is added to it
// is rounded to an integer, ties to even, in its low bits.
const roundMagic = 0x1.8p23

// QActs holds the activations of some tokens, quantised to int8.
//
// Per block of 32 values with largest magnitude amax:
//
//	amax not finite      D = NaN, Q = 0 (the damage shows in every output)
//	amax < 130 * 2^-126  D = 0, Q = 0 (no subnormal scales)
//	otherwise            r = x * (127/amax), Q = roundToEven(r) within [-127, 127],
//	                     D = amax/127 * (sum(r*Q) / sum(Q*Q))
//
// So D is the scale of least squares for the quants, which takes a few per cent off the
// error of amax/127. The first sum has 16 lanes, lane i%16 = FMA(r[i], Q[i], lane), and the
// tree of sumLanes; the second is exact.
//
// Reset prepares it for a batch; then each block of each token is quantised once, by any
// goroutine, distinct ones also at the same time; then it is read.
//
// With a Tier that has kernels for packed weights, to be set before Reset, the activations lie as the products
// with packed weights read them (see panelBlock), and the slices below are not filled.
type QActs struct {
	Tier   Tier
	Tokens int
	In     int // values per token, a multiple of 32

	Q   []int8    // [Tokens][In] quants
	D   []float32 // [Tokens][In/32] scales
	S16 []float32 // [Tokens][In/16] D * float32(sum of 16 quants)
	S32 []float32 // [Tokens][In/32] D * float32(sum of 32 quants)

	// The quants again, in the order in which one of the packed products reads them:
	// tiles for batches that usesTiles, quads for the others.
	tiles []actBlock // [ceil(Tokens/4)][In/32]
	quads []actQuad  // [Tokens][In/16]

	panels, sums16 []byte // of tiers that have kernels for packed weights
}

// usesTiles says whether a batch of so many tokens goes through the product that
// always works for four tokens.
func usesTiles(tokens int) bool { return tokens > 2 }

// Reset makes room for tokens rows of in values. What was held is lost.
func (a *QActs) Reset(tokens, in int) {
	a.Tokens, a.In = tokens, in
	n := tokens * in
	if k := kernelsOf(a.Tier); k != nil {
		a.resetPanels(k)
		return
	}
	a.Q = grow(a.Q, n)
	a.D = grow(a.D, n/BlockSize)
	a.S16 = grow(a.S16, n/16)
	a.S32 = grow(a.S32, n/BlockSize)
	if usesTiles(tokens) {
		a.tiles = grow(a.tiles, (tokens+tileTokens-1)/tileTokens*(in/BlockSize))
	} else {
		a.quads = grow(a.quads, n/16)
	}
}

// Quantize quantises tokens rows of x, which lie stride values apart.
func (a *QActs) Quantize(x []float32, stride, tokens, in int) {
	a.Reset(tokens, in)
	if tokens > 0 {
		a.QuantizeRows(0, tokens, 0, x, stride, in)
	}
}

// Tile returns how many tokens are best quantised together, from a multiple of that number on.
func (a *QActs) Tile() int {
	k := kernelsOf(a.Tier)
	if k == nil {
		return 1
	}
	_, largest := k.tiling(a.Tokens)
	return min(largest, a.Tokens)
}

// QuantizeRows quantises n values of each of the tokens t0 to t1-1, as their blocks from block on. Those of t0 are the first
// of x, and those of the next lie stride values further.
func (a *QActs) QuantizeRows(t0, t1, block int, x []float32, stride, n int) {
	if t0 < 0 || t0 >= t1 || t1 > a.Tokens || block < 0 || n < 0 || n%BlockSize != 0 || n > a.In-block*BlockSize {
		panic(fmt.Sprintf("kernels: %d values from block %d on of tokens %d to %d, among %d tokens of %d values", n, block, t0, t1-1, a.Tokens, a.In)) // memory is not written by index below
	}
	_ = x[:(t1-t0-1)*stride+n]
	k := kernelsOf(a.Tier)
	for t := t0; t < t1 && n > 0; {
		row := x[(t-t0)*stride:]
		if k == nil {
			a.quantizePlain(t, block, row[:n])
			t++
			continue
		}
		t += a.quantizePanel(k, t, t1, block, row, stride, n/BlockSize)
	}
}

// quantizePlain quantises x as blocks of token t.
func (a *QActs) quantizePlain(t, block int, x []float32) {
	nb, all, first := len(x)/BlockSize, a.In/BlockSize, t*(a.In/BlockSize)+block
	q, d, s32, s16 := a.Q[first*BlockSize:], a.D[first:][:nb], a.S32[first:][:nb], a.S16[2*first:][:2*nb]
	for b := range nb {
		xb, qb := (*[32]float32)(x[b*32:]), (*[32]int8)(q[b*32:])
		scale := quantizeBlock(qb, xb)
		lo, hi := sum16((*[16]int8)(qb[:16])), sum16((*[16]int8)(qb[16:]))
		d[b] = scale
		s16[2*b], s16[2*b+1] = scale*float32(lo), scale*float32(hi)
		s32[b] = scale * float32(lo+hi)
	}
	if !usesTiles(a.Tokens) {
		quads := a.quads[2*first:][:2*nb]
		for g := range quads {
			quads[g].set((*[16]int8)(q[g*16:]))
		}
		return
	}
	tile, lane := a.tiles[t/tileTokens*all+block:][:nb], t%tileTokens
	for b := range tile {
		tile[b].set(lane, (*[32]int8)(q[b*32:]), d[b], s32[b], s16[2*b], s16[2*b+1])
	}
}

// quantizeBlock fills q and returns the scale.
func quantizeBlock(q *[32]int8, x *[32]float32) float32 {
	var m uint32 // as integers, magnitudes order like numbers, with Inf and NaN on top
	for _, v := range x {
		m = max(m, math.Float32bits(v)&0x7fffffff)
	}
	amax := math.Float32frombits(m)
	switch {
	case m >= 0x7f800000:
		*q = [32]int8{}
		return float32(math.NaN())
	case amax < minAmax:
		*q = [32]int8{}
		return 0
	}
	inv := 127 / amax
	var lanes [16]float32
	var squares int32
	for i, v := range x {
		r := float32(v * inv)
		n := int32(math.Float32bits(r+roundMagic)) - int32(math.Float32bits(roundMagic))
		n = min(max(n, -127), 127)
		q[i] = int8(n)
		squares += n * n
		lanes[i%16] = FMA(r, float32(n), lanes[i%16])
	}
	return float32(amax/127) * float32(sumLanes(&lanes)/float32(squares))
}

func sum16(q *[16]int8) int32 {
	var s int32
	for _, v := range q {
		s += int32(v)
	}
	return s
}

// grow returns a slice of n elements, s itself if it is large enough. The
// elements are arbitrary.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// GrowLarge returns a slice of n elements, s itself if it is large enough, for what is passed through again and again: from
// 128 KB on it lies in huge pages, where the system has them. The elements are arbitrary.
func GrowLarge[T byte | float32](s []T, n int) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if cap(s) >= n || n < 128<<10/size {
		return grow(s, n)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mmap.Huge(n*size)))), n)
}
