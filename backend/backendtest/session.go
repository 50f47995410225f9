package backendtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// session is an open device with its key and value regions.
type session struct {
	*suite
	t  *testing.T
	b  backend.Backend
	kv map[int]*backend.KV
}

// start opens a device that is closed when the test ends.
func (s *suite) start(t *testing.T) *session {
	t.Helper()
	b := s.open(t)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &session{suite: s, t: t, b: b, kv: make(map[int]*backend.KV)}
}

// in returns the session for a subtest: the same device, other failures.
func (s *session) in(t *testing.T) *session {
	c := *s
	c.t = t
	return &c
}

// need skips the test unless the device supports the operation.
func (s *session) need(op graph.Op, dtype graph.DType) {
	s.t.Helper()
	if !s.supports(op, dtype) {
		s.t.Skipf("%s does not support %s with results of %v", s.b.Name(), graph.OpString(op), dtype)
	}
}

func (s *session) supports(op graph.Op, dtype graph.DType) bool {
	return s.b.Capabilities().Supports(op, dtype)
}

func (s *session) load(weights ...backend.Weight) {
	s.t.Helper()
	if err := s.b.LoadWeights(context.Background(), weights, nil); err != nil {
		s.t.Fatalf("LoadWeights: %v", err)
	}
}

const guard = backend.Alignment

// guarded is device memory with guard bytes on both sides.
type guarded struct {
	whole, inner backend.Buffer
}

// alloc makes guarded memory whose bytes are all 0xff, which is NaN as a float.
func (s *session) alloc(size int) (guarded, error) {
	whole, err := s.b.Alloc(guard + size + guard)
	if err != nil {
		return guarded{}, err
	}
	g := guarded{whole, whole.Slice(guard, size)}
	fill := bytes.Repeat([]byte{0xff}, whole.Size)
	copy(fill, guardBytes(0))
	copy(fill[guard+size:], guardBytes(1))
	return g, s.b.WriteHost(whole, fill)
}

func guardBytes(seed byte) []byte {
	b := make([]byte, guard)
	for i := range b {
		b[i] = byte(i*37) ^ 0xa5 ^ seed
	}
	return b
}

// intact fails the test if the guards have changed.
func (s *session) intact(g guarded, what string) {
	s.t.Helper()
	b := make([]byte, g.whole.Size)
	if err := s.b.ReadHost(b, g.whole); err != nil {
		s.t.Errorf("ReadHost: %v", err)
		return
	}
	if !bytes.Equal(b[:guard], guardBytes(0)) {
		s.t.Errorf("%s: bytes before the value were written", what)
	}
	if !bytes.Equal(b[guard+g.inner.Size:], guardBytes(1)) {
		s.t.Errorf("%s: bytes after the value were written", what)
	}
}

// input is a value for an Input node.
type input struct {
	name  string
	shape graph.Shape
	f     []float32
	i     []int32
}

func floats(name string, data []float32, dims ...int) input {
	return input{name: name, shape: graph.ShapeOf(dims...), f: data}
}

func ints(name string, data []int32, dims ...int) input {
	if len(dims) == 0 {
		dims = []int{len(data)}
	}
	return input{name: name, shape: graph.ShapeOf(dims...), i: data}
}

func (in input) dtype() graph.DType {
	if in.i != nil {
		return graph.I32
	}
	return graph.F32
}

func (in input) bytes() []byte {
	var b []byte
	for _, v := range in.f {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	for _, v := range in.i {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// place says where results go.
type place int

const (
	apart      place = iota // into memory of their own
	overFirst               // over the first source, where the traits allow it
	overSecond              // over the second source
)

// allowed reports whether the operation may run so.
func (p place) allowed(op graph.Op) bool {
	t := op.Kind().Traits()
	return p == apart || t.InPlace && (p == overFirst || t.EitherSource)
}

// run executes the live nodes of a graph, and returns the outputs by name.
func (s *session) run(g *graph.Graph, p place, inputs ...input) (map[string][]float32, error) {
	s.t.Helper()
	if err := g.Verify(); err != nil {
		s.t.Fatalf("the test's own graph is wrong: %v", err)
	}
	values := make([]backend.Operand, len(g.Nodes))
	memory := make(map[string]guarded)
	defer func() {
		for name, m := range memory {
			s.intact(m, name)
			s.b.Free(m.whole)
		}
	}()
	byName := make(map[string]input)
	for _, in := range inputs {
		byName[in.name] = in
	}
	live := g.Live()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		values[i] = backend.Operand{Shape: n.Shape, Type: n.Type}
		if !live[i] {
			continue
		}
		traits := n.Op.Kind().Traits()
		var in []backend.Operand
		for _, src := range n.Sources() {
			in = append(in, values[src])
		}
		switch {
		case traits.Region:
		case traits.Alias:
			offset := 0
			if v, ok := n.Op.(graph.View); ok {
				offset = n.Type.Bytes(v.Offset)
			}
			values[i].Buffer = in[0].Buffer.Slice(offset, n.Bytes())
		case p != apart && p.allowed(n.Op) && len(in) >= int(p):
			values[i].Buffer = in[p-1].Buffer
		default:
			m, err := s.alloc(n.Bytes())
			if err != nil {
				return nil, err
			}
			memory[n.Name] = m
			values[i].Buffer = m.inner
		}
		if n.Op.Kind() == graph.KindInput {
			if err := s.b.WriteHost(values[i].Buffer, byName[n.Name].bytes()); err != nil {
				return nil, err
			}
			continue
		}
		kv, err := s.regions(g, n)
		if err != nil {
			return nil, err
		}
		if err := s.b.Execute(n, in, values[i], kv); err != nil {
			return nil, err
		}
	}
	results := make(map[string][]float32)
	for _, id := range g.Outputs {
		v, err := s.read(values[id])
		if err != nil {
			return nil, err
		}
		results[g.Node(id).Name] = v
	}
	return results, s.b.Synchronize()
}

// read returns the 4-byte elements of a value.
func (s *session) read(o backend.Operand) ([]float32, error) {
	b := make([]byte, o.Type.Bytes(o.Shape.Elements()))
	if err := s.b.ReadHost(b, o.Buffer.Slice(0, len(b))); err != nil {
		return nil, err
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v, nil
}

// regions returns the layer's pair for a node that has a layer, made on first use.
func (s *session) regions(g *graph.Graph, n *graph.Node) (*backend.KV, error) {
	layer, width := 0, 0
	switch op := n.Op.(type) {
	case graph.KVStore:
		layer, width = op.Layer, n.Shape[0]
	case graph.KVLoad:
		layer, width = op.Layer, n.Shape[0]
	case graph.Attention:
		layer, width = op.Layer, op.KVHeads*op.HeadDim
	case graph.FusedQKV:
		layer, width = op.Layer, op.K.Out
	case graph.FusedQKVNorm:
		layer, width = op.Layer, op.K.Out
	case graph.QKVBiasRopeStore:
		layer, width = op.Layer, op.KVHeads*op.RoPE.HeadDim
	default:
		return nil, nil
	}
	if kv := s.kv[layer]; kv != nil {
		return kv, nil
	}
	cells, t := g.Params.Cells, g.Params.KVType
	k, err := s.b.AllocFresh(t.Bytes(cells * width))
	if err != nil {
		return nil, err
	}
	v, err := s.b.AllocFresh(t.Bytes(cells * width))
	if err != nil {
		return nil, err
	}
	s.kv[layer] = &backend.KV{K: k, V: v, Width: width, Cells: cells, Type: t}
	return s.kv[layer], nil
}

// forget gives the regions back, so that the next run starts with new ones.
func (s *session) forget() {
	for layer, kv := range s.kv {
		s.b.Free(kv.K)
		s.b.Free(kv.V)
		delete(s.kv, layer)
	}
}

// single returns the graph of one operation, named "out".
func (s *session) single(op graph.Op, inputs ...input) *graph.Graph {
	s.t.Helper()
	b := graph.NewBuilder(graph.Params{})
	b.Output(b.Node("out", op, declare(b, inputs)...))
	return s.build(b)
}

func declare(b *graph.Builder, inputs []input) []graph.NodeID {
	var ids []graph.NodeID
	for _, in := range inputs {
		ids = append(ids, b.Input(in.name, in.dtype(), in.shape[:]...))
	}
	return ids
}

func (s *session) build(b *graph.Builder) *graph.Graph {
	s.t.Helper()
	g, err := b.Build()
	if err != nil {
		s.t.Fatalf("the test's own graph is wrong: %v", err)
	}
	return g
}

// eval runs one operation.
func (s *session) eval(op graph.Op, p place, inputs ...input) ([]float32, error) {
	s.t.Helper()
	results, err := s.run(s.single(op, inputs...), p, inputs...)
	return results["out"], err
}

// must is eval for an operation that has to succeed. Where it can also run in place,
// it does, and must yield the same.
func (s *session) must(op graph.Op, inputs ...input) []float32 {
	s.t.Helper()
	v, err := s.eval(op, apart, inputs...)
	if err != nil {
		s.t.Fatalf("%s: %v", graph.OpString(op), err)
	}
	for p := overFirst; p <= overSecond; p++ {
		if !p.allowed(op) || len(inputs) < int(p) {
			continue
		}
		w, err := s.eval(op, p, inputs...)
		if err != nil {
			s.t.Fatalf("%s over source %d: %v", graph.OpString(op), p-1, err)
		}
		s.equal(fmt.Sprintf("%s over source %d", graph.OpString(op), p-1), w, v)
	}
	return v
}

// equal compares bits, so that NaN equals itself.
func (s *session) equal(what string, got, want []float32) {
	s.t.Helper()
	if len(got) != len(want) {
		s.t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			s.t.Fatalf("%s: value %d of %d is %v (%#x), want %v (%#x)", what, i, len(got),
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// near compares with a definition by normalised mean square error.
func (s *session) near(what string, got []float32, want []float64, bound float64) {
	s.t.Helper()
	energy := 0.0
	for _, w := range want {
		energy += w * w
	}
	s.within(what, got, want, energy, bound)
}

// within fails unless the squares of the errors add up to at most bound times energy.
func (s *session) within(what string, got []float32, want []float64, energy, bound float64) {
	s.t.Helper()
	if len(got) != len(want) {
		s.t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	var sum, most float64
	worst := 0
	for i, w := range want {
		e := math.Abs(float64(got[i]) - w)
		if e > most || e != e {
			worst, most = i, e
		}
		sum += e * e
	}
	if energy == 0 {
		energy = 1
	}
	if !(sum/energy <= bound) {
		s.t.Fatalf("%s: normalised square error %.3g, want at most %.3g; value %d of %d is %v, want %v",
			what, sum/energy, bound, worst, len(got), got[worst], want[worst])
	}
}

// random returns a generator whose numbers are the same in every run.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6d696e666572)) }

func normal(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

func sequence(from, n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(from + i)
	}
	return v
}
