package cpu

import (
	"runtime/debug"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/vocabulary"
)

// Errors of operands. They come in a *backend.NodeError.
var (
	// ErrOperand: operands are too few, or have types and shapes that the operation
	// does not take.
	ErrOperand = vocabulary.ErrOperand
	// ErrOverlap: the result shares memory with a source in a way that the operation's
	// traits do not allow.
	ErrOverlap = vocabulary.ErrOverlap
	// ErrRange: a token id, row, position or cell is out of range.
	ErrRange = vocabulary.ErrRange
)

func misshaped(format string, args ...any) error { return vocabulary.Misshaped(format, args...) }

// workspace is what operations use and leave for the next: it grows to the largest
// need. The tasks are here so that handing one to the pool allocates nothing.
type workspace struct {
	acts    kernels.QActs
	joined  kernels.QActs // of gate and up
	last    *weight       // with which the last product of one token began
	floats  [2][]float32  // keys and values before they are stored
	k, v    kernels.KVRegion
	element elementTask
	norm    normTask
	softmax softmaxTask
	top     topTask
	embed   embedTask
	gather  gatherTask
	rotate  rotateTask
	quant   quantizeTask
	matMul  matMulTask
	ffn     ffnTask
	qkv     qkv
	store   storeTask
	heads   headsTask
	attend  attendTask
	merge   mergeTask
}

// Execute runs a node to its end. An error is a *backend.NodeError; unless it wraps
// a *backend.PanicError or is of a fault, nothing was written.
func (d *device) Execute(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) (err error) {
	if err := d.usable(); err != nil {
		return err
	}
	if err := d.guarded(n, in, out, kv); err != nil {
		return backend.NewNodeError(d.name, n, err)
	}
	return nil
}

func (d *device) guarded(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer d.keepPanic(&err)
	if n.Op == nil || int(n.Op.Kind()) >= vocabulary.Size {
		return backend.ErrUnsupported
	}
	t := n.Op.Kind().Traits()
	if len(in) < t.MinSources || len(in) > t.MaxSources {
		return misshaped("%d sources, want %d to %d", len(in), t.MinSources, t.MaxSources)
	}
	if t.Alias || t.Region && !t.Stores || n.Op.Kind() == graph.KindInput {
		return nil
	}
	if err := vocabulary.CheckOverlap(t, in, out); err != nil {
		return err
	}
	if err := d.dispatch(n.Op, in, out, kv); err != nil {
		if d.pool.failure != nil {
			d.failure = d.pool.failure
		}
		return err
	}
	return nil
}

func (d *device) dispatch(op graph.Op, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	switch op := op.(type) {
	case graph.Embed:
		return d.embed(&op, in, out)
	case graph.GetRows:
		return d.getRows(in, out)
	case graph.Add, graph.Mul, graph.SwiGLU:
		return d.binary(op.Kind(), in, out)
	case graph.Scale:
		return d.unary(graph.KindScale, op.Factor, in, out)
	case graph.Silu, graph.Gelu:
		return d.unary(op.Kind(), 0, in, out)
	case graph.Softmax:
		return d.softmax(in, out)
	case graph.TopK:
		return d.topK(op, in, out)
	case graph.RMSNorm:
		return d.norm(op.Weight, out.Shape[0], op.Eps, in, out)
	case graph.QKNorm:
		if op.HeadDim <= 0 || op.Heads*op.HeadDim != out.Shape[0] {
			return misshaped("%d heads of %d in rows of %d", op.Heads, op.HeadDim, out.Shape[0])
		}
		return d.norm(op.Weight, op.HeadDim, op.Eps, in, out)
	case graph.MatMul:
		return d.matMul(&op, in, out)
	case graph.RoPE:
		return d.rope(op, in, out)
	case graph.KVStore:
		return d.kvStore(in, kv)
	case graph.Attention:
		return d.attention(&op, in, out, kv)
	case graph.Permute:
		return d.permute(&op, in, out)
	case graph.FusedQKV:
		d.work.qkv = qkv{m: [3]graph.MatMul{op.Q, op.K, op.V}, rope: op.RoPE, kvHeads: op.KVHeads}
		return d.fusedQKV(&d.work.qkv, in, out, kv)
	case graph.FusedQKVNorm:
		d.work.qkv = qkv{m: [3]graph.MatMul{op.Q, op.K, op.V}, rope: op.RoPE, kvHeads: op.KVHeads,
			normed: true, qNorm: op.QNorm, kNorm: op.KNorm, eps: op.Eps}
		return d.fusedQKV(&d.work.qkv, in, out, kv)
	case graph.QKVBiasRopeStore:
		return d.qkvBiasRopeStore(&op, in, out, kv)
	case graph.FusedFFN:
		return d.fusedFFN(&op, in, out)
	case graph.FusedFFNDown:
		return d.fusedFFNDown(&op, in, out)
	}
	return backend.ErrUnsupported
}

// pair returns the values of a source and of the result, which have the same size.
func (d *device) pair(x, out backend.Operand) (xs, os []float32, err error) {
	if xs, err = d.memory.floats(x); err != nil {
		return nil, nil, err
	}
	if os, err = d.memory.floats(out); err != nil {
		return nil, nil, err
	}
	if x.Shape != out.Shape {
		return nil, nil, misshaped("source %v, result %v", x.Shape, out.Shape)
	}
	return xs, os, nil
}
