package kernels

import (
	"fmt"
	"unsafe"

	"github.com/minfer/minfer/internal/quant"
)

// MatMulPackedFloat computes row blocks [block0, block1) of a packed weight of a float format
// for tokens rows of x, which lie xStride values apart:
//
//	out[t*outStride+r] = w[r] . x[t] + bias[r]
//
// for the rows r from 16*block0 to 16*block1-1 that there are, to the bit what MatMulFloat yields.
// The instructions are those of s.Tier. bias is nil or has Out values. Calls with distinct row
// blocks or tokens may run at the same time, each with its own Scratch.
func MatMulPackedFloat(out []float32, outStride int, w *Packed, block0, block1 int, bias []float32, x []float32, xStride, tokens int, s *Scratch) {
	row0, row1 := block0*PackedRows, min(block1*PackedRows, w.Out)
	if tokens <= 0 || row0 >= row1 {
		return
	}
	routines := floatRoutinesOf(s.Tier)
	if routines == nil {
		matMulPackedFloatRows(out, outStride, w, row0, row1, x, xStride, tokens, s)
		addBias(out, outStride, row0, row1, bias, tokens)
		return
	}
	// Assembly does not check bounds.
	_, _ = out[(tokens-1)*outStride+row1-1], x[(tokens-1)*xStride+w.In-1]
	_ = w.Data[block1*rowBlockSize(w.Format, w.In)-1]
	if bias != nil {
		_ = bias[row1-1]
	}
	p := floatProduct{routines: routines, kind: floatKind(w.Format), w: w, x: x, xStride: xStride, tokens: tokens, s: s}
	if full := min(block1, w.Out/PackedRows); block0 < full {
		p.out, p.outStride, p.bias = out[row0:], outStride, bias
		if bias != nil {
			p.bias = bias[row0:]
		}
		p.blocks(block0, full)
	}
	if last := w.Out / PackedRows; block0 <= last && last < block1 {
		p.partial(out, outStride, last, bias)
	}
}

// matMulPackedFloatRows is matMulFloatRows for a packed weight.
func matMulPackedFloatRows(out []float32, outStride int, w *Packed, r0, r1 int, x []float32, xStride, tokens int, s *Scratch) {
	s.floats = grow(s.floats, tileRows*w.In)
	for r := r0; r < r1; r += tileRows {
		n := min(tileRows, r1-r)
		for i := range n {
			unpackFloatRow(s.floats[i*w.In:][:w.In], w, r+i)
		}
		for t := range tokens {
			dotRows(out[t*outStride+r:][:n], s.floats, x[t*xStride:][:w.In])
		}
	}
}

// The assembly is described where it is declared. Its strides are in bytes.
type (
	widenFunc  func(panel *float32, w *byte, wStride uintptr, k int)
	tileFunc   func(out *float32, outStride uintptr, panel *float32, x *float32, xStride uintptr, k int, bias *float32, first bool, ahead *byte, lines int)
	directFunc func(out *float32, outStride uintptr, w *byte, wStride uintptr, x *float32, xStride uintptr, k int, bias *float32)
)

// floatRoutines are those of one instruction set. Shapes are listed from the largest number of
// row blocks to the smallest, which is 1 for tiles.
type floatRoutines struct {
	tiles  []floatTiles
	direct []floatDirect
}

// floatTiles widen so many blocks, by kind, and multiply them, by the number of tokens less one.
type floatTiles struct {
	blocks   int
	widen    [floatKinds]widenFunc
	byTokens [maxFloatTokens]tileFunc
}

// floatDirect multiply so many row blocks as they are stored, if there is a function for
// the kind of the weight and the number of tokens.
type floatDirect struct {
	blocks int
	byKind [floatKinds][maxFloatTokens]directFunc
}

const (
	maxFloatTokens = 6 // of a tile
	floatKinds     = 3 // F32, F16, BF16

	// A panel is what all tokens pass by before the next is widened: of so many row blocks so many
	// values as float32, which is half of a second-level cache. A panel of many blocks visits many
	// results of a token at a time, and fewer pages.
	panelBlocks = 8
	panelDepth  = 1024

	// So many tokens pass by.
	panelTokens = 86 * maxFloatTokens
)

// floatKind is the index of a format in the tables of routines.
func floatKind(f *quant.Format) int {
	switch f.Name {
	case "F32":
		return 0
	case "F16":
		return 1
	case "BF16":
		return 2
	}
	panic(fmt.Sprintf("kernels: no float products with weights in %s", f.Name))
}

// floatProduct is a product on its way to the assembly.
type floatProduct struct {
	routines *floatRoutines
	kind     int
	w        *Packed
	s        *Scratch

	out       []float32 // from the first row of the first block on, as bias
	outStride int
	bias      []float32
	x         []float32
	xStride   int
	tokens    int
}

// partial multiplies the last row block, which has fewer than 16 rows, by way of a buffer:
// the routines write whole blocks.
func (p *floatProduct) partial(out []float32, outStride, block int, bias []float32) {
	r0, r1 := block*PackedRows, p.w.Out
	p.s.partial = grow(p.s.partial, (p.tokens+1)*PackedRows)
	p.out, p.outStride, p.bias = p.s.partial[PackedRows:], PackedRows, nil
	if bias != nil {
		p.bias = p.s.partial[:PackedRows]
		clear(p.bias)
		copy(p.bias, bias[r0:r1])
	}
	p.blocks(block, block+1)
	for t := range p.tokens {
		copy(out[t*outStride+r0:t*outStride+r1], p.out[t*PackedRows:])
	}
}

// blocks multiplies row blocks [b0, b1) with all tokens.
func (p *floatProduct) blocks(b0, b1 int) {
	done := b0
	if p.tokens <= maxFloatTokens {
		done = p.direct(b0, b1)
	}
	if done == b1 {
		return
	}
	parts := (p.w.In + panelDepth - 1) / panelDepth
	depth := ((p.w.In+parts-1)/parts + 15) &^ 15 // activations from a line of the cache on
	for t := 0; t < p.tokens; t += panelTokens {
		for k := 0; k < p.w.In; k += depth {
			for b := done; b < b1; b += panelBlocks {
				p.panel(b, min(b+panelBlocks, b1), (b-b0)*PackedRows, t, min(t+panelTokens, p.tokens), k, min(depth, p.w.In-k))
			}
		}
	}
}

// direct multiplies as many of the blocks as there are routines for and returns the first
// of the others.
func (p *floatProduct) direct(b0, b1 int) int {
	size := rowBlockSize(p.w.Format, p.w.In)
	b := b0
	for i := range p.routines.direct {
		d := &p.routines.direct[i]
		run := d.byKind[p.kind][p.tokens-1]
		if run == nil {
			continue
		}
		for ; b+d.blocks <= b1; b += d.blocks {
			r := (b - b0) * PackedRows
			run(&p.out[r], uintptr(p.outStride)*4, &p.w.Data[b*size], uintptr(size),
				&p.x[0], uintptr(p.xStride)*4, p.w.In, p.biasAt(r))
		}
	}
	return b
}

// panel multiplies values [k, k+n) of row blocks [b0, b1), whose first results are at r, with
// tokens [t0, t1).
func (p *floatProduct) panel(b0, b1, r, t0, t1, k, n int) {
	const rowBytes = PackedRows * 4
	size, part := rowBlockSize(p.w.Format, p.w.In), PackedRows*p.w.Format.Bytes
	at := unsafe.Pointer(unsafe.SliceData(p.s.aligned(panelBlocks * panelDepth * rowBytes)))
	var groups [panelBlocks]floatGroup
	used := 0
	for i, b := 0, b0; b < b1; {
		tiles := &p.routines.tiles[i]
		if b+tiles.blocks > b1 {
			i++
			continue
		}
		g := floatGroup{tiles: tiles, panel: (*float32)(at), r: r + (b-b0)*PackedRows}
		if k+n == p.w.In {
			g.bias = p.biasAt(g.r)
		}
		tiles.widen[p.kind](g.panel, &p.w.Data[b*size+k*part], uintptr(size), n)
		groups[used] = g
		used++
		b += tiles.blocks
		at = unsafe.Add(at, tiles.blocks*n*rowBytes)
	}
	// Tiles are about equally wide: 7 tokens are 4 and 3, since one alone would have too few chains.
	count := (t1 - t0 + maxFloatTokens - 1) / maxFloatTokens
	width := (t1 - t0 + count - 1) / count
	next := p.after(b0, b1, k, n, count*used)
	for t := t0; t < t1; t += width {
		tokens := min(width, t1-t)
		for i := range groups[:used] {
			g := &groups[i]
			ahead, lines := next.take()
			g.tiles.byTokens[tokens-1](&p.out[t*p.outStride+g.r], uintptr(p.outStride)*4, g.panel,
				&p.x[t*p.xStride+k], uintptr(p.xStride)*4, n, g.bias, k == 0, ahead, lines)
		}
	}
}

// floatGroup is a part of a panel that a routine multiplies at once.
type floatGroup struct {
	tiles *floatTiles
	panel *float32
	bias  *float32 // nil also if these are not the last values of the rows
	r     int      // its first result
}

// nextPanel is the weights of the panel that follows, which are fetched in shares while the present one is multiplied: of
// each block a run of bytes.
type nextPanel struct {
	data   []byte // from the present run on
	runs   int    // that are left
	stride int    // from the beginning of a run to that of the next
	size   int    // of a run
	at     int    // what of the present run has been taken
	share  int
}

// after is what follows values [k, k+n) of blocks [b0, b1), in as many shares as there are calls.
func (p *floatProduct) after(b0, b1, k, n, calls int) nextPanel {
	stride, part := rowBlockSize(p.w.Format, p.w.In), PackedRows*p.w.Format.Bytes
	runs, size, first := b1-b0, n*part, b1*stride+k*part
	if n == p.w.In { // one after the other
		size, runs = runs*size, 1
	}
	share := (size/max(1, calls/runs) + 64) &^ 63
	return nextPanel{data: p.w.Data[min(first, len(p.w.Data)):], runs: runs, stride: stride, size: size, share: share}
}

// take returns where the next share begins, and its number of lines.
func (p *nextPanel) take() (from *byte, lines int) {
	n := min(p.share, p.size-p.at, len(p.data)-p.at)
	if n <= 0 || p.runs == 0 {
		return nil, 0
	}
	from = &p.data[p.at]
	if p.at += n; p.at == p.size {
		p.data, p.at = p.data[min(p.stride, len(p.data)):], 0
		p.runs--
	}
	return from, (n + 63) / 64
}

func (p *floatProduct) biasAt(r int) *float32 {
	if p.bias == nil {
		return nil
	}
	return &p.bias[r]
}
