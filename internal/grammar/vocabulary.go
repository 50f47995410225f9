package grammar

import (
	"bytes"
	"slices"
)

// A Vocabulary is the tokens of a model as a grammar sees them: their bytes, which need
// not be whole characters. It is immutable and safe for concurrent use. For 150,000
// tokens it takes some 6 MB.
type Vocabulary struct {
	text   []byte
	offset []int32 // token id is text[offset[id]:offset[id+1]]
	ends   []int32 // end-of-generation tokens, ascending
	isEnd  map[int32]bool

	// The trie of all texts, its nodes in depth-first order, children by ascending byte.
	// The root is left out; its children have depth 0.
	label  []byte
	depth  []int32
	parent []int32 // -1 for children of the root
	skip   []int32 // the first node that does not lie beneath
	first  []int32 // into order: tokens from first[i] to first[skip[i]] lie at or beneath i
	order  []int32 // token ids by ascending text
	height int     // the largest depth, plus one

	// which bytes occur beneath the nodes where that is worth knowing; -1 elsewhere
	beneath []int32
	sets    []byteSet
}

type byteSet [4]uint64

func (s *byteSet) add(b byte) { s[b>>6] |= 1 << (b & 63) }

func (s *byteSet) within(t *byteSet) bool {
	return s[0]&^t[0]|s[1]&^t[1]|s[2]&^t[2]|s[3]&^t[3] == 0
}

// manyTokens is from where on it is worth knowing which bytes lie beneath a node.
const manyTokens = 12

// NewVocabulary makes a vocabulary of the tokens 0 to size-1. text returns the bytes
// that a token stands for in the generated text, or nothing if a grammar must never
// choose it, as is right for control tokens. ends lists the tokens that end the
// generation; they are chosen exactly where the grammar can end, whatever their bytes.
func NewVocabulary(size int, text func(id int32) []byte, ends []int32) *Vocabulary {
	v := &Vocabulary{offset: make([]int32, 1, size+1), isEnd: make(map[int32]bool)}
	for _, id := range ends {
		if id >= 0 && int(id) < size && !v.isEnd[id] {
			v.isEnd[id] = true
			v.ends = append(v.ends, id)
		}
	}
	slices.Sort(v.ends)
	for id := range int32(size) {
		if !v.isEnd[id] {
			v.text = append(v.text, text(id)...)
		}
		v.offset = append(v.offset, int32(len(v.text)))
		if v.offset[id] < v.offset[id+1] {
			v.order = append(v.order, id)
		}
	}
	slices.SortFunc(v.order, func(a, b int32) int {
		if c := bytes.Compare(v.bytes(a), v.bytes(b)); c != 0 {
			return c
		}
		return int(a - b)
	})
	v.build()
	v.describe()
	return v
}

// Size is the number of tokens.
func (v *Vocabulary) Size() int { return len(v.offset) - 1 }

// bytes is the text of a token; nothing for an id outside the vocabulary.
func (v *Vocabulary) bytes(id int32) []byte {
	if id < 0 || int(id) >= v.Size() {
		return nil
	}
	return v.text[v.offset[id]:v.offset[id+1]]
}

// build makes the trie: along the sorted texts, nodes are closed down to what a text
// shares with the one before, and opened for the rest.
func (v *Vocabulary) build() {
	var path []int32
	var before []byte
	closeTo := func(depth int) {
		for len(path) > depth {
			v.skip[path[len(path)-1]] = int32(len(v.label))
			path = path[:len(path)-1]
		}
	}
	for i, id := range v.order {
		text := v.bytes(id)
		shared := 0
		for shared < len(text) && shared < len(before) && text[shared] == before[shared] {
			shared++
		}
		closeTo(shared)
		for _, b := range text[shared:] {
			parent := int32(-1)
			if len(path) > 0 {
				parent = path[len(path)-1]
			}
			path = append(path, int32(len(v.label)))
			v.parent = append(v.parent, parent)
			v.depth = append(v.depth, int32(len(path)-1))
			v.label = append(v.label, b)
			v.skip = append(v.skip, 0)
			v.first = append(v.first, int32(i))
		}
		v.height = max(v.height, len(text))
		before = text
	}
	closeTo(0)
	v.first = append(v.first, int32(len(v.order)))
}

// describe finds the bytes beneath nodes that have many tokens.
func (v *Vocabulary) describe() {
	v.beneath = make([]int32, len(v.label))
	for i := range v.beneath {
		v.beneath[i] = -1
		if v.first[v.skip[i]]-v.first[i] >= manyTokens {
			v.beneath[i] = int32(len(v.sets))
			v.sets = append(v.sets, byteSet{})
		}
	}
	for i := len(v.label) - 1; i >= 0; i-- {
		up := v.parent[i]
		if up < 0 || v.beneath[up] < 0 {
			continue
		}
		set := &v.sets[v.beneath[up]]
		set.add(v.label[i])
		if v.beneath[i] >= 0 {
			own := v.sets[v.beneath[i]]
			for k := range set {
				set[k] |= own[k]
			}
		} else {
			for _, b := range v.label[i:v.skip[i]] {
				set.add(b)
			}
		}
	}
}
