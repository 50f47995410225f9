package kernels

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the kept results anew")

// TestGoldenBits holds a hash of every kernel's output over fixed inputs against the
// one that is kept. It must be the same on every architecture: a difference means
// that an order of operations changed, or that a compiler fused what it must not.
func TestGoldenBits(t *testing.T) {
	var b strings.Builder
	hash := func(name string, x []float32) {
		h := fnv.New64a()
		for _, v := range x {
			u := math.Float32bits(v)
			if v != v {
				u = 0x7fc00000
			}
			h.Write([]byte{byte(u), byte(u >> 8), byte(u >> 16), byte(u >> 24)})
		}
		fmt.Fprintf(&b, "%-24s %016x\n", name, h.Sum64())
	}

	const in, rows, tokens = 512, 11, 5
	x, bias := randFloats(tokens*in, 11), randFloats(rows, 12)
	var s Scratch
	var acts QActs
	acts.Quantize(x, in, tokens, in)
	hash("quantize scales", acts.D)
	hash("quantize sums", append(append([]float32{}, acts.S16...), acts.S32...))
	for i, name := range formatNames {
		w := randWeight(t, name, in, rows, uint64(100+i))
		out := make([]float32, rows*tokens)
		if w.Integer() {
			MatMulInt(out, rows, w, 0, rows, bias, &acts, &s)
		} else {
			MatMulFloat(out, rows, w, 0, rows, bias, x, in, tokens, &s)
		}
		hash("matmul "+name, out)
		row := make([]float32, in)
		w.GetRow(row, 3)
		hash("row "+name, row)
	}

	r := lcg(5)
	wide := make([]float32, 50_000)
	fma := make([]float32, len(wide))
	for i := range wide {
		v := math.Float32frombits(r.next())
		fma[i] = FMA(v, math.Float32frombits(r.next()), math.Float32frombits(r.next()))
		wide[i] = float32(int32(r.next())) * 0x1p-24 // -128 to 128
	}
	hash("fma", fma)
	out := make([]float32, len(wide))
	for i, v := range wide {
		out[i] = Exp(v)
	}
	hash("exp", out)
	SiluTo(out, wide)
	hash("silu", out)
	GeluTo(out, wide)
	hash("gelu", out)
	SwiGLU(out, wide, fma)
	hash("swiglu", out)
	Softmax(out, wide)
	hash("softmax", out)
	RMSNorm(out[:1003], wide[:1003], wide[1003:], 1e-6)
	hash("rmsnorm", out[:1003])

	for i, p := range []RoPEParams{
		{Dim: 128, Base: 1e6, Scale: 1},
		{Dim: 64, Base: 1e4, Scale: 0.125, ExtFactor: 1, AttnFactor: 0.9, BetaFast: 32, BetaSlow: 1, OrigContext: 4096},
	} {
		rope := mustRoPE(t, p)
		var cosines, rotated []float32
		for pos := 0; pos < 1<<20; pos = pos*3/2 + 1 {
			cos, sin := make([]float32, rope.Pairs()), make([]float32, rope.Pairs())
			rope.CosSin(cos, sin, pos)
			cosines = append(append(cosines, cos...), sin...)
			y := make([]float32, 256)
			Rotate(y, x[:256], 128, RoPEStyle(i), cos, sin)
			rotated = append(rotated, y...)
		}
		hash(fmt.Sprint("rope angles ", i), cosines)
		hash(fmt.Sprint("rope ", i), rotated)
	}
	for _, f32 := range []bool{false, true} {
		k, v := randKV(400, 64, f32, 20)
		for _, window := range []int{0, 150} {
			a := &Attention{K: k, V: v, HeadDim: 32, KVHead: 1, Scale: 0.2, N: 333, Window: window}
			Attend(out[:96], x[:96], a, &s)
			hash(fmt.Sprintf("attend f32=%v window=%d", f32, window), out[:96])
		}
	}

	const file = "testdata/golden.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(kept), "\n")
	for i, line := range strings.Split(b.String(), "\n") {
		if i >= len(want) || line != want[i] {
			t.Errorf("got  %s\nkept %s", line, append(want, make([]string, i+1)...)[i])
		}
	}
}
