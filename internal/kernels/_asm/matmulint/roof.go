package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// roof512 writes what measures a machine: reading memory, and dot products of registers.
func roof512() {
	build.TEXT("read512", attr.NOSPLIT, "func(p *byte, lines int)")
	build.Pragma("noescape")
	build.Doc("read512 reads lines*512 bytes.")
	build.Load(build.Param("p"), regW)
	build.Load(build.Param("lines"), regRows)
	rowLoop(func() {
		for i := range 8 {
			op("PREFETCHT0", mem(regW, 64*i+prefetch))
			op("VPADDD", mem(regW, 64*i), zmm[i], zmm[i])
		}
		op("ADDQ", operand.U32(512), regW)
	})
	build.TEXT("dots512", attr.NOSPLIT, "func(n int)")
	build.Doc("dots512 does n times 12 dot products of 64 bytes.")
	build.Load(build.Param("n"), regRows)
	for i := range 14 {
		op("VPXORD", zmm[i], zmm[i], zmm[i])
	}
	rowLoop(func() {
		for i := range 12 {
			op("VPDPBUSD", zmm[12], zmm[13], zmm[i])
		}
	})
}
