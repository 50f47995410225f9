package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileQuantizer makes a function that quantises a block of all tokens of a tile at once: once the lanes of each have been
// added up, a token is a lane, and what a record has of each is stored together.
type tileQuantizer struct {
	tokens int
	local  operand.Mem
}

// Registers of a tileQuantizer. The sums of four tokens wait in the first dozen.
var (
	tileX, tileQ, tileR    = reg.RAX, reg.RBX, reg.RDX
	tileBlocks, tileStride = reg.RSI, reg.RDI
	tileTriple, tileRow    = reg.R8, reg.R9 // three strides; the first of four tokens

	tileAmax                           = zmm[22]
	tileOnes, tileMagnitude, tileOrder = zmm[26], zmm[31], zmm[28]
	tileLeast, tileRange, tile127      = zmm[29], zmm[30], zmm[25]
	tileLanes                          = reg.K2 // those that are tokens
)

func quantizeTile512(tokens int) {
	z := &tileQuantizer{tokens: tokens}
	name := fmt.Sprintf("quantize512x%d", tokens)
	build.TEXT(name, attr.NOSPLIT, "func(x *float32, q, sums16 *byte, blocks, stride int) (done int)")
	build.Pragma("noescape")
	build.Doc(name + fmt.Sprintf(" quantises blocks of %d tokens, whose values are stride floats apart, as a tile, up to one that is out of the ordinary.", tokens))
	for i, r := range []reg.Register{tileX, tileQ, tileR, tileBlocks, tileStride} {
		build.Load(build.Param([]string{"x", "q", "sums16", "blocks", "stride"}[i]), r)
	}
	z.local = build.AllocLocal(64)
	op("SHLQ", imm(2), tileStride)
	op("LEAQ", operand.Mem{Base: tileStride, Index: tileStride, Scale: 2}, tileTriple)
	scalar(tileMagnitude, xmm[0], "VPBROADCASTD", 0x7fffffff)
	scalar(tileLeast, xmm[0], "VPBROADCASTD", f32(minAmax))
	scalar(tileRange, xmm[0], "VPBROADCASTD", 0x7f800000-f32(minAmax))
	scalar(tile127, xmm[0], "VPBROADCASTD", f32(127))
	scalar(tileOnes, xmm[0], "VPBROADCASTD", 0x01010101)
	op("VMOVDQU32", transposed, tileOrder)
	op("MOVL", operand.U32(1<<tokens-1), reg.R10L)
	op("KMOVW", reg.R10L, tileLanes)

	build.Label("block")
	z.magnitudes()
	z.quants()
	z.store()
	op("ADDQ", operand.U32(128), tileX)
	op("ADDQ", operand.U32(recBytes(tokens)), tileQ)
	op("ADDQ", operand.U32(rec16Bytes(tokens)), tileR)
	op("DECQ", tileBlocks)
	build.JNZ(operand.LabelRef("block"))
	build.Label("odd")
	op("MOVQ", param("blocks"), reg.R10)
	op("SUBQ", tileBlocks, reg.R10)
	op("VZEROUPPER")
	build.Store(reg.R10, build.ReturnIndex(0))
	build.RET()
}

// fours runs do for every four tokens of the tile, with where the values of those that there are lie.
func (z *tileQuantizer) fours(do func(i int, rows []operand.Mem)) {
	op("MOVQ", tileX, tileRow)
	for i := 0; i < z.tokens; i += 4 {
		rows := []operand.Mem{
			mem(tileRow, 0), {Base: tileRow, Index: tileStride, Scale: 1},
			{Base: tileRow, Index: tileStride, Scale: 2}, {Base: tileRow, Index: tileTriple, Scale: 1},
		}
		do(i/4, rows[:min(4, z.tokens-i)])
		op("LEAQ", operand.Mem{Base: tileRow, Index: tileStride, Scale: 4}, tileRow)
	}
}

// pairwise folds neighbours into half as many registers. The last of an odd number is folded with itself: its other lanes are
// those of no token.
func pairwise(shuffle, add string, imms [2]int, v []reg.VecPhysical) []reg.VecPhysical {
	for i := 0; i < len(v); i += 2 {
		fold(shuffle, add, imms, v[i], v[min(i+1, len(v)-1)], v[i/2])
	}
	return v[:(len(v)+1)/2]
}

// The steps from 16 lanes of each of 16 tokens to one, in the order of sumLanes.
var (
	halves    = [2]int{0x44, 0xee}
	alternate = [2]int{0x88, 0xdd}
)

// byToken folds registers that have four lanes of each of four tokens, up to four of them, and leaves a lane for each token in the first.
func (z *tileQuantizer) byToken(add string, v []reg.VecPhysical) {
	v = pairwise("VSHUFPS", add, halves, v)
	pairwise("VSHUFPS", add, alternate, v)
	op("VPERMD", v[0], tileOrder, v[0])
}

// magnitudes finds the largest of each token, and leaves if one is out of the ordinary.
func (z *tileQuantizer) magnitudes() {
	var all []reg.VecPhysical
	z.fours(func(i int, rows []operand.Mem) {
		v := zmm[i : i+len(rows)]
		for j, row := range rows {
			op("VPANDD", row, tileMagnitude, v[j])
			op("VPANDD", row.Offset(64), tileMagnitude, zmm[24])
			op("VPMAXUD", zmm[24], v[j], v[j])
		}
		v = pairwise("VSHUFF64X2", "VPMAXUD", halves, v)
		pairwise("VSHUFF64X2", "VPMAXUD", alternate, v)
		all = append(all, v[0])
	})
	z.byToken("VPMAXUD", all)
	op("VPSUBD", tileLeast, zmm[0], zmm[24])
	op("VPCMPUD", imm(5), tileRange, zmm[24], reg.K1) // not less than
	op("KORTESTW", reg.K1, reg.K1)
	build.JNE(operand.LabelRef("odd"))
	op("VMOVAPS", zmm[0], tileAmax)
	op("VDIVPS", zmm[0], tile127, zmm[0])
	op("VMOVUPS", zmm[0], z.local)
}

// quants makes and stores the quants, and leaves for each token the sum of r*n in Z0, of n*n in Z4, and those of n in the two
// halves in Z1 and Z2.
func (z *tileQuantizer) quants() {
	var products, squares, sums []reg.VecPhysical
	z.fours(func(i int, rows []operand.Mem) {
		p := []reg.VecPhysical{zmm[i], zmm[12], zmm[13], zmm[14]}[:len(rows)]
		pairs := (len(rows) + 1) / 2
		square := []reg.VecPhysical{zmm[4+i], zmm[15]}[:pairs]
		sum := []reg.VecPhysical{zmm[8+i], zmm[16]}[:pairs]
		packed := zmm[17:19]
		for j, row := range rows {
			lo, hi, nLo, nHi := zmm[19], zmm[20], zmm[21], zmm[23]
			op("VMOVUPS", row, lo)
			op("VMOVUPS", row.Offset(64), hi)
			op("VMULPS.BCST", z.local.Offset(4*(4*i+j)), lo, lo)
			op("VMULPS.BCST", z.local.Offset(4*(4*i+j)), hi, hi)
			op("VCVTPS2DQ", lo, nLo)
			op("VCVTPS2DQ", hi, nHi)
			op("VPACKSSDW", nHi, nLo, packed[j%2])
			op("VCVTDQ2PS", nLo, nLo)
			op("VCVTDQ2PS", nHi, nHi)
			op("VMULPS", nLo, lo, p[j])
			op("VFMADD231PS", nHi, hi, p[j])
			if j%2 == 0 {
				continue
			}
			q, s, n := packed[0], square[j/2], sum[j/2]
			op("VPACKSSWB", packed[1], packed[0], q)
			op("VPERMD", q, tileOrder, q)
			op("VMOVDQU64", q, mem(tileQ, 32*(4*i+j-1)))
			op("VPABSB", q, zmm[24])
			op("VPXORD", s, s, s)
			op("VPDPBUSD", zmm[24], zmm[24], s)
			op("VPXORD", n, n, n)
			op("VPDPBUSD", q, tileOnes, n)
		}
		p = pairwise("VSHUFF64X2", "VADDPS", halves, p)
		pairwise("VSHUFF64X2", "VADDPS", alternate, p)
		pairwise("VSHUFF64X2", "VPADDD", alternate, square)
		pairwise("VSHUFPS", "VPADDD", halves, sum)
		products, squares, sums = append(products, p[0]), append(squares, square[0]), append(sums, sum[0])
	})
	z.byToken("VADDPS", products)
	z.byToken("VPADDD", squares)
	sums = pairwise("VSHUFPS", "VPADDD", alternate, sums)
	a, b := sums[0], sums[len(sums)-1] // of eight tokens each: first and second halves of even ones, then of odd ones
	op("VMOVDQU32", paired, zmm[24])
	for i, swap := range alternate {
		to := zmm[1+i]
		op("VSHUFI32X4", imm(swap), b, a, to)
		op("VPERMD", to, zmm[24], to)
	}
}

// store stores what follows from the sums.
func (z *tileQuantizer) store() {
	d, first, second, sum, zero := zmm[0], zmm[1], zmm[2], zmm[3], zmm[12]
	op("VCVTDQ2PS", zmm[4], zmm[4])
	op("VDIVPS", zmm[4], d, d)
	op("VDIVPS", tile127, tileAmax, zmm[5])
	op("VMULPS", d, zmm[5], d)
	op("VPADDD", second, first, sum)
	op("VPXORD", zero, zero, zero)
	lanes := func(v reg.VecPhysical, base reg.Register, at int) { op("VMOVUPS", v, tileLanes, mem(base, at)) }
	size := 4 * z.tokens
	lanes(d, tileQ, 8*size)
	for i, s := range []reg.VecPhysical{sum, first, second} {
		f := zmm[5+i]
		op("VCVTDQ2PS", s, f)
		op("VMULPS", d, f, f)
		op("VPSLLD", imm(7), s, s)
		op("VPSUBD", s, zero, s)
		if i == 0 {
			lanes(s, tileQ, 9*size)
			lanes(f, tileQ, 10*size)
			continue
		}
		lanes(s, tileR, (i-1)*size)
		lanes(f, tileR, (i+1)*size)
	}
}
