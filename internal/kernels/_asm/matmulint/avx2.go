package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The functions for 256-bit registers work on half a row block at a time, 8 rows: all blocks of
// the first half, then all of the second, whose weights lie 32 bytes further. They come with
// the dot products of AVX-VNNI, and without:
//
//   - quants up to 63 ("small") are multiplied with VPMADDUBSW, whose sums of two products
//     stay below 2^14; two such sums are added, then widened, or, with one or two tokens, four where
//     quants are up to 32, as thin256 does too;
//   - others ("wide") are made signed, their magnitudes multiplied with activations that took
//     over their signs; sums of two stay below 2^15 as activations are never -128.
//
// With one token both halves are multiplied in one pass; formats of 2 and 3 bits have thin256 for that.

// mode256 is a tier with 256-bit registers.
type mode256 struct {
	name string
	vnni bool
}

const maxTile256 = 4

func avx2() {
	constants256()
	for _, mode := range []mode256{{"AVX2", false}, {"VNNI", true}} {
		for i := range formats {
			for _, c := range []int{1, 2, 4} {
				if formats[i].thin() && c == 1 {
					thinVec256(mode, &formats[i])
					continue
				}
				vec256(mode, &formats[i], c)
			}
			expand256(mode, &formats[i])
		}
		for _, group := range []int{32, 16} {
			for _, min := range []bool{false, true} {
				for _, c := range []int{1, 2, maxTile256} {
					tile256(mode, group, min, false, c)
				}
			}
		}
	}
	for _, c := range []int{1, 2, maxTile256} {
		tile256(mode256{"AVX2", false}, 32, false, true, c)
	}
}

// wide says whether a format has quants of 8 bits.
func (f *format) wide() bool { return f.zero == 128 && f.table != "e2m1Doubled" }

// zeroIn is the quant that means 0 when a mode computes with it.
func (m mode256) zeroIn(f *format) int {
	switch {
	case m.vnni:
		return f.zero
	case f.wide():
		return 0
	case f.table != "":
		return 16
	}
	return f.zero
}

// Constants: of 32 bytes with each byte, word of 16 bits or float, a power of 2, the same, and tables of nibbles.
var bytes256, words256, power256, tables256 = map[int]operand.Mem{}, map[int]operand.Mem{}, map[int]operand.Mem{}, map[string]operand.Mem{}

func constants256() {
	constant := func(name string, v uint64) operand.Mem {
		m := build.GLOBL(name, attr.RODATA|attr.NOPTR)
		for i := range 4 {
			build.DATA(8*i, operand.U64(v))
		}
		return m
	}
	for _, v := range []uint8{0x01, 0x02, 0x03, 0x04, 0x07, 0x0c, 0x0f, 0x10, 0x11, 0x22, 0x30, 0x44, 0x80} {
		bytes256[int(v)] = constant(fmt.Sprintf("bytes%02x", v), uint64(v)*0x0101010101010101)
	}
	for _, v := range []uint16{0x01, 0x0f, 0xf0} {
		words256[int(v)] = constant(fmt.Sprintf("words%x", v), uint64(v)*0x0001000100010001)
	}
	for _, n := range []int{20, 24} {
		power256[n] = constant(fmt.Sprintf("power%d", n), uint64(127+n)<<23*0x0000000100000001)
	}
	for _, t := range []struct {
		name   string
		offset int
	}{{"nonLinear4", 0}, {"nonLinear4", 128}, {"e2m1Doubled", 16}, {"e2m1Doubled", 128}} {
		name := fmt.Sprintf("%sPlus%d", t.name, t.offset)
		tables256[name] = build.GLOBL(name, attr.RODATA|attr.NOPTR)
		for i, v := range tables[t.name] {
			build.DATA(i, operand.U8(uint8(v+t.offset)))
		}
	}
}

// Registers of the functions for half a row block, see main.go for the others.
var (
	regQuants = reg.R13 // weights of the block, from which quants are read
	regHalves = reg.R9  // from which f16 are read
	regBytes  = reg.R15 // from which bytes are read
	regHalf   = reg.RSI // 0 or 32
)

// lanes256 are 8 rows of weights and the sums of some tokens.
type lanes256 struct {
	mode      mode256
	f         *format
	c         int
	acc, sums []reg.VecPhysical
	w, t      []reg.VecPhysical // quants, temporaries
	table, s  reg.VecPhysical
	heads     []reg.VecPhysical // scales of the super-block, or none if registers are too few
	half      int               // 1 for the second half of the row block at which pointers are
}

// few is the number of tokens that leave registers free.
const few = 2

func newLanes256(mode mode256, f *format, c int) *lanes256 {
	l := &lanes256{mode: mode, f: f, c: c, acc: ymm[0:c], sums: ymm[4 : 4+c], w: ymm[8:10], t: ymm[10:14], table: ymm[14], s: ymm[15]}
	if c <= few {
		l.heads = []reg.VecPhysical{ymm[3], ymm[7]}
	}
	return l
}

// second returns the lanes of the other half of the row block, for one token.
func (l *lanes256) second() *lanes256 {
	m := *l
	m.half, m.acc, m.sums, m.heads = 1, ymm[1:2], ymm[5:6], []reg.VecPhysical{ymm[2], ymm[6]}
	return &m
}

// quants, halves and bytes are where the lanes' part of what is disp bytes from a pointer lies, by the size of an element.
func (l *lanes256) quants(disp int) operand.Mem { return mem(regQuants, disp+32*l.half) }
func (l *lanes256) halves(base reg.Register, disp int) operand.Mem {
	return mem(base, disp+16*l.half)
}
func (l *lanes256) bytes(disp int) operand.Mem { return mem(regBytes, disp+8*l.half) }

// word unpacks word g of the block into dst.
func (l *lanes256) word(g int, dst reg.VecPhysical) {
	at := func(i int) operand.Mem { return l.quants(l.f.scaleBytes() + 64*i) }
	tmp := l.t[3]
	shifted := func(from operand.Mem, right int, r reg.VecPhysical) {
		op("VMOVDQU", from, r)
		if right > 0 {
			op("VPSRLD", imm(right), r, r)
		} else if right < 0 {
			op("VPSLLD", imm(-right), r, r)
		}
	}
	// or sets bits that lie right places too high in memory.
	or := func(from operand.Mem, right, mask int) {
		shifted(from, right, tmp)
		op("VPAND", bytes256[mask], tmp, tmp)
		op("VPOR", tmp, dst, dst)
	}
	switch l.f.bits {
	case "nib", "nib1", "nib2":
		shifted(at(g%4), g/4*4, dst)
		op("VPAND", bytes256[0x0f], dst, dst)
	case "two":
		shifted(at(g/4), g%4*2, dst)
		op("VPAND", bytes256[0x03], dst, dst)
	case "three":
		up := g / 4 * 4
		if g%4 < 3 {
			shifted(at(g%4), up, dst)
			op("VPAND", bytes256[0x07], dst, dst)
			break
		}
		shifted(at(0), up+3, dst)
		op("VPAND", bytes256[0x01], dst, dst)
		or(at(1), up+2, 0x02)
		or(at(2), up+1, 0x04)
	case "byte":
		op("VMOVDQU", at(g), dst)
	}
	switch l.f.bits {
	case "nib1":
		or(at(4), g-4, 0x10)
	case "nib2":
		or(at(4+g/4), g%4*2-4, 0x30)
	}
	if l.f.table != "" {
		op("VPSHUFB", dst, l.table, dst)
	}
	if l.f.bits == "byte" && !l.mode.vnni {
		op("VPXOR", bytes256[0x80], dst, dst)
	}
}

// loadTable loads the table of the format, if it has one.
func (l *lanes256) loadTable() {
	if l.f.table == "" {
		return
	}
	offset := 128
	if !l.mode.vnni {
		offset = l.mode.zeroIn(l.f)
	}
	op("VBROADCASTI128", tables256[fmt.Sprintf("%sPlus%d", l.f.table, offset)], l.table)
}

// dpbusd is VPDPBUSD as AVX-VNNI encodes it: sum += w (unsigned) * act (signed).
func dpbusd(act, w, sum reg.VecPhysical) {
	a, u, s := uint32(act.PhysicalIndex()), uint32(w.PhysicalIndex()), uint32(sum.PhysicalIndex())
	b1 := (1-s>>3)<<7 | 1<<6 | (1-a>>3)<<5 | 2
	b2 := (15-u)<<3 | 1<<2 | 1
	together(func() {
		build.Comment(fmt.Sprintf("VPDPBUSD Y%d, Y%d, Y%d", a, u, s))
		op("LONG", operand.U32(0xc4|b1<<8|b2<<16|0x50<<24))
		op("BYTE", operand.U8(0xc0|s&7<<3|a&7))
	})
}

// batch is how many words' products are added in 16 bits, where they fit.
func (l *lanes256) batch() int {
	if l.c <= few && l.f != nil && l.f.bits != "nib2" {
		return 4
	}
	return 2
}

// init sets the sums to what makes up for the zero point.
func (l *lanes256) init(group, half, zero int) {
	for c, s := range l.sums {
		startSum(s, zero, recInit(l.c, c, group, half))
	}
}

// startSum sets a sum to what makes up for the zero point.
func startSum(s reg.VecPhysical, zero int, record operand.Mem) {
	if zero == 0 {
		op("VPXOR", s, s, s)
		return
	}
	op("VPBROADCASTD", record, s)
	if n := zeroShift[zero]; n > 0 {
		op("VPSRAD", imm(n), s, s)
	}
}

// products adds the products of the words of a group, which word brings into registers.
func (l *lanes256) products(group, half int, wide bool, word func(g int, dst reg.VecPhysical)) {
	act := func(c, g int, dst reg.VecPhysical) {
		op("VPBROADCASTD", recQuant(l.c, c).Offset(4*g), dst)
	}
	first := half * group / 4
	for g := first; g < first+group/4; g++ {
		switch {
		case l.mode.vnni:
			w := l.w[g%2]
			word(g, w)
			for c, s := range l.sums {
				act(c, g, l.t[c%3])
				dpbusd(l.t[c%3], w, s)
			}
		case wide:
			word(g, l.w[0])
			op("VPABSB", l.w[0], l.w[1])
			for c, s := range l.sums {
				t := l.t[c%3]
				act(c, g, t)
				op("VPSIGNB", l.w[0], t, t)
				op("VPMADDUBSW", t, l.w[1], t)
				op("VPMADDWD", words256[0x01], t, t)
				op("VPADDD", t, s, s)
			}
		default:
			l.small(g, word, act)
		}
	}
}

// small multiplies word g, whose quants are small, and widens sums at the end of a batch.
func (l *lanes256) small(g int, word func(g int, dst reg.VecPhysical), act func(c, g int, dst reg.VecPhysical)) {
	batch := l.batch()
	word(g, l.w[g%2])
	if batch == 2 { // both words wait for each other, and not the sums of many tokens
		if g%2 == 0 {
			return
		}
		for c, s := range l.sums {
			a, b := l.t[c%2*2], l.t[c%2*2+1]
			act(c, g-1, a)
			act(c, g, b)
			op("VPMADDUBSW", a, l.w[0], a)
			op("VPMADDUBSW", b, l.w[1], b)
			op("VPADDW", b, a, a)
			l.widen(a, s)
		}
		return
	}
	for c, s := range l.sums {
		sum, t := l.t[2*c], l.t[2*c+1]
		if g%batch == 0 {
			act(c, g, sum)
			op("VPMADDUBSW", sum, l.w[g%2], sum)
			continue
		}
		act(c, g, t)
		op("VPMADDUBSW", t, l.w[g%2], t)
		op("VPADDW", t, sum, sum)
		if g%batch == batch-1 {
			l.widen(sum, s)
		}
	}
}

// widen adds pairs of 16-bit sums.
func (l *lanes256) widen(sum, s reg.VecPhysical) {
	op("VPMADDWD", words256[0x01], sum, sum)
	op("VPADDD", sum, s, s)
}

// accumulate adds the sums, times the scales in s and those of the tokens.
func (l *lanes256) accumulate() {
	for c, s := range l.sums {
		t := l.t[c%3]
		op("VBROADCASTSS", recScale(l.c, c), t)
		op("VMULPS", l.s, t, t)
		op("VCVTDQ2PS", s, s)
		op("VFMADD231PS", t, s, l.acc[c])
	}
}

// minimum adds the minima in s.
func (l *lanes256) minimum(group, half int) {
	for c, a := range l.acc {
		t := l.t[c%3]
		op("VBROADCASTSS", recSum(l.c, c, group, half), t)
		op("VFMADD231PS", t, l.s, a)
	}
}

// scale and min read those of group h into s.
func (l *lanes256) scale(h int) {
	f, t := l.f, l.t[0]
	at := l.bytes(16 * h)
	switch f.scale {
	case "f16":
		op("VCVTPH2PS", l.halves(regHalves, 0), l.s)
	case "e8m0": // see weights512.scales
		one := l.t[1]
		op("VPCMPEQD", one, one, one)
		op("VPSRLD", imm(31), one, one)
		op("VPMOVZXBD", at, l.s)
		op("VPMINUD", one, l.s, t)
		op("VPADDD", one, t, t)
		op("VPSLLD", imm(21), t, t)
		op("VPSUBD", one, l.s, l.s)
		op("VPSLLD", imm(23), l.s, l.s)
		op("VPMAXSD", t, l.s, l.s)
	default:
		if f.signed {
			op("VPMOVSXBD", at, l.s)
		} else {
			op("VPMOVZXBD", at, l.s)
		}
		if f.scale == "nibbles" {
			op("VPAND", bytes256[0x0f], l.s, l.s)
		}
		l.times(0)
	}
}

func (l *lanes256) min(h int) {
	switch l.f.scale {
	case "f16":
		op("VCVTPH2PS", l.halves(regHalves, 32), l.s)
	case "bytes":
		op("VPMOVZXBD", l.bytes(16*l.f.groups()+16*h), l.s)
		l.times(32)
	case "nibbles":
		op("VPMOVZXBD", l.bytes(16*h), l.s)
		op("VPSRLD", imm(4), l.s, l.s)
		l.times(32)
	}
}

// head reads the scales of the super-block, which are at regPtr.
func (l *lanes256) head() {
	if l.heads == nil {
		return
	}
	op("VCVTPH2PS", l.halves(regPtr, 0), l.heads[0])
	if l.f.min {
		op("VCVTPH2PS", l.halves(regPtr, 32), l.heads[1])
	}
}

// times multiplies the integers in s with the scales of the super-block.
func (l *lanes256) times(disp int) {
	op("VCVTDQ2PS", l.s, l.s)
	if l.heads != nil {
		op("VMULPS", l.heads[disp/32], l.s, l.s)
		return
	}
	op("VCVTPH2PS", l.halves(regPtr, disp), l.t[0])
	op("VMULPS", l.t[0], l.s, l.s)
}

// halves256 runs body for both halves of every row block, from the packed weights at regW on.
func halves256(f *format, start, head, body, end func()) {
	rowLoop(func() {
		op("XORQ", regHalf, regHalf)
		build.Label("half")
		start()
		op("MOVQ", regHalf, regBytes)
		op("SHRQ", imm(2), regBytes)
		op("LEAQ", operand.Mem{Base: regW, Index: regBytes, Scale: 2}, regHalves)
		op("ADDQ", regW, regBytes)
		op("LEAQ", operand.Mem{Base: regW, Index: regHalf, Scale: 1}, regQuants)
		blocks256(f, head, body)
		end()
		op("XORQ", imm(32), regHalf)
		build.JNZ(operand.LabelRef("half"))
		op("LEAQ", mem(regQuants, -32), regW)
	})
}

// wholes256 is halves256 for a body that takes both halves, and stores around the caches.
func wholes256(f *format, start, head, body, end func()) {
	rowLoop(func() {
		start()
		for _, r := range []reg.Register{regQuants, regHalves, regBytes} {
			op("MOVQ", regW, r)
		}
		blocks256(f, head, body)
		end()
		op("MOVQ", regQuants, regW)
	}, fence)
}

// blocks256 runs body for every block, and head before each super-block.
func blocks256(f *format, head, body func()) {
	step := func(n int) {
		for _, r := range []reg.Register{regQuants, regHalves, regBytes} {
			op("ADDQ", operand.U32(n), r)
		}
	}
	build.Load(build.Param("blocks"), regLeft)
	build.Label("block")
	if f.super {
		op("MOVQ", regHalves, regPtr)
		head()
		step(f.headBytes())
		op("MOVQ", operand.U32(8), regInner)
		build.Label("inner")
	}
	body()
	step(f.blockBytes())
	if f.super {
		op("DECQ", regInner)
		build.JNZ(operand.LabelRef("inner"))
	}
	op("DECQ", regLeft)
	build.JNZ(operand.LabelRef("block"))
}

// start256 begins with the first block of the activations.
func start256(group int) {
	build.Load(build.Param("acts"), regX)
	if group == 16 {
		build.Load(build.Param("sums16"), regX16)
	}
}

// store256 adds the bias and stores the sums of half a row block, then steps on.
func store256(acc []reg.VecPhysical, tmp reg.VecPhysical, label string, around bool) {
	op("TESTQ", regBias, regBias)
	build.JZ(operand.LabelRef(label))
	op("VMOVUPS", mem(regBias, 0), tmp)
	for _, a := range acc {
		op("VADDPS", tmp, a, a)
	}
	op("ADDQ", imm(32), regBias)
	build.Label(label)
	if around {
		storeAround(acc[0], 32, label)
		op("ADDQ", imm(32), regOut)
		return
	}
	op("MOVQ", regOut, regPtr)
	for i, a := range acc {
		op("VMOVUPS", a, mem(regPtr, 0))
		if i+1 < len(acc) {
			op("ADDQ", regStride, regPtr)
		}
	}
	op("ADDQ", imm(32), regOut)
}

// product256 is product without what it loads again and again.
func product256(name, params, doc string) {
	build.TEXT(name, attr.NOSPLIT, "func("+params+")")
	build.Pragma("noescape")
	build.Doc(name + " " + doc)
	build.Load(build.Param("w"), regW)
	build.Load(build.Param("out"), regOut)
	build.Load(build.Param("bias"), regBias)
	build.Load(build.Param("n"), regRows)
	build.Load(build.Param("outStride"), regStride)
	op("SHLQ", imm(2), regStride)
}

func vec256(mode mode256, f *format, c int) {
	product256(fmt.Sprintf("vec%s%sx%d", mode.name, f.name, c), productParams, fmt.Sprintf("multiplies packed weights with the activations of %d tokens.", c))
	l := newLanes256(mode, f, c)
	l.loadTable()
	wide := f.wide() && !mode.vnni
	// With one token, which is when memory is read, a row block is read once: two passes would wait for it in the first.
	loop, halves := halves256, []*lanes256{l}
	if c == 1 {
		loop, halves = wholes256, append(halves, l.second())
	}
	each := func(do func(l *lanes256)) func() {
		return func() {
			for _, l := range halves {
				do(l)
			}
		}
	}
	loop(f, func() {
		each(func(l *lanes256) {
			for _, a := range l.acc {
				op("VXORPS", a, a, a)
			}
		})()
		start256(f.group)
	}, each((*lanes256).head), func() {
		fetching(regQuants, 0, f.blockBytes(), func() {
			for h := range f.groups() {
				each(func(l *lanes256) {
					l.init(f.group, h, mode.zeroIn(f))
					l.products(f.group, h, wide, l.word)
					l.scale(h)
					l.accumulate()
					if f.min {
						l.min(h)
						l.minimum(f.group, h)
					}
				})()
			}
		})
		nextRecord(c, f.group)
	}, each(func(l *lanes256) { store256(l.acc, l.s, fmt.Sprint("store", l.half), c == 1) }))
}

func expand256(mode mode256, f *format) {
	name := "expand" + mode.name + f.name
	build.TEXT(name, attr.NOSPLIT, "func(w, dst *byte, blocks, rowBlocks int)")
	build.Pragma("noescape")
	build.Doc(name + " brings packed weights into the form that the tile functions read.")
	build.Load(build.Param("w"), regW)
	build.Load(build.Param("dst"), regX)
	build.Load(build.Param("rowBlocks"), regRows)
	l := newLanes256(mode, f, 1)
	l.loadTable()
	want, add := 128, l.sums[0]
	switch {
	case !mode.vnni && f.wide():
		want = 0
	case !mode.vnni:
		want = 32
	}
	offset := want - mode.zeroIn(f)
	if offset != 0 {
		scalar(add, xmm[add.PhysicalIndex()], "VPBROADCASTB", uint32(uint8(offset)))
	}
	halves256(f, func() {
		op("LEAQ", operand.Mem{Base: regX, Index: regHalf, Scale: 1}, regOut)
	}, l.head, func() {
		for g := range 8 {
			w := l.w[g%2]
			l.word(g, w)
			if offset != 0 {
				op("VPADDB", add, w, w)
			}
			op("VMOVDQU", w, mem(regOut, 64*g))
		}
		for h := range f.groups() {
			l.scale(h)
			op("VMOVUPS", l.s, mem(regOut, expScale(h)))
			if f.min {
				l.min(h)
				op("VMOVUPS", l.s, mem(regOut, expMin(f.group, h)))
			}
		}
		op("ADDQ", operand.U32(expBytes(f.group, f.min)), regOut)
	}, func() {
		op("CMPQ", regHalf, imm(0))
		build.JEQ(operand.LabelRef("again"))
		op("LEAQ", mem(regOut, -32), regX)
		build.Label("again")
	})
}

func tile256(mode mode256, group int, minimum, wide bool, c int) {
	name := tileName("tile"+mode.name, group, minimum, c)
	zero := 32
	switch {
	case mode.vnni:
		zero = 128
	case wide:
		name, zero = tileName("tile"+mode.name+"wide", group, minimum, c), 0
	}
	product256(name, partParams, fmt.Sprintf("multiplies row blocks of expanded weights with a tile of %d tokens.", c))
	l := newLanes256(mode, nil, c)
	rowLoop(func() {
		op("XORQ", regHalf, regHalf)
		build.Label("half")
		begin("VXORPS", byToken(l.acc, c), 32)
		start256(group)
		op("LEAQ", operand.Mem{Base: regW, Index: regHalf, Scale: 1}, regQuants)
		build.Load(build.Param("blocks"), regLeft)
		build.Label("block")
		for h := range 32 / group {
			l.init(group, h, zero)
			l.products(group, h, wide, func(g int, dst reg.VecPhysical) { op("VMOVDQU", mem(regQuants, 64*g), dst) })
			op("VMOVUPS", mem(regQuants, expScale(h)), l.s)
			l.accumulate()
			if minimum {
				op("VMOVUPS", mem(regQuants, expMin(group, h)), l.s)
				l.minimum(group, h)
			}
		}
		op("ADDQ", operand.U32(expBytes(group, minimum)), regQuants)
		nextRecord(c, group)
		op("DECQ", regLeft)
		build.JNZ(operand.LabelRef("block"))
		store256(l.acc, l.s, "store", false)
		op("XORQ", imm(32), regHalf)
		build.JNZ(operand.LabelRef("half"))
		op("LEAQ", mem(regQuants, -32), regW)
	})
}
