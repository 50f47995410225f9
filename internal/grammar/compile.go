package grammar

import (
	"context"
	"slices"
)

// compiler turns rules into a program, in these steps: each rule that is used becomes a
// finite automaton with unlabelled edges (lower); which rules match the empty text and
// which parts can get to the end of their rule is found out (findEmpty, findNeeds);
// unlabelled edges are replaced by lists of what they lead to (close).
type compiler struct {
	ctx   context.Context
	rules ruleSet // grows by parts that are set apart from their rule
	err   error

	recursive []bool // rules that can call themselves; false for those set apart
	sizes     []int  // of the rules' bodies, in nodes; 0 is not yet known
	sets      map[string]*loweredSet

	// Thompson's automata of all rules. Nodes are numbered from 0.
	eps      [][]int32
	byteArcs [][]byteArc
	callArcs [][]callEdge // ret is a node here
	index    []int32      // of the rule, in lowered; -1 if it is not used
	lowered  []loweredRule

	empty  []bool    // for each lowered rule: the empty text matches
	left   [][]int32 // the rules it calls before it has consumed anything
	number []int32   // its number in the program
	needs  []int32   // for each node, see findNeeds

	steps int
}

type loweredRule struct {
	rule       int
	start, end int32
}

type byteArc struct {
	lo, hi byte
	to     int32
}

// loweredSet is what is known about a set of characters that is used repeatedly.
type loweredSet struct {
	sequences [][]byteRange
	rule      ref // for large sets: a rule of their own, which all places call; else -1
}

// A part of a rule is set apart, so that copies of it cost a call only, if the copies
// would be larger than this. A rule is copied to where it is used if it is smaller than
// inlineRule: calls are slower than copies, as positions in a called rule are the same
// for the caches only if the caller's are the same.
const (
	apartSize   = 4096
	apartSet    = 40 // sequences of a set of characters
	inlineRule  = 80
	largestSize = 1 << 30
)

// compile compiles rules; rule 0 is the root.
func compile(ctx context.Context, rules ruleSet) (*program, error) {
	c := &compiler{
		ctx:   ctx,
		rules: ruleSet{slices.Clone(rules.names), slices.Clone(rules.bodies)},
		sets:  make(map[string]*loweredSet),
	}
	if len(rules.bodies) > maxRules {
		return nil, &LimitError{"rules", maxRules}
	}
	c.findRecursive()
	for _, step := range []func(){c.lowerAll, c.findEmpty, c.sortRules, c.findNeeds} {
		if step(); c.err != nil {
			return nil, c.err
		}
	}
	return c.close()
}

// tick counts work and looks for an end of the context now and then.
func (c *compiler) tick() bool {
	c.steps++
	if c.steps&0xFFF == 0 && c.err == nil {
		c.err = c.ctx.Err()
	}
	if c.steps > maxCompile {
		c.limit("steps to compile", maxCompile)
	}
	return c.err == nil
}

func (c *compiler) limit(what string, limit int) {
	if c.err == nil {
		c.err = &LimitError{what, limit}
	}
}

// eachRef calls f with the rules that an expression refers to.
func eachRef(x expr, f func(ref)) {
	switch x := x.(type) {
	case sequence:
		for _, part := range x {
			eachRef(part, f)
		}
	case choice:
		for _, part := range x {
			eachRef(part, f)
		}
	case repeat:
		eachRef(x.x, f)
	case *network:
		for _, e := range x.edges {
			eachRef(e.label, f)
		}
	case ref:
		f(x)
	}
}

// findRecursive finds the rules that can call themselves: Tarjan's algorithm, with its
// own stack, as grammars can be chains of any length.
func (c *compiler) findRecursive() {
	n := len(c.rules.bodies)
	c.recursive = make([]bool, n)
	c.sizes = make([]int, n)
	next := make([][]ref, n)
	for i, body := range c.rules.bodies {
		eachRef(body, func(r ref) {
			next[i] = append(next[i], r)
			if int(r) == i {
				c.recursive[i] = true
			}
		})
	}
	for _, component := range components(n, func(i, k int) int {
		if k == len(next[i]) {
			return -1
		}
		return int(next[i][k])
	}) {
		if len(component) > 1 {
			for _, i := range component {
				c.recursive[i] = true
			}
		}
	}
}

// components lists the strongly connected components of a graph of n nodes, each after
// those that it leads to. next(i, k) is the k-th successor of i, or -1.
func components(n int, next func(i, k int) int) [][]int {
	var (
		out     [][]int
		stack   []int
		path    [][2]int // node, next successor to look at
		order   = make([]int, n)
		low     = make([]int, n)
		onStack = make([]bool, n)
		count   = 0
	)
	enter := func(i int) {
		count++
		order[i], low[i] = count, count
		stack = append(stack, i)
		onStack[i] = true
		path = append(path, [2]int{i, 0})
	}
	for root := range n {
		if order[root] != 0 {
			continue
		}
		enter(root)
		for len(path) > 0 {
			top := &path[len(path)-1]
			i := top[0]
			if j := next(i, top[1]); j >= 0 {
				top[1]++
				if order[j] == 0 {
					enter(j)
				} else if onStack[j] {
					low[i] = min(low[i], order[j])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				up := path[len(path)-1][0]
				low[up] = min(low[up], low[i])
			}
			if low[i] == order[i] {
				at := len(stack) - 1
				for stack[at] != i {
					at--
				}
				out = append(out, slices.Clone(stack[at:]))
				for _, j := range stack[at:] {
					onStack[j] = false
				}
				stack = stack[:at]
			}
		}
	}
	return out
}

// size is how many nodes an expression takes, at most.
func (c *compiler) size(x expr) int {
	n := 0
	switch x := x.(type) {
	case literal:
		n = len(x)
	case chars:
		n = c.setSize(x)
	case sequence:
		for _, part := range x {
			n = min(largestSize, n+1+c.size(part))
		}
	case choice:
		for _, part := range x {
			n = min(largestSize, n+c.size(part))
		}
	case repeat:
		n = c.size(x.x)
		if copies := x.copies(); apart(n, copies) {
			n = copies + 2
		} else {
			n = copies*(n+1) + 2
		}
	case *network:
		n = len(x.final)
		for _, e := range x.edges {
			if e.label != nil {
				n = min(largestSize, n+c.size(e.label))
			}
		}
	case ref:
		n = 1
		if c.inline(x) {
			n = c.ruleSize(x)
		}
	}
	return max(1, min(n, largestSize)) // what takes no node takes time
}

func (c *compiler) ruleSize(r ref) int {
	if c.sizes[r] == 0 {
		c.sizes[r] = largestSize // while it is computed
		c.sizes[r] = 1 + c.size(c.rules.bodies[r])
	}
	return c.sizes[r]
}

// inline reports whether a rule is copied to where it is used.
func (c *compiler) inline(r ref) bool {
	return !c.recursive[r] && c.ruleSize(r) <= inlineRule
}

// copies is how often the repeated part is written down.
func (x repeat) copies() int {
	if x.max == unbounded {
		return max(x.min, 1)
	}
	return max(x.max, 1)
}

// apart reports whether what is repeated, of that size, becomes a rule of its own.
func apart(size, copies int) bool {
	return copies > 1 && size > 1 && min(size, apartSize+1)*copies > apartSize
}

func (c *compiler) setSize(x chars) int {
	s := c.lookUp(x)
	if s.rule >= 0 {
		return 1
	}
	n := 0
	for _, sequence := range s.sequences {
		n += len(sequence) - 1
	}
	if x.json {
		n += 12
	}
	return n
}

// lookUp finds how a set is spelled, and gives large ones a rule.
func (c *compiler) lookUp(x chars) *loweredSet {
	kind := "plain "
	if x.json {
		kind = "json "
	}
	k := kind + x.set.key()
	if s := c.sets[k]; s != nil {
		return s
	}
	set := x.set
	if x.json {
		set = set.intersect(jsonPlain)
	}
	s := &loweredSet{sequences: set.utf8Sequences(), rule: -1}
	c.sets[k] = s
	if len(s.sequences) > apartSet {
		s.rule = c.addRule("a set of characters", lowChars{x, s.sequences})
	}
	return s
}

// lowChars are chars that are to be spelled out, however many they are.
type lowChars struct {
	chars
	sequences [][]byteRange
}

func (c *compiler) addRule(name string, body expr) ref {
	r := c.rules.add(name, body)
	c.recursive = append(c.recursive, false)
	c.sizes = append(c.sizes, largestSize)
	return r
}

// lowerAll makes an automaton of every rule that the root uses.
func (c *compiler) lowerAll() {
	c.lower(ref(0), c.newNode(), c.newNode(), true)
	for i := 0; i < len(c.lowered) && c.err == nil; i++ {
		r := c.lowered[i]
		c.lower(c.rules.bodies[r.rule], r.start, r.end, false)
	}
}

func (c *compiler) newNode() int32 {
	if len(c.eps) >= maxNodes {
		c.limit("states", maxNodes)
		return 0
	}
	c.eps = append(c.eps, nil)
	c.byteArcs = append(c.byteArcs, nil)
	c.callArcs = append(c.callArcs, nil)
	return int32(len(c.eps) - 1)
}

// use finds the automaton of a rule, or makes a place for it.
func (c *compiler) use(r ref) int32 {
	for len(c.index) < len(c.rules.bodies) {
		c.index = append(c.index, -1)
	}
	if c.index[r] < 0 {
		if len(c.lowered) >= maxRules {
			c.limit("rules", maxRules)
			return 0
		}
		c.index[r] = int32(len(c.lowered))
		c.lowered = append(c.lowered, loweredRule{int(r), c.newNode(), c.newNode()})
	}
	return c.index[r]
}

// lower adds what leads from one node to another by x. It adds no edge to from and none
// out of to, so that several parts may share these nodes.
func (c *compiler) lower(x expr, from, to int32, call bool) {
	if !c.tick() {
		return
	}
	switch x := x.(type) {
	case nil:
		c.eps[from] = append(c.eps[from], to)
	case literal:
		c.lowerLiteral(string(x), from, to)
	case chars:
		c.lowerChars(x, from, to)
	case lowChars:
		c.lowerSequences(x.chars, x.sequences, from, to)
	case sequence:
		for i, part := range x {
			next := to
			if i < len(x)-1 {
				next = c.newNode()
			}
			c.lower(part, from, next, false)
			from = next
		}
		if len(x) == 0 {
			c.eps[from] = append(c.eps[from], to)
		}
	case choice:
		for _, part := range x {
			c.lower(part, from, to, false)
		}
	case repeat:
		c.lowerRepeat(x, from, to)
	case *network:
		nodes := make([]int32, len(x.final))
		for i := range nodes {
			nodes[i] = c.newNode()
			if x.final[i] {
				c.eps[nodes[i]] = append(c.eps[nodes[i]], to)
			}
		}
		c.eps[from] = append(c.eps[from], nodes[0])
		for _, e := range x.edges {
			c.lower(e.label, nodes[e.from], nodes[e.to], false)
		}
	case ref:
		if !call && c.inline(x) {
			c.lower(c.rules.bodies[x], from, to, false)
			return
		}
		c.callArcs[from] = append(c.callArcs[from], callEdge{c.use(x), to})
	}
}

func (c *compiler) lowerLiteral(text string, from, to int32) {
	if text == "" {
		c.eps[from] = append(c.eps[from], to)
		return
	}
	for i := range len(text) {
		next := to
		if i < len(text)-1 {
			next = c.newNode()
		}
		c.byteArcs[from] = append(c.byteArcs[from], byteArc{text[i], text[i], next})
		from = next
	}
}

func (c *compiler) lowerChars(x chars, from, to int32) {
	s := c.lookUp(x)
	if s.rule >= 0 {
		c.callArcs[from] = append(c.callArcs[from], callEdge{c.use(s.rule), to})
		return
	}
	c.lowerSequences(x, s.sequences, from, to)
}

// lowerSequences shares what sequences end with: most end with continuation bytes that
// run through all their values.
func (c *compiler) lowerSequences(x chars, sequences [][]byteRange, from, to int32) {
	type tail struct {
		r    byteRange
		next int32
	}
	tails := make(map[tail]int32)
	for _, sequence := range sequences {
		next := to
		for i := len(sequence) - 1; i > 0; i-- {
			k := tail{sequence[i], next}
			node, ok := tails[k]
			if !ok {
				node = c.newNode()
				c.byteArcs[node] = append(c.byteArcs[node], byteArc{k.r.lo, k.r.hi, next})
				tails[k] = node
			}
			next = node
		}
		c.byteArcs[from] = append(c.byteArcs[from], byteArc{sequence[0].lo, sequence[0].hi, next})
		if !c.tick() {
			return
		}
	}
	if x.json {
		for _, text := range jsonEscapes(x.set) {
			c.lowerLiteral(text, from, to)
		}
	}
}

// lowerRepeat writes x{m,n} as m times x and then n-m times an x after which, as before
// it, one may stop.
func (c *compiler) lowerRepeat(x repeat, from, to int32) {
	part := x.x
	copies := x.copies()
	if apart(c.size(part), copies) {
		part = c.addRule("a repeated part", part)
	}
	if x.max == 0 {
		c.eps[from] = append(c.eps[from], to)
		return
	}
	// With a node of its own in front, an edge back to it does not lead to what else
	// begins at from.
	first := c.newNode()
	c.eps[from] = append(c.eps[from], first)
	at := first
	for i := range copies {
		if c.err != nil {
			return
		}
		if i >= x.min {
			c.eps[at] = append(c.eps[at], to)
		}
		next := c.newNode()
		c.lower(part, at, next, false)
		if i == copies-1 && x.max == unbounded {
			c.eps[next] = append(c.eps[next], at)
		}
		at = next
	}
	c.eps[at] = append(c.eps[at], to)
}

// findEmpty finds the rules that match the empty text, by walking each from its start. A
// walk waits at calls until it is known that the called rule can be skipped.
func (c *compiler) findEmpty() {
	type waiter struct {
		rule int32
		node int32
	}
	owner := make([]int32, len(c.eps)) // the rule of a reached node, plus one
	c.left = make([][]int32, len(c.lowered))
	c.empty = make([]bool, len(c.lowered))
	waiting := make([][]waiter, len(c.lowered))
	var todo []int32
	reach := func(node, rule int32) {
		if owner[node] == 0 {
			owner[node] = rule + 1
			todo = append(todo, node)
		}
	}
	for i, r := range c.lowered {
		reach(r.start, int32(i))
	}
	for len(todo) > 0 && c.tick() {
		node := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		rule := owner[node] - 1
		for _, to := range c.eps[node] {
			reach(to, rule)
		}
		for _, call := range c.callArcs[node] {
			c.left[rule] = append(c.left[rule], call.rule)
			if c.empty[call.rule] {
				reach(call.ret, rule)
			} else {
				waiting[call.rule] = append(waiting[call.rule], waiter{rule, call.ret})
			}
		}
		if node == c.lowered[rule].end && !c.empty[rule] {
			c.empty[rule] = true
			for _, w := range waiting[rule] {
				reach(w.node, w.rule)
			}
		}
	}
}

// sortRules numbers the rules so that a rule comes before those that it calls before it
// has consumed anything. There is no such order if a rule can come back to itself that
// way.
func (c *compiler) sortRules() {
	n := len(c.lowered)
	next := func(i, k int) int {
		if k == len(c.left[i]) {
			return -1
		}
		return int(c.left[i][k])
	}
	c.number = make([]int32, n)
	for i, component := range components(n, next) {
		if cycle := cycleWithin(component, next); cycle != nil {
			err := &LeftRecursionError{}
			for _, i := range cycle {
				err.Rules = append(err.Rules, c.rules.names[c.lowered[i].rule])
			}
			c.err = err
			return
		}
		c.number[component[0]] = int32(n - 1 - i)
	}
}

// cycleWithin finds a cycle within a strongly connected component, or nil if it is a
// node that does not lead to itself.
func cycleWithin(component []int, next func(i, k int) int) []int {
	within := make(map[int]bool, len(component))
	for _, i := range component {
		within[i] = true
	}
	place := make(map[int]int)
	var path []int
	for at := component[0]; ; {
		if from, ok := place[at]; ok {
			return path[from:]
		}
		place[at] = len(path)
		path = append(path, at)
		k := 0
		for next(at, k) >= 0 && !within[next(at, k)] {
			k++
		}
		if at = next(at, k); at < 0 {
			return nil
		}
	}
}

// findNeeds finds for each node how many frames it takes, at least, to get from there to
// the end of its rule. A call takes one frame more than the called rule, unless it is the
// last thing that its own rule does. Nodes from
// which the end cannot be reached, or not with maxDepth frames, have never.
func (c *compiler) findNeeds() {
	c.needs = make([]int32, len(c.eps))
	for i := range c.needs {
		c.needs[i] = never
	}
	type caller struct {
		node int32
		call callEdge
	}
	before := make([][]int32, len(c.eps))   // by unlabelled and byte edges
	returns := make([][]caller, len(c.eps)) // by calls that lead to the node
	starts := make([]int32, len(c.eps))     // the rule that starts at the node, plus one
	called := make([][]caller, len(c.lowered))
	for node := range c.eps {
		for _, to := range c.eps[node] {
			before[to] = append(before[to], int32(node))
		}
		for _, arc := range c.byteArcs[node] {
			before[arc.to] = append(before[arc.to], int32(node))
		}
		for _, call := range c.callArcs[node] {
			k := caller{int32(node), call}
			returns[call.ret] = append(returns[call.ret], k)
			called[call.rule] = append(called[call.rule], k)
		}
		if !c.tick() {
			return
		}
	}
	more := c.goesOn(before)
	// Nodes are settled in the order of their need, as in Dijkstra's algorithm.
	var queue [maxDepth + 2][]int32
	for i, r := range c.lowered {
		starts[r.start] = int32(i) + 1
		queue[0] = append(queue[0], r.end)
	}
	for need := int32(0); need <= maxDepth; need++ {
		for len(queue[need]) > 0 && c.tick() {
			last := len(queue[need]) - 1
			node := queue[need][last]
			queue[need] = queue[need][:last]
			if c.needs[node] != never {
				continue
			}
			c.needs[node] = need
			queue[need] = append(queue[need], before[node]...)
			for _, k := range returns[node] {
				if in := c.needs[c.lowered[k.call.rule].start]; in != never {
					v := max(need, in+more[node])
					queue[v] = append(queue[v], k.node)
				}
			}
			if starts[node] == 0 {
				continue
			}
			for _, k := range called[starts[node]-1] {
				if c.needs[k.call.ret] != never {
					v := max(c.needs[k.call.ret], need+more[k.call.ret])
					queue[v] = append(queue[v], k.node)
				}
			}
		}
	}
}

const never = int32(1 << 30)

// goesOn finds the nodes behind which their rule may go on, with 1, as opposed to those
// behind which it can only end, with 0. before lists what leads to each node.
func (c *compiler) goesOn(before [][]int32) []int32 {
	more := make([]int32, len(c.eps))
	var todo []int32
	for node := range c.eps {
		if len(c.byteArcs[node])+len(c.callArcs[node]) > 0 {
			more[node] = 1
			todo = append(todo, int32(node))
		}
	}
	for len(todo) > 0 && c.tick() {
		node := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, b := range before[node] {
			if more[b] == 0 {
				more[b] = 1
				todo = append(todo, b)
			}
		}
	}
	return more
}
