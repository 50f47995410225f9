package backendtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/quant"
)

func testRoPE(t *testing.T, suite *suite) {
	s := suite.start(t)
	r := random(8)
	factors := []float32{1, 1.5, 2, 8, 8, 8, 8, 8}
	s.load(vector("factors", factors))
	base := graph.RoPE{Base: 10000, Scale: 1, Dim: 16, Heads: 3, HeadDim: 16}
	with := func(change func(*graph.RoPE)) graph.RoPE {
		op := base
		change(&op)
		return op
	}
	cases := []struct {
		name string
		op   graph.RoPE
	}{
		{"plain", base},
		{"one head of two", with(func(op *graph.RoPE) { op.Heads, op.HeadDim, op.Dim = 1, 2, 2 })},
		{"part of the head", with(func(op *graph.RoPE) { op.HeadDim = 22 })},
		{"odd head", with(func(op *graph.RoPE) { op.HeadDim, op.Dim = 7, 6 })},
		{"linear scaling", with(func(op *graph.RoPE) { op.Scale = 0.25 })},
		{"factors", with(func(op *graph.RoPE) { op.Factors = "factors"; op.Base = 500000 })},
		{"yarn", with(func(op *graph.RoPE) {
			op.Scale, op.ExtFactor, op.BetaFast, op.BetaSlow, op.OrigContext = 0.25, 1, 32, 1, 4096
		})},
		{"yarn with attention factor", with(func(op *graph.RoPE) {
			op.Scale, op.ExtFactor, op.AttnFactor, op.BetaFast, op.BetaSlow, op.OrigContext = 0.125, 1, 0.8, 32, 1, 2048
		})},
	}
	for _, style := range []graph.RoPEStyle{graph.RoPEInterleaved, graph.RoPEHalves} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%v/%s", style, c.name), func(t *testing.T) {
				s, op := s.in(t), c.op
				op.Style = style
				s.need(op, graph.F32)
				var f []float32
				if op.Factors != "" {
					f = factors
				}
				positions := []int32{0, 1, 5, 130, 4097}
				x := normal(r, op.Heads*op.HeadDim*len(positions))
				got := s.must(op, floats("x", x, op.Heads*op.HeadDim, len(positions)), ints("positions", positions))
				s.near("result", got, refRoPE(op, x, positions, f), boundMath)
				s.unrotated(op, got, x)
			})
		}
	}
	t.Run("known values", func(t *testing.T) { s.in(t).knownRotations() })
}

// unrotated checks that features beyond Dim are copied.
func (s *session) unrotated(op graph.RoPE, got, x []float32) {
	s.t.Helper()
	for h := 0; h < len(x); h += op.HeadDim {
		s.equal("features that are not rotated", got[h+op.Dim:h+op.HeadDim], x[h+op.Dim:h+op.HeadDim])
	}
}

// knownRotations compares with numbers worked out by hand: taking one pairing for the
// other gives text that only degenerates after a while.
func (s *session) knownRotations() {
	op := graph.RoPE{Base: 10000, Scale: 1, Dim: 4, Heads: 1, HeadDim: 4}
	s.need(op, graph.F32)
	x := floats("x", []float32{1, 2, 3, 4}, 4, 1)
	pos := ints("positions", []int32{1})
	s.near("interleaved", s.must(op, x, pos), []float64{-1.142640, 1.922076, 2.959851, 4.029800}, 1e-12)
	op.Style = graph.RoPEHalves
	s.near("halves", s.must(op, x, pos), []float64{-1.984111, 1.959901, 2.462378, 4.019800}, 1e-12)
	op.Dim = 2
	s.near("halves, two of four", s.must(op, x, pos), []float64{-1.142640, 1.922076, 3, 4}, 1e-12)
}

// attending is a layer under test: its operation and what is stored in it.
type attending struct {
	op     graph.Attention
	params graph.Params
	ref    *refKV
}

func newAttending(op graph.Attention, cells int, t graph.DType) *attending {
	return &attending{
		op:     op,
		params: graph.Params{Cells: cells, KVType: t, ExplicitSpan: op.ExplicitSpan, Mode: op.Mode},
		ref:    newRefKV(cells, op.KVHeads*op.HeadDim, t),
	}
}

// needAttention skips unless the device has all that the test will run.
func (s *session) needAttention(a *attending) {
	s.t.Helper()
	s.need(a.op, graph.F32)
	s.need(graph.KVStore{Layer: a.op.Layer}, graph.F32)
	s.need(graph.KVLoad{Layer: a.op.Layer}, a.params.KVType)
	caps := s.b.Capabilities()
	if a.op.ExplicitSpan && !caps.ExplicitSpan {
		s.t.Skipf("%s does not read explicit spans", s.b.Name())
	}
	if a.params.KVType == graph.F16 && !caps.PackedKV {
		s.t.Skipf("%s does not read regions of F16", s.b.Name())
	}
}

// step is one batch of tokens.
type step struct {
	q, k, v   []float32
	positions []int32
	cells     []int32
	spans     []int32
}

func (a *attending) randomStep(seed uint64, positions, cells []int32) step {
	r := random(seed)
	n, width := len(positions), a.op.KVHeads*a.op.HeadDim
	return step{
		q: normal(r, n*a.op.Heads*a.op.HeadDim), k: normal(r, n*width), v: normal(r, n*width),
		positions: positions, cells: cells,
	}
}

// tokens returns the tokens lo to hi-1 of a step.
func (a *attending) tokens(st step, lo, hi int) step {
	qw, kw := a.op.Heads*a.op.HeadDim, a.op.KVHeads*a.op.HeadDim
	part := step{q: st.q[lo*qw : hi*qw], k: st.k[lo*kw : hi*kw], v: st.v[lo*kw : hi*kw],
		positions: st.positions[lo:hi], cells: st.cells[lo:hi]}
	if st.spans != nil {
		part.spans = st.spans[lo*2*graph.MaxRuns : hi*2*graph.MaxRuns]
	}
	return part
}

// store stores a step's keys and values and attends to nothing.
func (s *session) store(a *attending, st step) {
	s.t.Helper()
	n, width := len(st.positions), a.op.KVHeads*a.op.HeadDim
	inputs := []input{floats("k", st.k, width, n), floats("v", st.v, width, n), ints("cells", st.cells)}
	b := graph.NewBuilder(a.params)
	ids := declare(b, inputs)
	b.KVStore("store", a.op.Layer, ids[0], ids[1], ids[2])
	b.Output(ids[2]) // a graph has to have one
	if _, err := s.run(s.build(b), apart, inputs...); err != nil {
		s.t.Fatal(err)
	}
	a.ref.store(st.k, st.v, st.cells)
}

// attend stores a step's keys and values and attends.
func (s *session) attend(a *attending, st step) ([]float32, error) {
	s.t.Helper()
	n, width := len(st.positions), a.op.KVHeads*a.op.HeadDim
	inputs := []input{
		floats("q", st.q, a.op.Heads*a.op.HeadDim, n), floats("k", st.k, width, n), floats("v", st.v, width, n),
		ints("positions", st.positions), ints("cells", st.cells),
	}
	if a.op.ExplicitSpan {
		inputs = append(inputs, ints("spans", st.spans, 2*graph.MaxRuns, n))
	}
	b := graph.NewBuilder(a.params)
	ids := append(declare(b, inputs), graph.None)
	stored := b.KVStore("store", a.op.Layer, ids[1], ids[2], ids[4])
	kv := b.KVLoad("load", a.op.Layer, stored)
	b.Output(b.Attention("out", ids[0], kv, ids[3], ids[5], a.op))
	results, err := s.run(s.build(b), apart, inputs...)
	if err == nil {
		a.ref.store(st.k, st.v, st.cells)
	}
	return results["out"], err
}

func (s *session) mustAttend(a *attending, st step) []float32 {
	s.t.Helper()
	v, err := s.attend(a, st)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// spansOf makes spans for tokens from runs of cells: pairs of first cell and length.
func spansOf(tokens int, runs ...int32) []int32 {
	var spans []int32
	for range tokens {
		span := make([]int32, 2*graph.MaxRuns)
		copy(span, runs)
		spans = append(spans, span...)
	}
	return spans
}

var kvTypes = []graph.DType{graph.F16, graph.F32}

// testKV checks that a stored row comes back. Attention to a single cell is the value
// in it, so this reads a region without knowing its order.
func testKV(t *testing.T, suite *suite) {
	for _, kvType := range kvTypes {
		t.Run(kvType.String(), func(t *testing.T) {
			s := suite.start(t)
			a := newAttending(graph.Attention{Heads: 2, KVHeads: 2, HeadDim: 8, Scale: 1, ExplicitSpan: true}, 64, kvType)
			s.needAttention(a)
			cells := []int32{3, 4, 5, 63, 0, 17, 16, 31, 32}
			st := a.randomStep(9, make([]int32, len(cells)), cells)
			copy(st.v, []float32{0, 1e-7, 65504, -65504, 1.0009766, 5.9604645e-08})
			spans := func() (spans []int32) {
				for _, c := range cells {
					spans = append(spans, spansOf(1, c, 1)...)
				}
				return spans
			}()
			st.spans = spans
			got := s.mustAttend(a, st)
			want := make([]float64, len(st.v))
			for i, v := range st.v {
				want[i] = float64(a.ref.round(v))
			}
			s.near("values read back", got, want, 0)

			// A later store to some cells leaves the others alone.
			again := a.randomStep(10, []int32{0, 0}, []int32{4, 16})
			again.spans = spansOf(2, 4, 1)
			s.mustAttend(a, again)
			st.k, st.v = a.gather(a.ref.k, cells), a.gather(a.ref.v, cells)
			for i, v := range st.v {
				want[i] = float64(v)
			}
			s.near("values after another store", s.mustAttend(a, st), want, 0)

			// Another layer has its own regions.
			b := newAttending(a.op, 64, kvType)
			b.op.Layer = 1
			other := b.randomStep(11, []int32{0}, []int32{4})
			other.spans = spansOf(1, 4, 1)
			s.mustAttend(b, other)
			s.near("values after a store to another layer", s.mustAttend(a, st), want, 0)
		})
	}
}

// testKVOrder checks the order that saved sessions have.
func testKVOrder(t *testing.T, suite *suite) {
	for _, kvType := range kvTypes {
		for _, dim := range []int{8, 12, 7, 40} {
			t.Run(fmt.Sprintf("%v/%d", kvType, dim), func(t *testing.T) {
				s := suite.start(t)
				order, ok := s.b.(backend.KVOrder)
				if !ok {
					t.Skipf("%s does not know the order", s.b.Name())
				}
				a := newAttending(graph.Attention{Heads: 3, KVHeads: 3, HeadDim: dim, Scale: 1, ExplicitSpan: true}, 64, kvType)
				s.needAttention(a)
				cells := make([]int32, 64)
				for i := range cells {
					cells[i] = int32((i*37 + 5) % 64)
				}
				s.store(a, a.randomStep(12, make([]int32, len(cells)), cells))
				kv := s.kv[0]
				n := backend.KVBlock * kv.Type.Bytes(kv.Width)
				k, v := make([]byte, n), make([]byte, n)
				for block := range 64 / backend.KVBlock {
					if err := errors.Join(s.b.ReadHost(k, kv.K.Slice(block*n, n)), s.b.ReadHost(v, kv.V.Slice(block*n, n))); err != nil {
						t.Fatal(err)
					}
					own := [2][]byte{bytes.Clone(k), bytes.Clone(v)}
					if err := order.KVToRows(kv, k, v); err != nil {
						t.Fatal(err)
					}
					at := block * backend.KVBlock * kv.Width
					s.equal("keys", decoded(k, kvType), a.ref.k[at:at+backend.KVBlock*kv.Width])
					s.equal("values", decoded(v, kvType), a.ref.v[at:at+backend.KVBlock*kv.Width])
					if err := order.KVFromRows(kv, k, v); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(k, own[0]) || !bytes.Equal(v, own[1]) {
						t.Fatal("a block comes back from rows differently")
					}
				}
				if err := order.KVToRows(kv, k[:n-1], v); !errors.Is(err, backend.ErrBlock) {
					t.Errorf("for less than a block the error is %v, want ErrBlock", err)
				}
				if err := order.KVFromRows(kv, k, nil); !errors.Is(err, backend.ErrBlock) {
					t.Errorf("without values the error is %v, want ErrBlock", err)
				}
			})
		}
	}
}

// decoded returns elements of F16 or F32.
func decoded(raw []byte, t graph.DType) (f []float32) {
	for ; len(raw) > 0; raw = raw[t.Bytes(1):] {
		if t == graph.F16 {
			f = append(f, quant.F16ToF32(binary.LittleEndian.Uint16(raw)))
		} else {
			f = append(f, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		}
	}
	return f
}

// gather returns the rows of the cells.
func (a *attending) gather(region []float32, cells []int32) []float32 {
	var rows []float32
	for _, c := range cells {
		rows = append(rows, region[int(c)*a.ref.width:int(c+1)*a.ref.width]...)
	}
	return rows
}

var attentionShapes = []struct{ heads, kvHeads, dim, window int }{
	{1, 1, 4, 0}, {4, 2, 16, 0}, {9, 3, 64, 0}, {6, 1, 80, 0}, {3, 3, 33, 0}, {2, 1, 1, 0}, {7, 1, 128, 0},
	{4, 2, 16, 1}, {4, 2, 16, 5}, {2, 2, 32, 128}, {2, 1, 32, 131}, {40, 2, 48, 0}, {2, 1, 192, 0},
}

// testAttention checks attention over a prompt and the steps after it, and about the
// positions where a device may begin another chunk.
func testAttention(t *testing.T, suite *suite) {
	s := suite.start(t)
	for _, kvType := range kvTypes {
		for _, c := range attentionShapes {
			name := fmt.Sprintf("%v/heads=%d/kv=%d/dim=%d/window=%d", kvType, c.heads, c.kvHeads, c.dim, c.window)
			t.Run(name, func(t *testing.T) {
				s := s.in(t)
				defer s.forget()
				a := newAttending(graph.Attention{
					Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.dim, Window: c.window,
					Scale: float32(1 / math.Sqrt(float64(c.dim))),
				}, 272, kvType)
				s.needAttention(a)
				done := 0
				for i, n := range []int{1, 2, 3, -57, 2, -61, 4, -124, 7} {
					pos := sequence(done, max(n, -n))
					done += len(pos)
					st := a.randomStep(uint64(20+i), pos, pos)
					if n < 0 {
						s.store(a, st)
						continue
					}
					got := s.mustAttend(a, st)
					want := refAttention(a.op, st.q, a.ref, func(token int) []int32 {
						return window(sequence(0, int(pos[token])+1), c.window)
					})
					s.near(fmt.Sprintf("positions %d to %d", done-n, done-1), got, want, boundHalf)
				}
			})
		}
	}
}

func window(cells []int32, n int) []int32 {
	if n > 0 && n < len(cells) {
		return cells[len(cells)-n:]
	}
	return cells
}

// testSpans checks that it makes no difference where the cells of a sequence lie, that
// sequences in one batch do not see each other, and full attention.
func testSpans(t *testing.T, suite *suite) {
	s := suite.start(t)
	for _, kvType := range kvTypes {
		for _, w := range []int{0, 9, 130} {
			t.Run(fmt.Sprintf("%v/window=%d", kvType, w), func(t *testing.T) {
				s := s.in(t)
				defer s.forget()
				plain := newAttending(graph.Attention{Heads: 4, KVHeads: 2, HeadDim: 16, Scale: 0.25, Window: w}, 512, kvType)
				s.needAttention(plain)
				spread := newAttending(plain.op, 512, kvType)
				spread.op.ExplicitSpan, spread.op.Layer = true, 1
				s.needAttention(spread)

				n := 140
				st := plain.randomStep(30, sequence(0, n), sequence(0, n))
				want := s.mustAttend(plain, st)
				ref := refAttention(plain.op, st.q, plain.ref, func(token int) []int32 { return window(sequence(0, token+1), w) })
				s.near("one run", want, ref, boundHalf)
				for _, runs := range [][]int32{
					{300, 200},
					{400, 60, 0, 3, 500, 12, 17, 1, 250, 64},
					{64, 16, 0, 16, 256, 32, 32, 16, 448, 16, 384, 32, 96, 4, 128, 8},
				} {
					st.cells = nil
					for i := 0; i < len(runs); i += 2 {
						st.cells = append(st.cells, sequence(int(runs[i]), int(runs[i+1]))...)
					}
					st.cells, st.spans = st.cells[:n], spansOf(n, runs...)
					s.equal(fmt.Sprintf("in the runs %v", runs), s.mustAttend(spread, st), want)
				}
			})
		}
	}
	for _, kvType := range kvTypes {
		t.Run(fmt.Sprintf("two sequences/%v", kvType), func(t *testing.T) { s.in(t).twoSequences(kvType) })
		t.Run(fmt.Sprintf("not finite/%v", kvType), func(t *testing.T) { s.in(t).infiniteValues(kvType) })
	}
	t.Run("full", func(t *testing.T) { s.in(t).fullAttention() })
}

// twoSequences runs batches with tokens of two sequences, and each sequence alone.
func (s *session) twoSequences(kvType graph.DType) {
	defer s.forget()
	a := newAttending(graph.Attention{Heads: 4, KVHeads: 2, HeadDim: 16, Scale: 0.25, ExplicitSpan: true}, 64, kvType)
	s.needAttention(a)
	var alone [2]step
	var want [2][]float32
	for i, n := range []int{5, 3} {
		alone[i] = a.randomStep(uint64(31+i), sequence(0, n), sequence(32*i, n))
		alone[i].spans = spansOf(n, int32(32*i), 16)
		want[i] = s.mustAttend(a, alone[i])
	}
	for name, order := range map[string][]int{"one after the other": {0, 0, 0, 0, 0, 1, 1, 1}, "mixed": {0, 1, 0, 0, 1, 1, 0, 0}} {
		s.forget()
		var both step
		var expected []float32
		var next [2]int
		for _, i := range order {
			t := a.tokens(alone[i], next[i], next[i]+1)
			both.q, both.k, both.v = append(both.q, t.q...), append(both.k, t.k...), append(both.v, t.v...)
			both.positions, both.cells, both.spans = append(both.positions, t.positions...), append(both.cells, t.cells...), append(both.spans, t.spans...)
			width := a.op.Heads * a.op.HeadDim
			expected = append(expected, want[i][next[i]*width:(next[i]+1)*width]...)
			next[i]++
		}
		s.equal(name+" in one batch", s.mustAttend(a, both), expected)
	}
}

// infiniteValues checks that a key or a value that is not finite reaches the tokens that attend to it, and none beside them:
// a device that gives positions a weight of 0 instead of leaving them out makes NaN of it.
func (s *session) infiniteValues(kvType graph.DType) {
	const n, late, window, dim = 90, 33, 40, 16
	a := newAttending(graph.Attention{Heads: 4, KVHeads: 2, HeadDim: dim, Scale: 0.25, Window: window}, 128, kvType)
	s.needAttention(a)
	st := a.randomStep(35, sequence(0, n), sequence(0, n))
	want := s.mustAttend(a, st)
	broken := func(name string, of []float32, value float64, features int) {
		s.t.Helper()
		defer s.forget()
		of[late*2*dim] = float32(value)
		got := s.mustAttend(a, st)
		for token := late; token < late+window; token++ {
			for head := range 2 { // those of the first key head
				for f := range features {
					i := (token*4+head)*dim + f
					if got[i]-got[i] == 0 {
						s.t.Fatalf("%s of token %d: feature %d of token %d, which attends to it, is %v", name, late, f, token, got[i])
					}
					got[i] = want[i]
				}
			}
		}
		s.equal("what does not attend to the "+name+" that is not finite", got, want)
	}
	v := slices.Clone(st.v)
	broken("value", st.v, math.Inf(1), 1)
	st.v = v
	broken("key", st.k, math.NaN(), dim)
}

func (s *session) fullAttention() {
	defer s.forget()
	a := newAttending(graph.Attention{Heads: 2, KVHeads: 1, HeadDim: 8, Scale: 0.3, Mode: graph.Full, ExplicitSpan: true}, 48, graph.F32)
	s.needAttention(a)
	st := a.randomStep(33, sequence(0, 7), []int32{20, 21, 22, 4, 5, 6, 7})
	st.spans = spansOf(7, 20, 3, 4, 4)
	got := s.mustAttend(a, st)
	s.near("full attention", got, refAttention(a.op, st.q, a.ref, func(int) []int32 { return st.cells }), boundHalf)
}

// testAttentionBatch checks that a prompt in pieces gives the bits of the whole.
func testAttentionBatch(t *testing.T, suite *suite) {
	s := suite.start(t)
	for _, kvType := range kvTypes {
		for _, c := range []struct {
			heads, kvHeads, dim, window, n int
			sizes                          []int
		}{
			{4, 2, 8, 0, 140, []int{1, 2, 7, 16}}, {6, 2, 16, 85, 150, []int{1, 20}}, {5, 1, 80, 50, 70, []int{1, 60}}, {2, 1, 256, 0, 70, []int{1, 7, 60}},
		} {
			t.Run(fmt.Sprintf("%v/heads=%d/kv=%d/dim=%d/window=%d", kvType, c.heads, c.kvHeads, c.dim, c.window), func(t *testing.T) {
				s := s.in(t)
				defer s.forget()
				a := newAttending(graph.Attention{Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.dim, Window: c.window, Scale: 0.4}, 160, kvType)
				s.needAttention(a)
				whole := a.randomStep(34, sequence(0, c.n), sequence(0, c.n))
				want := s.mustAttend(a, whole)
				for _, size := range c.sizes {
					s.forget()
					var got []float32
					for at := 0; at < c.n; at += size {
						got = append(got, s.mustAttend(a, a.tokens(whole, at, min(c.n, at+size)))...)
					}
					s.equal(fmt.Sprintf("in pieces of %d", size), got, want)
				}
			})
		}
	}
}

// testFused compares each fused operation with the operations it stands for.
func testFused(t *testing.T, suite *suite) {
	s := suite.start(t)
	for _, types := range [][3]string{{"Q8_0", "Q8_0", "Q8_0"}, {"Q4_K", "Q4_K", "Q6_K"}, {"Q4_0", "F16", "Q4_1"}, {"F32", "F32", "F32"}} {
		for _, tokens := range []int{1, 5} {
			for _, norm := range []bool{false, true} {
				for _, bias := range []bool{false, true} {
					name := fmt.Sprintf("%v/tokens=%d/norm=%v/bias=%v", types, tokens, norm, bias)
					t.Run(name, func(t *testing.T) {
						s := s.in(t)
						defer s.forget()
						s.fusedProjections(types, tokens, norm, bias)
					})
				}
			}
			t.Run(fmt.Sprintf("FFN/%v/tokens=%d", types, tokens), func(t *testing.T) { s.in(t).fusedFFN(types, tokens) })
			t.Run(fmt.Sprintf("FFNDown/%v/tokens=%d", types, tokens), func(t *testing.T) { s.in(t).fusedFFNDown(types, tokens) })
		}
	}
}

// projections are the weights of a layer in a test of fusion.
type projections struct {
	w    [3]graph.MatMul
	rope graph.RoPE
	kvh  int
	norm [2]string
	x    []float32
	in   int
}

// variant builds the path from activations to rotated queries and a store.
type variant func(b *graph.Builder, p *projections, x, positions, cells graph.NodeID) (q, stored graph.NodeID)

func (s *session) fusedProjections(types [3]string, tokens int, norm, bias bool) {
	r := random(40)
	p := &projections{in: 512, kvh: 2, rope: graph.RoPE{Style: graph.RoPEHalves, Base: 10000, Scale: 1, Dim: 16, Heads: 4, HeadDim: 16}}
	for i, out := range []int{64, 32, 32} {
		f, err := quant.Lookup(types[i])
		if err != nil {
			s.t.Fatal(err)
		}
		name := fmt.Sprintf("%v%d", types, i)
		w, _ := randomWeight(s.t, random(uint64(41+i)), name, f, p.in, out)
		s.load(w, vector(name+".bias", normal(random(uint64(45+i)), out)))
		p.w[i] = graph.MatMul{Weight: name, Type: f.Name, In: p.in, Out: out}
		if bias {
			p.w[i].Bias = name + ".bias"
		}
		s.need(p.w[i], graph.F32)
	}
	if norm {
		p.norm = [2]string{"qnorm", "knorm"}
		s.load(vector("qnorm", normal(r, 16)), vector("knorm", normal(r, 16)))
	}
	p.x = normal(r, tokens*p.in)
	want := s.project(p, tokens, norm, unfused(norm))
	try := func(op graph.Op, v variant) {
		if !s.supports(op, graph.F32) {
			s.t.Logf("%s does not support %s", s.b.Name(), op.Kind())
			return
		}
		got := s.project(p, tokens, norm, v)
		s.equal(op.Kind().String()+": queries", got["q"], want["q"])
		s.equal(op.Kind().String()+": attention", got["out"], want["out"])
		s.equal(op.Kind().String()+": stored values", got["values"], want["values"])
	}
	if norm {
		op := graph.FusedQKVNorm{Q: p.w[0], K: p.w[1], V: p.w[2], QNorm: p.norm[0], KNorm: p.norm[1], Eps: 1e-6, RoPE: p.rope, KVHeads: p.kvh}
		try(op, func(b *graph.Builder, _ *projections, x, positions, cells graph.NodeID) (q, stored graph.NodeID) {
			q = b.Node("q", op, x, positions, cells)
			return q, q
		})
		return
	}
	op := graph.FusedQKV{Q: p.w[0], K: p.w[1], V: p.w[2], RoPE: p.rope, KVHeads: p.kvh}
	try(op, func(b *graph.Builder, _ *projections, x, positions, cells graph.NodeID) (q, stored graph.NodeID) {
		q = b.Node("q", op, x, positions, cells)
		return q, q
	})
	tail := graph.QKVBiasRopeStore{QBias: p.w[0].Bias, KBias: p.w[1].Bias, VBias: p.w[2].Bias, RoPE: p.rope, KVHeads: p.kvh}
	try(tail, func(b *graph.Builder, p *projections, x, positions, cells graph.NodeID) (q, stored graph.NodeID) {
		var ids []graph.NodeID
		for i, w := range p.w {
			w.Bias = ""
			ids = append(ids, b.Node(fmt.Sprint("projection", i), w, x))
		}
		q = b.Node("q", tail, append(ids, positions, cells)...)
		return q, q
	})
}

// unfused is the path of single operations.
func unfused(norm bool) variant {
	return func(b *graph.Builder, p *projections, x, positions, cells graph.NodeID) (q, stored graph.NodeID) {
		q, k := b.Node("q.proj", p.w[0], x), b.Node("k.proj", p.w[1], x)
		v := b.Node("v.proj", p.w[2], x)
		kRope := p.rope
		kRope.Heads = p.kvh
		if norm {
			q = b.Node("q.norm", graph.QKNorm{Weight: p.norm[0], Eps: 1e-6, Heads: p.rope.Heads, HeadDim: p.rope.HeadDim}, q)
			k = b.Node("k.norm", graph.QKNorm{Weight: p.norm[1], Eps: 1e-6, Heads: p.kvh, HeadDim: p.rope.HeadDim}, k)
		}
		q, k = b.RoPE("q", q, positions, p.rope), b.RoPE("k", k, positions, kRope)
		return q, b.KVStore("store", 0, k, v, cells)
	}
}

// project runs a variant followed by attention, over the sequence and over the last
// token's cell alone, which shows its values.
func (s *session) project(p *projections, tokens int, norm bool, v variant) map[string][]float32 {
	s.t.Helper()
	s.forget()
	b := graph.NewBuilder(graph.Params{Cells: 32, KVType: graph.F16})
	x := b.Input("x", graph.F32, p.in, tokens)
	positions, cells := b.Input("positions", graph.I32, tokens), b.Input("cells", graph.I32, tokens)
	q, stored := v(b, p, x, positions, cells)
	kv := b.KVLoad("load", 0, stored)
	op := graph.Attention{Heads: p.rope.Heads, KVHeads: p.kvh, HeadDim: p.rope.HeadDim, Scale: 0.25}
	b.Output(q)
	b.Output(b.Attention("out", q, kv, positions, graph.None, op))
	op.Window = 1
	b.Output(b.Attention("values", q, kv, positions, graph.None, op))
	results, err := s.run(s.build(b), apart, floats("x", p.x, p.in, tokens), ints("positions", sequence(0, tokens)), ints("cells", sequence(0, tokens)))
	if err != nil {
		s.t.Fatal(err)
	}
	return results
}

// product loads a random weight and returns its product.
func (s *session) product(name, format string, seed uint64, in, out int) graph.MatMul {
	s.t.Helper()
	f, err := quant.Lookup(format)
	if err != nil {
		s.t.Fatal(err)
	}
	w, _ := randomWeight(s.t, random(seed), name, f, in, out)
	s.load(w)
	return graph.MatMul{Weight: name, Type: f.Name, In: in, Out: out}
}

// joined begins a graph with the single operations for what gate and up yield, the last of them of a name.
func joined(name string, x input, gate, up graph.MatMul) (*graph.Builder, graph.NodeID) {
	b := graph.NewBuilder(graph.Params{})
	id := declare(b, []input{x})[0]
	return b, b.Mul(name, b.Silu("silu", b.Node("gate", gate, id)), b.Node("up", up, id))
}

func (s *session) fusedFFN(types [3]string, tokens int) {
	const in, out = 512, 37
	fused := graph.FusedFFN{
		Gate: s.product(fmt.Sprint("gate", types), types[1], 50, in, out),
		Up:   s.product(fmt.Sprint("up", types), types[2], 51, in, out),
	}
	s.need(fused, graph.F32)
	x := floats("x", normal(random(52), in*tokens), in, tokens)
	b, result := joined("out", x, fused.Gate, fused.Up)
	s.equalApart("FusedFFN", fused, b, result, x)
}

// fusedFFNDown has weights of three formats, and more features between them than a worker joins at once.
func (s *session) fusedFFNDown(types [3]string, tokens int) {
	const in, between, out = 256, 512 + 256, 37
	fused := graph.FusedFFNDown{
		Gate: s.product(fmt.Sprint("wide gate", types), types[1], 53, in, between),
		Up:   s.product(fmt.Sprint("wide up", types), types[2], 54, in, between),
		Down: s.product(fmt.Sprint("down", types), types[0], 55, between, out),
	}
	s.need(fused, graph.F32)
	x := floats("x", normal(random(56), in*tokens), in, tokens)
	b, act := joined("act", x, fused.Gate, fused.Up)
	s.equalApart("FusedFFNDown", fused, b, b.Node("out", fused.Down, act), x)
}

// equalApart holds a fused operation on x against a graph of single ones, whose result is "out".
func (s *session) equalApart(what string, fused graph.Op, b *graph.Builder, result graph.NodeID, x input) {
	s.t.Helper()
	b.Output(result)
	want, err := s.run(s.build(b), apart, x)
	if err != nil {
		s.t.Fatal(err)
	}
	s.equal(what, s.must(fused, x), want["out"])
}

// testRepeatedRuns runs work large enough to be shared among threads again and again.
func testRepeatedRuns(t *testing.T, suite *suite) {
	s := suite.start(t)
	f, err := quant.Lookup("Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	op := graph.MatMul{Weight: "repeated", Type: "Q8_0", In: 256, Out: 301}
	s.need(op, graph.F32)
	w, _ := randomWeight(t, random(60), "repeated", f, 256, 301)
	s.load(w)
	a := newAttending(graph.Attention{Heads: 8, KVHeads: 4, HeadDim: 16, Scale: 0.25}, 160, graph.F16)
	s.needAttention(a)
	x := floats("x", normal(random(61), 256*9), 256, 9)
	st := a.randomStep(62, sequence(0, 140), sequence(0, 140))
	product, attention := s.must(op, x), s.mustAttend(a, st)
	for range 3 {
		s.equal("product", s.must(op, x), product)
		s.equal("attention", s.mustAttend(a, st), attention)
	}
}
