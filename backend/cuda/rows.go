//go:build cuda

package cuda

import (
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/cuda/internal/driver"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/vocabulary"
)

// threads is the size of the blocks of kernels that are not particular about it.
const threads = 256

// blocksFor is the number of blocks for n threads.
func blocksFor(n int) int { return (n + threads - 1) / threads }

func (d *device) binary(kernel string, in []backend.Operand, out backend.Operand) error {
	a, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	b, _, err := d.pair(in[1], out)
	if err != nil {
		return err
	}
	d.launch(d.kernels.base(kernel), blocksFor(o.n), 1, 1, threads, 0).Ptr(o.ptr).Ptr(a.ptr).Ptr(b.ptr).Ptr(uint64(o.n))
	return nil
}

func (d *device) unary(kernel string, in []backend.Operand, out backend.Operand) error {
	a, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	d.launch(d.kernels.base(kernel), blocksFor(o.n), 1, 1, threads, 0).Ptr(o.ptr).Ptr(a.ptr).Ptr(uint64(o.n))
	return nil
}

func (d *device) scale(factor float32, in []backend.Operand, out backend.Operand) error {
	a, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	d.launch(d.kernels.base("scale"), blocksFor(o.n), 1, 1, threads, 0).Ptr(o.ptr).Ptr(a.ptr).Float(factor).Ptr(uint64(o.n))
	return nil
}

// quantizable reports whether rows of the width can be activations of a quantised weight.
func quantizable(width int) bool { return width%32 == 0 && width <= maxIn }

func (d *device) swiglu(in []backend.Operand, out backend.Operand) error {
	gate, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	up, _, err := d.pair(in[1], out)
	if err != nil {
		return err
	}
	return d.queueSwiGLU(o, gate, up, out.Shape[0])
}

// queueSwiGLU makes the quants of the result along with it, since a product comes next.
func (d *device) queueSwiGLU(o, gate, up value, width int) error {
	q, err := d.quantsFor(width, o.n/width)
	if err != nil {
		return err
	}
	tokens, supers := o.n/width, supersOf(width)
	d.launch(d.kernels.base("swiglu"), blocksFor(tokens*supers*superBlock), 1, 1, threads, 0).
		Ptr(o.ptr).Ptr(gate.ptr).Ptr(up.ptr).Int(width).Int(tokens).Ptr(q.q).Ptr(q.m).Int(supers)
	q.source = o
	return nil
}

// quantsFor returns room for the quants of rows, or none if they cannot be quantised.
func (d *device) quantsFor(width, tokens int) (*quants, error) {
	if !quantizable(width) {
		return &quants{}, nil
	}
	return d.quantsRoom(width, tokens)
}

// narrow is the longest piece that one warp normalises by itself.
const narrow = 256

// norm normalises rows, in pieces of n values.
func (d *device) norm(name string, n int, eps float32, in []backend.Operand, out backend.Operand) error {
	x, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	w, err := d.weightVector(name, n)
	if err != nil {
		return err
	}
	pieces := o.n / n
	if n <= narrow {
		d.launch(d.kernels.base("norm_narrow"), blocksFor(pieces*32), 1, 1, threads, 0).
			Ptr(o.ptr).Ptr(x.ptr).Ptr(w).Int(n).Float(eps).Int(pieces)
		return nil
	}
	q := &quants{}
	if n == out.Shape[0] {
		if q, err = d.quantsFor(n, pieces); err != nil {
			return err
		}
	}
	a, b, sum := x.ptr, uint64(0), uint64(0)
	if terms, ok := d.takeAdd(x, o, pieces); ok {
		a, b, sum = terms[0], terms[1], x.ptr
	}
	d.launch(d.kernels.base("norm_wide"), pieces, 1, 1, min(512, roundUp(n, 32)), 32*4).
		Ptr(o.ptr).Ptr(a).Ptr(b).Ptr(sum).Ptr(w).Int(n).Float(eps).Ptr(q.q).Ptr(q.m).Int(supersOf(n))
	q.source = o
	return nil
}

// takeAdd takes back the addition that yields x if that was the last to be queued, and returns its terms:
// the norm that follows adds up by itself, and saves a launch. The result of the norm may lie where the
// terms were, but one row's must not lie where another row's terms are still to be read.
func (d *device) takeAdd(x, out value, rows int) (terms [2]uint64, ok bool) {
	q := &d.queue
	last := len(q.ops) - 1
	if last < 0 || last < d.recordings.start() {
		return terms, false
	}
	o := &q.ops[last]
	if o.Kind != driver.Launch || o.Fn != d.kernels.base("add").fn || o.Args[0] != x.ptr || o.Args[3] != uint64(x.n) {
		return terms, false
	}
	terms = [2]uint64{o.Args[1], o.Args[2]}
	size := 4 * uint64(x.n)
	for _, t := range terms {
		if rows > 1 && t != out.ptr && t < out.ptr+size && out.ptr < t+size {
			return terms, false
		}
	}
	q.ops, q.nodes = q.ops[:last], q.nodes[:last]
	return terms, true
}

func (d *device) softmax(in []backend.Operand, out backend.Operand) error {
	x, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	n := out.Shape[0]
	d.launch(d.kernels.base("softmax"), o.n/n, 1, 1, threads, 32*4).Ptr(o.ptr).Ptr(x.ptr).Int(n)
	return nil
}

// topKeys is the length of the pieces of a row.
const topKeys = 2048

func (d *device) topK(op graph.TopK, in []backend.Operand, out backend.Operand) error {
	if !bounds.Supports(op, graph.F32) {
		return backend.ErrUnsupported
	}
	x, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	o, err := d.memory.floats(out)
	if err != nil {
		return err
	}
	width, rows := in[0].Shape[0], in[0].Shape.Rows()
	if !vocabulary.TopFits(op, in[0].Shape, out.Shape) {
		return misshaped("%d of %d values of %v, result %v", op.K, op.Among, in[0].Shape, out.Shape)
	}
	pieces := (op.Among + topKeys - 1) / topKeys
	parts, err := d.room(scratchTop, 8*rows*pieces*op.K)
	if err != nil {
		return err
	}
	d.launch(d.kernels.base("top_parts"), rows, pieces, 1, threads, 8*topKeys).
		Ptr(parts).Ptr(x.ptr).Int(width).Int(op.Among).Int(op.K)
	d.launch(d.kernels.base("top_join"), rows, 1, 1, threads, 8*topKeys).
		Ptr(o.ptr).Ptr(x.ptr).Ptr(parts).Int(width).Int(pieces * op.K).Int(op.K)
	return nil
}

func (d *device) embed(op *graph.Embed, in []backend.Operand, out backend.Operand) error {
	table, err := d.weightMatrix(op.Weight, op.Type, op.Dim, op.Vocab)
	if err != nil {
		return err
	}
	ids, err := d.memory.ints(in[0])
	if err != nil {
		return err
	}
	o, err := d.memory.floats(out)
	if err != nil {
		return err
	}
	if out.Shape != graph.ShapeOf(op.Dim, ids.n) {
		return misshaped("%d ids, result %v", ids.n, out.Shape)
	}
	supers := supersOf(op.Dim)
	blockSize := threads
	if table.integer() {
		blockSize = min(threads, roundUp(supers, 32))
	}
	d.launch(table.embed, ids.n, 1, 1, blockSize, 0).
		Ptr(table.matrix.ptr).Ptr(ids.ptr).Ptr(o.ptr).Int(op.Dim).Int(supers).Int(op.Vocab).Ptr(d.fault.ptr).Int(d.site())
	return nil
}

func (d *device) getRows(in []backend.Operand, out backend.Operand) error {
	if t := out.Type; t != graph.F32 && t != graph.I32 {
		return backend.ErrUnsupported
	}
	x, err := d.memory.operand(in[0], out.Type)
	if err != nil {
		return err
	}
	ids, err := d.memory.ints(in[1])
	if err != nil {
		return err
	}
	o, err := d.memory.operand(out, out.Type)
	if err != nil {
		return err
	}
	width := in[0].Shape[0]
	if out.Shape != graph.ShapeOf(width, ids.n) {
		return misshaped("%d rows of %v, result %v", ids.n, in[0].Shape, out.Shape)
	}
	d.launch(d.kernels.base("get_rows"), ids.n, 1, 1, threads, 0).
		Ptr(o.ptr).Ptr(x.ptr).Ptr(ids.ptr).Int(width).Int(x.n / width).Ptr(d.fault.ptr).Int(d.site())
	return nil
}

func (d *device) permute(op *graph.Permute, in []backend.Operand, out backend.Operand) error {
	x, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	o, err := d.memory.floats(out)
	if err != nil {
		return err
	}
	stride := [4]int{1}
	for i := 1; i < 4; i++ {
		stride[i] = stride[i-1] * in[0].Shape[i-1]
	}
	var seen [4]bool
	for i, dim := range op.Dims {
		if dim < 0 || dim > 3 || seen[dim] || out.Shape[i] != in[0].Shape[dim] {
			return misshaped("%v as %v is not %v", in[0].Shape, op.Dims, out.Shape)
		}
		seen[dim] = true
	}
	c := d.launch(d.kernels.base("permute"), blocksFor(o.n), 1, 1, threads, 0).
		Ptr(o.ptr).Ptr(x.ptr).Ptr(uint64(o.n)).Int(out.Shape[0]).Int(out.Shape[1]).Int(out.Shape[2])
	for _, dim := range op.Dims {
		c.Ptr(uint64(stride[dim]))
	}
	return nil
}
