package alloc

import (
	"fmt"
	"math"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/slices"
)

// Forever is the last use of a value that the host fills or reads: it is never over
// while the graph is executed.
const Forever graph.NodeID = math.MaxInt

// Value is where the value of a node lies, and for how long.
type Value struct {
	Node   graph.NodeID
	Device string
	Offset int // bytes into the device's arena; meaningless for dead nodes and regions
	Bytes  int // 0 for dead nodes and regions

	// Root is the node whose memory the value lies in: the node itself, or for a view
	// and for what takes over the memory of a source, the first of that chain.
	Root graph.NodeID
	// InPlace is the source whose memory the node takes over, or graph.None.
	InPlace graph.NodeID

	// First is the node from which on the memory holds the value, in build order: the
	// node itself. An input is there from node 0 on.
	First graph.NodeID
	// Last is the last reader of the value, of its views included, in build order; the
	// node itself if nobody reads it, and Forever for inputs and outputs.
	Last graph.NodeID

	Dead   bool // nothing that counts depends on it; it has no memory
	Region bool // the value is in a layer's key and value regions
	Input  bool // the host writes it
	Output bool // the host reads it
}

// Arena is the memory that the values of one device need at once.
type Arena struct {
	Device string
	Bytes  int
	Values int // values with memory of their own in it
}

// Staging is the copy of a value on a device that reads it but did not make it.
type Staging struct {
	Value  graph.NodeID
	Device string
	Bytes  int
	Reader graph.NodeID // the first node that reads the copy
}

// Region is a layer's pair of key and value regions as a graph asks for it.
type Region struct {
	Layer  int
	Device string
	Width  int // elements of a row
	Cells  int // rows
	Type   graph.DType
}

// Plan says where every value of a graph lies. It is pure data: making it touches no
// device. See the package comment for the rules that it keeps.
type Plan struct {
	Values  []Value // by node
	Arenas  []Arena // by the device's first appearance among the nodes
	Staging []Staging
	Regions []Region // by the layer's first appearance

	staged map[crossing]int // index into Staging
}

type crossing struct {
	value  graph.NodeID
	device string
}

// Staged returns the index in p.Staging of the copy of a value on a device.
func (p *Plan) Staged(value graph.NodeID, device string) (int, bool) {
	i, ok := p.staged[crossing{value, device}]
	return i, ok
}

// Arena returns the bytes that the plan needs on a device.
func (p *Plan) Arena(device string) int {
	for _, a := range p.Arenas {
		if a.Device == device {
			return a.Bytes
		}
	}
	return 0
}

// NewPlan plans the memory of a graph whose live nodes have devices. It returns the
// error of graph.Graph.Verify for a faulty graph, and an error that wraps ErrPlan for
// one whose placement memory cannot follow: a view on another device than its source,
// a region on several devices.
func NewPlan(g *graph.Graph) (*Plan, error) {
	if err := g.Verify(); err != nil {
		return nil, err
	}
	p := newPlanner(g)
	for _, step := range []func() error{p.findViews, p.findReaders, p.findRegions, p.findStaging, p.place} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p.plan, nil
}

// planner holds what is known of each tree of views, indexed by the tree's root: the
// node that made the memory which its members see. Root and offset are indexed by node.
type planner struct {
	graph *graph.Graph
	live  []bool
	plan  *Plan

	root   []graph.NodeID // the root of the tree of views that a node is in
	offset []int          // bytes from the root's value to the node's

	last    []graph.NodeID // last reader of any member
	foreign []bool         // a member is read on another device
	pinned  []bool         // a member is an input, an output or a region

	blocks []block // by root of a tree; those of trees in taken over memory are unused
	home   []place // where a tree's root lies
}

// block is memory that one tree of views after another lives in.
type block struct {
	bytes int
	last  graph.NodeID // last reader of its latest tenant
	at    int          // offset in the arena
}

// place is an offset into the block of a root.
type place struct {
	block  graph.NodeID
	offset int
}

func newPlanner(g *graph.Graph) *planner {
	n := len(g.Nodes)
	p := &planner{
		graph:   g,
		live:    g.Live(),
		plan:    &Plan{Values: make([]Value, n), staged: make(map[crossing]int)},
		root:    make([]graph.NodeID, n),
		offset:  make([]int, n),
		last:    make([]graph.NodeID, n),
		foreign: make([]bool, n),
		pinned:  make([]bool, n),
		blocks:  make([]block, n),
		home:    make([]place, n),
	}
	for i := range g.Nodes {
		id := graph.NodeID(i)
		node := &g.Nodes[i]
		p.plan.Values[i] = Value{
			Node: id, Device: node.Device, Root: id, InPlace: graph.None, First: id, Last: id,
			Dead:   !p.live[i],
			Region: node.Op.Kind().Traits().Region,
			Input:  node.Op.Kind() == graph.KindInput,
		}
		p.last[i] = id
	}
	for _, id := range g.Outputs {
		p.plan.Values[id].Output = true
	}
	return p
}

// errorf returns an error about a node that wraps ErrPlan.
func errorf(n *graph.Node, format string, args ...any) error {
	return fmt.Errorf("alloc: node %q (%v): %s: %w", n.Name, n.Op.Kind(), fmt.Sprintf(format, args...), ErrPlan)
}

// findViews finds the root of every node, and the roots that hold what must stay.
func (p *planner) findViews() error {
	for i := range p.graph.Nodes {
		n := &p.graph.Nodes[i]
		p.root[i] = n.ID
		if !p.live[i] {
			continue
		}
		if n.Device == "" {
			return errorf(n, "has no device")
		}
		if n.Op.Kind().Traits().Alias {
			src := p.graph.Node(n.Sources()[0])
			if src.Device != n.Device {
				return errorf(n, "is a view on device %q of a value on device %q", n.Device, src.Device)
			}
			if p.plan.Values[src.ID].Region {
				return errorf(n, "is a view of a key and value region")
			}
			p.root[i] = p.root[src.ID]
			p.offset[i] = p.offset[src.ID]
			if view, ok := n.Op.(graph.View); ok {
				p.offset[i] += src.Type.Bytes(view.Offset)
			}
		}
		if v := &p.plan.Values[i]; v.Input || v.Output || v.Region {
			p.pinned[p.root[i]] = true
		}
	}
	return nil
}

// findReaders finds each tree's last reader by build order, the order of execution.
func (p *planner) findReaders() error {
	for i := range p.graph.Nodes {
		if !p.live[i] {
			continue
		}
		n := &p.graph.Nodes[i]
		for _, s := range n.Sources() {
			r := p.root[s]
			p.last[r] = n.ID // ascending, so the last to be set is the largest
			if n.Device != p.graph.Node(r).Device {
				p.foreign[r] = true
			}
		}
	}
	return nil
}

// findRegions collects what each layer's nodes ask of its regions.
func (p *planner) findRegions() error {
	index := make(map[int]int)
	for i := range p.graph.Nodes {
		n := &p.graph.Nodes[i]
		layer, ok := graph.LayerOf(n.Op)
		if !ok || !p.live[i] {
			continue
		}
		want := Region{Layer: layer, Device: n.Device, Cells: p.graph.Params.Cells, Type: p.graph.Params.KVType}
		switch op := n.Op.(type) {
		case graph.KVLoad:
			want.Width, want.Cells, want.Type = n.Shape[0], n.Shape[1], n.Type
		case graph.Attention:
			load := p.graph.Node(n.Sources()[1])
			want.Width, want.Cells, want.Type = op.KVHeads*op.HeadDim, load.Shape[1], load.Type
		default:
			_, want.Width, _ = graph.StoreOf(n)
		}
		at, seen := index[layer]
		if !seen {
			index[layer] = len(p.plan.Regions)
			p.plan.Regions = append(p.plan.Regions, want)
			continue
		}
		have := &p.plan.Regions[at]
		have.Cells = max(have.Cells, want.Cells)
		if have.Device != want.Device || have.Width != want.Width || have.Type != want.Type {
			return errorf(n, "wants %v, but earlier nodes of the layer want %v", want, *have)
		}
	}
	for _, r := range p.plan.Regions {
		if r.Cells <= 0 || r.Type != graph.F16 && r.Type != graph.F32 {
			return fmt.Errorf("alloc: %v cannot be: want cells, of F16 or F32: %w", r, ErrPlan)
		}
	}
	return nil
}

// String returns the region as messages have it.
func (r Region) String() string {
	return fmt.Sprintf("regions of layer %d with %d cells of %d %v on device %q", r.Layer, r.Cells, r.Width, r.Type, r.Device)
}

// findStaging finds the values that are read on another device than they are made on.
func (p *planner) findStaging() error {
	for i := range p.graph.Nodes {
		n := &p.graph.Nodes[i]
		if !p.live[i] {
			continue
		}
		for _, s := range n.Sources() {
			src := p.graph.Node(s)
			if p.plan.Values[s].Region && n.Op.Kind() != graph.KindKVLoad && n.Op.Kind() != graph.KindAttention {
				return errorf(n, "reads the key and value region %q, which only attention can", src.Name)
			}
			if src.Device == n.Device {
				continue
			}
			key := crossing{s, n.Device}
			if _, ok := p.plan.staged[key]; !ok {
				p.plan.staged[key] = len(p.plan.Staging)
				p.plan.Staging = append(p.plan.Staging, Staging{Value: s, Device: n.Device, Bytes: src.Bytes(), Reader: n.ID})
			}
		}
	}
	return nil
}

// place decides who takes over whose memory, and gives every block its offset.
func (p *planner) place() error {
	expiry := p.chain()
	arenas := make(map[string]*arena)
	arenaOf := func(device string) *arena {
		a := arenas[device]
		if a == nil {
			a = &arena{}
			arenas[device] = a
			p.plan.Arenas = append(p.plan.Arenas, Arena{Device: device})
		}
		return a
	}
	take := func(id graph.NodeID) error {
		n := p.graph.Node(id)
		at, err := arenaOf(n.Device).take(p.blocks[id].bytes)
		p.blocks[id].at = at
		if err != nil {
			return errorf(n, "%v", err)
		}
		return nil
	}
	// The host fills all inputs before the first node runs, so they come first.
	for _, id := range p.graph.Inputs {
		if p.ownsBlock(id) {
			if err := take(id); err != nil {
				return err
			}
		}
	}
	for i := range p.graph.Nodes {
		id := graph.NodeID(i)
		if p.ownsBlock(id) && !p.plan.Values[i].Input {
			if err := take(id); err != nil {
				return err
			}
		}
		for _, b := range expiry[i] {
			arenaOf(p.graph.Node(b).Device).give(p.blocks[b].at, p.blocks[b].bytes)
		}
	}
	for i := range p.plan.Arenas {
		p.plan.Arenas[i].Bytes = arenas[p.plan.Arenas[i].Device].size
	}
	p.finish()
	return nil
}

// ownsBlock reports whether a node begins a block of memory.
func (p *planner) ownsBlock(id graph.NodeID) bool {
	v := &p.plan.Values[id]
	return !v.Dead && !v.Region && p.root[id] == id && p.home[id].block == id
}

// chain puts every tree of views into a block, its own or that of the source which its
// root takes over, and returns the blocks that end at each node.
func (p *planner) chain() [][]graph.NodeID {
	for i := range p.graph.Nodes {
		id := graph.NodeID(i)
		v := &p.plan.Values[i]
		if v.Dead || v.Region || p.root[i] != id {
			continue
		}
		n := &p.graph.Nodes[i]
		if s := p.takeOver(n); s != graph.None {
			v.InPlace = s
			p.home[i] = p.placeOf(s)
		} else {
			p.home[i] = place{block: id}
			p.blocks[i].bytes = align(n.Bytes())
		}
		b := &p.blocks[p.home[i].block]
		b.last = p.last[i]
		if p.pinned[i] {
			b.last = Forever
		}
	}
	expiry := make([][]graph.NodeID, len(p.graph.Nodes))
	for i := range p.graph.Nodes {
		if id := graph.NodeID(i); p.ownsBlock(id) && p.blocks[i].last != Forever {
			last := p.blocks[i].last
			expiry[last] = append(expiry[last], id)
		}
	}
	return expiry
}

// placeOf returns where a node that is a view or the root of one lies.
func (p *planner) placeOf(id graph.NodeID) place {
	h := p.home[p.root[id]]
	return place{h.block, h.offset + p.offset[id]}
}

// takeOver returns the source whose memory n may overwrite, or graph.None.
func (p *planner) takeOver(n *graph.Node) graph.NodeID {
	t := n.Op.Kind().Traits()
	if !t.InPlace {
		return graph.None
	}
	for i, s := range n.Sources() {
		if (i == 0 || t.EitherSource) && p.mayTakeOver(n, s, t.EitherSource) {
			return s
		}
	}
	return graph.None
}

func (p *planner) mayTakeOver(n *graph.Node, s graph.NodeID, elementwise bool) bool {
	src, r := p.graph.Node(s), p.root[s]
	if p.pinned[r] || p.foreign[r] || p.last[r] != n.ID || src.Device != n.Device || src.Bytes() != n.Bytes() {
		return false
	}
	for _, o := range n.Sources() {
		if p.plan.Values[o].Region || p.graph.Node(o).Device != n.Device || o == s && elementwise {
			continue
		}
		if o == s {
			// Once is the source that is taken over; twice, it would be read after it was
			// overwritten.
			if count(n.Sources(), s) > 1 {
				return false
			}
			continue
		}
		a, b := p.placeOf(s), p.placeOf(o)
		same := a == b && src.Bytes() == p.graph.Node(o).Bytes()
		apart := a.block != b.block || a.offset+src.Bytes() <= b.offset || b.offset+p.graph.Node(o).Bytes() <= a.offset
		if !apart && !(same && elementwise) {
			return false
		}
	}
	return true
}

func count(ids []graph.NodeID, id graph.NodeID) int {
	c := 0
	for _, x := range ids {
		if x == id {
			c++
		}
	}
	return c
}

// finish fills the plan's values in.
func (p *planner) finish() {
	arenas := make(map[string]*Arena)
	for i := range p.plan.Arenas {
		arenas[p.plan.Arenas[i].Device] = &p.plan.Arenas[i]
	}
	for i := range p.plan.Values {
		v := &p.plan.Values[i]
		if v.Dead {
			continue
		}
		v.Last = p.last[p.root[i]]
		if p.pinned[p.root[i]] && !v.Region {
			v.Last = Forever
		}
		if v.Input {
			v.First = 0
		}
		if v.Region {
			continue
		}
		at := p.placeOf(v.Node)
		v.Root = at.block
		v.Offset = p.blocks[at.block].at + at.offset
		v.Bytes = p.graph.Nodes[i].Bytes()
		if v.Root == v.Node {
			arenas[v.Device].Values++
		}
	}
}

// arena hands out offsets in a memory that grows at its end, from the smallest gap
// that is large enough.
type arena struct {
	free []span // by offset; neighbours never touch
	size int
}

type span struct{ at, bytes int }

// take returns the offset of n bytes. A graph for which the arena is too large fails
// as a whole, so a refused take need not leave the gaps as they were.
func (a *arena) take(n int) (int, error) {
	best := -1
	for i, f := range a.free {
		if f.bytes >= n && (best < 0 || f.bytes < a.free[best].bytes) {
			best = i
		}
	}
	if best >= 0 {
		f := &a.free[best]
		at := f.at
		f.at += n
		f.bytes -= n
		if f.bytes == 0 {
			a.free = slices.Delete(a.free, best, best+1)
		}
		return at, nil
	}
	at := a.size
	if last := len(a.free) - 1; last >= 0 && a.free[last].at+a.free[last].bytes == a.size {
		at = a.free[last].at
		a.free = a.free[:last]
	}
	if n < 0 || at > math.MaxInt-n {
		return 0, fmt.Errorf("the device's values do not fit into an address space of %d bytes", math.MaxInt)
	}
	a.size = at + n
	return at, nil
}

// give takes back n bytes at an offset and joins them with the gaps beside them.
func (a *arena) give(at, n int) {
	i := 0
	for i < len(a.free) && a.free[i].at < at {
		i++
	}
	a.free = slices.Insert(a.free, i, span{at, n})
	if i+1 < len(a.free) && at+n == a.free[i+1].at {
		a.free[i].bytes += a.free[i+1].bytes
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].at+a.free[i-1].bytes == at {
		a.free[i-1].bytes += a.free[i].bytes
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// align rounds a size up, so that the next block is aligned too. Sizes are at most an
// eighth of the address space (graph.Shape), so it cannot overflow.
func align(n int) int { return (n + backend.Alignment - 1) / backend.Alignment * backend.Alignment }
