//go:build cuda

package cuda

import (
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

const (
	// fewTokens is the most for which a product goes through the weights once for each few of
	// them, instead of in tiles on tensor cores.
	fewTokens = 8
	// quadTokens and octTokens are how many tokens the kernels named so take at once.
	quadTokens = 4
	octTokens  = 8
	// The tile of the product on tensor cores, and its threads.
	tileRows, tileTokens, tileThreads = 128, 64, 256
	// warps is the most that share the super-blocks of a row: with a row of 4096, a matrix of as many rows has
	// every multiprocessor of a large GPU wait for enough memory at once.
	warps = 16
)

// projection is a weight matrix with its bias and where its product goes.
type projection struct {
	weight *weight
	bias   uint64
	out    uint64
}

// resolve finds a projection's weight and bias, and checks its activations.
func (d *device) resolve(m *graph.MatMul, x backend.Operand) (projection, error) {
	w, err := d.weightMatrix(m.Weight, m.Type, m.In, m.Out)
	if err != nil {
		return projection{}, err
	}
	bias, err := d.weightVector(m.Bias, m.Out)
	if err != nil {
		return projection{}, err
	}
	if x.Shape[0] != m.In {
		return projection{}, misshaped("source %v for weight %q of rows of %d", x.Shape, m.Weight, m.In)
	}
	return projection{weight: w, bias: bias}, nil
}

// product returns the memory of a product of n features for each row of x.
func (d *device) product(x, out backend.Operand, n int) (value, error) {
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
	o, err := d.product(in[0], out, m.Out)
	if err != nil {
		return err
	}
	p.out = o.ptr
	return d.project(x, m.In, p)
}

// quantized returns the quants of rows.
func (d *device) quantized(x value, width int) (*quants, error) {
	if q := d.knownQuants(x, width); q != nil {
		return q, nil
	}
	tokens := x.n / width
	q, err := d.quantsRoom(width, tokens)
	if err != nil {
		return nil, err
	}
	d.launch(d.kernels.base("quantize"), blocksFor(tokens*q.supers*superBlock), 1, 1, threads, 0).
		Ptr(x.ptr).Ptr(q.q).Ptr(q.m).Int(width).Int(q.supers).Int(tokens)
	q.source = x
	return q, nil
}

// project computes up to three projections of the same activations. For a few tokens, those of one
// format go in one launch.
func (d *device) project(x value, width int, parts ...projection) error {
	tokens := x.n / width
	for len(parts) > 0 {
		p := parts[0]
		same := 1
		for same < len(parts) && parts[same].weight.format == p.weight.format {
			same++
		}
		if !p.weight.integer() {
			d.floatProduct(x, width, tokens, p)
			parts = parts[1:]
			continue
		}
		q, err := d.quantized(x, width)
		if err != nil {
			return err
		}
		if tokens > fewTokens && p.weight.tileBytes(p.weight.ahead) <= d.kernels.shared {
			d.tensorProduct(q, tokens, p)
			parts = parts[1:]
			continue
		}
		d.fewProduct(q, tokens, parts[:same])
		parts = parts[same:]
	}
	return nil
}

// warpsFor is the threads of a block whose warps share the super-blocks of a row.
func warpsFor(supers int) int { return 32 * min(warps, supers) }

// sumsBytes is the shared memory for the sums of a group of rows.
func sumsBytes(supers, tokens int) int { return supers * tokens * rowGroup * 4 }

// fewProduct multiplies a few tokens with up to three weights of one format.
func (d *device) fewProduct(q *quants, tokens int, parts []projection) {
	k, at := parts[0].weight.matvec1, 1
	if tokens > 1 && sumsBytes(q.supers, quadTokens) <= d.kernels.shared {
		k, at = parts[0].weight.matvecN, quadTokens
	}
	groups := 0
	for _, p := range parts {
		groups += p.weight.groups()
	}
	c := d.launch(k, groups, (tokens+at-1)/at, 1, warpsFor(q.supers), sumsBytes(q.supers, at))
	for i := range 3 {
		var p projection
		rows := 0
		if i < len(parts) {
			p = parts[i]
			rows = p.weight.source.Out
			c.Ptr(p.weight.matrix.ptr).Ptr(p.bias).Ptr(p.out).Int(rows)
			continue
		}
		c.Ptr(0).Ptr(0).Ptr(0).Int(0)
	}
	c.Ptr(q.q).Ptr(q.m).Int(q.supers).Int(tokens)
}

// tileBytes is the shared memory of a tile, type Tile or AheadTile of kernels/tensor.cu. One format's is more than
// the oldest GPUs have: it goes through the kernels for few tokens there, to the same bits.
func (w *weight) tileBytes(ahead bool) int {
	groups, mins := superBlock/w.format.Group, 1
	if w.format.Min {
		mins = groups
	}
	bytes := (tileRows+tileTokens)*(superBlock+16) + 4*((groups+mins)*tileRows+(8+mins)*tileTokens)
	if ahead {
		bytes += tileTokens*(superBlock+16) + tileRows*w.layout.bytes() + tileTokens*8*8
	}
	return bytes
}

// tensorProduct multiplies many tokens with a weight.
func (d *device) tensorProduct(q *quants, tokens int, p projection) {
	w := p.weight
	d.launch(w.matmul, (w.source.Out+tileRows-1)/tileRows, (tokens+tileTokens-1)/tileTokens, 1, tileThreads, w.tileBytes(w.ahead)).
		Ptr(w.matrix.ptr).Ptr(p.bias).Ptr(p.out).Int(w.source.Out).Ptr(q.q).Ptr(q.m).Int(q.supers).Int(tokens)
}

// halfTileBytes is the shared memory of a tile, type Tile of kernels/halves.cu.
const halfTileBytes = 2*2*superBlock*tileTokens + 4*tileTokens

// floatProduct multiplies tokens with a weight of floats.
func (d *device) floatProduct(x value, width, tokens int, p projection) {
	w := p.weight
	k, at, supers := w.matvec1, 1, supersOf(width)
	if tokens > fewTokens && w.matmul != nil && halfTileBytes <= d.kernels.shared {
		d.launch(w.matmul, (w.source.Out+tileRows-1)/tileRows, (tokens+tileTokens-1)/tileTokens, 1, tileThreads, halfTileBytes).
			Ptr(w.matrix.ptr).Ptr(p.bias).Ptr(p.out).Int(w.source.Out).Ptr(x.ptr).Int(width).Int(supers).Int(tokens)
		return
	}
	if tokens > 1 && sumsBytes(supers, octTokens) <= d.kernels.shared {
		k, at = w.matvecN, octTokens
	}
	d.launch(k, w.groups(), (tokens+at-1)/at, 1, warpsFor(supers), sumsBytes(supers, at)).
		Ptr(w.matrix.ptr).Ptr(p.bias).Ptr(p.out).Int(w.source.Out).Ptr(x.ptr).Int(width).Int(supers).Int(tokens)
}

func (d *device) fusedFFN(op *graph.FusedFFN, in []backend.Operand, out backend.Operand) error {
	gate, err := d.resolve(&op.Gate, in[0])
	if err != nil {
		return err
	}
	up, err := d.resolve(&op.Up, in[0])
	if err != nil {
		return err
	}
	x, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	o, err := d.product(in[0], out, op.Gate.Out)
	if err != nil {
		return err
	}
	if op.Up.Out != op.Gate.Out {
		return misshaped("gate yields %d features and up %d", op.Gate.Out, op.Up.Out)
	}
	width := op.Gate.In
	if x.n == width && gate.weight.integer() && gate.weight.format == up.weight.format &&
		2*sumsBytes(supersOf(width), 1) <= d.kernels.shared {
		return d.gateUp(x, o, gate, up)
	}
	p, err := d.room(scratchValues, 4*o.n)
	if err != nil {
		return err
	}
	gate.out, up.out = o.ptr, p
	if err := d.project(x, width, gate, up); err != nil {
		return err
	}
	return d.queueSwiGLU(o, o, value{p, o.n}, op.Gate.Out)
}

// gateUp computes a feed-forward's inner half for one token in one launch, with the quants of
// the result if they fill whole super-blocks.
func (d *device) gateUp(x, o value, gate, up projection) error {
	w := gate.weight
	q, err := d.quantized(x, x.n)
	if err != nil {
		return err
	}
	outQ := &quants{}
	if o.n%superBlock == 0 && quantizable(o.n) {
		if outQ, err = d.quantsRoom(o.n, 1); err != nil {
			return err
		}
	}
	d.launch(w.gateUp1, w.groups(), 1, 1, warpsFor(q.supers), 2*sumsBytes(q.supers, 1)).
		Ptr(w.matrix.ptr).Ptr(up.weight.matrix.ptr).Ptr(gate.bias).Ptr(up.bias).Ptr(o.ptr).Int(w.source.Out).
		Ptr(q.q).Ptr(q.m).Int(q.supers).Int(1).Ptr(outQ.q).Ptr(outQ.m).Int(outQ.supers)
	outQ.source = o
	return nil
}
