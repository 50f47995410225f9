package quant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// floatsOf reads little-endian float32 values.
func floatsOf(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// same is == on float32 with NaN equal to NaN.
func same(a, b float32) bool { return a == b || a != a && b != b }

func firstDifference(a, b []float32) int {
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	for i := range a {
		if !same(a[i], b[i]) {
			return i
		}
	}
	return -1
}

// randomBlocks returns n blocks of f: any bytes, with finite scales of ordinary size.
func randomBlocks(r *rand.Rand, f *Format, n int) []byte {
	b := make([]byte, n*f.Bytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for at := 0; at < len(b); at += f.Bytes {
		block := b[at : at+f.Bytes]
		half := func(offsets ...int) {
			for _, o := range offsets {
				binary.LittleEndian.PutUint16(block[o:], F32ToF16(float32(r.NormFloat64()*0.02)))
			}
		}
		switch f.Name {
		case "F32":
			binary.LittleEndian.PutUint32(block, math.Float32bits(float32(r.NormFloat64())))
		case "F16":
			half(0)
		case "BF16":
			binary.LittleEndian.PutUint16(block, F32ToBF16(float32(r.NormFloat64())))
		case "Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS":
			half(0)
		case "Q4_1", "Q5_1", "Q4_K", "Q5_K":
			half(0, 2)
		case "Q2_K":
			half(80, 82)
		case "Q3_K":
			half(108)
		case "Q6_K":
			half(208)
		case "MXFP4":
			block[0] = byte(110 + r.IntN(20))
		}
	}
	return b
}

func TestFormatTable(t *testing.T) {
	names := make([]string, 0, 16)
	for _, f := range Formats() {
		names = append(names, f.Name)
		if g, err := Lookup(f.Name); err != nil || g != f {
			t.Errorf("Lookup(%q) = %v, %v; want the format of the table", f.Name, g, err)
		}
		if f.Group != 0 && (f.Block%f.Group != 0 || superBlock%f.Block != 0) {
			t.Errorf("%s: block %d, group %d", f.Name, f.Block, f.Group)
		}
	}
	const want = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("formats are %s, want %s", got, want)
	}
	for _, name := range []string{"", "q4_0", "Q8_K", "IQ2_XXS"} {
		_, err := Lookup(name)
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("Lookup(%q): %v, want ErrUnsupported", name, err)
		} else if !strings.Contains(err.Error(), `"`+name+`"`) || !strings.Contains(err.Error(), "IQ4_XS, MXFP4") {
			t.Errorf("Lookup(%q): message %q lacks the name or the list", name, err)
		}
	}
}

func TestRowBytes(t *testing.T) {
	for _, f := range Formats() {
		for _, blocks := range []int{0, 1, 3, 1000} {
			if n, err := f.RowBytes(blocks * f.Block); n != blocks*f.Bytes || err != nil {
				t.Errorf("%s: RowBytes(%d) = %d, %v", f.Name, blocks*f.Block, n, err)
			}
		}
		bad := []int{-f.Block, -1}
		if f.Block > 1 {
			bad = append(bad, 1, f.Block-1, f.Block+1)
		}
		if f.Bytes > f.Block {
			bad = append(bad, math.MaxInt/f.Block*f.Block)
		}
		for _, n := range bad {
			if size, err := f.RowBytes(n); !errors.Is(err, ErrLength) {
				t.Errorf("%s: RowBytes(%d) = %d, %v; want ErrLength", f.Name, n, size, err)
			}
		}
	}
}

// The files of testdata were made by testdata/generate.py with ggml's gguf
// Python package: NAME.dec has blocks (edge scales first) and their values.
func TestDequantizeEqualsReference(t *testing.T) {
	for _, f := range Formats() {
		if f.Group == 0 {
			continue // covered by the exhaustive tests of float_test.go
		}
		data, err := os.ReadFile(filepath.Join("testdata", f.Name+".dec"))
		if err != nil {
			t.Fatal(err)
		}
		blocks := len(data) / (f.Bytes + 4*f.Block)
		src, want := data[:blocks*f.Bytes], floatsOf(data[blocks*f.Bytes:])
		got := make([]float32, blocks*f.Block)
		f.Dequantize(got, src)
		if i := firstDifference(got, want); i >= 0 {
			t.Errorf("%s: value %d of block %d is %v, want %v", f.Name, i%f.Block, i/f.Block, got[i], want[i])
		}

		// No rounding but the last happens: the integer form, evaluated in
		// double precision where it is exact, gives the same bits.
		var row IntRow
		f.Unpack(&row, src)
		for i := range got {
			if exact := valueAt(f, &row, i); !same(float32(exact), want[i]) {
				t.Errorf("%s: integer form of value %d is %v, want %v", f.Name, i, exact, want[i])
				break
			}
		}
	}
}

// valueAt evaluates the integer form in double precision.
func valueAt(f *Format, r *IntRow, i int) float64 {
	v := float64(r.Scale[i/f.Group]) * float64(r.Q[i])
	if f.Min {
		v = float64(v) + float64(r.Min[i/f.Group])
	}
	return v
}

func TestIntegerFormIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	limits := map[string][2]int8{ // the quants each format can have
		"Q4_0": {-8, 7}, "Q4_1": {0, 15}, "Q5_0": {-16, 15}, "Q5_1": {0, 31}, "Q8_0": {-128, 127},
		"Q2_K": {0, 3}, "Q3_K": {-4, 3}, "Q4_K": {0, 15}, "Q5_K": {0, 31}, "Q6_K": {-32, 31},
		"IQ4_NL": {-127, 113}, "IQ4_XS": {-127, 113}, "MXFP4": {-12, 12},
	}
	var row IntRow // one row for all, so that every change of format is tried
	for _, f := range Formats() {
		if f.Group == 0 {
			continue
		}
		src := randomBlocks(r, f, 40)
		n := 40 * f.Block
		f.Unpack(&row, src)
		if len(row.Q) != n || len(row.Scale) != n/f.Group || f.Min != (row.Min != nil) || f.Min && len(row.Min) != n/f.Group {
			t.Fatalf("%s: %d quants, %d scales, %d minima for %d values", f.Name, len(row.Q), len(row.Scale), len(row.Min), n)
		}
		values := make([]float32, n)
		f.Dequantize(values, src)
		low, high := int8(127), int8(-128)
		for i, v := range values {
			low, high = min(low, row.Q[i]), max(high, row.Q[i])
			if exact := valueAt(f, &row, i); v != float32(exact) || !f.Min && float64(v) != exact {
				t.Fatalf("%s: value %d is %v, integer form %v", f.Name, i, v, exact)
			}
		}
		if want := limits[f.Name]; low != want[0] || high != want[1] {
			t.Errorf("%s: quants from %d to %d, want %v", f.Name, low, high, want)
		}
	}
}

// Rows of any number of blocks, at any alignment, are decoded block by block,
// and nothing beside them is written.
func TestOddSizesAndAlignments(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const guard = float32(12345)
	for _, f := range Formats() {
		for _, blocks := range []int{0, 1, 2, 3, 5, 7, 8, 9, 70} {
			src := randomBlocks(r, f, blocks)
			want := make([]float32, blocks*f.Block)
			wantQ := make([]int8, 0, len(want))
			var one IntRow
			for b := range blocks {
				block := src[b*f.Bytes : (b+1)*f.Bytes]
				f.Dequantize(want[b*f.Block:(b+1)*f.Block], block)
				if f.Group > 0 {
					f.Unpack(&one, block)
					wantQ = append(wantQ, one.Q...)
				}
			}
			for shift := range 4 {
				moved := append(make([]byte, shift), src...)[shift:]
				got := make([]float32, shift+len(want)+1)
				got[shift+len(want)] = guard
				f.Dequantize(got[shift:shift+len(want)], moved)
				if i := firstDifference(got[shift:shift+len(want)], want); i >= 0 {
					t.Fatalf("%s, %d blocks, shift %d: value %d is %v, want %v", f.Name, blocks, shift, i, got[shift+i], want[i])
				}
				if got[shift+len(want)] != guard {
					t.Fatalf("%s, %d blocks: wrote past the end", f.Name, blocks)
				}
				if f.Group == 0 {
					continue
				}
				var row IntRow
				row.Q = make([]int8, 1, shift+1+len(want))[1:] // quants at an odd address too
				f.Unpack(&row, moved)
				if !bytes.Equal(asBytes(row.Q), asBytes(wantQ)) {
					t.Fatalf("%s, %d blocks, shift %d: quants differ from those block by block", f.Name, blocks, shift)
				}
			}
		}
	}
}

func TestMXFP4Exponents(t *testing.T) {
	f, _ := Lookup("MXFP4")
	src := make([]byte, 17)
	src[1] = 0x2F // value 0 is -6, value 16 is 1
	got := make([]float32, 32)
	for e := range 255 {
		src[0] = byte(e)
		f.Dequantize(got, src)
		step := math.Ldexp(1, e-127)
		if float64(got[0]) != -6*step && !(math.IsInf(float64(got[0]), -1) && 6*step > math.MaxFloat32) {
			t.Errorf("exponent %d: -6 decodes to %v", e, got[0])
		}
		if float64(got[16]) != step {
			t.Errorf("exponent %d: 1 decodes to %v", e, got[16])
		}
	}
}

func TestReuseDoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var row IntRow
	for _, f := range Formats() {
		if f.Group > 0 {
			row.Grow(f, 2048)
		}
	}
	values := make([]float32, 2048)
	for _, f := range Formats() {
		src := randomBlocks(r, f, 2048/f.Block)
		if n := testing.AllocsPerRun(10, func() { f.Dequantize(values, src) }); n != 0 {
			t.Errorf("%s: Dequantize allocates %v times", f.Name, n)
		}
		if f.Group == 0 {
			continue
		}
		if n := testing.AllocsPerRun(10, func() { f.Unpack(&row, src) }); n != 0 {
			t.Errorf("%s: Unpack allocates %v times", f.Name, n)
		}
	}
}

func TestWrongLengthsPanic(t *testing.T) {
	panics := func(what string, do func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s did not panic", what)
			}
		}()
		do()
	}
	var row IntRow
	for _, f := range Formats() {
		panics(f.Name+" dequantize, short source", func() { f.Dequantize(make([]float32, f.Block), make([]byte, f.Bytes-1)) })
		panics(f.Name+" dequantize, long source", func() { f.Dequantize(make([]float32, f.Block), make([]byte, 2*f.Bytes)) })
		if f.Group == 0 {
			panics(f.Name+" unpack", func() { f.Unpack(&row, make([]byte, f.Bytes)) })
		} else {
			panics(f.Name+" unpack, part of a block", func() { f.Unpack(&row, make([]byte, f.Bytes+1)) })
		}
	}
}

func FuzzDequantize(f *testing.F) {
	for i, format := range Formats() {
		f.Add(uint8(i), make([]byte, format.Bytes))
		f.Add(uint8(i), bytes.Repeat([]byte{0xff}, 2*format.Bytes))
	}
	f.Fuzz(func(t *testing.T, which uint8, src []byte) {
		format := Formats()[int(which)%len(formats)]
		blocks := len(src) / format.Bytes
		src = src[:blocks*format.Bytes]
		values := make([]float32, blocks*format.Block)
		format.Dequantize(values, src)
		if format.Group == 0 {
			return
		}
		var row IntRow
		format.Unpack(&row, src)
		for i, v := range values {
			if exact := valueAt(format, &row, i); !same(v, float32(exact)) {
				t.Fatalf("%s: value %d is %v, integer form %v", format.Name, i, v, exact)
			}
		}
	})
}

func BenchmarkDequantize(b *testing.B) {
	benchmark(b, func(*Format) bool { return true }, (*Format).Dequantize)
}

func BenchmarkUnpack(b *testing.B) {
	var row IntRow
	benchmark(b, func(f *Format) bool { return f.Group > 0 },
		func(f *Format, _ []float32, src []byte) { f.Unpack(&row, src) })
}

// benchmark counts the bytes of the encoded row; Gvalues/s compares formats.
func benchmark(b *testing.B, wanted func(*Format) bool, do func(*Format, []float32, []byte)) {
	const n = 4096
	r := rand.New(rand.NewPCG(7, 8))
	values := make([]float32, n)
	for _, f := range Formats() {
		if !wanted(f) {
			continue
		}
		b.Run("format="+f.Name, func(b *testing.B) {
			src := randomBlocks(r, f, n/f.Block)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				do(f, values, src)
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gvalues/s")
		})
	}
}

func TestMXFP4Exponent255(t *testing.T) {
	f, _ := Lookup("MXFP4")
	src := make([]byte, 17)
	for i := range 16 {
		src[1+i] = byte(i)
	}
	src[0] = 255
	got := make([]float32, 32)
	f.Dequantize(got, src)
	for i, q := range e2m1Doubled {
		if want := float32(float64(q) * math.Ldexp(1, 127)); got[i] != want {
			t.Errorf("E2M1 code %d is %v, want %v", i, got[i], want)
		}
	}
}
