package cpu

import (
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/quant"
)

// numKinds is the size of the vocabulary.
var numKinds = len(graph.Kinds())

// supports says which operations the device runs.
func supports(op graph.Op, t graph.DType) bool {
	switch op.(type) {
	case graph.Input, graph.View, graph.Reshape:
		return true
	case graph.GetRows:
		return t == graph.F32 || t == graph.I32
	case graph.KVLoad:
		return t == graph.F16 || t == graph.F32
	}
	if t != graph.F32 {
		return false
	}
	switch op := op.(type) {
	case graph.Add, graph.Mul, graph.Scale, graph.Silu, graph.Gelu, graph.SwiGLU, graph.Softmax,
		graph.RMSNorm, graph.Permute, graph.KVStore:
		return true
	case graph.TopK:
		return op.K > 0 && op.Among > 0 && op.Among <= graph.MaxAmong
	case graph.QKNorm:
		return op.Heads > 0 && op.HeadDim > 0
	case graph.Embed:
		return supportsWeight(op.Type, op.Dim, op.Vocab)
	case graph.MatMul:
		return supportsMatMul(op)
	case graph.RoPE:
		return supportsRoPE(op)
	case graph.Attention:
		return supportsAttention(op)
	case graph.FusedQKV:
		return supportsMatMul(op.Q) && supportsMatMul(op.K) && supportsMatMul(op.V) && supportsRoPE(op.RoPE)
	case graph.FusedQKVNorm:
		return supportsMatMul(op.Q) && supportsMatMul(op.K) && supportsMatMul(op.V) && supportsRoPE(op.RoPE)
	case graph.QKVBiasRopeStore:
		return supportsRoPE(op.RoPE) && op.KVHeads > 0
	case graph.FusedFFN:
		return supportsMatMul(op.Gate) && supportsMatMul(op.Up)
	}
	return false
}

func supportsMatMul(m graph.MatMul) bool { return supportsWeight(m.Type, m.In, m.Out) }

func supportsWeight(format string, in, out int) bool {
	f, err := quant.Lookup(format)
	if err != nil || in <= 0 || out <= 0 || in%f.Block != 0 {
		return false
	}
	return f.Group == 0 || in%kernels.BlockSize == 0
}

func supportsRoPE(r graph.RoPE) bool {
	_, err := kernels.NewRoPE(ropeParams(r, nil))
	return err == nil && r.Style <= graph.RoPEHalves && r.Heads > 0 && r.Dim <= r.HeadDim
}

// supportsAttention leaves out a window over full attention, which the graph gives
// no meaning.
func supportsAttention(a graph.Attention) bool {
	return a.Heads > 0 && a.KVHeads > 0 && a.HeadDim > 0 && a.Heads%a.KVHeads == 0 &&
		(a.Mode == graph.Causal || a.Mode == graph.Full && a.ExplicitSpan && a.Window == 0)
}
