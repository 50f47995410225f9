package kernels

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/minfer/minfer/internal/quant"
)

// integerFormats are those whose products take quantised activations.
var integerFormats = formatNames[3:]

func mustPack(t testing.TB, w *Weight) *Packed {
	t.Helper()
	n, err := PackedSize(w.Format, w.In, w.Out)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte{0xa5}, n+2)[1:] // at an odd address
	p, err := NewPacked(w.Format, w.In, w.Out, data)
	if err != nil {
		t.Fatal(err)
	}
	for b := range p.Blocks() {
		Pack(data, w, b, b+1, Tiers()[b%len(Tiers())])
	}
	if data[n] != 0xa5 {
		t.Fatalf("%s, %d by %d: packed beyond the end", w.Format.Name, w.Out, w.In)
	}
	return p
}

func TestPackedRows(t *testing.T) {
	var s Scratch
	for _, name := range integerFormats {
		for _, rows := range []int{1, 15, 16, 17, 40} {
			f, _ := quant.Lookup(name)
			w := randWeight(t, name, 3*f.Block, rows, uint64(rows))
			p := mustPack(t, w)
			got, want := make([]float32, w.In), make([]float32, w.In)
			var a, b quant.IntRow
			for r := range rows {
				w.unpackRow(&a, r)
				p.unpackRow(&b, r)
				if !bytes.Equal(asBytes(a.Q), asBytes(b.Q)) {
					t.Fatalf("%s: row %d is %v, want %v", name, r, b.Q, a.Q)
				}
				what := fmt.Sprintf("%s, row %d of %d", name, r, rows)
				sameBits(t, what+", scales", b.Scale, a.Scale)
				sameBits(t, what+", minima", b.Min, a.Min)
				w.GetRow(want, r)
				p.GetRow(got, r, &s)
				sameBits(t, what, got, want)
			}
		}
	}
}

func asBytes(q []int8) []byte {
	b := make([]byte, len(q))
	for i, v := range q {
		b[i] = byte(v)
	}
	return b
}

func TestPackedSizeIsNearTheFile(t *testing.T) {
	for _, name := range integerFormats {
		f, _ := quant.Lookup(name)
		n, err := PackedSize(f, 4096, 64)
		file := 4096 / f.Block * f.Bytes * 64
		if err != nil || n < file || float64(n) > 1.04*float64(file) {
			t.Errorf("%s: %d bytes packed, %d in the file, %v", name, n, file, err)
		}
	}
}

func TestPackedSizeRefuses(t *testing.T) {
	const maxInt = int(^uint(0) >> 1)
	for _, c := range []struct {
		name    string
		in, out int
	}{{"F16", 0, 1}, {"F32", 4, -1}, {"BF16", maxInt / 16, 1}, {"Q4_0", 33, 1}, {"Q4_0", 0, 1}, {"Q4_0", 32, 0}, {"Q4_0", -32, 1}, {"Q4_K", 128, 1},
		{"Q8_0", 32, maxInt}, {"Q8_0", maxInt &^ 31, 1}, {"Q6_K", maxInt &^ 255, maxInt}} {
		f, _ := quant.Lookup(c.name)
		if n, err := PackedSize(f, c.in, c.out); err == nil {
			t.Errorf("%s, %d by %d: %d bytes", c.name, c.out, c.in, n)
		}
	}
	f, _ := quant.Lookup("Q4_0")
	if _, err := NewPacked(f, 32, 17, make([]byte, 575)); err == nil {
		t.Error("data that is too short was accepted")
	}
	if _, err := NewPacked(f, 32, 17, make([]byte, 576)); err != nil {
		t.Error(err)
	}
}

func TestTilesCoverABatch(t *testing.T) {
	for _, largest := range []int{4, 6, 8} {
		for tokens := 1; tokens < 70; tokens++ {
			for at := 0; at < tokens; {
				width := tileWidth(tokens-at, largest)
				for i := range width {
					if first, w := tileOf(tokens, at+i, largest); first != at || w != width {
						t.Fatalf("token %d of %d: tile %d of %d, want %d of %d", at+i, tokens, first, w, at, width)
					}
				}
				at += width
			}
		}
	}
}

// placed returns n guarded floats. The second of them begins a line of the cache if aligned, or else is the second of a line.
func placed(n int, aligned bool) []float32 {
	x := guarded(n + PackedRows)
	at := int(-(uintptr(unsafe.Pointer(&x[1])) / 4) % PackedRows)
	if !aligned {
		at = (at + 1) % PackedRows
	}
	return x[at:][:n]
}

// comparePacked multiplies with w packed and not, for every tier, and with guards around results.
// Half of the calls add a bias; the plain product of packed weights joins in now and then.
func comparePacked(t *testing.T, what string, w *Weight, x []float32, tokens int) {
	t.Helper()
	var s Scratch
	plain := QActs{}
	plain.Quantize(x, w.In, tokens, w.In)
	stride := w.Out + 3
	p := mustPack(t, w)
	var bias []float32
	if (w.Out+tokens)%2 == 0 {
		bias = randFloats(w.Out, 3)
	}
	want := guarded(tokens*stride + 2)
	MatMulInt(want[1:], stride, w, 0, w.Out, bias, &plain, &s)
	for _, tier := range Tiers() {
		if tier == Generic && tokens%8 != 3 {
			continue
		}
		acts := QActs{Tier: tier}
		acts.Quantize(x, w.In, tokens, w.In)
		shape := fmt.Sprintf("%s, %v, %s, %d by %d, %d tokens", what, tier, w.Format.Name, w.Out, w.In, tokens)
		for _, aligned := range []bool{true, false} { // of one token stored in two ways
			out := placed(tokens*stride+2, aligned)
			for b := 0; b < p.Blocks(); {
				n := min(1+b, p.Blocks()-b)
				MatMulPacked(out[1:], stride, p, b, b+n, bias, &acts, &s)
				b += n
			}
			sameBits(t, fmt.Sprint(shape, ", aligned: ", aligned), out, want)
			if tokens > 1 {
				break
			}
		}
		out := guarded(tokens*stride + 2)
		for r := 0; r < w.Out; r += 2 * PackedRows {
			MatMulInt(out[1:], stride, w, r, min(r+2*PackedRows, w.Out), bias, &acts, &s)
		}
		sameBits(t, shape+", not packed before", out, want)
	}
}

// expandTokens are so many tokens that every tier expands weights for them.
const expandTokens = 25

func TestExpandTokens(t *testing.T) {
	for _, tier := range Tiers() {
		if k := kernelsOf(tier); k != nil && k.vecTokens >= expandTokens {
			t.Errorf("%v expands weights for more than %d tokens, want for %d", tier, k.vecTokens, expandTokens)
		}
	}
}

func TestMatMulPacked(t *testing.T) {
	for _, name := range integerFormats {
		f, _ := quant.Lookup(name)
		rows := 0
		for _, blocks := range []int{1, 2, 3, 5, 7, 8, 9} {
			for tokens := 1; tokens <= 34; tokens++ { // whole tiles of 6 and of 16, and so many more
				rows = rows%40 + 1
				if f.Block == 256 && (rows+blocks)%5 > 0 || 20 < tokens && tokens < 30 && tokens != expandTokens {
					continue // the definition is slow
				}
				w := randWeight(t, name, blocks*f.Block, rows, uint64(blocks))
				comparePacked(t, "random", w, randFloats(tokens*w.In, 4), tokens)
			}
		}
		w := randWeight(t, name, 2*f.Block, 33, 5)
		comparePacked(t, "many tokens", w, randFloats(39*w.In, 4), 39)
		// Several chunks of tokens and of row blocks, and several parts of rows.
		if in := map[string]int{"Q4_0": 4096, "Q5_1": 1120, "Q8_0": 1056, "Q2_K": 1280, "Q4_K": 1280, "Q6_K": 2304}[name]; in > 0 {
			w := randWeight(t, name, in, 41, 5)
			comparePacked(t, "chunks", w, randFloats(117*w.In, 4), 117)
		}
		for r := 1 + len(name)%3; r <= 40; r += 3 {
			w := randWeight(t, name, f.Block, r, 5)
			comparePacked(t, "rows", w, randFloats(expandTokens*w.In, 4), expandTokens)
		}
	}
}

// record returns a token's block of a panel: quants, D, the sum of 32, and the sums of 16,
// each sum with the negative integer that belongs to it.
func (a *QActs) record(t, b int) (q []byte, f [4]float32, n [3]int32) {
	first, width := a.tile(kernelsOf(a.Tier), t)
	r, r16 := a.panel(first)[b*width*panelBlock:], a.panel16(first)[b*width*panelSums16:]
	lane := t - first
	at := func(r []byte, i int) uint32 { return binary.LittleEndian.Uint32(r[4*(i*width+lane):]) }
	f = [4]float32{math.Float32frombits(at(r, 8)), math.Float32frombits(at(r, 10)), math.Float32frombits(at(r16, 2)), math.Float32frombits(at(r16, 3))}
	n = [3]int32{int32(at(r, 9)), int32(at(r16, 0)), int32(at(r16, 1))}
	return r[lane*BlockSize:][:BlockSize], f, n
}

// TestQuantizePanel compares each tier with the definition, in and out of the ordinary.
func TestQuantizePanel(t *testing.T) {
	const blocks = 40
	for _, tier := range Tiers() {
		if kernelsOf(tier) == nil {
			continue
		}
		for tokens := 1; tokens <= 55; tokens++ {
			x := randFloats(tokens*blocks*BlockSize, uint64(tokens))
			for i := range x {
				x[i] *= float32(math.Ldexp(1, i/BlockSize%blocks*7-140)) // from subnormal to infinite
				if i%1000 == 7 {
					x[i] = float32(math.Copysign(0, -1))
				}
			}
			for i := range BlockSize {
				x[20*BlockSize+i] = 0
				x[21*BlockSize+i] = float32(i%5) - 2.5
				x[22*BlockSize+i] = 0x1p-126 * 130
				x[23*BlockSize+i] = -math.MaxFloat32
				x[24*BlockSize+i] = 0x1p-126 * 129.9
			}
			x[25*BlockSize+3] = float32(math.NaN())
			x[26*BlockSize+31] = float32(math.Inf(-1))
			x[27*BlockSize] = math.MaxFloat32
			want, got := QActs{}, QActs{Tier: tier}
			want.Quantize(x, blocks*BlockSize, tokens, blocks*BlockSize)
			got.Reset(tokens, blocks*BlockSize)
			for _, run := range [][2]int{{7, 29}, {0, 1}, {29, blocks}, {1, 7}} { // in any order, and as many as one likes
				cut := tokens / 3 // within a tile, if there is one
				for _, r := range [][2]int{{cut, tokens}, {0, cut}} {
					if r[0] < r[1] {
						got.QuantizeRows(r[0], r[1], run[0], x[(r[0]*blocks+run[0])*BlockSize:], blocks*BlockSize, (run[1]-run[0])*BlockSize)
					}
				}
			}
			for tok := range tokens {
				for b := range blocks {
					i := tok*blocks + b
					q, f, n := got.record(tok, b)
					lo, hi := sum16((*[16]int8)(want.Q[32*i:])), sum16((*[16]int8)(want.Q[32*i+16:]))
					what := fmt.Sprintf("%v, block %d of token %d of %d", tier, b, tok, tokens)
					if !bytes.Equal(q, asBytes(want.Q[32*i:32*i+32])) || n != [3]int32{-128 * (lo + hi), -128 * lo, -128 * hi} {
						t.Fatalf("%s: quants %v, sums %v, want %v, %d + %d", what, q, n, want.Q[32*i:32*i+32], lo, hi)
					}
					sameBits(t, what, f[:], []float32{want.D[i], want.S32[i], want.S16[2*i], want.S16[2*i+1]})
				}
			}
		}
	}
}

// TestMatMulPackedExtremes: bytes that are all the same bring quants and sums to their limits,
// in which a kernel that saturates would show.
func TestMatMulPackedExtremes(t *testing.T) {
	for _, name := range integerFormats {
		f, _ := quant.Lookup(name)
		for _, fill := range []byte{0x00, 0x7f, 0x80, 0x88, 0xf0, 0xff} {
			w := randWeight(t, name, 2*f.Block, 17, 1)
			for b := 0; b < len(w.Data); b += f.Bytes {
				block := w.Data[b:][:f.Bytes]
				scales := bytes.Clone(block)
				for i := range block {
					block[i] = fill
				}
				for _, at := range halves[name] {
					copy(block[at:], scales[at:at+2])
				}
				if name == "MXFP4" {
					block[0] = scales[0]
				}
			}
			const tokens = expandTokens
			x := make([]float32, tokens*w.In)
			for i := range x {
				x[i] = 1
				if i/w.In%2 == 1 || i/w.In == 4 && i&1 == 1 {
					x[i] = -1
				}
			}
			comparePacked(t, fmt.Sprintf("all %#x", fill), w, x, tokens)
			comparePacked(t, fmt.Sprintf("all %#x", fill), w, x[w.In:], 7)
			for _, token := range []int{0, 1, 4} {
				comparePacked(t, fmt.Sprintf("all %#x, token %d", fill, token), w, x[token*w.In:], 1)
			}
		}
	}
}

// TestMatMulPackedSpecials: infinite and NaN scales, subnormal ones, and damaged activations.
func TestMatMulPackedSpecials(t *testing.T) {
	for _, name := range integerFormats {
		f, _ := quant.Lookup(name)
		w := randWeight(t, name, 3*f.Block, 16, 1)
		for i, at := range halves[name] {
			for r, v := range []uint16{0x7c00, 0xfc00, 0x7e01, 1, 0x8001, 0x03ff, 0x7bff, 0x8000, 0} {
				binary.LittleEndian.PutUint16(w.Row((r + 5*i) % 16)[f.Bytes+at:], v)
			}
		}
		if name == "MXFP4" {
			for r, v := range []byte{0, 1, 2, 3, 254, 255} {
				w.Row(r)[f.Bytes] = v
			}
		}
		x := randFloats(expandTokens*w.In, 4)
		for i := range w.In {
			x[w.In+i] *= 0x1p-100
			x[2*w.In+i] *= 0x1p100
		}
		x[3*w.In+7] = float32(math.NaN())
		x[4*w.In+40] = float32(math.Inf(1))
		comparePacked(t, "specials", w, x, expandTokens)
		comparePacked(t, "specials", w, x, 6)
		comparePacked(t, "specials", w, x[w.In:], 4)
		for token := range 5 {
			comparePacked(t, fmt.Sprint("specials, token ", token), w, x[token*w.In:], 1)
		}
	}
}

func TestMatMulPackedAllocatesNothing(t *testing.T) {
	rows := randWeight(t, "Q4_K", 256, 40, 1)
	w := mustPack(t, rows)
	x, out := randFloats(expandTokens*256, 1), make([]float32, expandTokens*40)
	for _, tier := range Tiers() {
		acts, s := QActs{Tier: tier}, Scratch{}
		if n := testing.AllocsPerRun(10, func() {
			for _, tokens := range []int{expandTokens, 3, 1} {
				acts.Quantize(x, 256, tokens, 256)
				MatMulPacked(out, 40, w, 0, 3, nil, &acts, &s)
				MatMulInt(out, 40, rows, 0, 40, nil, &acts, &s)
				w.GetRow(out, 3, &s)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", tier, n)
		}
	}
}

func TestMatMulPackedRefusesOtherShapes(t *testing.T) {
	w := mustPack(t, randWeight(t, "Q4_0", 64, 16, 1))
	for _, tier := range Tiers() {
		acts, s, out := QActs{Tier: tier}, Scratch{}, guarded(16)
		acts.Quantize(make([]float32, 32), 32, 1, 32)
		mustPanic(t, fmt.Sprint(tier, ": rows of 64 values times a token of 32"), func() { MatMulPacked(out, 16, w, 0, 1, nil, &acts, &s) })
		acts.Quantize(make([]float32, 64), 64, 1, 64)
		MatMulPacked(out, 16, w, 1, 7, nil, &acts, &s) // no such blocks
		sameBits(t, tier.String(), out, guarded(16))
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
