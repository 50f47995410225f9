package kernels

import "fmt"

// AttendChunk is the number of positions whose softmax is computed at once.
// Chunks begin at multiples of it, whatever the batch and the window.
const AttendChunk = 128

// Run is a stretch of consecutive cells that hold consecutive positions.
type Run struct {
	Cell int32 // the first cell
	Len  int32 // cells; 0 for an unused run
}

// Attention describes what the heads of one key and value head attend to.
type Attention struct {
	K, V    *KVRegion
	HeadDim int
	KVHead  int     // the key and value head: elements [KVHead*HeadDim, +HeadDim) of a row
	Scale   float32 // multiplies the query

	// N is the query's own position plus 1, so causality needs no mask. Positions 0 to
	// N-1 lie in the cells that Runs lists in order; without runs, position i lies in
	// cell i.
	N    int
	Runs []Run

	// Window is the number of positions attended to, the query's own included; 0 for all.
	Window int
}

// Check says whether all positions lie in cells that the regions have, which Attend
// takes for granted.
func (a *Attention) Check() error {
	cells := min(a.K.Cells(), a.V.Cells())
	if a.HeadDim <= 0 || a.KVHead < 0 || a.KVHead >= min(a.K.Dim, a.V.Dim)/a.HeadDim {
		return fmt.Errorf("kernels: head %d of %d values in rows of %d and %d", a.KVHead, a.HeadDim, a.K.Dim, a.V.Dim)
	}
	if a.N < 1 || a.N > cells || a.Window < 0 {
		return fmt.Errorf("kernels: attention to %d positions, window %d, with %d cells", a.N, a.Window, cells)
	}
	if len(a.Runs) == 0 {
		return nil
	}
	left := a.N
	for i, r := range a.Runs {
		if r.Cell < 0 || r.Len < 0 || int64(r.Cell)+int64(r.Len) > int64(cells) {
			return fmt.Errorf("kernels: run %d of cells: %d from %d on, of %d", i, r.Len, r.Cell, cells)
		}
		left -= min(left, int(r.Len))
	}
	if left > 0 {
		return fmt.Errorf("kernels: runs of cells cover all but %d of %d positions", left, a.N)
	}
	return nil
}

// attendScratch holds one chunk widened to float32, and the state of the rows: pairs of
// token and head, the heads of a token together.
type attendScratch struct {
	q    []float32 // [rows][HeadDim] scaled queries
	acc  []float32 // [rows][width]
	m, l []float32 // [rows]

	// Of the current chunk, and some of the rows:
	scores []float32 // [some][AttendChunk]
	chunk  partial

	rows []float32 // plain Go: [AttendChunk][HeadDim] keys, then values
	simd simdScratch
}

// partial is what a chunk yields for some rows: the largest score, the sum of weights and the
// weighted values.
type partial struct {
	m, l []float32 // [rows]
	acc  []float32 // [rows][width]
}

// widthOf is the number of values by which rows of headDim values lie apart.
func widthOf(headDim int) int { return (headDim + 15) &^ 15 }

// lanesOf is the number of elements reserved for one of each row: whole vectors.
func lanesOf(rows int) int { return (rows + 15) &^ 15 }

// reset makes room for rows, of which so many at a time meet a chunk.
func (s *attendScratch) reset(rows, some, dim int) {
	width, lanes := widthOf(dim), lanesOf(rows)
	s.q = grow(s.q, rows*dim)
	s.acc = grow(s.acc, rows*width)
	s.m, s.l = grow(s.m, lanes), grow(s.l, lanes)
	s.scores = grow(s.scores, some*AttendChunk)
	s.chunk.m, s.chunk.l = grow(s.chunk.m, lanesOf(some)), grow(s.chunk.l, lanesOf(some))
	s.chunk.acc = grow(s.chunk.acc, some*width)
	clear(s.acc)
	clear(s.l)
	for h := range s.m {
		s.m[h] = minusInf
	}
}

// Attend computes the heads of one group for one token: q and out are
// len(q)/HeadDim heads of HeadDim values, all attending to the same key and value
// head. out may be q. The order of operations is in the package comment.
func Attend(out, q []float32, a *Attention, s *Scratch) {
	if !s.Tier.attendOne(out, q, a, &s.attend) {
		attend(out, q, a, &s.attend)
	}
}

// AttendTile is Attend for several tokens that attend to the same cells: token i has its heads
// in q[i*stride:], as many values as size, and likewise in out, and attends to the first
// lengths[i] positions, whatever N says. Tokens together read the cells once; TileTokens says
// how many pay.
func AttendTile(out, q []float32, stride, size int, a *Attention, lengths []int, s *Scratch) {
	if s.Tier.attendTile(out, q, stride, size, a, lengths, &s.attend) {
		return
	}
	one := *a
	for i, n := range lengths {
		one.N = n
		attend(out[i*stride:][:size], q[i*stride:][:size], &one, &s.attend)
	}
}

// TileTokens is the number of tokens, of so many heads each, that AttendTile does best with: keys and values are
// widened once for all of them, and queries and sums stay in the second-level cache. They are those of whole blocks.
func TileTokens(heads, headDim int) int {
	return min(256, max(kvBlock, (256<<10)/(floatBytes*heads*headDim)&^(kvBlock-1)))
}

const floatBytes = 4

// Chunks returns the first chunk that is not wholly masked, and the number of chunks from
// there on. Chunk c is the positions from c*AttendChunk on.
func (a *Attention) Chunks() (first, count int) {
	first = a.first() / AttendChunk
	return first, (a.N-1)/AttendChunk + 1 - first
}

// first is the first position that is not masked.
func (a *Attention) first() int {
	if a.Window == 0 {
		return 0
	}
	return max(0, a.N-a.Window)
}

// PartialLen is the number of values that AttendChunks writes for each chunk.
func PartialLen(heads, headDim int) int { return 2*lanesOf(heads) + heads*widthOf(headDim) }

// partialOf views PartialLen values.
func partialOf(parts []float32, i, heads, dim int) partial {
	n := PartialLen(heads, dim)
	p, lanes := parts[i*n:][:n], lanesOf(heads)
	return partial{m: p[:lanes], l: p[lanes : 2*lanes], acc: p[2*lanes:]}
}

// rows views n rows from row r on.
func (p *partial) rows(r, n, width int) partial {
	return partial{m: p.m[r : r+n], l: p.l[r : r+n], acc: p.acc[r*width : (r+n)*width]}
}

// AttendChunks computes, as Attend does, what chunks from to to-1 contribute to all heads of a
// token, whatever KVHead says: q are as many for every key head, those of a key head together. It
// writes PartialLen values for each chunk to parts. Chunks that several workers have computed
// give with MergeChunks what Attend gives.
func AttendChunks(parts, q []float32, a *Attention, from, to int, s *Scratch) {
	if s.Tier.attendChunks(parts, q, a, from, to, &s.attend) {
		return
	}
	heads, kvHeads := len(q)/a.HeadDim, a.K.Dim/a.HeadDim
	group := heads / kvHeads
	s.attend.reset(group, group, a.HeadDim)
	one := *a
	for one.KVHead = range kvHeads {
		Scale(s.attend.q, q[one.KVHead*group*a.HeadDim:][:group*a.HeadDim], a.Scale)
		for c := from; c < to; c++ {
			p := partialOf(parts, c-from, heads, a.HeadDim)
			p = p.rows(one.KVHead*group, group, widthOf(a.HeadDim))
			attendChunk(&p, &one, c, group, &s.attend)
		}
	}
}

// MergeChunks sets heads h0 to h1-1 of out, which are all heads of a token, from the parts of all of
// the chunks, in their order.
func MergeChunks(out, parts []float32, a *Attention, h0, h1 int, s *Scratch) {
	heads, n := len(out)/a.HeadDim, h1-h0
	s.attend.reset(n, n, a.HeadDim)
	_, chunks := a.Chunks()
	for c := range chunks {
		p := partialOf(parts, c, heads, a.HeadDim)
		p = p.rows(h0, n, widthOf(a.HeadDim))
		if !s.Tier.mergePartial(&p, n, a.HeadDim, &s.attend) {
			s.attend.merge(&p, n, a.HeadDim)
		}
	}
	s.attend.finish(out[h0*a.HeadDim:], 0, n, a.HeadDim, s.Tier)
}

// finish divides the sums of some rows by their weights.
func (s *attendScratch) finish(out []float32, row, heads, dim int, t Tier) {
	for h := range heads {
		t.Scale(out[h*dim:][:dim], s.acc[(row+h)*widthOf(dim):][:dim], 1/s.l[row+h])
	}
}

// cellWalk finds the cells of ascending positions.
type cellWalk struct {
	runs []Run
	skip int // positions before runs[0]
}

// next returns the cell of position p and how many positions from p on lie in
// consecutive cells, at most n. Calls must not go backwards.
func (w *cellWalk) next(p, n int) (cell, length int) {
	for len(w.runs) > 0 && p >= w.skip+int(w.runs[0].Len) {
		w.skip += int(w.runs[0].Len)
		w.runs = w.runs[1:]
	}
	if len(w.runs) == 0 { // there were none
		return p, n
	}
	r := w.runs[0]
	return int(r.Cell) + p - w.skip, min(n, w.skip+int(r.Len)-p)
}
