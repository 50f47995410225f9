package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// thin256 multiplies row blocks of 2 or 3 bits a quant, which take longer to unpack than memory takes to yield them, with
// one token. It does both halves at once, so that an activation that was broadcast is used twice, and shifts as little as it can:
// pairs that lie 2 bits too high are multiplied where they are, and the sum of their products is shifted.
type thin256 struct {
	mode                      mode256
	f                         *format
	acc, d, dmin, line, above [2]reg.VecPhysical    // by half
	sums                      [2][2]reg.VecPhysical // by group and half
	act, tmp                  reg.VecPhysical
	begun                     [2]bool         // whether sums of a group have a product
	low, high                 reg.VecPhysical // masks of quants: the lowest bits of a nibble, and those of pairs above them
}

// thin says whether a format has a thin256.
func (f *format) thin() bool { return f.bits == "two" || f.bits == "three" }

// regScales is where scales and minima of a group lie as 16 bits each.
var regScales = regConst

func thinVec256(mode mode256, f *format) {
	product(fmt.Sprintf("vec%s%sx1", mode.name, f.name), productParams, "multiplies packed weights with the activations of 1 tokens.")
	pair := func(i int) [2]reg.VecPhysical { return [2]reg.VecPhysical(ymm[i:]) }
	k := &thin256{mode: mode, f: f, acc: pair(0), d: pair(2), line: pair(4), above: pair(6), act: ymm[8], tmp: ymm[9], low: ymm[10]}
	if f.bits == "two" {
		k.sums, k.dmin, k.high = [2][2]reg.VecPhysical{pair(11), pair(11)}, pair(13), ymm[15]
		op("VMOVDQU", bytes256[0x03], k.low)
		op("VMOVDQU", bytes256[0x0c], k.high)
		op("LEAQ", build.AllocLocal(64+24), regScales) // the stack is aligned to 8 bytes
		op("ADDQ", imm(31), regScales)
		op("ANDQ", operand.I8(-32), regScales)
	} else {
		k.sums = [2][2]reg.VecPhysical{pair(11), pair(13)}
		op("VMOVDQU", bytes256[0x07], k.low)
	}
	rowLoop(func() {
		for _, a := range k.acc {
			op("VXORPS", a, a, a)
		}
		firstRecord(f.group)
		blockLoop(f, k.head, 1, func(from int) {
			fetching(regW, from, f.blockBytes(), func() {
				if f.bits == "two" {
					k.pairs()
				} else {
					k.triples()
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

// pairs multiplies a block of pairs, group by group.
func (k *thin256) pairs() {
	for h := range 2 {
		k.nibbles(h)
		k.start(h)
		for r := range 2 {
			op("VMOVDQU", k.quants(h, r), k.line[r])
			op("VPSRLD", imm(4), k.line[r], k.above[r])
		}
		k.dots(h, k.line, k.high, 1)
		k.dots(h, k.above, k.high, 3)
		for _, s := range k.sums[h] {
			if k.mode.vnni {
				op("VPSRAD", imm(2), s, s)
			} else {
				op("VPSRAW", imm(2), s, s)
			}
		}
		k.dots(h, k.line, k.low, 0)
		k.dots(h, k.above, k.low, 2)
		k.add(h)
	}
}

// triples multiplies a block of triples, whose lines have a word of both groups. The fourth line is that of the top bits of the others.
func (k *thin256) triples() {
	k.start(0)
	k.start(1)
	for i := range 4 {
		for r, line := range k.line {
			if i < 3 {
				op("VMOVDQU", k.quants(i, r), line)
			} else {
				k.topBits(r)
			}
			op("VPSRLD", imm(4), line, k.above[r])
		}
		k.dots(0, k.line, k.low, i)
		k.dots(1, k.above, k.low, i)
	}
	k.add(0)
	k.add(1)
}

// quants is where line i lies.
func (k *thin256) quants(i, half int) operand.Mem { return mem(regW, k.f.scaleBytes()+64*i+32*half) }

// topBits joins the top bits of nibbles.
func (k *thin256) topBits(half int) {
	for i := range 3 {
		t := k.tmp
		if i == 0 {
			t = k.line[half]
		}
		op("VMOVDQU", k.quants(i, half), t)
		op("VPSRLD", imm(3-i), t, t)
		op("VPAND", bytes256[0x11<<i], t, t)
		if i > 0 {
			op("VPOR", t, k.line[half], k.line[half])
		}
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

// start sets the sums of group h to what makes up for the zero point, where dots adds to them at once.
func (k *thin256) start(h int) {
	k.begun[h] = k.mode.vnni
	if !k.mode.vnni {
		return
	}
	for _, s := range k.sums[h] {
		startSum(s, k.f.zero, recInit(1, 0, 16, h))
	}
}

// dots adds the products of word g of group h, which lies under a mask.
func (k *thin256) dots(h int, from [2]reg.VecPhysical, mask reg.VecPhysical, g int) {
	op("VPBROADCASTD", recQuant(1, 0).Offset(16*h+4*g), k.act)
	for r, s := range k.sums[h] {
		op("VPAND", from[r], mask, k.tmp)
		switch {
		case k.mode.vnni:
			dpbusd(k.act, k.tmp, s)
		case !k.begun[h]:
			op("VPMADDUBSW", k.act, k.tmp, s)
		default:
			op("VPMADDUBSW", k.act, k.tmp, k.tmp)
			op("VPADDW", k.tmp, s, s)
		}
	}
	k.begun[h] = true
}

// widen makes the sums of group h those of 32 bits.
func (k *thin256) widen(h int) {
	for _, s := range k.sums[h] {
		op("VPMADDWD", words256[0x01], s, s)
	}
	if k.f.zero == 0 {
		return
	}
	startSum(k.act, k.f.zero, recInit(1, 0, 16, h))
	for _, s := range k.sums[h] {
		op("VPADDD", k.act, s, s)
	}
}

// add adds the sums of group h, times scales, and the minima to the results.
func (k *thin256) add(h int) {
	if !k.mode.vnni {
		k.widen(h)
	}
	op("VBROADCASTSS", recScale(1, 0), k.act)
	for r, s := range k.sums[h] {
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
