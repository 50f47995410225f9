//go:build cuda

package cuda

import (
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/vocabulary"
)

// Errors of operands. They come in a *backend.NodeError.
var (
	// ErrOperand: operands are too few, or have types and shapes that the operation does not take.
	ErrOperand = vocabulary.ErrOperand
	// ErrOverlap: the result shares memory with a source in a way that the operation's traits
	// do not allow.
	ErrOverlap = vocabulary.ErrOverlap
)

func misshaped(format string, args ...any) error { return vocabulary.Misshaped(format, args...) }

// Execute checks a node and queues its work. An error is a *backend.NodeError, after which
// nothing depends on what the node has queued.
func (d *device) Execute(n *graph.Node, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if err := d.usable(); err != nil {
		return err
	}
	d.queue.node = n
	err := d.check(n, in, out)
	if err == nil {
		err = d.dispatch(n.Op, in, out, kv)
	}
	d.queue.node = nil
	if err != nil {
		d.recordings.current = nil
		return backend.NewNodeError(d.name, n, err)
	}
	if len(d.queue.ops) >= handOver && d.recordings.current == nil {
		return d.do(d.flush)
	}
	return nil
}

func (d *device) check(n *graph.Node, in []backend.Operand, out backend.Operand) error {
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
	if t.Region {
		return nil
	}
	at, err := d.memory.operand(out, out.Type)
	if err == nil {
		d.wrote(at.ptr, 4*at.n)
	}
	return err
}

func (d *device) dispatch(op graph.Op, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	switch op := op.(type) {
	case graph.Input, graph.View, graph.Reshape, graph.KVLoad:
		return nil
	case graph.Embed:
		return d.embed(&op, in, out)
	case graph.GetRows:
		return d.getRows(in, out)
	case graph.Add:
		return d.binary("add", in, out)
	case graph.Mul:
		return d.binary("mul", in, out)
	case graph.SwiGLU:
		return d.swiglu(in, out)
	case graph.Scale:
		return d.scale(op.Factor, in, out)
	case graph.Silu:
		return d.unary("silu", in, out)
	case graph.Gelu:
		return d.unary("gelu", in, out)
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
		return d.fusedQKV(&qkv{m: [3]graph.MatMul{op.Q, op.K, op.V}, rope: op.RoPE, kvHeads: op.KVHeads}, in, out, kv)
	case graph.FusedQKVNorm:
		return d.fusedQKV(&qkv{m: [3]graph.MatMul{op.Q, op.K, op.V}, rope: op.RoPE, kvHeads: op.KVHeads,
			normed: true, qNorm: op.QNorm, kNorm: op.KNorm, eps: op.Eps}, in, out, kv)
	case graph.QKVBiasRopeStore:
		return d.qkvBiasRopeStore(&op, in, out, kv)
	case graph.FusedFFN:
		return d.fusedFFN(&op, in, out)
	}
	return backend.ErrUnsupported
}

// pair returns the values of a source and of the result, which have the same size.
func (d *device) pair(x, out backend.Operand) (xs, os value, err error) {
	if xs, err = d.memory.floats(x); err != nil {
		return xs, os, err
	}
	if os, err = d.memory.floats(out); err != nil {
		return xs, os, err
	}
	if x.Shape != out.Shape {
		return xs, os, misshaped("source %v, result %v", x.Shape, out.Shape)
	}
	return xs, os, nil
}
