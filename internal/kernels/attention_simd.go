//go:build (amd64 || arm64) && !purego

package kernels

import "unsafe"

// Attention with vectors: a tile of rows (tokens times the heads of a group) passes over the
// chunks, in each some rows after the others. Products of queries and keys give the scores of 16 keys at once, and
// products of weights and values 16 features at once, both from the order in which a
// region's blocks lie (see KVRegion). Cells that do not lie in whole blocks, and heads that
// are no multiple of 16, are first brought into that order.

const (
	chunkBlocks = AttendChunk / kvBlock

	// widenRows is the number of rows from which on it pays to widen half-precision cells
	// once, before all rows pass over them.
	widenRows = 16
)

// simdScratch is the scratch memory of one worker.
type simdScratch struct {
	keys, values []float32 // a chunk, widened: blocks as in a region of one head
	row          []float32 // of one cell
	f, g         []float32 // [rows] factors of a merge
	m, l         []float32 // [rows] of the rows that merge
	pm, pl       []float32 // [rows] of what they merge with
	lo, hi       []int     // [tokens] what each sees of the current chunk, if they differ
}

// attendVectors is what a tier's products look like.
type attendVectors struct {
	product [2][][]attendProduct // by precision, half first; by tiles-1; by rows-1
	rows    int                  // how many rows a product best takes at once
	most    int                  // how many it can take
	tiles   int                  // how many tiles it takes at once
	softmax func(scores, maxima, sums *float32, blocks, rows int)
	factors func(m, l, mc, lc, keep, gain *float32, n int)
	merge   func(acc, part, keep, gain *float32, width, rows int)
}

type attendProduct func(acc, w *float32, x *byte, accStride, wStride, tileStride, segStride, steps, segs, ahead, join int)

// groups returns in how many groups, of about equally many, to take rows.
func (v *attendVectors) groups(rows int) int {
	if rows <= v.most {
		return 1
	}
	return (rows + v.rows - 1) / v.rows
}

// group returns how many rows the largest of the groups has.
func (v *attendVectors) group(rows int) int {
	n := v.groups(rows)
	return (rows + n - 1) / n
}

// tileGroup returns how many of the next tiles to take at once, with so many rows.
func (v *attendVectors) tileGroup(tiles, rows int) int {
	n := v.tiles
	if rows > v.rows {
		n /= 2 // for want of registers
	}
	for n > tiles {
		n /= 2
	}
	return n
}

func (t Tier) attendOne(out, q []float32, a *Attention, s *attendScratch) bool {
	v := t.vectors()
	if v == nil {
		return false
	}
	length := [1]int{a.N}
	v.attend(out, q, 0, len(q), a, length[:], s)
	return true
}

func (t Tier) attendTile(out, q []float32, stride, size int, a *Attention, lengths []int, s *attendScratch) bool {
	v := t.vectors()
	if v == nil {
		return false
	}
	most := TileTokens(size/a.HeadDim, a.HeadDim)
	for i := 0; i < len(lengths); {
		n := 1 // tokens of ascending lengths
		for i+n < len(lengths) && n < most && lengths[i+n-1] <= lengths[i+n] {
			n++
		}
		v.attend(out[i*stride:], q[i*stride:], stride, size, a, lengths[i:i+n], s)
		i += n
	}
	return true
}

// attendWork is the work on some tokens.
type attendWork struct {
	*attendScratch
	v       *attendVectors
	a       *Attention
	lengths []int // ascending
	heads   int   // of a token: those of a key head, or all
	row0    int   // the first row of the key head, where rows are all heads of a token
	dim     int
	width   int

	// Behind a pointer: its slices go to assembly that is chosen at run time, and so escape. Lying here they would take lengths with them,
	// which for one token are an array on the stack.
	where           *tokenRows
	scaled, written int // tokens whose queries are scaled, and whose results are written
}

// tokenRows is where tokens have their queries and results, stride values apart.
type tokenRows struct {
	queries, results []float32
	stride           int
}

// partTokens is the number of tokens whose rows meet a chunk together, in prompts those of whole blocks. Their scores and what
// they get from it stay in the second-level cache, while the chunk's keys, and then its values, pass through the first.
func partTokens(heads int) int { return min(64, max(kvBlock, 128/heads&^(kvBlock-1))) }

// prepare makes room.
func (v *attendVectors) prepare(where *tokenRows, size int, a *Attention, lengths []int, s *attendScratch) attendWork {
	w := attendWork{v: v, attendScratch: s, a: a, where: where, lengths: lengths, heads: size / a.HeadDim, dim: a.HeadDim, width: widthOf(a.HeadDim)}
	some := min(len(lengths), partTokens(w.heads)) * w.heads
	s.reset(len(lengths)*w.heads, some, w.dim)
	lanes := lanesOf(some)
	s.simd.f, s.simd.g = grow(s.simd.f, lanes), grow(s.simd.g, lanes)
	s.simd.m, s.simd.l = grow(s.simd.m, lanes), grow(s.simd.l, lanes)
	s.simd.pm, s.simd.pl = grow(s.simd.pm, lanes), grow(s.simd.pl, lanes)
	s.simd.lo, s.simd.hi = grow(s.simd.lo, len(lengths)), grow(s.simd.hi, len(lengths))
	return w
}

// scale scales the queries of tokens before t1, as far as that has not been done.
func (w *attendWork) scale(t1 int) {
	t0, n := w.scaled, w.heads*w.dim
	if t0 >= t1 {
		return
	}
	w.scaled = t1
	x, stride := w.where.queries, w.where.stride
	if w.v.scaleRows(w.q[t0*n:t1*n], x[t0*stride:], stride, n, w.a.Scale) {
		return
	}
	for i := t0; i < t1; i++ {
		w.v.tier().Scale(w.q[i*n:][:n], x[i*stride:][:n], w.a.Scale)
	}
}

// write writes the results of tokens before t1 that see nothing from position end on, as far as that has not been done.
func (w *attendWork) write(t1, end int) {
	t0 := w.written
	for w.written < t1 && w.lengths[w.written] <= end {
		w.written++
	}
	if t0 == w.written || w.v.finishRows(w, t0, w.written) {
		return
	}
	for i := t0; i < w.written; i++ {
		w.finish(w.where.results[i*w.where.stride:], i*w.heads, w.heads, w.dim, w.v.tier())
	}
}

// attend computes tokens of ascending lengths.
func (v *attendVectors) attend(out, q []float32, stride, size int, a *Attention, lengths []int, s *attendScratch) {
	w := v.prepare(&tokenRows{q, out, stride}, size, a, lengths, s)
	last := lengths[len(lengths)-1]
	walk := cellWalk{runs: a.Runs}
	for base := w.first(0) / AttendChunk * AttendChunk; base < last; base += AttendChunk {
		w.meet(base, &walk)
	}
}

// meet joins what the chunk at position base contributes to the tokens that see it. Queries are read and results written along with
// their part: those of a whole tile may lie at distances at which they push each other out of the second-level cache.
func (w *attendWork) meet(base int, walk *cellWalk) {
	all := w.extent(base, 0, len(w.lengths))
	if all.t0 == all.t1 {
		return
	}
	var l layout
	w.locate(&l, base, all, walk, (all.t1-all.t0)*w.heads)
	n := partTokens(w.heads)
	for t := all.t0; t < all.t1; t += n {
		e := w.extent(base, t, min(t+n, all.t1))
		w.scale(e.t1)
		w.part(&l, e, &w.chunk)
		w.mergeRows(&w.chunk, e.t0*w.heads, e.t1*w.heads)
		w.write(e.t1, base+AttendChunk)
	}
}

func (t Tier) attendChunks(parts, q []float32, a *Attention, from, to int, s *attendScratch) bool {
	v := t.vectors()
	if v == nil {
		return false
	}
	length := [1]int{a.N}
	w := v.prepare(&tokenRows{queries: q}, len(q), a, length[:], s)
	w.scale(1)
	walk := cellWalk{runs: a.Runs}
	for c := from; c < to; c++ {
		p := partialOf(parts, c-from, w.heads, w.dim)
		w.allHeads(c*AttendChunk, &walk, &p)
	}
	return true
}

// allHeads is chunk for all heads of the only token. They pass over a block one after the other, so
// that memory is read in its order.
func (w *attendWork) allHeads(base int, walk *cellWalk, p *partial) {
	e := w.extent(base, 0, 1)
	kvHeads := w.a.K.Dim / w.dim
	group := w.heads / kvHeads
	if group >= widenRows || !w.direct(base, e, *walk) {
		w.eachHead(base, walk, p, kvHeads, group)
		return
	}
	var l layout
	w.add(&l, base, e, walk, 0)
	w.scoreHeads(&l, kvHeads, group)
	w.softmax(p, e, 0)
	w.weighHeads(&l, p, kvHeads, group, e.lo, e.hi)
}

// eachHead is allHeads for one key head after the other.
func (w *attendWork) eachHead(base int, walk *cellWalk, p *partial, kvHeads, group int) {
	all, a := *w, *w.a
	for h := range kvHeads {
		one, again, rows := all, *walk, p.rows(h*group, group, w.width)
		a.KVHead = h
		one.a, one.heads, one.row0 = &a, group, h*group
		var l layout
		e := one.extent(base, 0, 1)
		one.locate(&l, base, e, &again, group)
		one.part(&l, e, &rows)
	}
}

func (t Tier) mergePartial(p *partial, rows, dim int, s *attendScratch) bool {
	v := t.vectors()
	if v == nil {
		return false
	}
	w := attendWork{v: v, attendScratch: s, width: widthOf(dim)}
	lanes := lanesOf(rows)
	d := &s.simd
	d.f, d.g, d.m, d.l = grow(d.f, lanes), grow(d.g, lanes), grow(d.m, lanes), grow(d.l, lanes)
	d.pm, d.pl = grow(d.pm, lanes), grow(d.pl, lanes)
	w.mergeRows(p, 0, rows)
	return true
}

// mergeRows joins what rows r0 to r1-1 got from a chunk. The factors are computed for whole
// vectors, of which only those of these rows are kept.
func (w *attendWork) mergeRows(p *partial, r0, r1 int) {
	n, d := r1-r0, &w.simd
	lanes := lanesOf(n)
	if n == 0 {
		return
	}
	copy(d.m, w.m[r0:r1])
	copy(d.l, w.l[r0:r1])
	copy(d.pm, p.m[:n])
	copy(d.pl, p.l[:n])
	for i := n; i < lanes; i++ {
		d.m[i], d.l[i], d.pm[i], d.pl[i] = 0, 0, 0, 0
	}
	w.v.factors(&d.m[0], &d.l[0], &d.pm[0], &d.pl[0], &d.f[0], &d.g[0], lanes)
	copy(w.m[r0:r1], d.m)
	copy(w.l[r0:r1], d.l)
	w.v.merge(&w.acc[r0*w.width : r1*w.width][0], &p.acc[:n*w.width][0], &d.f[0], &d.g[0], w.width, n)
}

// first is the first position that token i sees.
func (w *attendWork) first(i int) int {
	if w.a.Window == 0 {
		return 0
	}
	return max(0, w.lengths[i]-w.a.Window)
}

// extent is what a chunk is to a tile: tokens t0 to t1-1 see some of it, of positions lo to
// hi-1 counted from its beginning.
type extent struct {
	t0, t1, lo, hi int
	uneven         bool // not all of them see the same
}

// extent looks at tokens from to to-1.
func (w *attendWork) extent(base, from, to int) (e extent) {
	e.t0 = from
	for e.t0 < to && w.lengths[e.t0] <= base {
		e.t0++
	}
	if w.a.Window == 0 && e.t0 < to && w.lengths[e.t0] >= base+AttendChunk { // as do those that follow
		e.t1, e.hi = to, AttendChunk
		return e
	}
	e.lo, e.hi = AttendChunk, 0
	for e.t1 = e.t0; e.t1 < to; e.t1++ {
		i := e.t1
		if w.first(i) >= base+AttendChunk {
			break
		}
		lo, hi := max(0, w.first(i)-base), min(AttendChunk, w.lengths[i]-base)
		w.simd.lo[i], w.simd.hi[i] = lo, hi
		e.uneven = e.uneven || i > e.t0 && (lo != e.lo || hi != e.hi)
		e.lo, e.hi = min(e.lo, lo), max(e.hi, hi)
	}
	return e
}

// seen returns what token i of an extent sees.
func (w *attendWork) seen(e extent, i int) (lo, hi int) {
	if !e.uneven {
		return e.lo, e.hi
	}
	return w.simd.lo[i], w.simd.hi[i]
}

// alike returns the end of those tokens from t on that see the chunk to the end of the same block, and the blocks that
// some of them see.
func (w *attendWork) alike(e extent, t int) (end, b0, b1 int) {
	lo, hi := w.seen(e, t)
	b0, b1 = lo/kvBlock, blocksOf(hi)
	if !e.uneven {
		return e.t1, b0, b1
	}
	for end = t + 1; end < e.t1 && blocksOf(w.simd.hi[end]) == b1; end++ {
	}
	return end, b0, b1
}

// blocksOf is the number of blocks that hold so many cells.
func blocksOf(cells int) int { return (cells + kvBlock - 1) / kvBlock }

// part computes what the chunk contributes to the rows of some tokens, of which the first is row 0 of p.
func (w *attendWork) part(l *layout, e extent, p *partial) {
	w.score(l, e)
	w.softmax(p, e, 0)
	l.join = 0
	if e.uneven {
		w.weighUneven(l, p, e)
	} else {
		w.weighRows(l, p, 0, (e.t1-e.t0)*w.heads, 0, e.lo, e.hi)
	}
}

// softmax turns the scores of tokens into weights, in rows from r on.
func (w *attendWork) softmax(p *partial, e extent, r int) {
	const together = 16 // rows that the first-level cache holds, since they are read twice
	for t, end := e.t0, 0; t < e.t1; t = end {
		var b0, b1 int
		end, b0, b1 = w.alike(e, t)
		w.mask(e, t, end, r, b0, b1)
		for last := r + (end-t)*w.heads; r < last; {
			k := min(together, last-r)
			w.v.softmax(&w.scores[r*AttendChunk+b0*kvBlock], &p.m[r : r+k][0], &p.l[r : r+k][0], b1-b0, k)
			r += k
		}
	}
}

// mask sets the scores of what tokens from to to-1 do not see of blocks b0 to b1-1 to -Inf, which weighs 0 and is never the
// maximum alone, so that sums are as if it were not there. Row r is the first.
func (w *attendWork) mask(e extent, from, to, r, b0, b1 int) {
	for i := from; i < to; i++ {
		lo, hi := w.seen(e, i)
		for range w.heads {
			scores := w.scores[r*AttendChunk:][:AttendChunk]
			fill(scores[b0*kvBlock:lo], minusInf)
			fill(scores[hi:b1*kvBlock], minusInf)
			r++
		}
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// weighUneven weighs values for tokens that do not see the same: for as many at a time as registers hold, first what only
// some of them see, up to where all do, then together, then the rest.
func (w *attendWork) weighUneven(l *layout, p *partial, e extent) {
	few := max(1, w.v.rows/w.heads)
	for t, tiles := 0, 0; t < w.width/kvBlock; t += tiles {
		tiles = w.v.tileGroup(w.width/kvBlock-t, w.v.group(few*w.heads))
		for i := e.t0; i < e.t1; i += few {
			w.weighSteps(l, p, e.t0, i, min(i+few, e.t1), t, tiles)
		}
	}
}

// weighSteps weighs some tiles of features for tokens i0 to i1-1. Token t0 has row 0.
func (w *attendWork) weighSteps(l *layout, p *partial, t0, i0, i1, t, tiles int) {
	lo, hi := w.simd.lo[i1-1], w.simd.hi[i0] // what all see, since later ones begin and end later
	weigh := func(from, to, lo, hi int) {
		if r := (from - t0) * w.heads; lo < hi {
			w.weighTiles(l, p, r, (to-from)*w.heads, r, t, tiles, lo, hi)
		}
	}
	l.join = 0
	if lo >= hi {
		for i := i0; i < i1; i++ {
			weigh(i, i+1, w.simd.lo[i], w.simd.hi[i])
		}
		return
	}
	if w.simd.lo[i0] < lo {
		for r := (i0 - t0) * w.heads; r < (i1-t0)*w.heads; r++ {
			clear(p.acc[r*w.width+t*kvBlock:][:tiles*kvBlock])
		}
		l.join = 1
		for i := i0; i < i1; i++ {
			weigh(i, i+1, w.simd.lo[i], lo)
		}
	}
	weigh(i0, i1, lo, hi)
	l.join = 1
	for i := i0; i < i1; i++ {
		weigh(i, i+1, hi, w.simd.hi[i])
	}
}

// stretch is some blocks of a chunk that lie at a constant distance.
type stretch struct {
	block, blocks int // the first, counted from the beginning of the chunk, and their number
	keys, values  *byte
	keyAhead      int // bytes from a key to what shall be fetched when it is read
	valueAhead    int
	distance      int // bytes from block to block
}

// layout says where a chunk lies.
type layout struct {
	stretches [chunkBlocks]stretch
	n         int
	half      bool
	join      int // whether weighted values are added to what is there
}

func (l *layout) add(s stretch) {
	l.stretches[l.n] = s
	l.n++
}

func (l *layout) precision() (index, bytes int) {
	if l.half {
		return 0, 2
	}
	return 1, floatBytes
}

// locate finds the cells of a chunk, and rearranges or widens them where that is needed.
func (w *attendWork) locate(l *layout, base int, e extent, walk *cellWalk, rows int) {
	switch {
	case !w.direct(base, e, *walk):
		w.gather(base, e, walk)
		l.add(w.own(e.lo/kvBlock, (e.hi+kvBlock-1)/kvBlock))
	case w.a.K.F16 != nil && rows >= widenRows:
		for p := base + e.lo; p < base+e.hi; {
			cell, n := walk.next(p, base+e.hi-p)
			w.widen(cell/kvBlock, (p-base)/kvBlock, (n+p%kvBlock+kvBlock-1)/kvBlock)
			p += n
		}
		l.add(w.own(e.lo/kvBlock, (e.hi+kvBlock-1)/kvBlock))
	default:
		w.add(l, base, e, walk, w.a.KVHead)
		w.lookAhead(l, base)
	}
}

// direct says whether the chunk's cells can be used where they are.
func (w *attendWork) direct(base int, e extent, walk cellWalk) bool {
	return w.dim%kvBlock == 0 && w.inBlocks(base, e, walk)
}

// add adds the stretches of a chunk, from the given head on.
func (w *attendWork) add(l *layout, base int, e extent, walk *cellWalk, head int) {
	l.half = w.a.K.F16 != nil
	for p := base + e.lo; p < base+e.hi; {
		cell, n := walk.next(p, base+e.hi-p)
		l.add(w.inPlace(cell/kvBlock, (p-base)/kvBlock, (n+p%kvBlock+kvBlock-1)/kvBlock, head))
		p += n
	}
}

// inBlocks says whether the chunk's positions lie in whole blocks, in the order of lanes.
func (w *attendWork) inBlocks(base int, e extent, walk cellWalk) bool {
	k, v := w.a.K, w.a.V
	if (k.F16 != nil) != (v.F16 != nil) || k.Dim != v.Dim || !k.Keys || v.Keys {
		return false
	}
	cells := min(k.Cells(), v.Cells()) / kvBlock * kvBlock
	for p := base + e.lo; p < base+e.hi; {
		cell, n := walk.next(p, base+e.hi-p)
		end := p + n
		if cell%kvBlock != p%kvBlock || p%kvBlock != 0 && p != base+e.lo || end%kvBlock != 0 && end != base+e.hi {
			return false
		}
		if (cell+n+kvBlock-1)/kvBlock*kvBlock > cells {
			return false
		}
		p = end
	}
	return true
}

// inPlace returns blocks of the regions as they are, from a head on.
func (w *attendWork) inPlace(block, at, blocks, head int) stretch {
	s := stretch{block: at, blocks: blocks}
	size := kvBlock * w.a.K.Dim
	from, to := block*size+head*kvBlock*w.dim, (block+blocks)*size
	if w.a.K.F16 != nil {
		s.keys = (*byte)(unsafe.Pointer(&w.a.K.F16[from:to][0]))
		s.values = (*byte)(unsafe.Pointer(&w.a.V.F16[from:to][0]))
		s.distance = 2 * size
	} else {
		s.keys = (*byte)(unsafe.Pointer(&w.a.K.F32[from:to][0]))
		s.values = (*byte)(unsafe.Pointer(&w.a.V.F32[from:to][0]))
		s.distance = floatBytes * size
	}
	return s
}

// lookAhead has the values fetched while the keys are read, and the next chunk's keys while
// the values are, if the chunk is one stretch and, presumably, the next one follows it.
func (w *attendWork) lookAhead(l *layout, base int) {
	if l.n != 1 {
		return
	}
	s := &l.stretches[0]
	s.keyAhead = int(uintptr(unsafe.Pointer(s.values)) - uintptr(unsafe.Pointer(s.keys)))
	if next := base + AttendChunk; next < w.lengths[len(w.lengths)-1] {
		s.valueAhead = chunkBlocks*s.distance - s.keyAhead
	}
}

// own returns blocks b0 to b1-1 of the tile's own memory.
func (w *attendWork) own(b0, b1 int) stretch {
	return stretch{
		block: b0, blocks: b1 - b0,
		keys:     (*byte)(unsafe.Pointer(&w.simd.keys[b0*kvBlock*w.width])),
		values:   (*byte)(unsafe.Pointer(&w.simd.values[b0*kvBlock*w.width])),
		distance: floatBytes * kvBlock * w.width,
	}
}

func (w *attendWork) reserve() (keys, values []float32) {
	d, n := &w.simd, AttendChunk*w.width
	if len(d.keys) < n {
		d.keys, d.values = make([]float32, n), make([]float32, n)
	}
	return d.keys, d.values
}

// widen brings blocks of half-precision cells to the tile's memory.
func (w *attendWork) widen(block, at, blocks int) {
	keys, values := w.reserve()
	size, n := kvBlock*w.a.K.Dim, kvBlock*w.dim
	for b := range blocks {
		from, to := (block+b)*size+w.a.KVHead*n, (at+b)*n
		w.v.tier().DecodeF16(keys[to:to+n], w.a.K.F16[from:from+n])
		w.v.tier().DecodeF16(values[to:to+n], w.a.V.F16[from:from+n])
	}
}

// gather brings the cells of a chunk to the tile's memory one by one. What is left of blocks
// and of the width of rows are old numbers, and do not matter.
func (w *attendWork) gather(base int, e extent, walk *cellWalk) {
	keys, values := w.reserve()
	w.simd.row = grow(w.simd.row, w.dim)
	row := w.simd.row
	for p := base + e.lo; p < base+e.hi; {
		cell, n := walk.next(p, base+e.hi-p)
		for i := range n {
			at := p + i - base
			block, lane := at/kvBlock*kvBlock*w.width, at%kvBlock
			w.a.K.Load(row, cell+i, w.a.KVHead*w.dim)
			for d, v := range row {
				keys[block+d*kvBlock+lane] = v
			}
			w.a.V.Load(row, cell+i, w.a.KVHead*w.dim)
			for d := 0; d < w.dim; d += kvBlock {
				copy(values[block+d*kvBlock+lane*kvBlock:][:kvBlock], row[d:])
			}
		}
		p += n
	}
}

// score multiplies the queries of some tokens with the keys of a chunk that they see, and some with keys
// beyond, which softmax leaves out. Some tiles of keys stay in the first-level cache while all queries pass by.
func (w *attendWork) score(l *layout, e extent) {
	for i := range l.stretches[:l.n] {
		s := &l.stretches[i]
		end := min(s.blocks, blocksOf(e.hi)-s.block)
		for b, tiles := max(0, e.lo/kvBlock-s.block), 0; b < end; b += tiles {
			tiles = w.v.tileGroup(end-b, 1)
			for t, next := e.t0, 0; t < e.t1; t = next {
				var b1 int
				next, _, b1 = w.alike(e, t)
				w.scoreTiles(l, s, b, min(b+tiles, b1-s.block), (t-e.t0)*w.heads, (next-e.t0)*w.heads, w.row0+e.t0*w.heads)
			}
		}
	}
}

// scoreTiles multiplies rows r0 to r1-1, whose queries come after the first row's, with the keys of blocks b to end-1 of a stretch.
func (w *attendWork) scoreTiles(l *layout, s *stretch, b, end, r0, r1, first int) {
	for tiles := 0; b < end; b += tiles {
		tiles = w.v.tileGroup(end-b, w.v.group(r1-r0))
		w.scoreRows(l, s, b, tiles, 0, r0, r1, first, s.keyAhead)
	}
}

// scoreRows is scoreTiles for the tiles of keys from block b on, which lie at bytes into it, and fetches what lies ahead of them.
func (w *attendWork) scoreRows(l *layout, s *stretch, b, tiles, at, r, r1, first, ahead int) {
	half, _ := l.precision()
	keys := (*byte)(unsafe.Add(unsafe.Pointer(s.keys), b*s.distance+at))
	products := w.v.product[half][tiles-1]
	for groups := w.v.groups(r1 - r); groups > 0; groups-- {
		rows := (r1 - r + groups - 1) / groups
		products[rows-1](&w.scores[r*AttendChunk+(s.block+b)*kvBlock], &w.q[(first+r)*w.dim], keys,
			AttendChunk*floatBytes, w.dim*floatBytes, s.distance, 0, w.dim, 1, ahead, 0)
		r += rows
	}
}

// aheadOfHead is how far on to fetch what the heads will read soon: the next head's part of a block if that
// is a page, or else the head's own, two blocks on.
func (w *attendWork) aheadOfHead(s *stretch, kvHeads, bytes int) int {
	const page = 4096
	if head := kvBlock * w.dim * bytes; kvHeads > 1 && head >= page {
		return head
	}
	return 2 * s.distance
}

// scoreHeads multiplies the rows of each key head, group many, with its keys, in the order of memory.
func (w *attendWork) scoreHeads(l *layout, kvHeads, group int) {
	_, bytes := l.precision()
	for i := range l.stretches[:l.n] {
		s := &l.stretches[i]
		ahead := w.aheadOfHead(s, kvHeads, bytes)
		for b, tiles := 0, 0; b < s.blocks; b += tiles {
			tiles = min(2, w.v.tileGroup(s.blocks-b, w.v.group(group)))
			for h := range kvHeads {
				w.scoreRows(l, s, b, tiles, h*kvBlock*w.dim*bytes, h*group, (h+1)*group, 0, ahead)
			}
		}
	}
}

// weighHeads weighs the values of positions lo to hi-1 for all rows: so many blocks for one head,
// then the same blocks for the next.
func (w *attendWork) weighHeads(l *layout, p *partial, kvHeads, group, lo, hi int) {
	const together = 32 << 10 // bytes
	_, bytes := l.precision()
	all := *l
	l.n, l.join = 1, 0
	for i := range all.stretches[:all.n] {
		s := &all.stretches[i]
		s.valueAhead = w.aheadOfHead(s, kvHeads, bytes)
		step := max(1, together/s.distance) * kvBlock
		end := min(hi, (s.block+s.blocks)*kvBlock)
		for from := max(lo, s.block*kvBlock); from < end; {
			to := min(end, from/kvBlock*kvBlock+step)
			l.stretches[0] = *s
			for h := range kvHeads {
				rows := p.rows(h*group, group, w.width)
				w.weighRows(l, &rows, 0, group, h*group, from, to)
				l.stretches[0].values = (*byte)(unsafe.Add(unsafe.Pointer(l.stretches[0].values), kvBlock*w.dim*bytes))
			}
			from, l.join = to, 1
		}
	}
}

// weighRows weighs the values of positions lo to hi-1 for n rows, from row to on, by the scores of rows r0 and the following.
func (w *attendWork) weighRows(l *layout, p *partial, to, n, r0, lo, hi int) {
	// Tiles in the outer loop stay in the first-level cache.
	for t, tiles := 0, 0; t < w.width/kvBlock; t += tiles {
		tiles = w.v.tileGroup(w.width/kvBlock-t, w.v.group(n))
		w.weighTiles(l, p, to, n, r0, t, tiles, lo, hi)
	}
}

// weighTiles is weighRows for some tiles of features: of each stretch the end of a block, whole blocks, and the beginning of one.
func (w *attendWork) weighTiles(l *layout, p *partial, to, n, r0, t, tiles, lo, hi int) {
	half, bytes := l.precision()
	products, join := w.v.product[half][tiles-1], l.join
	for i := range l.stretches[:l.n] {
		s := &l.stretches[i]
		from, end := max(lo, s.block*kvBlock), min(hi, (s.block+s.blocks)*kvBlock)
		for from < end {
			steps, segs := min(end-from, kvBlock-from%kvBlock), 1
			if steps == kvBlock {
				segs = (end - from) / kvBlock
			}
			at := (from/kvBlock-s.block)*s.distance + (t*kvBlock*kvBlock+from%kvBlock*kvBlock)*bytes
			values := (*byte)(unsafe.Add(unsafe.Pointer(s.values), at))
			for r, groups := 0, w.v.groups(n); groups > 0; groups-- {
				rows := (n - r + groups - 1) / groups
				products[rows-1](&p.acc[(to+r)*w.width+t*kvBlock], &w.scores[(r0+r)*AttendChunk+from], values,
					w.width*floatBytes, AttendChunk*floatBytes, kvBlock*kvBlock*bytes, s.distance, steps, segs, s.valueAhead, join)
				r += rows
			}
			join = 1
			from += steps * segs
		}
	}
}
