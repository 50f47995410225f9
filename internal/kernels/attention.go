package kernels

import "math"

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

	// Positions 0 to N-1 lie in the cells that Runs lists in order; where they list
	// fewer, position i beyond them lies in cell i. N is the query's own position
	// plus 1, so causality needs no mask. N is at least 1.
	N    int
	Runs []Run

	// Window is the number of positions attended to, the query's own included; 0 for all.
	Window int
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
	if len(w.runs) == 0 {
		return p, n
	}
	r := w.runs[0]
	return int(r.Cell) + p - w.skip, min(n, w.skip+int(r.Len)-p)
}

// loadChunk widens one head of the rows of positions [p0, p1) and returns the walk
// as it was, for the values that follow the keys.
func loadChunk(dst []float32, k *KVRegion, dim, head int, walk *cellWalk, p0, p1 int) {
	for p := p0; p < p1; {
		cell, n := walk.next(p, p1-p)
		for i := range n {
			k.Load(dst[(p-p0+i)*dim:][:dim], cell+i, head*dim)
		}
		p += n
	}
}
