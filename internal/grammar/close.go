package grammar

import "slices"

// close builds the program from the automata: only nodes with byte edges stay, and for
// each place that a byte or a call leads to there is an entry, which lists what can be
// reached from there.
func (c *compiler) close() (*program, error) {
	root := c.lowered[0]
	if c.needs[root.start] == never {
		return nil, ErrEmpty
	}
	cl := &closer{
		compiler: c,
		p:        &program{},
		nodeOf:   make([]int32, len(c.eps)),
		entryOf:  make([]int32, len(c.eps)),
		seen:     make([]int32, len(c.eps)),
	}
	for i := range c.eps {
		cl.nodeOf[i], cl.entryOf[i] = -1, -1
	}
	cl.classes()

	// Rules get their entries first; what these list leads to further ones.
	cl.p.root = c.number[0]
	cl.p.start = make([]int32, len(c.lowered))
	for i, r := range c.lowered {
		cl.p.start[c.number[i]] = -1
		if c.needs[r.start] != never {
			cl.p.start[c.number[i]] = cl.enter(r.start)
		}
	}
	for i := 0; i < len(cl.pending) && c.err == nil; i++ {
		cl.fill(int32(i), cl.pending[i])
	}
	if c.err != nil {
		return nil, c.err
	}
	cl.p.setSlack()
	return cl.p, nil
}

type closer struct {
	*compiler
	p       *program
	nodeOf  []int32 // the program's number of a node, or -1
	entryOf []int32 // the entry that begins at a node, or -1
	pending []int32 // the node of each entry
	seen    []int32 // the entry, plus one, for which a node was last visited
}

// classes numbers the sets of bytes that the grammar tells apart.
func (cl *closer) classes() {
	var begins [257]bool
	for node, arcs := range cl.byteArcs {
		if cl.needs[node] == never {
			continue
		}
		for _, arc := range arcs {
			begins[arc.lo] = true
			begins[int(arc.hi)+1] = true
		}
	}
	class := 0
	for b := range 256 {
		if b > 0 && begins[b] {
			class++
		}
		cl.p.class[b] = uint8(class)
	}
	cl.p.classes = class + 1
}

// enter returns the entry that begins at a node.
func (cl *closer) enter(node int32) int32 {
	if cl.entryOf[node] < 0 {
		cl.entryOf[node] = int32(len(cl.pending))
		cl.pending = append(cl.pending, node)
		cl.p.entries = append(cl.p.entries, entry{need: cl.needs[node]})
	}
	return cl.entryOf[node]
}

// fill finds what the entry that begins at a node lists.
func (cl *closer) fill(index, from int32) {
	p := cl.p
	e := entry{need: cl.needs[from]}
	e.members.lo, e.calls.lo = int32(len(p.members)), int32(len(p.calls))
	todo := []int32{from}
	cl.seen[from] = index + 1
	visit := func(node int32) {
		if cl.seen[node] != index+1 && cl.needs[node] != never {
			cl.seen[node] = index + 1
			todo = append(todo, node)
		}
	}
	for len(todo) > 0 && cl.tick() {
		node := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if len(cl.byteArcs[node]) > 0 {
			if n := cl.node(node); n >= 0 {
				p.members = append(p.members, n)
			}
		}
		for _, call := range cl.callArcs[node] {
			if cl.needs[call.ret] == never || cl.needs[cl.lowered[call.rule].start] == never {
				continue
			}
			p.calls = append(p.calls, callEdge{cl.number[call.rule], cl.enter(call.ret)})
			if cl.empty[call.rule] {
				visit(call.ret)
			}
		}
		for _, to := range cl.eps[node] {
			visit(to)
		}
		if cl.ends(node) {
			e.accepts = true
		}
		if len(p.members)+len(p.calls) > maxMembers {
			cl.limit("ways to go on", maxMembers)
			return
		}
	}
	e.members.hi, e.calls.hi = int32(len(p.members)), int32(len(p.calls))
	slices.Sort(p.members[e.members.lo:])
	p.entries[index] = e
}

// ends reports whether a node is the end of its rule. Only ends have nothing behind
// them and yet need nothing.
func (cl *closer) ends(node int32) bool {
	return cl.needs[node] == 0 && len(cl.eps[node])+len(cl.byteArcs[node])+len(cl.callArcs[node]) == 0
}

// node returns the program's number of a node with byte edges, or -1 if none of these
// leads anywhere.
func (cl *closer) node(node int32) int32 {
	if cl.nodeOf[node] >= 0 {
		return cl.nodeOf[node]
	}
	p := cl.p
	lo := int32(len(p.edges))
	for _, arc := range cl.byteArcs[node] {
		if cl.needs[arc.to] != never {
			p.edges = append(p.edges, byteEdge{p.class[arc.lo], p.class[arc.hi], cl.enter(arc.to)})
		}
	}
	if int32(len(p.edges)) == lo {
		return -1
	}
	cl.nodeOf[node] = int32(len(p.nodes))
	p.nodes = append(p.nodes, span{lo, int32(len(p.edges))})
	return cl.nodeOf[node]
}
