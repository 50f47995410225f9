package tokenizer

import (
	"hash/maphash"
	"math/bits"
)

// seed makes the hash tables of this process unpredictable to whoever wrote the
// vocabulary or the text.
var seed = maphash.MakeSeed()

// textIndex finds token ids by text: an open-addressed table of ids into the token slice,
// half full at most. It takes less memory and time to build than a map, and building it
// is a good part of opening a vocabulary.
type textIndex struct {
	slots  []int32 // id+1, 0 for empty
	mask   uint64
	unique bool // no two tokens have the same text
}

// tableSize is the power of two that leaves at least a part 1/free of a table of n entries empty.
func tableSize(n, free int) int { return 1 << bits.Len(uint(n+n/(free-1)+1)) }

// newTextIndex enters every token that has a text; of equal texts the first wins.
func newTextIndex(tokens []string) textIndex {
	size := tableSize(len(tokens), 2)
	x := textIndex{slots: make([]int32, size), mask: uint64(size - 1), unique: true}
	for id, text := range tokens {
		if text == "" {
			continue
		}
		i := maphash.String(seed, text) & x.mask
		for x.slots[i] != 0 && tokens[x.slots[i]-1] != text {
			i = (i + 1) & x.mask
		}
		if x.slots[i] != 0 {
			x.unique = false
			continue
		}
		x.slots[i] = int32(id) + 1
	}
	return x
}

func (x *textIndex) find(tokens []string, text string) int32 {
	for i := maphash.String(seed, text) & x.mask; ; i = (i + 1) & x.mask {
		slot := x.slots[i]
		if slot == 0 {
			return None
		}
		if tokens[slot-1] == text {
			return slot - 1
		}
	}
}

func (x *textIndex) findBytes(tokens []string, text []byte) int32 {
	for i := maphash.Bytes(seed, text) & x.mask; ; i = (i + 1) & x.mask {
		slot := x.slots[i]
		if slot == 0 {
			return None
		}
		if tokens[slot-1] == string(text) {
			return slot - 1
		}
	}
}

// pairIndex finds the merge of two symbols: an open-addressed table, three quarters full at most.
type pairIndex struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	left, right int32
	rank        uint32
	merged      int32
}

const emptySlot int32 = -1

func newPairIndex(n int) pairIndex {
	size := tableSize(n, 4)
	x := pairIndex{slots: make([]pairSlot, size), shift: uint(64 - bits.Len(uint(size-1)))}
	for i := range x.slots {
		x.slots[i].left = emptySlot
	}
	return x
}

// slot returns where the pair is, or the empty slot where it would be.
func (x *pairIndex) slot(left, right int32) *pairSlot {
	h := (uint64(uint32(left))<<32 | uint64(uint32(right))) * 0x9E3779B97F4A7C15
	mask := len(x.slots) - 1
	for i := int(h >> x.shift); ; i = (i + 1) & mask {
		s := &x.slots[i&mask]
		if s.left == emptySlot || s.left == left && s.right == right {
			return s
		}
	}
}

// add enters a merge unless the pair has one already: the first, and so best, rank counts.
func (x *pairIndex) add(left, right int32, rank uint32, merged int32) {
	if s := x.slot(left, right); s.left == emptySlot {
		*s = pairSlot{left, right, rank, merged}
	}
}
