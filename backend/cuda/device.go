//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/cuda/internal/driver"
	"github.com/minfer/minfer/graph"
	"gorgonia.org/cu"
)

var capabilities = backend.Capabilities{
	Supports:     bounds.Supports,
	ExplicitSpan: true,
	PackedKV:     true,
}

func init() {
	backend.Register(backend.Entry{
		Name:         "cuda",
		ID:           backend.CUDA,
		Priority:     backend.PriorityCUDA,
		Available:    available,
		Capabilities: &capabilities,
		Open:         open,
	})
}

// available asks for a driver and a GPU.
func available() error {
	if err := driver.InitError(); err != nil {
		return err
	}
	n, err := cu.NumDevices()
	if err == nil && n == 0 {
		err = errors.New("there is no NVIDIA GPU")
	}
	return err
}

// staging is the size of the pieces of pinned memory through which copies go.
const staging = 4 << 20

// device is an open GPU. See the package comment.
type device struct {
	backend.RowOrder

	name    string
	ordinal int
	gpu     cu.Device
	context cu.CUContext
	stream  cu.Stream
	major   int // of the compute capability
	sms     int // multiprocessors
	shared  int // bytes of shared memory that a block can have
	closed  bool
	failure error // what the driver calls unrecoverable

	memory  memory
	queue   queue
	kernels loader
	out     pinned // on the way to the device
	in      pinned // on the way to the host
	fault   block  // where kernels report

	weights     map[string]*weight
	weightBytes int64
	ropes       map[graph.RoPE]*ropeTable
	quants      [2]quants
	lastQuants  int
	scratch     [numScratch]block
	recordings  recordings
	sites       sites
}

// pinned is page-locked memory of the host.
type pinned struct {
	bytes []byte
	used  int // bytes that queued copies refer to
}

func newPinned(n int) (p pinned, err error) {
	at, err := driver.AllocHost(n)
	if err != nil {
		return p, fmt.Errorf("cuda: %d bytes of pinned memory: %w", n, err)
	}
	return pinned{bytes: unsafe.Slice((*byte)(at), n)}, nil
}

func (p *pinned) addr(at int) uint64 { return uint64(uintptr(unsafe.Pointer(&p.bytes[at]))) }

func (p *pinned) close() error {
	if p.bytes == nil {
		return nil
	}
	return cu.MemFreeHost(unsafe.Pointer(&p.bytes[0]))
}

func open(c backend.Config) (backend.Backend, error) {
	if err := available(); err != nil {
		return nil, err
	}
	if c.Name == "" {
		c.Name = "cuda"
	}
	d := &device{
		name: c.Name, ordinal: c.Instance,
		weights: make(map[string]*weight), ropes: make(map[graph.RoPE]*ropeTable),
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, err
	}
	if c.Instance < 0 || c.Instance >= n {
		return nil, fmt.Errorf("there are %d GPUs, counted from 0, and none with number %d", n, c.Instance)
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *device) open() (err error) {
	if d.gpu, err = cu.GetDevice(d.ordinal); err != nil {
		return fmt.Errorf("cuda: GPU %d: %w", d.ordinal, err)
	}
	minor := 0
	for _, a := range []struct {
		what cu.DeviceAttribute
		to   *int
	}{
		{cu.ComputeCapabilityMajor, &d.major}, {cu.ComputeCapabilityMinor, &minor},
		{cu.MultiprocessorCount, &d.sms}, {maxSharedOptIn, &d.shared},
	} {
		if *a.to, err = d.gpu.Attribute(a.what); err != nil {
			return fmt.Errorf("cuda: attribute %d of GPU %d: %w", a.what, d.ordinal, err)
		}
	}
	if d.major*10+minor < 75 {
		return fmt.Errorf("cuda: GPU %d has compute capability %d.%d, and 7.5 is the least that works", d.ordinal, d.major, minor)
	}
	if d.context, err = d.gpu.RetainPrimaryCtx(); err != nil {
		return fmt.Errorf("cuda: context on GPU %d: %w", d.ordinal, err)
	}
	return d.do(d.prepare)
}

// maxSharedOptIn is CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, which cu has no name for.
const maxSharedOptIn = cu.DeviceAttribute(97)

// prepare makes what needs the context.
func (d *device) prepare() (err error) {
	d.memory.flush = d.flush
	if d.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return fmt.Errorf("cuda: stream: %w", err)
	}
	if d.out, err = newPinned(staging); err != nil {
		return err
	}
	if d.in, err = newPinned(staging + faultBytes); err != nil {
		return err
	}
	if d.fault, err = newBlock(granularity); err != nil {
		return err
	}
	d.fill(d.fault)
	return d.kernels.open(d.major, d.shared)
}

// do runs f on a thread whose context is the device's.
func (d *device) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return fmt.Errorf("cuda: context of %s: %w", d.name, err)
	}
	return f()
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

func (d *device) Alloc(size int) (backend.Buffer, error)      { return d.alloc(size, false) }
func (d *device) AllocFresh(size int) (backend.Buffer, error) { return d.alloc(size, true) }

func (d *device) alloc(size int, fresh bool) (b backend.Buffer, err error) {
	if err := d.usable(); err != nil {
		return b, err
	}
	err = d.do(func() error {
		var at block
		if b, at, err = d.memory.alloc(size, fresh); err == nil && fresh {
			d.fill(at)
		}
		return err
	})
	return b, err
}

// fill queues zeros for a block.
func (d *device) fill(b block) {
	d.recordings.current = nil
	d.wrote(b.ptr, b.size)
	d.queue.add(driver.Fill).Ptr(b.ptr).Ptr(0).Ptr(uint64(b.size))
}

func (d *device) Free(b backend.Buffer) {
	if d.closed {
		return
	}
	if err := d.do(func() error { return d.memory.release(b) }); err != nil {
		d.fail(err)
	}
}

// WriteHost goes by way of pinned memory, so that it need not wait.
func (d *device) WriteHost(dst backend.Buffer, src []byte) error {
	if err := d.usable(); err != nil {
		return err
	}
	to, err := d.memory.view(dst, len(src))
	if err != nil {
		return err
	}
	d.recordings.current = nil
	d.wrote(to, len(src))
	for len(src) > 0 {
		if d.out.used == len(d.out.bytes) {
			if err := d.wait(); err != nil {
				return err
			}
		}
		n := copy(d.out.bytes[d.out.used:], src)
		d.queue.add(driver.ToDevice).Ptr(to).Ptr(d.out.addr(d.out.used)).Ptr(uint64(n))
		d.out.used = min(roundUp(d.out.used+n, backend.Alignment), len(d.out.bytes))
		src, to = src[n:], to+uint64(n)
	}
	return nil
}

func (d *device) ReadHost(dst []byte, src backend.Buffer) error {
	if err := d.usable(); err != nil {
		return err
	}
	from, err := d.memory.view(src, len(dst))
	if err != nil {
		return err
	}
	d.recordings.current = nil
	for len(dst) > 0 {
		n := min(len(dst), staging)
		d.queue.add(driver.ToHost).Ptr(d.in.addr(faultBytes)).Ptr(from).Ptr(uint64(n))
		if err := d.wait(); err != nil {
			return err
		}
		copy(dst, d.in.bytes[faultBytes:][:n])
		dst, from = dst[n:], from+uint64(n)
	}
	return nil
}

// CopyAcross goes by way of the host and is done when it returns.
func (d *device) CopyAcross(dst backend.Backend, to, from backend.Buffer) (backend.Fence, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	_, err := backend.CopyThroughHost(dst, to, d, from, make([]byte, 0, max(0, min(from.Size, to.Size))))
	return 0, err
}

// WaitCopy returns at once, as every copy is done when CopyAcross returns.
func (d *device) WaitCopy(backend.Fence) error { return d.usable() }

func (d *device) Synchronize() error {
	if err := d.usable(); err != nil {
		return err
	}
	if err := d.endRecording(); err != nil {
		return err
	}
	d.forget()
	if d.queue.idle {
		return nil
	}
	return d.wait()
}

func (d *device) PoolStats() backend.PoolStats {
	return backend.PoolStats{
		Buffers:     d.memory.buffers,
		BufferBytes: d.memory.used,
		FreeBytes:   d.memory.freeBytes,
		WeightBytes: d.weightBytes,
	}
}

// fail makes an error of the driver that leaves nothing in working order the device's.
func (d *device) fail(err error) error {
	if d.failure == nil {
		d.failure = fmt.Errorf("cuda: %s has failed: %w", d.name, err)
	}
	return d.failure
}

// Close gives back all memory and the context.
func (d *device) Close() error {
	if d.closed {
		return backend.ErrClosed
	}
	d.closed = true
	err := d.do(d.release)
	if d.context != (cu.CUContext{}) {
		err = errors.Join(err, d.gpu.ReleasePrimaryCtx())
	}
	*d = device{name: d.name, closed: true}
	return err
}

func (d *device) release() error {
	if d.context == (cu.CUContext{}) {
		return nil
	}
	var errs []error
	if d.stream != (cu.Stream{}) {
		errs = append(errs, d.stream.Synchronize())
	}
	d.recordings.clear()
	for _, w := range d.weights {
		errs = append(errs, w.free())
	}
	for _, t := range d.ropes {
		errs = append(errs, t.free())
	}
	for _, b := range append(d.scratch[:], d.fault) {
		errs = append(errs, freeBlock(b))
	}
	errs = append(errs, d.memory.close(), d.kernels.close(), d.out.close(), d.in.close())
	if d.stream != (cu.Stream{}) {
		errs = append(errs, d.stream.Destroy())
	}
	return errors.Join(errs...)
}

var _ interface {
	backend.Backend
	backend.Replayer
	backend.Capturer
	backend.WeightMeter
	backend.MemoryMeter
} = (*device)(nil)
