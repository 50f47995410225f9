package kernels

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// A productFunc multiplies n row blocks of packed weights with a tile of tokens. Its pointers are
// to the weights, to the panels of the tile, to the results of its first token,
// which are outStride floats from those of the next, and to the bias, or nil. blocks counts blocks
// of a row, or its super-blocks.
type productFunc func(w, acts, sums16, out, bias *byte, blocks, n, outStride int)

// A partFunc does so with n row blocks of expanded weights, or pairs of them, and a part of each row: if join is 1
// it goes on from the results that are there, which changes no bit.
type partFunc func(w, acts, sums16, out, bias *byte, blocks, n, outStride, join int)

// An expandFunc brings packed weights into the form that is the same for all formats whose groups
// are equal: of each block 512 bytes, 8 words x16 of quants to which 128 was added, then
// for each group scales x16 (float32), then for each group minima x16.
type expandFunc func(w, dst *byte, blocks, rowBlocks int)

// A matrixFunc multiplies n row blocks of expanded weights, whose quants are signed, with a tile of
// matrixTokens tokens, as a partFunc does, and stores the results of the first tokens. The ring is memory
// for sums, and a line of what they begin with: ringSize bytes that begin with a line of the cache. It reads matrixBeyond bytes more than the weights have, whatever they are.
type matrixFunc func(w, acts, sums16, out, bias, ring *byte, blocks, n, outStride, tokens, join int)

const (
	matrixTokens = 16
	ringSize     = 4<<10 + 64
	matrixBeyond = 4 * 640 // 4 blocks
)

// vectorKernels are the functions of a tier.
type vectorKernels struct {
	maxTile   int // tokens of the largest tile
	vecTokens int // the largest batch for which expanding weights does not pay
	acts      int // bytes of activations by which all weights pass

	vec    [packedFormats][4]productFunc // by format and widthIndex
	expand [packedFormats]expandFunc
	tile   [2][2][4]partFunc // by group (32, 16), minimum, and widthIndex
	wide   [4]partFunc       // instead for quants of 8 bits, or nil
	pair   [2][2]partFunc    // pairs of row blocks, largest tile; or nil
	matrix [2][2]matrixFunc  // instead of tile and pair, or nil

	// quantize quantises a token into its lane of the first records: pointers are to the
	// values, and to the lane's quants, D, and first sum of 16; width is that of the tile.
	quantize func(x *float32, q, scales, sums16 *byte, blocks, width int)
	// quantizeTile and quantizeMatrix do so with all tokens of a tile of maxTile and matrixTokens, whose values are stride floats
	// apart, up to a block that is out of the ordinary, and return how many blocks were done; or they are nil.
	quantizeTile, quantizeMatrix func(x *float32, q, sums16 *byte, blocks, stride int) (done int)

	read    func(p *byte, n int) // reads n times 512 bytes
	dots    func(n int)          // does n times 12 dot products of registers
	fmas    func(n int)          // does n times 12 fused multiply-adds of registers
	dotSize int                  // bytes of a register
}

const (
	// partBlocks is how many blocks of a row are multiplied at a time: a tile of as many blocks of activations stays in a
	// first-level cache while row blocks pass by, and all tokens pass by weights that were expanded once.
	partBlocks = 32

	// weightBudget is what a second-level cache is to hold of row blocks of expanded weights, by which tiles pass.
	weightBudget = 320 << 10
)

// MatMulPacked computes row blocks [block0, block1) of a packed weight for every token of acts:
//
//	out[t*outStride+r] = w[r] . x[t] + bias[r]
//
// for the rows r from 16*block0 to 16*block1-1 that there are, to the bit what MatMulInt yields.
// The instructions are those of acts.Tier. bias is nil or has Out values. Calls with distinct
// row blocks may run at the same time, each with its own Scratch. With many tokens an even number
// of row blocks is best, 16 or more if there are enough for all workers: every call reads
// all activations.
func MatMulPacked(out []float32, outStride int, w *Packed, block0, block1 int, bias []float32, acts *QActs, s *Scratch) {
	block1 = min(block1, w.Blocks())
	if block0 >= block1 || acts.Tokens == 0 {
		return
	}
	if acts.In != w.In {
		panic(fmt.Sprintf("kernels: rows of %d values times tokens of %d", w.In, acts.In)) // memory is not read by index below
	}
	k := kernelsOf(acts.Tier)
	if k == nil {
		matMulIntRange(out, outStride, w, block0*PackedRows, min(block1*PackedRows, w.Out), bias, acts, s)
		return
	}
	full := min(block1, w.Out/PackedRows)
	if block0 < full {
		_ = out[(acts.Tokens-1)*outStride+full*PackedRows-1]
		matMulBlocks(k, out[block0*PackedRows:], outStride, w, block0, full, bias, acts, s)
	}
	if full < block1 {
		matMulPartial(k, out, outStride, w, full, bias, acts, s)
	}
}

// matMulPartial computes the last row block, whose rows are fewer than 16, by way of a buffer.
func matMulPartial(k *vectorKernels, out []float32, outStride int, w *Packed, block int, bias []float32, acts *QActs, s *Scratch) {
	s.partial = grow(s.partial, acts.Tokens*PackedRows)
	matMulBlocks(k, s.partial, PackedRows, w, block, block+1, nil, acts, s)
	r0 := block * PackedRows
	for t := range acts.Tokens {
		copy(out[t*outStride+r0:t*outStride+w.Out], s.partial[t*PackedRows:])
	}
	addBias(out, outStride, r0, w.Out, bias, acts.Tokens)
}

// matMulBlocks computes whole row blocks; out begins with the first row of block0.
func matMulBlocks(k *vectorKernels, out []float32, outStride int, w *Packed, block0, block1 int, bias []float32, acts *QActs, s *Scratch) {
	if acts.Tokens <= k.vecTokens {
		matMulVectors(k, out, outStride, w, block0, block1, bias, acts)
		return
	}
	m := expandedProduct{k: k, w: w, acts: acts, outStride: outStride}
	m.choose()
	blocks, part := w.In/BlockSize, m.part()
	m.size = part * m.blockSize
	step := max(1, weightBudget/m.size/2) * 2
	lines := s.aligned(ringSize + min(step, block1-block0)*m.size + matrixBeyond)
	m.ring, m.expanded = lines[:ringSize], lines[ringSize:]
	_, tile := k.tiling(acts.Tokens)
	chunk := k.tokenChunk(acts.Tokens, part*BlockSize, tile)
	for t := 0; t < acts.Tokens; t += chunk {
		for m.from = 0; m.from < blocks; m.from += part {
			m.to = min(m.from+part, blocks)
			for b := block0; b < block1; b += step {
				m.rowBlocks(out[(b-block0)*PackedRows:], b, min(step, block1-b), bias, t, min(t+chunk, acts.Tokens))
			}
		}
	}
}

// tokenChunk cuts a batch into chunks, as few as the budget allows and about equal, and returns
// their size: a multiple of the largest tile.
func (k *vectorKernels) tokenChunk(tokens, in, tile int) int {
	most := max(1, k.acts/(in/BlockSize*panelBlock*tile))
	tiles := (tokens-1)/tile + 1
	chunks := (tiles-1)/most + 1
	return ((tiles-1)/chunks + 1) * tile
}

// matMulVectors multiplies packed weights with few tokens.
func matMulVectors(k *vectorKernels, out []float32, outStride int, w *Packed, block0, block1 int, bias []float32, acts *QActs) {
	step := block1 - block0
	if tileWidth(acts.Tokens, k.maxTile) < acts.Tokens {
		// Several passes, all but the first over weights that are in the cache.
		step = max(1, weightBudget/w.layout.rowBlockSize(w.Format, w.In))
	}
	for b := block0; b < block1; b += step {
		n := min(step, block1-b)
		for t := 0; t < acts.Tokens; {
			width := tileWidth(acts.Tokens-t, k.maxTile)
			k.vec[w.layout.index][widthIndex(width)](unsafe.SliceData(w.block(b)), unsafe.SliceData(acts.panel(t)), unsafe.SliceData(acts.panel16(t)),
				bytesAt(out, t*outStride+(b-block0)*PackedRows), biasAt(bias, b, n), w.In/w.Format.Block, n, outStride)
			t += width
		}
	}
}

// expandedProduct multiplies weights that it expands first.
type expandedProduct struct {
	k         *vectorKernels
	tile      *[4]partFunc
	pair      partFunc
	matrix    matrixFunc
	w         *Packed
	acts      *QActs
	outStride int
	ring      []byte
	expanded  []byte
	blockSize int // of an expanded block
	size      int // of an expanded row block, the part of it that is multiplied
	from, to  int // the blocks of rows that are multiplied
}

// part is the number of blocks of a row that are multiplied at a time, but for the last part, which may have less.
func (m *expandedProduct) part() int {
	const super = superBlock / BlockSize
	blocks := m.w.In / BlockSize
	if blocks <= partBlocks {
		return blocks
	}
	parts := (blocks + partBlocks - 1) / partBlocks
	return (blocks + parts*super - 1) / (parts * super) * super
}

// choose sets the functions for the weight.
func (m *expandedProduct) choose() {
	group, minimum, scales := 0, 0, 64*BlockSize/m.w.Format.Group
	if m.w.Format.Group == 16 {
		group = 1
	}
	if m.w.Format.Min {
		minimum, scales = 1, 2*scales
	}
	m.tile, m.pair, m.matrix = &m.k.tile[group][minimum], m.k.pair[group][minimum], m.k.matrix[group][minimum]
	if m.k.wide[0] != nil && m.w.layout.wide() {
		m.tile = &m.k.wide
	}
	m.blockSize = 512 + scales
}

// rowBlocks multiplies n row blocks from b on with tokens [t0, t1). A tile stays in the first-level
// cache while row blocks pass by, and results are written in runs.
func (m *expandedProduct) rowBlocks(out []float32, b, n int, bias []float32, t0, t1 int) {
	m.expand(b, n)
	if m.to*BlockSize < m.w.In {
		bias = nil
	}
	if m.matrix != nil {
		m.rowBlocksMatrix(out, b, n, bias, t0, t1)
		return
	}
	for t := t0; t < t1; {
		width := tileWidth(t1-t, m.k.maxTile)
		pairs := 0
		if width == m.k.maxTile && m.pair != nil {
			pairs = n / 2
		}
		m.call(m.pair, out, t, width, b, 0, pairs, 2, bias)
		m.call(m.tile[widthIndex(width)], out, t, width, b, 2*pairs, n-2*pairs, 1, bias)
		t += width
	}
}

func (m *expandedProduct) expand(b, n int) {
	w := m.w
	skip, blocks := w.layout.rowBlockSize(w.Format, m.from*BlockSize), (m.to-m.from)*BlockSize/w.Format.Block
	for i := range n {
		m.k.expand[w.layout.index](unsafe.SliceData(w.block(b + i)[skip:]), unsafe.SliceData(m.expanded[i*(m.to-m.from)*m.blockSize:]), blocks, 1)
	}
}

// rowBlocksMatrix is rowBlocks for a matrixFunc.
func (m *expandedProduct) rowBlocksMatrix(out []float32, b, n int, bias []float32, t0, t1 int) {
	for t := t0; t < t1; t += matrixTokens {
		acts, sums16 := m.panels(t, matrixTokens)
		m.matrix(unsafe.SliceData(m.expanded), acts, sums16, bytesAt(out, t*m.outStride),
			biasAt(bias, b, n), unsafe.SliceData(m.ring), m.to-m.from, n, m.outStride, min(matrixTokens, t1-t), m.join())
	}
}

// call multiplies n times rows row blocks from the i-th expanded one on with the tile of token t.
func (m *expandedProduct) call(f partFunc, out []float32, t, width, b, i, n, rows int, bias []float32) {
	if n > 0 {
		acts, sums16 := m.panels(t, width)
		f(unsafe.SliceData(m.expanded[i*(m.to-m.from)*m.blockSize:]), acts, sums16, bytesAt(out, t*m.outStride+i*PackedRows),
			biasAt(bias, b+i, n*rows), m.to-m.from, n, m.outStride, m.join())
	}
}

// panels returns the part's records of the tile of token t.
func (m *expandedProduct) panels(t, width int) (acts, sums16 *byte) {
	return unsafe.SliceData(m.acts.panel(t)[m.from*width*panelBlock:]), unsafe.SliceData(m.acts.panel16(t)[m.from*width*panelSums16:])
}

// join is 1 if an earlier part has left results.
func (m *expandedProduct) join() int { return min(1, m.from) }

// widthIndex numbers the widths of tiles: 1, 2, 4, and a larger one.
func widthIndex(width int) int { return bits.Len(uint(width - 1)) }

func bytesAt(x []float32, i int) *byte { return (*byte)(unsafe.Pointer(&x[i])) }

// biasAt returns the bias of n whole row blocks.
func biasAt(bias []float32, block, n int) *byte {
	if bias == nil {
		return nil
	}
	return (*byte)(unsafe.Pointer(unsafe.SliceData(bias[block*PackedRows : (block+n)*PackedRows])))
}

// aligned returns n bytes that begin with a page, and so with a line of the cache.
func (s *Scratch) aligned(n int) []byte {
	const to = 4096
	s.lines = GrowLarge(s.lines, n+to)
	at := -uintptr(unsafe.Pointer(unsafe.SliceData(s.lines))) % to
	return s.lines[at:][:n]
}
