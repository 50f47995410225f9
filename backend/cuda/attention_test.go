//go:build cuda

package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/quant"
)

// attentionBench is a device with the regions of one layer.
type attentionBench struct {
	t  *testing.T
	d  *device
	op graph.Attention
	kv *backend.KV
}

func newAttentionBench(t *testing.T, op graph.Attention, cells int, kvType graph.DType) *attentionBench {
	b := &attentionBench{t: t, d: openTest(t), op: op, kv: &backend.KV{Type: kvType, Width: op.KVHeads * op.HeadDim, Cells: cells}}
	t.Cleanup(func() {
		if err := b.d.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, region := range []*backend.Buffer{&b.kv.K, &b.kv.V} {
		var err error
		if *region, err = b.d.AllocFresh(kvType.Bytes(cells * b.kv.Width)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// attend stores keys and values of positions from first on, each in the cell of its number, and attends.
func (b *attentionBench) attend(q, k, v []float32, first int) []float32 {
	b.t.Helper()
	n := len(k) / b.kv.Width
	at := make([]float32, n) // integers, by their bits
	for i := range at {
		at[i] = math.Float32frombits(uint32(first + i))
	}
	operand := func(t graph.DType, width int, values []float32) backend.Operand {
		buf, err := b.d.Alloc(4 * len(values))
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { b.d.Free(buf) })
		if err := b.d.WriteHost(buf, floatBytes(values)); err != nil {
			b.t.Fatal(err)
		}
		shape := graph.ShapeOf(width, n)
		if t == graph.I32 {
			shape = graph.ShapeOf(n)
		}
		return backend.Operand{Buffer: buf, Shape: shape, Type: t}
	}
	positions, queries, out := operand(graph.I32, 1, at), operand(graph.F32, b.op.Heads*b.op.HeadDim, q), operand(graph.F32, b.op.Heads*b.op.HeadDim, q)
	store := []backend.Operand{operand(graph.F32, b.kv.Width, k), operand(graph.F32, b.kv.Width, v), positions}
	raw := make([]byte, out.Buffer.Size)
	if err := errors.Join(b.d.kvStore(store, b.kv), b.d.attention(&b.op, []backend.Operand{queries, {}, positions}, out, b.kv), b.d.ReadHost(raw, out.Buffer)); err != nil {
		b.t.Fatal(err)
	}
	return floatsOf(raw)
}

// TestAttentionPrecision compares attention with large scores with what the stored keys and values give exactly, and wants no
// greater error than floats make: halves of keys and values call for queries and weights of more bits.
func TestAttentionPrecision(t *testing.T) {
	const n = 80
	for _, dim := range []int{64, 96, 256} {
		r := rand.New(rand.NewPCG(3, uint64(dim)))
		op := graph.Attention{Heads: 3, KVHeads: 1, HeadDim: dim, Scale: 1}
		q, k, v := normal(r, 3*dim*n), normal(r, dim*n), normal(r, dim*n)
		for i := range q {
			// Scores of all rows are of one size, queries are not: what one is scaled by is its own.
			q[i] *= [...]float32{1e4, 1, 1e-4}[i/dim%3]
		}
		for _, magnitude := range []float32{1, 1e-3, 1e3} {
			if magnitude != 1 && dim != 64 {
				continue
			}
			op.Scale = float32(10/math.Sqrt(float64(dim))) / magnitude
			x := make([]float32, len(q))
			for i := range x {
				x[i] = q[i] * magnitude
			}
			whole := newAttentionBench(t, op, 128, graph.F16).attend(x, k, v, 0)
			var got, want []float32
			for row := range 3 * n {
				if row%3 == 0 {
					continue // one position has all of the weight
				}
				got = append(got, whole[row*dim:(row+1)*dim]...)
				want = append(want, exactAttention(x[row*dim:(row+1)*dim], k[:(row/3+1)*dim], v, op.Scale)...)
			}
			if d := distance(got, want); !(d < 1e-5) {
				t.Fatalf("heads of %d, queries times %g: distance is %.2g", dim, magnitude, d)
			}
		}
	}
}

// exactAttention is a row of attention to keys and values of halves.
func exactAttention(q, k, v []float32, scale float32) []float32 {
	half := func(x float32) float64 { return float64(quant.F16ToF32(quant.F32ToF16(x))) }
	dim := len(q)
	scores := make([]float64, len(k)/dim)
	most := math.Inf(-1)
	for j := range scores {
		for d := range dim {
			scores[j] += float64(q[d]) * half(k[j*dim+d])
		}
		scores[j] *= float64(scale)
		most = max(most, scores[j])
	}
	out, sum := make([]float64, dim), 0.
	for j, s := range scores {
		p := math.Exp(s - most)
		sum += p
		for d := range dim {
			out[d] += p * half(v[j*dim+d])
		}
	}
	y := make([]float32, dim)
	for d := range y {
		y[d] = float32(out[d] / sum)
	}
	return y
}

// TestAttentionInfinite checks that values that are not finite stay away from tokens before them, with which they may
// share a tile on tensor cores.
func TestAttentionInfinite(t *testing.T) {
	const n, late, dim = 70, 40, 32
	for _, kvType := range []graph.DType{graph.F16, graph.F32} {
		r := rand.New(rand.NewPCG(4, 4))
		op := graph.Attention{Heads: 4, KVHeads: 2, HeadDim: dim, Scale: 0.3}
		q, k, v := normal(r, 4*dim*n), normal(r, 2*dim*n), normal(r, 2*dim*n)
		want := newAttentionBench(t, op, 128, kvType).attend(q, k, v, 0)
		for i := 2 * dim * late; i < len(v); i++ {
			v[i] = float32(math.Inf(1))
			k[i] = float32(math.NaN())
		}
		got := newAttentionBench(t, op, 128, kvType).attend(q, k, v, 0)
		sameBits(t, kvType.String(), got[:4*dim*late], want[:4*dim*late])
		for i, x := range got[4*dim*late:] {
			if !math.IsNaN(float64(x)) {
				t.Fatalf("%v: value %d after them is %v", kvType, i, x)
			}
		}
	}
}
