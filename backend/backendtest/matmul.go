package backendtest

import (
	"fmt"
	"testing"

	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/quant"
)

// testMatMul checks products for every weight type, over rows of 1 to 9 blocks, 1 to 9
// outputs and odd numbers of tokens: fast kernels take pairs and quads, and forget the
// rest.
func testMatMul(t *testing.T, suite *suite) {
	s := suite.start(t)
	for _, f := range quant.Formats() {
		t.Run(f.Name, func(t *testing.T) { s.in(t).matMuls(f) })
	}
}

func (s *session) matMuls(f *quant.Format) {
	r := random(6)
	widths := []int{1, 2, 3, 5, 7, 8, 9}
	block := f.Block
	switch {
	case f.Group == 0:
		widths = append(widths, 15, 16, 17, 31, 33, 63, 64, 65, 70)
	default:
		block = max(block, 32)
	}
	s.need(graph.MatMul{Weight: "w", Type: f.Name, In: block, Out: 1}, graph.F32)
	for i, width := range widths {
		in := width * block
		for out := 1; out <= 9; out++ {
			counts := tokenCounts[(i+out)%len(tokenCounts):][:1]
			if out == 9 {
				counts = tokenCounts
			}
			name := fmt.Sprintf("%s.%d.%d", f.Name, in, out)
			w, values := randomWeight(s.t, r, name, f, in, out)
			bias := normal(r, out)
			s.load(w, vector(name+".bias", bias))
			op := graph.MatMul{Weight: name, Type: f.Name, In: in, Out: out}
			biased := op
			biased.Bias = name + ".bias"
			for _, tokens := range counts {
				what := fmt.Sprintf("[%d %d] times %d tokens", in, out, tokens)
				x := normal(r, in*tokens)
				got := s.must(op, floats("x", x, in, tokens))
				want, energy := refMatMul(values, x, nil, in, out)
				s.within(what, got, want, energy, matMulBound(f))
				if out%3 == 0 {
					withBias := s.must(biased, floats("x", x, in, tokens))
					want, _ = refMatMul(values, x, bias, in, out)
					s.within(what+" with bias", withBias, want, energy, matMulBound(f))
				}
				if s.exact && f.Group != 0 {
					s.equal(what+" against the numerics contract", got, contractMatMul(f, w.Data, x, in, out))
				}
			}
		}
	}
}

func matMulBound(f *quant.Format) float64 {
	switch {
	case f.Name == "F32":
		return boundHalf
	case f.Group == 0:
		return boundFloat
	}
	return boundQuant
}

// contractMatMul is the numerics contract for products of quantised weights, written
// from its text: on 8-bit activations, exact integer sums per group, one fused
// multiply-add per group and one per minimum, in ascending order.
func contractMatMul(f *quant.Format, data []byte, x []float32, in, out int) []float32 {
	var acts kernels.QActs
	acts.Quantize(x, in, len(x)/in, in)
	var y []float32
	var row quant.IntRow
	for t := range acts.Tokens {
		q, d := acts.Q[t*in:], acts.D[t*in/kernels.BlockSize:]
		for r := range out {
			size := len(data) / out
			f.Unpack(&row, data[r*size:(r+1)*size])
			var acc float32
			for g, scale := range row.Scale {
				var dot, sum int32
				for i := g * f.Group; i < (g+1)*f.Group; i++ {
					dot += int32(row.Q[i]) * int32(q[i])
					sum += int32(q[i])
				}
				block := d[g*f.Group/kernels.BlockSize]
				acc = kernels.FMA(float32(dot), scale*block, acc)
				if f.Min {
					acc = kernels.FMA(row.Min[g], block*float32(sum), acc)
				}
			}
			y = append(y, acc)
		}
	}
	return y
}

// testMatMulBatch checks that a row of a product does not depend on the rows beside it,
// and that nothing depends on where a buffer begins.
func testMatMulBatch(t *testing.T, suite *suite) {
	s := suite.start(t)
	for _, f := range quant.Formats() {
		t.Run(f.Name, func(t *testing.T) {
			s := s.in(t)
			in, out := 3*max(f.Block, 32), 21
			if f.Block == 1 {
				in = 301 // no multiple of what a device may work with at once
			}
			op := graph.MatMul{Weight: "batch." + f.Name, Type: f.Name, In: in, Out: out}
			s.need(op, graph.F32)
			r := random(7)
			w, _ := randomWeight(t, r, op.Weight, f, in, out)
			s.load(w)
			x := normal(r, in*16)
			batch := s.must(op, floats("x", x, in, 16))
			for _, n := range []int{1, 2, 3, 7} {
				for at := 0; at+n <= 16; at += n {
					part := s.must(op, floats("x", x[at*in:(at+n)*in], in, n))
					s.equal(fmt.Sprintf("tokens %d to %d alone", at, at+n-1), part, batch[at*out:(at+n)*out])
				}
			}
		})
	}
}
