package main

import "math"

// minAmax is the magnitude below which a block counts as zero.
const minAmax = 0x1p-126 * 130

// quantize writes the function that quantises a token: see QActs of package kernels.
func (p *program) quantize() {
	f := p.text("quantizeNEON", "quantises a token into its lane of the records.",
		"src *float32, q *byte, scales *byte, sums16 *byte, blocks int, width int", "")
	const (
		src, q, scales, sums16, blocks, width, width44, bits, small, s x = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	)
	for i, name := range []string{"src", "q", "scales", "sums16", "blocks", "width"} {
		f.arg(name, x(i))
	}
	f.ins("LSL $2, R%d, R%d", width, width)
	f.ins("MOVD $11, R%d", width44)
	f.ins("MUL R%d, R%d, R%d", width, width44, width44)
	xs, ns, t := span(0, 8), span(8, 8), span(16, 8)
	const c127, minus128 vec = 30, 31
	f.constant(c127, 127)
	f.constant(minus128, -128)
	f.label("block")
	f.loadAll(xs, src, 0)
	for i := range 8 {
		f.op("fabs.4s", t[i], xs[i])
	}
	for n := 4; n > 0; n /= 2 {
		for i := range n {
			f.op("umax.4s", t[i], t[i], t[i+n])
		}
	}
	f.across("umaxv", t[0], t[0])
	f.ins("FMOVS F%d, R%d", t[0], bits)
	f.ins("MOVD $0x%08x, R%d", math.Float32bits(minAmax), small)
	f.ins("CMPW R%d, R%d", small, bits)
	f.ins("BLO zero")
	f.ins("MOVD $0x7f800000, R%d", small)
	f.ins("CMPW R%d, R%d", small, bits)
	f.ins("BHS damaged")

	const amax vec = 16 // t[0]
	f.scalar("fdiv", 17, c127, amax)
	f.scalar("fdiv", 18, amax, c127)
	for i := range 8 {
		f.byElement("fmul", xs[i], xs[i], 17, 0)
		f.op("fcvtns.4s", ns[i], xs[i])
	}
	// Bytes in V20 and V21, four sums of their squares in V19.
	for h := range 2 {
		n := ns[4*h:]
		d := vec(20 + h)
		f.op("xtn 4h 4s", 22, n[0])
		f.op("xtn2 8h 4s", 22, n[1])
		f.op("xtn 4h 4s", 23, n[2])
		f.op("xtn2 8h 4s", 23, n[3])
		f.op("xtn 8b 8h", d, 22)
		f.op("xtn2 16b 8h", d, 23)
		f.store(d, q, 16*h)
	}
	f.zero(19)
	f.op("sdot 4s 16b 16b", 19, 20, 20)
	f.op("sdot 4s 16b 16b", 19, 21, 21)
	f.across("addv", 19, 19)
	// 16 lanes of r*n in V24 to V27.
	lanes := span(24, 4)
	for i := range 8 {
		f.op("scvtf.4s", ns[i], ns[i])
	}
	for i, l := range lanes {
		f.zero(l)
		f.op("fmla.4s", l, xs[i], ns[i])
		f.op("fmla.4s", l, xs[4+i], ns[4+i])
	}
	f.sumLanes(lanes, 28)
	f.op("scvtf.4s", 19, 19)
	f.scalar("fdiv", 24, 24, 19)
	f.scalar("fmul", 18, 18, 24) // D
	f.storeFloat(18, scales)
	// Sums: of the first half in V20, of the second in V21, of both in V22.
	for h := range vec(2) {
		f.across("saddlv", 20+h, 20+h)
		f.op("sxtl 4s 4h", 20+h, 20+h)
	}
	f.op("add.4s", 22, 20, 21)
	store := func(base x, sums ...vec) {
		f.ins("MOVD R%d, R%d", base, s)
		for i, v := range sums {
			if i > 0 || base == scales {
				f.ins("ADD R%d, R%d, R%d", width, s, s)
			}
			f.storeFloat(v, s)
		}
	}
	for i := range vec(3) {
		f.op("scvtf.4s", 23, 20+i)
		f.op("fmul.4s", 24+i, 23, minus128)
		f.op("fcvtns.4s", 24+i, 24+i)
		f.scalar("fmul", 20+i, 23, 18)
	}
	store(scales, 26, 22)
	store(sums16, 24, 25, 20, 21)

	f.label("next")
	f.add(128, src)
	f.ins("ADD R%d, R%d, R%d", width44, q, q)
	f.ins("ADD R%d, R%d, R%d", width44, scales, scales)
	f.ins("ADD R%d<<2, R%d, R%d", width, sums16, sums16)
	f.again(1, blocks, "block")
	f.ret()

	// No magnitude of an ordinary size: the scale is zero, or NaN.
	f.label("zero")
	f.zero(18)
	f.ins("B special")
	f.label("damaged")
	f.bits(18, 0x7fc00000)
	f.label("special")
	f.zero(19)
	f.store(19, q, 0)
	f.store(19, q, 16)
	f.storeFloat(18, scales)
	store(scales, 19, 18)
	store(sums16, 19, 19, 18, 18)
	f.ins("B next")
}

// sumLanes leaves the sum of 16 lanes, by the canonical tree, in the first register.
func (f *function) sumLanes(l []vec, tmp vec) {
	f.op("fadd.4s", l[0], l[0], l[2])
	f.op("fadd.4s", l[1], l[1], l[3])
	f.op("fadd.4s", l[0], l[0], l[1])
	f.ext(tmp, l[0], l[0])
	f.op("fadd.4s", l[0], l[0], tmp)
	f.across("faddp", l[0], l[0])
}
