//go:build cuda

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/cuda/internal/driver"
	"github.com/minfer/minfer/graph"
	"gorgonia.org/cu"
)

// handOver is how many pieces of work are written down before the driver gets them, so that the
// GPU begins with a long run while the host still goes through it.
const handOver = 48

// queue is work written down and not yet handed to the driver.
type queue struct {
	ops   []driver.Op
	nodes []*graph.Node // that each is for, or nil
	node  *graph.Node   // being executed
	idle  bool          // the device has done all that it was given

	first, last *graph.Node // of what was handed over since the host waited
}

// add appends a piece of work, whose arguments are to be added before the next one is.
func (q *queue) add(kind driver.Kind) *driver.Op {
	q.ops = append(q.ops, driver.Op{Kind: kind})
	q.nodes = append(q.nodes, q.node)
	q.idle = false
	return &q.ops[len(q.ops)-1]
}

// launch appends a launch of a kernel over a grid of blocks.
func (d *device) launch(k *kernel, x, y, z, threads, shared int) *driver.Op {
	o := d.queue.add(driver.Launch)
	o.Fn, o.Grid, o.Block, o.Shared = k.fn, [3]uint32{uint32(x), uint32(y), uint32(z)}, uint32(threads), uint32(shared)
	return o
}

// flush hands all work over, none of it as a recording. The context is the thread's.
func (d *device) flush() error {
	d.recordings.current = nil
	q := &d.queue
	done, err := driver.Run(d.stream, q.ops)
	err = d.explain(err, done)
	for _, n := range q.nodes {
		if n != nil {
			q.last = n
			if q.first == nil {
				q.first = n
			}
		}
	}
	q.ops, q.nodes = q.ops[:0], q.nodes[:0]
	return err
}

// explain says which kernel and node an error of the driver was met at: work i of the queue.
func (d *device) explain(err error, i int) error {
	if err == nil {
		return nil
	}
	what := "cuda: queueing work"
	if q := &d.queue; i < len(q.ops) {
		if q.ops[i].Kind == driver.Launch {
			what = fmt.Sprintf("cuda: kernel %s", d.kernels.names[q.ops[i].Fn])
		}
		if n := q.nodes[i]; n != nil {
			err = backend.NewNodeError(d.name, n, fmt.Errorf("%s: %w", what, err))
		} else {
			err = fmt.Errorf("%s: %w", what, err)
		}
	}
	if unrecoverable(err) {
		return d.fail(err)
	}
	return err
}

// unrecoverable reports whether the driver will refuse everything after an error: those of
// kernels that have begun, and of the hardware.
func unrecoverable(err error) bool {
	var e driver.Error
	return errors.As(err, &e) && (e >= 700 && e <= 720 && e != 701 && e != 704 && e != 705 || e == 214)
}

// wait hands all work over and waits until it is done. It returns the first fault that a kernel
// has reported.
func (d *device) wait() error {
	d.queue.add(driver.ToHost).Ptr(d.in.addr(0)).Ptr(d.fault.ptr).Ptr(faultBytes)
	err := d.do(func() error {
		if err := d.flush(); err != nil {
			return errors.Join(err, d.settle())
		}
		return d.settle()
	})
	d.out.used = 0
	q := &d.queue
	q.first, q.last, q.idle = nil, nil, true
	if err != nil {
		return err
	}
	err = d.readFault()
	d.sites.base += len(d.sites.nodes)
	d.sites.nodes = d.sites.nodes[:0]
	return err
}

// settle waits for the stream. An error here is one of a kernel that has run.
func (d *device) settle() error {
	err := d.stream.Synchronize()
	if err == nil {
		return nil
	}
	if q := &d.queue; q.first != nil {
		err = fmt.Errorf("between node %q and node %q: %w", q.first.Name, q.last.Name, err)
	}
	return d.fail(err)
}

// Faults are what kernels report, a struct Fault of kernels/gpu.h.
const faultBytes = 64

// ErrRange: an index in the data of a node is out of range. It comes in a *backend.NodeError.
var ErrRange = errors.New("index out of range")

var faultTexts = [...]string{
	1: "id %d of token %d, want 0 to below %d",
	2: "row %d of token %d, want 0 to below %d",
	3: "position %d of token %d, want 0 to below %d",
	4: "cell %d of token %d, want 0 to below %d",
	5: "a run of cells from %d on that token %d lists is not within the %d there are",
	6: "position %d of token %d, which has %d cells to attend to",
}

// readFault returns what a kernel has reported, and has the device forget it.
func (d *device) readFault() error {
	field := func(i int) int { return int(int32(binary.LittleEndian.Uint32(d.in.bytes[4*i:]))) }
	code, site, token, value, limit := field(0), field(1), field(2), field(3), field(4)
	if code == 0 {
		return nil
	}
	d.fill(d.fault)
	if code < 0 || code >= len(faultTexts) {
		return d.fail(fmt.Errorf("cuda: a kernel reports fault %d", code))
	}
	err := fmt.Errorf("%w: "+faultTexts[code], ErrRange, value, token, limit)
	if n := d.sites.find(site, &d.recordings); n != nil {
		return backend.NewNodeError(d.name, n, err)
	}
	return fmt.Errorf("cuda: %s: %w", d.name, err)
}

// sites numbers the nodes whose kernels may report faults.
type sites struct {
	base  int // number of the first
	nodes []*graph.Node
}

// site returns a number for the node being executed.
func (d *device) site() int {
	s := &d.sites
	s.nodes = append(s.nodes, d.queue.node)
	return s.base + len(s.nodes) - 1
}

// find returns the node of a number, which may be that of a recording.
func (s *sites) find(site int, r *recordings) *graph.Node {
	if i := site - s.base; i >= 0 && i < len(s.nodes) {
		return s.nodes[i]
	}
	for _, rec := range r.list {
		if i := site - rec.sites.base; i >= 0 && i < len(rec.sites.nodes) {
			return rec.sites.nodes[i]
		}
	}
	return nil
}

// kernel is a function of a module.
type kernel struct {
	name string
	fn   uint64
}

// loader holds the modules that have been loaded. Methods that load want the context.
type loader struct {
	major, shared int
	modules       map[string]cu.Module
	functions     map[string]*kernel
	names         map[uint64]string
}

func (k *loader) open(major, shared int) error {
	*k = loader{major, shared, make(map[string]cu.Module), make(map[string]*kernel), make(map[uint64]string)}
	modules := map[string][]string{
		"rows": {"add", "mul", "scale", "silu", "gelu", "swiglu", "quantize", "norm_wide", "norm_narrow", "softmax", "get_rows", "permute",
			"angles", "rope", "kv_store", "finish_qkv", "spread"},
		"top":       {"top_parts", "top_join"},
		"attention": {"attend_rows", "attend_parts", "join_parts"},
	}
	if major >= 8 {
		modules["flash"] = []string{"flash_rows_64", "flash_parts_64", "flash_rows_128", "flash_parts_128", "flash_rows_256", "flash_parts_256"}
	}
	for module, names := range modules {
		for _, name := range names {
			if _, err := k.load(module, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// base returns a kernel that open has loaded.
func (k *loader) base(name string) *kernel { return k.functions[name] }

// load finds a kernel in a module, which it loads if need be.
func (k *loader) load(module, name string) (*kernel, error) {
	if f := k.functions[name]; f != nil {
		return f, nil
	}
	m, ok := k.modules[module]
	if !ok {
		text, err := driver.PTX(module, k.major)
		if err != nil {
			return nil, err
		}
		if m, err = cu.LoadData(text); err != nil {
			return nil, fmt.Errorf("cuda: kernels %s: %w", module, err)
		}
		k.modules[module] = m
	}
	fn, err := m.Function(name)
	if err != nil {
		return nil, fmt.Errorf("cuda: kernel %s: %w", name, err)
	}
	f := &kernel{name, driver.FunctionHandle(fn)}
	if err := driver.AllowShared(f.fn, k.shared); err != nil {
		return nil, fmt.Errorf("cuda: %d bytes of shared memory for kernel %s: %w", k.shared, name, err)
	}
	k.functions[name] = f
	k.names[f.fn] = name
	return f, nil
}

func (k *loader) close() error {
	var errs []error
	for _, m := range k.modules {
		errs = append(errs, m.Unload())
	}
	*k = loader{}
	return errors.Join(errs...)
}
