// Package null is a device that computes nothing, for tests of what stands above
// devices: planning, placement, copies, errors.
//
// # Memory
//
// It allocates real host memory, so what the host writes can be read back and copies
// between devices carry bytes. New memory is filled with 0xFF, a NaN in every float
// format, so that a value which was read before it was written shows; AllocFresh zeroes,
// as its contract says. Freed memory is never handed out again, and its use is an error.
//
// # Checks
//
// Execute runs nothing, but holds the node and its operands against the contract of
// backend.Backend: that the device supports the node, that every buffer is alive and large
// enough, that the result overlaps a source only where the operation's traits let it.
// A test device that computes embeds a [Device], calls its Execute first and finds the
// memory by [Device.Bytes].
//
// # Asynchrony and faults
//
// With [Async], copies to other devices happen as late as the contract allows, when they are
// waited for, and until then the receiver holds 0xFF: a wait that is missing or memory
// that is reused too early gives wrong bytes every time. [Device.FailOn] and
// [Device.PanicOn] make a chosen call go wrong.
//
// The package does not join the registry of devices. A Device is for one goroutine at a
// time.
package null

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// Method is a method of backend.Backend, for counts, the log and faults.
type Method uint8

// The methods that are counted.
const (
	Alloc Method = iota
	AllocFresh
	Free
	Execute
	ReadHost
	WriteHost
	CopyAcross
	WaitCopy
	Synchronize
	LoadWeights
	numMethods
)

var methodNames = [numMethods]string{"Alloc", "AllocFresh", "Free", "Execute", "ReadHost", "WriteHost", "CopyAcross", "WaitCopy", "Synchronize", "LoadWeights"}

// String returns the method's name.
func (m Method) String() string { return methodNames[m] }

// Call is an entry of the log.
type Call struct {
	Method Method
	Node   string         // of Execute
	Buffer backend.Buffer // of what concerns one; the source of CopyAcross
}

// ErrMemory is wrapped when a buffer is used that is not the device's, is freed, or too small,
// and when the device has no memory left.
var ErrMemory = errors.New("bad memory")

// Everything returns capabilities that support every operation.
func Everything() *backend.Capabilities {
	return &backend.Capabilities{
		Supports:     func(graph.Op, graph.DType) bool { return true },
		ExplicitSpan: true,
		PackedKV:     true,
	}
}

// Only returns capabilities that support operations of the given kinds, with spans and
// packed regions.
func Only(kinds ...graph.Kind) *backend.Capabilities {
	c := Everything()
	c.Supports = func(op graph.Op, _ graph.DType) bool {
		for _, k := range kinds {
			if op.Kind() == k {
				return true
			}
		}
		return false
	}
	return c
}

// Device is a null device. It is a backend.Backend.
type Device struct {
	name    string
	caps    *backend.Capabilities
	async   bool
	limit   int64
	logging bool

	buffers [][]byte // by ID-1; nil when freed
	stats   backend.PoolStats
	copies  []pendingCopy
	fence   backend.Fence
	log     []Call
	calls   [numMethods]int
	faults  []fault
	closed  bool

	poisoned []byte
}

type pendingCopy struct {
	fence backend.Fence
	dst   backend.Backend
	to    backend.Buffer
	from  backend.Buffer
}

type fault struct {
	method Method
	call   int // the count of the method's calls at which it strikes
	err    error
	panics any
}

// Option changes how a device behaves.
type Option func(*Device)

// Async makes copies to other devices happen only when they are waited for.
func Async() Option { return func(d *Device) { d.async = true } }

// Limit bounds the bytes that can be allocated at once.
func Limit(bytes int64) Option { return func(d *Device) { d.limit = bytes } }

// Logged makes the device keep a log of its calls.
func Logged() Option { return func(d *Device) { d.logging = true } }

// New returns a device of the given name and capabilities.
func New(name string, caps *backend.Capabilities, opts ...Option) *Device {
	d := &Device{name: name, caps: caps, limit: 1 << 40}
	for _, o := range opts {
		o(d)
	}
	return d
}

// FailOn makes the nth call of a method from now on return err, counting from 1. For
// Free, which returns nothing, it has no effect.
func (d *Device) FailOn(m Method, nth int, err error) {
	d.faults = append(d.faults, fault{method: m, call: d.calls[m] + nth, err: err})
}

// PanicOn makes the nth call of a method from now on panic with v, counting from 1.
func (d *Device) PanicOn(m Method, nth int, v any) {
	d.faults = append(d.faults, fault{method: m, call: d.calls[m] + nth, panics: v})
}

// Calls returns how often a method was called.
func (d *Device) Calls(m Method) int { return d.calls[m] }

// Log returns the calls since the last ClearLog. It is the device's own slice.
func (d *Device) Log() []Call { return d.log }

// ClearLog empties the log.
func (d *Device) ClearLog() { d.log = d.log[:0] }

// enter counts a call and lets a fault strike.
func (d *Device) enter(m Method, node string, b backend.Buffer) error {
	d.calls[m]++
	if d.logging {
		d.log = append(d.log, Call{m, node, b})
	}
	for _, f := range d.faults {
		if f.method == m && f.call == d.calls[m] {
			if f.panics != nil {
				panic(f.panics)
			}
			return f.err
		}
	}
	if d.closed {
		return backend.ErrClosed
	}
	return nil
}

// Name returns the name given to New.
func (d *Device) Name() string { return d.name }

// Capabilities returns the capabilities given to New.
func (d *Device) Capabilities() *backend.Capabilities { return d.caps }

// LoadWeights takes note of the weights' size.
func (d *Device) LoadWeights(ctx context.Context, weights []backend.Weight, progress func(done, total int64)) error {
	if err := d.enter(LoadWeights, "", backend.Buffer{}); err != nil {
		return err
	}
	var total, done int64
	for _, w := range weights {
		total += int64(len(w.Data))
	}
	for _, w := range weights {
		if err := ctx.Err(); err != nil {
			return err
		}
		done += int64(len(w.Data))
		d.stats.WeightBytes += int64(len(w.Data))
		if progress != nil {
			progress(done, total)
		}
	}
	return nil
}

// Alloc returns memory filled with 0xFF.
func (d *Device) Alloc(size int) (backend.Buffer, error) { return d.alloc(Alloc, size, 0xFF) }

// AllocFresh returns zeroed memory.
func (d *Device) AllocFresh(size int) (backend.Buffer, error) { return d.alloc(AllocFresh, size, 0) }

func (d *Device) alloc(m Method, size int, fill byte) (backend.Buffer, error) {
	if err := d.enter(m, "", backend.Buffer{Size: size}); err != nil {
		return backend.Buffer{}, err
	}
	if size < 0 || d.stats.BufferBytes+int64(size) > d.limit {
		return backend.Buffer{}, fmt.Errorf("null: %d bytes besides %d of %d: %w", size, d.stats.BufferBytes, d.limit, ErrMemory)
	}
	data := bytes.Repeat([]byte{fill}, size)
	d.buffers = append(d.buffers, data)
	d.stats.Buffers++
	d.stats.BufferBytes += int64(size)
	return backend.Buffer{ID: len(d.buffers), Size: size}, nil
}

// Free gives memory back. It panics for what Alloc and AllocFresh did not return, or for
// what is free already: that is a mistake of the caller which no test should miss.
func (d *Device) Free(b backend.Buffer) {
	_ = d.enter(Free, "", b)
	if b.ID < 1 || b.ID > len(d.buffers) || d.buffers[b.ID-1] == nil || b.Offset != 0 || b.Size != len(d.buffers[b.ID-1]) {
		panic(fmt.Sprintf("null: Free of %+v, which is not allocated on %s", b, d.name))
	}
	d.stats.Buffers--
	d.stats.BufferBytes -= int64(b.Size)
	d.buffers[b.ID-1] = nil
}

// Bytes returns the memory of a buffer.
func (d *Device) Bytes(b backend.Buffer) ([]byte, error) {
	if b.ID < 1 || b.ID > len(d.buffers) || d.buffers[b.ID-1] == nil {
		return nil, fmt.Errorf("null: %+v is not allocated on %s: %w", b, d.name, ErrMemory)
	}
	data := d.buffers[b.ID-1]
	if b.Offset < 0 || b.Size < 0 || b.Offset > len(data) || b.Size > len(data)-b.Offset {
		return nil, fmt.Errorf("null: %+v is outside of the %d bytes allocated on %s: %w", b, len(data), d.name, ErrMemory)
	}
	return data[b.Offset : b.Offset+b.Size], nil
}

// Execute checks the node and its operands and computes nothing.
func (d *Device) Execute(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if err := d.enter(Execute, n.Name, out.Buffer); err != nil {
		return err
	}
	if err := d.check(n, in, out, kv); err != nil {
		return backend.NewNodeError(d.name, n, err)
	}
	return nil
}

func (d *Device) check(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if !d.caps.Supports(n.Op, n.Type) {
		return backend.ErrUnsupported
	}
	if len(in) != len(n.Sources()) || out.Shape != n.Shape || out.Type != n.Type {
		return fmt.Errorf("given %d sources and %v%v for a result", len(in), out.Type, out.Shape)
	}
	t := n.Op.Kind().Traits()
	region := func(i int) bool { return n.Op.Kind() == graph.KindAttention && i == 1 }
	for i, o := range in {
		if region(i) {
			continue
		}
		if err := d.checkOperand(o); err != nil {
			return fmt.Errorf("source %d: %w", i, err)
		}
	}
	if _, stores := graph.LayerOf(n.Op); stores {
		if err := d.checkKV(kv); err != nil {
			return err
		}
	} else if kv != nil {
		return errors.New("given regions for an operation that has none")
	}
	if t.Region {
		return nil
	}
	if err := d.checkOperand(out); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	for i, o := range in {
		inPlace := t.InPlace && (i == 0 || t.EitherSource)
		if !region(i) && overlap(o.Buffer, out.Buffer) && !(inPlace && o.Buffer == out.Buffer) {
			return fmt.Errorf("result %+v overlaps source %d %+v: %w", out.Buffer, i, o.Buffer, ErrMemory)
		}
	}
	return nil
}

func overlap(a, b backend.Buffer) bool {
	return a.ID == b.ID && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size
}

func (d *Device) checkOperand(o backend.Operand) error {
	if _, err := d.Bytes(o.Buffer); err != nil {
		return err
	}
	if want := o.Type.Bytes(o.Shape.Elements()); o.Buffer.Size != want {
		return fmt.Errorf("%v%v takes %d bytes, given %d: %w", o.Type, o.Shape, want, o.Buffer.Size, ErrMemory)
	}
	return nil
}

func (d *Device) checkKV(kv *backend.KV) error {
	if kv == nil {
		return errors.New("given no regions")
	}
	want := kv.Cells * kv.Type.Bytes(kv.Width)
	for _, b := range []backend.Buffer{kv.K, kv.V} {
		if _, err := d.Bytes(b); err != nil {
			return err
		}
		if b.Size != want {
			return fmt.Errorf("region of %d bytes for %d cells of %d %v: %w", b.Size, kv.Cells, kv.Width, kv.Type, ErrMemory)
		}
	}
	return nil
}

// ReadHost copies memory to the host.
func (d *Device) ReadHost(dst []byte, src backend.Buffer) error {
	return d.host(ReadHost, src, len(dst), func(data []byte) { copy(dst, data) })
}

// WriteHost copies memory from the host.
func (d *Device) WriteHost(dst backend.Buffer, src []byte) error {
	return d.host(WriteHost, dst, len(src), func(data []byte) { copy(data, src) })
}

func (d *Device) host(m Method, b backend.Buffer, n int, do func([]byte)) error {
	if err := d.enter(m, "", b); err != nil {
		return err
	}
	data, err := d.Bytes(b)
	if err != nil {
		return err
	}
	if n > len(data) {
		return fmt.Errorf("null: %v of %d bytes of a buffer of %d: %w", m, n, len(data), ErrMemory)
	}
	do(data)
	return nil
}

// CopyAcross copies to another device, or with Async, promises to.
func (d *Device) CopyAcross(dst backend.Backend, to, from backend.Buffer) (backend.Fence, error) {
	if err := d.enter(CopyAcross, "", from); err != nil {
		return 0, err
	}
	data, err := d.Bytes(from)
	if err != nil {
		return 0, err
	}
	if to.Size != from.Size {
		return 0, fmt.Errorf("null: copy of %d bytes into %d: %w", from.Size, to.Size, ErrMemory)
	}
	d.fence++
	if !d.async {
		return d.fence, dst.WriteHost(to, data)
	}
	d.copies = append(d.copies, pendingCopy{d.fence, dst, to, from})
	return d.fence, dst.WriteHost(to, d.poison(len(data)))
}

// poison returns n bytes of 0xFF.
func (d *Device) poison(n int) []byte {
	for len(d.poisoned) < n {
		d.poisoned = append(d.poisoned, 0xFF)
	}
	return d.poisoned[:n]
}

// WaitCopy does the copy that was promised.
func (d *Device) WaitCopy(f backend.Fence) error {
	if err := d.enter(WaitCopy, "", backend.Buffer{}); err != nil {
		return err
	}
	if f == 0 || f > d.fence {
		return fmt.Errorf("null: wait for copy %d of %d", f, d.fence)
	}
	for i, c := range d.copies {
		if c.fence == f {
			d.copies = append(d.copies[:i], d.copies[i+1:]...)
			return d.finish(c)
		}
	}
	return nil
}

func (d *Device) finish(c pendingCopy) error {
	data, err := d.Bytes(c.from)
	if err != nil {
		return err
	}
	return c.dst.WriteHost(c.to, data)
}

// Synchronize does every copy that was promised.
func (d *Device) Synchronize() error {
	if err := d.enter(Synchronize, "", backend.Buffer{}); err != nil {
		return err
	}
	var first error
	for _, c := range d.copies {
		if err := d.finish(c); err != nil && first == nil {
			first = err
		}
	}
	d.copies = d.copies[:0]
	return first
}

// Pending returns how many copies have been promised and not done.
func (d *Device) Pending() int { return len(d.copies) }

// PoolStats returns what is allocated.
func (d *Device) PoolStats() backend.PoolStats { return d.stats }

// Close frees everything.
func (d *Device) Close() error {
	d.closed = true
	d.buffers, d.copies, d.stats = nil, nil, backend.PoolStats{}
	return nil
}
