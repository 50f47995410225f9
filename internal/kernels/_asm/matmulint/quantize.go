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

func quantize512() {
	z := newQuantizer("quantize512")
	scalar(zmm[15], xmm[15], "VPBROADCASTD", 0x7fffffff)
	scalar(zmm[14], xmm[14], "VPBROADCASTD", f32(127))
	scalar(zmm[13], xmm[13], "VPBROADCASTD", f32(-128))
	build.Label("block")
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
	z.rest()
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

var packOrder operand.Mem

// quantizeTables writes the constants of the functions that quantise.
func quantizeTables() {
	packOrder = build.GLOBL("packOrder", attr.RODATA|attr.NOPTR)
	for i, v := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
		build.DATA(4*i, operand.U32(v))
	}
}
