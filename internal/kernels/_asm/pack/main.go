// Command pack generates the assembly that brings weights into the order of vector kernels:
// rows of words into lines of lanes, and then what is done to the bits of lines.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lineSize is the size of a line, two vectors.
const lineSize = 64

func main() {
	ConstraintExpr("amd64,!purego")
	lines()
	halves()
	splitNibbles()
	splitPairs()
	splitBits()
	joinTriples()
	gatherBits()
	splitWords()
	unzip()
	Generate()
}

func begin(name, params, doc string) {
	TEXT(name, NOSPLIT, "func("+params+")")
	Doc(name + " " + doc)
	Pragma("noescape")
}

func end() {
	VZEROUPPER()
	RET()
}

func param(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// again goes back to a label n times.
func again(n reg.GPVirtual, label string) {
	DECQ(n)
	JNZ(LabelRef(label))
}

// rows address 16 rows, four at a time.
type rows struct{ base, stride, stride3 reg.GPVirtual }

func newRows(base, stride reg.GPVirtual) rows {
	r := rows{base, stride, GP64()}
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r.stride3)
	return r
}

// at is row i of four.
func (r rows) at(i int) Mem {
	switch i {
	case 0:
		return Mem{Base: r.base}
	case 3:
		return Mem{Base: r.base, Index: r.stride3, Scale: 1}
	}
	return Mem{Base: r.base, Index: r.stride, Scale: uint8(i)}
}

// fourOn is the four rows after these.
func (r rows) fourOn() rows {
	next := rows{GP64(), r.stride, r.stride3}
	LEAQ(Mem{Base: r.base, Index: r.stride, Scale: 4}, next.base)
	return next
}

// lines transposes groups of four words of 16 rows. Half of a line is a vector: of two times four rows the
// words of 16 bytes become two times four lanes.
func lines() {
	begin("linesAVX2", "dst, src *byte, stride, groups int, flip uint32",
		"makes 4*groups lines, each of a word of 16 rows, which lie stride bytes apart, and flips the bits of flip in each word.")
	dst, src, groups := param("dst"), param("src"), param("groups")
	first := newRows(src, param("stride"))
	second := rows{GP64(), first.stride, first.stride3}
	LEAQ(Mem{Base: src, Index: first.stride, Scale: 8}, second.base)
	flip := YMM()
	VMOVD(Load(Param("flip"), GP32()), flip.AsX())
	VPBROADCASTD(flip.AsX(), flip)
	Label("loop")
	for half, lower := range []rows{first, second} {
		upper := lower.fourOn()
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = YMM()
			VMOVDQU(lower.at(i), v[i].AsX())
			VINSERTI128(Imm(1), upper.at(i), v[i], v[i])
		}
		for i, r := range transpose(v, YMM) {
			VPXOR(flip, r, r)
			VMOVDQU(r, Mem{Base: dst, Disp: lineSize*i + 32*half})
		}
	}
	ADDQ(Imm(16), first.base)
	ADDQ(Imm(16), second.base)
	ADDQ(U32(4*lineSize), dst)
	again(groups, "loop")
	end()
}

// transpose transposes the four by four words in each 16 bytes of the vectors.
func transpose(v [4]reg.VecVirtual, register func() reg.VecVirtual) (out [4]reg.VecVirtual) {
	var t [4]reg.VecVirtual
	for i := range t {
		t[i], out[i] = register(), register()
	}
	VPUNPCKLDQ(v[1], v[0], t[0])
	VPUNPCKHDQ(v[1], v[0], t[1])
	VPUNPCKLDQ(v[3], v[2], t[2])
	VPUNPCKHDQ(v[3], v[2], t[3])
	VPUNPCKLQDQ(t[2], t[0], out[0])
	VPUNPCKHQDQ(t[2], t[0], out[1])
	VPUNPCKLQDQ(t[3], t[1], out[2])
	VPUNPCKHQDQ(t[3], t[1], out[3])
	return out
}

func halves() {
	begin("halvesAVX2", "dst, src *byte, stride int, flip uint16",
		"puts two bytes of each of 16 rows side by side, and flips the bits of flip in them.")
	dst := param("dst")
	r := newRows(param("src"), param("stride"))
	flip := XMM()
	VMOVD(Load(Param("flip"), GP16()).(reg.GPVirtual).As32(), flip)
	VPBROADCASTW(flip, flip)
	for part := range 2 {
		v := XMM()
		VPXOR(v, v, v)
		for quad := range 2 {
			for i := range 4 {
				VPINSRW(Imm(uint64(4*quad+i)), r.at(i), v, v)
			}
			r = r.fourOn()
		}
		VPXOR(flip, v, v)
		VMOVDQU(v, Mem{Base: dst, Disp: 16 * part})
	}
	RET()
}

// mask is a vector of equal bytes.
func mask(b uint8) reg.VecVirtual {
	name := fmt.Sprintf("pack%02x", b)
	m, ok := masks[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		DATA(0, U32(uint32(b)*0x01010101))
		masks[name] = m
	}
	v := YMM()
	VPBROADCASTD(m, v)
	return v
}

var masks = map[string]Mem{}

func load(m Mem) reg.VecVirtual {
	v := YMM()
	VMOVDQU(m, v)
	return v
}

func splitNibbles() {
	begin("splitNibblesAVX2", "low, high, x *byte", "makes the 4 lines of low and of high nibbles from 8 lines of words.")
	low, high, x := param("low"), param("high"), param("x")
	nibble := mask(15)
	for i := 0; i < 4*lineSize; i += 32 {
		a, b := load(Mem{Base: x, Disp: i}), load(Mem{Base: x, Disp: 4*lineSize + i})
		l, h := YMM(), YMM()
		VPAND(b, nibble, l)
		VPSLLW(Imm(4), l, l)
		VPSRLW(Imm(4), a, h)
		VPAND(a, nibble, a)
		VPOR(a, l, l)
		VPAND(h, nibble, h)
		VPANDN(b, nibble, b)
		VPOR(b, h, h)
		VMOVDQU(l, Mem{Base: low, Disp: i})
		VMOVDQU(h, Mem{Base: high, Disp: i})
	}
	end()
}

// exchange swaps, in each byte, the bits of a that lie n above mask for those of b under mask.
func exchange(a, b reg.VecVirtual, n uint64, mask reg.VecVirtual) {
	t := YMM()
	VPSRLW(Imm(n), a, t)
	VPXOR(b, t, t)
	VPAND(mask, t, t)
	VPXOR(t, b, b)
	VPSLLW(Imm(n), t, t)
	VPXOR(t, a, a)
}

func splitPairs() {
	begin("splitPairsAVX2", "dst *byte, step int, x *byte, apart int", "makes lines, step bytes apart, of the bit pairs of 4 lines of words, which lie apart bytes apart.")
	dst, step := param("dst"), param("step")
	x := newRows(param("x"), param("apart"))
	m4, m2 := mask(0x0f), mask(0x33)
	for i := 0; i < lineSize; i += 32 {
		var w [4]reg.VecVirtual
		for g := range w {
			w[g] = load(x.at(g).Offset(i))
		}
		exchange(w[0], w[2], 4, m4)
		exchange(w[1], w[3], 4, m4)
		exchange(w[0], w[1], 2, m2)
		exchange(w[2], w[3], 2, m2)
		storeSteps(w[:], dst, step, i)
	}
	end()
}

func splitBits() {
	begin("splitBitsAVX2", "dst *byte, step int, x *byte", "makes lines, step bytes apart, of the bits of 8 lines of words.")
	dst, step, x := param("dst"), param("step"), param("x")
	m4, m2, m1 := mask(0x0f), mask(0x33), mask(0x55)
	for i := 0; i < lineSize; i += 32 {
		var w [8]reg.VecVirtual
		for g := range w {
			w[g] = load(Mem{Base: x, Disp: g*lineSize + i})
		}
		for g := range 4 {
			exchange(w[g], w[g+4], 4, m4)
		}
		for _, g := range []int{0, 1, 4, 5} {
			exchange(w[g], w[g+2], 2, m2)
		}
		for g := 0; g < 8; g += 2 {
			exchange(w[g], w[g+1], 1, m1)
		}
		storeSteps(w[:], dst, step, i)
	}
	end()
}

// storeSteps stores vectors step bytes apart.
func storeSteps(w []reg.VecVirtual, dst, step reg.GPVirtual, disp int) {
	at := GP64()
	MOVQ(dst, at)
	for _, v := range w {
		VMOVDQU(v, Mem{Base: at, Disp: disp})
		ADDQ(step, at)
	}
}

func joinTriples() {
	begin("joinTriplesAVX2", "dst *byte, step int",
		"makes, in their place, triples of the lines of 8 blocks, which lie step bytes apart: pairs of words 0, 2, 4 and 6, pairs of the others, and bits.")
	dst, step, n := param("dst"), param("step"), GP64()
	m33, m44, m88, mbb, mcc := mask(0x33), mask(0x44), mask(0x88), mask(0xbb), mask(0xcc)
	MOVQ(U32(8), n)
	Label("loop")
	for i := 0; i < lineSize; i += 32 {
		at := func(line int) Mem { return Mem{Base: dst, Disp: line*lineSize + i} }
		even, odd, h := load(at(0)), load(at(1)), load(at(2))
		t, u, v := YMM(), YMM(), YMM()
		VPAND(m33, even, t)
		VPSLLW(Imm(2), h, u)
		VPAND(m44, u, u)
		VPSLLW(Imm(1), odd, v)
		VPAND(m88, v, v)
		VPOR(u, t, t)
		VPOR(v, t, t)
		VMOVDQU(t, at(0))
		VPAND(mbb, odd, t)
		VPSLLW(Imm(1), h, u)
		VPAND(m44, u, u)
		VPOR(u, t, t)
		VMOVDQU(t, at(1))
		VPSRLW(Imm(2), even, t)
		VPAND(m33, t, t)
		VPAND(mcc, h, u)
		VPOR(u, t, t)
		VMOVDQU(t, at(2))
	}
	ADDQ(step, dst)
	again(n, "loop")
	end()
}

func gatherBits() {
	begin("gatherBitsAVX2", "dst, line *byte", "makes bit i of byte j of each word what was bit 4i+j.")
	dst, line := param("dst"), param("line")
	for i := 0; i < lineSize; i += 32 {
		w := load(Mem{Base: line, Disp: i})
		for _, digit := range []struct {
			n    uint64
			mask uint32
		}{{16 - 4, 0xf0f0}, {16 - 1, 0xaaaa}, {16 - 8, 0xff00}, {16 - 2, 0xcccc}} {
			t := YMM()
			VPSRLD(Imm(digit.n), w, t)
			VPXOR(w, t, t)
			m := YMM()
			VPBROADCASTD(word(digit.mask), m)
			VPAND(m, t, t)
			VPXOR(t, w, w)
			VPSLLD(Imm(digit.n), t, t)
			VPXOR(t, w, w)
		}
		VMOVDQU(w, Mem{Base: dst, Disp: i})
	}
	end()
}

func word(v uint32) Mem {
	name := fmt.Sprintf("packWord%x", v)
	m, ok := masks[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		DATA(0, U32(v))
		masks[name] = m
	}
	return m
}

// splitWords brings the four bytes of each word of a line together: first those of four words in
// 16 bytes, then those of all four.
func splitWords() {
	order := GLOBL("packBytes", RODATA|NOPTR)
	for i := range 16 {
		DATA(i, U8(uint8(i%4*4+i/4)))
	}
	begin("splitWordsAVX2", "a, b, c, d, line *byte", "puts byte 0 of each word of a line side by side at a, byte 1 at b, and so on.")
	line := param("line")
	o := XMM()
	VMOVDQU(order, o)
	var v [4]reg.VecVirtual
	for i := range v {
		v[i] = XMM()
		VMOVDQU(Mem{Base: line, Disp: 16 * i}, v[i])
		VPSHUFB(o, v[i], v[i])
	}
	out := transpose(v, XMM)
	for i, name := range []string{"a", "b", "c", "d"} {
		VMOVDQU(out[i], Mem{Base: param(name)})
	}
	RET()
}

func unzip() {
	begin("unzipAVX2", "dst, x *byte, lines int", "puts, of each line, the low halves of the words first and the high ones after them.")
	dst, x, n := param("dst"), param("x"), param("lines")
	Label("loop")
	a, b := load(Mem{Base: x}), load(Mem{Base: x, Disp: 32})
	for i := range 2 {
		var v [2]reg.VecVirtual
		for j, w := range []reg.VecVirtual{a, b} {
			v[j] = YMM()
			if i == 0 {
				VPSLLD(Imm(16), w, v[j])
				VPSRLD(Imm(16), v[j], v[j])
			} else {
				VPSRLD(Imm(16), w, v[j])
			}
		}
		h := YMM()
		VPACKUSDW(v[1], v[0], h)
		VPERMQ(Imm(0b11011000), h, h)
		VMOVDQU(h, Mem{Base: dst, Disp: 32 * i})
	}
	ADDQ(Imm(lineSize), x)
	ADDQ(Imm(lineSize), dst)
	again(n, "loop")
	end()
}
