//go:build cgo && (darwin || metalemu)

package metal

import (
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

const (
	matTile = 32 // rows and tokens of a tile of the matrix-matrix kernels
	// matTokens is the number of tokens from which on the matrix-matrix kernels are used. Results do not depend on it.
	matTokens   = 8            // and what matvec_float has room for
	vecSimds    = 4            // simdgroups of a threadgroup of the matrix-vector kernels
	vecRows     = 4 * vecSimds // rows that it computes
	unitSize    = 32           // values that have a scale
	unitMeta    = 16           // bytes kept for a unit of activations besides the quants
	quantGroups = 8            // units of a threadgroup that quantises
)

// quantised remembers which activations lie quantised in scratch memory, so that projections of one input share them.
type quantised struct {
	valid  bool
	source region
}

// forget is told what is written.
func (q *quantised) forget(r region) {
	if q.valid && q.source.overlaps(r) {
		q.valid = false
	}
}

type quantArgs struct{ units uint32 }

// quantize returns the activations in 8 bits, with what is kept of their units.
func (e *node) quantize(x region) (quants, meta region, err error) {
	n := x.size / 4
	if quants, err = e.scratchOf(scratchQuants, n); err != nil {
		return quants, meta, err
	}
	if meta, err = e.scratchOf(scratchMeta, n/unitSize*unitMeta); err != nil {
		return quants, meta, err
	}
	if e.acts.valid && e.acts.source == x {
		return quants, meta, nil
	}
	args := quantArgs{uint32(n / unitSize)}
	err = e.run(dispatch{
		kernel: "quantize", groups: [3]int{ceil(n/unitSize, quantGroups), 1, 1}, threads: 32 * quantGroups,
		reads: []region{x}, writes: []region{quants, meta}, args: bytesOf(&args),
	})
	e.acts = quantised{valid: err == nil, source: x}
	return quants, meta, err
}

// activations checks the source of a product and returns it with its number of tokens.
func (e *node) activations(o backend.Operand, in int) (x region, tokens int, err error) {
	if x, err = e.floats(o); err != nil {
		return x, 0, err
	}
	if o.Shape[0] != in {
		return x, 0, misshaped("rows of %d features, want %d", o.Shape[0], in)
	}
	return x, o.Shape.Rows(), nil
}

// product is the result of a product, checked.
func (e *node) product(out int, source backend.Operand) (region, error) {
	want := source.Shape
	want[0] = out
	if e.out.Shape != want {
		return region{}, misshaped("source %v, result %v, want %v", source.Shape, e.out.Shape, want)
	}
	return e.floats(e.out)
}

type matMulArgs struct {
	in, rows, rowBytes, tokens, biased uint32
}

func (e *node) matMul(op *graph.MatMul) error {
	x, tokens, err := e.activations(e.in[0], op.In)
	if err != nil {
		return err
	}
	out, err := e.product(op.Out, e.in[0])
	if err != nil {
		return err
	}
	return e.multiply(op, x, tokens, out)
}

// multiply computes a product into out.
func (e *node) multiply(op *graph.MatMul, x region, tokens int, out region) error {
	w, err := e.matrix(op.Weight, op.Type, op.In, op.Out)
	if err != nil {
		return err
	}
	bias, err := e.vector(op.Bias, op.Out, x)
	if err != nil {
		return err
	}
	reads := []region{w.rowsOf(), x, bias}
	if !isFloat(op.Type) {
		quants, meta, err := e.quantize(x)
		if err != nil {
			return err
		}
		reads = []region{w.rowsOf(), quants, meta, bias}
	}
	args := matMulArgs{uint32(op.In), uint32(op.Out), uint32(w.rowBytes), uint32(tokens), flag(op.Bias != "")}
	d := dispatch{reads: reads, writes: []region{out}, args: bytesOf(&args)}
	switch {
	case tokens >= matTokens:
		d.kernel, d.threads = "matmat_", 128
		d.groups = [3]int{ceil(op.Out, matTile), ceil(tokens, matTile), 1}
	case isFloat(op.Type):
		d.kernel, d.threads = "matvec_", 256
		d.groups = [3]int{ceil(op.Out, 8), 1, 1}
	default:
		d.kernel, d.threads = "matvec_", 32*vecSimds
		d.groups = [3]int{ceil(op.Out, vecRows), tokens, 1}
	}
	d.kernel += kernelSuffix(op.Type)
	return e.run(d)
}

func (e *node) fusedFFN(op *graph.FusedFFN) error {
	gate, up := &op.Gate, &op.Up
	x, tokens, err := e.activations(e.in[0], gate.In)
	if err != nil {
		return err
	}
	if up.In != gate.In || up.Out != gate.Out {
		return misshaped("gate [%d %d] and up [%d %d]", gate.In, gate.Out, up.In, up.Out)
	}
	out, err := e.product(gate.Out, e.in[0])
	if err != nil {
		return err
	}
	if tokens < matTokens && gate.Type == up.Type && !isFloat(gate.Type) && gate.Bias == "" && up.Bias == "" {
		return e.gated(gate, up, x, tokens, out)
	}
	g, err := e.scratchOf(scratchGate, out.size)
	if err != nil {
		return err
	}
	u, err := e.scratchOf(scratchUp, out.size)
	if err != nil {
		return err
	}
	if err := e.multiply(gate, x, tokens, g); err != nil {
		return err
	}
	if err := e.multiply(up, x, tokens, u); err != nil {
		return err
	}
	return e.elements("swiglu", g, u, out, 0)
}

// gated computes both products and the gate in one kernel.
func (e *node) gated(gate, up *graph.MatMul, x region, tokens int, out region) error {
	g, err := e.matrix(gate.Weight, gate.Type, gate.In, gate.Out)
	if err != nil {
		return err
	}
	u, err := e.matrix(up.Weight, up.Type, up.In, up.Out)
	if err != nil {
		return err
	}
	quants, meta, err := e.quantize(x)
	if err != nil {
		return err
	}
	args := matMulArgs{in: uint32(gate.In), rows: uint32(gate.Out), rowBytes: uint32(g.rowBytes), tokens: uint32(tokens)}
	return e.run(dispatch{
		kernel: "matvec_gated_" + kernelSuffix(gate.Type), groups: [3]int{ceil(gate.Out, vecRows), tokens, 1}, threads: 32 * vecSimds,
		reads: []region{g.rowsOf(), u.rowsOf(), quants, meta}, writes: []region{out}, args: bytesOf(&args),
	})
}
