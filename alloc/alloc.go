package alloc

import (
	"errors"
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

var (
	// ErrPlan is what the errors of NewPlan wrap: no memory can be laid out for the
	// graph as it is placed on devices.
	ErrPlan = errors.New("no memory plan")
	// ErrRegion is wrapped when a key and value region is asked for that contradicts the
	// one there is, or does not exist, or is addressed outside of it.
	ErrRegion = errors.New("key and value region")
	// ErrClosed is wrapped by every error of a closed Allocator.
	ErrClosed = errors.New("alloc: allocator is closed")
)

// Allocator owns the memory of a set of graphs on a set of devices. See the package
// comment.
type Allocator struct {
	devices    []device
	regions    map[int]*region
	cells      int // rows of every region
	generation uint64
	bindings   map[*Binding]bool // those not released
	closed     bool
	chunk      []byte // carries regions over when they grow
}

type device struct {
	backend backend.Backend
	arena   backend.Buffer // the zero Buffer before the first plan
	staging int64          // bytes of copies from other devices
}

// region is a layer's pair. The KV it holds keeps its address when it grows.
type region struct {
	device *device
	kv     backend.KV
}

// New returns an allocator for devices, which stay the caller's to close, after the
// allocator. Their names must differ.
func New(devices []backend.Backend) *Allocator {
	a := &Allocator{devices: make([]device, len(devices)), regions: make(map[int]*region), bindings: make(map[*Binding]bool)}
	for i, d := range devices {
		a.devices[i].backend = d
	}
	return a
}

// Devices calls f for each device, in the order given to New.
func (a *Allocator) Devices(f func(backend.Backend)) {
	for i := range a.devices {
		f(a.devices[i].backend)
	}
}

// Device returns the device of a name, or nil.
func (a *Allocator) Device(name string) backend.Backend {
	if d := a.device(name); d != nil {
		return d.backend
	}
	return nil
}

func (a *Allocator) device(name string) *device {
	for i := range a.devices {
		if a.devices[i].backend.Name() == name {
			return &a.devices[i]
		}
	}
	return nil
}

// Generation changes whenever memory that bindings refer to has moved.
func (a *Allocator) Generation() uint64 { return a.generation }

// Bind finds memory for a plan of g: it enlarges arenas and regions as needed, makes the
// regions that are new, and buffers for the copies that cross devices. An error leaves
// nothing behind that Release would have to free.
func (a *Allocator) Bind(g *graph.Graph, p *Plan) (*Binding, error) {
	if a.closed {
		return nil, ErrClosed
	}
	if len(p.Values) != len(g.Nodes) {
		return nil, fmt.Errorf("alloc: plan of %d nodes for a graph of %d: %w", len(p.Values), len(g.Nodes), ErrPlan)
	}
	for i := range p.Values {
		if v := &p.Values[i]; !v.Dead && a.device(v.Device) == nil {
			return nil, errorf(&g.Nodes[i], "is on device %q, which this allocator does not have", v.Device)
		}
	}
	if err := a.ensureRegions(p.Regions); err != nil {
		return nil, err
	}
	b := &Binding{
		allocator: a,
		graph:     g,
		plan:      p,
		values:    make([]backend.Buffer, len(p.Values)),
		staged:    make([]backend.Buffer, 0, len(p.Staging)),
	}
	a.bindings[b] = true
	for _, s := range p.Staging {
		d := a.device(s.Device)
		buf, err := d.backend.AllocFresh(align(s.Bytes))
		if err != nil {
			b.Release()
			return nil, fmt.Errorf("alloc: %d bytes on %s for the copy of %q: %w", s.Bytes, s.Device, g.Nodes[s.Value].Name, err)
		}
		b.staged = append(b.staged, buf)
		d.staging += int64(buf.Size)
	}
	if err := b.resolve(); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// Binding is a plan with memory.
type Binding struct {
	allocator  *Allocator
	graph      *graph.Graph
	plan       *Plan
	generation uint64
	values     []backend.Buffer // by node
	staged     []backend.Buffer // by index in Plan.Staging
	released   bool
}

// Plan returns the plan that was bound.
func (b *Binding) Plan() *Plan { return b.plan }

// Stale reports whether the memory has moved since the buffers were resolved.
func (b *Binding) Stale() bool { return b.generation != b.allocator.generation }

// Refresh finds the buffers again after the memory has moved. It makes no garbage.
func (b *Binding) Refresh() error {
	if b.allocator.closed || b.released {
		return ErrClosed
	}
	if !b.Stale() {
		return nil
	}
	return b.resolve()
}

// resolve sees to it that the arenas are large enough and computes each value's buffer.
func (b *Binding) resolve() error {
	for i := range b.plan.Arenas {
		need := &b.plan.Arenas[i]
		if err := b.allocator.ensureArena(need.Device, need.Bytes); err != nil {
			return err
		}
	}
	for i := range b.plan.Values {
		v := &b.plan.Values[i]
		if v.Bytes > 0 {
			b.values[i] = b.allocator.device(v.Device).arena.Slice(v.Offset, v.Bytes)
		}
	}
	b.generation = b.allocator.generation
	return nil
}

// Operand returns a node's value on its own device. A region has no buffer here; it is
// reached through KV.
func (b *Binding) Operand(id graph.NodeID) backend.Operand {
	n := b.graph.Node(id)
	return backend.Operand{Buffer: b.values[id], Shape: n.Shape, Type: n.Type}
}

// Staged returns the copy of a value on another device, by its index in Plan.Staging.
func (b *Binding) Staged(i int) backend.Operand {
	s := b.plan.Staging[i]
	n := b.graph.Node(s.Value)
	return backend.Operand{Buffer: b.staged[i].Slice(0, s.Bytes), Shape: n.Shape, Type: n.Type}
}

// KV returns the pair of regions that an operation of a layer uses, or nil if it uses none.
func (b *Binding) KV(op graph.Op) *backend.KV {
	layer, ok := graph.LayerOf(op)
	if !ok {
		return nil
	}
	kv, _ := b.allocator.KVPair(layer)
	return kv
}

// Release frees the buffers of crossing copies. The binding cannot be used again.
func (b *Binding) Release() {
	if b.released {
		return
	}
	b.released = true
	for i, buf := range b.staged {
		d := b.allocator.device(b.plan.Staging[i].Device)
		d.backend.Free(buf)
		d.staging -= int64(buf.Size)
	}
	b.staged = nil
	delete(b.allocator.bindings, b)
}

// ensureArena makes the arena of a device at least size bytes. What it holds is of no
// further use, so the old one goes first and the device need not hold both.
func (a *Allocator) ensureArena(name string, size int) error {
	d := a.device(name)
	if d.arena.Size >= size {
		return nil
	}
	old := d.arena.Size
	a.generation++
	a.freeArena(d)
	var err error
	if d.arena, err = d.backend.Alloc(size); err == nil {
		return nil
	}
	d.arena = backend.Buffer{}
	if old > 0 {
		// The smaller graphs should still run. If even that fails, their next Refresh
		// comes here and says so.
		if again, err := d.backend.Alloc(old); err == nil {
			d.arena = again
		}
	}
	return fmt.Errorf("alloc: %d bytes on %s for the values of a graph: %w", size, name, err)
}

func (a *Allocator) freeArena(d *device) {
	if d.arena.Size > 0 {
		d.backend.Free(d.arena)
		d.arena = backend.Buffer{}
	}
}

// DeviceStats is what an allocator holds on one device, in bytes.
type DeviceStats struct {
	Device  string
	Arena   int64
	KV      int64
	Staging int64 // copies of values of other devices
}

// Stats is what an allocator holds.
type Stats struct {
	Devices    []DeviceStats // in the order given to New
	Staging    int64         // bytes of copies that cross devices
	Cells      int           // rows of every region
	Layers     int           // layers that have regions
	Bindings   int           // bindings not released
	Generation uint64
}

// Stats returns what the allocator holds now.
func (a *Allocator) Stats() Stats {
	s := Stats{Cells: a.cells, Layers: len(a.regions), Bindings: len(a.bindings), Generation: a.generation}
	for i := range a.devices {
		d := &a.devices[i]
		ds := DeviceStats{Device: d.backend.Name(), Arena: int64(d.arena.Size), Staging: d.staging}
		s.Staging += d.staging
		for _, r := range a.regions {
			if r.device == d {
				ds.KV += int64(r.kv.K.Size) + int64(r.kv.V.Size)
			}
		}
		s.Devices = append(s.Devices, ds)
	}
	return s
}

// Close frees everything that the allocator holds on its devices. Bindings cannot be used
// afterwards. Closing again does nothing.
func (a *Allocator) Close() error {
	if a.closed {
		return nil
	}
	var errs []error
	for i := range a.devices {
		d := &a.devices[i]
		// A device may be computing on the memory that is about to be freed.
		errs = append(errs, d.backend.Synchronize())
		a.freeArena(d)
	}
	for b := range a.bindings {
		b.Release()
	}
	for _, r := range a.regions {
		r.device.backend.Free(r.kv.K)
		r.device.backend.Free(r.kv.V)
	}
	a.regions = nil
	a.generation++
	a.closed = true
	return errors.Join(errs...)
}
