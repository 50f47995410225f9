package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/minfer/minfer/internal/quant"
)

var floatNames = formatNames[:3]

// TestPackedFloatEqualsRows compares every tier with the definition over shapes: depths around each
// step of the loops, ragged blocks of rows, full and ragged tiles of tokens.
func TestPackedFloatEqualsRows(t *testing.T) {
	type shape struct{ in, out, tokens int }
	var shapes []shape
	for in := 1; in <= 70; in++ {
		shapes = append(shapes, shape{in, 1 + in*7%50, 1 + in*11%40})
	}
	for out := 1; out <= 50; out++ {
		shapes = append(shapes, shape{1 + out*13%37, out, 1 + out*5%8})
	}
	for tokens := 1; tokens <= 40; tokens++ {
		shapes = append(shapes, shape{33, 1 + tokens*31%130, tokens})
	}
	for _, in := range []int{128, 129, 515} {
		shapes = append(shapes, shape{in, 150, 1}, shape{in, 130, 5}, shape{in, 85, 13})
	}
	shapes = append(shapes, shape{1031, 64, 1}, shape{panelDepth + 3, 147, 7}, shape{24, 147, panelTokens + 5})
	for i, c := range shapes {
		name := floatNames[i%3]
		if c.in > 100 {
			for _, name := range floatNames {
				checkPackedFloat(t, name, c.in, c.out, c.tokens)
			}
			continue
		}
		checkPackedFloat(t, name, c.in, c.out, c.tokens)
	}
}

func checkPackedFloat(t *testing.T, name string, in, out, tokens int) {
	t.Helper()
	w := randWeight(t, name, in, out, uint64(in))
	packed := mustPack(t, w)
	bias := randFloats(out, 3)
	xStride, outStride := in+3, out+5
	x := randFloats(tokens*xStride, 4)
	for withBias := range 2 {
		b := bias
		if withBias == 0 {
			b = nil
		}
		want := guarded(tokens * outStride)
		MatMulFloat(want, outStride, w, 0, out, b, x, xStride, tokens, new(Scratch))
		for _, tier := range Tiers() {
			s := &Scratch{Tier: tier}
			blocks := (out + PackedRows - 1) / PackedRows
			for _, aligned := range []bool{true, false} { // of one token stored in two ways
				got := placed(1+tokens*outStride, aligned)[1:]
				MatMulPackedFloat(got, outStride, packed, 0, blocks, b, x, xStride, tokens, s)
				sameBits(t, fmt.Sprintf("%s %v %dx%d, %d tokens, aligned: %v", tier, name, out, in, tokens, aligned), got, want)
				if tokens > 1 {
					break
				}
			}
			// The same in parts: rows by three blocks, tokens by four.
			got := guarded(tokens * outStride)
			for b0 := 0; b0 < blocks; b0 += 3 {
				for t0 := 0; t0 < tokens; t0 += 4 {
					MatMulPackedFloat(got[t0*outStride:], outStride, packed, b0, min(b0+3, blocks), b, x[t0*xStride:], xStride, min(4, tokens-t0), s)
				}
			}
			sameBits(t, fmt.Sprintf("%s %v %dx%d, %d tokens in parts", tier, name, out, in, tokens), got, want)
			got = guarded(tokens * outStride)
			for r := 0; r < out; r += 5 * PackedRows {
				MatMulFloat(got, outStride, w, r, min(r+5*PackedRows, out), b, x, xStride, tokens, s)
			}
			sameBits(t, fmt.Sprintf("%s %v %dx%d, %d tokens, not packed before", tier, name, out, in, tokens), got, want)
		}
	}
}

// TestPackedFloatSpecials: subnormals stay what they are, and an infinity or NaN
// reaches the outputs of its row and token only.
func TestPackedFloatSpecials(t *testing.T) {
	const in, out, tokens = 37, 35, 9
	for _, name := range floatNames {
		w := randWeight(t, name, in, out, 5)
		put := func(r, k int, v float32) {
			at := w.Row(r)[k*w.Format.Bytes:]
			switch name {
			case "F32":
				binary.LittleEndian.PutUint32(at, math.Float32bits(v))
			case "F16":
				binary.LittleEndian.PutUint16(at, quant.F32ToF16(v))
			case "BF16":
				binary.LittleEndian.PutUint16(at, quant.F32ToBF16(v))
			}
		}
		put(3, 5, float32(math.Inf(1)))
		put(17, 6, float32(math.NaN()))
		put(34, 7, float32(math.Inf(-1)))
		for k := range in {
			put(20, k, 0x1p-20*float32(k-18)) // subnormal in F16
			put(21, k, 0x1p-130)              // subnormal in F32 and BF16
			put(22, k, float32(math.Copysign(0, -1)))
			put(23, k, -0x1p-14) // with tokens of 2^-140: sums that round to -0 and subnormals
		}
		x := randFloats(tokens*in, 6)
		for k := range in {
			x[4*in+k] = 0x1p-140
		}
		x[7*in+8] = float32(math.NaN())
		packed := mustPack(t, w)
		for _, n := range []int{1, 6, tokens} {
			from := (tokens - n) * in
			want := make([]float32, n*out)
			MatMulFloat(want, out, w, 0, out, nil, x[from:], in, n, new(Scratch))
			for _, tier := range Tiers() {
				got := guarded(n * out)
				MatMulPackedFloat(got, out, packed, 0, 3, nil, x[from:], in, n, &Scratch{Tier: tier})
				sameBits(t, fmt.Sprintf("%s %v %d tokens", name, tier, n), got, want)
			}
		}
	}
}

func TestPackedFloatRowsAreKept(t *testing.T) {
	var s Scratch
	for _, name := range floatNames {
		for _, rows := range []int{1, 15, 16, 17, 40} {
			w := randWeight(t, name, 37, rows, uint64(rows))
			p := mustPack(t, w)
			got, want := make([]float32, w.In), make([]float32, w.In)
			for r := range rows {
				w.GetRow(want, r)
				p.GetRow(got, r, &s)
				sameBits(t, fmt.Sprintf("%s, row %d of %d", name, r, rows), got, want)
			}
		}
	}
}

func TestPackedFloatAllocatesNothing(t *testing.T) {
	w := mustPack(t, randWeight(t, "F16", 200, 40, 1))
	x, out := randFloats(9*200, 1), make([]float32, 9*40)
	for _, tier := range Tiers() {
		s := Scratch{Tier: tier}
		if n := testing.AllocsPerRun(5, func() {
			for _, tokens := range []int{9, 6, 1} {
				MatMulPackedFloat(out, 40, w, 0, 3, nil, x, 200, tokens, &s)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", tier, n)
		}
	}
}

// TestNextPanel: the shares of calls are the weights that follow, none twice.
func TestNextPanel(t *testing.T) {
	const in, blocks = 48, 11
	w := &Packed{In: in, Format: mustPack(t, randWeight(t, "F16", in, 16, 1)).Format, Data: make([]byte, blocks*in*PackedRows*2)}
	for _, c := range []struct{ b0, b1, k, n, calls, bytes int }{
		{0, 4, 0, in, 10, 4 * in * 32},   // whole rows
		{4, 8, 0, in, 1, 3 * in * 32},    // of which there are fewer
		{8, 11, 0, in, 5, 0},             // or none
		{0, 3, 16, 32, 30, 3 * 32 * 32},  // parts of rows
		{8, 10, 16, 32, 30, 32 * 32},     // of fewer blocks
		{0, 3, 0, 16, 2, 2 * 16 * 32},    // more blocks than calls
		{0, 8, 0, in, 1000, 3 * in * 32}, // more calls than lines
	} {
		p := floatProduct{w: w}
		next := p.after(c.b0, c.b1, c.k, c.n, c.calls)
		seen := make([]bool, len(w.Data))
		taken := 0
		for range c.calls {
			from, lines := next.take()
			if from == nil {
				continue
			}
			at := int(uintptr(unsafe.Pointer(from)) - uintptr(unsafe.Pointer(&w.Data[0])))
			for i := at; i < min(at+64*lines, len(w.Data)); i++ {
				if row := i % (in * 32); row < c.k*32 || row >= (c.k+c.n)*32 || i < c.b1*in*32 || seen[i] {
					t.Fatalf("%+v: byte %d is not to be fetched, or twice", c, i)
				}
				seen[i] = true
				taken++
			}
		}
		if taken != c.bytes {
			t.Errorf("%+v: %d bytes", c, taken)
		}
	}
}
