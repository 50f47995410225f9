package grammar

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// A Masker is a grammar bound to a vocabulary, with the masks found so far. It is safe
// for concurrent use; generations under the same grammar should share one.
type Masker struct {
	grammar *Grammar
	vocab   *Vocabulary
	budget  int // bytes that the cache may grow to
	cache   atomic.Pointer[cache]
}

// cacheBudget is the default size at which a Masker's cache is begun anew. A mask of
// 150,000 tokens takes 19 kB.
const cacheBudget = 48 << 20

// Bind returns a Masker for the vocabulary. It is cheap: everything is found out when it
// is first needed.
func (g *Grammar) Bind(v *Vocabulary) *Masker {
	return &Masker{grammar: g, vocab: v, budget: cacheBudget}
}

// Matcher returns a Matcher at the beginning of a text.
func (m *Masker) Matcher() *Matcher {
	return &Matcher{masker: m}
}

// current returns the cache to use, which is a new one if the last has grown too large:
// what is in use is soon found again, and what was not goes away.
func (m *Masker) current() (*cache, error) {
	c := m.cache.Load()
	if c != nil && c.grown() <= m.budget {
		return c, nil
	}
	fresh, err := newCache(m.grammar.program)
	if err != nil {
		return nil, err
	}
	if !m.cache.CompareAndSwap(c, fresh) {
		return m.cache.Load(), nil
	}
	return fresh, nil
}

// partial is what a state within an open frame says about tokens: those that stay within
// the rule are decided; those beneath the nodes listed depend on what follows the rule.
type partial struct {
	mask      []uint64
	undecided []int32 // nodes of the trie; the tokens at the nodes themselves can follow
	peak      int32   // the depth of the deepest frame on the way
}

// mask returns which tokens can follow a state, one bit each. States within the same
// rule differ in what follows the rule, which most tokens do not get to; so these are
// decided once for all of them, with an open frame in the place of the rule's own.
func (m *Masker) mask(c *cache, s *state) ([]uint64, error) {
	if mask := s.mask.Load(); mask != nil {
		return *mask, nil
	}
	var w work
	mask, err := m.fromPartial(c, s, &w)
	if err == nil && mask == nil {
		mask = m.newMask()
		_, _, err = m.walk(c, s, 0, len(m.vocab.label), mask, nil, &w)
	}
	if err != nil {
		return nil, err
	}
	if s.ends {
		for _, id := range m.vocab.ends {
			mask[id>>6] |= 1 << (id & 63)
		}
	}
	s.mask.Store(&mask)
	c.charge(8 * len(mask))
	return mask, nil
}

func (m *Masker) newMask() []uint64 { return make([]uint64, (m.vocab.Size()+63)/64) }

// fromPartial makes a mask of what is known about the state within an open frame, and
// what remains to be decided. It returns nil if that does not apply.
func (m *Masker) fromPartial(c *cache, s *state, w *work) ([]uint64, error) {
	inner := c.opened(s)
	if inner == nil {
		return nil, nil
	}
	part := inner.part.Load()
	if part == nil {
		part = &partial{mask: m.newMask()}
		var err error
		part.undecided, part.peak, err = m.walk(c, inner, 0, len(m.vocab.label), part.mask, part.undecided, w)
		if err != nil {
			return nil, err
		}
		inner.part.Store(part)
		c.charge(8*len(part.mask) + 4*len(part.undecided))
	}
	if s.items[0].frame.depth+part.peak+c.p.slack > maxDepth {
		return nil, nil // near the limit it matters how deep the frame is
	}
	mask := append([]uint64(nil), part.mask...)
	v := m.vocab
	path := make([]byte, 0, 32)
	for _, node := range part.undecided {
		path = path[:0]
		for n := node; n >= 0; n = v.parent[n] {
			path = append(path, v.label[n])
		}
		at := s
		for i := len(path) - 1; i >= 0 && at != dead; i-- {
			var err error
			if at, err = c.advance(at, path[i], w); err != nil {
				return nil, err
			}
		}
		if at == dead {
			continue
		}
		if _, _, err := m.walk(c, at, int(node)+1, int(v.skip[node]), mask, nil, w); err != nil {
			return nil, err
		}
	}
	return mask, nil
}

// walk sets the bits of the tokens from node lo to node hi of the trie that can follow a
// state; the state is the one above lo. Where it meets a state that is open, it notes
// the node as undecided and does not look beneath.
func (m *Masker) walk(c *cache, s *state, lo, hi int, mask []uint64, undecided []int32, w *work) ([]int32, int32, error) {
	v := m.vocab
	if lo >= hi {
		return undecided, 0, nil
	}
	top := int(v.depth[lo])
	var room [64]*state
	path := append(room[:0], s) // the state above each depth from top on
	peak := s.peak
	loops := make(map[*state]*byteSet)
	for i := lo; i < hi; {
		depth := int(v.depth[i]) - top
		at := path[depth]
		class := c.p.class[v.label[i]]
		next := at.next[class].Load()
		if next == nil {
			var err error
			if next, err = c.explore(at, class, w); err != nil {
				return nil, 0, err
			}
		}
		if next == dead {
			i = int(v.skip[i])
			continue
		}
		if next == at && v.beneath[i] >= 0 {
			// In a state that most characters lead back to, as within a string, most
			// of the trie lies beneath nodes that need not be looked at.
			set := loops[at]
			if set == nil {
				set = c.loop(at)
				loops[at] = set
			}
			if v.sets[v.beneath[i]].within(set) {
				setBits(mask, v.order[v.first[i]:v.first[v.skip[i]]])
				i = int(v.skip[i])
				continue
			}
		}
		for _, id := range v.order[v.first[i]:v.first[i+1]] {
			mask[id>>6] |= 1 << (id & 63)
		}
		if next.open {
			if int(v.skip[i]) > i+1 {
				undecided = append(undecided, int32(i))
			}
			i = int(v.skip[i])
			continue
		}
		peak = max(peak, next.peak)
		path = append(path[:depth+1], next)
		i++
	}
	return undecided, peak, nil
}

func setBits(mask []uint64, ids []int32) {
	for _, id := range ids {
		mask[id>>6] |= 1 << (id & 63)
	}
}

// loop is the bytes that are known to lead from a state back to it.
func (c *cache) loop(s *state) *byteSet {
	set := &byteSet{}
	for b := range 256 {
		if s.next[c.p.class[b]].Load() == s {
			set.add(byte(b))
		}
	}
	return set
}

var negInf = float32(math.Inf(-1))

// apply sets the logits of tokens whose bit is not set, and of those beyond the
// vocabulary, to -Inf. It returns how many are left.
func apply(mask []uint64, logits []float32, size int) int {
	for i := size; i < len(logits); i++ {
		logits[i] = negInf
	}
	logits = logits[:min(size, len(logits))]
	left := 0
	for i, word := range mask {
		if 64*i >= len(logits) {
			break
		}
		part := logits[64*i : min(64*i+64, len(logits))]
		left += bits.OnesCount64(word)
		switch word {
		case ^uint64(0):
			continue
		case 0:
			for k := range part {
				part[k] = negInf
			}
			continue
		}
		for forbidden := ^word; forbidden != 0; forbidden &= forbidden - 1 {
			k := bits.TrailingZeros64(forbidden)
			if k >= len(part) {
				break
			}
			part[k] = negInf
		}
	}
	return left
}
