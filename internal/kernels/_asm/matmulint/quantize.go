package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var ymm = [16]reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15}

var xmm = [16]reg.VecPhysical{reg.X0, reg.X1, reg.X2, reg.X3, reg.X4, reg.X5, reg.X6, reg.X7, reg.X8, reg.X9, reg.X10, reg.X11, reg.X12, reg.X13, reg.X14, reg.X15}

// quantizer is what the functions that quantise have in common. Per block, with n the quants
// as floats, they need four sums of 16 lanes: r*n, n*n, and n of either half. All but
// the first are of integers below 2^24 and so exact in any order; the first has the order of
// sumLanes. So the four go through one tree together, and end in one register each in the order
// (r*n, n*n, first half, second half).
type quantizer struct {
	x, q, s, r, blocks, width, width44, bits reg.Register
	locals                                   operand.Mem
}

func newQuantizer(name string) *quantizer {
	build.TEXT(name, attr.NOSPLIT, "func(x *float32, q, scales, sums16 *byte, blocks, width int)")
	build.Pragma("noescape")
	build.Doc(name + " quantises a token into its lane of the records.")
	z := &quantizer{x: reg.RAX, q: reg.RBX, s: reg.RCX, r: reg.RDX, blocks: reg.RSI, width: reg.RDI, width44: reg.R8, bits: reg.R9}
	for i, r := range []reg.Register{z.x, z.q, z.s, z.r, z.blocks, z.width} {
		build.Load(build.Param([]string{"x", "q", "scales", "sums16", "blocks", "width"}[i]), r)
	}
	op("SHLQ", imm(2), z.width) // bytes of a float of each token
	op("IMUL3Q", imm(11), z.width, z.width44)
	return z
}

// scalar puts a float or integer into all lanes of v.
func scalar(v reg.VecPhysical, x reg.VecPhysical, broadcast string, value uint32) {
	op("MOVL", operand.U32(value), reg.R10L)
	op("VMOVD", reg.R10L, x)
	op(broadcast, x, v)
}

func f32(v float32) uint32 { return math.Float32bits(v) }

// finish turns amax in X4 and the sums in X0 (r*n), X1 (n*n), X2, X3 into the scalars of a record.
func (z *quantizer) finish() {
	at := func(base reg.Register, i int) operand.Mem {
		if i == 3 {
			return operand.Mem{Base: base, Index: reg.R11, Scale: 1}
		}
		m := operand.Mem{Base: base}
		if i > 0 {
			m.Index, m.Scale = z.width, uint8(i)
		}
		return m
	}
	x := xmm
	op("VDIVSS", x[1], x[0], x[0]) // sum / squares
	op("VDIVSS", x[14], x[4], x[4])
	op("VMULSS", x[0], x[4], x[4]) // D
	op("VADDSS", x[3], x[2], x[5])
	op("VINSERTPS", imm(0x10), x[2], x[5], x[5])
	op("VINSERTPS", imm(0x20), x[3], x[5], x[5]) // (both halves, first, second)
	op("VBROADCASTSS", x[4], x[6])
	op("VMULPS", x[6], x[5], x[6])
	op("VMULPS", x[13], x[5], x[5])
	op("VCVTPS2DQ", x[5], x[5])
	op("VMOVSS", x[4], at(z.s, 0))
	op("VMOVD", x[5], at(z.s, 1))
	op("VMOVSS", x[6], at(z.s, 2))
	op("LEAQ", operand.Mem{Base: z.width, Index: z.width, Scale: 2}, reg.R11)
	op("VPEXTRD", imm(1), x[5], at(z.r, 0))
	op("VPEXTRD", imm(2), x[5], at(z.r, 1))
	op("VEXTRACTPS", imm(1), x[6], at(z.r, 2))
	op("VEXTRACTPS", imm(2), x[6], at(z.r, 3))
}

// rest ends the loop, and handles what has no largest magnitude of an ordinary size: bits in R9.
func (z *quantizer) rest() {
	build.Label("next")
	op("ADDQ", imm(128), z.x)
	op("ADDQ", z.width44, z.q)
	op("ADDQ", z.width44, z.s)
	op("LEAQ", operand.Mem{Base: z.r, Index: z.width, Scale: 4}, z.r)
	op("DECQ", z.blocks)
	build.JNZ(operand.LabelRef("block"))
	op("VZEROUPPER")
	build.RET()

	build.Label("special")
	op("XORL", reg.R10L, reg.R10L)
	op("CMPL", reg.R9L, operand.U32(0x7f800000))
	build.JCS(operand.LabelRef("small"))
	op("MOVL", operand.U32(0x7fc00000), reg.R10L)
	build.Label("small")
	op("XORL", reg.R9L, reg.R9L)
	op("VPXOR", reg.Y5, reg.Y5, reg.Y5)
	op("VMOVDQU", reg.Y5, mem(z.q, 0))
	index := func(base reg.Register, i int) operand.Mem {
		return operand.Mem{Base: base, Index: z.width, Scale: uint8(i)}
	}
	op("MOVL", reg.R10L, mem(z.s, 0))
	op("MOVL", reg.R9L, index(z.s, 1))
	op("MOVL", reg.R10L, index(z.s, 2))
	op("LEAQ", operand.Mem{Base: z.width, Index: z.width, Scale: 2}, reg.R11)
	op("MOVL", reg.R9L, mem(z.r, 0))
	op("MOVL", reg.R9L, index(z.r, 1))
	op("MOVL", reg.R10L, index(z.r, 2))
	op("MOVL", reg.R10L, operand.Mem{Base: z.r, Index: reg.R11, Scale: 1})
	build.JMP(operand.LabelRef("next"))
}

// minAmax is the magnitude below which a block counts as zero.
const minAmax = 0x1p-126 * 130

// check jumps to special unless the magnitude bits in X4 are of an ordinary size.
func (z *quantizer) check() {
	op("VMOVD", xmm[4], reg.R9L)
	op("LEAL", operand.Mem{Base: reg.R9, Disp: -int(f32(minAmax))}, reg.R10L)
	op("CMPL", reg.R10L, operand.U32(0x7f800000-f32(minAmax)))
	build.JCC(operand.LabelRef("special"))
}

// together512 is the number of blocks that quantize512 takes at once.
const together512 = 4

// quantize512 works on four blocks at once, each in a quarter of a register once its lanes have been added up that far,
// as long as all four are ordinary. It takes others, and what is left, one by one.
func quantize512() {
	z := newQuantizer("quantize512")
	z.locals = build.AllocLocal(7 * 16)
	scalar(zmm[15], xmm[15], "VPBROADCASTD", 0x7fffffff)
	scalar(zmm[14], xmm[14], "VPBROADCASTD", f32(127))
	scalar(zmm[13], xmm[13], "VPBROADCASTD", f32(-128))
	scalar(zmm[31], xmm[4], "VPBROADCASTD", f32(minAmax))
	scalar(zmm[30], xmm[4], "VPBROADCASTD", 0x7f800000-f32(minAmax))
	scalar(zmm[29], xmm[4], "VPBROADCASTD", 0x01010101)
	op("VMOVDQU32", transposed, zmm[28])
	op("SUBQ", imm(together512), z.blocks)
	build.JCS(operand.LabelRef("few"))
	build.Label("four")
	z.four()
	op("ADDQ", operand.U32(together512*128), z.x)
	op("LEAQ", operand.Mem{Base: z.q, Index: z.width44, Scale: together512}, z.q)
	op("LEAQ", operand.Mem{Base: z.s, Index: z.width44, Scale: together512}, z.s)
	op("MOVQ", z.width, reg.R11)
	op("SHLQ", imm(4), reg.R11)
	op("ADDQ", reg.R11, z.r)
	op("SUBQ", imm(together512), z.blocks)
	build.JCC(operand.LabelRef("four"))
	build.Label("few")
	op("ADDQ", imm(together512), z.blocks)
	build.JNZ(operand.LabelRef("block"))
	op("VZEROUPPER")
	build.RET()
	build.Label("odd") // one of the four, or more: go through them one by one
	op("ADDQ", imm(together512), z.blocks)
	build.Label("block")
	z.one512()
	z.rest()
}

// fold adds the halves of the lanes of a and b, as a shuffle picks them, those of a in the lower half of what a shuffle makes.
func fold(shuffle, add string, imms [2]int, a, b, to reg.VecPhysical) {
	t := zmm[27]
	op(shuffle, imm(imms[0]), b, a, t)
	op(shuffle, imm(imms[1]), b, a, to)
	op(add, to, t, to)
}

// quarters brings four vectors to one, in whose quarters are the sums of the quarters of each.
func quarters(add string, v [4]reg.VecPhysical, to reg.VecPhysical) {
	fold("VSHUFF64X2", add, halves, v[0], v[1], v[0])
	fold("VSHUFF64X2", add, halves, v[2], v[3], v[2])
	fold("VSHUFF64X2", add, alternate, v[0], v[2], to)
}

// within folds the lanes of each quarter, all of which then have the result.
func within(add string, v reg.VecPhysical) {
	for _, swap := range []int{0x4e, 0xb1} {
		op("VPSHUFD", imm(swap), v, zmm[27])
		op(add, zmm[27], v, v)
	}
}

// four quantises the next four blocks, or jumps to odd.
func (z *quantizer) four() {
	x := zmm[16:24] // the values
	magnitudes := [4]reg.VecPhysical{zmm[0], zmm[1], zmm[2], zmm[3]}
	for i, m := range magnitudes {
		op("VMOVUPS", mem(z.x, 128*i), x[2*i])
		op("VMOVUPS", mem(z.x, 128*i+64), x[2*i+1])
		op("VPANDD", x[2*i], zmm[15], m)
		op("VPANDD", x[2*i+1], zmm[15], zmm[4])
		op("VPMAXUD", zmm[4], m, m)
	}
	amax := zmm[12]
	quarters("VPMAXUD", magnitudes, amax)
	within("VPMAXUD", amax)
	op("VPSUBD", zmm[31], amax, zmm[4])
	op("VPCMPUD", imm(5), zmm[30], zmm[4], reg.K1) // not less than
	op("KORTESTW", reg.K1, reg.K1)
	build.JNE(operand.LabelRef("odd"))

	op("VPERMD", amax, zmm[28], amax) // one after the other
	op("VDIVPS", xmm[12], xmm[14], xmm[11])
	op("VMOVUPS", xmm[11], z.local(0))
	products := [4]reg.VecPhysical{zmm[0], zmm[1], zmm[2], zmm[3]}
	packed := zmm[4:8]
	for i, p := range products {
		lo, hi := x[2*i], x[2*i+1]
		op("VBROADCASTSS", z.local(0).Offset(4*i), zmm[8])
		op("VMULPS", zmm[8], lo, lo)
		op("VMULPS", zmm[8], hi, hi)
		op("VCVTPS2DQ", lo, zmm[9])
		op("VCVTPS2DQ", hi, zmm[10])
		op("VPACKSSDW", zmm[10], zmm[9], packed[i])
		op("VCVTDQ2PS", zmm[9], zmm[9])
		op("VCVTDQ2PS", zmm[10], zmm[10])
		op("VMULPS", zmm[9], lo, p)
		op("VFMADD231PS", zmm[10], hi, p)
	}
	// Two blocks to a register.
	quants := [2]reg.VecPhysical{zmm[4], zmm[6]}
	op("LEAQ", operand.Mem{Base: z.q, Index: z.width44, Scale: 2}, reg.R11)
	for i, q := range quants {
		op("VPACKSSWB", packed[2*i+1], packed[2*i], q)
		op("VPERMD", q, zmm[28], q)
		base := []reg.Register{z.q, reg.R11}[i]
		op("VMOVDQU", ymm[4+2*i], mem(base, 0))
		op("VEXTRACTI64X4", imm(1), q, operand.Mem{Base: base, Index: z.width44, Scale: 1})
	}
	quarters("VADDPS", products, zmm[0])
	within("VADDPS", zmm[0])
	op("VPERMD", zmm[0], zmm[28], zmm[0]) // sums of r*n

	// Sums of four squares in each lane, and of four quants.
	for i, q := range quants {
		squares, sums := zmm[1+i], zmm[16+i]
		op("VPABSB", q, zmm[8])
		op("VPXORD", squares, squares, squares)
		op("VPDPBUSD", zmm[8], zmm[8], squares)
		op("VPXORD", sums, sums, sums)
		op("VPDPBUSD", q, zmm[29], sums)
	}
	fold("VSHUFF64X2", "VPADDD", alternate, zmm[1], zmm[2], zmm[1])
	within("VPADDD", zmm[1])
	op("VPERMD", zmm[1], zmm[28], zmm[1])
	within("VPADDD", zmm[16])
	within("VPADDD", zmm[17])
	op("VSHUFI64X2", imm(0x88), zmm[17], zmm[16], zmm[2]) // first halves
	op("VSHUFI64X2", imm(0xdd), zmm[17], zmm[16], zmm[3]) // second halves
	op("VPERMD", zmm[2], zmm[28], zmm[2])
	op("VPERMD", zmm[3], zmm[28], zmm[3])

	op("VCVTDQ2PS", xmm[1], xmm[1])
	op("VDIVPS", xmm[1], xmm[0], xmm[0])
	op("VDIVPS", xmm[14], xmm[12], xmm[4])
	op("VMULPS", xmm[0], xmm[4], xmm[4]) // D
	op("VPADDD", xmm[3], xmm[2], xmm[5])
	z.scatter(xmm[4], xmm[5], xmm[2], xmm[3])
}

// scatter stores, of four blocks, D and what follows from the sums of 32 and of 16 quants.
func (z *quantizer) scatter(d, sum, first, second reg.VecPhysical) {
	zero := xmm[12]
	op("VPXOR", zero, zero, zero)
	for i, s := range []reg.VecPhysical{sum, first, second} {
		f, n := xmm[6+2*i], xmm[7+2*i]
		op("VCVTDQ2PS", s, f)
		op("VMULPS", d, f, f)
		op("VPSLLD", imm(7), s, n)
		op("VPSUBD", n, zero, n)
	}
	columns := []reg.VecPhysical{d, xmm[7], xmm[6], xmm[9], xmm[11], xmm[8], xmm[10]}
	for i, c := range columns {
		op("VMOVUPS", c, z.local(i))
	}
	s, r, triple := reg.R12, reg.R13, reg.R11
	op("MOVQ", z.s, s)
	op("MOVQ", z.r, r)
	op("LEAQ", operand.Mem{Base: z.width, Index: z.width, Scale: 2}, triple)
	for i := range together512 {
		for j, at := range []operand.Mem{
			mem(s, 0), {Base: s, Index: z.width, Scale: 1}, {Base: s, Index: z.width, Scale: 2},
			mem(r, 0), {Base: r, Index: z.width, Scale: 1}, {Base: r, Index: z.width, Scale: 2}, {Base: r, Index: triple, Scale: 1},
		} {
			op("MOVL", z.local(j).Offset(4*i), reg.R10L)
			op("MOVL", reg.R10L, at)
		}
		if i+1 < together512 {
			op("ADDQ", z.width44, s)
			op("LEAQ", operand.Mem{Base: r, Index: z.width, Scale: 4}, r)
		}
	}
}

// local is a place for a vector of four.
func (z *quantizer) local(i int) operand.Mem { return z.locals.Offset(16 * i) }

// one512 quantises a block.
func (z *quantizer) one512() {
	op("VMOVUPS", mem(z.x, 0), zmm[8])
	op("VMOVUPS", mem(z.x, 64), zmm[9])
	op("VPANDD", zmm[8], zmm[15], zmm[4])
	op("VPANDD", zmm[9], zmm[15], zmm[5])
	op("VPMAXUD", zmm[4], zmm[5], zmm[4])
	op("VEXTRACTI64X4", imm(1), zmm[4], ymm[5])
	op("VPMAXUD", ymm[4], ymm[5], ymm[4])
	z.maximum128()
	z.check()
	op("VDIVSS", xmm[4], xmm[14], xmm[5])
	op("VBROADCASTSS", xmm[5], zmm[5])
	op("VMULPS", zmm[5], zmm[8], zmm[8])
	op("VMULPS", zmm[5], zmm[9], zmm[9])
	op("VCVTPS2DQ", zmm[8], zmm[10])
	op("VCVTPS2DQ", zmm[9], zmm[11])
	op("VPMOVDB", zmm[10], mem(z.q, 0))
	op("VPMOVDB", zmm[11], mem(z.q, 16))
	op("VCVTDQ2PS", zmm[10], zmm[2])
	op("VCVTDQ2PS", zmm[11], zmm[3])
	op("VMULPS", zmm[8], zmm[2], zmm[0])
	op("VFMADD231PS", zmm[9], zmm[3], zmm[0])
	op("VMULPS", zmm[2], zmm[2], zmm[1])
	op("VFMADD231PS", zmm[3], zmm[3], zmm[1])
	// Two by two, halves of 16 lanes are added, then quarters; then each has a quarter of Z0.
	for i := 0; i < 4; i += 2 {
		op("VINSERTF64X4", imm(1), ymm[i+1], zmm[i], zmm[5])
		op("VSHUFF64X2", imm(0xee), zmm[i+1], zmm[i], zmm[6])
		op("VADDPS", zmm[6], zmm[5], zmm[i])
	}
	op("VSHUFF64X2", imm(0x88), zmm[2], zmm[0], zmm[5])
	op("VSHUFF64X2", imm(0xdd), zmm[2], zmm[0], zmm[6])
	op("VADDPS", zmm[6], zmm[5], zmm[0])
	op("VPERMILPS", imm(0x4e), zmm[0], zmm[5])
	op("VADDPS", zmm[5], zmm[0], zmm[0])
	op("VPERMILPS", imm(0xb1), zmm[0], zmm[5])
	op("VADDPS", zmm[5], zmm[0], zmm[0])
	op("VEXTRACTF128", imm(1), ymm[0], xmm[1])
	op("VEXTRACTF32X4", imm(2), zmm[0], xmm[2])
	op("VEXTRACTF32X4", imm(3), zmm[0], xmm[3])
	z.finish()
}

// maximum128 leaves the largest of the 8 words of Y4 in X4.
func (z *quantizer) maximum128() {
	op("VEXTRACTI128", imm(1), ymm[4], xmm[5])
	op("VPMAXUD", xmm[4], xmm[5], xmm[4])
	op("VPSHUFD", imm(0x4e), xmm[4], xmm[5])
	op("VPMAXUD", xmm[4], xmm[5], xmm[4])
	op("VPSHUFD", imm(0xb1), xmm[4], xmm[5])
	op("VPMAXUD", xmm[4], xmm[5], xmm[4])
}

func quantize256() {
	z := newQuantizer("quantize256")
	scalar(ymm[15], xmm[15], "VPBROADCASTD", 0x7fffffff)
	scalar(ymm[14], xmm[14], "VPBROADCASTD", f32(127))
	scalar(ymm[13], xmm[13], "VPBROADCASTD", f32(-128))
	build.Label("block")
	x := ymm[8:12]
	for i := range x {
		op("VMOVUPS", mem(z.x, 32*i), x[i])
		op("VPAND", x[i], ymm[15], ymm[4+i])
	}
	op("VPMAXUD", ymm[5], ymm[4], ymm[4])
	op("VPMAXUD", ymm[7], ymm[6], ymm[6])
	op("VPMAXUD", ymm[6], ymm[4], ymm[4])
	z.maximum128()
	z.check()
	op("VDIVSS", xmm[4], xmm[14], xmm[5])
	op("VBROADCASTSS", xmm[5], ymm[5])
	for i := range x {
		op("VMULPS", ymm[5], x[i], x[i]) // r
	}
	n := []reg.VecPhysical{ymm[0], ymm[1], ymm[2], ymm[3]}
	for i := range n {
		op("VCVTPS2DQ", x[i], n[i])
	}
	// Packing works within halves of registers, so the order of words has to be mended.
	op("VPACKSSDW", n[1], n[0], ymm[5])
	op("VPACKSSDW", n[3], n[2], ymm[6])
	op("VPACKSSWB", ymm[6], ymm[5], ymm[5])
	op("VMOVDQU", packOrder, ymm[6])
	op("VPERMD", ymm[5], ymm[6], ymm[5])
	op("VMOVDQU", ymm[5], mem(z.q, 0))
	for i := range n {
		op("VCVTDQ2PS", n[i], n[i])
	}
	// Lanes 0 to 7 of r*n in Y8, 8 to 15 in Y9.
	op("VMULPS", n[0], x[0], x[0])
	op("VMULPS", n[1], x[1], x[1])
	op("VFMADD231PS", n[2], x[2], x[0])
	op("VFMADD231PS", n[3], x[3], x[1])
	op("VADDPS", x[1], x[0], x[0])
	op("VMULPS", n[0], n[0], ymm[5])
	op("VFMADD231PS", n[1], n[1], ymm[5])
	op("VFMADD231PS", n[2], n[2], ymm[5])
	op("VFMADD231PS", n[3], n[3], ymm[5])
	op("VADDPS", n[1], n[0], n[0]) // first half
	op("VADDPS", n[3], n[2], n[1]) // second half
	// Eight lanes of r*n in Y8, n*n in Y5, the halves in Y0 and Y1: quarters, two by two.
	op("VPERM2F128", imm(0x20), ymm[5], x[0], ymm[6])
	op("VPERM2F128", imm(0x31), ymm[5], x[0], ymm[7])
	op("VADDPS", ymm[7], ymm[6], ymm[6])
	op("VPERM2F128", imm(0x20), n[1], n[0], ymm[7])
	op("VPERM2F128", imm(0x31), n[1], n[0], ymm[2])
	op("VADDPS", ymm[2], ymm[7], ymm[7])
	for _, y := range []reg.VecPhysical{ymm[6], ymm[7]} {
		for _, swap := range []int{0x4e, 0xb1} {
			op("VPERMILPS", imm(swap), y, ymm[5])
			op("VADDPS", ymm[5], y, y)
		}
	}
	op("VEXTRACTF128", imm(1), ymm[6], xmm[1])
	op("VEXTRACTF128", imm(1), ymm[7], xmm[3])
	op("VMOVAPS", xmm[6], xmm[0])
	op("VMOVAPS", xmm[7], xmm[2])
	z.finish()
	z.rest()
}

var packOrder, transposed, paired operand.Mem

// quantizeTables writes the constants of the functions that quantise.
func quantizeTables() {
	packOrder = build.GLOBL("packOrder", attr.RODATA|attr.NOPTR)
	for i, v := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
		build.DATA(4*i, operand.U32(v))
	}
	transposed = build.GLOBL("transposed", attr.RODATA|attr.NOPTR)
	for i := range 16 {
		build.DATA(4*i, operand.U32(uint32(i%4*4+i/4)))
	}
	paired = build.GLOBL("paired", attr.RODATA|attr.NOPTR)
	for i := range 16 {
		build.DATA(4*i, operand.U32(uint32(i/8*8+i%2*4+i%8/2)))
	}
}
