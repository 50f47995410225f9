package sched

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/slices"
)

var (
	// ErrReleased is returned by a program that has been released.
	ErrReleased = errors.New("sched: program has been released")
	// ErrInput is wrapped when what is written to an input does not fit it, or there is no
	// such input.
	ErrInput = errors.New("input does not fit")
	// ErrOutput is wrapped when what is read is no output of the graph, or not of the form asked for.
	ErrOutput = errors.New("output does not fit")
	// ErrPlacement is wrapped when memory and split of a node are on different devices.
	ErrPlacement = errors.New("value is on the wrong device")
)

// Program is a graph with memory, ready to be executed again and again. See the package
// comment for the order of calls, and which memory it shares.
type Program struct {
	schedule *Schedule
	graph    *graph.Graph
	plan     *alloc.Plan
	binding  *alloc.Binding
	owner    *alloc.Allocator
	splits   []Split
	runs     []run
	steps    []Step
	copies   []transfer
	inputs   map[string]graph.NodeID
	devices  []backend.Backend

	observer  Observer
	noReplay  bool
	replays   uint64
	recording uint64 // stands for this binding to devices that replay; see backend.Replayer
	scratch   []byte // carries inputs between forms
	released  bool
	current   *Step // while Execute runs: what a panic is blamed on
}

// run is a split, resolved.
type run struct {
	split    Split
	device   backend.Backend
	replayer backend.Replayer // nil if the device is none
	steps    [2]int           // from and to, in Program.steps
	copies   [2]int           // from and to, in Program.copies
}

// transfer is the copy of a value to another device.
type transfer struct {
	from, to     backend.Backend
	source, copy backend.Buffer
	value        graph.NodeID
	staging      int // index in Plan.Staging
	fence        backend.Fence
	pending      bool
}

// recordings counts bindings over all programs of the process.
var recordings atomic.Uint64

// Option changes how a program is prepared.
type Option func(*Program)

// Replays counts the runs that a device launched from a recording.
func (p *Program) Replays() uint64 { return p.replays }

// WithReplay says whether devices that can record a run may do so. The default is true.
func WithReplay(on bool) Option { return func(p *Program) { p.noReplay = !on } }

// WithObserver sets the observer from the start; see Program.SetObserver.
func WithObserver(o Observer) Option { return func(p *Program) { p.SetObserver(o) } }

// Prepare plans the memory of an assigned graph, takes it from a, and resolves all that
// an execution needs. The graph belongs to the program from then on and must not change.
func Prepare(g *graph.Graph, a *alloc.Allocator, opts ...Option) (*Program, error) {
	s, err := NewSchedule(g)
	if err != nil {
		return nil, err
	}
	binding, err := a.Bind(g, s.Memory)
	if err != nil {
		return nil, err
	}
	p, err := newProgram(s, a, binding)
	if err != nil {
		binding.Release()
		return nil, err
	}
	for _, o := range opts {
		o(p)
	}
	return p, nil
}

func newProgram(s *Schedule, a *alloc.Allocator, binding *alloc.Binding) (*Program, error) {
	g := s.Graph
	p := &Program{
		schedule: s, graph: g, plan: s.Memory, binding: binding, owner: a,
		splits: s.Splits,
		inputs: make(map[string]graph.NodeID, len(g.Inputs)),
	}
	a.Devices(func(d backend.Backend) { p.devices = append(p.devices, d) })
	for _, id := range g.Inputs {
		p.inputs[g.Node(id).Name] = id
	}
	live := g.Live()
	for _, s := range p.splits {
		if err := p.addRun(s, live); err != nil {
			return nil, err
		}
	}
	p.scratch = make([]byte, p.scratchSize())
	p.resolve()
	return p, nil
}

// scratchSize is what the largest input takes.
func (p *Program) scratchSize() int {
	size := 0
	for _, id := range p.graph.Inputs {
		size = max(size, p.graph.Node(id).Bytes())
	}
	return size
}

// addRun lays out the copies and steps of a split and checks that every value is where
// the split can reach it. Buffers are filled in by resolve.
func (p *Program) addRun(s Split, live []bool) error {
	d := p.owner.Device(s.Device)
	r := run{split: s, device: d, steps: [2]int{len(p.steps)}, copies: [2]int{len(p.copies)}}
	r.replayer, _ = d.(backend.Replayer)
	for _, id := range s.Inputs {
		staging, ok := p.plan.Staged(id, s.Device)
		if !ok {
			return p.misplaced(p.graph.Node(id), s.Device)
		}
		p.copies = append(p.copies, transfer{
			from: p.owner.Device(p.plan.Values[id].Device), to: d, value: id, staging: staging,
		})
	}
	for id := s.First; id <= s.Last; id++ {
		n := p.graph.Node(id)
		if !live[id] || !graph.Computed(n.Op) {
			continue
		}
		if p.plan.Values[id].Device != s.Device {
			return p.misplaced(n, s.Device)
		}
		step := Step{program: p, node: n, device: d, in: make([]backend.Operand, len(n.Sources())), waits: -1}
		for _, src := range n.Sources() {
			if p.plan.Values[src].Device == s.Device {
				continue
			}
			if _, ok := p.plan.Staged(src, s.Device); !ok {
				return p.misplaced(p.graph.Node(src), s.Device)
			}
		}
		p.steps = append(p.steps, step)
	}
	r.steps[1], r.copies[1] = len(p.steps), len(p.copies)
	p.addWaits(&r)
	p.runs = append(p.runs, r)
	return nil
}

func (p *Program) misplaced(n *graph.Node, device string) error {
	return fmt.Errorf("sched: the value of node %q (%v) is on %q, but its split runs on %q: %w",
		n.Name, n.Op.Kind(), p.plan.Values[n.ID].Device, device, ErrPlacement)
}

// addWaits marks the first step of a run that reads each copy. Copies are in the order
// of their first readers, so a step waits for a range of them.
func (p *Program) addWaits(r *run) {
	next := r.copies[0]
	for i := r.steps[0]; i < r.steps[1]; i++ {
		s := &p.steps[i]
		s.waits, s.waitsEnd = next, next
		for s.waitsEnd < r.copies[1] && slices.Contains(s.node.Sources(), p.copies[s.waitsEnd].value) {
			s.waitsEnd++
		}
		next = s.waitsEnd
	}
}

// resolve fills in every buffer. It makes no garbage.
func (p *Program) resolve() {
	p.recording = recordings.Add(1)
	for i := range p.steps {
		s := &p.steps[i]
		name := s.node.Device
		for j, src := range s.node.Sources() {
			if p.graph.Node(src).Device == name {
				s.in[j] = p.binding.Operand(src)
				continue
			}
			staging, _ := p.plan.Staged(src, name)
			s.in[j] = p.binding.Staged(staging)
		}
		s.out = p.binding.Operand(s.node.ID)
		s.kv = p.binding.KV(s.node.Op)
	}
	for i := range p.copies {
		c := &p.copies[i]
		c.source = p.binding.Operand(c.value).Buffer
		c.copy = p.binding.Staged(c.staging).Buffer
	}
}

// ready finds the program's memory again if it has moved.
func (p *Program) ready() error {
	if p.released {
		return ErrReleased
	}
	if !p.binding.Stale() {
		return nil
	}
	if err := p.binding.Refresh(); err != nil {
		return err
	}
	p.resolve()
	return nil
}

// Graph returns the graph, which must not be changed.
func (p *Program) Graph() *graph.Graph { return p.graph }

// Schedule returns what Execute does, which must not be changed.
func (p *Program) Schedule() *Schedule { return p.schedule }

// Plan returns where the graph's values lie.
func (p *Program) Plan() *alloc.Plan { return p.plan }

// Splits returns the runs of the graph, which must not be changed.
func (p *Program) Splits() []Split { return p.splits }

// Release gives back the memory that no other program shares. Later calls return
// ErrReleased.
func (p *Program) Release() {
	if !p.released {
		p.observer = nil
		p.released = true
		p.binding.Release()
	}
}

// WriteInput fills an input of I32 values. Data has as many values as the input's shape.
// Writing an input that no live node reads is allowed and does nothing.
func (p *Program) WriteInput(name string, data []int32) error {
	n, err := p.input(name, graph.I32, len(data))
	if err != nil {
		return err
	}
	raw := p.scratch[:4*len(data)]
	for i, v := range data {
		binary.LittleEndian.PutUint32(raw[4*i:], uint32(v))
	}
	return p.write(n, raw)
}

// WriteInputF32 fills an input of F32 values.
func (p *Program) WriteInputF32(name string, data []float32) error {
	n, err := p.input(name, graph.F32, len(data))
	if err != nil {
		return err
	}
	raw := p.scratch[:4*len(data)]
	for i, v := range data {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
	return p.write(n, raw)
}

func (p *Program) input(name string, t graph.DType, count int) (*graph.Node, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	id, ok := p.inputs[name]
	if !ok {
		return nil, fmt.Errorf("sched: the graph has no input %q: %w", name, ErrInput)
	}
	n := p.graph.Node(id)
	if n.Type != t || n.Shape.Elements() != count {
		return nil, fmt.Errorf("sched: input %q takes %d values of %v, given %d of %v: %w", name, n.Shape.Elements(), n.Type, count, t, ErrInput)
	}
	return n, nil
}

func (p *Program) write(n *graph.Node, raw []byte) error {
	if p.plan.Values[n.ID].Dead {
		return nil
	}
	if err := p.owner.Device(n.Device).WriteHost(p.binding.Operand(n.ID).Buffer, raw); err != nil {
		return fmt.Errorf("sched: input %q: %w", n.Name, err)
	}
	return nil
}

// ReadOutput waits for output i of the graph and copies its rows from row on to dst, as
// many as fit: len(dst) is a multiple of the row's width. The output is of F32.
func (p *Program) ReadOutput(i int, row int, dst []float32) error {
	if err := p.ready(); err != nil {
		return err
	}
	if i < 0 || i >= len(p.graph.Outputs) {
		return fmt.Errorf("sched: output %d of %d: %w", i, len(p.graph.Outputs), ErrOutput)
	}
	n := p.graph.Node(p.graph.Outputs[i])
	width, rows := n.Shape[0], n.Shape.Rows()
	if n.Type != graph.F32 || p.plan.Values[n.ID].Region {
		return fmt.Errorf("sched: output %q is no value of F32: %w", n.Name, ErrOutput)
	}
	count := len(dst) / width
	if len(dst)%width != 0 || row < 0 || row > rows || count > rows-row {
		return fmt.Errorf("sched: output %q has %d rows of %d values, asked for %d values from row %d on: %w", n.Name, rows, width, len(dst), row, ErrOutput)
	}
	if count == 0 {
		return nil
	}
	raw := hostBytes(dst)
	buf := p.binding.Operand(n.ID).Buffer.Slice(4*width*row, len(raw))
	if err := p.owner.Device(n.Device).ReadHost(raw, buf); err != nil {
		return fmt.Errorf("sched: output %q: %w", n.Name, err)
	}
	toHost(dst, raw)
	return nil
}

// hostBytes is the memory of x. A vocabulary's logits are read once a token; a copy in between
// would take longer than their choice.
func hostBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// toHost makes numbers of the host of the little-endian ones in their memory, raw.
func toHost(x []float32, raw []byte) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return
	}
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
}
