package kernels

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/minfer/minfer/internal/quant"
)

// sameBits fails unless a and b are equal to the last bit; any NaN equals any other.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: value %d is %x, want %x", what, i, got[i], want[i])
		}
	}
}

// defineInt is the contract's formula, one output at a time, with nothing shared
// with the kernels but the quantised activations and FMA.
func defineInt(w *Weight, r int, acts *QActs, t int) float32 {
	var row quant.IntRow
	w.Format.Unpack(&row, w.Row(r))
	size := w.Format.Group
	var acc float32
	for g := range row.Scale {
		d := acts.D[t*w.In/32+g*size/32]
		var isum, qsum int32
		for i := g * size; i < (g+1)*size; i++ {
			q := int32(acts.Q[t*w.In+i])
			isum += int32(row.Q[i]) * q
			qsum += q
		}
		acc = FMA(float32(isum), row.Scale[g]*d, acc)
		if w.Format.Min {
			acc = FMA(row.Min[g], d*float32(qsum), acc)
		}
	}
	return acc
}

func TestMatMulIntIsItsDefinition(t *testing.T) {
	const tokens = 9
	var s Scratch
	for _, name := range formatNames[3:] {
		for _, blocks := range []int{1, 2, 3, 5, 7, 8, 9} {
			f, _ := quant.Lookup(name)
			in := blocks * f.Block
			for rows := 1; rows <= 9; rows += 1 + 7*(blocks&1) {
				w := randWeight(t, name, in, rows, uint64(blocks))
				bias := randFloats(rows, 3)
				x := randFloats(tokens*in, 4)
				var all QActs
				all.Quantize(x, in, tokens, in)
				stride := rows + 3
				want := guarded(tokens * stride)
				for tok := range tokens {
					for r := range rows {
						want[tok*stride+r] = defineInt(w, r, &all, tok) + bias[r]
					}
				}
				for _, n := range []int{1, 2, 3, 4, 5, tokens} {
					var acts QActs
					acts.Quantize(x, in, n, in)
					out := guarded(n * stride)
					MatMulInt(out, stride, w, 0, rows, bias, &acts, &s)
					sameBits(t, fmt.Sprintf("%s, %d blocks, %d rows, %d tokens", name, blocks, rows, n), out, want[:n*stride])
				}
			}
		}
	}
}

// guarded makes a slice of a value that no kernel yields, to see what is written.
func guarded(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = -12345.5
	}
	return x
}

// TestMatMulIntIsClose holds the product against dequantised weights and
// activations multiplied in float64.
func TestMatMulIntIsClose(t *testing.T) {
	const rows, tokens = 5, 3
	var s Scratch
	for _, name := range formatNames[3:] {
		w := randWeight(t, name, 512, rows, 7)
		x := randFloats(tokens*512, 8)
		var acts QActs
		acts.Quantize(x, 512, tokens, 512)
		out := make([]float32, rows*tokens)
		MatMulInt(out, rows, w, 0, rows, nil, &acts, &s)
		row := make([]float32, 512)
		for r := range rows {
			w.GetRow(row, r)
			for tok := range tokens {
				var sum, size, plain float64
				for i, v := range row {
					q := float64(acts.D[(tok*512+i)/32]) * float64(acts.Q[tok*512+i])
					sum += float64(v) * q
					size += math.Abs(float64(v) * q)
					plain += float64(v) * float64(x[tok*512+i])
				}
				got := float64(out[tok*rows+r])
				if math.Abs(got-sum) > size*0x1p-19 {
					t.Errorf("%s row %d token %d: %g, exact %g", name, r, tok, got, sum)
				}
				if math.Abs(got-plain) > size*0.005 {
					t.Errorf("%s row %d token %d: %g, from unquantised activations %g", name, r, tok, got, plain)
				}
			}
		}
	}
}

func TestMatMulSplitsAnywhere(t *testing.T) {
	const in, rows, tokens = 256, 21, 11
	x := randFloats(tokens*in, 1)
	for _, name := range formatNames {
		w := randWeight(t, name, in, rows, 2)
		multiply := func(s *Scratch, out []float32, r0, r1, t0, t1 int) {
			if !w.Integer() {
				MatMulFloat(out[t0*rows:], rows, w, r0, r1, nil, x[t0*in:], in, t1-t0, s)
				return
			}
			var acts QActs
			acts.Quantize(x[t0*in:], in, t1-t0, in)
			MatMulInt(out[t0*rows:], rows, w, r0, r1, nil, &acts, s)
		}
		var s Scratch
		whole := make([]float32, rows*tokens)
		multiply(&s, whole, 0, rows, 0, tokens)
		for _, dr := range []int{1, 2, 7, 8, 20} {
			for _, dt := range []int{1, 2, 3, 4, 10} {
				out := make([]float32, rows*tokens)
				for r := 0; r < rows; r += dr {
					for tok := 0; tok < tokens; tok += dt {
						multiply(&s, out, r, min(r+dr, rows), tok, min(tok+dt, tokens))
					}
				}
				sameBits(t, fmt.Sprintf("%s in %d rows and %d tokens at a time", name, dr, dt), out, whole)
			}
		}
	}
}

// TestMatMulIntExtremes: the largest sums that packed quants can make stay apart.
func TestMatMulIntExtremes(t *testing.T) {
	f, _ := quant.Lookup("Q8_0")
	for _, q := range []int8{-128, 127, -1, 0} {
		for _, v := range []float32{1, -1} {
			data := make([]byte, 34)
			data[1] = 0x3c // scale 1
			for i := range 32 {
				data[2+i] = byte(q)
			}
			w, err := NewWeight(f, 32, 1, data)
			if err != nil {
				t.Fatal(err)
			}
			x := make([]float32, 4*32)
			for i := range x {
				x[i] = v * 127
			}
			var acts QActs
			var s Scratch
			acts.Quantize(x, 32, 4, 32)
			out := make([]float32, 4)
			MatMulInt(out, 1, w, 0, 1, nil, &acts, &s)
			want := float32(q)*v*127*32 + 0 // never -0
			sameBits(t, "product of four tokens", out, []float32{want, want, want, want})
			acts.Quantize(x, 32, 1, 32)
			MatMulInt(out[:1], 1, w, 0, 1, nil, &acts, &s)
			sameBits(t, "product of one token", out[:1], []float32{want})
		}
	}
}

func TestMatMulFloatIsItsDefinition(t *testing.T) {
	var s Scratch
	for _, name := range formatNames[:3] {
		for in := 1; in <= 70; in++ {
			for rows := 1; rows <= 9; rows++ {
				tokens := 1 + in%3
				w := randWeight(t, name, in, rows, uint64(in))
				x := randFloats(tokens*in, 5)
				x[in/2] = 0
				out := make([]float32, tokens*rows)
				MatMulFloat(out, rows, w, 0, rows, nil, x, in, tokens, &s)
				row := make([]float32, in)
				for r := range rows {
					w.GetRow(row, r)
					for tok := range tokens {
						var acc float32
						var sum, size float64
						for k, v := range row {
							acc = FMA(v, x[tok*in+k], acc)
							p := float64(v) * float64(x[tok*in+k])
							sum, size = sum+p, size+math.Abs(p)
						}
						sameBits(t, fmt.Sprintf("%s %dx%d", name, rows, in), out[tok*rows+r:][:1], []float32{acc})
						if math.Abs(float64(acc)-sum) > size*0x1p-23*float64(in) {
							t.Fatalf("%s %dx%d: %g, exact %g", name, rows, in, acc, sum)
						}
					}
				}
			}
		}
	}
}

func TestNewWeightRefuses(t *testing.T) {
	q8, _ := quant.Lookup("Q8_0")
	f16, _ := quant.Lookup("F16")
	for _, c := range []struct {
		f             *quant.Format
		in, out, size int
	}{
		{q8, 33, 1, 1000}, {q8, 32, 0, 100}, {q8, 0, 1, 100}, {q8, 64, 2, 135}, {q8, 32, math.MaxInt, 34},
		{f16, 3, 2, 11}, {f16, -1, 2, 11}, {f16, 3, -2, 11},
	} {
		if _, err := NewWeight(c.f, c.in, c.out, make([]byte, c.size)); err == nil {
			t.Errorf("%s, %d by %d, %d bytes: no error", c.f.Name, c.out, c.in, c.size)
		}
	}
	if _, err := NewWeight(q8, 64, 2, make([]byte, 136)); err != nil {
		t.Error(err)
	}
}

func TestQuantize(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	block := func(v ...float32) []float32 { return append(v, make([]float32, 32-len(v))...) }
	for _, c := range []struct {
		name string
		x    []float32
		d    float32
		q    []int8
	}{
		{"whole", block(127, -127, 0, 1, 64), 1, []int8{127, -127, 0, 1, 64}},
		{"fitted", block(127, -127, 0.25, 0.75, 63.5), (127*127*2 + 0.75 + 63.5*64) / (127*127*2 + 1 + 64*64), []int8{127, -127, 0, 1, 64}},
		{"ties to even", block(127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5), (127*127 + 16) / float32(127*127+16), []int8{127, 0, 2, 2, 0, -2, -2}},
		{"zero", block(), 0, nil},
		{"subnormal scale", block(0x1p-126, -129.99*0x1p-126), 0, nil},
		{"smallest scale", block(130 * 0x1p-126), 130.0 / 127 * 0x1p-126, []int8{127}},
		{"largest", block(math.MaxFloat32, -math.MaxFloat32), math.MaxFloat32 / 127, []int8{127, -127}},
		{"NaN", block(1, nan), nan, nil},
		{"infinite", block(1, 2, -inf), nan, nil},
	} {
		for _, tokens := range []int{1, 3} {
			var acts QActs
			x := append(append(append([]float32{}, c.x...), c.x...), c.x...)
			acts.Quantize(x, 32, tokens, 32)
			q := make([]int8, 32)
			copy(q, c.q)
			var lo, hi int32
			for i := range 16 {
				lo, hi = lo+int32(q[i]), hi+int32(q[16+i])
			}
			for tok := range tokens {
				for i := range q {
					if acts.Q[tok*32+i] != q[i] {
						t.Errorf("%s: quant %d is %d, want %d", c.name, i, acts.Q[tok*32+i], q[i])
					}
				}
				sameBits(t, c.name+" scale", acts.D[tok:tok+1], []float32{c.d})
				sameBits(t, c.name+" sums of 16", acts.S16[2*tok:2*tok+2], []float32{c.d * float32(lo), c.d * float32(hi)})
				sameBits(t, c.name+" sum of 32", acts.S32[tok:tok+1], []float32{c.d * float32(lo+hi)})
			}
		}
	}
}

// TestQuantizeIsNear: the largest quant of a block is 127, none of its values is missed by
// more than half a step before the scale is fitted, and fitting never adds to the error.
func TestQuantizeIsNear(t *testing.T) {
	x := randFloats(320*32, 9)
	for b := range 320 {
		for i := range 32 {
			x[b*32+i] *= float32(math.Ldexp(1, b%220-110))
		}
	}
	var acts QActs
	acts.Quantize(x, len(x), 1, len(x))
	for b, d := range acts.D {
		top, amax := int8(0), 0.0
		for _, v := range x[b*32 : b*32+32] {
			amax = max(amax, math.Abs(float64(v)))
		}
		var fitted, plain float64
		for i := b * 32; i < b*32+32; i++ {
			q, v := acts.Q[i], float64(x[i])
			top = max(top, q, -q)
			off := v - amax/127*float64(q)
			if math.Abs(off) > amax/127*0.5001 {
				t.Fatalf("block %d: %g as %d * %g", b, v, q, amax/127)
			}
			plain += off * off
			fitted += (v - float64(d)*float64(q)) * (v - float64(d)*float64(q))
		}
		if top != 127 {
			t.Fatalf("block %d: largest quant %d", b, top)
		}
		if fitted > plain*1.0001 {
			t.Fatalf("block %d: error %g with the fitted scale, %g without", b, fitted, plain)
		}
	}
}

// TestDamageShows: a NaN or an infinity in the activations makes every output NaN.
func TestDamageShows(t *testing.T) {
	w := randWeight(t, "Q4_1", 64, 3, 1)
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := randFloats(4*64, 1)
		x[40] = float32(bad)
		for tokens := 1; tokens <= 4; tokens++ {
			var acts QActs
			var s Scratch
			acts.Quantize(x, 64, tokens, 64)
			out := make([]float32, 3*tokens)
			MatMulInt(out, 3, w, 0, 3, nil, &acts, &s)
			for i, v := range out {
				if (i < 3) != (v != v) {
					t.Errorf("%v: output %d of token %d is %g", bad, i%3, i/3, v)
				}
			}
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	w, wf := randWeight(t, "Q4_K", 256, 8, 1), randWeight(t, "F16", 256, 8, 1)
	x, out := randFloats(4*256, 1), make([]float32, 4*256)
	k, v := randKV(300, 64, false, 1)
	a := &Attention{K: k, V: v, HeadDim: 32, KVHead: 1, Scale: 0.1, N: 300}
	rope := mustRoPE(t, RoPEParams{Dim: 32, Base: 10000, Scale: 1})
	var acts QActs
	var s Scratch
	var rows RoPERows
	pos := []int32{0, 0, 0, 0}
	if n := testing.AllocsPerRun(10, func() {
		for tokens := 4; tokens > 0; tokens-- {
			acts.Quantize(x, 256, tokens, 256)
			MatMulInt(out, 256, w, 0, 8, nil, &acts, &s)
			MatMulFloat(out, 256, wf, 0, 8, nil, x, 256, tokens, &s)
		}
		Attend(out[:64], x[:64], a, &s)
		pos[0]++
		rows.Update(rope, pos)
		cos, sin := rows.Row(0)
		Rotate(out[:256], x[:256], 32, HalfSplit, cos, sin)
		RMSNorm(out[:256], x[:256], nil, 1e-6)
		k.Store(7, x[:64])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestQuantizeRows: blocks may come in any order and number, with one token and in tiles.
func TestQuantizeRows(t *testing.T) {
	const blocks = 9
	for _, tokens := range []int{1, 2, 3, 7} {
		x := randFloats(tokens*blocks*BlockSize, uint64(tokens))
		var want, got QActs
		want.Quantize(x, blocks*BlockSize, tokens, blocks*BlockSize)
		got.Reset(tokens, blocks*BlockSize)
		for _, run := range [][2]int{{4, 7}, {0, 1}, {7, blocks}, {1, 4}, {2, 2}} {
			for tok := range tokens {
				row := x[tok*blocks*BlockSize:][:blocks*BlockSize]
				got.QuantizeRows(tok, tok+1, run[0], row[run[0]*BlockSize:], 0, (run[1]-run[0])*BlockSize)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d tokens quantised in parts differ", tokens)
		}
	}
	for _, wrong := range []struct{ token, block, n int }{{0, 8, 64}, {0, 9, 32}, {0, 0, 33}, {2, 0, 32}, {-1, 0, 32}, {0, -1, 32}, {0, 0, -32}} {
		for _, tier := range Tiers() {
			acts := QActs{Tier: tier}
			acts.Reset(2, blocks*BlockSize)
			mustPanic(t, fmt.Sprint(tier, wrong), func() { acts.QuantizeRows(wrong.token, wrong.token+1, wrong.block, make([]float32, 64), 0, wrong.n) })
		}
	}
}
