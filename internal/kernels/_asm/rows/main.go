// Command rows generates the assembly of what is computed row by row: norms, activations,
// softmax, rotation, and the conversion of elements.
//
// Every kernel takes a multiple of 16 elements and does to each what the plain definition
// does, in its order; what is left of a row is for the definition itself.
package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set with vectors of so many lanes.
type isa struct {
	name  string
	lanes int
}

var sets = []isa{{"AVX512", 16}, {"AVX2", 8}}

func main() {
	ConstraintExpr("amd64,!purego")
	for _, s := range sets {
		s.binary("add", func(a, b, c Op) { VADDPS(b, a, c) })
		s.binary("mul", func(a, b, c Op) { VMULPS(b, a, c) })
		s.scale()
		s.activation("silu", false, s.silu)
		s.activation("gelu", false, s.gelu)
		s.activation("swiglu", true, s.silu)
		s.maximum()
		s.expSum()
		s.squares()
		s.weigh()
		s.rotateHalves()
		s.finishHeads("rotateHeads", false)
		s.finishHeads("normRotateHeads", true)
		s.decodeF16()
		s.encodeF16()
		s.decodeBF16()
		s.encodeBF16()
	}
	rotatePairs()
	scatterF16()
	storeKeysF16()
	storeValuesF16()
	Generate()
}

func (s isa) vec() reg.VecVirtual {
	if s.lanes == 16 {
		return ZMM()
	}
	return YMM()
}

func (s isa) zero(v reg.VecVirtual) {
	if s.lanes == 16 {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
}

func load64(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// loop runs body for each of n elements, lanes at a time. Body gets how to address a
// parameter's elements of 2^shift bytes.
func (s isa) loop(n reg.GPVirtual, body func(at func(p reg.GPVirtual, size int) Mem)) {
	i := GP64()
	XORQ(i, i)
	Label("loop")
	body(func(p reg.GPVirtual, size int) Mem { return Mem{Base: p, Index: i, Scale: uint8(size)} })
	ADDQ(U8(uint8(s.lanes)), i)
	CMPQ(i, n)
	JL(LabelRef("loop"))
}

func finish() {
	VZEROUPPER()
	RET()
}

// constant is a vector of equal values: in AVX-512 a register, in AVX2, which has fewer,
// memory.
func (s isa) constant(name string, bits uint32) Op {
	full := fmt.Sprintf("rows%s%s", s.name, name)
	c, ok := constants[full]
	if !ok {
		c = GLOBL(full, RODATA|NOPTR)
		n := 1
		if s.lanes == 8 {
			n = 8
		}
		for i := range n {
			DATA(4*i, U32(bits))
		}
		constants[full] = c
	}
	if s.lanes == 8 {
		return c
	}
	r := ZMM()
	VBROADCASTSS(c, r)
	return r
}

func (s isa) float(name string, v float32) Op { return s.constant(name, math.Float32bits(v)) }

var constants = map[string]Mem{}

// expConstants are those of the definition, kernels.Exp.
type expConstants struct {
	lowest, highest, inf, log2e, magic, ln2Hi, ln2Lo, one Op
	c                                                     [7]Op
}

func (s isa) expConstants() (e expConstants) {
	e.lowest = s.float("Lowest", -0x1.5d589ep+06)
	e.highest = s.float("Highest", 0x1.62e42ep+06)
	e.inf = s.float("Inf", float32(math.Inf(1)))
	e.log2e = s.float("Log2E", 1.44269504088896340736)
	e.magic = s.float("Magic", 0x1.8p23)
	e.ln2Hi = s.float("Ln2Hi", 0x1.62e4p-1)
	e.ln2Lo = s.float("Ln2Lo", 1.42860682030941723212e-6)
	e.one = s.float("One", 1)
	for i, v := range []float32{0.499999934320667, 0.1666652039847194, 0.041668390795631845, 0.008368745161960674, 0.0013814539619211145} {
		e.c[2+i] = s.float(fmt.Sprint("C", 2+i), v)
	}
	return e
}

// exp returns kernels.Exp of x.
func (s isa) exp(x reg.VecVirtual, e *expConstants) reg.VecVirtual {
	t, n, r, p := s.vec(), s.vec(), s.vec(), s.vec()
	VMOVUPS(e.magic, t)
	VFMADD231PS(e.log2e, x, t)
	VSUBPS(e.magic, t, n)
	VMOVAPS(x, r)
	VFNMADD231PS(e.ln2Hi, n, r)
	VFNMADD231PS(e.ln2Lo, n, r)
	VMOVUPS(e.c[6], p)
	for _, c := range []Op{e.c[5], e.c[4], e.c[3], e.c[2], e.one, e.one} {
		VFMADD213PS(c, r, p)
	}
	if s.lanes == 16 {
		keep, over := K(), K()
		VCMPPS(U8(5), e.lowest, x, keep) // not less than, true for NaN
		VCMPPS(U8(30), e.highest, x, over)
		VSCALEFPS_Z(n, p, keep, p)
		VMOVAPS(e.inf, over, p)
		return p
	}
	// 1.5*2^23 has zeros where its lowest bits are shifted to, so t counts in units of n.
	keep, over, nan := s.vec(), s.vec(), s.vec()
	VPSLLD(U8(23), t, t)
	VPADDD(t, p, p)
	VCMPPS(U8(5), e.lowest, x, keep)
	VANDPS(keep, p, p)
	VCMPPS(U8(30), e.highest, x, over)
	VBLENDVPS(over, e.inf, p, p)
	VCMPPS(U8(3), x, x, nan)
	VBLENDVPS(nan, x, p, p)
	return p
}

func (s isa) binary(name string, op func(a, b, c Op)) {
	text(name+s.name, "func(out, a, b *float32, n int)")
	out, a, b := load64("out"), load64("a"), load64("b")
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		v := s.vec()
		VMOVUPS(at(a, 4), v)
		op(v, at(b, 4), v)
		VMOVUPS(v, at(out, 4))
	})
	finish()
}

func (s isa) scale() {
	text("scale"+s.name, "func(out, x *float32, factor float32, n int)")
	out, x := load64("out"), load64("x")
	f, wide := XMM(), s.vec()
	Load(Param("factor"), f)
	VBROADCASTSS(f, wide)
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		v := s.vec()
		VMULPS(at(x, 4), wide, v)
		VMOVUPS(v, at(out, 4))
	})
	finish()
}

// activation generates out = f(x), or f(x)*up if gated.
func (s isa) activation(name string, gated bool, f func() func(x reg.VecVirtual) reg.VecVirtual) {
	signature := "func(out, x *float32, n int)"
	if gated {
		signature = "func(out, x, up *float32, n int)"
	}
	text(name+s.name, signature)
	out, x := load64("out"), load64("x")
	var up reg.GPVirtual
	if gated {
		up = load64("up")
	}
	g := f()
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		v := s.vec()
		VMOVUPS(at(x, 4), v)
		y := g(v)
		if gated {
			VMULPS(at(up, 4), y, y)
		}
		VMOVUPS(y, at(out, 4))
	})
	finish()
}

// overExp returns x / (1 + Exp(u)).
func (s isa) overExp(x, u reg.VecVirtual, e *expConstants) reg.VecVirtual {
	d, q := s.exp(u, e), s.vec()
	VADDPS(e.one, d, d)
	VDIVPS(d, x, q)
	return q
}

func (s isa) silu() func(x reg.VecVirtual) reg.VecVirtual {
	e := s.expConstants()
	sign := s.constant("Sign", 1<<31)
	return func(x reg.VecVirtual) reg.VecVirtual {
		u := s.vec()
		VXORPS(sign, x, u)
		return s.overExp(x, u, &e)
	}
}

func (s isa) gelu() func(x reg.VecVirtual) reg.VecVirtual {
	const k = -2 * 0.79788456080286535588
	e := s.expConstants()
	k1, k3 := s.float("Gelu1", k), s.float("Gelu3", k*0.044715)
	return func(x reg.VecVirtual) reg.VecVirtual {
		u := s.vec()
		VMULPS(x, x, u)
		if s.lanes == 16 {
			VFMADD213PS(k1, k3, u)
		} else {
			c := s.vec()
			VMOVUPS(k3, c)
			VFMADD213PS(k1, c, u)
		}
		VMULPS(x, u, u)
		return s.overExp(x, u, &e)
	}
}

// fold reduces lanes by the canonical tree to lane 0.
func (s isa) fold(vs []reg.VecVirtual, op func(a, b, c Op)) reg.VecVirtual {
	y := YMM()
	if s.lanes == 16 {
		VEXTRACTF64X4(U8(1), vs[0], y)
		op(vs[0].AsY(), y, y)
	} else {
		op(vs[0], vs[1], y)
	}
	x, h := XMM(), XMM()
	VEXTRACTF128(U8(1), y, x)
	op(y.AsX(), x, x)
	VMOVHLPS(x, x, h)
	op(x, h, x)
	VMOVSHDUP(x, h)
	op(x, h, x)
	return x
}

// sixteen runs body for each 16 of n elements, for each of the vectors in them.
func (s isa) sixteen(n reg.GPVirtual, p reg.GPVirtual, body func(i int, at Mem)) {
	Label("loop")
	for i := range 16 / s.lanes {
		body(i, Mem{Base: p, Disp: i * s.lanes * 4})
	}
	ADDQ(U8(64), p)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
}

func (s isa) sixteenVectors() []reg.VecVirtual {
	v := make([]reg.VecVirtual, 16/s.lanes)
	for i := range v {
		v[i] = s.vec()
	}
	return v
}

// maximum generates the largest of n values, NaN apart, and -Inf.
func (s isa) maximum() {
	text("maximum"+s.name, "func(x *float32, n int) float32")
	x, n := load64("x"), load64("n")
	tops := s.sixteenVectors()
	low := s.float("MinusInf", float32(math.Inf(-1)))
	for _, t := range tops {
		VMOVUPS(low, t)
	}
	s.sixteen(n, x, func(i int, at Mem) {
		v := s.vec()
		VMOVUPS(at, v)
		VMAXPS(tops[i], v, tops[i]) // what is second here is kept where one is NaN
	})
	top := s.fold(tops, func(a, b, c Op) { VMAXPS(a, b, c) })
	Store(top, ReturnIndex(0))
	finish()
}

// expSum generates out = Exp(x-m) and its sum in 16 lanes.
func (s isa) expSum() {
	text("expSum"+s.name, "func(out, x, lanes *float32, m float32, n int)")
	out, x, n := load64("out"), load64("x"), load64("n")
	f, wide := XMM(), s.vec()
	Load(Param("m"), f)
	VBROADCASTSS(f, wide)
	e := s.expConstants()
	sums := s.sixteenVectors()
	for _, v := range sums {
		s.zero(v)
	}
	SUBQ(x, out)
	s.sixteen(n, x, func(i int, at Mem) {
		v := s.vec()
		VMOVUPS(at, v)
		VSUBPS(wide, v, v)
		p := s.exp(v, &e)
		at.Index, at.Scale = out, 1
		VMOVUPS(p, at)
		VADDPS(p, sums[i], sums[i])
	})
	s.storeLanes(sums)
	finish()
}

func (s isa) storeLanes(v []reg.VecVirtual) {
	lanes := load64("lanes")
	for i := range v {
		VMOVUPS(v[i], Mem{Base: lanes, Disp: i * s.lanes * 4})
	}
}

// squares generates the sum of squares in 16 lanes.
func (s isa) squares() {
	text("squares"+s.name, "func(x, lanes *float32, n int)")
	s.storeLanes(s.sumSquares(load64("x"), load64("n")))
	finish()
}

// sumSquares leaves the sums of the squares of n values in 16 lanes, and moves x on.
func (s isa) sumSquares(x, n reg.GPVirtual) []reg.VecVirtual {
	sums := s.sixteenVectors()
	for _, v := range sums {
		s.zero(v)
	}
	s.sixteen(n, x, func(i int, at Mem) {
		v := s.vec()
		VMOVUPS(at, v)
		VFMADD231PS(v, v, sums[i])
	})
	return sums
}

// weigh generates out = x*factor*weight, from left to right.
func (s isa) weigh() {
	text("weigh"+s.name, "func(out, x, weight *float32, factor float32, n int)")
	out, x, weight := load64("out"), load64("x"), load64("weight")
	f, wide := XMM(), s.vec()
	Load(Param("factor"), f)
	VBROADCASTSS(f, wide)
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		v := s.vec()
		VMULPS(at(x, 4), wide, v)
		VMULPS(at(weight, 4), v, v)
		VMOVUPS(v, at(out, 4))
	})
	finish()
}

// rotateHalves generates o0 = fma(x0, cos, -(x1*sin)), o1 = fma(x0, sin, x1*cos).
func (s isa) rotateHalves() {
	text("rotateHalves"+s.name, "func(o0, o1, x0, x1, cos, sin *float32, n int)")
	o0, o1, x0, x1 := load64("o0"), load64("o1"), load64("x0"), load64("x1")
	cos, sin := load64("cos"), load64("sin")
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		a, c, d, y0, y1 := s.vec(), s.vec(), s.vec(), s.vec(), s.vec()
		VMOVUPS(at(x0, 4), a)
		VMOVUPS(at(x1, 4), y0)
		VMOVUPS(at(cos, 4), c)
		VMOVUPS(at(sin, 4), d)
		s.rotated(a, c, d, y0, y1)
		VMOVUPS(y0, at(o0, 4))
		VMOVUPS(y1, at(o1, 4))
	})
	finish()
}

// finishHeads generates the rotation of heads of 2*pairs values, rows that lie outStride and xStride bytes apart and whose
// angles lie angleStride bytes apart, after their norm if they are normed.
func (s isa) finishHeads(name string, normed bool) {
	text(name+s.name, "func(out, x, weight, cos, sin *float32, outStride, xStride, angleStride, pairs, rows int, eps float32)")
	out, x, cos, sin, pairs := load64("out"), load64("x"), load64("cos"), load64("sin"), load64("pairs")
	var weight reg.GPVirtual
	wide, one, count, eps := s.vec(), XMM(), XMM(), XMM()
	if normed {
		weight = load64("weight")
		n := GP64()
		LEAQ(Mem{Base: pairs, Index: pairs, Scale: 1}, n)
		VXORPS(count, count, count)
		VCVTSI2SSQ(n, count, count)
		bits := GP32()
		MOVL(U32(math.Float32bits(1)), bits)
		VMOVD(bits, one)
		Load(Param("eps"), eps)
	}
	Label("row")
	if normed {
		p, n := GP64(), GP64()
		MOVQ(x, p)
		LEAQ(Mem{Base: pairs, Index: pairs, Scale: 1}, n)
		f := s.fold(s.sumSquares(p, n), func(a, b, c Op) { VADDPS(a, b, c) })
		VDIVSS(count, f, f)
		VADDSS(eps, f, f)
		VSQRTSS(f, f, f)
		VDIVSS(f, one, f)
		VBROADCASTSS(f, wide)
	}
	i := GP64()
	XORQ(i, i)
	second := func(p reg.GPVirtual) reg.GPVirtual {
		q := GP64()
		LEAQ(Mem{Base: p, Index: pairs, Scale: 4}, q)
		return q
	}
	out1, x1 := second(out), second(x)
	var weight1 reg.GPVirtual
	if normed {
		weight1 = second(weight)
	}
	at := func(p reg.GPVirtual) Mem { return Mem{Base: p, Index: i, Scale: 4} }
	Label("pairs")
	a, c, d, y0, y1 := s.vec(), s.vec(), s.vec(), s.vec(), s.vec()
	if normed {
		VMULPS(at(x), wide, a)
		VMULPS(at(x1), wide, y0)
		VMULPS(at(weight), a, a)
		VMULPS(at(weight1), y0, y0)
	} else {
		VMOVUPS(at(x), a)
		VMOVUPS(at(x1), y0)
	}
	VMOVUPS(at(cos), c)
	VMOVUPS(at(sin), d)
	s.rotated(a, c, d, y0, y1)
	VMOVUPS(y0, at(out))
	VMOVUPS(y1, at(out1))
	ADDQ(U8(uint8(s.lanes)), i)
	CMPQ(i, pairs)
	JL(LabelRef("pairs"))
	ADDQ(param("outStride"), out)
	ADDQ(param("xStride"), x)
	ADDQ(param("angleStride"), cos)
	ADDQ(param("angleStride"), sin)
	DECQ(param("rows"))
	JNZ(LabelRef("row"))
	finish()
}

// param is where a parameter lies in memory.
func param(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// rotated generates y0, y1 = fma(a, c, -(y0*d)), fma(a, d, y0*c).
func (s isa) rotated(a, c, d, y0, y1 reg.VecVirtual) {
	VMULPS(y0, c, y1)
	VMULPS(y0, d, y0)
	VFMSUB231PS(a, c, y0)
	VFMADD231PS(a, d, y1)
}

// rotatePairs generates the same for neighbours: out[2i] and out[2i+1] from x[2i] and
// x[2i+1], for n pairs.
func rotatePairs() {
	text("rotatePairsAVX2", "func(out, x, cos, sin *float32, n int)")
	out, x, cos, sin := load64("out"), load64("x"), load64("cos"), load64("sin")
	s := isa{"", 4} // pairs at once
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		c, d, lo, hi := XMM(), XMM(), XMM(), XMM()
		VMOVUPS(at(cos, 4), c)
		VMOVUPS(at(sin, 4), d)
		cs, sc := YMM(), YMM() // cos, sin, cos, ... and sin, cos, sin, ...
		VUNPCKLPS(d, c, lo)
		VUNPCKHPS(d, c, hi)
		VINSERTF128(U8(1), hi, lo.AsY(), cs)
		VPERMILPS(U8(0xb1), cs, sc)
		first, second := YMM(), YMM()
		VMOVSLDUP(at(x, 8), first)
		VMOVSHDUP(at(x, 8), second)
		VMULPS(second, sc, sc)
		VFMADDSUB231PS(first, cs, sc)
		VMOVUPS(sc, at(out, 8))
	})
	finish()
}

func (s isa) decodeF16() {
	text("decodeF16"+s.name, "func(dst *float32, src *uint16, n int)")
	dst, src := load64("dst"), load64("src")
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		v := s.vec()
		VCVTPH2PS(at(src, 2), v)
		VMOVUPS(v, at(dst, 4))
	})
	finish()
}

func (s isa) encodeF16() {
	text("encodeF16"+s.name, "func(dst *uint16, src *float32, n int)")
	dst, src := load64("dst"), load64("src")
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		v := s.vec()
		VMOVUPS(at(src, 4), v)
		VCVTPS2PH(U8(0), v, at(dst, 2))
	})
	finish()
}

func (s isa) decodeBF16() {
	text("decodeBF16"+s.name, "func(dst *float32, src *uint16, n int)")
	dst, src := load64("dst"), load64("src")
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		v := s.vec()
		VPMOVZXWD(at(src, 2), v)
		VPSLLD(U8(16), v, v)
		VMOVUPS(v, at(dst, 4))
	})
	finish()
}

// encodeBF16 generates (b + 0x7fff + b>>16&1) >> 16, and for NaN b>>16 with the quiet bit.
func (s isa) encodeBF16() {
	text("encodeBF16"+s.name, "func(dst *uint16, src *float32, n int)")
	dst, src := load64("dst"), load64("src")
	one, half, quiet := s.constant("Bit0", 1), s.constant("Half", 0x7fff), s.constant("Quiet", 0x40)
	s.loop(load64("n"), func(at func(reg.GPVirtual, int) Mem) {
		v, r, n := s.vec(), s.vec(), s.vec()
		VMOVUPS(at(src, 4), v)
		VPSRLD(U8(16), v, n)
		if s.lanes == 16 {
			VPANDD(one, n, r)
			VPORD(quiet, n, n)
		} else {
			VPAND(one, n, r)
			VPOR(quiet, n, n)
		}
		VPADDD(half, r, r)
		VPADDD(v, r, r)
		VPSRLD(U8(16), r, r)
		if s.lanes == 16 {
			nan := K()
			VCMPPS(U8(3), v, v, nan)
			VMOVDQA32(n, nan, r)
			VPMOVDW(r, at(dst, 2))
			return
		}
		nan := s.vec()
		VCMPPS(U8(3), v, v, nan)
		VBLENDVPS(nan, n, r, r)
		h := XMM()
		VEXTRACTI128(U8(1), r, h)
		VPACKUSDW(h, r.AsX(), h)
		VMOVDQU(h, at(dst, 2))
	})
	finish()
}

// scatterF16 generates the store of one cell's keys: values in half precision, 32 bytes
// apart.
func scatterF16() {
	text("scatterF16AVX2", "func(dst *uint16, src *float32, n int)")
	dst, src, n := load64("dst"), load64("src"), load64("n")
	Label("loop")
	for i := range 2 {
		v, h := YMM(), XMM()
		VMOVUPS(Mem{Base: src, Disp: 32 * i}, v)
		VCVTPS2PH(U8(0), v, h)
		for j := range 8 {
			VPEXTRW(U8(uint8(j)), h, Mem{Base: dst, Disp: (8*i + j) * 32})
		}
	}
	ADDQ(U8(64), src)
	ADDQ(I32(16*32), dst)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	finish()
}

// storeKeysF16 generates the store of 16 cells' keys, from rows that lie stride bytes apart: eight features at a time
// are transposed in half precision, cells 0 to 7 in the low half of a vector and 8 to 15 in the high one.
func storeKeysF16() {
	text("storeKeysF16AVX2", "func(dst *uint16, src *float32, stride, dim int)")
	dst, src, stride, n := load64("dst"), load64("src"), load64("stride"), load64("dim")
	three, five, seven := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 4}, five)
	LEAQ(Mem{Base: three, Index: stride, Scale: 4}, seven)
	high := GP64() // row 8
	LEAQ(Mem{Base: src, Index: stride, Scale: 8}, high)
	row := func(base reg.GPVirtual, i int) Mem {
		return [8]Mem{
			{Base: base}, {Base: base, Index: stride, Scale: 1}, {Base: base, Index: stride, Scale: 2}, {Base: base, Index: three, Scale: 1},
			{Base: base, Index: stride, Scale: 4}, {Base: base, Index: five, Scale: 1}, {Base: base, Index: three, Scale: 2}, {Base: base, Index: seven, Scale: 1},
		}[i]
	}
	Label("loop")
	var v [8]reg.VecVirtual
	for i := range v {
		a, b, h := YMM(), YMM(), XMM()
		v[i] = YMM()
		VPXOR(v[i], v[i], v[i]) // else its high half would have to live through the loop
		VMOVUPS(row(src, i), a)
		VMOVUPS(row(high, i), b)
		VCVTPS2PH(U8(0), a, v[i].AsX())
		VCVTPS2PH(U8(0), b, h)
		VINSERTI128(U8(1), h, v[i], v[i])
	}
	for range 3 { // perfect shuffles of words, within the halves
		var w [8]reg.VecVirtual
		for i := range 4 {
			w[2*i], w[2*i+1] = YMM(), YMM()
			VPUNPCKLWD(v[i+4], v[i], w[2*i])
			VPUNPCKHWD(v[i+4], v[i], w[2*i+1])
		}
		v = w
	}
	for i := range v {
		VMOVDQU(v[i], Mem{Base: dst, Disp: 32 * i})
	}
	ADDQ(U8(32), src)
	ADDQ(U8(32), high)
	ADDQ(I32(8*32), dst)
	SUBQ(U8(8), n)
	JNZ(LabelRef("loop"))
	finish()
}

// storeValuesF16 generates the store of 16 cells' values, from rows that lie stride bytes apart: 16 features of each cell,
// then the next 16.
func storeValuesF16() {
	text("storeValuesF16AVX2", "func(dst *uint16, src *float32, stride, dim int)")
	dst, src, stride, n := load64("dst"), load64("src"), load64("stride"), load64("dim")
	Label("loop")
	row := GP64()
	MOVQ(src, row)
	for cell := range 16 {
		for half := range 2 {
			v := YMM()
			VMOVUPS(Mem{Base: row, Disp: 32 * half}, v)
			VCVTPS2PH(U8(0), v, Mem{Base: dst, Disp: 32*cell + 16*half})
		}
		ADDQ(stride, row)
	}
	ADDQ(U8(64), src)
	ADDQ(I32(16*32), dst)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	finish()
}

func text(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}
