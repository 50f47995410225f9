package cpu

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/mmap"
	"github.com/minfer/minfer/internal/vocabulary"
)

// maxThreads bounds Config.Threads, far above what helps and below what harms.
const maxThreads = 1024

// bounds: the kernels take what fits in memory.
var bounds = vocabulary.Bounds{Row: math.MaxInt, Rows: math.MaxInt, Head: math.MaxInt, Finish: math.MaxInt, Top: graph.MaxAmong}

var capabilities = backend.Capabilities{
	Supports:     supports,
	ExplicitSpan: true,
	PackedKV:     true,
}

// supports adds to what all devices have: a product whose activations are quantised takes them from where they arise.
func supports(op graph.Op, t graph.DType) bool {
	f, ok := op.(graph.FusedFFNDown)
	if !ok {
		return bounds.Supports(op, t)
	}
	return bounds.Supports(graph.FusedFFN{Gate: f.Gate, Up: f.Up}, t) && bounds.Supports(f.Down, t) && quantizes(f.Down.Type)
}

func init() {
	backend.Register(backend.Entry{
		Name:         "cpu",
		ID:           backend.CPU,
		Priority:     backend.PriorityCPU,
		Available:    available,
		Capabilities: &capabilities,
		Open:         open,
	})
}

// available refuses machines whose memory has the most significant byte first: weights
// and buffers are read in place as the file and the host have them.
func available() error {
	if !littleEndian() {
		return errors.New("it needs a little-endian machine")
	}
	return nil
}

// device is the open CPU. See the package comment.
type device struct {
	name    string
	tier    kernels.Tier
	inPlace bool // products read weights where they lie
	round   bool // products with float weights are computed from copies in Q8_0
	pool    *pool
	memory  memory
	closed  bool
	failure error // a panic outside the pool

	weights     map[string]*weight
	weightBytes int64
	packed      []*mmap.Mapping // copies of weights
	ropes       map[graph.RoPE]*ropeTable

	work workspace
}

func open(c backend.Config) (backend.Backend, error) {
	if err := available(); err != nil {
		return nil, err
	}
	if c.Threads < 0 || c.Threads > maxThreads {
		return nil, fmt.Errorf("cpu: %d threads, want 0 for the default or 1 to %d", c.Threads, maxThreads)
	}
	if c.Instance != 0 {
		return nil, fmt.Errorf("cpu: there is one, number 0, not number %d", c.Instance)
	}
	if c.Threads == 0 {
		c.Threads = min(runtime.GOMAXPROCS(0), maxThreads)
	}
	if c.Name == "" {
		c.Name = "cpu"
	}
	tier, err := chooseTier(c)
	if err != nil {
		return nil, err
	}
	d := &device{
		name:    c.Name,
		tier:    tier,
		inPlace: c.InPlace,
		round:   c.RoundFloats,
		pool:    newPool(c.Threads, tier),
		memory:  memory{makeHuge: mmap.MakeHuge},
		weights: make(map[string]*weight),
		ropes:   make(map[graph.RoPE]*ropeTable),
	}
	d.work.acts.Tier, d.work.joined.Tier = d.tier, d.tier
	return d, nil
}

// chooseTier returns the instruction set that was asked for, or the best there is.
func chooseTier(c backend.Config) (kernels.Tier, error) {
	if c.Instructions == "" {
		return kernels.DefaultTier()
	}
	tier, err := kernels.ParseTier(c.Instructions)
	if err == nil && !tier.Available() {
		err = fmt.Errorf("%w: this machine or build lacks %v, it has %v", kernels.ErrTier, tier, kernels.Tiers())
	}
	return tier, err
}

func (d *device) Name() string                        { return d.name }
func (d *device) Capabilities() *backend.Capabilities { return &capabilities }

// usable returns why the device takes no more calls, or nil.
func (d *device) usable() error {
	if d.closed {
		return backend.ErrClosed
	}
	return d.failure
}

// keepPanic is deferred: it makes a panic the failure of the device and the error of
// the call.
func (d *device) keepPanic(err *error) {
	if v := recover(); v != nil {
		d.failure = failureOf(v)
		*err = d.failure
	}
}

func (d *device) Alloc(size int) (backend.Buffer, error) {
	if err := d.usable(); err != nil {
		return backend.Buffer{}, err
	}
	return d.memory.alloc(size, false)
}

func (d *device) AllocFresh(size int) (backend.Buffer, error) {
	if err := d.usable(); err != nil {
		return backend.Buffer{}, err
	}
	return d.memory.alloc(size, true)
}

func (d *device) Free(b backend.Buffer) {
	if !d.closed {
		d.memory.release(b)
	}
}

func (d *device) ReadHost(dst []byte, src backend.Buffer) error {
	if err := d.usable(); err != nil {
		return err
	}
	bytes, err := d.memory.view(src, len(dst))
	copy(dst, bytes)
	return err
}

func (d *device) WriteHost(dst backend.Buffer, src []byte) error {
	if err := d.usable(); err != nil {
		return err
	}
	bytes, err := d.memory.view(dst, len(src))
	copy(bytes, src)
	return err
}

// CopyAcross copies at once: the buffer is host memory, and so what the other device
// takes from the host.
func (d *device) CopyAcross(dst backend.Backend, to, from backend.Buffer) (backend.Fence, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if to.Size != from.Size {
		return 0, fmt.Errorf("%w: copy of %d bytes into %d bytes of %s", ErrBuffer, from.Size, to.Size, dst.Name())
	}
	bytes, err := d.memory.view(from, from.Size)
	if err != nil {
		return 0, err
	}
	return 0, dst.WriteHost(to, bytes)
}

// WaitCopy returns at once, as every copy is done when CopyAcross returns.
func (d *device) WaitCopy(backend.Fence) error { return d.usable() }

func (d *device) Synchronize() error { return d.usable() }

func (d *device) PoolStats() backend.PoolStats {
	return backend.PoolStats{
		Buffers:     d.memory.buffers,
		BufferBytes: d.memory.used,
		FreeBytes:   d.memory.freeBytes,
		WeightBytes: d.weightBytes,
	}
}

// Close stops the workers and lets go of all memory.
func (d *device) Close() error {
	if d.closed {
		return backend.ErrClosed
	}
	d.closed = true
	d.pool.close()
	var errs []error
	for _, memory := range d.packed {
		errs = append(errs, memory.Close())
	}
	*d = device{name: d.name, closed: true}
	return errors.Join(errs...)
}
