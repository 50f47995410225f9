package metal

import (
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/quant"
)

var capabilities = backend.Capabilities{
	Supports:     supports,
	ExplicitSpan: true,
	PackedKV:     true,
}

func init() {
	backend.Register(backend.Entry{
		Name:         "metal",
		ID:           backend.Metal,
		Priority:     backend.PriorityMetal,
		Available:    available,
		Capabilities: &capabilities,
		Open:         open,
	})
}

const (
	// widestHead is the widest head that attention has a kernel for.
	widestHead = 256
	// widestFinish is the widest head that fits the memory of a threadgroup.
	widestFinish = 4096
	// maxIndex bounds what kernels count in 32 bits.
	maxIndex = 1 << 31
)

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
		return supportsMatMul(op.Q) && supportsMatMul(op.K) && supportsMatMul(op.V) && supportsFinish(op.RoPE)
	case graph.FusedQKVNorm:
		return supportsMatMul(op.Q) && supportsMatMul(op.K) && supportsMatMul(op.V) && supportsFinish(op.RoPE)
	case graph.QKVBiasRopeStore:
		return supportsFinish(op.RoPE) && op.KVHeads > 0
	case graph.FusedFFN:
		return supportsMatMul(op.Gate) && supportsMatMul(op.Up)
	}
	return false
}

func supportsMatMul(m graph.MatMul) bool { return supportsWeight(m.Type, m.In, m.Out) }

func supportsWeight(format string, in, out int) bool {
	f, err := quant.Lookup(format)
	if err != nil || in <= 0 || out <= 0 || in >= maxIndex || out >= maxIndex || in%f.Block != 0 {
		return false
	}
	return f.Group == 0 || in%kernels.BlockSize == 0
}

func supportsRoPE(r graph.RoPE) bool {
	_, err := kernels.NewRoPE(ropeParams(r, nil))
	return err == nil && r.Style <= graph.RoPEHalves && r.Heads > 0 && r.Dim <= r.HeadDim
}

func supportsFinish(r graph.RoPE) bool { return supportsRoPE(r) && r.HeadDim <= widestFinish }

// supportsAttention leaves out a window over full attention, which the graph gives no meaning.
func supportsAttention(a graph.Attention) bool {
	return a.Heads > 0 && a.KVHeads > 0 && a.HeadDim > 0 && a.HeadDim <= widestHead && a.Heads%a.KVHeads == 0 &&
		(a.Mode == graph.Causal || a.Mode == graph.Full && a.ExplicitSpan && a.Window == 0)
}

func ropeParams(r graph.RoPE, factors []float32) kernels.RoPEParams {
	return kernels.RoPEParams{
		Dim: r.Dim, Base: r.Base, Scale: r.Scale, Factors: factors,
		ExtFactor: r.ExtFactor, AttnFactor: r.AttnFactor,
		BetaFast: r.BetaFast, BetaSlow: r.BetaSlow, OrigContext: r.OrigContext,
	}
}
