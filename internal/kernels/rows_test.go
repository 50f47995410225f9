package kernels

import (
	"fmt"
	"math"
	"testing"
)

// ulps is the distance of got from want in units of want's last place.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e, -125)-24)
}

func TestExp(t *testing.T) {
	inf := float32(math.Inf(1))
	worst, at := 0.0, float32(0)
	check := func(x float32) {
		got, want := Exp(x), math.Exp(float64(x))
		switch {
		case want < 0x1p-126:
			if got != 0 || math.Signbit(float64(got)) {
				t.Fatalf("Exp(%x) = %x, want 0", x, got)
			}
		case want > math.MaxFloat32:
			if got != inf {
				t.Fatalf("Exp(%x) = %x, want +Inf", x, got)
			}
		default:
			if u := ulps(got, want); u > worst {
				worst, at = u, x
			}
		}
	}
	// Every exponent, and many values where they matter.
	r := lcg(1)
	for e := uint32(0); e < 256; e++ {
		n := 200
		if e >= 100 && e <= 134 {
			n = 20_000
		}
		for range n {
			bits := e<<23 | r.next()>>9
			if x := math.Float32frombits(bits); x == x {
				check(x)
				check(-x)
			}
		}
	}
	for d := range 2000 { // both edges
		check(math.Float32frombits(math.Float32bits(-87.33654) + uint32(d) - 1000))
		check(math.Float32frombits(math.Float32bits(88.72283) + uint32(d) - 1000))
	}
	for x := -88.0; x <= 89; x += 0x1p-13 {
		check(float32(x))
	}
	if worst > 1 {
		t.Errorf("Exp(%x) is off by %.3f units in the last place", at, worst)
	}
	t.Logf("largest error %.3f units in the last place, at %g", worst, at)
	if Exp(0) != 1 || Exp(-inf) != 0 || Exp(inf) != inf || Exp(float32(math.NaN())) == Exp(float32(math.NaN())) {
		t.Error("Exp of 0, -Inf, Inf or NaN is not 1, 0, Inf and NaN")
	}
}

func TestActivations(t *testing.T) {
	for x := -120.0; x < 120; x += 1.0 / 64 {
		v := float32(x)
		if want := x / (1 + math.Exp(-x)); math.Abs(want) > 0x1p-120 && ulps(Silu(v), want) > 4 {
			t.Fatalf("Silu(%g) = %g, want %g", x, Silu(v), want)
		}
		// The exponent is rounded to a float32, which for large x moves the (tiny) result by
		// more than a few units; around and above 0 it does not.
		want := 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*x*(1+0.044715*x*x)))
		if math.Abs(float64(Gelu(v))-want) > 4*0x1p-24*max(math.Abs(x), 1e-6) {
			t.Fatalf("Gelu(%g) = %g, want %g", x, Gelu(v), want)
		}
	}
	for _, f := range []struct {
		name string
		f    func(float32) float32
	}{{"Silu", Silu}, {"Gelu", Gelu}} {
		if v := f.f(math.MaxFloat32); v != math.MaxFloat32 {
			t.Errorf("%s of the largest is %g", f.name, v)
		}
		if v := f.f(-math.MaxFloat32); v != 0 {
			t.Errorf("%s of the most negative is %g", f.name, v)
		}
		if v := f.f(float32(math.NaN())); v == v {
			t.Errorf("%s of NaN is %g", f.name, v)
		}
		if v := f.f(0); v != 0 {
			t.Errorf("%s of 0 is %g", f.name, v)
		}
	}
	x, up := randFloats(37, 1), randFloats(37, 2)
	want := make([]float32, 37)
	for i := range x {
		want[i] = Silu(x[i]) * up[i]
	}
	out := make([]float32, 37)
	SiluTo(out, x)
	Mul(out, out, up)
	sameBits(t, "Mul of SiluTo", out, want)
	SwiGLU(up, x, up)
	sameBits(t, "SwiGLU over up", up, want)
}

// lanes16 is the contract's sum, written as it reads.
func lanes16(n int, add func(i int, lane float32) float32) float32 {
	var l [16]float32
	for i := range n {
		l[i%16] = add(i, l[i%16])
	}
	for _, step := range []int{8, 4, 2, 1} {
		for j := range step {
			l[j] = l[j] + l[j+step]
		}
	}
	return l[0]
}

func TestRMSNorm(t *testing.T) {
	for n := 1; n <= 70; n++ {
		x, w := randFloats(n, uint64(n)), randFloats(n, 99)
		mean := lanes16(n, func(i int, lane float32) float32 { return FMA(x[i], x[i], lane) }) / float32(n)
		s := 1 / float32(math.Sqrt(float64(mean+1e-5)))
		var exact float64
		for _, v := range x {
			exact += float64(v) * float64(v)
		}
		exact = 1 / math.Sqrt(exact/float64(n)+1e-5)
		plain, weighted := make([]float32, n), make([]float32, n)
		for i, v := range x {
			plain[i] = v * s
			weighted[i] = plain[i] * w[i]
			if math.Abs(float64(plain[i])-float64(v)*exact) > 1e-6*math.Abs(float64(v)*exact) {
				t.Fatalf("length %d: %g, exact %g", n, plain[i], float64(v)*exact)
			}
		}
		out := make([]float32, n)
		RMSNorm(out, x, nil, 1e-5)
		sameBits(t, fmt.Sprint("length ", n), out, plain)
		RMSNorm(x, x, w, 1e-5)
		sameBits(t, fmt.Sprint("in place, length ", n), x, weighted)
	}
}

func TestQKNorm(t *testing.T) {
	x, w := randFloats(3*24, 1), randFloats(24, 2)
	want := make([]float32, len(x))
	for h := range 3 {
		RMSNorm(want[h*24:][:24], x[h*24:][:24], w, 1e-6)
	}
	QKNorm(x, x, w, 24, 1e-6)
	sameBits(t, "three heads", x, want)
}

func TestSoftmax(t *testing.T) {
	for n := 1; n <= 70; n++ {
		x := randFloats(n, uint64(n))
		m := x[0]
		for _, v := range x {
			m = max(m, v)
		}
		inv := 1 / lanes16(n, func(i int, lane float32) float32 { return lane + Exp(x[i]-m) })
		want := make([]float32, n)
		var total, exact float64
		for _, v := range x {
			exact += math.Exp(float64(v))
		}
		for i, v := range x {
			want[i] = Exp(v-m) * inv
			total += float64(want[i])
			if p := math.Exp(float64(v)) / exact; math.Abs(float64(want[i])-p) > 1e-6*p {
				t.Fatalf("length %d: %g, exact %g", n, want[i], p)
			}
		}
		if math.Abs(total-1) > 1e-6 {
			t.Fatalf("length %d sums to %g", n, total)
		}
		Softmax(x, x)
		sameBits(t, fmt.Sprint("length ", n), x, want)
	}
	inf := float32(math.Inf(1))
	masked := []float32{1, -inf, 1}
	Softmax(masked, masked)
	sameBits(t, "with a masked value", masked, []float32{0.5, 0, 0.5})
	damaged := []float32{1, float32(math.NaN())}
	Softmax(damaged, damaged)
	if damaged[0] == damaged[0] || damaged[1] == damaged[1] {
		t.Errorf("softmax over a NaN is %v", damaged)
	}
}

func TestSimpleRows(t *testing.T) {
	a, b := []float32{1, 2, 3}, []float32{10, 20, 40}
	out := make([]float32, 3)
	Add(out, a, b)
	sameBits(t, "Add", out, []float32{11, 22, 43})
	Mul(out, a, b)
	sameBits(t, "Mul", out, []float32{10, 40, 120})
	Scale(out, a, -2)
	sameBits(t, "Scale", out, []float32{-2, -4, -6})
	src := []float32{0, 1, 10, 11, 20, 21}
	rows := make([]float32, 6)
	GetRows(rows, src, 2, []int32{2, 0, 2})
	sameBits(t, "GetRows", rows, []float32{20, 21, 0, 1, 20, 21})
}

func TestPermute(t *testing.T) {
	shape := [4]int{2, 3, 4, 5}
	src := randFloats(120, 1)
	at := func(shape, i [4]int) int { return ((i[3]*shape[2]+i[2])*shape[1]+i[1])*shape[0] + i[0] }
	for _, dims := range [][4]int{{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 0, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
		out := make([]float32, 120)
		Permute(out, src, shape, dims)
		var to [4]int
		for i, d := range dims {
			to[i] = shape[d]
		}
		for k := range 120 {
			i := [4]int{k % to[0], k / to[0] % to[1], k / to[0] / to[1] % to[2], k / to[0] / to[1] / to[2]}
			var j [4]int
			for a, d := range dims {
				j[d] = i[a]
			}
			if out[k] != src[at(shape, j)] {
				t.Fatalf("Permute %v: element %v is not element %v of the source", dims, i, j)
			}
		}
		// The inverse permutation brings the source back.
		var inverse [4]int
		for i, d := range dims {
			inverse[d] = i
		}
		back := make([]float32, 120)
		Permute(back, out, to, inverse)
		sameBits(t, fmt.Sprint("inverse of ", dims), back, src)
	}
}
