//go:build cgo && (darwin || metalemu)

package metal

import (
	"fmt"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/vocabulary"
)

// maxPositions bounds positions to what angles are computed for with full precision.
const maxPositions = 1 << 20

// ropeTable has the angles of the last batch: cosines, then sines, a row of pairs for each token.
type ropeTable struct {
	rope      *kernels.RoPE
	positions []int32
	table     *block
	cos, sin  region
}

// angles returns the cosines and sines of the positions. They are made by the host, in double precision; layers, queries
// and keys with the same parameters share them.
func (e *node) angles(r graph.RoPE, positions []int32) (cos, sin region, err error) {
	if r.Style > graph.RoPEHalves {
		return cos, sin, backend.ErrUnsupported
	}
	if err := vocabulary.CheckIndex("position", positions, maxPositions); err != nil {
		return cos, sin, err
	}
	r.Heads, r.HeadDim, r.Style = 0, 0, 0
	t := e.ropes[r]
	if t == nil {
		if t, err = e.newRope(r); err != nil {
			return cos, sin, err
		}
		e.ropes[r] = t
	}
	if t.table != nil && slices.Equal(t.positions, positions) {
		return t.cos, t.sin, nil
	}
	size := 4 * t.rope.Pairs() * len(positions)
	if t.table == nil || t.table.size < 2*size {
		grown, err := e.gpu.newBlock(2 * size)
		if err != nil {
			return cos, sin, err
		}
		e.drop(t.table)
		t.table = grown
	}
	t.cos, t.sin = region{t.table, 0, size}, region{t.table, size, size}
	err = e.hostWrite(region{t.table, 0, 2 * size}, func(b []byte) {
		c, s, n := elementsOf[float32](b[:size]), elementsOf[float32](b[size:]), t.rope.Pairs()
		for i, p := range positions {
			t.rope.CosSin(c[i*n:], s[i*n:], int(p))
		}
	})
	t.positions = append(t.positions[:0], positions...)
	return t.cos, t.sin, err
}

func (e *node) newRope(r graph.RoPE) (*ropeTable, error) {
	var factors []float32
	if r.Factors != "" {
		v, err := e.vector(r.Factors, r.Dim/2, region{})
		if err != nil {
			return nil, err
		}
		factors = elementsOf[float32](v.bytes())
	}
	rope, err := kernels.NewRoPE(vocabulary.RoPE(r, factors))
	return &ropeTable{rope: rope}, err
}

type ropeArgs struct{ headDim, heads, pairs, halves uint32 }

func (e *node) rope(op *graph.RoPE) error {
	x, out, err := e.pair(e.in[0])
	if err != nil {
		return err
	}
	tokens := e.out.Shape.Rows()
	_, positions, err := e.tokenInts("positions", e.in[1], tokens)
	if err != nil {
		return err
	}
	if op.Heads*op.HeadDim != e.out.Shape[0] || op.Dim > op.HeadDim {
		return misshaped("%d of %d features of %d heads in rows of %d", op.Dim, op.HeadDim, op.Heads, e.out.Shape[0])
	}
	cos, sin, err := e.angles(*op, positions)
	if err != nil {
		return err
	}
	args := ropeArgs{uint32(op.HeadDim), uint32(op.Heads), uint32(op.Dim / 2), flag(op.Style == graph.RoPEHalves)}
	return e.run(dispatch{
		kernel: "rope", groups: [3]int{ceil(op.HeadDim-op.Dim/2, 32), op.Heads, tokens}, threads: 32,
		reads: []region{x, cos, sin}, writes: []region{out}, args: bytesOf(&args),
	})
}

// regions returns the layer's regions, which have to have rows of the width, and the suffix of kernels for their type.
func (e *node) regions(width int) (keys, values region, suffix string, err error) {
	kv := e.kv
	if kv == nil {
		return keys, values, "", misshaped("no key and value regions")
	}
	if kv.Width != width || kv.Cells <= 0 || kv.Cells > maxIndex/kv.Width {
		return keys, values, "", misshaped("regions of %d rows of %d, want rows of %d", kv.Cells, kv.Width, width)
	}
	size := 4
	switch kv.Type {
	case graph.F16:
		size, suffix = 2, "_f16"
	case graph.F32:
		suffix = "_f32"
	default:
		return keys, values, "", misshaped("regions of %v, want F16 or F32", kv.Type)
	}
	if keys, err = e.memory.window(kv.K, size*kv.Cells*kv.Width); err != nil {
		return keys, values, "", err
	}
	values, err = e.memory.window(kv.V, size*kv.Cells*kv.Width)
	return keys, values, suffix, err
}

// storeCells returns the cells of n tokens within the region. No two tokens may have the same, as they are stored at the
// same time.
func (e *node) storeCells(o backend.Operand, n int) (region, error) {
	r, cells, err := e.tokenInts("cells", o, n)
	if err != nil {
		return r, err
	}
	if err := vocabulary.CheckIndex("cell", cells, e.kv.Cells); err != nil {
		return r, err
	}
	return r, vocabulary.CheckDistinct(cells)
}

type storeArgs struct{ width uint32 }

func (e *node) kvStore() error {
	k, err := e.floats(e.in[0])
	if err != nil {
		return err
	}
	v, err := e.floats(e.in[1])
	if err != nil {
		return err
	}
	if e.in[0].Shape != e.in[1].Shape {
		return misshaped("keys %v and values %v", e.in[0].Shape, e.in[1].Shape)
	}
	width, tokens := e.in[0].Shape[0], e.in[0].Shape.Rows()
	keys, values, suffix, err := e.regions(width)
	if err != nil {
		return err
	}
	cells, err := e.storeCells(e.in[2], tokens)
	if err != nil {
		return err
	}
	args := storeArgs{uint32(width)}
	return e.run(dispatch{
		kernel: "kv_store" + suffix, groups: [3]int{ceil(width, elementThreads), tokens, 1}, threads: elementThreads,
		reads: []region{k, v, cells}, writes: []region{keys, values}, args: bytesOf(&args),
	})
}

// qkv is the payload of a fused projection of queries, keys and values.
type qkv struct {
	m            [3]graph.MatMul // for queries, keys and values
	rope         graph.RoPE
	kvHeads      int
	normed       bool
	qNorm, kNorm string
	eps          float32
}

func (e *node) fusedQKV(f *qkv) error {
	x, tokens, err := e.activations(e.in[0], f.m[0].In)
	if err != nil {
		return err
	}
	for _, m := range f.m {
		if m.In != f.m[0].In {
			return misshaped("projections of %d and %d features", f.m[0].In, m.In)
		}
	}
	qWidth, kWidth := f.m[0].Out, f.m[1].Out
	if f.m[2].Out != kWidth {
		return misshaped("keys of %d features and values of %d", kWidth, f.m[2].Out)
	}
	q, err := e.product(qWidth, e.in[0])
	if err != nil {
		return err
	}
	k, err := e.scratchOf(scratchKeys, 4*tokens*kWidth)
	if err != nil {
		return err
	}
	v, err := e.scratchOf(scratchValues, 4*tokens*kWidth)
	if err != nil {
		return err
	}
	last := finishing{q: q, k: k, v: v, out: q, rope: f.rope, kvHeads: f.kvHeads, tokens: tokens,
		positions: e.in[1], cells: e.in[2], normed: f.normed, qNorm: f.qNorm, kNorm: f.kNorm, eps: f.eps}
	finish, err := e.prepareFinish(&last)
	if err != nil {
		return err
	}
	for i, to := range [3]region{q, k, v} {
		if err := e.multiply(&f.m[i], x, tokens, to); err != nil {
			return err
		}
	}
	return finish()
}

// finishing is what completes projections: biases, norms, rotation and the store of keys and values.
type finishing struct {
	q, k, v, out        region
	rope                graph.RoPE
	kvHeads             int
	tokens              int
	positions, cells    backend.Operand
	qBias, kBias, vBias string
	normed              bool
	qNorm, kNorm        string
	eps                 float32
}

type finishArgs struct {
	headDim, heads, kvHeads, pairs, halves, normed, biased uint32
	eps                                                    float32
}

// prepareFinish checks all that the end of a fused operation needs, so that nothing is encoded of one that is refused, and
// returns what encodes it.
func (e *node) prepareFinish(f *finishing) (encode func() error, err error) {
	r, n := &f.rope, f.rope.HeadDim
	qWidth, kWidth := f.q.size/4/f.tokens, f.k.size/4/f.tokens
	if r.Heads*n != qWidth || f.kvHeads*n != kWidth || r.Dim > n || n > widestFinish {
		return nil, misshaped("queries of %d and keys of %d features for %d and %d heads of %d", qWidth, kWidth, r.Heads, f.kvHeads, n)
	}
	keys, values, suffix, err := e.regions(kWidth)
	if err != nil {
		return nil, err
	}
	_, positions, err := e.tokenInts("positions", f.positions, f.tokens)
	if err != nil {
		return nil, err
	}
	cells, err := e.storeCells(f.cells, f.tokens)
	if err != nil {
		return nil, err
	}
	args := finishArgs{headDim: uint32(n), heads: uint32(r.Heads), kvHeads: uint32(f.kvHeads),
		pairs: uint32(r.Dim / 2), halves: flag(r.Style == graph.RoPEHalves), eps: f.eps, normed: flag(f.normed)}
	reads := []region{f.q, f.k, f.v}
	for i, v := range [...]struct {
		name string
		n    int
	}{{f.qBias, qWidth}, {f.kBias, kWidth}, {f.vBias, kWidth}, {f.qNorm, n}, {f.kNorm, n}} {
		w, err := e.vector(v.name, v.n, f.q)
		if err != nil {
			return nil, err
		}
		reads = append(reads, w)
		if has := flag(v.name != ""); i < 3 {
			args.biased |= has << i
		} else {
			args.normed |= has << (i - 2)
		}
	}
	cos, sin, err := e.angles(*r, positions)
	if err != nil {
		return nil, err
	}
	reads = append(reads, cos, sin, cells)
	return func() error {
		return e.run(dispatch{
			kernel: "finish" + suffix, groups: [3]int{r.Heads + 2*f.kvHeads, f.tokens, 1}, threads: rowThreads(n),
			shared: [2]int{groupFloats, 4 * n}, reads: reads, writes: []region{f.out, keys, values}, args: bytesOf(&args),
		})
	}, nil
}

func (e *node) qkvBiasRopeStore(op *graph.QKVBiasRopeStore) error {
	q, out, err := e.pair(e.in[0])
	if err != nil {
		return err
	}
	k, err := e.floats(e.in[1])
	if err != nil {
		return err
	}
	v, err := e.floats(e.in[2])
	if err != nil {
		return err
	}
	tokens := e.in[0].Shape.Rows()
	if e.in[1].Shape != e.in[2].Shape || e.in[1].Shape.Rows() != tokens {
		return misshaped("queries %v, keys %v, values %v", e.in[0].Shape, e.in[1].Shape, e.in[2].Shape)
	}
	finish, err := e.prepareFinish(&finishing{q: q, k: k, v: v, out: out, rope: op.RoPE, kvHeads: op.KVHeads, tokens: tokens,
		positions: e.in[3], cells: e.in[4], qBias: op.QBias, kBias: op.KBias, vBias: op.VBias})
	if err != nil {
		return err
	}
	return finish()
}

type attendArgs struct {
	heads, kvHeads, headDim, window, full, spans, pieces, tiles, slots, width uint32
	scale                                                                     float32
}

// rowTile is a stretch of rows that attend to the same cells, and share them.
type rowTile struct{ first, count uint32 }

// rowTiles is a list of tiles, on the host and the device.
type rowTiles struct {
	list, next []rowTile
	block      *block
}

const (
	// attendGroups is how many threadgroups keep the device busy.
	attendGroups = 128
	// maxPartials bounds the memory of pieces, in bytes.
	maxPartials = 64 << 20
)

// attendKernel returns the kernel for heads of a width, and the width of its tiles.
func attendKernel(suffix string, headDim int) (kernel string, width int) {
	width = 32
	for _, dim := range []int{32, 64, 128, widestHead} {
		if dim == widestHead {
			width = 16
		}
		if headDim <= dim {
			return fmt.Sprintf("attend%s_%d", suffix, dim), width
		}
	}
	return "", 0
}

func (e *node) attention(op *graph.Attention) error {
	if !bounds.Attention(*op) {
		return backend.ErrUnsupported
	}
	q, out, err := e.pair(e.in[0])
	if err != nil {
		return err
	}
	tokens := e.out.Shape.Rows()
	if op.Heads*op.HeadDim != e.out.Shape[0] || op.Window < 0 {
		return misshaped("%d heads of %d in rows of %d, window %d", op.Heads, op.HeadDim, e.out.Shape[0], op.Window)
	}
	keys, values, suffix, err := e.regions(op.KVHeads * op.HeadDim)
	if err != nil {
		return err
	}
	at, err := e.places(op, tokens)
	if err != nil {
		return err
	}
	kernel, width := attendKernel(suffix, op.HeadDim)
	slots, err := slotsOf(op, at.positions, at.spans, e.kv.Cells, width)
	if err != nil {
		return err
	}
	perToken := op.Heads / op.KVHeads
	tiles, single, err := e.rowTiles(tokens, perToken, width, at.spans)
	if err != nil {
		return err
	}
	args := attendArgs{
		heads: uint32(op.Heads), kvHeads: uint32(op.KVHeads), headDim: uint32(op.HeadDim), window: uint32(op.Window),
		full: flag(op.Mode == graph.Full), spans: flag(op.ExplicitSpan), width: uint32(width), scale: op.Scale,
	}
	groups := tiles.size / 8 * op.KVHeads
	partials := 4 * tokens * op.Heads * slots * (op.HeadDim + 2)
	pieces := min(slots, ceil(attendGroups, groups))
	split := single && pieces > 1 && partials <= maxPartials
	results := []region{out, q}
	if split {
		each := ceil(slots, pieces)
		args.pieces, args.tiles, args.slots = uint32(ceil(slots, each)), uint32(each), uint32(slots)
		if results[1], err = e.scratchOf(scratchPartials, partials); err != nil {
			return err
		}
	}
	d := dispatch{
		kernel: kernel, groups: [3]int{tiles.size / 8, op.KVHeads, int(max(1, args.pieces))}, threads: 4 * width,
		reads: []region{q, keys, values, at.positionsOf, at.spansOf, tiles}, writes: results, args: bytesOf(&args),
	}
	if err := e.run(d); err != nil || !split {
		return err
	}
	return e.run(dispatch{
		kernel: "merge", groups: [3]int{op.Heads, tokens, 1}, threads: 32,
		reads: []region{results[1], at.positionsOf, at.spansOf}, writes: []region{out}, args: bytesOf(&args),
	})
}

// places are where tokens stand and, if the operation has spans, which cells are theirs. The memory of absent spans is that
// of the positions: something has to be bound.
type places struct {
	positions, spans     []int32
	positionsOf, spansOf region
}

func (e *node) places(op *graph.Attention, tokens int) (p places, err error) {
	if op.ExplicitSpan != (len(e.in) == 4) {
		return p, misshaped("explicit span is %v with %d sources", op.ExplicitSpan, len(e.in))
	}
	if p.positionsOf, p.positions, err = e.tokenInts("positions", e.in[2], tokens); err != nil {
		return p, err
	}
	p.spansOf = p.positionsOf
	if op.ExplicitSpan {
		p.spansOf, p.spans, err = e.tokenInts("spans", e.in[3], 2*graph.MaxRuns*tokens)
	}
	return p, err
}

// slotsOf returns the largest number of tiles that a token attends to. It refuses tokens that would reach beyond the region
// or their span.
func slotsOf(op *graph.Attention, positions, spans []int32, cells, width int) (slots int, err error) {
	for i := range positions {
		n, err := vocabulary.Attended(op, positions, spans, i, cells)
		if err != nil {
			return 0, err
		}
		first := 0
		if op.Window > 0 && op.Window < n {
			first = n - op.Window
		}
		slots = max(slots, ceil(n, width)-first/width)
	}
	return slots, nil
}

// rowTiles cuts the rows of a key head into tiles whose tokens have the same span, and says whether each tile has rows of
// one token only.
func (e *node) rowTiles(tokens, perToken, width int, spans []int32) (r region, single bool, err error) {
	t := &e.device.rows
	t.next = t.next[:0]
	single = true
	for from := 0; from < tokens; {
		to := from + 1
		for to < tokens && (spans == nil || slices.Equal(vocabulary.SpanOf(spans, to), vocabulary.SpanOf(spans, from))) {
			to++
		}
		for row := from * perToken; row < to*perToken; row += width {
			count := min(width, to*perToken-row)
			t.next = append(t.next, rowTile{uint32(row), uint32(count)})
			single = single && row/perToken == (row+count-1)/perToken
		}
		from = to
	}
	r = region{t.block, 0, 8 * len(t.next)}
	if t.block != nil && slices.Equal(t.list, t.next) {
		return r, single, nil
	}
	if t.block == nil || t.block.size < r.size {
		grown, err := e.gpu.newBlock(max(r.size, 4096))
		if err != nil {
			return r, single, err
		}
		e.drop(t.block)
		t.block, r.block = grown, grown
	}
	err = e.hostWrite(r, func(b []byte) {
		for i := range t.next {
			copy(b[8*i:], bytesOf(&t.next[i]))
		}
	})
	t.list = append(t.list[:0], t.next...)
	return r, single, err
}
