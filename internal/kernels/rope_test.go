package kernels

import (
	"math"
	"math/big"
	"testing"
)

func near(t *testing.T, what string, got []float32, want ...float64) {
	t.Helper()
	for i, w := range want {
		if math.Abs(float64(got[i])-w) > 1.5e-6 {
			t.Errorf("%s = %v, want %v", what, got, want)
			return
		}
	}
}

func TestRotatePairs(t *testing.T) {
	rotated := func(dim int, style RoPEStyle) []float32 {
		r := mustRoPE(t, RoPEParams{Dim: dim, Base: 10000, Scale: 1})
		cos, sin := make([]float32, dim/2), make([]float32, dim/2)
		r.CosSin(cos, sin, 1)
		x := []float32{1, 2, 3, 4}
		Rotate(x, x, 4, style, cos, sin)
		return x
	}
	near(t, "interleaved", rotated(4, Interleaved), -1.142640, 1.922076, 2.959851, 4.029800)
	near(t, "half-split", rotated(4, HalfSplit), -1.984111, 1.959901, 2.462378, 4.019800)
	c, s := math.Cos(1), math.Sin(1)
	for _, style := range []RoPEStyle{Interleaved, HalfSplit} {
		part := rotated(2, style)
		near(t, "2 of 4", part, c-2*s, s+2*c, 3, 4)
		sameBits(t, "the rest", part[2:], []float32{3, 4})
	}
}

// TestRotateHeads: every head is rotated alike, into another row or in place, and
// lengths are kept.
func TestRotateHeads(t *testing.T) {
	r := mustRoPE(t, RoPEParams{Dim: 6, Base: 10000, Scale: 1})
	cos, sin := make([]float32, 3), make([]float32, 3)
	r.CosSin(cos, sin, 77)
	for _, style := range []RoPEStyle{Interleaved, HalfSplit} {
		x := randFloats(8*3, 1)
		out := make([]float32, len(x))
		Rotate(out, x, 8, style, cos, sin)
		for h := range 3 {
			one := append([]float32{}, x[h*8:][:8]...)
			Rotate(one, one, 8, style, cos, sin)
			sameBits(t, "head alone, in place", one, out[h*8:][:8])
			var before, after float64
			for i := range 8 {
				before += float64(x[h*8+i]) * float64(x[h*8+i])
				after += float64(one[i]) * float64(one[i])
			}
			if math.Abs(before-after) > 1e-5*before {
				t.Errorf("head %d: length %g became %g", h, before, after)
			}
		}
	}
}

// TestRotateIsRelative: the product of two rotated vectors depends on their
// distance only.
func TestRotateIsRelative(t *testing.T) {
	r := mustRoPE(t, RoPEParams{Dim: 64, Base: 1e6, Scale: 1})
	product := func(p, q int) float64 {
		cos, sin := make([]float32, 32), make([]float32, 32)
		x, y := randFloats(64, 1), randFloats(64, 2)
		r.CosSin(cos, sin, p)
		Rotate(x, x, 64, HalfSplit, cos, sin)
		r.CosSin(cos, sin, q)
		Rotate(y, y, 64, HalfSplit, cos, sin)
		var sum float64
		for i := range x {
			sum += float64(x[i]) * float64(y[i])
		}
		return sum
	}
	want := product(17, 5)
	for _, p := range []int{12, 1000, 100_000, 1 << 19} {
		if got := product(p, p-12); math.Abs(got-want) > 2e-5 {
			t.Errorf("at %d: %g, want %g", p, got, want)
		}
	}
}

func TestMath64(t *testing.T) {
	r := lcg(3)
	var worst float64
	for range 200_000 {
		x := (float64(r.next()) - 0x1p31) * 0x1p-11 * (1 + float64(r.next())*0x1p-40)
		if r.next()&1 == 0 {
			x *= 0x1p-15
		}
		s, c := sincos(x)
		worst = max(worst, math.Abs(s-math.Sin(x)), math.Abs(c-math.Cos(x)))
	}
	if worst > 4e-16 {
		t.Errorf("sincos is off by %g", worst)
	}
	for range 100_000 {
		x := math.Ldexp(1+float64(r.next())*0x1p-32, int(r.next()%60)-30)
		if d := math.Abs(ln(x) - math.Log(x)); d > 5e-16*max(math.Abs(math.Log(x)), 0.1) {
			t.Fatalf("ln(%g) is off by %g", x, d)
		}
		y := (float64(r.next()) - 0x1p31) * 0x1p-27
		if e := math.Exp(y); math.Abs(exp64(y)-e) > 1e-15*e {
			t.Fatalf("exp64(%g) = %g, want %g", y, exp64(y), e)
		}
	}
	if ln(1) != 0 || exp64(0) != 1 {
		t.Error("ln(1) or exp64(0) is not exact")
	}
}

// TestRoPEAtLargePositions reduces the exact angle with 200 bits.
func TestRoPEAtLargePositions(t *testing.T) {
	pi, _, err := big.ParseFloat("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899", 10, 300, big.ToNearestEven)
	if err != nil {
		t.Fatal(err)
	}
	r := mustRoPE(t, RoPEParams{Dim: 4, Base: 10000, Scale: 1})
	cos, sin := make([]float32, 2), make([]float32, 2)
	for _, pos := range []int{1, 2, 355, 4096, 103993, 833719, 1<<20 - 1} {
		r.CosSin(cos, sin, pos)
		for i, unit := range []float64{1, 0.01} {
			angle := new(big.Float).SetPrec(300).SetInt64(int64(pos))
			if i == 1 {
				angle.Quo(angle, big.NewFloat(100).SetPrec(300))
			}
			turns := new(big.Float).Quo(angle, new(big.Float).Mul(pi, big.NewFloat(2)))
			whole, _ := turns.Int(nil)
			turns.Sub(turns, new(big.Float).SetInt(whole))
			rest, _ := turns.Mul(turns, new(big.Float).Mul(pi, big.NewFloat(2))).Float64()
			if math.Abs(float64(cos[i])-math.Cos(rest)) > 0x1p-24*1.01 || math.Abs(float64(sin[i])-math.Sin(rest)) > 0x1p-24*1.01 {
				t.Errorf("position %d, unit %g: %v %v, want %v %v", pos, unit, cos[i], sin[i], math.Cos(rest), math.Sin(rest))
			}
		}
	}
}

// TestRoPEScaling holds the angles against the published formulas in float64.
func TestRoPEScaling(t *testing.T) {
	factors := make([]float32, 32)
	for i := range factors {
		factors[i] = 1 + float32(i)/4
	}
	for name, p := range map[string]RoPEParams{
		"plain":        {Dim: 64, Base: 10000, Scale: 1},
		"linear":       {Dim: 64, Base: 10000, Scale: 0.25},
		"factors":      {Dim: 64, Base: 500000, Scale: 1, Factors: factors},
		"yarn":         {Dim: 64, Base: 1e6, Scale: 0.25, ExtFactor: 1, AttnFactor: 1, BetaFast: 32, BetaSlow: 1, OrigContext: 32768},
		"yarn by half": {Dim: 64, Base: 1e4, Scale: 0.125, ExtFactor: 0.5, AttnFactor: 0.75, BetaFast: 16, BetaSlow: 2, OrigContext: 4096},
	} {
		r := mustRoPE(t, p)
		cos, sin := make([]float32, 32), make([]float32, 32)
		for _, pos := range []int{0, 1, 100, 30000} {
			r.CosSin(cos, sin, pos)
			for i := range 32 {
				theta := float64(pos) * math.Pow(float64(p.Base), -2*float64(i)/float64(p.Dim))
				if p.Factors != nil {
					theta /= float64(p.Factors[i])
				}
				size := 1.0
				if p.AttnFactor != 0 {
					size = float64(p.AttnFactor)
				}
				scaled := theta * float64(p.Scale)
				if p.ExtFactor != 0 {
					at := func(beta float32) float64 {
						return float64(p.Dim) * math.Log(float64(p.OrigContext)/(float64(beta)*2*math.Pi)) / (2 * math.Log(float64(p.Base)))
					}
					low, high := math.Max(0, math.Floor(at(p.BetaFast))), math.Min(float64(p.Dim-1), math.Ceil(at(p.BetaSlow)))
					ramp := 1 - math.Min(1, math.Max(0, (float64(i)-low)/math.Max(0.001, high-low)))
					ramp *= float64(p.ExtFactor)
					scaled = scaled*(1-ramp) + theta*ramp
					size *= 1 + 0.1*math.Log(1/float64(p.Scale))
				}
				if math.Abs(float64(cos[i])-size*math.Cos(scaled)) > 1e-7 || math.Abs(float64(sin[i])-size*math.Sin(scaled)) > 1e-7 {
					t.Errorf("%s, position %d, pair %d: %g %g, want %g %g", name, pos, i, cos[i], sin[i], size*math.Cos(scaled), size*math.Sin(scaled))
				}
			}
		}
	}
}

func TestRoPERows(t *testing.T) {
	r := mustRoPE(t, RoPEParams{Dim: 8, Base: 10000, Scale: 1})
	other := mustRoPE(t, RoPEParams{Dim: 4, Base: 500, Scale: 1})
	var rows RoPERows
	for _, step := range []struct {
		r   *RoPE
		pos []int32
	}{{r, []int32{3, 4, 5}}, {r, []int32{3, 4, 5}}, {r, []int32{3, 9}}, {other, []int32{3, 9}}, {r, []int32{1}}} {
		rows.Update(step.r, step.pos)
		for i, p := range step.pos {
			cos, sin := make([]float32, step.r.Pairs()), make([]float32, step.r.Pairs())
			step.r.CosSin(cos, sin, int(p))
			gotCos, gotSin := rows.Row(i)
			sameBits(t, "cosines", gotCos, cos)
			sameBits(t, "sines", gotSin, sin)
		}
	}
}

func TestNewRoPERefuses(t *testing.T) {
	good := RoPEParams{Dim: 4, Base: 10000, Scale: 1, ExtFactor: 1, BetaFast: 32, BetaSlow: 1, OrigContext: 4096}
	mustRoPE(t, good)
	nan := float32(math.NaN())
	for name, spoil := range map[string]func(*RoPEParams){
		"odd":             func(p *RoPEParams) { p.Dim = 5 },
		"no features":     func(p *RoPEParams) { p.Dim = 0 },
		"base":            func(p *RoPEParams) { p.Base = -1 },
		"NaN base":        func(p *RoPEParams) { p.Base = nan },
		"scale":           func(p *RoPEParams) { p.Scale = 0 },
		"few factors":     func(p *RoPEParams) { p.Factors = []float32{1} },
		"zero factor":     func(p *RoPEParams) { p.Factors = []float32{1, 0} },
		"attention":       func(p *RoPEParams) { p.AttnFactor = -1 },
		"beta":            func(p *RoPEParams) { p.BetaSlow = 0 },
		"base 1 for yarn": func(p *RoPEParams) { p.Base = 1 },
		"context":         func(p *RoPEParams) { p.OrigContext = 0 },
	} {
		p := good
		spoil(&p)
		if _, err := NewRoPE(p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
