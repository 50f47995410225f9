package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// thin256 multiplies row blocks of 2 or 3 bits a quant, which take longer to unpack than memory takes to yield them, with
// one token. It does both halves at once, so that an activation that was broadcast is used twice, and shifts no more than it must:
// quants that lie too high by as much as others are shifted when their products have been added.
type thin256 struct {
	mode                            mode256
	f                               *format
	acc, sums, d, dmin, line, above [2]reg.VecPhysical // by half
	act, tmp                        reg.VecPhysical
	low, high                       reg.VecPhysical // masks of a quant in line and in above
}

// thin says whether a format has a thin256.
func (f *format) thin() bool { return f.bits == "two" || f.bits == "three" }

// regScales is where scales and minima of a group lie as 16 bits each.
var regScales = regConst

func thinVec256(mode mode256, f *format) {
	product(fmt.Sprintf("vec%s%sx1", mode.name, f.name), productParams, "multiplies packed weights with the activations of 1 tokens.")
	pair := func(i int) [2]reg.VecPhysical { return [2]reg.VecPhysical(ymm[i:]) }
	k := &thin256{mode: mode, f: f, acc: pair(0), sums: pair(2), d: pair(4), dmin: pair(6), line: pair(8), above: pair(10),
		act: ymm[12], tmp: ymm[13], low: ymm[14], high: ymm[15]}
	if f.bits == "two" {
		op("VMOVDQU", bytes256[0x03], k.low)
		op("VMOVDQU", bytes256[0x0c], k.high)
		op("LEAQ", build.AllocLocal(64+24), regScales) // the stack is aligned to 8 bytes
		op("ADDQ", imm(31), regScales)
		op("ANDQ", operand.I8(-32), regScales)
	} else {
		op("VMOVDQU", bytes256[0x07], k.low)
	}
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
		if k.f.min {
			op("VCVTPH2PS", mem(regW, 32+16*r), k.dmin[r])
			// See nibbles.
			op("VMULPS", power256[24], k.d[r], k.d[r])
			op("VMULPS", power256[24-4], k.dmin[r], k.dmin[r])
		}
	}
	op("ADDQ", operand.U32(k.f.headBytes()), regW)
}

// group multiplies a group of 16 values.
func (k *thin256) group(h int) {
	if k.f.scale == "nibbles" {
		k.nibbles(h)
	}
	k.products(h)
	op("VBROADCASTSS", recScale(1, 0), k.act)
	for r, s := range k.sums {
		scale := k.line[r]
		if k.f.scale == "nibbles" {
			op("VCVTPH2PS", mem(regScales, 16*r), scale)
		} else {
			op("VPMOVSXBD", mem(regW, 16*h+8*r), scale)
			op("VCVTDQ2PS", scale, scale)
		}
		op("VMULPS", k.d[r], scale, scale)
		op("VMULPS", k.act, scale, scale)
		op("VCVTDQ2PS", s, s)
		op("VFMADD231PS", scale, s, k.acc[r])
	}
	if !k.f.min {
		return
	}
	op("VBROADCASTSS", recSum(1, 0, 16, h), k.act)
	for r, a := range k.acc {
		minimum := k.line[r]
		op("VCVTPH2PS", mem(regScales, 32+16*r), minimum)
		op("VMULPS", k.dmin[r], minimum, minimum)
		op("VFMADD231PS", k.act, minimum, a)
	}
}

// nibbles brings sub-scales and minima of all rows into words of 16 bits. Read as floats, those are subnormal, n * 2^-24,
// and need no conversion of integers; minima stay where they are, 4 bits higher.
func (k *thin256) nibbles(h int) {
	scales, minima := k.act, k.tmp
	op("VPMOVZXBW", mem(regW, 16*h), scales)
	op("VPAND", words256[0xf0], scales, minima)
	op("VPAND", words256[0x0f], scales, scales)
	op("VMOVDQU", scales, mem(regScales, 0))
	op("VMOVDQU", minima, mem(regScales, 32))
}

// products makes the sums of a group.
func (k *thin256) products(h int) {
	for _, s := range k.sums {
		if k.mode.vnni && k.f.zero == 0 {
			op("VPXOR", s, s, s)
		}
	}
	if k.mode.vnni && k.f.zero != 0 {
		k.zero(h)
		for _, s := range k.sums {
			op("VMOVDQU", k.act, s)
		}
	}
	switch k.f.bits {
	case "two":
		k.fetch(h)
		k.dots(k.line, k.high, 4*h+1, true)
		k.dots(k.above, k.high, 4*h+3, false)
		for _, s := range k.sums {
			if k.mode.vnni {
				op("VPSRAD", imm(2), s, s)
			} else {
				op("VPSRAW", imm(2), s, s)
			}
		}
		k.dots(k.line, k.low, 4*h, false)
		k.dots(k.above, k.low, 4*h+2, false)
	case "three":
		for i := range 2 {
			k.fetch(2*h + i)
			k.dots(k.line, k.low, 4*h+i, i == 0)
			k.dots(k.above, k.low, 4*h+i+2, false)
		}
	}
	if k.mode.vnni {
		return
	}
	for _, s := range k.sums {
		op("VPMADDWD", ones256, s, s)
	}
	if k.f.zero != 0 {
		k.zero(h)
		for _, s := range k.sums {
			op("VPADDD", k.act, s, s)
		}
	}
}

// zero brings what makes up for the zero point, 4, to act.
func (k *thin256) zero(h int) {
	op("VPBROADCASTD", recInit(1, 0, 16, h), k.act)
	op("VPSRAD", imm(5), k.act, k.act)
}

// fetch brings line i of quants into registers, and 4 bits further down. Of triples there are three; the fourth is that of the top bits of
// their nibbles.
func (k *thin256) fetch(i int) {
	for r, line := range k.line {
		at := func(i int) operand.Mem { return mem(regW, k.f.scaleBytes()+64*i+32*r) }
		if i < 3 {
			op("VMOVDQU", at(i), line)
		} else {
			for i := range 3 {
				t := k.tmp
				if i == 0 {
					t = line
				}
				op("VMOVDQU", at(i), t)
				op("VPSRLD", imm(3-i), t, t)
				op("VPAND", bytes256[0x11<<i], t, t)
				if i > 0 {
					op("VPOR", t, line, line)
				}
			}
		}
		op("VPSRLD", imm(4), line, k.above[r])
	}
}

// dots adds the products of word g of the block, or makes the first of them.
func (k *thin256) dots(from [2]reg.VecPhysical, mask reg.VecPhysical, g int, first bool) {
	op("VPBROADCASTD", recQuant(1, 0).Offset(4*g), k.act)
	for r, s := range k.sums {
		op("VPAND", from[r], mask, k.tmp)
		switch {
		case k.mode.vnni:
			dpbusd(k.act, k.tmp, s)
		case first:
			op("VPMADDUBSW", k.act, k.tmp, s)
		default:
			op("VPMADDUBSW", k.act, k.tmp, k.tmp)
			op("VPADDW", k.tmp, s, s)
		}
	}
}
