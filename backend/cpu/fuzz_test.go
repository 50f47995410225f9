package cpu

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
)

// chooser draws choices from the fuzzer's bytes.
type chooser []byte

func (c *chooser) n(n int) int {
	if len(*c) == 0 {
		return 0
	}
	v := int((*c)[0]) % n
	*c = (*c)[1:]
	return v
}

func pick[T any](c *chooser, from ...T) T { return from[c.n(len(from))] }

// payload fills the fields of an operation, mostly with what fits the operands.
func (c *chooser) payload(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			c.payload(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			c.payload(v.Index(i))
		}
	case reflect.Int:
		v.SetInt(int64(pick(c, 32, 1, 2, 4, 32, 0, -1, 3, 33, 64, math.MaxInt, math.MinInt)))
	case reflect.Uint8:
		v.SetUint(uint64(pick(c, 0, 1, 0, 1, 2, 255)))
	case reflect.Float32:
		v.SetFloat(pick(c, 1, 0.5, 10000, 0, -1, math.Inf(1), math.NaN()))
	case reflect.String:
		v.SetString(pick(c, "w", "v", "", "F32", "Q8_0", "absent"))
	case reflect.Bool:
		v.SetBool(c.n(2) == 1)
	}
}

func (c *chooser) operand(b backend.Buffer) backend.Operand {
	var o backend.Operand
	o.Type = pick(c, graph.F32, graph.F32, graph.I32, graph.F16, graph.DType(99))
	for i := range o.Shape {
		o.Shape[i] = pick(c, 1, 1, 32, 2, 4, 16, 0, -1, math.MaxInt)
	}
	o.Shape[0] = pick(c, 32, 32, 1, 2, 16, 64, o.Shape[0])
	o.Buffer = b.Slice(pick(c, 0, 1024, 2048, 4096, 4, 2, -64, math.MaxInt), pick(c, 1024, 128, 64, 4, 2048, -1, math.MaxInt))
	if c.n(16) == 15 {
		o.Buffer.ID += pick(c, 1, -1, 1<<slotBits, -b.ID)
	}
	return o
}

// FuzzExecute hands operations with arbitrary payloads arbitrary operands. Whatever is
// wrong has to be found by a check: a panic that is caught counts as a failure here.
func FuzzExecute(f *testing.F) {
	for kind := range byte(len(graph.Kinds())) {
		f.Add([]byte{kind})
		f.Add([]byte{kind, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 3, 0, 0, 0, 1, 1, 0, 3, 2, 1})
		f.Add([]byte{kind, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 0, 1})
	}
	opened, err := open(backend.Config{Threads: 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { opened.Close() })
	q8 := make([]byte, 34*32)
	f32 := make([]byte, 4*32)
	if err := opened.LoadWeights(f.Context(), []backend.Weight{
		{Name: "w", Type: "Q8_0", In: 32, Out: 32, Data: q8},
		{Name: "v", Type: "F32", In: 32, Out: 1, Data: f32},
	}, nil); err != nil {
		f.Fatal(err)
	}
	memory, err := opened.AllocFresh(1 << 14)
	if err != nil {
		f.Fatal(err)
	}
	indices := make([]byte, 1<<14)
	for i := 0; i < len(indices); i += 4 {
		binary.LittleEndian.PutUint32(indices[i:], uint32(i/4%23-1))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		c := chooser(script)
		kinds := graph.Kinds()
		op := reflect.New(reflect.TypeOf(kinds[c.n(len(kinds))])).Elem()
		c.payload(op)
		node := &graph.Node{Name: "fuzzed", Op: op.Interface().(graph.Op)}
		in := make([]backend.Operand, pick(&c, node.Op.Kind().Traits().MinSources, 0, 1, 2, 3, 4, 5, 6))
		for i := range in {
			in[i] = c.operand(memory)
		}
		kv := &backend.KV{Width: pick(&c, 32, 1, 4, 0, -1, math.MaxInt), Cells: pick(&c, 16, 1, 0, -1, math.MaxInt), Type: pick(&c, graph.F32, graph.F16, graph.I32)}
		kv.K, kv.V = c.operand(memory).Buffer, c.operand(memory).Buffer
		if c.n(8) == 7 {
			kv = nil
		}
		if err := opened.WriteHost(memory, indices); err != nil {
			t.Fatal(err)
		}
		err := opened.Execute(node, in, c.operand(memory), kv)
		var internal *backend.PanicError
		if errors.As(err, &internal) {
			t.Fatalf("%s: %v", graph.OpString(node.Op), err)
		}
		var named *backend.NodeError
		if err != nil && !errors.As(err, &named) {
			t.Fatalf("%s: the error does not name the node: %v", graph.OpString(node.Op), err)
		}
	})
}
