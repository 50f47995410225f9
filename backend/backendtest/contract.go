package backendtest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// testMemory checks the contract of buffers.
func testMemory(t *testing.T, suite *suite) {
	s := suite.start(t)
	must := func(b backend.Buffer, err error) backend.Buffer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	write := func(b backend.Buffer, v byte) {
		t.Helper()
		if err := s.b.WriteHost(b, bytes.Repeat([]byte{v}, b.Size)); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(b backend.Buffer, v byte) {
		t.Helper()
		got := make([]byte, b.Size)
		if err := s.b.ReadHost(got, b); err != nil {
			t.Fatal(err)
		}
		if i := bytes.IndexFunc(got, func(r rune) bool { return r != rune(v) }); v < 0x80 && i >= 0 {
			t.Fatalf("byte %d of %d is %#x, want %#x", i, len(got), got[i], v)
		}
	}
	before := s.b.PoolStats()
	sizes := []int{1, 4, 63, 64, 65, 100, 1000, 4096, 100_000}
	var all []backend.Buffer
	for i, n := range sizes {
		b := must(s.b.Alloc(n))
		if b.Size != n || b.Offset%backend.Alignment != 0 {
			t.Errorf("Alloc(%d) is %+v", n, b)
		}
		write(b, byte(i+1))
		all = append(all, b)
	}
	for i, b := range all {
		holds(b, byte(i+1))
	}
	stats := s.b.PoolStats()
	if stats.Buffers-before.Buffers != len(sizes) || stats.BufferBytes <= before.BufferBytes {
		t.Errorf("PoolStats went from %+v to %+v with %d buffers", before, stats, len(sizes))
	}
	// Part of a buffer.
	part := all[6].Slice(128, 70)
	write(part, 77)
	holds(part, 77)
	holds(all[6].Slice(0, 128), 7)
	holds(all[6].Slice(198, 802), 7)
	// Freed memory does not come back from AllocFresh, which is zeroed.
	for _, b := range all {
		write(b, 99)
		s.b.Free(b)
	}
	for _, n := range sizes {
		fresh := must(s.b.AllocFresh(n))
		holds(fresh, 0)
		s.b.Free(fresh)
	}
	s.b.Free(all[0])           // again
	s.b.Free(backend.Buffer{}) // nothing
	if stats := s.b.PoolStats(); stats.Buffers != before.Buffers || stats.BufferBytes != before.BufferBytes {
		t.Errorf("after freeing everything PoolStats is %+v, was %+v", stats, before)
	}
	for _, n := range []int{0, -1, math.MinInt} {
		if b, err := s.b.Alloc(n); err == nil {
			t.Errorf("Alloc(%d) gave %+v", n, b)
		}
	}
	// A handle of freed memory is refused, also when its memory was given out again.
	stale := must(s.b.Alloc(256))
	s.b.Free(stale)
	again := must(s.b.Alloc(256))
	write(again, 5)
	for name, b := range badBuffers(again, stale) {
		if err := s.b.WriteHost(b, make([]byte, 8)); err == nil {
			t.Errorf("WriteHost to %s was accepted", name)
		}
		if err := s.b.ReadHost(make([]byte, 8), b); err == nil {
			t.Errorf("ReadHost from %s was accepted", name)
		}
	}
	if err := s.b.WriteHost(again, make([]byte, 257)); err == nil {
		t.Error("WriteHost of more bytes than the buffer has was accepted")
	}
	if err := s.b.ReadHost(make([]byte, 257), again); err == nil {
		t.Error("ReadHost of more bytes than the buffer has was accepted")
	}
	holds(again, 5)
	s.b.Free(again)
}

// badBuffers are handles that must be refused, made from a good one of 256 bytes and a
// freed one.
func badBuffers(good, freed backend.Buffer) map[string]backend.Buffer {
	return map[string]backend.Buffer{
		"no buffer":            {},
		"no buffer of a size":  {Size: 256},
		"a freed buffer":       freed,
		"an invented id":       {ID: good.ID + 12345, Size: 256},
		"a negative id":        {ID: -good.ID, Size: 256},
		"the largest id":       {ID: math.MaxInt, Size: 256},
		"a negative offset":    {ID: good.ID, Offset: -64, Size: 256},
		"a negative size":      {ID: good.ID, Size: -256},
		"bytes far beyond":     {ID: good.ID, Offset: 1 << 30, Size: 256},
		"a size that wraps":    {ID: good.ID, Offset: 64, Size: math.MaxInt},
		"an offset that wraps": {ID: good.ID, Offset: math.MaxInt - 4, Size: 256},
	}
}

// testCopyAcross copies from one instance to another, and refuses what cannot be.
func testCopyAcross(t *testing.T, suite *suite) {
	a, b := suite.start(t), suite.start(t)
	from, err := a.b.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	to, err := b.b.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1000)
	for i := range data {
		data[i] = byte(i * 31)
	}
	for range 3 { // a graph that is executed again copies again
		for i := range data {
			data[i]++
		}
		if err := a.b.WriteHost(from, data); err != nil {
			t.Fatal(err)
		}
		fence, err := a.b.CopyAcross(b.b, to, from)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.b.WaitCopy(fence); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1000)
		if err := b.b.ReadHost(got, to); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Fatal("the copy differs")
		}
	}
	for name, c := range map[string]struct{ to, from backend.Buffer }{
		"of different sizes":  {to.Slice(0, 500), from},
		"from a bad buffer":   {to, backend.Buffer{ID: from.ID + 999, Size: 1000}},
		"into a bad buffer":   {backend.Buffer{ID: to.ID + 999, Size: 1000}, from},
		"from beyond the end": {to, from.Slice(64, 1000)},
	} {
		fence, err := a.b.CopyAcross(b.b, c.to, c.from)
		if err == nil {
			err = a.b.WaitCopy(fence)
		}
		if err == nil {
			t.Errorf("a copy %s was accepted", name)
		}
	}
}

// testWeights checks LoadWeights.
func testWeights(t *testing.T, suite *suite) {
	s := suite.start(t)
	s.need(graph.RMSNorm{Weight: "a"}, graph.F32)
	norm := func(name string, d int) ([]float32, error) {
		x := make([]float32, d)
		for i := range x {
			x[i] = 1
		}
		return s.eval(graph.RMSNorm{Weight: name}, apart, floats("x", x, d, 1))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a, b := vector("a", []float32{1, 2, 3}), vector("b", []float32{4, 5})
	if err := s.b.LoadWeights(ctx, []backend.Weight{a, b}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended, LoadWeights returned %v", err)
	}
	var last, sum int64
	err := s.b.LoadWeights(context.Background(), []backend.Weight{a, b}, func(done, total int64) {
		if done < last || done > total || total != int64(len(a.Data)+len(b.Data)) {
			t.Errorf("progress of %d after %d of %d bytes", done, last, total)
		}
		last, sum = done, total
	})
	if err != nil || last != sum || sum == 0 {
		t.Errorf("LoadWeights ended at %d of %d bytes with %v", last, sum, err)
	}
	loaded := s.b.PoolStats().WeightBytes
	s.load(a, b)
	if again := s.b.PoolStats().WeightBytes; again != loaded {
		t.Errorf("loading the same weights again changed their memory from %d to %d bytes", loaded, again)
	}
	check := func(name string, want ...float32) {
		t.Helper()
		got, err := norm(name, len(want))
		if err != nil {
			t.Fatal(err)
		}
		s.equal(name, got, want)
	}
	check("a", 1, 2, 3)
	s.load(vector("a", []float32{7, 8, 9}))
	check("a", 7, 8, 9)
	check("b", 4, 5)
	for name, half := range map[string]backend.Weight{
		"f16":  {Name: "f16", Type: "F16", In: 2, Out: 1, Data: []byte{0x00, 0x3c, 0x00, 0xc0}},
		"bf16": {Name: "bf16", Type: "BF16", In: 2, Out: 1, Data: []byte{0x80, 0x3f, 0x00, 0xc0}},
	} {
		s.load(half)
		check(name, 1, -2)
	}
	for what, w := range map[string]backend.Weight{
		"of an unknown type":   {Name: "bad", Type: "Q9_Z", In: 32, Out: 1, Data: make([]byte, 34)},
		"of too few bytes":     {Name: "bad", Type: "Q8_0", In: 32, Out: 2, Data: make([]byte, 67)},
		"of too many bytes":    {Name: "bad", Type: "F32", In: 2, Out: 2, Data: make([]byte, 20)},
		"of half a block":      {Name: "bad", Type: "Q8_0", In: 16, Out: 2, Data: make([]byte, 34)},
		"without rows":         {Name: "bad", Type: "F32", In: 4, Out: 0},
		"of negative extents":  {Name: "bad", Type: "F32", In: -2, Out: -2, Data: make([]byte, 16)},
		"of extents that wrap": {Name: "bad", Type: "F32", In: math.MaxInt/2 + 1, Out: 4, Data: make([]byte, 16)},
	} {
		err := s.b.LoadWeights(context.Background(), []backend.Weight{w}, nil)
		if err == nil {
			t.Errorf("a weight %s was accepted", what)
		} else if !strings.Contains(err.Error(), "bad") {
			t.Errorf("a weight %s: the error does not name it: %v", what, err)
		}
	}
	check("a", 7, 8, 9)
}

// testWrongCalls hands the device what it has to refuse, and then has it work.
func testWrongCalls(t *testing.T, suite *suite) {
	s := suite.start(t)
	r := random(70)
	table := vector("table", normal(r, 12))
	table.In, table.Out = 4, 3
	s.load(table, vector("vector", normal(r, 4)))
	attention := graph.Attention{Heads: 1, KVHeads: 1, HeadDim: 4, Scale: 1}
	spanned := attention
	spanned.ExplicitSpan = true
	x := floats("x", normal(r, 8), 4, 2)
	good := func(t *testing.T) {
		t.Helper()
		s := s.in(t)
		s.need(graph.Add{}, graph.F32)
		s.must(graph.Add{}, x, floats("y", x.f, 4, 2))
	}
	good(t)
	refused := func(name string, op graph.Op, run func(s *session) error, mention ...string) {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			s.need(op, graph.F32)
			defer s.forget()
			err := run(s)
			if err == nil {
				t.Fatal("the call was accepted")
			}
			for _, m := range append(mention, s.b.Name()) {
				if !strings.Contains(err.Error(), m) {
					t.Errorf("the error does not name %s: %v", m, err)
				}
			}
			good(t)
		})
	}
	simple := func(name string, op graph.Op, mention string, inputs ...input) {
		refused(name, op, func(s *session) error {
			_, err := s.eval(op, apart, inputs...)
			return err
		}, "out", mention)
	}
	embed := graph.Embed{Weight: "table", Type: "F32", Dim: 4, Vocab: 3}
	rope := graph.RoPE{Base: 10000, Scale: 1, Dim: 4, Heads: 1, HeadDim: 4}
	simple("id below the table", embed, "-1", ints("ids", []int32{0, -1}))
	simple("id beyond the table", embed, "3", ints("ids", []int32{0, 3}))
	simple("id far beyond the table", embed, "", ints("ids", []int32{math.MaxInt32, math.MinInt32}))
	simple("row below", graph.GetRows{}, "-1", x, ints("ids", []int32{-1}))
	simple("row beyond", graph.GetRows{}, "2", x, ints("ids", []int32{2}))
	simple("negative position", rope, "-1", x, ints("positions", []int32{-1, 0}))
	simple("table that is not loaded", graph.Embed{Weight: "absent", Type: "F32", Dim: 4, Vocab: 3}, "absent", ints("ids", []int32{0}))
	simple("table of another shape", graph.Embed{Weight: "table", Type: "F32", Dim: 4, Vocab: 30}, "table", ints("ids", []int32{0}))
	simple("table of another type", graph.Embed{Weight: "table", Type: "F16", Dim: 4, Vocab: 3}, "table", ints("ids", []int32{0}))
	simple("weight that is not loaded", graph.MatMul{Weight: "absent", Type: "F32", In: 4, Out: 3}, "absent", x)
	simple("weight of another shape", graph.MatMul{Weight: "table", Type: "F32", In: 4, Out: 2}, "table", x)
	simple("bias that is not loaded", graph.MatMul{Weight: "table", Bias: "absent", Type: "F32", In: 4, Out: 3}, "absent", x)
	simple("bias of another length", graph.MatMul{Weight: "table", Bias: "vector", Type: "F32", In: 4, Out: 3}, "vector", x)
	simple("norm that is not loaded", graph.RMSNorm{Weight: "absent"}, "absent", x)
	simple("norm of another length", graph.RMSNorm{Weight: "vector"}, "vector", floats("x", x.f, 8, 1))
	simple("factors that are not loaded", graph.RoPE{Base: 10000, Scale: 1, Dim: 4, Heads: 1, HeadDim: 4, Factors: "absent"}, "absent", x, ints("positions", []int32{0, 1}))

	attend := func(name string, op graph.Attention, positions, cells, spans []int32) {
		refused(name, op, func(s *session) error {
			a := newAttending(op, 16, graph.F32)
			s.needAttention(a)
			st := a.randomStep(71, positions, cells)
			st.spans = spans
			_, err := s.attend(a, st)
			return err
		})
	}
	attend("cell below the region", attention, []int32{0, 1}, []int32{0, -1}, nil)
	attend("cell beyond the region", attention, []int32{0, 1}, []int32{0, 16}, nil)
	attend("position below 0", attention, []int32{0, -1}, []int32{0, 1}, nil)
	attend("position beyond the region", attention, []int32{0, 16}, []int32{0, 1}, nil)
	attend("largest position", attention, []int32{0, math.MaxInt32}, []int32{0, 1}, nil)
	attend("span below the region", spanned, []int32{0}, []int32{0}, spansOf(1, -1, 2))
	attend("span beyond the region", spanned, []int32{0}, []int32{0}, spansOf(1, 15, 2))
	attend("span of the largest length", spanned, []int32{0}, []int32{0}, spansOf(1, 1, math.MaxInt32))
	attend("span of negative length", spanned, []int32{0}, []int32{0}, spansOf(1, 4, -2))
	attend("span shorter than the position", spanned, []int32{4}, []int32{0}, spansOf(1, 0, 4))

	testWrongOperands(t, s, good)
}

// testWrongOperands executes a good node on bad operands.
func testWrongOperands(t *testing.T, s *session, good func(*testing.T)) {
	s.need(graph.Add{}, graph.F32)
	alloc := func(size int) backend.Buffer {
		b, err := s.b.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.b.Free(b) })
		return b
	}
	x := floats("x", make([]float32, 64), 64)
	y := x
	y.name = "y"
	g := s.single(graph.Add{}, x, y)
	node := g.Lookup("out")
	operand := func(b backend.Buffer) backend.Operand {
		return backend.Operand{Buffer: b, Shape: graph.ShapeOf(64), Type: graph.F32}
	}
	a, b, out := operand(alloc(256)), operand(alloc(256)), operand(alloc(256))
	for _, o := range []backend.Operand{a, b} {
		if err := s.b.WriteHost(o.Buffer, x.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.b.Execute(node, []backend.Operand{a, b}, out, nil); err != nil {
		t.Fatal(err)
	}
	refuse := func(name string, in []backend.Operand, out backend.Operand) {
		t.Run(name, func(t *testing.T) {
			err := s.b.Execute(node, in, out, nil)
			if err == nil {
				err = s.b.Synchronize()
			}
			if err == nil {
				t.Error("the call was accepted")
			} else if !strings.Contains(err.Error(), "out") {
				t.Errorf("the error does not name the node: %v", err)
			}
			good(t)
		})
	}
	freed, err := s.b.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	s.b.Free(freed)
	for name, bad := range badBuffers(a.Buffer, freed) {
		refuse(name+" as source", []backend.Operand{a, operand(bad)}, out)
		refuse(name+" as result", []backend.Operand{a, b}, operand(bad))
	}
	short := a
	short.Buffer = short.Buffer.Slice(0, 252)
	refuse("source one element short", []backend.Operand{short, b}, out)
	refuse("result one element short", []backend.Operand{a, b}, backend.Operand{Buffer: out.Buffer.Slice(0, 252), Shape: out.Shape, Type: graph.F32})
	refuse("too few sources", []backend.Operand{a}, out)
	refuse("too many sources", []backend.Operand{a, b, a}, out)
	other := b
	other.Shape = graph.ShapeOf(32, 2)
	refuse("sources of different shapes", []backend.Operand{a, other}, out)
	other = b
	other.Type = graph.I32
	refuse("source of integers", []backend.Operand{a, other}, out)
	huge := a
	huge.Shape = graph.Shape{math.MaxInt, 2, 2, 2}
	refuse("shape that wraps", []backend.Operand{huge, huge}, huge)
	huge.Shape = graph.Shape{-64, -1, 1, 1}
	refuse("negative shape", []backend.Operand{huge, huge}, huge)

	node = &graph.Node{Name: "out", Op: alien{}, Shape: out.Shape}
	refuse("unknown operation", []backend.Operand{a}, out)
}

// alien is an operation outside of the vocabulary.
type alien struct{}

func (alien) Kind() graph.Kind { return 250 }

// testClose checks that a closed device refuses everything, quietly.
func testClose(t *testing.T, suite *suite) {
	b := suite.open(t)
	other := suite.start(t)
	buffer, err := b.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := other.b.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	x := floats("x", make([]float32, 16), 16)
	node := other.single(graph.Silu{}, x).Lookup("out")
	operand := backend.Operand{Buffer: buffer, Shape: graph.ShapeOf(16), Type: graph.F32}
	calls := map[string]func() error{
		"Alloc":       func() error { _, err := b.Alloc(64); return err },
		"AllocFresh":  func() error { _, err := b.AllocFresh(64); return err },
		"ReadHost":    func() error { return b.ReadHost(make([]byte, 4), buffer) },
		"WriteHost":   func() error { return b.WriteHost(buffer, make([]byte, 4)) },
		"Execute":     func() error { return b.Execute(node, []backend.Operand{operand}, operand, nil) },
		"CopyAcross":  func() error { _, err := b.CopyAcross(other.b, theirs, buffer); return err },
		"Synchronize": b.Synchronize,
		"LoadWeights": func() error {
			return b.LoadWeights(context.Background(), []backend.Weight{vector("late", []float32{1})}, nil)
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s after Close returned %v, want ErrClosed", name, err)
		}
	}
	b.Free(buffer)
	if b.Name() == "" || b.Capabilities() == nil {
		t.Error("the name and capabilities are gone after Close")
	}
	b.PoolStats()
	b.Close()
	if err := other.b.Synchronize(); err != nil {
		t.Errorf("closing one device broke another: %v", err)
	}
}
