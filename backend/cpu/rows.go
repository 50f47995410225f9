package cpu

import (
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/vocabulary"
)

// Costs in nanoseconds per element, by which work is cut into chunks. They need only
// be right in magnitude.
const (
	costMove = 1
	costExp  = 8
	// vectorSpeed is how many times faster attention is with vectors.
	vectorSpeed = 16
)

// elementTask computes elements from the elements at the same place.
type elementTask struct {
	kind      graph.Kind
	out, a, b []float32
	factor    float32
}

func (t *elementTask) run(s *kernels.Scratch, lo, hi int) {
	out, a := t.out[lo:hi], t.a[lo:hi]
	switch t.kind {
	case graph.KindAdd:
		s.Tier.Add(out, a, t.b[lo:hi])
	case graph.KindMul:
		s.Tier.Mul(out, a, t.b[lo:hi])
	case graph.KindSwiGLU:
		s.Tier.SwiGLU(out, a, t.b[lo:hi])
	case graph.KindScale:
		s.Tier.Scale(out, a, t.factor)
	case graph.KindSilu:
		s.Tier.SiluTo(out, a)
	case graph.KindGelu:
		s.Tier.GeluTo(out, a)
	}
}

func (d *device) binary(kind graph.Kind, in []backend.Operand, out backend.Operand) error {
	a, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	b, _, err := d.pair(in[1], out)
	if err != nil {
		return err
	}
	return d.elements(elementTask{kind: kind, out: o, a: a, b: b})
}

func (d *device) unary(kind graph.Kind, factor float32, in []backend.Operand, out backend.Operand) error {
	a, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	return d.elements(elementTask{kind: kind, out: o, a: a, factor: factor})
}

func (d *device) elements(t elementTask) error {
	cost := costMove
	switch t.kind {
	case graph.KindSwiGLU, graph.KindSilu, graph.KindGelu:
		cost = costExp
	}
	d.work.element = t
	return d.pool.run(&d.work.element, len(t.out), cost)
}

// normTask normalises rows, in pieces of headDim values.
type normTask struct {
	out, x, weight []float32
	width, headDim int
	eps            float32
}

func (t *normTask) run(s *kernels.Scratch, lo, hi int) {
	s.Tier.QKNorm(t.out[lo*t.width:hi*t.width], t.x[lo*t.width:hi*t.width], t.weight, t.headDim, t.eps)
}

func (d *device) norm(name string, headDim int, eps float32, in []backend.Operand, out backend.Operand) error {
	x, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	weight, err := d.vector(name, headDim)
	if err != nil {
		return err
	}
	width := out.Shape[0]
	d.work.norm = normTask{out: o, x: x, weight: weight, width: width, headDim: headDim, eps: eps}
	return d.pool.run(&d.work.norm, out.Shape.Rows(), costMove*width)
}

type softmaxTask struct {
	out, x []float32
	width  int
}

func (t *softmaxTask) run(s *kernels.Scratch, lo, hi int) {
	for i := lo; i < hi; i++ {
		s.Tier.Softmax(t.out[i*t.width:][:t.width], t.x[i*t.width:][:t.width])
	}
}

func (d *device) softmax(in []backend.Operand, out backend.Operand) error {
	x, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	width := out.Shape[0]
	d.work.softmax = softmaxTask{out: o, x: x, width: width}
	return d.pool.run(&d.work.softmax, out.Shape.Rows(), costExp*width)
}

// topTask finds the greatest values of rows.
type topTask struct {
	out, x          []float32
	k, width, among int
}

func (t *topTask) run(_ *kernels.Scratch, lo, hi int) {
	for i := lo; i < hi; i++ {
		kernels.TopK(t.out[2*t.k*i:][:2*t.k], t.x[i*t.width:][:t.among])
	}
}

func (d *device) topK(op graph.TopK, in []backend.Operand, out backend.Operand) error {
	x, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	o, err := d.memory.floats(out)
	if err != nil {
		return err
	}
	width, rows := in[0].Shape[0], in[0].Shape.Rows()
	if !bounds.Supports(op, graph.F32) || !vocabulary.TopFits(op, in[0].Shape, out.Shape) {
		return misshaped("%d of %d values of %v, result %v", op.K, op.Among, in[0].Shape, out.Shape)
	}
	d.work.top = topTask{out: o, x: x, k: op.K, width: width, among: op.Among}
	return d.pool.run(&d.work.top, rows, costMove*op.Among)
}

type embedTask struct {
	out   []float32
	table *weight
	width int
	ids   []int32
}

func (t *embedTask) run(s *kernels.Scratch, lo, hi int) {
	for i := lo; i < hi; i++ {
		t.table.row(t.out[i*t.width:][:t.width], int(t.ids[i]), s)
	}
}

func (d *device) embed(op *graph.Embed, in []backend.Operand, out backend.Operand) error {
	table, err := d.matrix(op.Weight, op.Type, op.Dim, op.Vocab)
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
	if out.Shape != graph.ShapeOf(op.Dim, len(ids)) {
		return misshaped("%d ids, result %v", len(ids), out.Shape)
	}
	if err := vocabulary.CheckIndex("id", ids, op.Vocab); err != nil {
		return err
	}
	d.work.embed = embedTask{out: o, table: table, width: op.Dim, ids: ids}
	return d.pool.run(&d.work.embed, len(ids), costMove*op.Dim)
}

// gatherTask copies rows of four-byte elements, whatever they mean.
type gatherTask struct {
	out, x []uint32
	ids    []int32
	width  int
}

func (t *gatherTask) run(s *kernels.Scratch, lo, hi int) {
	for i := lo; i < hi; i++ {
		copy(t.out[i*t.width:][:t.width], t.x[int(t.ids[i])*t.width:])
	}
}

func (d *device) getRows(in []backend.Operand, out backend.Operand) error {
	if t := out.Type; t != graph.F32 && t != graph.I32 {
		return backend.ErrUnsupported
	}
	x, err := operand[uint32](&d.memory, in[0], out.Type)
	if err != nil {
		return err
	}
	ids, err := d.memory.ints(in[1])
	if err != nil {
		return err
	}
	o, err := operand[uint32](&d.memory, out, out.Type)
	if err != nil {
		return err
	}
	width := in[0].Shape[0]
	if out.Shape != graph.ShapeOf(width, len(ids)) {
		return misshaped("%d rows of %v, result %v", len(ids), in[0].Shape, out.Shape)
	}
	if err := vocabulary.CheckIndex("row", ids, len(x)/width); err != nil {
		return err
	}
	d.work.gather = gatherTask{out: o, x: x, ids: ids, width: width}
	return d.pool.run(&d.work.gather, len(ids), costMove*width)
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
	var seen [4]bool
	for i, dim := range op.Dims {
		if dim < 0 || dim > 3 || seen[dim] || out.Shape[i] != in[0].Shape[dim] {
			return misshaped("%v as %v is not %v", in[0].Shape, op.Dims, out.Shape)
		}
		seen[dim] = true
	}
	kernels.Permute(o, x, in[0].Shape, op.Dims)
	return nil
}
