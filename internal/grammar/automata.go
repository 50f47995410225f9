package grammar

import "slices"

// An fsa is a finite automaton over characters, nondeterministic, for what has to be
// intersected before it becomes part of a grammar: patterns, formats and lengths of
// strings, and names of properties. It starts at node 0.
type fsa struct {
	final []bool
	edges [][]fsaEdge
	work  int // what it took to make, in nodes
}

type fsaEdge struct {
	set runeSet
	to  int
}

const (
	maxAutomaton = 1 << 15 // nodes of an fsa
	maxProduct   = 1 << 22 // ranges of characters that are compared to intersect two
)

func (f *fsa) node(final bool) int {
	f.final = append(f.final, final)
	f.edges = append(f.edges, nil)
	return len(f.final) - 1
}

func (f *fsa) edge(from, to int, set runeSet) {
	if len(set) == 0 {
		return
	}
	for i, e := range f.edges[from] {
		if e.to == to {
			f.edges[from][i].set = newRuneSet(append(slices.Clone(e.set), set...)...)
			return
		}
	}
	f.edges[from] = append(f.edges[from], fsaEdge{set, to})
}

// matches reports whether f matches a text.
func (f *fsa) matches(text string) bool {
	at := map[int]bool{0: true}
	for _, r := range text {
		next := make(map[int]bool)
		for n := range at {
			for _, e := range f.edges[n] {
				if e.set.contains(r) {
					next[e.to] = true
				}
			}
		}
		at = next
	}
	for n := range at {
		if f.final[n] {
			return true
		}
	}
	return false
}

// expr makes an expression of f; with json, of the texts as they stand within the quotes
// of a JSON string.
func (f *fsa) expr(json bool) expr {
	n := &network{final: f.final}
	for from, edges := range f.edges {
		for _, e := range edges {
			n.edge(from, e.to, chars{e.set, json})
		}
	}
	return n
}

// intersect matches what both match.
func (f *fsa) intersect(g *fsa) (*fsa, error) {
	type pair struct{ f, g int }
	out := &fsa{}
	index := map[pair]int{}
	var todo []pair
	find := func(p pair) int {
		n, ok := index[p]
		if !ok {
			n = out.node(f.final[p.f] && g.final[p.g])
			index[p] = n
			todo = append(todo, p)
		}
		return n
	}
	find(pair{0, 0})
	work := 0
	for i := 0; i < len(todo); i++ {
		if len(todo) > maxAutomaton || work > maxProduct {
			return nil, &LimitError{"states of a string's pattern", maxAutomaton}
		}
		p := todo[i]
		for _, a := range f.edges[p.f] {
			for _, b := range g.edges[p.g] {
				if work > maxProduct {
					break
				}
				work += len(a.set) + len(b.set)
				if set := a.set.intersect(b.set); len(set) > 0 {
					out.edge(i, find(pair{a.to, b.to}), set)
				}
			}
		}
	}
	out.work = work / 64
	return out, nil
}

// lengths matches texts of between low and high characters.
func lengths(low, high int) (*fsa, error) {
	f := &fsa{}
	last := high
	if high == unbounded {
		last = low
	}
	if last >= maxAutomaton {
		return nil, &LimitError{"states of a string's pattern", maxAutomaton}
	}
	for i := 0; i <= last; i++ {
		f.node(i >= low)
		if i > 0 {
			f.edge(i-1, i, anyRune)
		}
	}
	if high == unbounded {
		f.edge(last, last, anyRune)
	}
	return f, nil
}

// otherThan matches every text but those given.
func otherThan(texts []string) *fsa {
	f := &fsa{}
	f.node(true)
	anything := f.node(true)
	f.edge(anything, anything, anyRune)
	next := []map[rune]int{{}, nil}
	for _, text := range texts {
		at := 0
		for _, r := range text {
			to, ok := next[at][r]
			if !ok {
				to = f.node(true)
				next = append(next, map[rune]int{})
				next[at][r] = to
			}
			at = to
		}
		f.final[at] = false
	}
	for at, children := range next {
		if children == nil {
			continue
		}
		var known []runeRange
		for r, to := range children {
			f.edge(at, to, oneRune(r))
			known = append(known, runeRange{r, r})
		}
		f.edge(at, anything, newRuneSet(known...).negate())
	}
	for _, edges := range f.edges { // maps have no order; equal grammars should be equal
		slices.SortFunc(edges, func(a, b fsaEdge) int { return a.to - b.to })
	}
	return f
}
