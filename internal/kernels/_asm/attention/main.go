// Command attention generates the assembly of the attention's steps.
//
// Scores and weighted values are the same product: rows of weights (queries, or the
// weights that softmax gave) by a panel whose tiles have 16 lanes (keys, or features),
// with one chain of fused steps for each output. What differs is where the tiles lie.
package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// chunkBytes is the distance of two rows of scores.
const chunkBytes = 128 * 4

// isa is an instruction set with vectors of so many lanes.
type isa struct {
	name  string
	lanes int
	rows  int   // the most rows that a product takes at once
	tiles []int // the numbers of tiles that it takes at once
	room  int   // the sums that registers hold, besides what they are made from
}

var sets = []isa{
	{name: "AVX512", lanes: 16, rows: 7, tiles: []int{4, 2, 1}, room: 24 * 16},
	{name: "AVX2", lanes: 8, rows: 3, tiles: []int{2, 1}, room: 12 * 8},
}

func main() {
	ConstraintExpr("amd64,!purego")
	for _, s := range sets {
		for _, half := range []bool{true, false} {
			for _, tiles := range s.tiles {
				for rows := 1; rows <= s.rows; rows++ {
					if rows*tiles*16 > s.room {
						continue
					}
					s.product(rows, tiles, half)
				}
			}
		}
		s.softmax()
		s.factors()
		s.merge()
		s.scaleRows()
		s.finish()
	}
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

// multiples addresses things that lie stride bytes apart, up to seven of them.
type multiples struct {
	base, one, three, five reg.GPVirtual
}

func newMultiples(base, stride reg.GPVirtual, n int) multiples {
	m := multiples{base: base, one: stride}
	if n > 3 {
		m.three = GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, m.three)
	}
	if n > 5 {
		m.five = GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 4}, m.five)
	}
	return m
}

func (m multiples) at(i, disp int) Mem {
	a := Mem{Base: m.base, Disp: disp}
	switch i {
	case 1, 2, 4:
		a.Index, a.Scale = m.one, uint8(i)
	case 3:
		a.Index, a.Scale = m.three, 1
	case 5:
		a.Index, a.Scale = m.five, 1
	case 6:
		a.Index, a.Scale = m.three, 2
	}
	return a
}

// product generates, for rows r and 16-lane tiles t,
//
//	acc[r][t] += w[r][i] * x[t][i], i ascending
//
// where i runs over segs segments of steps elements. Tiles are tileStride bytes apart, and
// segments segStride; weights follow each other through all segments. What lies ahead
// bytes from the half-precision elements read is fetched to the second-level cache.
// Unless join is set the sums begin from zero.
func (s isa) product(rows, tiles int, half bool) {
	element := "F32"
	size := 64 // bytes of 16 elements
	if half {
		element, size = "F16", 32
	}
	text(fmt.Sprintf("product%s%sR%dT%d", element, s.name, rows, tiles),
		"func(acc, w *float32, x *byte, accStride, wStride, tileStride, segStride, steps, segs, ahead, join int)")
	per := 16 / s.lanes
	nv := tiles * per
	acc := make([]reg.VecVirtual, rows*nv)
	for i := range acc {
		acc[i] = s.vec()
	}
	join := load64("join")
	TESTQ(join, join)
	JNZ(LabelRef("join"))
	for _, a := range acc {
		s.zero(a)
	}
	JMP(LabelRef("begin"))
	Label("join")
	in := newMultiples(load64("acc"), load64("accStride"), rows)
	for r := range rows {
		for v := range nv {
			VMOVUPS(in.at(r, v*s.lanes*4), acc[r*nv+v])
		}
	}
	Label("begin")
	w := newMultiples(load64("w"), load64("wStride"), rows)
	x := newMultiples(load64("x"), load64("tileStride"), tiles)
	var ahead reg.GPVirtual
	if half {
		ahead = load64("ahead")
		ADDQ(x.base, ahead)
	}
	skip := GP64() // from the end of a segment to the next
	MOVQ(load64("steps"), skip)
	SHLQ(U8(shift(size)), skip)
	NEGQ(skip)
	ADDQ(load64("segStride"), skip)
	segs := load64("segs")

	Label("segment")
	steps := load64("steps")
	SUBQ(U8(4), steps)
	JL(LabelRef("few"))
	Label("four")
	for i := range 4 {
		if half && i%2 == 0 {
			for t := range tiles {
				a := x
				a.base = ahead
				PREFETCHT1(a.at(t, i*size))
			}
		}
		s.step(acc, w, x, rows, tiles, i, half)
	}
	advance := func(n int) {
		ADDQ(I32(4*n), w.base)
		ADDQ(I32(size*n), x.base)
		if half {
			ADDQ(I32(size*n), ahead)
		}
	}
	advance(4)
	SUBQ(U8(4), steps)
	JGE(LabelRef("four"))
	Label("few")
	ADDQ(U8(4), steps)
	JZ(LabelRef("next"))
	Label("one")
	s.step(acc, w, x, rows, tiles, 0, half)
	advance(1)
	DECQ(steps)
	JNZ(LabelRef("one"))
	Label("next")
	ADDQ(skip, x.base)
	if half {
		ADDQ(skip, ahead)
	}
	DECQ(segs)
	JNZ(LabelRef("segment"))

	out := newMultiples(load64("acc"), load64("accStride"), rows)
	for r := range rows {
		for v := range nv {
			VMOVUPS(acc[r*nv+v], out.at(r, v*s.lanes*4))
		}
	}
	VZEROUPPER()
	RET()
}

func shift(size int) int {
	n := 0
	for 1<<n < size {
		n++
	}
	return n
}

// step multiplies element i from where the pointers stand. Either a tile's vectors stay in
// registers while a broadcast weight passes by, or the weights do, whatever there is room for.
func (s isa) step(acc []reg.VecVirtual, w, x multiples, rows, tiles, i int, half bool) {
	per := 16 / s.lanes
	nv := tiles * per
	load := func(v int) reg.VecVirtual {
		r := s.vec()
		t, part := v/per, v%per
		if half {
			VCVTPH2PS(x.at(t, i*32+part*s.lanes*2), r)
		} else {
			VMOVUPS(x.at(t, i*64+part*s.lanes*4), r)
		}
		return r
	}
	if rows*nv+nv+1 <= 2*s.lanes { // of so many registers
		xs := make([]reg.VecVirtual, nv)
		for v := range xs {
			xs[v] = load(v)
		}
		for r := range rows {
			b := s.vec()
			VBROADCASTSS(w.at(r, i*4), b)
			for v := range xs {
				VFMADD231PS(b, xs[v], acc[r*nv+v])
			}
		}
		return
	}
	bs := make([]reg.VecVirtual, rows)
	for r := range bs {
		bs[r] = s.vec()
		VBROADCASTSS(w.at(r, i*4), bs[r])
	}
	for v := range nv {
		xv := load(v)
		for r := range bs {
			VFMADD231PS(bs[r], xv, acc[r*nv+v])
		}
	}
}

// constant is a vector of equal float32 values: in AVX-512 a register, in AVX2, which has
// fewer, memory.
func (s isa) constant(name string, bits uint32) Op {
	c := s.scalar(name, bits)
	if s.lanes == 8 {
		return c
	}
	r := ZMM()
	VBROADCASTSS(c, r)
	return r
}

// scalar is memory that begins with a value.
func (s isa) scalar(name string, bits uint32) Mem {
	full := fmt.Sprintf("attention%s%s", s.name, name)
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
	return c
}

var constants = map[string]Mem{}

// expConstants are those of the definition, kernels.Exp.
type expConstants struct {
	lowest, log2e, magic, ln2Hi, ln2Lo, one Op
	c                                       [7]Op
}

func (s isa) expConstants() (e expConstants) {
	f := func(name string, v float32) Op { return s.constant(name, math.Float32bits(v)) }
	e.lowest = f("Lowest", -0x1.5d589ep+06)
	e.log2e = f("Log2E", 1.44269504088896340736)
	e.magic = f("Magic", 0x1.8p23)
	e.ln2Hi = f("Ln2Hi", 0x1.62e4p-1)
	e.ln2Lo = f("Ln2Lo", 1.42860682030941723212e-6)
	e.one = f("One", 1)
	for i, v := range []float32{0.499999934320667, 0.1666652039847194, 0.041668390795631845, 0.008368745161960674, 0.0013814539619211145} {
		e.c[2+i] = f(fmt.Sprint("C", 2+i), v)
	}
	return e
}

// exp returns kernels.Exp of x, which is not above 0 unless it is NaN.
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
		keep := K()
		VCMPPS(U8(5), e.lowest, x, keep) // not less than, true for NaN
		VSCALEFPS_Z(n, p, keep, p)
		return p
	}
	// 1.5*2^23 has zeros where its lowest bits are shifted to, so t counts in units of n.
	keep, nan := s.vec(), s.vec()
	VPSLLD(U8(23), t, t)
	VPADDD(t, p, p)
	VCMPPS(U8(5), e.lowest, x, keep)
	VANDPS(keep, p, p)
	VCMPPS(U8(3), x, x, nan)
	VBLENDVPS(nan, x, p, p)
	return p
}

// fold reduces lanes by the canonical tree to lane 0. The operation takes what is kept
// where one is NaN as its first operand.
func (s isa) fold(v reg.VecVirtual, vs []reg.VecVirtual, op func(a, b, c Op)) reg.VecVirtual {
	var y reg.VecVirtual
	if s.lanes == 16 {
		y = YMM()
		VEXTRACTF64X4(U8(1), v, y)
		low := v.(reg.VecVirtual).AsY()
		op(low, y, y)
	} else {
		y = YMM()
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

// softmax generates, for rows of blocks*16 scores that lie 128 apart: the maximum of a row,
// the weights Exp(score-maximum) in place of the scores, and their sum in 16 lanes. The maxima of all rows come first, so
// that none waits for its own, and loops are short enough to be foreseen.
func (s isa) softmax() {
	text("softmax"+s.name, "func(scores, maxima, sums *float32, blocks, rows int)")
	blocks := load64("blocks")
	per := 16 / s.lanes
	e := s.expConstants()
	row, p, n := GP64(), GP64(), GP64()
	// eachRow works off all rows, each vector of a row by each. End gets where the row's result belongs.
	eachRow := func(name, result string, start func(), each func(i int, at Mem), end func(at Mem)) {
		MOVQ(must(Param("scores").Resolve()).Addr, row)
		out, rows := load64(result), load64("rows")
		Label(name)
		start()
		MOVQ(row, p)
		MOVQ(blocks, n)
		eachBlock(name, p, n, func(block int) {
			for i := range per {
				each(i, Mem{Base: p, Disp: 64*block + i*s.lanes*4})
			}
		})
		end(Mem{Base: out})
		ADDQ(U8(4), out)
		ADDQ(I32(chunkBytes), row)
		DECQ(rows)
		JNZ(LabelRef(name))
	}

	inf := s.vec()
	infinity := GP32()
	MOVL(U32(0xff800000), infinity)
	ix := XMM()
	VMOVD(infinity, ix)
	VBROADCASTSS(ix, inf)
	lanes := make([]reg.VecVirtual, per)
	for i := range lanes {
		lanes[i] = s.vec()
	}
	eachRow("max", "maxima", func() {
		for _, v := range lanes {
			VMOVAPS(inf, v)
		}
	}, func(i int, at Mem) {
		v := s.vec()
		VMOVUPS(at, v)
		VMAXPS(lanes[i], v, lanes[i])
	}, func(at Mem) {
		VMOVSS(s.fold(lanes[0], lanes, func(a, b, c Op) { VMAXPS(a, b, c) }), at)
	})

	m, wide := load64("maxima"), s.vec()
	eachRow("exp", "sums", func() {
		VBROADCASTSS(Mem{Base: m}, wide)
		ADDQ(U8(4), m)
		for _, v := range lanes {
			s.zero(v)
		}
	}, func(i int, at Mem) {
		v := s.vec()
		VMOVUPS(at, v)
		VSUBPS(wide, v, v)
		w := s.exp(v, &e)
		VMOVUPS(w, at)
		VADDPS(w, lanes[i], lanes[i])
	}, func(at Mem) {
		VMOVSS(s.fold(lanes[0], lanes, func(a, b, c Op) { VADDPS(a, b, c) }), at)
	})
	VZEROUPPER()
	RET()
}

// eachBlock generates body for n blocks of 64 bytes from p on, four of them in a turn of the loop as long as there
// are as many. It uses up both registers.
func eachBlock(name string, p, n reg.GPVirtual, body func(block int)) {
	SUBQ(U8(4), n)
	JL(LabelRef(name + "Few"))
	Label(name + "Four")
	for i := range 4 {
		body(i)
	}
	ADDQ(I32(4*64), p)
	SUBQ(U8(4), n)
	JGE(LabelRef(name + "Four"))
	Label(name + "Few")
	ADDQ(U8(4), n)
	JZ(LabelRef(name + "Done"))
	Label(name + "One")
	body(0)
	ADDQ(U8(64), p)
	DECQ(n)
	JNZ(LabelRef(name + "One"))
	Label(name + "Done")
}

// factors generates the first part of a merge, for n rows at once, n a multiple of 16:
//
//	keep = Exp(m-m'), gain = Exp(mc-m'), m = m' = max(m, mc), l = fma(lc, gain, l*keep)
func (s isa) factors() {
	text("factors"+s.name, "func(m, l, mc, lc, keep, gain *float32, n int)")
	m, l, mc, lc, f, g, n := load64("m"), load64("l"), load64("mc"), load64("lc"), load64("keep"), load64("gain"), load64("n")
	e := s.expConstants()
	i := GP64()
	XORQ(i, i)
	at := func(p reg.GPVirtual) Mem { return Mem{Base: p, Index: i, Scale: 4} }
	Label("loop")
	old, chunk, top := s.vec(), s.vec(), s.vec()
	VMOVUPS(at(m), old)
	VMOVUPS(at(mc), chunk)
	VMAXPS(old, chunk, top)
	VMOVUPS(top, at(m))
	VSUBPS(top, old, old)
	VSUBPS(top, chunk, chunk)
	fv := s.exp(old, &e)
	VMOVUPS(fv, at(f))
	gv := s.exp(chunk, &e)
	VMOVUPS(gv, at(g))
	lv := s.vec()
	VMULPS(at(l), fv, lv)
	VFMADD231PS(at(lc), gv, lv)
	VMOVUPS(lv, at(l))
	ADDQ(U8(uint8(s.lanes)), i)
	CMPQ(i, n)
	JL(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// merge generates acc[r] = fma(part[r], gain[r], acc[r]*keep[r]) for rows of width values, a
// multiple of 16.
func (s isa) merge() {
	text("merge"+s.name, "func(acc, part, keep, gain *float32, width, rows int)")
	acc, part, f, g, width, rows := load64("acc"), load64("part"), load64("keep"), load64("gain"), load64("width"), load64("rows")
	Label("row")
	fv, gv := s.vec(), s.vec()
	VBROADCASTSS(Mem{Base: f}, fv)
	VBROADCASTSS(Mem{Base: g}, gv)
	n := GP64()
	MOVQ(width, n)
	Label("sixteen")
	for i := range 16 / s.lanes {
		a := s.vec()
		VMULPS(Mem{Base: acc, Disp: i * s.lanes * 4}, fv, a)
		VFMADD231PS(Mem{Base: part, Disp: i * s.lanes * 4}, gv, a)
		VMOVUPS(a, Mem{Base: acc, Disp: i * s.lanes * 4})
	}
	ADDQ(U8(64), acc)
	ADDQ(U8(64), part)
	SUBQ(U8(16), n)
	JNZ(LabelRef("sixteen"))
	ADDQ(U8(4), f)
	ADDQ(U8(4), g)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// scaleRows generates out = x*factor for rows of n values, a multiple of 16. Those of x lie stride bytes apart, those of out
// follow one another.
func (s isa) scaleRows() {
	text("scaleRows"+s.name, "func(out, x *float32, stride, n, rows int, factor float32)")
	out, x, stride, rows := load64("out"), load64("x"), load64("stride"), load64("rows")
	f := s.vec()
	VBROADCASTSS(must(Param("factor").Resolve()).Addr, f)
	Label("row")
	p, n := GP64(), load64("n")
	MOVQ(x, p)
	s.scaled(p, out, f, n)
	ADDQ(stride, x)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// scaled generates the loop that writes n values of from, times f, a multiple of 16, and moves both pointers on.
func (s isa) scaled(from, to reg.GPVirtual, f reg.VecVirtual, n reg.GPVirtual) {
	Label("sixteen")
	for i := range 16 / s.lanes {
		v := s.vec()
		VMULPS(Mem{Base: from, Disp: i * s.lanes * 4}, f, v)
		VMOVUPS(v, Mem{Base: to, Disp: i * s.lanes * 4})
	}
	ADDQ(U8(64), from)
	ADDQ(U8(64), to)
	SUBQ(U8(16), n)
	JNZ(LabelRef("sixteen"))
}

// finish generates out[r] = acc[r] * (1/l[r]) for the heads of tokens, of dim values, a multiple of 16. Those of a token follow
// one another, tokens lie stride bytes apart in out.
func (s isa) finish() {
	text("finish"+s.name, "func(out, acc, l *float32, stride, dim, heads, tokens int)")
	out, acc, l := load64("out"), load64("acc"), load64("l")
	stride, tokens := load64("stride"), load64("tokens")
	one := XMM()
	VMOVSS(s.scalar("One", math.Float32bits(1)), one)
	Label("token")
	p, heads := GP64(), load64("heads")
	MOVQ(out, p)
	Label("head")
	inverse, f, n := XMM(), s.vec(), load64("dim")
	VDIVSS(Mem{Base: l}, one, inverse)
	VBROADCASTSS(inverse, f)
	ADDQ(U8(4), l)
	s.scaled(acc, p, f, n)
	DECQ(heads)
	JNZ(LabelRef("head"))
	ADDQ(stride, out)
	DECQ(tokens)
	JNZ(LabelRef("token"))
	VZEROUPPER()
	RET()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func text(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}
