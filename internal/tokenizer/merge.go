package tokenizer

import (
	"context"
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// node is a symbol of the piece being merged, in a list linked in both directions by position.
type node struct {
	start, end int32  // its text within the piece
	symbol     int32  // or None for a character that is neither token nor part of a merge
	prev, next int32  // neighbours, -1 at the ends
	rank       uint32 // of the merge with next, noRank if there is none
	merged     int32  // what that merge gives
}

// An encoder holds the working memory of one call.
type encoder struct {
	t     *Tokenizer
	ctx   context.Context
	nodes []node
	queue []uint64 // heap of rank<<32 | position
	buf   []byte
	done  int // bytes since the context was last asked
	tried int // pairs considered, by which tests judge the growth of the work
}

// Up to this many symbols, looking for the best merge along the list beats keeping a heap.
const shortPiece = 24

// A context is asked about every so many bytes of pieces, and every so many steps inside one.
const (
	bytesPerCheck = 32 << 10
	stepsPerCheck = 16 << 10
)

// appendPiece appends the tokens of one piece.
func (e *encoder) appendPiece(dst []int32, piece string) ([]int32, error) {
	t := e.t
	if e.done += len(piece); e.done >= bytesPerCheck {
		e.done = 0
		if err := e.ctx.Err(); err != nil {
			return dst, err
		}
	}
	if len(piece) == 1 && t.kind == kindByteBPE {
		if id := t.symbols.byteToken[piece[0]]; id != None {
			return append(dst, id), nil
		}
	}
	if len(piece) > maxCachedPiece {
		return e.mergePiece(dst, piece)
	}
	slot := t.cache.slot(piece)
	if c := slot.Load(); c != nil && c.piece == piece {
		return append(dst, c.ids...), nil
	}
	before := len(dst)
	dst, err := e.mergePiece(dst, piece)
	if err == nil {
		slot.Store(&cachedPiece{strings.Clone(piece), append([]int32(nil), dst[before:]...)})
	}
	return dst, err
}

func (e *encoder) mergePiece(dst []int32, piece string) ([]int32, error) {
	if id := e.wholePiece(piece); id != None {
		return append(dst, id), nil
	}
	e.split(piece)
	if len(e.nodes) <= shortPiece {
		e.mergeShort(piece)
	} else if err := e.mergeLong(piece); err != nil {
		return dst, err
	}
	return e.appendNodes(dst, piece)
}

// wholePiece is the token that a piece is without regard to merges, or None.
func (e *encoder) wholePiece(piece string) int32 {
	t := e.t
	switch {
	case t.kind == kindCharBPE && piece[0] == '\n':
		return t.findPlain(piece) // a run of line ends, which no merge makes
	case t.ignoreMerges:
		e.buf = appendSpelled(e.buf[:0], piece)
		if id := t.index.findBytes(t.tokens, e.buf); id != None && t.plain(id) {
			return id
		}
	}
	return None
}

// split fills e.nodes with the bytes or characters of the piece.
func (e *encoder) split(piece string) {
	t := e.t
	e.nodes = e.nodes[:0]
	for i := 0; i < len(piece); {
		n, symbol := 1, None
		if t.kind == kindByteBPE {
			symbol = t.symbols.byteSymbol[piece[i]]
		} else {
			_, n = runeAt(piece, i)
			symbol = t.findPlain(piece[i : i+n])
			if symbol == None && t.kind == kindCharBPE {
				if extra, ok := t.symbols.extra[piece[i:i+n]]; ok {
					symbol = extra
				}
			}
		}
		at := int32(len(e.nodes))
		e.nodes = append(e.nodes, node{start: int32(i), end: int32(i + n), symbol: symbol, prev: at - 1, next: at + 1, rank: noRank})
		i += n
	}
	e.nodes[len(e.nodes)-1].next = -1
}

// consider finds the merge of the neighbours l and r.
func (e *encoder) consider(piece string, l, r *node) {
	t := e.t
	e.tried++
	l.rank = noRank
	if t.kind != kindSPM {
		if l.symbol != None && r.symbol != None {
			if s := t.symbols.pairs.slot(l.symbol, r.symbol); s.left != emptySlot {
				l.rank, l.merged = s.rank, s.merged
			}
		}
		return
	}
	if int(r.end-l.start) > t.symbols.longest {
		return
	}
	if id := t.findPlain(piece[l.start:r.end]); id != None {
		l.rank, l.merged = t.symbols.rank[id], id
	}
}

// mergeShort merges the best pair, the leftmost of equals, until there is none. It keeps
// e.nodes dense.
func (e *encoder) mergeShort(piece string) {
	nodes := e.nodes
	for i := range len(nodes) - 1 {
		e.consider(piece, &nodes[i], &nodes[i+1])
	}
	for {
		best, rank := -1, uint32(noRank)
		for i := range nodes {
			if nodes[i].rank < rank {
				best, rank = i, nodes[i].rank
			}
		}
		if best < 0 {
			break
		}
		l := &nodes[best]
		l.symbol, l.end, l.rank = l.merged, nodes[best+1].end, noRank
		nodes = append(nodes[:best+1], nodes[best+2:]...)
		if best+1 < len(nodes) {
			e.consider(piece, l, &nodes[best+1])
		}
		if best > 0 {
			e.consider(piece, &nodes[best-1], l)
		}
	}
	for i := range nodes {
		nodes[i].next = int32(i) + 1
	}
	nodes[len(nodes)-1].next = -1
	e.nodes = nodes
}

// mergeLong does the same with a heap, in n log n steps. Entries of the heap are never
// removed when a merge next to them makes them void; they are void if the node at their
// position is gone or has another rank by now. (A node with the same rank means the same
// merge, or with equal scores one whose own entry is equal to this one.)
func (e *encoder) mergeLong(piece string) error {
	nodes := e.nodes
	e.queue = e.queue[:0]
	for i := range len(nodes) - 1 {
		e.consider(piece, &nodes[i], &nodes[i+1])
		if r := nodes[i].rank; r != noRank {
			e.queue = append(e.queue, uint64(r)<<32|uint64(i))
		}
	}
	heapify(e.queue)
	for step := 1; len(e.queue) > 0; step++ {
		if step%stepsPerCheck == 0 {
			if err := e.ctx.Err(); err != nil {
				return err
			}
		}
		entry := e.pop()
		at := int32(uint32(entry))
		l := &nodes[at]
		if l.rank != uint32(entry>>32) {
			continue
		}
		r := &nodes[l.next]
		l.symbol, l.end, l.next, l.rank = l.merged, r.end, r.next, noRank
		r.rank = noRank // void whatever waits for it
		if l.next >= 0 {
			nodes[l.next].prev = at
			e.consider(piece, l, &nodes[l.next])
			e.push(l.rank, at)
		}
		if l.prev >= 0 {
			e.consider(piece, &nodes[l.prev], l)
			e.push(nodes[l.prev].rank, l.prev)
		}
	}
	return nil
}

// appendNodes appends the tokens of the merged symbols; a symbol that is no token is
// spelled in bytes.
func (e *encoder) appendNodes(dst []int32, piece string) ([]int32, error) {
	t := e.t
	for i := int32(0); i >= 0; i = e.nodes[i].next {
		n := &e.nodes[i]
		if n.symbol != None && int(n.symbol) < len(t.tokens) {
			dst = append(dst, n.symbol)
			continue
		}
		var err error
		if dst, err = t.appendBytes(dst, piece[n.start:n.end]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendBytes appends the byte tokens of text, or one unknown token if any of them is missing.
func (t *Tokenizer) appendBytes(dst []int32, text string) ([]int32, error) {
	before := len(dst)
	for i := 0; i < len(text); i++ {
		id := t.symbols.byteToken[text[i]]
		if id == None {
			if unk := t.UNK(); unk != None {
				return append(dst[:before], unk), nil
			}
			return dst[:before], &EncodeError{Byte: text[i], Piece: text[:min(len(text), 32)]}
		}
		dst = append(dst, id)
	}
	return dst, nil
}

func (e *encoder) push(rank uint32, at int32) {
	if rank == noRank {
		return
	}
	q := append(e.queue, uint64(rank)<<32|uint64(uint32(at)))
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if q[parent] <= q[i] {
			break
		}
		q[parent], q[i] = q[i], q[parent]
		i = parent
	}
	e.queue = q
}

func (e *encoder) pop() uint64 {
	q := e.queue
	top := q[0]
	last := len(q) - 1
	q[0] = q[last]
	q = q[:last]
	siftDown(q, 0)
	e.queue = q
	return top
}

func heapify(q []uint64) {
	for i := len(q)/2 - 1; i >= 0; i-- {
		siftDown(q, i)
	}
}

func siftDown(q []uint64, i int) {
	for {
		child := 2*i + 1
		if child >= len(q) {
			return
		}
		if child+1 < len(q) && q[child+1] < q[child] {
			child++
		}
		if q[i] <= q[child] {
			return
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}

// pieceCache remembers the tokens of short pieces: words repeat. It has a fixed number of
// places and a piece has one place, where it replaces what was there; entries never
// change, so that readers need no lock.
type pieceCache [cacheSlots]atomic.Pointer[cachedPiece]

const (
	cacheSlots     = 1 << 13
	maxCachedPiece = 48
)

type cachedPiece struct {
	piece string
	ids   []int32
}

func (c *pieceCache) slot(piece string) *atomic.Pointer[cachedPiece] {
	return &c[maphash.String(seed, piece)%cacheSlots]
}
