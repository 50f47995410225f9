package kernels

import (
	"fmt"
	"math"
)

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

// attendScratch holds one chunk widened to float32, and the state of the heads.
type attendScratch struct {
	rows   []float32 // [AttendChunk][HeadDim] keys, then values
	q      []float32 // [heads][HeadDim] scaled queries
	acc    []float32 // [heads][HeadDim]
	part   []float32 // [HeadDim] of one chunk
	scores []float32 // [heads][AttendChunk]
	m, l   []float32 // [heads]
	mc, lc []float32 // [heads] of one chunk
}

// Attend computes the heads of one group for one token: q and out are
// len(q)/HeadDim heads of HeadDim values, all attending to the same key and value
// head. out may be q. The order of operations is in the package comment.
func Attend(out, q []float32, a *Attention, s *Scratch) {
	attend(out, q, a, &s.attend)
}

func (s *attendScratch) reset(heads, dim int) {
	s.rows = grow(s.rows, AttendChunk*dim)
	s.q = grow(s.q, heads*dim)
	s.acc = grow(s.acc, heads*dim)
	s.part = grow(s.part, dim)
	s.scores = grow(s.scores, heads*AttendChunk)
	s.m, s.l = grow(s.m, heads), grow(s.l, heads)
	s.mc, s.lc = grow(s.mc, heads), grow(s.lc, heads)
	clear(s.acc)
	clear(s.l)
	for h := range s.m {
		s.m[h] = float32(math.Inf(-1))
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

// loadChunk widens one head of the rows of positions [p0, p1).
func loadChunk(dst []float32, k *KVRegion, dim, head int, walk *cellWalk, p0, p1 int) {
	for p := p0; p < p1; {
		cell, n := walk.next(p, p1-p)
		for i := range n {
			k.Load(dst[(p-p0+i)*dim:][:dim], cell+i, head*dim)
		}
		p += n
	}
}
