package backendtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/quant"
)

// Bounds of the normalised square error, by what a device may do inside.
const (
	boundMath  = 1e-10 // float32 with its own exp
	boundHalf  = 1e-6  // half precision between steps
	boundFloat = 1e-5  // half precision products of float weights
	boundQuant = 1e-3  // activations quantised to 8 bits
)

var (
	rowWidths   = []int{1, 2, 3, 5, 7, 15, 16, 17, 31, 32, 33, 64, 100, 577}
	tokenCounts = []int{1, 2, 3, 7, 16}
)

// testElements checks the operations on elements, also where floats are extreme.
func testElements(t *testing.T, suite *suite) {
	s := suite.start(t)
	r := random(1)
	for i, d := range rowWidths {
		tokens := tokenCounts[i%len(tokenCounts)]
		x, y := normal(r, d*tokens), normal(r, d*tokens)
		for j, v := range []float32{0, -60, 60, 200, -200, 1e-30, 3e4, -3e4} {
			x[(j*7)%len(x)] = v
		}
		for _, test := range []struct {
			op    graph.Op
			bound float64 // 0 for equality
			want  func(x, y float32) float64
		}{
			{graph.Add{}, 0, func(x, y float32) float64 { return float64(x + y) }},
			{graph.Mul{}, 0, func(x, y float32) float64 { return float64(x * y) }},
			{graph.Scale{Factor: 0.37}, 0, func(x, _ float32) float64 { return float64(x * 0.37) }},
			{graph.Silu{}, boundMath, func(x, _ float32) float64 { return refSilu(float64(x)) }},
			{graph.Gelu{}, boundMath, func(x, _ float32) float64 { return refGelu(float64(x)) }},
			{graph.SwiGLU{}, boundMath, func(x, y float32) float64 { return refSilu(float64(x)) * float64(y) }},
		} {
			t.Run(fmt.Sprintf("%v/%dx%d", test.op.Kind(), d, tokens), func(t *testing.T) {
				s := s.in(t)
				s.need(test.op, graph.F32)
				inputs := []input{floats("x", x, d, tokens), floats("y", y, d, tokens)}
				got := s.must(test.op, inputs[:test.op.Kind().Traits().MinSources]...)
				want := make([]float64, len(x))
				for i := range want {
					want[i] = test.want(x[i], y[i])
				}
				s.near("result", got, want, test.bound)
			})
		}
	}
}

// testRows checks the operations on rows.
func testRows(t *testing.T, suite *suite) {
	s := suite.start(t)
	r := random(2)
	for i, d := range rowWidths {
		tokens := tokenCounts[i%len(tokenCounts)]
		x, w := normal(r, d*tokens), normal(r, d)
		name := fmt.Sprintf("w%d", d)
		s.load(vector(name, w))
		t.Run(fmt.Sprintf("Softmax/%dx%d", d, tokens), func(t *testing.T) {
			s := s.in(t)
			s.need(graph.Softmax{}, graph.F32)
			wide := make([]float32, len(x))
			for i := range wide {
				wide[i] = 20 * x[i]
			}
			peaked := append([]float32(nil), wide...)
			for t := range tokens {
				peaked[t*d+(16+5*t)%d] = 300 // a power of e beyond all floats, unless this value is found
			}
			for _, x := range [][]float32{wide, peaked} {
				var want []float64
				for t := range tokens {
					row := make([]float64, d)
					for i := range row {
						row[i] = float64(x[t*d+i])
					}
					want = append(want, refSoftmax(row)...)
				}
				s.near("result", s.must(graph.Softmax{}, floats("x", x, d, tokens)), want, boundMath)
			}
		})
		for _, weight := range []string{"", name} {
			t.Run(fmt.Sprintf("RMSNorm/%dx%d/weight=%v", d, tokens, weight != ""), func(t *testing.T) {
				s := s.in(t)
				op := graph.RMSNorm{Weight: weight, Eps: 1e-5}
				s.need(op, graph.F32)
				s.normed(op, op.Weight, d, op.Eps, x, w, d, tokens)
			})
			t.Run(fmt.Sprintf("QKNorm/%dx%d/weight=%v", d, tokens, weight != ""), func(t *testing.T) {
				s := s.in(t)
				heads := 3
				op := graph.QKNorm{Weight: weight, Eps: 1e-6, Heads: heads, HeadDim: d}
				s.need(op, graph.F32)
				s.normed(op, op.Weight, d, op.Eps, normal(random(3), heads*d*tokens), w, heads*d, tokens)
			})
		}
	}
}

// normed compares a norm over pieces of n values.
func (s *session) normed(op graph.Op, weight string, n int, eps float32, x, w []float32, width, tokens int) {
	s.t.Helper()
	if weight == "" {
		w = nil
	}
	var want []float64
	for i := 0; i < len(x); i += n {
		want = append(want, refNorm(x[i:i+n], w, float64(eps))...)
	}
	s.near("result", s.must(op, floats("x", x, width, tokens)), want, boundMath)
}

// testTopK checks the greatest values of rows, among which are equals, zeros of both signs, NaN and
// infinities.
func testTopK(t *testing.T, suite *suite) {
	s := suite.start(t)
	r := random(6)
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -1e-42, 1e-42}
	for _, test := range []struct{ k, among, width, rows int }{
		{1, 1, 1, 1}, {1, 50, 50, 3}, {3, 2, 7, 2}, {5, 5, 5, 4}, {64, 40, 41, 2}, {64, 300, 577, 3}, {1, 9000, 9001, 2}, {64, 9000, 9001, 2}, {40, 2049, 2049, 1}, {1000, 9000, 9000, 1},
	} {
		for _, kind := range []string{"normal", "equals", "special", "ascending", "masked", "NaN"} {
			t.Run(fmt.Sprintf("%d of %d of %dx%d/%s", test.k, test.among, test.width, test.rows, kind), func(t *testing.T) {
				s := s.in(t)
				op := graph.TopK{K: test.k, Among: test.among}
				s.need(op, graph.F32)
				x := normal(r, test.width*test.rows)
				for i := range x {
					switch {
					case kind == "equals":
						x[i] = float32(math.Round(float64(x[i])))
					case kind == "special" && r.IntN(3) == 0:
						x[i] = special[r.IntN(len(special))]
					case kind == "ascending":
						x[i] = float32(i)
					case kind == "masked" && r.IntN(200) != 0:
						x[i] = float32(math.Inf(-1))
					case kind == "NaN":
						x[i] = float32(math.NaN())
					}
				}
				var want []float32
				for i := 0; i < len(x); i += test.width {
					want = append(want, refTopK(x[i:i+test.among], test.k)...)
				}
				s.equal("values and indices", s.must(op, floats("x", x, test.width, test.rows)), want)
			})
		}
	}
}

// testShapes checks what only moves values.
func testShapes(t *testing.T, suite *suite) {
	s := suite.start(t)
	r := random(4)
	t.Run("GetRows", func(t *testing.T) {
		s := s.in(t)
		s.need(graph.GetRows{}, graph.F32)
		for _, d := range rowWidths {
			x := normal(r, d*9)
			ids := []int32{8, 0, 3, 3, 7}
			var want []float32
			for _, id := range ids {
				want = append(want, x[int(id)*d:int(id+1)*d]...)
			}
			s.equal("rows", s.must(graph.GetRows{}, floats("x", x, d, 9), ints("ids", ids)), want)
		}
	})
	t.Run("GetRows/I32", func(t *testing.T) {
		s := s.in(t)
		s.need(graph.GetRows{}, graph.I32)
		x := []int32{1, -2, 3, math.MaxInt32, math.MinInt32, 6}
		got := s.must(graph.GetRows{}, ints("x", x, 2, 3), ints("ids", []int32{2, 0}))
		for i, want := range []int32{math.MinInt32, 6, 1, -2} {
			if b := int32(math.Float32bits(got[i])); b != want {
				t.Errorf("value %d is %d, want %d", i, b, want)
			}
		}
	})
	t.Run("Permute", func(t *testing.T) {
		s := s.in(t)
		s.need(graph.Permute{}, graph.F32)
		shape := [4]int{3, 5, 2, 4}
		x := normal(r, 3*5*2*4)
		for _, dims := range [][4]int{{0, 1, 2, 3}, {1, 0, 2, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
			got := s.must(graph.Permute{Dims: dims}, floats("x", x, shape[:]...))
			s.equal(fmt.Sprint(dims), got, permuted(x, shape, dims))
		}
	})
	t.Run("ViewAndReshape", func(t *testing.T) {
		s := s.in(t)
		s.need(graph.Scale{Factor: 2}, graph.F32)
		x := normal(r, 60)
		b := graph.NewBuilder(graph.Params{})
		in := b.Input("x", graph.F32, 60)
		view := b.View("view", in, 7, graph.ShapeOf(5, 4))
		b.Output(b.Scale("out", b.Reshape("reshape", view, graph.ShapeOf(4, 5)), 2))
		got, err := s.run(s.build(b), apart, floats("x", x, 60))
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, 20)
		for i := range want {
			want[i] = 2 * x[7+i]
		}
		s.equal("scaled view", got["out"], want)
	})
}

func permuted(x []float32, shape, dims [4]int) []float32 {
	stride := [4]int{1, shape[0], shape[0] * shape[1], shape[0] * shape[1] * shape[2]}
	var out []float32
	for i3 := range shape[dims[3]] {
		for i2 := range shape[dims[2]] {
			for i1 := range shape[dims[1]] {
				for i0 := range shape[dims[0]] {
					out = append(out, x[i0*stride[dims[0]]+i1*stride[dims[1]]+i2*stride[dims[2]]+i3*stride[dims[3]]])
				}
			}
		}
	}
	return out
}

// testEmbed checks that rows of every type decode to the format's own values.
func testEmbed(t *testing.T, suite *suite) {
	s := suite.start(t)
	for _, f := range quant.Formats() {
		t.Run(f.Name, func(t *testing.T) {
			s := s.in(t)
			dim, vocab := 3*f.Block*max(1, 97/f.Block), 37
			op := graph.Embed{Weight: "embed." + f.Name, Type: f.Name, Dim: dim, Vocab: vocab}
			s.need(op, graph.F32)
			w, values := randomWeight(t, random(5), op.Weight, f, dim, vocab)
			s.load(w)
			ids := []int32{36, 0, 0, 3}
			var want []float32
			for _, id := range ids {
				want = append(want, values[int(id)*dim:int(id+1)*dim]...)
			}
			s.equal("rows", s.must(op, ints("ids", ids)), want)
		})
	}
}
