//go:build cgo && (darwin || metalemu)

package metal

import (
	"strings"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/vocabulary"
)

// Errors of operands. They come in a *backend.NodeError.
var (
	// ErrOperand: operands are too few, or have types and shapes that the operation does not take.
	ErrOperand = vocabulary.ErrOperand
	// ErrOverlap: the result shares memory with a source in a way that the operation's traits do not allow.
	ErrOverlap = vocabulary.ErrOverlap
	// ErrRange: a token id, row, position or cell is out of range.
	ErrRange = vocabulary.ErrRange
)

func misshaped(format string, args ...any) error { return vocabulary.Misshaped(format, args...) }

// node is an operation that is being encoded.
type node struct {
	*device
	name string
	in   []backend.Operand
	out  backend.Operand
	kv   *backend.KV
}

// Execute encodes a node. What it can check without the device's results it has checked when it returns: an error is a
// *backend.NodeError, and nothing of the node will run.
func (d *device) Execute(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if err := d.usable(); err != nil {
		return err
	}
	if err := d.execute(n, in, out, kv); err != nil {
		return backend.NewNodeError(d.name, n, err)
	}
	return nil
}

func (d *device) execute(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if n.Op == nil || int(n.Op.Kind()) >= vocabulary.Size {
		return backend.ErrUnsupported
	}
	t := n.Op.Kind().Traits()
	if len(in) < t.MinSources || len(in) > t.MaxSources {
		return misshaped("%d sources, want %d to %d", len(in), t.MinSources, t.MaxSources)
	}
	if !graph.Computed(n.Op) {
		return nil
	}
	if err := vocabulary.CheckOverlap(t, in, out); err != nil {
		return err
	}
	e := node{d, n.Name, in, out, kv}
	switch op := n.Op.(type) {
	case graph.Embed:
		return e.embed(&op)
	case graph.GetRows:
		return e.getRows()
	case graph.Add:
		return e.binary("add")
	case graph.Mul:
		return e.binary("mul")
	case graph.SwiGLU:
		return e.binary("swiglu")
	case graph.Scale:
		return e.unary("scale", op.Factor)
	case graph.Silu:
		return e.unary("silu", 0)
	case graph.Gelu:
		return e.unary("gelu", 0)
	case graph.Softmax:
		return e.softmax()
	case graph.TopK:
		return e.topK(op)
	case graph.RMSNorm:
		return e.norm(op.Weight, out.Shape[0], op.Eps)
	case graph.QKNorm:
		if op.HeadDim <= 0 || op.Heads*op.HeadDim != out.Shape[0] {
			return misshaped("%d heads of %d in rows of %d", op.Heads, op.HeadDim, out.Shape[0])
		}
		return e.norm(op.Weight, op.HeadDim, op.Eps)
	case graph.MatMul:
		return e.matMul(&op)
	case graph.RoPE:
		return e.rope(&op)
	case graph.KVStore:
		return e.kvStore()
	case graph.Attention:
		return e.attention(&op)
	case graph.Permute:
		return e.permute(&op)
	case graph.FusedQKV:
		return e.fusedQKV(&qkv{m: [3]graph.MatMul{op.Q, op.K, op.V}, rope: op.RoPE, kvHeads: op.KVHeads})
	case graph.FusedQKVNorm:
		return e.fusedQKV(&qkv{m: [3]graph.MatMul{op.Q, op.K, op.V}, rope: op.RoPE, kvHeads: op.KVHeads,
			normed: true, qNorm: op.QNorm, kNorm: op.KNorm, eps: op.Eps})
	case graph.QKVBiasRopeStore:
		return e.qkvBiasRopeStore(&op)
	case graph.FusedFFN:
		return e.fusedFFN(&op)
	}
	return backend.ErrUnsupported
}

// run adds a dispatch.
func (e *node) run(d dispatch) error {
	d.node = e.name
	for _, r := range d.writes {
		e.acts.forget(r)
	}
	return e.queue.add(&d)
}

func (e *node) floats(o backend.Operand) (region, error) { return e.memory.operand(o, graph.F32) }

// pair returns a source and the result, which have the same shape.
func (e *node) pair(x backend.Operand) (xs, os region, err error) {
	if xs, err = e.floats(x); err != nil {
		return xs, os, err
	}
	if os, err = e.floats(e.out); err != nil {
		return xs, os, err
	}
	if x.Shape != e.out.Shape {
		return xs, os, misshaped("source %v, result %v", x.Shape, e.out.Shape)
	}
	return xs, os, nil
}

// ints returns integers with what they are, for the host to check. They are inputs as a rule, which nothing has to be
// waited for to see.
func (e *node) ints(o backend.Operand) (region, []int32, error) {
	r, err := e.memory.operand(o, graph.I32)
	if err != nil {
		return r, nil, err
	}
	if err := e.settle(r, false); err != nil {
		return r, nil, err
	}
	return r, elementsOf[int32](r.bytes()), nil
}

// tokenInts is ints of which there have to be n.
func (e *node) tokenInts(what string, o backend.Operand, n int) (region, []int32, error) {
	r, ints, err := e.ints(o)
	if err == nil && len(ints) != n {
		err = misshaped("%d %s, want %d", len(ints), what, n)
	}
	return r, ints, err
}

// Threads of a threadgroup, for kernels that take any number.
const elementThreads = 256

func ceil(n, d int) int { return (n + d - 1) / d }

// rowThreads is how many threads share a row or head. The results depend on it, so it depends on nothing but the width.
func rowThreads(width int) int {
	if width <= 256 {
		return 32
	}
	return 256
}

// groupFloats is the threadgroup memory of a sum over threads.
const groupFloats = 8 * 4

type elementArgs struct {
	n      uint32
	factor float32
}

func (e *node) binary(kernel string) error {
	x, out, err := e.pair(e.in[0])
	if err != nil {
		return err
	}
	y, _, err := e.pair(e.in[1])
	if err != nil {
		return err
	}
	return e.elements(kernel, x, y, out, 0)
}

func (e *node) unary(kernel string, factor float32) error {
	x, out, err := e.pair(e.in[0])
	if err != nil {
		return err
	}
	return e.elements(kernel, x, x, out, factor)
}

func (e *node) elements(kernel string, x, y, out region, factor float32) error {
	n := out.size / 4
	args := elementArgs{uint32(n), factor}
	return e.run(dispatch{
		kernel: kernel, groups: [3]int{ceil(n, elementThreads), 1, 1}, threads: elementThreads,
		reads: []region{x, y}, writes: []region{out}, args: bytesOf(&args),
	})
}

type normArgs struct {
	n        uint32
	eps      float32
	weighted uint32
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func (e *node) norm(weight string, width int, eps float32) error {
	x, out, err := e.pair(e.in[0])
	if err != nil {
		return err
	}
	w, err := e.vector(weight, width, x)
	if err != nil {
		return err
	}
	args := normArgs{uint32(width), eps, flag(weight != "")}
	return e.run(dispatch{
		kernel: "norm", groups: [3]int{out.size / 4 / width, 1, 1}, threads: rowThreads(width), shared: [2]int{groupFloats},
		reads: []region{x, w}, writes: []region{out}, args: bytesOf(&args),
	})
}

type rowsArgs struct{ width, rows uint32 }

func (e *node) softmax() error {
	x, out, err := e.pair(e.in[0])
	if err != nil {
		return err
	}
	width, rows := e.out.Shape[0], e.out.Shape.Rows()
	args := rowsArgs{uint32(width), uint32(rows)}
	return e.run(dispatch{
		kernel: "softmax", groups: [3]int{rows, 1, 1}, threads: rowThreads(width), shared: [2]int{groupFloats},
		reads: []region{x}, writes: []region{out}, args: bytesOf(&args),
	})
}

type topArgs struct{ width, among, k, pieces uint32 }

func (e *node) topK(op graph.TopK) error {
	if !bounds.Supports(op, graph.F32) {
		return backend.ErrUnsupported
	}
	x, err := e.floats(e.in[0])
	if err != nil {
		return err
	}
	out, err := e.floats(e.out)
	if err != nil {
		return err
	}
	width, rows := e.in[0].Shape[0], e.in[0].Shape.Rows()
	if !vocabulary.TopFits(op, e.in[0].Shape, e.out.Shape) {
		return misshaped("%d of %d values of %v, result %v", op.K, op.Among, e.in[0].Shape, e.out.Shape)
	}
	pieces := (op.Among + topKeys - 1) / topKeys
	parts, err := e.scratchOf(scratchTop, 8*rows*pieces*op.K)
	if err != nil {
		return err
	}
	args := topArgs{uint32(width), uint32(op.Among), uint32(op.K), uint32(pieces)}
	d := dispatch{
		kernel: "top_parts", groups: [3]int{rows, pieces, 1}, threads: topThreads, shared: [2]int{8 * topKeys},
		reads: []region{x}, writes: []region{parts}, args: bytesOf(&args),
	}
	if err := e.run(d); err != nil {
		return err
	}
	d.kernel, d.groups[1] = "top_join", 1
	d.reads, d.writes = []region{x, parts}, []region{out}
	return e.run(d)
}

type embedArgs struct{ dim, rowBytes uint32 }

func (e *node) embed(op *graph.Embed) error {
	table, err := e.matrix(op.Weight, op.Type, op.Dim, op.Vocab)
	if err != nil {
		return err
	}
	ids, list, err := e.ints(e.in[0])
	if err != nil {
		return err
	}
	out, err := e.floats(e.out)
	if err != nil {
		return err
	}
	if e.out.Shape != graph.ShapeOf(op.Dim, len(list)) {
		return misshaped("%d ids, result %v", len(list), e.out.Shape)
	}
	if err := vocabulary.CheckIndex("id", list, op.Vocab); err != nil {
		return err
	}
	columns := op.Dim
	if !isFloat(op.Type) {
		columns /= 32
	}
	args := embedArgs{uint32(op.Dim), uint32(table.rowBytes)}
	return e.run(dispatch{
		kernel: "embed_" + kernelSuffix(op.Type), groups: [3]int{ceil(columns, 64), len(list), 1}, threads: 64,
		reads: []region{table.rowsOf(), ids}, writes: []region{out}, args: bytesOf(&args),
	})
}

// kernelSuffix is how a format is called in the names of kernels.
func kernelSuffix(format string) string { return strings.ToLower(format) }

func isFloat(format string) bool { return format == "F32" || format == "F16" || format == "BF16" }

func (e *node) getRows() error {
	t := e.out.Type
	if t != graph.F32 && t != graph.I32 {
		return backend.ErrUnsupported
	}
	x, err := e.memory.operand(e.in[0], t)
	if err != nil {
		return err
	}
	ids, list, err := e.ints(e.in[1])
	if err != nil {
		return err
	}
	out, err := e.memory.operand(e.out, t)
	if err != nil {
		return err
	}
	width := e.in[0].Shape[0]
	if e.out.Shape != graph.ShapeOf(width, len(list)) {
		return misshaped("%d rows of %v, result %v", len(list), e.in[0].Shape, e.out.Shape)
	}
	if err := vocabulary.CheckIndex("row", list, e.in[0].Shape.Rows()); err != nil {
		return err
	}
	args := rowsArgs{uint32(width), uint32(len(list))}
	return e.run(dispatch{
		kernel: "get_rows", groups: [3]int{ceil(width, elementThreads), len(list), 1}, threads: elementThreads,
		reads: []region{x, ids}, writes: []region{out}, args: bytesOf(&args),
	})
}

type permuteArgs struct {
	n      uint32
	shape  [3]uint32
	stride [4]uint32
}

func (e *node) permute(op *graph.Permute) error {
	x, err := e.floats(e.in[0])
	if err != nil {
		return err
	}
	out, err := e.floats(e.out)
	if err != nil {
		return err
	}
	from := e.in[0].Shape
	strides := [4]int{1, from[0], from[0] * from[1], from[0] * from[1] * from[2]}
	args := permuteArgs{n: uint32(out.size / 4)}
	var seen [4]bool
	for i, dim := range op.Dims {
		if dim < 0 || dim > 3 || seen[dim] || e.out.Shape[i] != from[dim] {
			return misshaped("%v as %v is not %v", from, op.Dims, e.out.Shape)
		}
		seen[dim] = true
		args.stride[i] = uint32(strides[dim])
		if i < 3 {
			args.shape[i] = uint32(e.out.Shape[i])
		}
	}
	return e.run(dispatch{
		kernel: "permute", groups: [3]int{ceil(int(args.n), elementThreads), 1, 1}, threads: elementThreads,
		reads: []region{x}, writes: []region{out}, args: bytesOf(&args),
	})
}
