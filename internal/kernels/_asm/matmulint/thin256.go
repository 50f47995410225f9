package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// thin256 is a row block of a format that takes longer to unpack than memory takes to yield it, times one token: both
// halves at once, so that an activation that was broadcast is used twice.
type thin256 struct {
	mode                            mode256
	f                               *format
	acc, sums, d, dmin, line, above [2]reg.VecPhysical // by half
	act, tmp                        reg.VecPhysical
	masks                           [2]reg.VecPhysical
	first                           bool // of a group's products
}

// regScales is where 16-bit scales and minima of a group lie.
var regScales = regConst

func thinVec256(mode mode256, f *format) {
	product(fmt.Sprintf("vec%s%sx1", mode.name, f.name), productParams, "multiplies packed weights with the activations of 1 tokens.")
	y := func(i int) [2]reg.VecPhysical { return [2]reg.VecPhysical(ymm[i:]) }
	k := &thin256{mode: mode, f: f, acc: y(0), sums: y(2), d: y(4), dmin: y(6), line: y(8), above: y(10), act: ymm[12], tmp: ymm[13], masks: y(14)}
	op("LEAQ", build.AllocLocal(96), regScales)
	op("ADDQ", imm(31), regScales)
	op("ANDQ", operand.I8(-32), regScales)
	op("VMOVDQU", bytes256[0x03], k.masks[0])
	op("VMOVDQU", bytes256[0x0c], k.masks[1])
	rowLoop(func() {
		for _, a := range k.acc {
			op("VXORPS", a, a, a)
		}
		firstRecord(f.group)
		blockLoop(f, k.head, func() {
			fetching(regW, f.blockBytes(), func() {
				for h := range f.groups() {
					k.group(h)
				}
			})
			op("ADDQ", operand.U32(f.blockBytes()), regW)
			nextRecord(1, f.group)
		})
		for r, a := range k.acc {
			store256([]reg.VecPhysical{a}, k.tmp, fmt.Sprint("store", r), true)
		}
	}, fence)
}

// head reads the scales of the super-block.
func (k *thin256) head() {
	for r := range 2 {
		op("VCVTPH2PS", mem(regW, 16*r), k.d[r])
		op("VMULPS", scaled256[24], k.d[r], k.d[r])
		op("VCVTPH2PS", mem(regW, 32+16*r), k.dmin[r])
		op("VMULPS", scaled256[20], k.dmin[r], k.dmin[r])
	}
	op("ADDQ", operand.U32(k.f.headBytes()), regW)
}

func (k *thin256) group(h int) {
	op("VPMOVZXBW", mem(regW, 16*h), k.act)
	op("VPAND", words256[0x0f], k.act, k.tmp)
	op("VPAND", words256[0xf0], k.act, k.act)
	op("VMOVDQU", k.tmp, mem(regScales, 0))
	op("VMOVDQU", k.act, mem(regScales, 32))
	for r := range 2 {
		op("VMOVDQU", mem(regW, k.f.scaleBytes()+64*h+32*r), k.line[r])
		op("VPSRLD", imm(4), k.line[r], k.above[r])
	}
	k.first = true
	k.dots(k.line, k.masks[1], 4*h+1)
	k.dots(k.above, k.masks[1], 4*h+3)
	for _, s := range k.sums {
		if k.mode.vnni {
			op("VPSRAD", imm(2), s, s)
		} else {
			op("VPSRAW", imm(2), s, s)
		}
	}
	k.dots(k.line, k.masks[0], 4*h)
	k.dots(k.above, k.masks[0], 4*h+2)
	op("VBROADCASTSS", recScale(1, 0), k.act)
	for r, s := range k.sums {
		t := k.line[r]
		op("VCVTPH2PS", mem(regScales, 16*r), t)
		op("VMULPS", k.d[r], t, t)
		op("VMULPS", k.act, t, t)
		if !k.mode.vnni {
			op("VPMADDWD", ones256, s, s)
		}
		op("VCVTDQ2PS", s, s)
		op("VFMADD231PS", t, s, k.acc[r])
	}
	op("VBROADCASTSS", recSum(1, 0, 16, h), k.act)
	for r := range 2 {
		t := k.line[r]
		op("VCVTPH2PS", mem(regScales, 32+16*r), t)
		op("VMULPS", k.dmin[r], t, t)
		op("VFMADD231PS", k.act, t, k.acc[r])
	}
}

// dots adds the products of word g of a block, which lies under a mask.
func (k *thin256) dots(from [2]reg.VecPhysical, mask reg.VecPhysical, g int) {
	op("VPBROADCASTD", recQuant(1, 0).Offset(4*g), k.act)
	for r, s := range k.sums {
		op("VPAND", from[r], mask, k.tmp)
		switch {
		case k.mode.vnni:
			if k.first {
				op("VPXOR", s, s, s)
			}
			dpbusd(k.act, k.tmp, s)
		case k.first:
			op("VPMADDUBSW", k.act, k.tmp, s)
		default:
			op("VPMADDUBSW", k.act, k.tmp, k.tmp)
			op("VPADDW", k.tmp, s, s)
		}
	}
	k.first = false
}
