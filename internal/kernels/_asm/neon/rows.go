package main

import "fmt"

// rows writes functions over rows of floats; n is a multiple of 16 unless said otherwise.
func (p *program) rows() {
	p.binary("add", "fadd.4s")
	p.binary("mul", "fmul.4s")
	p.scale()
	p.weigh()
	p.squares()
	p.maximum()
	p.silu("silu", false, false)
	p.silu("swiglu", true, false)
	p.silu("gelu", false, true)
	p.expSum()
	p.rotate()
	p.rotatePairs()
	p.convert()
	p.scatter()
}

// sixteen runs body for 16 elements at a time; R3 counts them.
func (f *function) sixteen(body func()) {
	f.label("loop")
	body()
	f.again(16, 3, "loop")
}

func (p *program) binary(name, op string) {
	f := p.text(name+"NEON", "sets each of n values of out.", "out *float32, a *float32, b *float32, n int", "")
	f.arg("out", 0)
	f.arg("a", 1)
	f.arg("b", 2)
	f.arg("n", 3)
	f.sixteen(func() {
		a, b := span(0, 4), span(4, 4)
		f.loadAll(a, 1, 0)
		f.loadAll(b, 2, 0)
		for j := range a {
			f.op(op, a[j], a[j], b[j])
		}
		f.storeAll(a, 0, 0)
		for r := range x(3) {
			f.add(64, r)
		}
	})
	f.ret()
}

func (p *program) scale() {
	f := p.text("scaleNEON", "multiplies n values with a factor.", "out *float32, src *float32, factor float32, n int", "")
	f.arg("out", 0)
	f.arg("src", 1)
	f.float("factor", 31)
	f.arg("n", 3)
	f.sixteen(func() {
		a := span(0, 4)
		f.loadAll(a, 1, 0)
		for _, r := range a {
			f.byElement("fmul", r, r, 31, 0)
		}
		f.storeAll(a, 0, 0)
		f.add(64, 0)
		f.add(64, 1)
	})
	f.ret()
}

func (p *program) weigh() {
	f := p.text("weighNEON", "multiplies n values with a factor, and then with weights.", "out *float32, src *float32, weight *float32, factor float32, n int", "")
	f.arg("out", 0)
	f.arg("src", 1)
	f.arg("weight", 2)
	f.float("factor", 31)
	f.arg("n", 3)
	f.sixteen(func() {
		a, w := span(0, 4), span(4, 4)
		f.loadAll(a, 1, 0)
		f.loadAll(w, 2, 0)
		for j, r := range a {
			f.byElement("fmul", r, r, 31, 0)
			f.op("fmul.4s", r, r, w[j])
		}
		f.storeAll(a, 0, 0)
		for r := range x(3) {
			f.add(64, r)
		}
	})
	f.ret()
}

func (p *program) squares() {
	f := p.text("squaresNEON", "adds the squares of n values to their lanes.", "src *float32, lanes *float32, n int", "")
	f.arg("src", 1)
	f.arg("lanes", 0)
	f.arg("n", 3)
	lanes, a := span(4, 4), span(0, 4)
	f.loadAll(lanes, 0, 0)
	f.sixteen(func() {
		f.loadAll(a, 1, 0)
		for j, r := range a {
			f.op("fmla.4s", lanes[j], r, r)
		}
		f.add(64, 1)
	})
	f.storeAll(lanes, 0, 0)
	f.ret()
}

const minusInf = 0xff800000

// raise sets top to the larger of it and v, which it is not if either is NaN. It uses tmp.
func (f *function) raise(top, v, tmp vec) {
	f.op("fcmgt.4s", tmp, v, top)
	f.op("bit.16b", top, v, tmp)
}

// largest leaves the largest of the lanes of four registers, from the first on, in lane 0.
func (f *function) largest(tops []vec, tmp, tmp2 vec) {
	f.raise(tops[0], tops[1], tmp)
	f.raise(tops[2], tops[3], tmp)
	f.raise(tops[0], tops[2], tmp)
	f.ext(tmp2, tops[0], tops[0])
	f.raise(tops[0], tmp2, tmp)
	f.dup(tmp2, tops[0], 1)
	f.raise(tops[0], tmp2, tmp)
}

func (p *program) maximum() {
	f := p.text("maximumNEON", "returns the largest of n values that is not NaN.", "src *float32, n int", "float32")
	f.arg("src", 1)
	f.arg("n", 3)
	tops, a := span(4, 4), span(0, 4)
	for _, t := range tops {
		f.bits(t, minusInf)
	}
	f.sixteen(func() {
		f.loadAll(a, 1, 0)
		for j, t := range tops {
			f.raise(t, a[j], vec(8+j))
		}
		f.add(64, 1)
	})
	f.largest(tops, 8, 9)
	f.ins("FMOVS F%d, ret+%d(FP)", tops[0], f.offsets["ret"])
	f.ret()
}

// exponential computes kernels.Exp with constants that it keeps in registers.
type exponential struct {
	*function
	low, high, log2e, magic, ln2Hi, ln2Lo, one, inf vec
	c                                               [7]vec // from 2 on
	limited                                         bool   // arguments are not above 0, unless they are NaN
}

// newExponential takes 13 registers from one on, or 11 if limited.
func newExponential(f *function, from vec, limited bool) *exponential {
	e := &exponential{function: f, limited: limited}
	put := func(d *vec, v float32) {
		*d = from
		f.constant(from, v)
		from++
	}
	put(&e.low, -0x1.5d589ep+06)
	put(&e.log2e, 1.44269504088896340736)
	put(&e.magic, 0x1.8p23)
	put(&e.ln2Hi, 0x1.62e4p-1)
	put(&e.ln2Lo, 1.42860682030941723212e-6)
	put(&e.one, 1)
	for i, v := range []float32{0.499999934320667, 0.1666652039847194, 0.041668390795631845, 0.008368745161960674, 0.0013814539619211145} {
		put(&e.c[2+i], v)
	}
	if !limited {
		put(&e.high, 0x1.62e42ep+06)
		e.inf = from
		f.bits(from, 0x7f800000)
	}
	return e
}

// of replaces each of the arguments by its exponential; it needs four more registers for each,
// from tmp on.
func (e *exponential) of(args []vec, tmp vec) {
	n := len(args)
	t, r, p, q := span(tmp, n), span(tmp+vec(n), n), span(tmp+vec(2*n), n), span(tmp+vec(3*n), n)
	for i, v := range args {
		e.fma(t[i], v, e.log2e, e.magic)
		e.op("fsub.4s", p[i], t[i], e.magic)
		e.mov(r[i], v)
		e.op("fmls.4s", r[i], p[i], e.ln2Hi)
		e.op("fmls.4s", r[i], p[i], e.ln2Lo)
		e.fma(p[i], e.c[6], r[i], e.c[5])
	}
	for _, c := range []vec{e.c[4], e.c[3], e.c[2], e.one, e.one} {
		for i := range args {
			e.fma(q[i], p[i], r[i], c)
		}
		p, q = q, p
	}
	for i, v := range args {
		// 1.5*2^23 has zeros where its lowest bits are shifted to, so t counts in units of n.
		e.shift("shl", "4s", t[i], t[i], 23)
		e.op("add.4s", p[i], p[i], t[i])
		e.op("fcmge.4s", r[i], v, e.low)
		e.op("and.16b", p[i], p[i], r[i])
		if !e.limited {
			e.op("fcmgt.4s", r[i], v, e.high)
			e.op("bit.16b", p[i], e.inf, r[i])
		}
		e.op("fcmeq.4s", r[i], v, v)
		e.op("bit.16b", v, p[i], r[i]) // a NaN stays
	}
}

// silu writes x / (1 + Exp(u)), times up if that is wanted, u being -x or that of Gelu.
func (p *program) silu(name string, up, gelu bool) {
	params := "out *float32, src *float32, n int"
	if up {
		params = "out *float32, src *float32, up *float32, n int"
	}
	f := p.text(name+"NEON", "sets each of n values of out.", params, "")
	f.arg("out", 0)
	f.arg("src", 1)
	if up {
		f.arg("up", 2)
	}
	f.arg("n", 3)
	e := newExponential(f, 19, false)
	const k = -2 * 0.79788456080286535588
	const slope, start vec = 17, 18
	if gelu {
		f.constant(slope, k*0.044715)
		f.constant(start, k)
	}
	f.sixteen(func() {
		for at := 0; at < 64; at += 32 {
			u, v := span(0, 2), span(2, 2)
			f.loadAll(v, 1, at)
			for i := range u {
				if gelu {
					f.op("fmul.4s", 4, v[i], v[i])
					f.fma(u[i], slope, 4, start)
					f.op("fmul.4s", u[i], u[i], v[i])
				} else {
					f.op("fneg.4s", u[i], v[i])
				}
			}
			e.of(u, 4)
			for i := range u {
				f.op("fadd.4s", u[i], u[i], e.one)
				f.op("fdiv.4s", u[i], v[i], u[i])
			}
			if up {
				f.loadAll(v, 2, at)
				for i := range u {
					f.op("fmul.4s", u[i], u[i], v[i])
				}
			}
			f.storeAll(u, 0, at)
		}
		f.add(64, 0)
		f.add(64, 1)
		if up {
			f.add(64, 2)
		}
	})
	f.ret()
}

func (p *program) expSum() {
	f := p.text("expSumNEON", "sets each of n values of out to Exp(src-m) and adds it to its lane.", "out *float32, src *float32, lanes *float32, m float32, n int", "")
	f.arg("out", 0)
	f.arg("src", 1)
	f.arg("lanes", 2)
	f.float("m", 18)
	f.dup(18, 18, 0)
	f.arg("n", 3)
	e := newExponential(f, 19, false)
	lanes := span(14, 4)
	f.loadAll(lanes, 2, 0)
	f.sixteen(func() {
		for h := range 2 {
			v := span(0, 2)
			f.loadAll(v, 1, 32*h)
			for _, r := range v {
				f.op("fsub.4s", r, r, 18)
			}
			e.of(v, 2)
			for i, r := range v {
				f.op("fadd.4s", lanes[2*h+i], lanes[2*h+i], r)
			}
			f.storeAll(v, 0, 32*h)
		}
		f.add(64, 0)
		f.add(64, 1)
	})
	f.storeAll(lanes, 2, 0)
	f.ret()
}

// turn rotates: y0 = fma(x0, cos, -(x1*sin)), y1 = fma(x0, sin, x1*cos).
func (f *function) turn(y0, y1, x0, x1, cos, sin vec) {
	f.op("fmul.4s", y0, x1, sin)
	f.op("fneg.4s", y0, y0)
	f.op("fmla.4s", y0, x0, cos)
	f.op("fmul.4s", y1, x1, cos)
	f.op("fmla.4s", y1, x0, sin)
}

func (p *program) rotate() {
	f := p.text("rotateHalvesNEON", "rotates n pairs of values.", "o0 *float32, o1 *float32, x0 *float32, x1 *float32, cos *float32, sin *float32, n int", "")
	for i, name := range []string{"o0", "o1", "x0", "x1", "cos", "sin"} {
		f.arg(name, x(4+i))
	}
	f.arg("n", 3)
	f.sixteen(func() {
		for at := 0; at < 64; at += 16 {
			for r := range 4 {
				f.load("q", vec(r), x(6+r), at)
			}
			f.turn(4, 5, 0, 1, 2, 3)
			f.store(4, 4, at)
			f.store(5, 5, at)
		}
		for r := range x(6) {
			f.add(64, 4+r)
		}
	})
	f.ret()
}

func (p *program) rotatePairs() {
	f := p.text("rotatePairsNEON", "rotates n pairs of neighbours, n a multiple of 4.", "out *float32, src *float32, cos *float32, sin *float32, n int", "")
	for i, name := range []string{"out", "src", "cos", "sin"} {
		f.arg(name, x(4+i))
	}
	f.arg("n", 3)
	f.label("loop")
	f.split(0, 5)
	f.load("q", 2, 6, 0)
	f.load("q", 3, 7, 0)
	f.turn(4, 5, 0, 1, 2, 3)
	f.join(4, 4)
	f.add(32, 4)
	f.add(32, 5)
	f.add(16, 6)
	f.add(16, 7)
	f.again(4, 3, "loop")
	f.ret()
}

// convert writes the conversions from and to the 16-bit formats.
func (p *program) convert() {
	for _, kind := range []string{"F16", "BF16"} {
		f := p.text("decode"+kind+"NEON", "widens n values.", "dst *float32, src *uint16, n int", "")
		m := newMultiplier(f, kind, 1, 1, nil, nil)
		f.arg("dst", 0)
		f.arg("src", 1)
		f.arg("n", 3)
		f.sixteen(func() {
			f.loadPair(4, 5, 1, 0)
			for j := range 4 {
				m.widen(vec(j), vec(4+j/2), j%2 == 1)
			}
			f.storeAll(span(0, 4), 0, 0)
			f.add(64, 0)
			f.add(32, 1)
		})
		f.ret()
	}
	f := p.text("encodeF16NEON", "rounds n values.", "dst *uint16, src *float32, n int", "")
	f.arg("dst", 0)
	f.arg("src", 1)
	f.arg("n", 3)
	f.sixteen(func() {
		f.loadAll(span(0, 4), 1, 0)
		for j := range vec(2) {
			f.op("fcvtn 4h 4s", 4+j, 2*j)
			f.op("fcvtn2 8h 4s", 4+j, 2*j+1)
		}
		f.storeAll(span(4, 2), 0, 0)
		f.add(32, 0)
		f.add(64, 1)
	})
	f.ret()

	// The upper half of b + 0x7fff + b>>16&1, or of b with the quiet bit if it is NaN.
	f = p.text("encodeBF16NEON", "rounds n values.", "dst *uint16, src *float32, n int", "")
	f.arg("dst", 0)
	f.arg("src", 1)
	f.arg("n", 3)
	const one, half, quiet vec = 29, 30, 31
	f.words(one, 1)
	f.bits(half, 0x7fff)
	f.bits(quiet, 0x00400000)
	f.sixteen(func() {
		v, r := span(0, 4), span(4, 4)
		f.loadAll(v, 1, 0)
		for j := range v {
			number := vec(8 + j)
			f.shift("ushr", "4s", r[j], v[j], 16)
			f.op("and.16b", r[j], r[j], one)
			f.op("add.4s", r[j], r[j], half)
			f.op("add.4s", r[j], r[j], v[j])
			f.op("fcmeq.4s", number, v[j], v[j])
			f.op("orr.16b", v[j], v[j], quiet)
			f.op("bif.16b", r[j], v[j], number)
			f.shrn(vec(12+j/2), r[j], j%2 == 1)
		}
		f.storeAll(span(12, 2), 0, 0)
		f.add(32, 0)
		f.add(64, 1)
	})
	f.ret()
}

// scatter writes the store of one cell's keys.
func (p *program) scatter() {
	f := p.text("scatterF16NEON", "rounds n values and stores them 32 bytes apart.", "dst *uint16, src *float32, n int", "")
	f.arg("dst", 0)
	f.arg("src", 1)
	f.arg("n", 3)
	f.ins("MOVD $32, R2")
	f.sixteen(func() {
		f.loadAll(span(0, 4), 1, 0)
		for j := range vec(2) {
			f.op("fcvtn 4h 4s", 4+j, 2*j)
			f.op("fcvtn2 8h 4s", 4+j, 2*j+1)
		}
		for i := range 16 {
			f.storeHalf(vec(4+i/8), i%8, 0, 2)
		}
		f.add(64, 1)
	})
	f.ret()
}

// attention writes its products and what happens between and after them.
func (p *program) attention() {
	for _, kind := range []string{"F16", "F32"} {
		for tiles := 1; tiles <= 2; tiles++ {
			for rows := 1; rows <= 3; rows++ {
				p.attentionProduct(kind, rows, tiles)
			}
		}
	}
	p.softmax()
	p.factors()
	p.merge()
}

// attentionProduct writes, for rows r and 16-lane tiles t,
//
//	acc[r][t] += w[r][i] * src[t][i], i ascending
//
// where i runs over segs segments of steps elements. Tiles are tileStride bytes apart, and
// segments segStride; weights follow each other through all segments. Unless join is set the
// sums begin from zero.
func (p *program) attentionProduct(kind string, rows, tiles int) {
	f := p.text(fmt.Sprintf("product%sNEONR%dT%d", kind, rows, tiles), fmt.Sprintf("multiplies rows of weights, %d at once, with %d tiles of 16 lanes.", rows, tiles),
		"acc *float32, w *float32, src *byte, accStride int, wStride int, tileStride int, segStride int, steps int, segs int, ahead int, join int", "")
	m := newMultiplier(f, kind, rows, tiles, tokenRegs(rows), blockRegs(tiles))
	const acc, w, src, accStride, stride, skip, segs, steps, size x = 0, 1, 2, 3, 4, 5, 6, 7, 19
	f.arg("acc", acc)
	f.arg("w", w)
	f.arg("src", src)
	f.arg("accStride", accStride)
	f.arg("wStride", stride)
	m.pointers(w, stride, m.x)
	f.arg("tileStride", stride)
	m.pointers(src, stride, m.w)
	f.arg("join", steps)
	f.ins("CBNZ R%d, join", steps)
	m.clear()
	f.ins("B begin")
	f.label("join")
	m.sums(acc, accStride, w, f.loadAll)
	f.label("begin")
	f.arg("steps", steps)
	f.arg("segStride", skip)
	f.ins("MOVD $%d, R%d", m.size(), size)
	f.ins("MSUB R%d, R%d, R%d, R%d", size, skip, steps, skip) // from the end of a segment to the next
	f.arg("segs", segs)
	f.label("segment")
	f.arg("steps", steps)
	m.loop(steps, "four", "few", "one", "done")
	for _, r := range m.w {
		f.ins("ADD R%d, R%d, R%d", skip, r, r)
	}
	f.again(1, segs, "segment")
	m.sums(acc, accStride, w, f.storeAll)
	f.ret()
}

// chunkBytes is the distance of two rows of scores.
const chunkBytes = 128 * 4

// softmax writes, for rows of blocks*16 scores that lie 128 apart: the maximum of a row, the
// weights Exp(score-maximum) in place of the scores, and their sum in 16 lanes.
func (p *program) softmax() {
	f := p.text("softmaxNEON", "turns rows of scores into weights.", "scores *float32, maxima *float32, sums *float32, blocks int, rows int", "")
	const row, maxima, sums, n, blocks, rows, ptr x = 0, 1, 2, 3, 4, 5, 6
	f.arg("scores", row)
	f.arg("maxima", maxima)
	f.arg("sums", sums)
	f.arg("blocks", blocks)
	f.arg("rows", rows)
	e := newExponential(f, 21, true)
	lanes, v, m := span(16, 4), span(0, 4), vec(20)
	f.label("row")
	for _, l := range lanes {
		f.bits(l, minusInf)
	}
	f.ins("MOVD R%d, R%d", row, ptr)
	f.ins("MOVD R%d, R%d", blocks, n)
	f.label("max")
	f.loadAll(v, ptr, 0)
	for j, l := range lanes {
		f.raise(l, v[j], vec(4+j))
	}
	f.add(64, ptr)
	f.again(1, n, "max")
	f.largest(lanes, 4, 5)
	f.dup(m, lanes[0], 0)
	f.storeFloat(m, maxima)
	for _, l := range lanes {
		f.zero(l)
	}
	f.ins("MOVD R%d, R%d", row, ptr)
	f.ins("MOVD R%d, R%d", blocks, n)
	f.label("exp")
	for h := range 2 {
		v := span(0, 2)
		f.loadAll(v, ptr, 32*h)
		for _, r := range v {
			f.op("fsub.4s", r, r, m)
		}
		e.of(v, 2)
		for i, r := range v {
			f.op("fadd.4s", lanes[2*h+i], lanes[2*h+i], r)
		}
		f.storeAll(v, ptr, 32*h)
	}
	f.add(64, ptr)
	f.again(1, n, "exp")
	f.sumLanes(lanes, 0)
	f.storeFloat(lanes[0], sums)
	f.add(4, maxima)
	f.add(4, sums)
	f.add(chunkBytes, row)
	f.again(1, rows, "row")
	f.ret()
}

// factors writes the first part of a merge, for n rows at once, n a multiple of 4:
//
//	keep = Exp(m-m'), gain = Exp(mc-m'), m = m' = max(m, mc), l = fma(lc, gain, l*keep)
func (p *program) factors() {
	f := p.text("factorsNEON", "computes with what n rows and a chunk of them are merged.", "m *float32, l *float32, mc *float32, lc *float32, keep *float32, gain *float32, n int", "")
	for i, name := range []string{"m", "l", "mc", "lc", "keep", "gain", "n"} {
		f.arg(name, x(i))
	}
	e := newExponential(f, 21, true)
	f.label("loop")
	f.load("q", 0, 0, 0)
	f.load("q", 1, 2, 0)
	f.mov(10, 0)
	f.raise(10, 1, 11)
	f.store(10, 0, 0)
	f.op("fsub.4s", 0, 0, 10)
	f.op("fsub.4s", 1, 1, 10)
	e.of(span(0, 2), 2)
	f.store(0, 4, 0)
	f.store(1, 5, 0)
	f.load("q", 2, 1, 0)
	f.load("q", 3, 3, 0)
	f.op("fmul.4s", 2, 2, 0)
	f.op("fmla.4s", 2, 3, 1)
	f.store(2, 1, 0)
	for r := range x(6) {
		f.add(16, r)
	}
	f.again(4, 6, "loop")
	f.ret()
}

// merge writes acc[r] = fma(part[r], gain[r], acc[r]*keep[r]) for rows of width values, a
// multiple of 16.
func (p *program) merge() {
	f := p.text("mergeNEON", "adds the sums of a chunk to those of rows.", "acc *float32, part *float32, keep *float32, gain *float32, width int, rows int", "")
	const acc, part, keep, gain, width, rows, n x = 0, 1, 2, 4, 5, 6, 3
	for _, a := range []struct {
		name string
		reg  x
	}{{"acc", acc}, {"part", part}, {"keep", keep}, {"gain", gain}, {"width", width}, {"rows", rows}} {
		f.arg(a.name, a.reg)
	}
	f.label("row")
	f.next("s", 16, keep)
	f.next("s", 17, gain)
	f.ins("MOVD R%d, R%d", width, n)
	f.sixteen(func() {
		a, b := span(0, 4), span(4, 4)
		f.loadAll(a, acc, 0)
		f.loadAll(b, part, 0)
		for j := range a {
			f.byElement("fmul", a[j], a[j], 16, 0)
			f.byElement("fmla", a[j], b[j], 17, 0)
		}
		f.storeAll(a, acc, 0)
		f.add(64, acc)
		f.add(64, part)
	})
	f.again(1, rows, "row")
	f.ret()
}
