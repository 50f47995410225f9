package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// Errors of calls that the device refuses.
var (
	// ErrBuffer: a handle is not that of memory in use, or reaches beyond it.
	ErrBuffer = errors.New("relay: bad buffer")
	// ErrFence: there is no copy with this fence to wait for.
	ErrFence = errors.New("relay: no such copy")
)

// device is this side of an open relay.
type device struct {
	kind    *Kind
	name    string
	queue   chan func(*worker)
	stopped chan error // receives when the other side is gone
	closed  bool

	buffers map[int]backend.Buffer // on the other side, by the ID of this side
	lastID  int

	transfers map[backend.Fence]*transfer
	lastFence backend.Fence
}

// transfer is a copy to another device. The other side fetches the bytes; this side
// hands them on, because the receiver belongs to the goroutine that uses this side.
type transfer struct {
	to      backend.Backend
	buffer  backend.Buffer
	bytes   []byte
	fetched chan error
}

func newDevice(k *Kind, name string, engine backend.Backend) *device {
	d := &device{
		kind: k, name: name,
		queue:     make(chan func(*worker), k.options.Queue),
		stopped:   make(chan error, 1),
		buffers:   make(map[int]backend.Buffer),
		transfers: make(map[backend.Fence]*transfer),
	}
	w := &worker{device: name, kind: k, engine: engine}
	go w.serve(d.queue, d.stopped)
	return d
}

func (d *device) Name() string                        { return d.name }
func (d *device) Capabilities() *backend.Capabilities { return &d.kind.capabilities }

// call has the other side do something and waits for it.
func (d *device) call(f func(w *worker) error) error {
	if d.closed {
		return backend.ErrClosed
	}
	answer := make(chan error, 1)
	d.queue <- func(w *worker) { answer <- f(w) }
	return <-answer
}

// remote returns a buffer of the other side for a handle of this side.
func (d *device) remote(b backend.Buffer) (backend.Buffer, error) {
	whole, ok := d.buffers[b.ID]
	switch {
	case !ok:
		return backend.Buffer{}, fmt.Errorf("%w: id %d is not in use", ErrBuffer, b.ID)
	case b.Offset < 0 || b.Size < 0 || b.Offset > whole.Size || b.Size > whole.Size-b.Offset:
		return backend.Buffer{}, fmt.Errorf("%w: bytes %d to %d+%d of an allocation of %d", ErrBuffer, b.Offset, b.Offset, b.Size, whole.Size)
	}
	return whole.Slice(b.Offset, b.Size), nil
}

// window is remote for the first n bytes of a buffer.
func (d *device) window(b backend.Buffer, n int) (backend.Buffer, error) {
	if n > b.Size {
		return backend.Buffer{}, fmt.Errorf("%w: %d bytes of a buffer of %d", ErrBuffer, n, b.Size)
	}
	r, err := d.remote(b)
	return r.Slice(0, n), err
}

// LoadWeights sends one weight after the other, so that progress is reported from here.
func (d *device) LoadWeights(ctx context.Context, weights []backend.Weight, progress func(done, total int64)) error {
	var done, total int64
	for _, w := range weights {
		total += int64(len(w.Data))
	}
	for i := range weights {
		err := d.call(func(w *worker) error { return w.engine.LoadWeights(ctx, weights[i:i+1], nil) })
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if done += int64(len(weights[i].Data)); progress != nil {
			progress(done, total)
		}
	}
	if d.closed {
		return backend.ErrClosed
	}
	return ctx.Err()
}

func (d *device) Alloc(size int) (backend.Buffer, error) {
	return d.alloc(func(e backend.Backend) (backend.Buffer, error) { return e.Alloc(size) })
}

func (d *device) AllocFresh(size int) (backend.Buffer, error) {
	return d.alloc(func(e backend.Backend) (backend.Buffer, error) { return e.AllocFresh(size) })
}

// alloc gives memory of the other side a number that is never used again.
func (d *device) alloc(f func(backend.Backend) (backend.Buffer, error)) (backend.Buffer, error) {
	var b backend.Buffer
	err := d.call(func(w *worker) (err error) {
		b, err = f(w.engine)
		return err
	})
	if err != nil {
		return backend.Buffer{}, err
	}
	d.lastID++
	d.buffers[d.lastID] = b
	return backend.Buffer{ID: d.lastID, Size: b.Size}, nil
}

func (d *device) Free(b backend.Buffer) {
	whole, ok := d.buffers[b.ID]
	if d.closed || !ok || b.Offset != 0 {
		return
	}
	delete(d.buffers, b.ID)
	d.queue <- func(w *worker) { w.engine.Free(whole) }
}

// Execute sends a node with all that it refers to; the caller's operands and its node
// may change before the other side gets to it.
func (d *device) Execute(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if d.closed {
		return backend.ErrClosed
	}
	r := request{node: *n, in: make([]backend.Operand, len(in))}
	err := d.operand(&r.out, out)
	for i := range in {
		err = errors.Join(err, d.operand(&r.in[i], in[i]))
	}
	if kv != nil {
		regions := *kv
		var kErr, vErr error
		regions.K, kErr = d.remote(kv.K)
		regions.V, vErr = d.remote(kv.V)
		r.kv, err = &regions, errors.Join(err, kErr, vErr)
	}
	if err != nil {
		return backend.NewNodeError(d.name, n, err)
	}
	d.queue <- func(w *worker) { w.execute(&r) }
	return nil
}

// operand fills in an operand of the other side. One without memory, such as a key and
// value region, stays without.
func (d *device) operand(theirs *backend.Operand, ours backend.Operand) (err error) {
	*theirs = ours
	if ours.Buffer != (backend.Buffer{}) {
		theirs.Buffer, err = d.remote(ours.Buffer)
	}
	return err
}

func (d *device) ReadHost(dst []byte, src backend.Buffer) error {
	if d.closed {
		return backend.ErrClosed
	}
	from, err := d.window(src, len(dst))
	if err != nil {
		return err
	}
	d.kind.read.Add(int64(len(dst)))
	return d.call(func(w *worker) error {
		if err := w.report(); err != nil {
			return err
		}
		return w.engine.ReadHost(dst, from)
	})
}

func (d *device) WriteHost(dst backend.Buffer, src []byte) error {
	if d.closed {
		return backend.ErrClosed
	}
	to, err := d.window(dst, len(src))
	if err != nil {
		return err
	}
	d.kind.written.Add(int64(len(src)))
	bytes := append([]byte(nil), src...)
	d.queue <- func(w *worker) { w.fail(w.engine.WriteHost(to, bytes)) }
	return nil
}

// CopyAcross has the bytes fetched. They arrive at the receiver when WaitCopy is called.
func (d *device) CopyAcross(dst backend.Backend, to, from backend.Buffer) (backend.Fence, error) {
	if d.closed {
		return 0, backend.ErrClosed
	}
	if to.Size != from.Size {
		return 0, fmt.Errorf("%w: copy of %d bytes into %d bytes of %s", ErrBuffer, from.Size, to.Size, dst.Name())
	}
	source, err := d.remote(from)
	if err != nil {
		return 0, err
	}
	t := &transfer{to: dst, buffer: to, bytes: make([]byte, from.Size), fetched: make(chan error, 1)}
	d.lastFence++
	d.transfers[d.lastFence] = t
	d.kind.copied.Add(int64(from.Size))
	d.queue <- func(w *worker) {
		if w.failure != nil {
			t.fetched <- w.failure
			return
		}
		t.fetched <- w.engine.ReadHost(t.bytes, source)
	}
	return d.lastFence, nil
}

func (d *device) WaitCopy(f backend.Fence) error {
	if d.closed {
		return backend.ErrClosed
	}
	t := d.transfers[f]
	if t == nil {
		return fmt.Errorf("%w: fence %d", ErrFence, f)
	}
	delete(d.transfers, f)
	if err := <-t.fetched; err != nil {
		return err
	}
	return t.to.WriteHost(t.buffer, t.bytes)
}

func (d *device) Synchronize() error {
	return d.call(func(w *worker) error { return errors.Join(w.report(), w.engine.Synchronize()) })
}

// PoolStats returns what the device on the other side holds.
func (d *device) PoolStats() (stats backend.PoolStats) {
	// A closed device holds nothing, which is what stats says then.
	_ = d.call(func(w *worker) error {
		stats = w.engine.PoolStats()
		return nil
	})
	return stats
}

// Close waits for the commands under way and ends the other side.
func (d *device) Close() error {
	if d.closed {
		return backend.ErrClosed
	}
	d.closed = true
	close(d.queue)
	d.buffers, d.transfers = nil, nil
	return <-d.stopped
}
