// Package kvcells hands the cells of key and value regions to sequences.
//
// A cell is a row of every layer's regions. Cells are handed out in blocks of
// backend.KVBlock, and what a sequence holds is a short list of runs: stretches of
// neighbouring blocks. All runs begin at a block and all but the last end with one, so
// the position of a token modulo the block equals that of its cell.
//
// Sequences share blocks: a fork holds the blocks of its parent until one of them
// appends to a block that both hold, which then is copied. The package only keeps the
// books; it returns the copies that the caller has to make.
//
// A Pool is not safe for concurrent use.
package kvcells

import (
	"errors"
	"fmt"

	"golang.org/x/exp/slices"
)

// Run is a stretch of cells.
type Run struct {
	Start  int // the first cell
	Length int // cells in use
}

// Copy is a block that the caller has to copy, before anything else is written.
type Copy struct {
	From, To int // first cells of the blocks
}

// Why a sequence gets no cells.
var (
	// ErrFull: the pool has too few free blocks.
	ErrFull = errors.New("no free cells")
	// ErrScattered: it has enough of them, but no stretch that is long enough for a sequence that
	// holds as many runs as it may. Pool.Compact cures that, unless forks share so much that only
	// a copy of their own would have few enough runs.
	ErrScattered = errors.New("free cells are scattered")
)

// Pool is the cells of one set of regions. It knows the sequences that hold cells of it, so one
// that is not used any more has to be truncated to nothing.
type Pool struct {
	block   int     // cells per block
	maxRuns int     // runs that a sequence may hold
	refs    []int32 // sequences that hold each block
	free    int     // blocks that none holds
	holders map[*Sequence]struct{}
}

// NewPool returns a pool of cells, a multiple of block, for sequences of at most
// maxRuns runs.
func NewPool(cells, block, maxRuns int) *Pool {
	return &Pool{block: block, maxRuns: maxRuns, refs: make([]int32, cells/block), free: cells / block, holders: make(map[*Sequence]struct{})}
}

// Cells returns the size of the pool.
func (p *Pool) Cells() int { return len(p.refs) * p.block }

// Free returns the number of cells in blocks that no sequence holds.
func (p *Pool) Free() int { return p.free * p.block }

// Grow enlarges the pool to the given number of cells.
func (p *Pool) Grow(cells int) {
	if more := cells/p.block - len(p.refs); more > 0 {
		p.refs = append(p.refs, make([]int32, more)...)
		p.free += more
	}
}

// Sequence is the cells of one sequence of tokens. Its zero value, given a pool by
// Pool.New, is empty.
type Sequence struct {
	pool   *Pool
	runs   []Run
	length int
}

// New returns an empty sequence.
func (p *Pool) New() *Sequence { return &Sequence{pool: p} }

// Len returns the number of tokens that have cells.
func (s *Sequence) Len() int { return s.length }

// Runs returns the runs in order of position. The slice belongs to the sequence.
func (s *Sequence) Runs() []Run { return s.runs }

// Cell returns the cell of a position below Len.
func (s *Sequence) Cell(position int) int {
	for _, r := range s.runs {
		if position < r.Length {
			return r.Start + position
		}
		position -= r.Length
	}
	panic(fmt.Sprintf("kvcells: position %d of %d", position, s.length))
}

// Contiguous reports whether position i lies in cell i for all i.
func (s *Sequence) Contiguous() bool {
	return len(s.runs) == 0 || len(s.runs) == 1 && s.runs[0].Start == 0
}

// Fork returns a sequence with the same tokens that shares the blocks.
func (s *Sequence) Fork() *Sequence {
	f := &Sequence{pool: s.pool, runs: slices.Clone(s.runs), length: s.length}
	f.eachBlock(func(b int) { s.pool.refs[b]++ })
	f.enlist()
	return f
}

// Truncate gives back the cells from position n on.
func (s *Sequence) Truncate(n int) {
	if n >= s.length {
		return
	}
	keep := n
	for i := range s.runs {
		r := &s.runs[i]
		held := s.pool.blocks(r.Length)
		r.Length = min(r.Length, keep)
		keep -= r.Length
		for b := s.pool.blocks(r.Length); b < held; b++ {
			s.pool.release(r.Start/s.pool.block + b)
		}
	}
	s.runs = slices.DeleteFunc(s.runs, func(r Run) bool { return r.Length == 0 })
	s.length = n
	s.enlist()
}

// enlist has the pool know the sequence for as long as it holds cells.
func (s *Sequence) enlist() {
	if s.length > 0 {
		s.pool.holders[s] = struct{}{}
	} else {
		delete(s.pool.holders, s)
	}
}

// Append gives cells to n more tokens. It appends the copies that the caller has to
// make, in that order, to copies and returns them, also beside an error. With ErrFull and
// ErrScattered the sequence has as many tokens as before.
func (s *Sequence) Append(n int, copies []Copy) ([]Copy, error) {
	if n <= 0 {
		return copies, nil
	}
	defer s.enlist()
	p, before := s.pool, s.length
	shared := s.lastShared()
	need := p.blocks(s.length+n) - p.blocks(s.length)
	if shared {
		need++
	}
	if need > p.free {
		return copies, fmt.Errorf("kvcells: %d cells are needed and %d of %d are free: %w", n, p.Free(), p.Cells(), ErrFull)
	}
	if len(s.runs) > p.maxRuns || shared && len(s.runs) == p.maxRuns && s.splitsRun() {
		return s.relocate(n, copies)
	}
	if shared {
		copies = s.unshare(copies)
	}
	s.fillLast(&n)
	for n > 0 {
		if len(s.runs) == p.maxRuns {
			var err error
			if copies, err = s.relocate(n, copies); err != nil {
				s.Truncate(before)
			}
			return copies, err
		}
		s.newRun(&n)
	}
	return copies, nil
}

// lastShared reports whether the last block is only partly in use and another
// sequence holds it too.
func (s *Sequence) lastShared() bool {
	if s.length%s.pool.block == 0 {
		return false
	}
	return s.pool.refs[s.lastBlock()] > 1
}

func (s *Sequence) lastBlock() int {
	r := s.runs[len(s.runs)-1]
	return (r.Start + r.Length - 1) / s.pool.block
}

// unshare moves the last, partly used block to a block of the sequence's own.
func (s *Sequence) unshare(copies []Copy) []Copy {
	p := s.pool
	old, part := s.lastBlock(), s.length%p.block
	last := len(s.runs) - 1
	if s.runs[last].Length -= part; s.runs[last].Length == 0 {
		s.runs = s.runs[:last]
	}
	to := p.take(p.place(1), 1)
	p.release(old)
	s.addRun(Run{Start: to * p.block, Length: part})
	return append(copies, Copy{From: old * p.block, To: to * p.block})
}

// addRun adds a run, or extends the last one if the new one begins where that ends.
func (s *Sequence) addRun(r Run) {
	if last := len(s.runs) - 1; last >= 0 && s.runs[last].Start+s.runs[last].Length == r.Start {
		s.runs[last].Length += r.Length
		return
	}
	s.runs = append(s.runs, r)
}

// splitsRun reports whether the last run goes on having blocks without the last one, so
// that unshare adds a run.
func (s *Sequence) splitsRun() bool { return s.runs[len(s.runs)-1].Length > s.pool.block }

// fillLast uses up the last block and extends the last run into the free blocks that
// follow it.
func (s *Sequence) fillLast(n *int) {
	if len(s.runs) == 0 || *n == 0 {
		return
	}
	p := s.pool
	r := &s.runs[len(s.runs)-1]
	room := p.blocks(r.Length)*p.block - r.Length
	next := r.Start/p.block + p.blocks(r.Length)
	for room < *n && next < len(p.refs) && p.refs[next] == 0 {
		p.take(next, 1)
		next++
		room += p.block
	}
	used := min(room, *n)
	r.Length += used
	s.length += used
	*n -= used
}

// newRun begins a run in the largest hole and takes as much of it as n tokens need.
func (s *Sequence) newRun(n *int) {
	p := s.pool
	want := p.blocks(*n)
	start := p.place(want)
	count := 0
	for count < want && start+count < len(p.refs) && p.refs[start+count] == 0 {
		count++
	}
	p.take(start, count)
	used := min(count*p.block, *n)
	s.addRun(Run{Start: start * p.block, Length: used})
	s.length += used
	*n -= used
}

// relocate moves the whole sequence into one run with room for n more tokens, because
// it holds as many runs as it may.
func (s *Sequence) relocate(n int, copies []Copy) ([]Copy, error) {
	p := s.pool
	want := p.blocks(s.length + n)
	start, size := p.largestHole()
	if size < want {
		return copies, fmt.Errorf("kvcells: a sequence in %d runs needs %d cells in a row and %d are free: %w",
			len(s.runs), want*p.block, size*p.block, ErrScattered)
	}
	p.take(start, want)
	to := start
	s.eachBlock(func(b int) {
		copies = append(copies, Copy{From: b * p.block, To: to * p.block})
		to++
	})
	s.eachBlock(p.release)
	s.length += n
	s.runs = append(s.runs[:0], Run{Start: start * p.block, Length: s.length})
	return copies, nil
}

func (s *Sequence) eachBlock(f func(block int)) {
	for _, r := range s.runs {
		for b := range s.pool.blocks(r.Length) {
			f(r.Start/s.pool.block + b)
		}
	}
}

// place returns where a run of want blocks should begin. A sequence that will grow
// wants room behind it, and so does the one before it: the run begins in the middle
// of the largest hole, unless nothing lies before the hole or the run needs more.
func (p *Pool) place(want int) int {
	start, size := p.largestHole()
	if start > 0 && size/2 >= want {
		return start + size/2
	}
	return start
}

func (p *Pool) largestHole() (start, size int) {
	for b := 0; b < len(p.refs); {
		end := b
		for end < len(p.refs) && p.refs[end] == 0 {
			end++
		}
		if end-b > size {
			start, size = b, end-b
		}
		b = end + 1
	}
	return start, size
}

func (p *Pool) take(start, count int) int {
	for b := start; b < start+count; b++ {
		p.refs[b] = 1
	}
	p.free -= count
	return start
}

func (p *Pool) release(b int) {
	if p.refs[b]--; p.refs[b] == 0 {
		p.free++
	}
}

func (p *Pool) blocks(cells int) int { return (cells + p.block - 1) / p.block }
