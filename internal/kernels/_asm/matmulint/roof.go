package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// roofs writes what measures a machine: reading memory, and dot products and fused multiply-adds
// of registers.
func roofs() {
	readRoof("read512", "VPADDD", 64, zmm[:8])
	readRoof("read256", "VPADDD", 32, ymm[:8])
	dotRoof("dots512", zmm[:14], func(sum, a, b reg.VecPhysical) { op("VPDPBUSD", a, b, sum) })
	dotRoof("dotsVNNI", ymm[:14], func(sum, a, b reg.VecPhysical) { dpbusd(a, b, sum) })
	dotRoof("dotsAVX2", ymm[:16], func(sum, a, b reg.VecPhysical) {
		op("VPMADDUBSW", a, b, ymm[14])
		op("VPMADDWD", ymm[14], a, ymm[14])
		op("VPADDD", ymm[14], sum, sum)
	})
	fma := func(sum, a, b reg.VecPhysical) { op("VFMADD231PS", a, b, sum) }
	dotRoof("fmas512", zmm[:14], fma)
	dotRoof("fmas256", ymm[:14], fma)
}

func readRoof(name, add string, size int, sums []reg.VecPhysical) {
	build.TEXT(name, attr.NOSPLIT, "func(p *byte, n int)")
	build.Pragma("noescape")
	build.Doc(name + " reads n times 512 bytes.")
	build.Load(build.Param("p"), regW)
	build.Load(build.Param("n"), regRows)
	rowLoop(func() {
		fetching(regW, 0, 512, func() {
			for at := 0; at < 512; at += size {
				s := sums[at/size%len(sums)]
				op(add, mem(regW, at), s, s)
			}
		})
		op("ADDQ", operand.U32(512), regW)
	})
}

// dotRoof multiplies the 13th and the 14th register, 12 times in a turn.
func dotRoof(name string, r []reg.VecPhysical, dot func(sum, a, b reg.VecPhysical)) {
	build.TEXT(name, attr.NOSPLIT, "func(n int)")
	build.Doc(name + " does n times 12 operations on whole registers.")
	build.Load(build.Param("n"), regRows)
	for _, v := range r {
		zero := "VPXOR"
		if v.Size() == 64 {
			zero = "VPXORD"
		}
		op(zero, v, v, v)
	}
	rowLoop(func() {
		for i := range 12 {
			dot(r[i], r[12], r[13])
		}
	})
}
