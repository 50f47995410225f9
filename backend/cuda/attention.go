//go:build cuda

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/cuda/internal/driver"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/vocabulary"
)

// ropeTable is a rotary embedding with the angles of the last batch.
type ropeTable struct {
	freq   block // float64, radians per position
	scale  float32
	pairs  int
	angles block // cosines and sines of each token
	source value // the positions that angles were made from; none if they are not up to date
}

func (t *ropeTable) free() error { return errors.Join(freeBlock(t.freq), freeBlock(t.angles)) }

// angles returns the angles of the positions. Layers, queries and keys with the same parameters
// share them.
func (d *device) angles(r graph.RoPE, positions value) (*ropeTable, error) {
	if r.Style > graph.RoPEHalves {
		return nil, backend.ErrUnsupported
	}
	r.Heads, r.HeadDim, r.Style = 0, 0, 0
	t := d.ropes[r]
	if t == nil {
		var err error
		if t, err = d.newRope(r); err != nil {
			return nil, err
		}
		d.ropes[r] = t
	}
	if t.source == positions {
		return t, nil
	}
	n := positions.n * t.pairs
	if t.angles.size < 8*n {
		if err := d.do(func() error { return d.grow(&t.angles, 8*n) }); err != nil {
			return nil, err
		}
	}
	d.launch(d.kernels.base("angles"), blocksFor(n), 1, 1, threads, 0).
		Ptr(t.angles.ptr).Ptr(positions.ptr).Ptr(t.freq.ptr).Float(t.scale).Int(t.pairs).Int(positions.n).
		Int(maxPositions).Ptr(d.fault.ptr).Int(d.site())
	t.source = positions
	return t, nil
}

func (d *device) newRope(r graph.RoPE) (*ropeTable, error) {
	factors, err := d.hostVector(r.Factors, r.Dim/2)
	if err != nil {
		return nil, err
	}
	rope, err := kernels.NewRoPE(vocabulary.RoPE(r, factors))
	if err != nil {
		return nil, err
	}
	freq, scale := rope.Frequencies()
	raw := make([]byte, 0, 8*len(freq))
	for _, f := range freq {
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(f))
	}
	t := &ropeTable{scale: float32(scale), pairs: len(freq)}
	err = d.do(func() error {
		t.freq, err = d.uploadBytes(raw)
		return err
	})
	return t, err
}

func (d *device) rope(op graph.RoPE, in []backend.Operand, out backend.Operand) error {
	x, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	tokens, width := out.Shape.Rows(), out.Shape[0]
	positions, err := d.tokenInts("positions", in[1], tokens)
	if err != nil {
		return err
	}
	if op.Heads*op.HeadDim != width || op.Dim > op.HeadDim {
		return misshaped("%d of %d features of %d heads in rows of %d", op.Dim, op.HeadDim, op.Heads, width)
	}
	t, err := d.angles(op, positions)
	if err != nil {
		return err
	}
	d.launch(d.kernels.base("rope"), blocksFor(tokens*op.Heads*(op.HeadDim-t.pairs)), 1, 1, threads, 0).
		Ptr(o.ptr).Ptr(x.ptr).Ptr(t.angles.ptr).Int(op.Heads).Int(op.HeadDim).Int(t.pairs).Int(halves(op.Style)).Int(tokens)
	return nil
}

func halves(s graph.RoPEStyle) int {
	if s == graph.RoPEHalves {
		return 1
	}
	return 0
}

// tokenInts returns integers of which there are n.
func (d *device) tokenInts(what string, o backend.Operand, n int) (value, error) {
	ints, err := d.memory.ints(o)
	if err == nil && ints.n != n {
		err = misshaped("%d %s, want %d", ints.n, what, n)
	}
	return ints, err
}

// regions are a layer's keys and values.
type regions struct {
	keys, values uint64
	half         int // 1 if elements are F16
	cells        int
}

// regions returns the layer's regions, for rows of the width.
func (d *device) regions(kv *backend.KV, width int) (r regions, err error) {
	if kv == nil {
		return r, misshaped("no key and value regions")
	}
	if kv.Width != width || kv.Cells <= 0 || kv.Cells > math.MaxInt32/2/width {
		return r, misshaped("regions of %d rows of %d, want rows of %d", kv.Cells, kv.Width, width)
	}
	r.cells = kv.Cells
	size := 4
	switch kv.Type {
	case graph.F16:
		r.half, size = 1, 2
	case graph.F32:
	default:
		return r, misshaped("regions of %v, want F16 or F32", kv.Type)
	}
	if r.keys, err = d.memory.elements(kv.K, kv.Cells*width, size); err != nil {
		return r, err
	}
	r.values, err = d.memory.elements(kv.V, kv.Cells*width, size)
	return r, err
}

func (d *device) kvStore(in []backend.Operand, kv *backend.KV) error {
	k, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	v, err := d.memory.floats(in[1])
	if err != nil {
		return err
	}
	if in[0].Shape != in[1].Shape {
		return misshaped("keys %v and values %v", in[0].Shape, in[1].Shape)
	}
	width, tokens := in[0].Shape[0], in[0].Shape.Rows()
	r, err := d.regions(kv, width)
	if err != nil {
		return err
	}
	cells, err := d.tokenInts("cells", in[2], tokens)
	if err != nil {
		return err
	}
	d.launch(d.kernels.base("kv_store"), tokens, 1, 1, threads, 0).
		Ptr(k.ptr).Ptr(v.ptr).Ptr(cells.ptr).Ptr(r.keys).Ptr(r.values).Int(r.half).Int(width).Int(r.cells).
		Ptr(d.fault.ptr).Int(d.site())
	return nil
}

// qkv is the payload of a fused projection of queries, keys and values.
type qkv struct {
	m            [3]graph.MatMul // for queries, keys and values
	rope         graph.RoPE
	kvHeads      int
	normed       bool
	qNorm, kNorm string
	eps          float32
}

func (d *device) fusedQKV(f *qkv, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	var parts [3]projection
	for i := range f.m {
		var err error
		if parts[i], err = d.resolve(&f.m[i], in[0]); err != nil {
			return err
		}
	}
	x, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	q, err := d.product(in[0], out, f.m[0].Out)
	if err != nil {
		return err
	}
	if f.m[2].Out != f.m[1].Out {
		return misshaped("keys of %d features and values of %d", f.m[1].Out, f.m[2].Out)
	}
	t := finish{normed: f.normed, eps: f.eps, out: q.ptr, q: q.ptr, width: f.m[0].Out, kWidth: f.m[1].Out, tokens: in[0].Shape.Rows()}
	if f.normed {
		if t.qNorm, err = d.weightVector(f.qNorm, f.rope.HeadDim); err != nil {
			return err
		}
		if t.kNorm, err = d.weightVector(f.kNorm, f.rope.HeadDim); err != nil {
			return err
		}
	}
	bytes := 4 * t.tokens * t.kWidth
	if t.k, err = d.room(scratchKeys, bytes); err != nil {
		return err
	}
	if t.v, err = d.room(scratchValues, bytes); err != nil {
		return err
	}
	if err := d.prepareFinish(&t, &f.rope, f.kvHeads, in[1], in[2], kv); err != nil {
		return err
	}
	parts[0].out, parts[1].out, parts[2].out = q.ptr, t.k, t.v
	if err := d.project(x, f.m[0].In, parts[:]...); err != nil {
		return err
	}
	d.finish(&t)
	return nil
}

// finish completes projected queries, keys and values: biases, norms, rotation, and the store.
type finish struct {
	out, q, k, v        uint64
	qBias, kBias, vBias uint64
	normed              bool
	qNorm, kNorm        uint64
	eps                 float32
	width, kWidth       int
	tokens              int

	// Filled in by prepareFinish.
	rope    *graph.RoPE
	table   *ropeTable
	kvHeads int
	cells   value
	regions regions
}

// prepareFinish checks what rotation and store need, and fills it in.
func (d *device) prepareFinish(t *finish, rope *graph.RoPE, kvHeads int, positions, cells backend.Operand, kv *backend.KV) (err error) {
	if rope.Heads*rope.HeadDim != t.width || kvHeads*rope.HeadDim != t.kWidth || rope.Dim > rope.HeadDim || rope.HeadDim > maxHeadDim {
		return misshaped("queries of %d and keys of %d features for %d and %d heads of %d", t.width, t.kWidth, rope.Heads, kvHeads, rope.HeadDim)
	}
	t.rope, t.kvHeads = rope, kvHeads
	if t.regions, err = d.regions(kv, t.kWidth); err != nil {
		return err
	}
	p, err := d.tokenInts("positions", positions, t.tokens)
	if err != nil {
		return err
	}
	if t.cells, err = d.tokenInts("cells", cells, t.tokens); err != nil {
		return err
	}
	t.table, err = d.angles(*rope, p)
	return err
}

func (d *device) finish(t *finish) {
	const heads = 4 // of a block
	normed := 0
	if t.normed {
		normed = 1
	}
	r := &t.regions
	d.launch(d.kernels.base("finish_qkv"), (t.rope.Heads+2*t.kvHeads+heads-1)/heads, t.tokens, 1, 32*heads, 4*heads*t.rope.HeadDim).
		Ptr(t.out).Ptr(t.q).Ptr(t.k).Ptr(t.v).Ptr(t.qBias).Ptr(t.kBias).Ptr(t.vBias).Ptr(t.qNorm).Ptr(t.kNorm).
		Int(normed).Float(t.eps).Ptr(t.table.angles.ptr).Ptr(t.cells.ptr).Ptr(r.keys).Ptr(r.values).
		Int(2*r.cells + r.half).Int(t.rope.Heads).Int(t.kvHeads).Int(t.rope.HeadDim).Int(2*t.table.pairs + halves(t.rope.Style)).
		Ptr(d.fault.ptr).Int(d.site())
}

func (d *device) qkvBiasRopeStore(op *graph.QKVBiasRopeStore, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	q, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	k, err := d.memory.floats(in[1])
	if err != nil {
		return err
	}
	v, err := d.memory.floats(in[2])
	if err != nil {
		return err
	}
	t := finish{out: o.ptr, q: q.ptr, k: k.ptr, v: v.ptr, width: in[0].Shape[0], kWidth: in[1].Shape[0], tokens: in[0].Shape.Rows()}
	if in[1].Shape != in[2].Shape || in[1].Shape.Rows() != t.tokens {
		return misshaped("queries %v, keys %v, values %v", in[0].Shape, in[1].Shape, in[2].Shape)
	}
	if t.qBias, err = d.weightVector(op.QBias, t.width); err != nil {
		return err
	}
	if t.kBias, err = d.weightVector(op.KBias, t.kWidth); err != nil {
		return err
	}
	if t.vBias, err = d.weightVector(op.VBias, t.kWidth); err != nil {
		return err
	}
	if err := d.prepareFinish(&t, &op.RoPE, op.KVHeads, in[3], in[4], kv); err != nil {
		return err
	}
	d.finish(&t)
	return nil
}

// attender is the kernels of attention for heads of a size and one kind of regions, with what they take.
type attender struct {
	rows, parts           *kernel
	tileRows, partRows    int // rows of a block
	threads               int // of a block of rows
	rowShared, partShared int // bytes of shared memory
}

// attendThreads is the threads of a block, but for a tile on tensor cores that has fewer rows.
const attendThreads = 128

// maxParts bounds the memory for parts of attention, in bytes.
const maxParts = 256 << 20

// chunkOf is the number of positions of a chunk.
func chunkOf(headDim int) int {
	if headDim <= 128 {
		return 64
	}
	return 32
}

// attender chooses tensor cores where they can be had: for regions of F16. It chooses the same ones for a step as for a prompt, since
// the two kinds add up in different orders.
func (d *device) attender(headDim int, half bool) attender {
	if half && d.major >= 8 && headDim%16 == 0 {
		if a := d.flash(headDim); a.rowShared <= d.kernels.shared {
			return a
		}
	}
	const rows = 16 // as in kernels/attention.cu
	c := chunkOf(headDim)
	shared := 4 * (rows*headDim + c*(headDim+4) + rows*c + c + 6*rows)
	return attender{d.kernels.base("attend_rows"), d.kernels.base("attend_parts"), rows, rows, attendThreads, shared, shared}
}

// flash is the kernels of kernels/flash.cu, with as many warps to a tile as shared memory has room for.
func (d *device) flash(headDim int) attender {
	room := 64
	for room < headDim {
		room *= 2
	}
	const warpRows, maxRows = 16, 64
	c, row := chunkOf(room), 2*(room+8)
	chunk, queries := 2*c*row+2*4*c, 2*warpRows*row
	shared := chunk + 3*4*maxRows + 16 + queries
	warps := 1
	for ; warps < maxRows/warpRows && shared+queries <= d.kernels.shared; warps++ {
		shared += queries
	}
	return attender{
		d.kernels.base(fmt.Sprint("flash_rows_", room)), d.kernels.base(fmt.Sprint("flash_parts_", room)),
		warpRows * warps, warpRows, 32 * warps, shared, chunk + 5*4*warpRows + queries + 2*warpRows*2*(c+8),
	}
}

func (d *device) attention(op *graph.Attention, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if !bounds.Attention(*op) {
		return backend.ErrUnsupported
	}
	q, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	if out.Shape[0] != op.Heads*op.HeadDim {
		return misshaped("queries %v for %d heads of %d", out.Shape, op.Heads, op.HeadDim)
	}
	r, err := d.regions(kv, op.KVHeads*op.HeadDim)
	if err != nil {
		return err
	}
	a := attending{op: op, q: q, out: o, regions: r, tokens: out.Shape.Rows()}
	if a.positions, err = d.tokenInts("positions", in[2], a.tokens); err != nil {
		return err
	}
	if op.ExplicitSpan != (len(in) == 4) {
		return misshaped("explicit span is %v with %d sources", op.ExplicitSpan, len(in))
	}
	if op.ExplicitSpan {
		if a.spans, err = d.tokenInts("spans", in[3], 2*graph.MaxRuns*a.tokens); err != nil {
			return err
		}
	}
	if op.Mode == graph.Full {
		a.full = 1
	}
	return d.attend(&a)
}

// attending is attention under way.
type attending struct {
	op               *graph.Attention
	q, out           value
	positions, spans value
	regions          regions
	tokens, full     int
}

// blocks is the number of blocks of so many rows for the heads of a token.
func (a *attending) blocks(rows int) int {
	return a.op.KVHeads * ((a.op.Heads/a.op.KVHeads + rows - 1) / rows)
}

// attend goes through all chunks of a few rows at a time if that keeps the GPU busy, and
// otherwise shares the chunks of a row among blocks.
func (d *device) attend(a *attending) error {
	k := d.attender(a.op.HeadDim, a.regions.half == 1)
	chunks := (a.regions.cells + chunkOf(a.op.HeadDim) - 1) / chunkOf(a.op.HeadDim)
	bytes := 4 * a.tokens * a.op.Heads * chunks * (a.op.HeadDim + 2)
	if a.tokens*a.blocks(k.partRows) < 2*d.sms && chunks > 1 && bytes <= maxParts {
		return d.attendParts(a, k, chunks, bytes)
	}
	per := max(1, k.tileRows/(a.op.Heads/a.op.KVHeads))
	o := d.launch(k.rows, (a.tokens+per-1)/per, a.blocks(k.tileRows), 1, k.threads, k.rowShared).Ptr(a.out.ptr)
	a.give(o).Int(a.tokens).Int(per).Ptr(d.fault.ptr).Int(d.site())
	return nil
}

// give adds the arguments that both kernels take.
func (a *attending) give(o *driver.Op) *driver.Op {
	r, op := &a.regions, a.op
	return o.Ptr(a.q.ptr).Ptr(r.keys).Ptr(r.values).Ptr(a.positions.ptr).Ptr(a.spans.ptr).Int(r.half).Int(op.Heads).Int(op.KVHeads).
		Int(op.HeadDim).Int(r.cells).Int(a.full).Int(op.Window).Float(op.Scale * math.Log2E)
}

// attendParts computes the chunks of each row and then joins them. How many blocks share them
// depends on the regions' size and not on how much of them is in use, so that a recorded step
// stays right.
func (d *device) attendParts(a *attending, k attender, chunks, bytes int) error {
	parts, err := d.room(scratchParts, bytes)
	if err != nil {
		return err
	}
	op := a.op
	share := min(chunks, max(1, blocksPerSM*d.sms/(a.tokens*a.blocks(k.partRows))))
	o := d.launch(k.parts, share, a.blocks(k.partRows), a.tokens, attendThreads, k.partShared).Ptr(parts)
	a.give(o).Int(chunks).Ptr(d.fault.ptr).Int(d.site())
	q := &quants{}
	if width := op.Heads * op.HeadDim; op.HeadDim%32 == 0 && width%superBlock == 0 && quantizable(width) {
		if q, err = d.quantsRoom(width, a.tokens); err != nil {
			return err
		}
	}
	d.launch(d.kernels.base("join_parts"), op.Heads, a.tokens, 1, roundUp(op.HeadDim, 32), 0).
		Ptr(a.out.ptr).Ptr(parts).Ptr(a.positions.ptr).Ptr(a.spans.ptr).Int(op.Heads).Int(op.HeadDim).Int(a.regions.cells).
		Int(a.full).Int(op.Window).Int(chunks).Ptr(q.q).Ptr(q.m).Int(q.supers).Ptr(d.fault.ptr).Int(d.site())
	q.source = a.out
	return nil
}

// blocksPerSM is how many blocks of attention a multiprocessor has room for, about.
const blocksPerSM = 4
