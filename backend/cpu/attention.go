package cpu

import (
	"math"
	"slices"
	"unsafe"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/vocabulary"
)

// maxPositions bounds positions to what angles are computed for with full precision.
const maxPositions = 1 << 20

// ropeTable is a rotary embedding with the angles of the last batch.
type ropeTable struct {
	rope *kernels.RoPE
	rows kernels.RoPERows
}

// angles returns the angles of the positions. Layers, queries and keys with the same
// parameters share them.
func (d *device) angles(r graph.RoPE, positions []int32) (*kernels.RoPERows, error) {
	if r.Style > graph.RoPEHalves {
		return nil, backend.ErrUnsupported
	}
	if err := vocabulary.CheckIndex("position", positions, maxPositions); err != nil {
		return nil, err
	}
	r.Heads, r.HeadDim, r.Style = 0, 0, 0
	t := d.ropes[r]
	if t == nil {
		factors, err := d.vector(r.Factors, r.Dim/2)
		if err != nil {
			return nil, err
		}
		rope, err := kernels.NewRoPE(vocabulary.RoPE(r, factors))
		if err != nil {
			return nil, err
		}
		t = &ropeTable{rope: rope}
		d.ropes[r] = t
	}
	t.rows.Update(t.rope, positions)
	return &t.rows, nil
}

func ropeStyle(s graph.RoPEStyle) kernels.RoPEStyle {
	if s == graph.RoPEInterleaved {
		return kernels.Interleaved
	}
	return kernels.HalfSplit
}

// rotateTask rotates the heads of tokens.
type rotateTask struct {
	out, x         []float32
	width, headDim int
	style          kernels.RoPEStyle
	angles         *kernels.RoPERows
}

func (t *rotateTask) run(s *kernels.Scratch, lo, hi int) {
	for i := lo; i < hi; i++ {
		cos, sin := t.angles.Row(i)
		s.Tier.Rotate(t.out[i*t.width:][:t.width], t.x[i*t.width:][:t.width], t.headDim, t.style, cos, sin)
	}
}

func (d *device) rope(op graph.RoPE, in []backend.Operand, out backend.Operand) error {
	x, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	positions, err := d.tokenInts("positions", in[1], out.Shape.Rows())
	if err != nil {
		return err
	}
	width := out.Shape[0]
	if op.Heads*op.HeadDim != width || op.Dim > op.HeadDim {
		return misshaped("%d of %d features of %d heads in rows of %d", op.Dim, op.HeadDim, op.Heads, width)
	}
	angles, err := d.angles(op, positions)
	if err != nil {
		return err
	}
	d.work.rotate = rotateTask{out: o, x: x, width: width, headDim: op.HeadDim, style: ropeStyle(op.Style), angles: angles}
	return d.pool.run(&d.work.rotate, len(positions), 2*costMove*width)
}

// tokenInts returns integers of which each token has the same number.
func (d *device) tokenInts(what string, o backend.Operand, n int) ([]int32, error) {
	ints, err := d.memory.ints(o)
	if err == nil && len(ints) != n {
		err = misshaped("%d %s, want %d", len(ints), what, n)
	}
	return ints, err
}

// regions makes the layer's regions ready in the workspace, for rows of the width.
func (d *device) regions(kv *backend.KV, width int) error {
	if kv == nil {
		return misshaped("no key and value regions")
	}
	if kv.Width != width || kv.Cells <= 0 {
		return misshaped("regions of %d rows of %d, want rows of %d", kv.Cells, kv.Width, width)
	}
	if err := d.region(&d.work.k, kv.K, kv); err != nil {
		return err
	}
	return d.region(&d.work.v, kv.V, kv)
}

func (d *device) region(r *kernels.KVRegion, b backend.Buffer, kv *backend.KV) (err error) {
	if kv.Cells > math.MaxInt/8/kv.Width {
		return misshaped("regions of %d rows of %d", kv.Cells, kv.Width)
	}
	*r = kernels.KVRegion{Dim: kv.Width, Keys: r == &d.work.k, Tier: d.pool.scratch[0].Tier}
	switch kv.Type {
	case graph.F16:
		r.F16, err = elements[uint16](&d.memory, b, kv.Cells*kv.Width)
	case graph.F32:
		r.F32, err = elements[float32](&d.memory, b, kv.Cells*kv.Width)
	default:
		err = misshaped("regions of %v, want F16 or F32", kv.Type)
	}
	return err
}

// storeTask finishes the queries, keys and values of tokens: biases, norms and rotation
// where asked for, and the store.
type storeTask struct {
	q, k, v             []float32 // q may be nil
	qBias, kBias, vBias []float32
	qHeads, kHeads      kernels.Heads
	angles              *kernels.RoPERows // nil for no rotation
	cells               []int32
	keys, values        *kernels.KVRegion
	qWidth              int
	item, skip          int // tokens of an item, and by how many the first has fewer
}

// enough is the number of tokens that keep all threads busy.
const enough = 8 * backend.KVBlock

// cut returns the number of items: tokens, or of a prompt as many as fill a block of cells, which is stored at once. The
// first has fewer, so that the others begin where blocks do.
func (t *storeTask) cut() int {
	t.item, t.skip = 1, 0
	if len(t.cells) >= enough {
		t.item, t.skip = backend.KVBlock, int(t.cells[0])%backend.KVBlock
	}
	return (len(t.cells) + t.skip + t.item - 1) / t.item
}

func (t *storeTask) run(s *kernels.Scratch, lo, hi int) {
	for i := lo; i < hi; i++ {
		t.tokens(s.Tier, max(0, i*t.item-t.skip), min(len(t.cells), (i+1)*t.item-t.skip))
	}
}

// tokens works on tokens from to to-1.
func (t *storeTask) tokens(tier kernels.Tier, from, to int) {
	width := t.keys.Dim
	for i := from; i < to; i++ {
		if t.q != nil {
			t.finish(tier, i, t.q[i*t.qWidth:][:t.qWidth], t.qBias, &t.qHeads)
		}
		k, v := t.k[i*width:][:width], t.v[i*width:][:width]
		t.finish(tier, i, k, t.kBias, &t.kHeads)
		if t.vBias != nil {
			tier.Add(v, v, t.vBias)
		}
	}
	t.keys.StoreRows(t.cells[from:to], 0, width, t.k[from*width:to*width], width)
	t.values.StoreRows(t.cells[from:to], 0, width, t.v[from*width:to*width], width)
}

// store runs the workspace's storeTask, at a cost for each token.
func (d *device) store(cost int) error {
	t := &d.work.store
	items := t.cut()
	return d.pool.run(t, items, cost*t.item)
}

// finish completes the queries or keys of token i in place.
func (t *storeTask) finish(tier kernels.Tier, i int, x, bias []float32, heads *kernels.Heads) {
	if bias != nil {
		tier.Add(x, x, bias)
	}
	if t.angles != nil {
		cos, sin := t.angles.Row(i)
		tier.FinishHeads(x, x, heads.Dim, heads.Dim, len(x)/heads.Dim, heads, cos, sin, len(cos), 0)
	}
}

// storeCells returns the cells of n tokens within the regions, whose memory it makes ready. No two tokens may have
// the same, as they are stored at the same time.
func (d *device) storeCells(o backend.Operand, n int, kv *backend.KV) ([]int32, error) {
	cells, err := d.tokenInts("cells", o, n)
	if err != nil {
		return nil, err
	}
	if err := vocabulary.CheckIndex("cell", cells, kv.Cells); err != nil {
		return nil, err
	}
	if err := vocabulary.CheckDistinct(cells); err != nil {
		return nil, err
	}
	d.enlarge(kv, cells)
	return cells, nil
}

// enlarge makes huge pages of the regions as far as the cells reach, once they reach a good part of them. The first store to an ordinary
// page takes long, and on a virtual machine now and then so does a read. Of a short conversation's regions most may
// never be used, so they stay as they are.
func (d *device) enlarge(kv *backend.KV, cells []int32) {
	reach := int(slices.Max(cells)) + 1
	part := kv.Cells / 8
	if part > 0 { // layers take turns, so that no token waits for the memory of them all
		part += (kv.K.ID & slotMask) / 2 % part
	}
	if reach < part {
		return
	}
	d.memory.inHugePages(kv.K, kv.K.Size/kv.Cells*reach)
	d.memory.inHugePages(kv.V, kv.V.Size/kv.Cells*reach)
}

func (d *device) kvStore(in []backend.Operand, kv *backend.KV) error {
	k, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	v, err := d.memory.floats(in[1])
	if err != nil {
		return err
	}
	if in[0].Shape != in[1].Shape {
		return misshaped("keys %v and values %v", in[0].Shape, in[1].Shape)
	}
	width, tokens := in[0].Shape[0], in[0].Shape.Rows()
	if err := d.regions(kv, width); err != nil {
		return err
	}
	cells, err := d.storeCells(in[2], tokens, kv)
	if err != nil {
		return err
	}
	d.work.store = storeTask{k: k, v: v, cells: cells, keys: &d.work.k, values: &d.work.v}
	return d.store(2 * costMove * width)
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

func (d *device) fusedQKV(f *qkv, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	var parts [3]projection
	for i := range f.m {
		var err error
		if parts[i], err = d.resolve(&f.m[i], in[0]); err != nil {
			return err
		}
	}
	x, err := d.memory.floats(in[0])
	if err != nil {
		return err
	}
	qWidth, kWidth := f.m[0].Out, f.m[1].Out
	q, err := d.result(in[0], out, qWidth)
	if err != nil {
		return err
	}
	heads := kernels.Heads{Normed: f.normed, Eps: f.eps}
	t := storeTask{q: q, qHeads: heads, kHeads: heads}
	if f.normed {
		if t.qHeads.Weight, err = d.vector(f.qNorm, f.rope.HeadDim); err != nil {
			return err
		}
		if t.kHeads.Weight, err = d.vector(f.kNorm, f.rope.HeadDim); err != nil {
			return err
		}
	}
	if f.m[2].Out != kWidth {
		return misshaped("keys of %d features and values of %d", kWidth, f.m[2].Out)
	}
	tokens := in[0].Shape.Rows()
	if err := d.prepareStore(&t, &f.rope, qWidth, kWidth, f.kvHeads, tokens, in[1], in[2], kv); err != nil {
		return err
	}
	if f.rope.HeadDim%kernels.PackedRows == 0 && tokens >= enough && (qWidth+2*kWidth)/f.rope.HeadDim >= piecesPerThread*d.pool.threads {
		return d.projectHeads(&t, x, parts[:])
	}
	t.k, t.v = d.scratch(0, tokens*kWidth), d.scratch(1, tokens*kWidth)
	parts[0].out, parts[1].out, parts[2].out = q, t.k, t.v
	if err := d.project(x, parts[:]...); err != nil {
		return err
	}
	d.work.store = t
	return d.store(4 * costMove * (qWidth + kWidth))
}

// headsTask is a fused projection of many tokens. Its items are heads: those of queries, of keys and of values. Their products go to
// the worker's own memory, which stays in its cache until they are finished and where they belong.
type headsTask struct {
	products
	parts [3]projection
	store storeTask
}

// headValues is the number of features whose products a second-level cache holds for hundreds of tokens.
const headValues = ffnBlocks * kernels.PackedRows

func (t *headsTask) run(s *kernels.Scratch, lo, hi int) {
	dim := t.store.qHeads.Dim
	step := max(1, headValues/dim)
	for i := range t.parts {
		n := t.parts[i].outs() / dim
		for h := max(0, lo); h < min(hi, n); h += step {
			t.heads(s, i, h*dim, min(h+step, hi, n)*dim)
		}
		lo, hi = lo-n, hi-n
	}
}

// heads computes features r0 to r1-1, whole heads, of a projection.
func (t *headsTask) heads(s *kernels.Scratch, part, r0, r1 int) {
	p, n := t.parts[part], r1-r0
	p.stride = n
	p.out = s.Results(p.outs() + t.tokens*n) // of which the first r0 are not used: rows keep their places
	p.compute(&t.products, s, r0/kernels.PackedRows, r1/kernels.PackedRows)
	switch x := p.out[r0:]; part {
	case 0:
		t.finish(s.Tier, t.store.q[r0:], t.store.qWidth, x, n, &t.store.qHeads)
	case 1:
		t.finish(s.Tier, x, n, x, n, &t.store.kHeads)
		t.store.keys.StoreRows(t.store.cells, r0, n, x, n)
	case 2:
		t.store.values.StoreRows(t.store.cells, r0, n, x, n)
	}
}

// finish finishes the heads in x, n values of each token.
func (t *headsTask) finish(tier kernels.Tier, out []float32, stride int, x []float32, n int, heads *kernels.Heads) {
	cos, sin, pairs := t.store.angles.All()
	for h := 0; h < n; h += heads.Dim {
		tier.FinishHeads(out[h:], x[h:], stride, n, t.tokens, heads, cos, sin, pairs, pairs)
	}
}

// projectHeads runs a headsTask.
func (d *device) projectHeads(store *storeTask, x []float32, parts []projection) error {
	t := &d.work.heads
	t.store = *store
	copy(t.parts[:], parts)
	var err error
	if t.products, err = d.shared(x, parts...); err != nil {
		return err
	}
	dim, items := store.qHeads.Dim, 0
	for i := range parts {
		items += parts[i].outs() / dim
	}
	return d.pool.run(t, items, dim/kernels.PackedRows*parts[0].cost(t.tokens))
}

// prepareStore checks what rotation and store need, and fills it in.
func (d *device) prepareStore(t *storeTask, rope *graph.RoPE, qWidth, kWidth, kvHeads, tokens int,
	positions, cells backend.Operand, kv *backend.KV) error {
	if rope.Heads*rope.HeadDim != qWidth || kvHeads*rope.HeadDim != kWidth || rope.Dim > rope.HeadDim {
		return misshaped("queries of %d and keys of %d features for %d and %d heads of %d", qWidth, kWidth, rope.Heads, kvHeads, rope.HeadDim)
	}
	if err := d.regions(kv, kWidth); err != nil {
		return err
	}
	pos, err := d.tokenInts("positions", positions, tokens)
	if err != nil {
		return err
	}
	if t.cells, err = d.storeCells(cells, tokens, kv); err != nil {
		return err
	}
	if t.angles, err = d.angles(*rope, pos); err != nil {
		return err
	}
	t.qWidth = qWidth
	t.qHeads.Dim, t.qHeads.Style = rope.HeadDim, ropeStyle(rope.Style)
	t.kHeads.Dim, t.kHeads.Style = t.qHeads.Dim, t.qHeads.Style
	t.keys, t.values = &d.work.k, &d.work.v
	return nil
}

// qkvBiasRopeStore leaves its keys and values as they are, since others may read them;
// the finished ones go by way of the workspace.
func (d *device) qkvBiasRopeStore(op *graph.QKVBiasRopeStore, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	q, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	k, err := d.memory.floats(in[1])
	if err != nil {
		return err
	}
	v, err := d.memory.floats(in[2])
	if err != nil {
		return err
	}
	qWidth, kWidth, tokens := in[0].Shape[0], in[1].Shape[0], in[0].Shape.Rows()
	if in[1].Shape != in[2].Shape || in[1].Shape.Rows() != tokens {
		return misshaped("queries %v, keys %v, values %v", in[0].Shape, in[1].Shape, in[2].Shape)
	}
	t := storeTask{q: o}
	if t.qBias, err = d.vector(op.QBias, qWidth); err != nil {
		return err
	}
	if t.kBias, err = d.vector(op.KBias, kWidth); err != nil {
		return err
	}
	if t.vBias, err = d.vector(op.VBias, kWidth); err != nil {
		return err
	}
	if err := d.prepareStore(&t, &op.RoPE, qWidth, kWidth, op.KVHeads, tokens, in[3], in[4], kv); err != nil {
		return err
	}
	copy(o, q)
	t.k, t.v = d.scratch(0, len(k)), d.scratch(1, len(v))
	copy(t.k, k)
	copy(t.v, v)
	d.work.store = t
	return d.store(4 * costMove * (qWidth + kWidth))
}

// attendTask computes attention. Its items are the heads of a key head for tiles of tokens, in an order
// that itemOf knows. Where cut decides so, items are
// pieces instead, some chunks of positions for all heads of a token, and a mergeTask does the rest: then
// item i is piece i mod pieces of token i / pieces.
type attendTask struct {
	payload   graph.Attention
	op        *graph.Attention // &payload
	out, q    []float32
	positions []int32
	spans     []kernels.Run // MaxRuns for each token, or none
	lengths   []int         // positions that each token attends to, its window apart
	k, v      *kernels.KVRegion

	tile    int       // tokens of a tile
	side    int       // key heads whose items alternate
	pieces  int       // of each token, 0 if not cut
	chunks  int       // of each piece
	partial []float32 // [tokens][pieces*chunks] of kernels.PartialLen
}

func (t *attendTask) run(s *kernels.Scratch, lo, hi int) {
	for i := lo; i < hi; i++ {
		if t.pieces > 0 {
			t.piece(s, i/t.pieces, i%t.pieces)
		} else {
			tile, head := t.itemOf(i)
			t.tokens(s, tile*t.tile, head)
		}
	}
}

// itemOf returns the tile and the key head of an item. Some key heads, as many as are for a thread, have all of their
// items before the next ones do, so that threads get equal shares; of these, the last tile comes first, which in a
// prompt attends to most, so that what threads take last is small.
func (t *attendTask) itemOf(i int) (tile, head int) {
	tiles := (len(t.lengths)-1)/t.tile + 1
	set, in := i/(tiles*t.side), i%(tiles*t.side)
	return tiles - 1 - in/t.side, set*t.side + in%t.side
}

// group is the number of heads that share a key head.
func (t *attendTask) group() int { return t.op.Heads / t.op.KVHeads }

func (t *attendTask) describe(token, head int) kernels.Attention {
	return kernels.Attention{
		K: t.k, V: t.v, HeadDim: t.op.HeadDim, KVHead: head,
		Scale: t.op.Scale, Window: t.op.Window, N: t.lengths[token], Runs: t.runs(token),
	}
}

// tokens computes a tile. Tokens that attend to the same cells do so together.
func (t *attendTask) tokens(s *kernels.Scratch, first, head int) {
	group, width := t.group()*t.op.HeadDim, t.op.Heads*t.op.HeadDim
	last := min(first+t.tile, len(t.lengths))
	for first < last {
		a := t.describe(first, head)
		next := first + 1
		for next < last && slices.Equal(a.Runs, t.runs(next)) {
			next++
		}
		at := first*width + head*group
		kernels.AttendTile(t.out[at:], t.q[at:], width, group, &a, t.lengths[first:next], s)
		first = next
	}
}

// piece computes some chunks of a token.
func (t *attendTask) piece(s *kernels.Scratch, token, piece int) {
	a := t.describe(token, 0)
	first, count := a.Chunks()
	from := piece * t.chunks
	to := min(count, from+t.chunks)
	if from >= to {
		return
	}
	kernels.AttendChunks(t.parts(token)[from*t.partialLen():], t.heads(t.q, token), &a, first+from, first+to, s)
}

// heads is the part of queries or results that belongs to a token.
func (t *attendTask) heads(x []float32, token int) []float32 {
	n := t.op.Heads * t.op.HeadDim
	return x[token*n:][:n]
}

func (t *attendTask) partialLen() int { return kernels.PartialLen(t.op.Heads, t.op.HeadDim) }

// parts is the memory for the chunks of a token.
func (t *attendTask) parts(token int) []float32 {
	n := t.pieces * t.chunks * t.partialLen()
	return t.partial[token*n:][:n]
}

// mergeTask joins the pieces: item i is the heads of key head i mod KVHeads of token i / KVHeads.
type mergeTask struct{ *attendTask }

func (t *mergeTask) run(s *kernels.Scratch, lo, hi int) {
	for lo < hi {
		token, first := lo/t.op.KVHeads, lo%t.op.KVHeads
		n := min(hi-lo, t.op.KVHeads-first)
		a := t.describe(token, 0)
		kernels.MergeChunks(t.heads(t.out, token), t.parts(token), &a, first*t.group(), (first+n)*t.group(), s)
		lo += n
	}
}

// fewest is the number of chunks of a token from which on its heads are not worth as many tasks.
const fewest = 3

// piecesPerThread evens out threads that run at different speeds.
const piecesPerThread = 4

// cut decides how the work is divided. One token reads memory in its order if all heads go through
// some chunks together; many tokens share what they read if one head goes through all of them.
func (t *attendTask) cut(threads, longest int) {
	t.pieces = 0
	groups, want := len(t.lengths)*t.op.KVHeads, threads*piecesPerThread
	t.tile = max(1, min(kernels.TileTokens(t.group(), t.op.HeadDim), groups/want))
	t.side = max(1, t.op.KVHeads/threads)
	for t.op.KVHeads%t.side != 0 {
		t.side--
	}
	chunks := (longest-1)/kernels.AttendChunk + 2 // a window may begin within one
	if t.op.Window > 0 {
		chunks = min(chunks, (t.op.Window-1)/kernels.AttendChunk+2)
	}
	if chunks < fewest || len(t.lengths) > 1 && groups >= want {
		return
	}
	pieces := 1
	if threads > 1 {
		pieces = (want + len(t.lengths) - 1) / len(t.lengths)
	}
	t.chunks = (chunks + pieces - 1) / pieces
	t.pieces = (chunks + t.chunks - 1) / t.chunks
}

func (d *device) attend(t *attendTask, longest int) error {
	seen := longest
	if t.op.Window > 0 {
		seen = min(seen, t.op.Window)
	}
	cost := 2 * seen * t.op.HeadDim * (1 + t.group())
	if d.pool.scratch[0].Tier != kernels.Generic {
		cost /= vectorSpeed
	}
	t.cut(d.pool.threads, longest)
	tokens, kvHeads := len(t.lengths), t.op.KVHeads
	if t.pieces == 0 {
		return d.pool.run(t, (tokens+t.tile-1)/t.tile*kvHeads, cost*t.tile)
	}
	n := tokens * t.pieces * t.chunks * t.partialLen()
	if cap(t.partial) < n {
		t.partial = make([]float32, n)
	}
	t.partial = t.partial[:n]
	if err := d.pool.run(t, tokens*t.pieces, kvHeads*cost/t.pieces); err != nil {
		return err
	}
	d.work.merge = mergeTask{t}
	return d.pool.run(&d.work.merge, tokens*kvHeads, t.pieces*t.chunks*t.partialLen()/kvHeads/vectorSpeed)
}

// runs returns the cells of a token's sequence, or nil if position i lies in cell i.
func (t *attendTask) runs(token int) []kernels.Run {
	if t.spans == nil {
		return nil
	}
	return t.spans[token*graph.MaxRuns:][:graph.MaxRuns]
}

func (d *device) attention(op *graph.Attention, in []backend.Operand, out backend.Operand, kv *backend.KV) error {
	if !bounds.Attention(*op) {
		return backend.ErrUnsupported
	}
	q, o, err := d.pair(in[0], out)
	if err != nil {
		return err
	}
	if out.Shape[0] != op.Heads*op.HeadDim {
		return misshaped("queries %v for %d heads of %d", out.Shape, op.Heads, op.HeadDim)
	}
	if err := d.regions(kv, op.KVHeads*op.HeadDim); err != nil {
		return err
	}
	tokens := out.Shape.Rows()
	t := &d.work.attend
	t.payload = *op
	t.op, t.out, t.q, t.k, t.v = &t.payload, o, q, &d.work.k, &d.work.v
	if t.positions, err = d.tokenInts("positions", in[2], tokens); err != nil {
		return err
	}
	if op.ExplicitSpan != (len(in) == 4) {
		return misshaped("explicit span is %v with %d sources", op.ExplicitSpan, len(in))
	}
	var spans []int32
	if op.ExplicitSpan {
		if spans, err = d.tokenInts("spans", in[3], 2*graph.MaxRuns*tokens); err != nil {
			return err
		}
	}
	longest, err := t.measure(spans, kv.Cells)
	if err != nil {
		return err
	}
	return d.attend(t, longest)
}

// measure sets how many positions tokens attend to, and returns the most. It refuses those that would reach beyond the
// region or their span.
func (t *attendTask) measure(spans []int32, cells int) (longest int, err error) {
	t.spans, t.lengths = nil, t.lengths[:0]
	if spans != nil {
		t.spans = unsafe.Slice((*kernels.Run)(unsafe.Pointer(&spans[0])), len(spans)/2)
	}
	for i := range t.positions {
		n, err := vocabulary.Attended(t.op, t.positions, spans, i, cells)
		if err != nil {
			return 0, err
		}
		t.lengths = append(t.lengths, n)
		longest = max(longest, n)
	}
	return longest, nil
}
