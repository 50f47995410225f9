package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// halfValue is the value of a half-precision number straight from IEEE 754.
func halfValue(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exponent, fraction := int(h>>10&31), float64(h&0x3ff)
	switch {
	case exponent == 31 && fraction == 0:
		return math.Inf(int(sign))
	case exponent == 31:
		return math.NaN()
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestEveryHalf(t *testing.T) {
	src := make([]uint16, 1<<16)
	for i := range src {
		src[i] = uint16(i)
	}
	values, back := make([]float32, 1<<16), make([]uint16, 1<<16)
	DecodeF16(values, src)
	EncodeF16(back, values)
	for i, v := range values {
		h, want := uint16(i), halfValue(uint16(i))
		if single := F16ToF32(h); math.Float32bits(single) != math.Float32bits(v) {
			t.Fatalf("%#04x: slice gives %v, single %v", h, v, single)
		}
		if math.IsNaN(want) {
			bits := math.Float32bits(v)
			if bits>>16&0x7fc0 != 0x7fc0 || bits>>31 != uint32(h>>15) || bits>>13&0x1ff != uint32(h&0x1ff) {
				t.Fatalf("NaN %#04x became %#08x", h, bits)
			}
			h |= 0x0200 // comes back quiet
		} else if float64(v) != want || math.Signbit(float64(v)) != math.Signbit(want) {
			t.Fatalf("%#04x is %v, want %v", h, v, want)
		}
		if back[i] != h || F32ToF16(v) != h {
			t.Fatalf("%#04x comes back as %#04x", h, back[i])
		}
	}
}

// Between each two neighbouring halves: just below the middle goes down, just
// above goes up, the middle goes to the even one.
func TestHalfRounding(t *testing.T) {
	for h := uint16(0); h < 0x7c00; h++ {
		low, high := halfValue(h), halfValue(h+1)
		if h == 0x7bff {
			high = 65536 // where the next one would be if it were not infinite
		}
		middle := float32((low + high) / 2)
		even := h + h&1
		for _, c := range []struct {
			v    float32
			want uint16
		}{
			{middle, even},
			{math.Nextafter32(middle, 0), h},
			{math.Nextafter32(middle, 1e9), h + 1},
		} {
			if got := F32ToF16(c.v); got != c.want {
				t.Fatalf("%v rounds to %#04x, want %#04x", c.v, got, c.want)
			}
			if got := F32ToF16(-c.v); got != c.want|0x8000 {
				t.Fatalf("%v rounds to %#04x, want %#04x", -c.v, got, c.want|0x8000)
			}
		}
	}
}

func TestEveryBF16(t *testing.T) {
	src := make([]uint16, 1<<16)
	for i := range src {
		src[i] = uint16(i)
	}
	values, back := make([]float32, 1<<16), make([]uint16, 1<<16)
	DecodeBF16(values, src)
	EncodeBF16(back, values)
	for i, v := range values {
		want := uint16(i)
		if math.Float32bits(v) != uint32(i)<<16 || math.Float32bits(BF16ToF32(want)) != uint32(i)<<16 {
			t.Fatalf("%#04x became %#08x", i, math.Float32bits(v))
		}
		if v != v {
			want |= 0x0040 // comes back quiet
		}
		if back[i] != want || F32ToBF16(v) != want {
			t.Fatalf("%#04x comes back as %#04x", i, back[i])
		}
		if i&0x7f80 == 0x7f80 {
			continue
		}
		bits := uint32(i) << 16
		for _, c := range []struct {
			bits uint32
			want uint16
		}{{bits | 0x7fff, uint16(i)}, {bits | 0x8000, uint16(i + i&1)}, {bits | 0x8001, uint16(i + 1)}} {
			if got := F32ToBF16(math.Float32frombits(c.bits)); got != c.want {
				t.Fatalf("%#08x rounds to %#04x, want %#04x", c.bits, got, c.want)
			}
		}
	}
}

// The .enc files for F16 and BF16 hold random bits, neighbours of halves and
// special values with what numpy and the gguf package made of them.
func TestRoundingEqualsReference(t *testing.T) {
	for name, convert := range map[string]func(float32) uint16{"F16": F32ToF16, "BF16": F32ToBF16} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".enc"))
		if err != nil {
			t.Fatal(err)
		}
		n := len(data) / 6
		src, want := floatsOf(data[:4*n]), data[4*n:]
		for i, v := range src {
			got, want := convert(v), binary.LittleEndian.Uint16(want[2*i:])
			if got != want && v == v {
				t.Errorf("%s: %v (%#08x) becomes %#04x, want %#04x", name, v, math.Float32bits(v), got, want)
			}
			if v != v && (name == "F16" && !math.IsNaN(halfValue(got)) || name == "BF16" && BF16ToF32(got) == BF16ToF32(got)) {
				t.Errorf("%s: NaN %#08x becomes %#04x", name, math.Float32bits(v), got)
			}
		}
	}
}

func BenchmarkConvert(b *testing.B) {
	const n = 4096
	r := rand.New(rand.NewPCG(9, 10))
	values, halves := make([]float32, n), make([]uint16, n)
	for i := range values {
		values[i] = float32(r.NormFloat64() * 0.02)
	}
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"EncodeBF16", func() { EncodeBF16(halves, values) }},
		{"DecodeBF16", func() { DecodeBF16(values, halves) }},
		{"EncodeF16", func() { EncodeF16(halves, values) }},
		{"DecodeF16", func() { DecodeF16(values, halves) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(2 * n)
			for b.Loop() {
				c.do()
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gvalues/s")
		})
	}
}
