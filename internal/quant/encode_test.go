package quant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The .enc files of Q8_0 and Q4_0 hold values of all magnitudes, ties, zeros and
// shared maxima, with the bytes that the gguf package made of them.
func TestQuantizeEqualsReference(t *testing.T) {
	for _, name := range []string{"Q8_0", "Q4_0"} {
		f, _ := Lookup(name)
		data, err := os.ReadFile(filepath.Join("testdata", name+".enc"))
		if err != nil {
			t.Fatal(err)
		}
		blocks := len(data) / (f.Bytes + 4*f.Block)
		src, want := floatsOf(data[:4*blocks*f.Block]), data[4*blocks*f.Block:]
		got := make([]byte, blocks*f.Bytes)
		if err := f.Quantize(got, src); err != nil {
			t.Fatal(err)
		}
		for b := range blocks {
			g, w := got[b*f.Bytes:(b+1)*f.Bytes], want[b*f.Bytes:(b+1)*f.Bytes]
			if !bytes.Equal(g, w) {
				t.Errorf("%s: block %d is\n%x, want\n%x for\n%v", name, b, g, w, src[b*32:b*32+32])
			}
		}
	}
}

func TestQuantizeRefusals(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, f := range Formats() {
		row := make([]float32, f.Block)
		err := f.Quantize(make([]byte, f.Bytes), row)
		if !f.CanQuantize() {
			if !errors.Is(err, ErrNoEncoder) || !strings.Contains(err.Error(), f.Name) {
				t.Errorf("%s: %v, want ErrNoEncoder with the name", f.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: zeros: %v", f.Name, err)
		}
		if err := f.Quantize(make([]byte, f.Bytes+1), row); !errors.Is(err, ErrLength) {
			t.Errorf("%s: a byte too many: %v, want ErrLength", f.Name, err)
		}
		if f.Block == 1 {
			continue
		}
		if err := f.Quantize(make([]byte, f.Bytes), row[1:]); !errors.Is(err, ErrLength) {
			t.Errorf("%s: a value too few: %v, want ErrLength", f.Name, err)
		}
		for _, bad := range []float32{nan, inf, -inf, math.MaxFloat32, -1.7e7} {
			for _, at := range []int{0, 31, 32, 77, 95} {
				row := make([]float32, 3*f.Block)
				row[at] = bad
				err := f.Quantize(make([]byte, 3*f.Bytes), row)
				if !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), fmt.Sprintf("index %d ", at)) {
					t.Errorf("%s: %v at %d: %v, want ErrValue with the index", f.Name, bad, at, err)
				}
			}
		}
	}
	f16, _ := Lookup("F16")
	if err := f16.Quantize(make([]byte, 6), []float32{inf, nan, 65519}); err != nil {
		t.Errorf("F16 holds infinities and NaNs, but: %v", err)
	}
	if err := f16.Quantize(make([]byte, 4), []float32{1, 65520}); !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), "index 1 ") {
		t.Errorf("F16, 65520: %v, want ErrValue with the index", err)
	}
}

// Blocks whose step has no reciprocal in float32 decode to zeros.
func TestQuantizeSubnormals(t *testing.T) {
	for _, name := range []string{"Q8_0", "Q4_0"} {
		f, _ := Lookup(name)
		for _, v := range []float32{0, math.SmallestNonzeroFloat32, -1e-40, 1e-38, -1e-30} {
			src, dst, back := make([]float32, 32), make([]byte, f.Bytes), make([]float32, 32)
			src[3], src[20] = v, -v/2
			if err := f.Quantize(dst, src); err != nil {
				t.Fatal(err)
			}
			f.Dequantize(back, dst)
			for i, b := range back {
				if b != 0 {
					t.Errorf("%s: %v decodes to %v at %d", name, v, b, i)
				}
			}
			if bits := binary.LittleEndian.Uint16(dst); bits&0x7fff != 0 {
				t.Errorf("%s: %v has scale bits %#04x", name, v, bits)
			}
		}
	}
}

func TestQuantizeFloatsRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, name := range []string{"F32", "F16", "BF16"} {
		f, _ := Lookup(name)
		src := randomBlocks(r, f, 99)
		values, back := make([]float32, 99), make([]byte, len(src))
		f.Dequantize(values, src)
		if err := f.Quantize(back, values); err != nil || !bytes.Equal(back, src) {
			t.Errorf("%s: decoded and encoded again differs (%v)", name, err)
		}
	}
}

// checkRoundTrip holds the error of a decoded block against half a step, plus
// what storing the step in half precision costs, plus for Q4_0 the cut at +7.
func checkRoundTrip(t *testing.T, f *Format, src []float32) {
	t.Helper()
	dst := make([]byte, len(src)/f.Block*f.Bytes)
	if err := f.Quantize(dst, src); err != nil {
		if !errors.Is(err, ErrValue) {
			t.Fatal(err)
		}
		return
	}
	back := make([]float32, len(src))
	f.Dequantize(back, dst)
	levels, cut := 127.0, 0.5
	if f.Name == "Q4_0" {
		levels, cut = 8, 1
	}
	for start := 0; start < len(src); start += f.Block {
		top := 0.0
		for _, v := range src[start : start+f.Block] {
			top = max(top, math.Abs(float64(v)))
		}
		step := top / levels
		stored := math.Abs(float64(f16At(dst[start/f.Block*f.Bytes:])))
		for i, v := range src[start : start+f.Block] {
			half := 0.5
			if q := math.Abs(float64(v)) / step; f.Name == "Q4_0" && q >= 7.49 {
				half = cut
			}
			bound := half*step*1.00001 + levels*math.Abs(step-stored) + 1e-37
			if e := math.Abs(float64(back[start+i]) - float64(v)); !(e <= bound) {
				t.Fatalf("%s: %v comes back as %v, error %v above %v", f.Name, v, back[start+i], e, bound)
			}
		}
	}
}

func TestQuantizeRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, name := range []string{"Q8_0", "Q4_0"} {
		f, _ := Lookup(name)
		for _, blocks := range []int{1, 2, 3, 5, 7, 8, 9} {
			for exponent := -40; exponent < 20; exponent++ {
				src := make([]float32, blocks*f.Block)
				for i := range src {
					src[i] = float32(math.Ldexp(r.Float64()*2-1, exponent))
				}
				checkRoundTrip(t, f, src)
			}
		}
	}
}

func FuzzQuantizeRoundTrip(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(bytes.Repeat([]byte{0x00, 0x00, 0x80, 0x3f}, 32), true)
	f.Add(bytes.Repeat([]byte{0xff, 0xff, 0x7f, 0x80, 1, 0, 0, 0}, 40), false)
	f.Fuzz(func(t *testing.T, data []byte, four bool) {
		format := &formats[kindQ8_0]
		if four {
			format = &formats[kindQ4_0]
		}
		src := floatsOf(data)
		checkRoundTrip(t, format, src[:len(src)/32*32])
	})
}

func BenchmarkQuantize(b *testing.B) {
	const n = 4096
	r := rand.New(rand.NewPCG(15, 16))
	src := make([]float32, n)
	for i := range src {
		src[i] = float32(r.NormFloat64())
	}
	for _, f := range Formats() {
		if !f.CanQuantize() {
			continue
		}
		b.Run("format="+f.Name, func(b *testing.B) {
			dst := make([]byte, n/f.Block*f.Bytes)
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				if err := f.Quantize(dst, src); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gvalues/s")
		})
	}
}
