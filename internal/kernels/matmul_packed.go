package kernels

import "unsafe"

// A vector kernel works on whole row blocks and a tile of tokens. Its pointers are to packed or
// expanded weights, to a panel, to results of the first token, which are outStride floats from
// those of the next, and to the bias, or nil. blocks counts blocks or super-blocks of a row.
type productFunc func(w, acts, out, bias *byte, blocks, rowBlocks, outStride int)

// An expandFunc brings packed weights into the form that is the same for all formats whose groups
// are equal: of each block 512 bytes, 8 words x16 of quants to which 128 was added, then
// for each group scales x16 (float32), then for each group minima x16.
type expandFunc func(w, dst *byte, blocks, rowBlocks int)

// vectorKernels are the functions of a tier.
type vectorKernels struct {
	vec    [packedFormats][3]productFunc // by format, for 1, 2 and 4 tokens
	expand [packedFormats]expandFunc
	tile   [2][2][5]productFunc // by group (32, 16), minimum, and logarithm of the tokens
}

// vecTokens is the largest batch for which weights are not expanded.
const vecTokens = 4

// expandedBudget is the size of expanded weights that, together with a tile of activations,
// stay in a second-level cache.
const expandedBudget = 384 << 10

// MatMulPacked computes row blocks [block0, block1) of a packed weight for every token of acts:
//
//	out[t*outStride+r] = w[r] . x[t] + bias[r]
//
// for the rows r from 16*block0 to 16*block1-1 that there are, to the bit what MatMulInt yields.
// The instructions are those of acts.Tier. bias is nil or has Out values. Calls with distinct
// row blocks may run at the same time, each with its own Scratch.
func MatMulPacked(out []float32, outStride int, w *Packed, block0, block1 int, bias []float32, acts *QActs, s *Scratch) {
	if block0 >= block1 || acts.Tokens == 0 {
		return
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
	l := w.layout
	blocks := w.In / w.Format.Block
	if acts.Tokens <= vecTokens {
		// Three tokens take two passes, the second over weights that the first left in the cache.
		step := block1 - block0
		if acts.Tokens == 3 {
			step = max(1, expandedBudget/l.rowBlockSize(w.Format, w.In))
		}
		for b := block0; b < block1; b += step {
			n := min(step, block1-b)
			eachTile(acts, func(t, log int) {
				k.vec[l.index][log](unsafe.SliceData(w.block(b)), unsafe.SliceData(acts.panel(t)),
					bytesAt(out, t*outStride+(b-block0)*PackedRows), biasAt(bias, b), blocks, n, outStride)
			})
		}
		return
	}
	group, minimum := 0, 0
	size := 512 + 64*BlockSize/w.Format.Group
	if w.Format.Group == 16 {
		group = 1
	}
	if w.Format.Min {
		minimum = 1
		size += 64 * BlockSize / w.Format.Group
	}
	size *= w.In / BlockSize
	step := max(1, expandedBudget/size)
	expanded := s.aligned(min(step, block1-block0) * size)
	for b := block0; b < block1; b += step {
		n := min(step, block1-b)
		k.expand[l.index](unsafe.SliceData(w.block(b)), unsafe.SliceData(expanded), blocks, n)
		eachTile(acts, func(t, log int) {
			k.tile[group][minimum][log](unsafe.SliceData(expanded), unsafe.SliceData(acts.panel(t)),
				bytesAt(out, t*outStride+(b-block0)*PackedRows), biasAt(bias, b), w.In/BlockSize, n, outStride)
		})
	}
}

// eachTile calls f with the first token of each tile and the logarithm of its tokens.
func eachTile(acts *QActs, f func(t, log int)) {
	for t := 0; t < acts.Tokens; {
		width := tileWidth(acts.Tokens - t)
		f(t, [...]int{1: 0, 2: 1, 4: 2, 8: 3, 16: 4}[width])
		t += width
	}
}

func bytesAt(x []float32, i int) *byte { return (*byte)(unsafe.Pointer(&x[i])) }

// biasAt returns the bias of the first row of a whole row block.
func biasAt(bias []float32, block int) *byte {
	if bias == nil {
		return nil
	}
	return (*byte)(unsafe.Pointer((*[PackedRows]float32)(bias[block*PackedRows:])))
}

// aligned returns n bytes that begin with a line of the cache.
func (s *Scratch) aligned(n int) []byte {
	const line = 64
	if len(s.lines) < n+line {
		s.lines = make([]byte, n+line)
	}
	at := -uintptr(unsafe.Pointer(unsafe.SliceData(s.lines))) % line
	return s.lines[at:][:n]
}
