package graph

import "fmt"

// infer returns the shape and type of a node's value from its operation and its
// sources, or what is wrong with them. A node whose operation does not settle the
// shape (Input, KVLoad) brings it along. The number of sources has been checked.
func infer(n *Node, src []*Node) (Shape, DType, error) {
	shape, dtype, err := inferOp(n, src)
	if err != nil {
		return Shape{}, 0, err
	}
	if err := shape.check(); err != nil {
		return Shape{}, 0, n.errorf("%v", err)
	}
	return shape, dtype, nil
}

func inferOp(n *Node, src []*Node) (Shape, DType, error) {
	fail := func(format string, args ...any) (Shape, DType, error) {
		return Shape{}, 0, n.errorf(format, args...)
	}
	switch op := n.Op.(type) {
	case Input:
		return n.Shape, n.Type, nil

	case Embed:
		if err := wantInts(src[0], "ids", src[0].Shape.Elements()); err != nil {
			return fail("%v", err)
		}
		if op.Dim <= 0 || op.Vocab <= 0 {
			return fail("table of %d rows of %d values", op.Vocab, op.Dim)
		}
		return ShapeOf(op.Dim, src[0].Shape.Elements()), F32, nil

	case GetRows:
		if err := wantInts(src[1], "ids", src[1].Shape.Elements()); err != nil {
			return fail("%v", err)
		}
		return ShapeOf(src[0].Shape[0], src[1].Shape.Elements()), src[0].Type, nil

	case Add, Mul, SwiGLU:
		if src[0].Shape != src[1].Shape {
			return fail("sources %v and %v differ", src[0].Shape, src[1].Shape)
		}
		if src[0].Type != F32 || src[1].Type != F32 {
			return fail("sources are %v and %v, want F32", src[0].Type, src[1].Type)
		}
		return src[0].Shape, F32, nil

	case Scale, Silu, Gelu, Softmax, RMSNorm:
		if src[0].Type != F32 {
			return fail("source is %v, want F32", src[0].Type)
		}
		return src[0].Shape, F32, nil

	case QKNorm:
		if err := wantFeatures(src[0], "source", product(op.Heads, op.HeadDim)); err != nil {
			return fail("%d heads of %d: %v", op.Heads, op.HeadDim, err)
		}
		return src[0].Shape, F32, nil

	case MatMul:
		if err := checkMatMul(op, src[0]); err != nil {
			return fail("%v", err)
		}
		return ShapeOf(op.Out, src[0].Shape.Rows()), F32, nil

	case RoPE:
		if err := checkRoPE(op, src[0], src[1]); err != nil {
			return fail("%v", err)
		}
		return src[0].Shape, F32, nil

	case KVStore:
		if src[0].Shape != src[1].Shape {
			return fail("keys %v and values %v differ", src[0].Shape, src[1].Shape)
		}
		if src[0].Type != F32 || src[1].Type != F32 {
			return fail("keys are %v and values %v, want F32", src[0].Type, src[1].Type)
		}
		if err := wantInts(src[2], "cells", src[0].Shape.Rows()); err != nil {
			return fail("%v", err)
		}
		return src[0].Shape, F32, nil

	case KVLoad:
		layer, width, ok := StoreOf(src[0])
		if !ok || layer != op.Layer {
			return fail("source %q does not store layer %d", src[0].Name, op.Layer)
		}
		if n.Shape != ShapeOf(width, n.Shape[1]) {
			return fail("region %v for rows of %d", n.Shape, width)
		}
		if n.Type != F16 && n.Type != F32 {
			return fail("region of %v, want F16 or F32", n.Type)
		}
		return n.Shape, n.Type, nil

	case Attention:
		if err := checkAttention(op, src); err != nil {
			return fail("%v", err)
		}
		return src[0].Shape, F32, nil

	case View:
		if op.Shape.check() != nil || op.Offset < 0 || op.Offset > src[0].Shape.Elements()-op.Shape.Elements() {
			return fail("view %v at %d does not lie within %v", op.Shape, op.Offset, src[0].Shape)
		}
		if src[0].Type == Q8_0 && op.Offset%32 != 0 {
			return fail("view at %d begins within a block of 32", op.Offset)
		}
		return op.Shape, src[0].Type, nil

	case Reshape:
		if op.Shape.check() != nil || op.Shape.Elements() != src[0].Shape.Elements() {
			return fail("%v cannot become %v", src[0].Shape, op.Shape)
		}
		return op.Shape, src[0].Type, nil

	case Permute:
		var out Shape
		var seen [4]bool
		for i, d := range op.Dims {
			if d < 0 || d > 3 || seen[d] {
				return fail("%v is no order of four dimensions", op.Dims)
			}
			seen[d] = true
			out[i] = src[0].Shape[d]
		}
		return out, src[0].Type, nil

	case FusedQKV:
		if err := checkQKV(op.Q, op.K, op.V, op.RoPE, op.KVHeads, src); err != nil {
			return fail("%v", err)
		}
		return ShapeOf(op.Q.Out, src[0].Shape.Rows()), F32, nil

	case FusedQKVNorm:
		if err := checkQKV(op.Q, op.K, op.V, op.RoPE, op.KVHeads, src); err != nil {
			return fail("%v", err)
		}
		return ShapeOf(op.Q.Out, src[0].Shape.Rows()), F32, nil

	case QKVBiasRopeStore:
		if err := checkRoPE(op.RoPE, src[0], src[3]); err != nil {
			return fail("queries: %v", err)
		}
		for i, name := range []string{"keys", "values"} {
			if err := wantFeatures(src[1+i], name, product(op.KVHeads, op.RoPE.HeadDim)); err != nil {
				return fail("%v", err)
			}
			if src[1+i].Shape.Rows() != src[0].Shape.Rows() {
				return fail("%s %v for queries %v", name, src[1+i].Shape, src[0].Shape)
			}
		}
		if err := wantInts(src[4], "cells", src[0].Shape.Rows()); err != nil {
			return fail("%v", err)
		}
		return src[0].Shape, F32, nil

	case FusedFFN:
		if err := checkFFN(op.Gate, op.Up, src[0]); err != nil {
			return fail("%v", err)
		}
		return ShapeOf(op.Gate.Out, src[0].Shape.Rows()), F32, nil

	case FusedFFNDown:
		if err := checkFFN(op.Gate, op.Up, src[0]); err != nil {
			return fail("%v", err)
		}
		if err := checkGiven(op.Down); err != nil {
			return fail("%v", err)
		}
		if op.Down.In != op.Gate.Out {
			return fail("gate and up yield rows of %d features: weight %q takes rows of %d", op.Gate.Out, op.Down.Weight, op.Down.In)
		}
		return ShapeOf(op.Down.Out, src[0].Shape.Rows()), F32, nil

	case TopK:
		if src[0].Type != F32 {
			return fail("source is %v, want F32", src[0].Type)
		}
		if op.K <= 0 || op.K > MaxAmong || op.Among <= 0 || op.Among > min(src[0].Shape[0], MaxAmong) {
			return fail("%d of the first %d values of rows of %d, want at least 1 of at most %d", op.K, op.Among, src[0].Shape[0], MaxAmong)
		}
		return ShapeOf(2*op.K, src[0].Shape.Rows()), F32, nil
	}
	return fail("unknown operation %T", n.Op)
}

// StoreOf returns the layer whose key and value regions a node writes, and the width
// of the rows that it writes; ok is false for a node that writes none.
func StoreOf(n *Node) (layer, width int, ok bool) {
	switch op := n.Op.(type) {
	case KVStore:
		return op.Layer, n.Shape[0], true
	case FusedQKV:
		return op.Layer, op.K.Out, true
	case FusedQKVNorm:
		return op.Layer, op.K.Out, true
	case QKVBiasRopeStore:
		return op.Layer, op.KVHeads * op.RoPE.HeadDim, true
	}
	return 0, 0, false
}

func checkGiven(m MatMul) error {
	if m.In <= 0 || m.Out <= 0 || m.Weight == "" || m.Type == "" {
		return fmt.Errorf("weight %q of type %q and shape [%d %d] is not fully given", m.Weight, m.Type, m.In, m.Out)
	}
	return nil
}

func checkMatMul(m MatMul, x *Node) error {
	if err := checkGiven(m); err != nil {
		return err
	}
	if err := wantFeatures(x, "source", m.In); err != nil {
		return fmt.Errorf("weight %q of shape [%d %d]: %v", m.Weight, m.In, m.Out, err)
	}
	return nil
}

func checkFFN(gate, up MatMul, x *Node) error {
	if gate.Out != up.Out {
		return fmt.Errorf("gate yields %d features and up %d", gate.Out, up.Out)
	}
	if err := checkMatMul(gate, x); err != nil {
		return err
	}
	return checkMatMul(up, x)
}

func checkRoPE(op RoPE, x, positions *Node) error {
	if err := wantFeatures(x, "source", product(op.Heads, op.HeadDim)); err != nil {
		return fmt.Errorf("%d heads of %d: %v", op.Heads, op.HeadDim, err)
	}
	if op.Dim <= 0 || op.Dim%2 != 0 || op.Dim > op.HeadDim {
		return fmt.Errorf("rotates %d features of a head of %d, want an even number up to it", op.Dim, op.HeadDim)
	}
	if !(op.Base > 0) || !(op.Scale > 0) {
		return fmt.Errorf("base %v and scale %v, want both above 0", op.Base, op.Scale)
	}
	return wantInts(positions, "positions", x.Shape.Rows())
}

func checkQKV(q, k, v MatMul, rope RoPE, kvHeads int, src []*Node) error {
	for _, m := range []MatMul{q, k, v} {
		if err := checkMatMul(m, src[0]); err != nil {
			return err
		}
	}
	if q.Out != product(rope.Heads, rope.HeadDim) || k.Out != product(kvHeads, rope.HeadDim) || v.Out != k.Out {
		return fmt.Errorf("projections yield %d, %d and %d features for %d and %d heads of %d",
			q.Out, k.Out, v.Out, rope.Heads, kvHeads, rope.HeadDim)
	}
	if rope.Dim <= 0 || rope.Dim%2 != 0 || rope.Dim > rope.HeadDim || !(rope.Base > 0) || !(rope.Scale > 0) {
		return fmt.Errorf("rotates %d features of a head of %d with base %v and scale %v", rope.Dim, rope.HeadDim, rope.Base, rope.Scale)
	}
	if err := wantInts(src[1], "positions", src[0].Shape.Rows()); err != nil {
		return err
	}
	return wantInts(src[2], "cells", src[0].Shape.Rows())
}

func checkAttention(op Attention, src []*Node) error {
	if op.Heads <= 0 || op.KVHeads <= 0 || op.HeadDim <= 0 || op.Heads%op.KVHeads != 0 {
		return fmt.Errorf("%d heads in groups over %d key heads of %d features", op.Heads, op.KVHeads, op.HeadDim)
	}
	if err := wantFeatures(src[0], "queries", product(op.Heads, op.HeadDim)); err != nil {
		return err
	}
	if load, ok := src[1].Op.(KVLoad); !ok || load.Layer != op.Layer {
		return fmt.Errorf("second source %q is not the region of layer %d", src[1].Name, op.Layer)
	}
	if src[1].Shape[0] != product(op.KVHeads, op.HeadDim) {
		return fmt.Errorf("region %v for %d key heads of %d", src[1].Shape, op.KVHeads, op.HeadDim)
	}
	if err := wantInts(src[2], "positions", src[0].Shape.Rows()); err != nil {
		return err
	}
	if op.Window < 0 {
		return fmt.Errorf("window of %d positions", op.Window)
	}
	if op.Mode == Full && !op.ExplicitSpan {
		return fmt.Errorf("full attention needs explicit spans")
	}
	if op.ExplicitSpan != (len(src) == 4) {
		return fmt.Errorf("explicit span is %v with %d sources", op.ExplicitSpan, len(src))
	}
	if op.ExplicitSpan {
		return wantInts(src[3], "spans", 2*MaxRuns*src[0].Shape.Rows())
	}
	return nil
}

// product multiplies two counts, or returns -1, which no extent equals, if one of them is
// below 1 or the product is no possible extent.
func product(a, b int) int {
	if a <= 0 || b <= 0 || a > maxElements/b {
		return -1
	}
	return a * b
}

func wantInts(s *Node, what string, count int) error {
	if s.Type != I32 || s.Shape.Elements() != count {
		return fmt.Errorf("%s are %v%v, want %d of I32", what, s.Type, s.Shape, count)
	}
	return nil
}

func wantFeatures(s *Node, what string, features int) error {
	if s.Type != F32 || s.Shape[0] != features || features <= 0 {
		return fmt.Errorf("%s is %v%v, want rows of %d F32 features", what, s.Type, s.Shape, features)
	}
	return nil
}
