package cpu

import (
	"fmt"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/quant"
)

// costMAC and costPackedMAC are the number of multiplications that count as a nanosecond, in
// plain Go and with packed weights.
const (
	costMAC       = 4
	costPackedMAC = 32
)

// quantizeTask quantises the activations of tokens. An item is a tile of them.
type quantizeTask struct {
	acts *kernels.QActs
	x    []float32
	tile int
}

func (t *quantizeTask) run(_ *kernels.Scratch, lo, hi int) {
	lo, hi = lo*t.tile, min(hi*t.tile, t.acts.Tokens)
	t.acts.QuantizeRows(lo, hi, 0, t.x[lo*t.acts.In:], t.acts.In, t.acts.In)
}

// quantize makes the integer activations of x, once for all rows that need them.
func (d *device) quantize(x []float32, width int) error {
	tokens := len(x) / width
	d.work.acts.Reset(tokens, width)
	tile := d.work.acts.Tile()
	d.work.quant = quantizeTask{&d.work.acts, x, tile}
	return d.pool.run(&d.work.quant, (tokens-1)/tile+1, costMove*width*tile)
}

// projection is a weight matrix with its bias and the memory of its product.
type projection struct {
	weight *weight
	bias   []float32
	out    []float32
	stride int // from a token's results to the next one's
}

func (p *projection) in() int   { return p.weight.matrix.In }
func (p *projection) outs() int { return p.weight.matrix.Out }

// integer reports whether the product takes quantised activations.
func (p *projection) integer() bool { return p.weight.matrix.Integer() }

// compute computes row blocks lo to hi-1 for all tokens.
func (p *projection) compute(t *products, s *kernels.Scratch, lo, hi int) {
	m, packed := p.weight.matrix, p.weight.packed
	r0, r1 := lo*kernels.PackedRows, min(hi*kernels.PackedRows, m.Out)
	switch {
	case packed != nil && m.Integer():
		kernels.MatMulPacked(p.out, p.stride, packed, lo, hi, p.bias, t.acts, s)
	case packed != nil:
		kernels.MatMulPackedFloat(p.out, p.stride, packed, lo, hi, p.bias, t.x, m.In, t.tokens, s)
	case m.Integer():
		kernels.MatMulInt(p.out, p.stride, m, r0, r1, p.bias, t.acts, s)
	default:
		kernels.MatMulFloat(p.out, p.stride, m, r0, r1, p.bias, t.x, m.In, t.tokens, s)
	}
}

// cost is that of a row block of the product.
func (p *projection) cost(tokens int) int {
	n := kernels.PackedRows * p.in() * tokens
	if p.weight.packed != nil {
		return n / costPackedMAC
	}
	return n / costMAC
}

// products is what the projections of one task share.
type products struct {
	acts   *kernels.QActs
	x      []float32
	tokens int
}

// matMulTask runs up to three projections of the same activations, their row blocks
// numbered one after the other.
type matMulTask struct {
	products
	parts [3]projection
	n     int
}

func (t *matMulTask) run(s *kernels.Scratch, lo, hi int) {
	for i := range t.parts[:t.n] {
		p := &t.parts[i]
		n := p.weight.blocks()
		if lo < min(hi, n) {
			p.compute(&t.products, s, lo, min(hi, n))
		}
		lo, hi = max(0, lo-n), hi-n
		if hi <= 0 {
			return
		}
	}
}

// project computes the projections of the activations x.
func (d *device) project(x []float32, parts ...projection) error {
	of, err := d.shared(x, parts...)
	if err != nil {
		return err
	}
	return d.projectAll(of, parts...)
}

// shared makes what projections of the activations x share: their quants, if one needs them.
func (d *device) shared(x []float32, parts ...projection) (products, error) {
	width, integer := parts[0].in(), false
	for i := range parts {
		integer = integer || parts[i].integer()
	}
	if integer {
		if err := d.quantize(x, width); err != nil {
			return products{}, err
		}
	}
	return products{acts: &d.work.acts, x: x, tokens: len(x) / width}, nil
}

// projectAll is project once activations are quantised, if they have to be.
func (d *device) projectAll(of products, parts ...projection) error {
	t := &d.work.matMul
	t.products, t.n = of, copy(t.parts[:], parts)
	blocks := 0
	for i := range parts {
		blocks += parts[i].weight.blocks()
	}
	return d.multiply(t, blocks, parts[0].cost(t.tokens), t.tokens, t.parts[:t.n]...)
}

// multiply runs a task whose items are the row blocks of some projections.
func (d *device) multiply(t task, blocks, cost, tokens int, parts ...projection) error {
	if tokens > 1 {
		return d.pool.run(t, blocks, cost)
	}
	w := parts[0].weight
	if w.firsts == nil {
		w.firsts = d.firstReads(blocks, cost, parts)
	}
	if d.work.last != nil {
		d.work.last.next = w
	}
	d.work.last = w
	var ahead [][]byte
	if w.next != nil {
		ahead = w.next.firsts // tokens go the same way one after the other
	}
	return d.pool.stream(t, blocks, cost, ahead)
}

// firstReads returns the beginnings of the threads' shares of some projections' weights, as far as they are packed.
func (d *device) firstReads(blocks, cost int, parts []projection) [][]byte {
	firsts := make([][]byte, d.pool.threads)
	grain, grains := grainsOf(blocks, cost, d.pool.threads)
	for i := range firsts {
		at := i * grains / d.pool.threads * grain
		for j := range parts {
			w := parts[j].weight
			if n := w.blocks(); at >= n {
				at -= n
				continue
			}
			if w.packed != nil {
				rest := w.packed.Data[len(w.packed.Data)/w.blocks()*at:]
				firsts[i] = rest[:min(len(rest), aheadMost)]
			}
			break
		}
	}
	return firsts
}

// resolve finds a projection's weight and bias, and checks its activations.
func (d *device) resolve(m *graph.MatMul, x backend.Operand) (projection, error) {
	weight, err := d.matrix(m.Weight, m.Type, m.In, m.Out)
	if err != nil {
		return projection{}, err
	}
	bias, err := d.vector(m.Bias, m.Out)
	if err != nil {
		return projection{}, err
	}
	if x.Shape[0] != m.In {
		return projection{}, misshaped("source %v for weight %q of rows of %d", x.Shape, m.Weight, m.In)
	}
	return projection{weight: weight, bias: bias, stride: m.Out}, nil
}

// result returns the memory of a product of n features for each row of x.
func (d *device) result(x, out backend.Operand, n int) ([]float32, error) {
	o, err := d.memory.floats(out)
	if err == nil && out.Shape != graph.ShapeOf(n, x.Shape.Rows()) {
		err = misshaped("%d features of %v, result %v", n, x.Shape, out.Shape)
	}
	return o, err
}

func (d *device) matMul(m *graph.MatMul, in []backend.Operand, out backend.Operand) error {
	p, err := d.resolve(m, in[0])
	if err != nil {
		return err
	}
	x, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	if p.out, err = d.result(in[0], out, m.Out); err != nil {
		return err
	}
	return d.project(x, p)
}

// ffnTask computes rows of gate and up, and joins them while they are in the cache.
type ffnTask struct {
	products
	gate, up projection
	joined   *kernels.QActs // where the results go, instead of gate's memory
	item     int            // row blocks of an item
}

// ffnJoined is how many row blocks yield a block of the activations of what reads them.
const ffnJoined = kernels.BlockSize / kernels.PackedRows

// ffnBlocks is the number of row blocks whose results a second-level cache holds for hundreds of tokens.
const ffnBlocks = 16

func (t *ffnTask) run(s *kernels.Scratch, lo, hi int) {
	lo, hi = lo*t.item, hi*t.item
	step := hi - lo
	if t.tokens > 1 {
		step = min(step, ffnBlocks)
	}
	for ; lo < hi; lo += step {
		t.blocks(s, lo, min(lo+step, hi))
	}
}

// blocks computes row blocks lo to hi-1. What is not to stay goes to the worker's own memory, which is in its cache.
func (t *ffnTask) blocks(s *kernels.Scratch, lo, hi int) {
	gate, up := t.gate, t.up
	r0, r1 := lo*kernels.PackedRows, min(hi*kernels.PackedRows, gate.outs())
	width := r1 - r0
	up.stride = width
	up.out = s.Results(gate.outs() + 2*t.tokens*width) // of which the first r0 are not used: rows keep their places
	if t.joined != nil {
		gate.stride, gate.out = width, up.out[t.tokens*width:]
	}
	gate.compute(&t.products, s, lo, hi)
	up.compute(&t.products, s, lo, hi)
	tile := t.tokens
	if t.joined != nil {
		tile = t.joined.Tile()
	}
	for t0 := 0; t0 < t.tokens; t0 += tile {
		t1 := min(t0+tile, t.tokens)
		for i := t0; i < t1; i++ {
			g := gate.out[r0+i*gate.stride:][:width]
			s.Tier.SwiGLU(g, g, up.out[r0+i*width:][:width])
		}
		if t.joined != nil {
			t.joined.QuantizeRows(t0, t1, r0/kernels.BlockSize, gate.out[r0+t0*width:], width, width)
		}
	}
}

// ffn computes gate and up of x, and what they yield together: to out, or quantised to joined.
func (d *device) ffn(gate, up *graph.MatMul, x backend.Operand, out []float32, joined *kernels.QActs) error {
	g, err := d.resolve(gate, x)
	if err != nil {
		return err
	}
	u, err := d.resolve(up, x)
	if err != nil {
		return err
	}
	if up.Out != gate.Out {
		return fmt.Errorf("%w: gate yields %d features and up %d", ErrOperand, gate.Out, up.Out)
	}
	xs, err := d.memory.floats(x)
	if err != nil {
		return err
	}
	of, err := d.shared(xs, g, u)
	if err != nil {
		return err
	}
	g.out = out
	tokens := of.tokens
	t, blocks, cost := &d.work.ffn, g.weight.blocks(), 2*g.cost(tokens)
	*t = ffnTask{of, g, u, joined, 1}
	if joined == nil {
		return d.multiply(t, blocks, cost, tokens, g)
	}
	joined.Reset(tokens, gate.Out)
	t.item = ffnJoined
	return d.pool.run(t, blocks/ffnJoined, ffnJoined*cost)
}

func (d *device) fusedFFN(op *graph.FusedFFN, in []backend.Operand, out backend.Operand) error {
	o, err := d.result(in[0], out, op.Gate.Out)
	if err != nil {
		return err
	}
	return d.ffn(&op.Gate, &op.Up, in[0], o, nil)
}

// quantizes reports whether a product with a weight of the format takes quantised activations.
func quantizes(format string) bool {
	f, err := quant.Lookup(format)
	return err == nil && f.Group != 0
}

// fusedFFNDown quantises what gate and up yield where it arises, so that it is in memory in the form alone that down takes.
func (d *device) fusedFFNDown(op *graph.FusedFFNDown, in []backend.Operand, out backend.Operand) error {
	o, err := d.result(in[0], out, op.Down.Out)
	if err != nil {
		return err
	}
	joined := &d.work.joined
	down, err := d.resolve(&op.Down, backend.Operand{Shape: graph.ShapeOf(op.Gate.Out)})
	if err != nil {
		return err
	}
	if !down.integer() {
		return backend.ErrUnsupported
	}
	if err := d.ffn(&op.Gate, &op.Up, in[0], nil, joined); err != nil {
		return err
	}
	down.out = o
	return d.projectAll(products{acts: joined, tokens: joined.Tokens}, down)
}

// scratch returns n floats that live until the next node.
func (d *device) scratch(i, n int) []float32 {
	d.work.floats[i] = kernels.GrowLarge(d.work.floats[i], n)
	return d.work.floats[i]
}
