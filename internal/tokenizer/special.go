package tokenizer

import (
	"cmp"
	"strings"

	"golang.org/x/exp/slices"
)

// matchLevel says where a special token is looked for in text.
type matchLevel uint8

const (
	matchAlways  matchLevel = iota // everywhere: user-defined tokens that are mere text, such as runs of spaces
	matchTrusted                   // not in untrusted text: user-defined tokens that look like markup
	matchParsed                    // only where special tokens are to be parsed, and not in untrusted text
)

// specialTrie finds, at a place in a text, the longest special token that begins there.
type specialTrie struct {
	first   [256]bool // bytes with which special tokens begin
	nodes   []trieNode
	edges   []trieEdge
	pending []specialText
}

type specialText struct {
	text  string
	id    int32
	level matchLevel
}

type trieNode struct {
	lo, hi int32 // its edges
	id     int32 // the token that ends here, or None
	level  matchLevel
}

type trieEdge struct {
	b  byte
	to int32
}

func (x *specialTrie) insert(text string, id int32, level matchLevel) {
	x.first[text[0]] = true
	x.pending = append(x.pending, specialText{text, id, level})
}

// seal builds the trie from what was inserted. Of tokens with equal text the one with the
// lowest id counts.
func (x *specialTrie) seal() {
	slices.SortFunc(x.pending, func(a, b specialText) int {
		return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.id, b.id))
	})
	// Each round makes the nodes of one more byte of depth, so that no recursion goes as
	// deep as a token is long.
	type group struct{ node, lo, hi int32 }
	level := []group{{0, 0, int32(len(x.pending))}}
	x.nodes = append(x.nodes, trieNode{id: None})
	for depth := 0; len(level) > 0; depth++ {
		var next []group
		for _, g := range level {
			lo := g.lo
			for lo < g.hi && len(x.pending[lo].text) == depth {
				if n := &x.nodes[g.node]; n.id == None {
					n.id, n.level = x.pending[lo].id, x.pending[lo].level
				}
				lo++
			}
			x.nodes[g.node].lo = int32(len(x.edges))
			for lo < g.hi {
				b, hi := x.pending[lo].text[depth], lo+1
				for hi < g.hi && x.pending[hi].text[depth] == b {
					hi++
				}
				to := int32(len(x.nodes))
				x.nodes = append(x.nodes, trieNode{id: None})
				x.edges = append(x.edges, trieEdge{b, to})
				next = append(next, group{to, lo, hi})
				lo = hi
			}
			x.nodes[g.node].hi = int32(len(x.edges))
		}
		level = next
	}
	x.pending = nil
}

// next finds the first special token of text at from or later, and of those that begin
// there the longest. It takes tokens of level matchParsed only if parse is set, and none
// above matchAlways that touches one of the untrusted spans, which are in order and begin
// with the first that ends after from. It returns None if there is no more.
func (x *specialTrie) next(text string, from int, parse bool, untrusted []Span) (id int32, start, end int) {
	for start = from; start < len(text); start++ {
		if !x.first[text[start]] {
			continue
		}
		for len(untrusted) > 0 && untrusted[0].End <= start {
			untrusted = untrusted[1:]
		}
		limit := len(text) // a marked-up token must end here
		if len(untrusted) > 0 {
			limit = max(untrusted[0].Start, start)
		}
		id, end = None, start
		for node, i := int32(0), start; i < len(text); {
			node = x.step(node, text[i])
			if node < 0 {
				break
			}
			i++
			n := &x.nodes[node]
			if n.id != None && (n.level == matchAlways || i <= limit && (parse || n.level < matchParsed)) {
				id, end = n.id, i
			}
		}
		if id != None {
			return id, start, end
		}
	}
	return None, len(text), len(text)
}

func (x *specialTrie) step(node int32, b byte) int32 {
	n := &x.nodes[node]
	for _, e := range x.edges[n.lo:n.hi] {
		if e.b == b {
			return e.to
		}
	}
	return -1
}
