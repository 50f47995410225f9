//go:build cuda

package cuda

import (
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/quant"
)

const (
	// maxIn is the longest row of a weight whose sums find room in shared memory.
	maxIn = 1 << 16
	// maxHeadDim is the longest head that attention has room for.
	maxHeadDim = 256
	// maxTop is the most that TopK finds: half of the keys of kernels/top.cu.
	maxTop = topKeys / 2
	// maxPositions bounds positions to what angles are computed for with full precision.
	maxPositions = 1 << 20
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
		return supportsTopK(op)
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
		return supportsMatMul(op.Q) && supportsMatMul(op.K) && supportsMatMul(op.V) && supportsFinish(op.RoPE, op.KVHeads)
	case graph.FusedQKVNorm:
		return supportsMatMul(op.Q) && supportsMatMul(op.K) && supportsMatMul(op.V) && supportsFinish(op.RoPE, op.KVHeads)
	case graph.QKVBiasRopeStore:
		return supportsFinish(op.RoPE, op.KVHeads)
	case graph.FusedFFN:
		return supportsMatMul(op.Gate) && supportsMatMul(op.Up)
	}
	return false
}

func supportsMatMul(m graph.MatMul) bool { return supportsWeight(m.Type, m.In, m.Out) }

func supportsWeight(format string, in, out int) bool {
	f, err := quant.Lookup(format)
	if err != nil || in <= 0 || in > maxIn || out <= 0 || in%f.Block != 0 {
		return false
	}
	return f.Group == 0 || in%kernels.BlockSize == 0
}

func supportsTopK(op graph.TopK) bool {
	return op.K > 0 && op.K <= maxTop && op.Among > 0 && op.Among <= graph.MaxAmong
}

func supportsRoPE(r graph.RoPE) bool {
	_, err := kernels.NewRoPE(ropeParams(r, nil))
	return err == nil && r.Style <= graph.RoPEHalves && r.Heads > 0 && r.Dim <= r.HeadDim
}

// supportsFinish says whether a head finds room in the kernel that finishes projections.
func supportsFinish(r graph.RoPE, kvHeads int) bool {
	return supportsRoPE(r) && kvHeads > 0 && r.HeadDim <= maxHeadDim
}

// supportsAttention leaves out a window over full attention, which the graph gives no meaning.
func supportsAttention(a graph.Attention) bool {
	return a.Heads > 0 && a.KVHeads > 0 && a.HeadDim > 0 && a.HeadDim <= maxHeadDim && a.Heads%a.KVHeads == 0 && a.Window >= 0 &&
		(a.Mode == graph.Causal || a.Mode == graph.Full && a.ExplicitSpan && a.Window == 0)
}

func ropeParams(r graph.RoPE, factors []float32) kernels.RoPEParams {
	return kernels.RoPEParams{
		Dim: r.Dim, Base: r.Base, Scale: r.Scale, Factors: factors,
		ExtFactor: r.ExtFactor, AttnFactor: r.AttnFactor,
		BetaFast: r.BetaFast, BetaSlow: r.BetaSlow, OrigContext: r.OrigContext,
	}
}
