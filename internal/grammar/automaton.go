package grammar

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// A frame is what is to be done when a called rule has ended. All calls of a rule at the
// same place of the text share one frame, whose returns are the places where any of the
// callers goes on; so an ambiguous grammar does not multiply its stacks. A caller that
// would have nothing left to do is left out, and its own returns stand in its place; so
// a rule that ends with a call of itself does not pile up frames.
//
// Within one cache, frames with equal content are the same frame.
type frame struct {
	id      uint32
	depth   int32 // of frames beneath
	ends    bool  // the text may end where the rule ends
	open    bool  // what follows is not known: see Masker.mask
	returns []place
	stamp   uint64 // the step in which the frame was last returned from
}

// place is an entry of the program with the frame of its rule.
type place struct {
	entry int32
	frame *frame
}

// item is a node of the program with the frame of its rule.
type item struct {
	node  int32
	frame *frame
}

// A state is all that a text can mean for what may follow it: texts with the same state
// can go on in the same ways. Within one cache, equal states are the same state.
type state struct {
	items []item // by ascending node and frame id
	ends  bool   // the text may end here
	open  bool   // or leave what is known
	peak  int32  // the depth of the deepest frame

	next []atomic.Pointer[state] // by class; nil if not yet known, dead if there is none
	mask atomic.Pointer[[]uint64]
	part atomic.Pointer[partial] // of states within an open frame
}

var dead = &state{}

// cache is a deterministic automaton, made as far as it was needed. It only grows; when
// it is too large, another one takes its place, see Masker.current.
type cache struct {
	p     *program
	begin *state
	open  *frame

	mu     sync.Mutex
	bytes  int // estimated
	frames map[string]*frame
	states map[string]*state

	// Scratch memory of a step, guarded by mu.
	step    uint64
	key     []byte
	todo    []place
	items   []item
	callers [][]place // for each rule
	called  []int32   // rules with callers: a heap, least number first
	ends    bool
	isOpen  bool
}

// The limits on what a state may hold. Only grammars that are very ambiguous come near.
const (
	maxItems   = 1 << 14 // of a state
	maxReturns = 1 << 14 // of a frame
)

// newCache fails with a *LimitError if already the first state is too large.
func newCache(p *program) (*cache, error) {
	c := &cache{
		p:       p,
		frames:  make(map[string]*frame),
		states:  make(map[string]*state),
		callers: make([][]place, len(p.start)),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	root, err := c.frame(&frame{ends: true})
	if err == nil {
		c.open, err = c.frame(&frame{open: true})
	}
	if err == nil {
		c.todo = append(c.todo, place{p.start[p.root], root})
		c.begin, err = c.close()
	}
	return c, err
}

// grown is how large the cache is, in bytes.
func (c *cache) grown() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *cache) charge(n int) {
	c.mu.Lock()
	c.bytes += n
	c.mu.Unlock()
}

// advance returns the state after a byte, dead if it cannot follow. The error is a
// *LimitError.
func (c *cache) advance(s *state, b byte, w *work) (*state, error) {
	class := c.p.class[b]
	if next := s.next[class].Load(); next != nil {
		return next, nil
	}
	return c.explore(s, class, w)
}

// explore finds the state after a byte that was not yet followed from s.
func (c *cache) explore(s *state, class uint8, w *work) (*state, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.bytes
	c.todo = c.todo[:0]
	for _, it := range s.items {
		n := c.p.nodes[it.node]
		for _, e := range c.p.edges[n.lo:n.hi] {
			if e.lo <= class && class <= e.hi {
				c.todo = append(c.todo, place{e.to, it.frame})
			}
		}
	}
	next, err := c.close()
	if err == nil {
		err = w.spend(len(s.items)+len(next.items)+1, c.bytes-before)
	}
	if err != nil {
		return nil, err
	}
	s.next[class].Store(next)
	return next, nil
}

// close makes a state of the places in c.todo and all that is reached from them without
// consuming anything: rules that have ended return, and rules are called.
func (c *cache) close() (*state, error) {
	c.step++
	c.items, c.called = c.items[:0], c.called[:0]
	c.ends, c.isOpen = false, false
	c.todo = sortPlaces(c.todo)
	for i := 0; i < len(c.todo); i++ { // grows by what is returned to
		at := c.todo[i]
		if c.visit(at) && c.p.entries[at.entry].accepts {
			c.leave(at.frame)
		}
	}
	for len(c.called) > 0 {
		// Callers come before what they call, so all callers are known by now.
		rule := c.popCalled()
		f, err := c.frameOf(rule)
		c.callers[rule] = c.callers[rule][:0]
		if err != nil {
			c.forgetCallers()
			return nil, err
		}
		c.visit(place{c.p.start[rule], f})
		if len(c.items) > 4*maxItems {
			c.items = sortItems(c.items)
		}
		if len(c.items) > 2*maxItems {
			break
		}
	}
	c.forgetCallers()
	c.items = sortItems(c.items)
	if len(c.items) > maxItems {
		return nil, &LimitError{"ways to read the text", maxItems}
	}
	return c.intern(), nil
}

func (c *cache) forgetCallers() {
	for _, rule := range c.called {
		c.callers[rule] = c.callers[rule][:0]
	}
	c.called = c.called[:0]
}

// visit adds what an entry lists, and reports whether it is within the depth that calls
// may have. Each call is looked at for itself: callers share frames, and one that is too
// deep would make the frame too deep for the others.
func (c *cache) visit(at place) bool {
	e := &c.p.entries[at.entry]
	if at.frame.depth+e.need > maxDepth {
		return false
	}
	for _, node := range c.p.members[e.members.lo:e.members.hi] {
		c.items = append(c.items, item{node, at.frame})
	}
	for _, call := range c.p.calls[e.calls.lo:e.calls.hi] {
		ret := &c.p.entries[call.ret]
		inside := c.p.entries[c.p.start[call.rule]].need
		if ret.leads() {
			inside++
		}
		if at.frame.depth+max(inside, ret.need) > maxDepth {
			continue
		}
		if len(c.callers[call.rule]) == 0 {
			c.pushCalled(call.rule)
		}
		c.callers[call.rule] = append(c.callers[call.rule], place{call.ret, at.frame})
	}
	return true
}

// leave returns from a frame.
func (c *cache) leave(f *frame) {
	if f.stamp == c.step {
		return
	}
	f.stamp = c.step
	c.ends = c.ends || f.ends
	c.isOpen = c.isOpen || f.open
	for _, r := range f.returns {
		c.visit(r) // what it accepts is among the returns already
	}
}

// frameOf makes the frame of a called rule out of its callers.
func (c *cache) frameOf(rule int32) (*frame, error) {
	f := &frame{}
	for _, caller := range c.callers[rule] {
		e := &c.p.entries[caller.entry]
		if e.leads() {
			f.returns = append(f.returns, caller)
		}
		if e.accepts {
			f.returns = append(f.returns, caller.frame.returns...)
			f.ends = f.ends || caller.frame.ends
			f.open = f.open || caller.frame.open
		}
		if len(f.returns) > 4*maxReturns {
			f.returns = sortPlaces(f.returns)
			if len(f.returns) > maxReturns {
				break
			}
		}
	}
	f.returns = sortPlaces(f.returns)
	return c.frame(f)
}

// frame returns the one frame with the content of f.
func (c *cache) frame(f *frame) (*frame, error) {
	if len(f.returns) > maxReturns {
		return nil, &LimitError{"ways to go on after a rule", maxReturns}
	}
	c.key = append(c.key[:0], flags(f.ends, f.open))
	for _, r := range f.returns {
		c.key = binary.LittleEndian.AppendUint32(c.key, uint32(r.entry))
		c.key = binary.LittleEndian.AppendUint32(c.key, r.frame.id)
	}
	if known := c.frames[string(c.key)]; known != nil {
		return known, nil
	}
	for _, r := range f.returns {
		f.depth = max(f.depth, r.frame.depth+1)
	}
	f.id = uint32(len(c.frames))
	f.returns = slices.Clip(f.returns)
	c.frames[string(c.key)] = f
	c.bytes += 160 + 16*len(f.returns) + len(c.key)
	return f, nil
}

// intern returns the one state with the items in c.items.
func (c *cache) intern() *state {
	if len(c.items) == 0 && !c.ends && !c.isOpen {
		return dead
	}
	c.key = append(c.key[:0], flags(c.ends, c.isOpen))
	for _, it := range c.items {
		c.key = binary.LittleEndian.AppendUint32(c.key, uint32(it.node))
		c.key = binary.LittleEndian.AppendUint32(c.key, it.frame.id)
	}
	s := c.states[string(c.key)]
	if s == nil {
		s = &state{
			items: slices.Clone(c.items),
			ends:  c.ends,
			open:  c.isOpen,
			next:  make([]atomic.Pointer[state], c.p.classes),
		}
		for _, it := range s.items {
			s.peak = max(s.peak, it.frame.depth)
		}
		c.states[string(c.key)] = s
		c.bytes += 240 + 16*len(s.items) + len(c.key) + 8*len(s.next)
	}
	return s
}

func flags(ends, open bool) byte {
	var b byte
	if ends {
		b |= 1
	}
	if open {
		b |= 2
	}
	return b
}

// adopt returns the state that equals one of another cache.
func (c *cache) adopt(s *state) (*state, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make(map[*frame]*frame)
	var adopt func(f *frame) (*frame, error)
	adopt = func(f *frame) (*frame, error) { // as deep as frames are, at most maxDepth
		if mine := known[f]; mine != nil {
			return mine, nil
		}
		mine := &frame{ends: f.ends, open: f.open}
		for _, r := range f.returns {
			below, err := adopt(r.frame)
			if err != nil {
				return nil, err
			}
			mine.returns = append(mine.returns, place{r.entry, below})
		}
		mine.returns = sortPlaces(mine.returns)
		mine, err := c.frame(mine)
		if err == nil {
			known[f] = mine
		}
		return mine, err
	}
	var items []item
	for _, it := range s.items {
		f, err := adopt(it.frame)
		if err != nil {
			return nil, err
		}
		items = append(items, item{it.node, f})
	}
	c.items = sortItems(append(c.items[:0], items...))
	c.ends, c.isOpen = s.ends, s.open
	return c.intern(), nil
}

// opened returns the state like s but within an open frame, if all items of s have the
// same frame; else nil.
func (c *cache) opened(s *state) *state {
	if len(s.items) == 0 {
		return nil
	}
	f := s.items[0].frame
	for _, it := range s.items {
		if it.frame != f {
			return nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items = c.items[:0]
	for _, it := range s.items {
		c.items = append(c.items, item{it.node, c.open})
	}
	c.ends, c.isOpen = false, false
	return c.intern()
}

func sortPlaces(list []place) []place {
	compare := func(a, b place) int {
		if a.entry != b.entry {
			return int(a.entry - b.entry)
		}
		return compareIDs(a.frame, b.frame)
	}
	if !slices.IsSortedFunc(list, compare) {
		slices.SortFunc(list, compare)
	}
	return slices.Compact(list)
}

func sortItems(list []item) []item {
	compare := func(a, b item) int {
		if a.node != b.node {
			return int(a.node - b.node)
		}
		return compareIDs(a.frame, b.frame)
	}
	if !slices.IsSortedFunc(list, compare) {
		slices.SortFunc(list, compare)
	}
	return slices.Compact(list)
}

func compareIDs(a, b *frame) int {
	switch {
	case a.id < b.id:
		return -1
	case a.id > b.id:
		return 1
	}
	return 0
}

// pushCalled and popCalled keep c.called a binary heap.
func (c *cache) pushCalled(rule int32) {
	h := append(c.called, rule)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up] <= h[i] {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	c.called = h
}

func (c *cache) popCalled() int32 {
	h := c.called
	least := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1] < h[down] {
			down++
		}
		if h[i] <= h[down] {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	c.called = h
	return least
}

// work bounds what one call may do. Its limits are about a second and some ten
// megabytes; masks of ordinary grammars take a thousandth of that.
type work struct{ steps, bytes int }

const (
	maxSteps = 1 << 25
	maxBytes = 64 << 20
)

func (w *work) spend(steps, bytes int) error {
	w.steps += steps
	w.bytes += bytes
	if w.steps > maxSteps {
		return &LimitError{"steps for a token", maxSteps}
	}
	if w.bytes > maxBytes {
		return &LimitError{"bytes of states for a token", maxBytes}
	}
	return nil
}
