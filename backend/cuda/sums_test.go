//go:build cuda

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/quant"
)

// randomWeight makes a weight: normal values where there is an encoder, and otherwise blocks of random
// bits under a small scale.
func randomWeight(t *testing.T, r *rand.Rand, name string, f *quant.Format, in, out int) backend.Weight {
	t.Helper()
	n, err := f.RowBytes(in)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, n*out)
	if f.CanQuantize() {
		if err := f.Quantize(data, normal(r, in*out)); err != nil {
			t.Fatal(err)
		}
	} else {
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		fields := map[string][]int{"Q4_1": {0, 2}, "Q4_K": {0, 2}, "Q2_K": {80, 82}, "Q6_K": {208}}[f.Name]
		for b := 0; b < len(data); b += f.Bytes {
			for _, at := range fields {
				binary.LittleEndian.PutUint16(data[b+at:], quant.F32ToF16(float32(1+r.Float64())/64))
			}
		}
	}
	return backend.Weight{Name: name, Type: f.Name, In: in, Out: out, Data: data}
}

func normal(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// orderedProduct is the order of sums of kernels/matmul.cu and floats.cu, from its text.
func orderedProduct(f *quant.Format, data []byte, x []float32, in, out int) (y []float32) {
	var acts kernels.QActs
	if f.Group > 0 {
		acts.Quantize(x, in, len(x)/in, in)
	}
	size := len(data) / out
	values := make([]float32, in)
	var row quant.IntRow
	for t := range len(x) / in {
		for r := range out {
			if f.Group > 0 {
				f.Unpack(&row, data[r*size:(r+1)*size])
			} else {
				f.Dequantize(values, data[r*size:(r+1)*size])
			}
			var total float32
			for from := 0; from < in; from += superBlock {
				to := min(in, from+superBlock)
				var sum float32
				if f.Group == 0 {
					for i := from; i < to; i++ {
						sum = kernels.FMA(values[i], x[t*in+i], sum)
					}
				} else {
					for g := from / f.Group; g < to/f.Group; g++ {
						var dot, quants int32
						for i := g * f.Group; i < (g+1)*f.Group; i++ {
							q := int32(acts.Q[t*in+i])
							dot += int32(row.Q[i]) * q
							quants += q
						}
						d := acts.D[(t*in+g*f.Group)/kernels.BlockSize]
						sum = kernels.FMA(float32(dot), row.Scale[g]*d, sum)
						if f.Min {
							sum = kernels.FMA(row.Min[g], d*float32(quants), sum)
						}
					}
				}
				total += sum
			}
			y = append(y, total)
		}
	}
	return y
}

// orderedHalves is the order of sums of kernels/halves.cu, from its text, with the sums of tensor cores as
// the emulated ones make them. A real GPU's may differ in the last bits.
func orderedHalves(f *quant.Format, data []byte, x []float32, in, out int) (y []float32) {
	round := func(v float32) float32 { return quant.F16ToF32(quant.F32ToF16(v)) }
	if f.Name == "BF16" {
		round = func(v float32) float32 { return quant.BF16ToF32(quant.F32ToBF16(v)) }
	}
	values := make([]float32, in)
	for t := range len(x) / in {
		for r := range out {
			f.Dequantize(values, data[r*len(data)/out:(r+1)*len(data)/out])
			var total float32
			for from := 0; from < in; from += superBlock {
				w, a := make([]float32, superBlock), make([]float32, superBlock)
				copy(w, values[from:])
				copy(a, x[t*in+from:t*in+min(in, from+superBlock)])
				up, down := float32(1), float32(1)
				if f.Name == "F16" {
					var most float32
					for _, v := range a {
						most = max(most, float32(math.Abs(float64(v))))
					}
					e := max(15, min(254, math.Float32bits(most)>>23))
					up, down = math.Float32frombits((268-e)<<23), math.Float32frombits((e-14)<<23)
				}
				var hi, lo float32
				for j := 0; j < superBlock; j += 16 {
					h, l := float64(hi), float64(lo)
					for k := range 16 {
						// Half of a lane's eight of 32, two of four lanes after the other.
						i := j/32*32 + k%8/2*8 + j%32/4 + k/8*2 + k%2
						v := a[i] * up
						part := round(v)
						h += float64(w[i]) * float64(part)
						l += float64(w[i]) * float64(round(v-part))
					}
					hi, lo = float32(h), float32(l)
				}
				total += (hi + lo) * down
			}
			y = append(y, total)
		}
	}
	return y
}

// TestOrderOfSums compares products with a bias, to the last bit, with the order that they are to be summed up
// in: over rows of several super-blocks and a part of one, and in every kernel.
func TestOrderOfSums(t *testing.T) {
	d := openTest(t)
	defer d.Close()
	for _, name := range []string{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q2_K", "Q6_K"} {
		f, err := quant.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			in, out := 4*superBlock, 139
			if f.Block < superBlock {
				in -= 96
			}
			r := rand.New(rand.NewPCG(7, uint64(in)))
			w := randomWeight(t, r, name, f, in, out)
			bias := normal(r, out)
			b := backend.Weight{Name: name + ".bias", Type: "F32", In: out, Out: 1, Data: floatBytes(bias)}
			if err := d.LoadWeights(t.Context(), []backend.Weight{w, b}, nil); err != nil {
				t.Fatal(err)
			}
			for _, tokens := range []int{1, 3, 70} {
				t.Run(fmt.Sprintf("tokens=%d", tokens), func(t *testing.T) {
					x := normal(r, in*tokens)
					for i := range x[in:] { // later tokens are large and small, but for one that has next to nothing
						x[in+i] *= [...]float32{1e6, 1e-20, 1e-42}[i/in%3]
					}
					got := multiply(t, d, graph.MatMul{Weight: name, Type: name, Bias: b.Name, In: in, Out: out}, x, tokens)
					ordered, halves := orderedProduct, d.major >= 8 && (name == "F16" || name == "BF16")
					if halves {
						ordered = orderedHalves
					}
					want := ordered(f, w.Data, x, in, out)
					for i := range want {
						want[i] += bias[i%out]
					}
					if gpu, _ := d.gpu.Name(); halves && !strings.Contains(gpu, "emulation") {
						if d := distance(got, want); !(d < 1e-5) {
							t.Errorf("distance is %.2g", d)
						}
						return
					}
					sameBits(t, "product", got, want)
				})
			}
		})
	}
}

// multiply runs a product on the device.
func multiply(t *testing.T, d *device, op graph.MatMul, x []float32, tokens int) []float32 {
	t.Helper()
	b := graph.NewBuilder(graph.Params{})
	b.Output(b.Node("out", op, b.Input("x", graph.F32, op.In, tokens)))
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var values [2]backend.Operand
	for i := range values {
		n := g.Node(graph.NodeID(i))
		buf, err := d.Alloc(n.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		defer d.Free(buf)
		values[i] = backend.Operand{Buffer: buf, Shape: n.Shape, Type: n.Type}
	}
	if err := d.WriteHost(values[0].Buffer, floatBytes(x)); err != nil {
		t.Fatal(err)
	}
	if err := d.Execute(g.Lookup("out"), values[:1], values[1], nil); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, values[1].Buffer.Size)
	if err := d.ReadHost(raw, values[1].Buffer); err != nil {
		t.Fatal(err)
	}
	return floatsOf(raw)
}

// floatBytes is floats as memory has them, and floatsOf its inverse.
func floatBytes(values []float32) (raw []byte) {
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}

func floatsOf(raw []byte) []float32 {
	values := make([]float32, len(raw)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return values
}
