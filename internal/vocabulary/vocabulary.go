// Package vocabulary says what the operations of package graph ask of a device that runs all of them, and checks the
// operands that such a device is given. In what they run these devices differ in bounds alone: what a kernel has room for.
package vocabulary

import (
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/quant"
)

// Size is the number of kinds of operations.
var Size = len(graph.Kinds())

// Bounds are the most that a device has room for. math.MaxInt is no bound.
type Bounds struct {
	Row    int // values in a row of a weight
	Rows   int // rows of a weight
	Head   int // width of a head in attention
	Finish int // width of a head where projections are normed, rotated and stored by one kernel
	Top    int // values that TopK finds; 0 for a device without it
}

// Supports says whether a device within the bounds runs an operation that gives values of a type.
func (b *Bounds) Supports(op graph.Op, t graph.DType) bool {
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
		return op.K > 0 && op.K <= b.Top && op.Among > 0 && op.Among <= graph.MaxAmong
	case graph.QKNorm:
		return op.Heads > 0 && op.HeadDim > 0
	case graph.Embed:
		return b.weight(op.Type, op.Dim, op.Vocab)
	case graph.MatMul:
		return b.products(op)
	case graph.RoPE:
		return rotates(op)
	case graph.Attention:
		return b.Attention(op)
	case graph.FusedQKV:
		return b.products(op.Q, op.K, op.V) && b.finishes(op.RoPE, op.KVHeads)
	case graph.FusedQKVNorm:
		return b.products(op.Q, op.K, op.V) && b.finishes(op.RoPE, op.KVHeads)
	case graph.QKVBiasRopeStore:
		return b.finishes(op.RoPE, op.KVHeads)
	case graph.FusedFFN:
		return b.products(op.Gate, op.Up)
	}
	return false
}

// Attention says whether a device runs an attention. A window over full attention has no meaning.
func (b *Bounds) Attention(a graph.Attention) bool {
	return a.Heads > 0 && a.KVHeads > 0 && a.HeadDim > 0 && a.HeadDim <= b.Head && a.Heads%a.KVHeads == 0 && a.Window >= 0 &&
		(a.Mode == graph.Causal || a.Mode == graph.Full && a.ExplicitSpan && a.Window == 0)
}

// TopFits says whether rows and a result have the shapes of a TopK.
func TopFits(op graph.TopK, rows, result graph.Shape) bool {
	return op.Among <= rows[0] && result == graph.ShapeOf(2*op.K, rows.Rows())
}

func (b *Bounds) products(products ...graph.MatMul) bool {
	for _, m := range products {
		if !b.weight(m.Type, m.In, m.Out) {
			return false
		}
	}
	return true
}

func (b *Bounds) weight(format string, in, out int) bool {
	f, err := quant.Lookup(format)
	if err != nil || in <= 0 || in > b.Row || out <= 0 || out > b.Rows || in%f.Block != 0 {
		return false
	}
	return f.Group == 0 || in%kernels.BlockSize == 0
}

func (b *Bounds) finishes(r graph.RoPE, kvHeads int) bool {
	return rotates(r) && kvHeads > 0 && r.HeadDim <= b.Finish
}

func rotates(r graph.RoPE) bool {
	_, err := kernels.NewRoPE(RoPE(r, nil))
	return err == nil && r.Style <= graph.RoPEHalves && r.Heads > 0 && r.Dim <= r.HeadDim
}

// RoPE returns what a rotation is in numbers. Factors are nil, or divide the angles: one for each pair of features.
func RoPE(r graph.RoPE, factors []float32) kernels.RoPEParams {
	return kernels.RoPEParams{
		Dim: r.Dim, Base: r.Base, Scale: r.Scale, Factors: factors,
		ExtFactor: r.ExtFactor, AttnFactor: r.AttnFactor,
		BetaFast: r.BetaFast, BetaSlow: r.BetaSlow, OrigContext: r.OrigContext,
	}
}
