package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var zmm = [32]reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

func avx512() {
	tables512()
	quantizeTables()
	quantize512()
	quantizeTile512(maxTile512)
	quantizeTile512(amxTokens)
	quantize256()
	for i := range formats {
		for _, c := range []int{1, 2, 4, maxTile512} {
			vec512(&formats[i], c)
		}
		expand512(&formats[i], false)
	}
	for _, group := range []int{32, 16} {
		for _, min := range []bool{false, true} {
			for _, c := range []int{1, 2, 4, maxTile512} {
				tile512(group, min, c)
			}
			pair512(group, min)
		}
	}
}

var tables = map[string][16]int{
	"nonLinear4":  {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
	"e2m1Doubled": {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
}

var tableOf = map[string]operand.Mem{}

// tables512 writes the tables of nibbles, with 128 added.
func tables512() {
	for _, name := range []string{"nonLinear4", "e2m1Doubled"} {
		tableOf[name] = build.GLOBL(name+"Biased", attr.RODATA|attr.NOPTR)
		for i, v := range tables[name] {
			build.DATA(i, operand.U8(v+128))
		}
	}
}

// weights512 are the registers of a block of weights while it is multiplied.
type weights512 struct {
	f          *format
	w          [8]reg.VecPhysical // quants: 4 values of each of 16 rows
	scale, min [2]reg.VecPhysical // by group
	d, dmin    reg.VecPhysical    // scales of the super-block
	low        reg.VecPhysical    // mask of the low bits
	high       reg.VecPhysical    // mask of the bits above, or a constant that scales need
	table      reg.VecPhysical    // of nibbles
	masks      [2]reg.VecPhysical // of triples, which have neither of these: masks of the top bits gathered so far
	tmp        reg.VecPhysical
}

// take hands out registers from 31 downwards.
type pool512 int

func (p *pool512) take() reg.VecPhysical {
	*p--
	return zmm[*p]
}

func newWeights512(f *format, p *pool512) *weights512 {
	u := &weights512{f: f}
	for i := range u.w {
		u.w[i] = p.take()
	}
	for g := range f.groups() {
		u.scale[g] = p.take()
		if f.min {
			u.min[g] = p.take()
		}
	}
	if f.super {
		u.d = p.take()
		if f.min {
			u.dmin = p.take()
		}
	}
	u.tmp = p.take()
	u.low = p.take()
	if f.bits == "three" {
		u.masks = [2]reg.VecPhysical{p.take(), p.take()}
	} else {
		u.high = p.take()
		u.table = p.take()
	}
	return u
}

func broadcast512(r reg.VecPhysical, v uint32) {
	op("MOVL", operand.U32(v), reg.R13L)
	op("VPBROADCASTD", reg.R13L, r)
}

// constants loads what does not change from block to block.
func (u *weights512) constants() {
	switch u.f.bits {
	case "nib":
		broadcast512(u.low, 0x0f0f0f0f)
	case "nib1":
		broadcast512(u.low, 0x0f0f0f0f)
		broadcast512(u.high, 0x10101010)
	case "nib2":
		broadcast512(u.low, 0x0f0f0f0f)
		broadcast512(u.high, 0x30303030)
	case "two":
		broadcast512(u.low, 0x03030303)
	case "three":
		broadcast512(u.low, 0x07070707)
		broadcast512(u.masks[0], 0x11111111)
		broadcast512(u.masks[1], 0x33333333)
	}
	if u.f.table != "" {
		op("VBROADCASTI32X4", tableOf[u.f.table], u.table)
	}
	if u.f.scale == "e8m0" {
		broadcast512(u.high, 1)
	}
	if u.f.scale == "nibbles" {
		broadcast512(u.high, 15)
	}
}

// head reads the scales of a super-block and steps over them.
func (u *weights512) head() {
	op("VCVTPH2PS", mem(regW, 0), u.d)
	if u.f.min {
		op("VCVTPH2PS", mem(regW, 32), u.dmin)
	}
	op("ADDQ", operand.U32(u.f.headBytes()), regW)
}

// scales reads the scales and minima of a block.
func (u *weights512) scales() {
	f, n := u.f, u.f.groups()
	for g := range n {
		s, m := u.scale[g], u.min[g]
		at := mem(regW, 16*g)
		switch f.scale {
		case "f16":
			op("VCVTPH2PS", mem(regW, 0), s)
			if f.min {
				op("VCVTPH2PS", mem(regW, 32), m)
			}
		case "e8m0":
			// 2^(e-128) is e-1 in the exponent, and a single bit of the fraction for 0 and 1.
			op("VPMOVZXBD", at, s)
			op("VPMINUD", u.high, s, u.tmp)
			op("VPADDD", u.high, u.tmp, u.tmp)
			op("VPSLLD", imm(21), u.tmp, u.tmp)
			op("VPSUBD", u.high, s, s)
			op("VPSLLD", imm(23), s, s)
			op("VPMAXSD", u.tmp, s, s)
		case "bytes":
			if f.signed {
				op("VPMOVSXBD", at, s)
			} else {
				op("VPMOVZXBD", at, s)
			}
			op("VCVTDQ2PS", s, s)
			op("VMULPS", u.d, s, s)
			if f.min {
				op("VPMOVZXBD", mem(regW, 16*n+16*g), m)
				op("VCVTDQ2PS", m, m)
				op("VMULPS", u.dmin, m, m)
			}
		case "nibbles":
			op("VPMOVZXBD", at, s)
			op("VPSRLD", imm(4), s, m)
			op("VPANDD", u.high, s, s)
			op("VCVTDQ2PS", s, s)
			op("VMULPS", u.d, s, s)
			op("VCVTDQ2PS", m, m)
			op("VMULPS", u.dmin, m, m)
		}
	}
}

// quants unpacks the quants of a block.
func (u *weights512) quants() {
	at := func(i int) operand.Mem { return mem(regW, u.f.scaleBytes()+64*i) }
	nibbles := func() {
		for i := range 4 {
			op("VMOVDQU64", at(i), u.w[i+4])
			op("VPANDD", u.w[i+4], u.low, u.w[i])
			op("VPSRLD", imm(4), u.w[i+4], u.w[i+4])
			op("VPANDD", u.w[i+4], u.low, u.w[i+4])
		}
	}
	pairs := func() {
		for i := range 8 {
			if i%4 == 0 {
				op("VPANDD", at(i/4), u.low, u.w[i])
				continue
			}
			op("VPSRLD", imm(2*(i%4)), at(i/4), u.w[i])
			op("VPANDD", u.w[i], u.low, u.w[i])
		}
	}
	// or sets, under the mask high, bits of w that lie right places too high in memory.
	or := func(w reg.VecPhysical, from operand.Mem, right int) {
		switch {
		case right > 0:
			op("VPSRLD", imm(right), from, u.tmp)
		case right < 0:
			op("VPSLLD", imm(-right), from, u.tmp)
		default:
			op("VPTERNLOGD", imm(0xf8), from, u.high, w)
			return
		}
		op("VPTERNLOGD", imm(0xf8), u.tmp, u.high, w)
	}
	switch u.f.bits {
	case "nib":
		nibbles()
	case "nib1":
		nibbles()
		for i, w := range u.w {
			or(w, at(4), i-4)
		}
	case "nib2":
		nibbles()
		for i, w := range u.w {
			or(w, at(4+i/4), i%4*2-4)
		}
	case "byte":
		for i, w := range u.w {
			op("VMOVDQU64", at(i), w)
		}
	case "two":
		pairs()
	case "three":
		for i := range 3 {
			op("VPANDD", at(i), u.low, u.w[i])
			op("VPSRLD", imm(4), at(i), u.w[4+i])
			op("VPANDD", u.w[4+i], u.low, u.w[4+i])
		}
		// Of the top bits of nibbles, each mask keeps those that have come together.
		low, high := u.w[3], u.w[7]
		op("VPSRLD", imm(3), at(0), low)
		for i, mask := range u.masks {
			op("VPSRLD", imm(2-i), at(1+i), u.tmp)
			op("VPTERNLOGD", imm(0xe2), u.tmp, mask, low)
		}
		op("VPSRLD", imm(4), low, high)
		op("VPANDD", high, u.low, high)
		op("VPANDD", low, u.low, low)
	}
	if u.f.table != "" {
		for _, w := range u.w {
			op("VPSHUFB", w, u.table, w)
		}
	}
}

// blockLoop runs body for every block of a row block, perTurn of them, 1 or 2, in a turn, and head before each super-block. Blocks of
// many formats end in the middle of a line; body is told from which of its bytes on to fetch ahead, so that in a turn no line is asked for twice.
func blockLoop(f *format, head func(), perTurn int, body func(from int)) {
	turn := func() {
		for i := range perTurn {
			body(-i * f.blockBytes() & 63)
		}
	}
	op("MOVQ", regBlocks, regLeft)
	if perTurn == 2 && !f.super {
		pairLoop(turn, func() { body(0) })
		return
	}
	build.Label("block")
	if f.super {
		head()
		op("MOVQ", operand.U32(8/perTurn), regInner)
		build.Label("inner")
	}
	turn()
	if f.super {
		op("DECQ", regInner)
		build.JNZ(operand.LabelRef("inner"))
	}
	op("DECQ", regLeft)
	build.JNZ(operand.LabelRef("block"))
}

// pairLoop runs pair for every two of the blocks left, and last for an odd one.
func pairLoop(pair, last func()) {
	op("SUBQ", imm(2), regLeft)
	build.JL(operand.LabelRef("last"))
	build.Label("pair")
	pair()
	op("SUBQ", imm(2), regLeft)
	build.JGE(operand.LabelRef("pair"))
	build.Label("last")
	op("TESTQ", imm(1), regLeft)
	build.JZ(operand.LabelRef("even"))
	last()
	build.Label("even")
}

// rowLoop runs body for every row block, and then such instructions.
func rowLoop(body func(), last ...string) {
	build.Label("rows")
	body()
	op("DECQ", regRows)
	build.JNZ(operand.LabelRef("rows"))
	for _, name := range last {
		op(name)
	}
	op("VZEROUPPER")
	build.RET()
}

// byToken splits registers among c tokens, for each of which there is one of each row block.
func byToken(regs []reg.VecPhysical, c int) [][]reg.VecPhysical {
	tokens := make([][]reg.VecPhysical, c)
	for i, r := range regs {
		tokens[i%c] = append(tokens[i%c], r)
	}
	return tokens
}

// store512 adds the bias to the accumulators of each token and stores them.
func store512(acc [][]reg.VecPhysical, tmp []reg.VecPhysical, store func([][]reg.VecPhysical)) {
	op("TESTQ", regBias, regBias)
	build.JZ(operand.LabelRef("store"))
	for r := range acc[0] {
		op("VMOVUPS", mem(regBias, 64*r), tmp[r])
		for _, token := range acc {
			op("VADDPS", tmp[r], token[r], token[r])
		}
	}
	build.Label("store")
	store(acc)
}

// store stores the accumulators of each token.
func store(acc [][]reg.VecPhysical) {
	op("MOVQ", regOut, regPtr)
	for i, token := range acc {
		for r, a := range token {
			op("VMOVUPS", a, mem(regPtr, 64*r))
		}
		if i+1 < len(acc) {
			op("ADDQ", regStride, regPtr)
		}
	}
}

// columns512 multiplies a group of weights with the activations of c tokens, sums at a time.
type columns512 struct {
	c, group, half int
	zero           int // the unsigned quant that means 0
	w              []reg.VecPhysical
	scale          reg.VecPhysical
	acc, sums, tmp []reg.VecPhysical
}

func (m *columns512) emit() {
	for first := 0; first < m.c; first += len(m.sums) {
		n := min(len(m.sums), m.c-first)
		for i := range n {
			m.init(m.sums[i], recInit(m.c, first+i, m.group, m.half))
		}
		for g, w := range m.w {
			for i := range n {
				op("VPDPBUSD.BCST", recQuant(m.c, first+i).Offset(16*m.half+4*g), w, m.sums[i])
			}
		}
		for i := range n {
			m.add(first+i, m.sums[i])
		}
	}
}

// init makes up for the zero point; the record has -128 times the sum of the quants.
func (m *columns512) init(sum reg.VecPhysical, at operand.Mem) {
	switch {
	case m.zero == 0:
		op("VPXORD", sum, sum, sum)
	case m.zero == 128:
		op("VPBROADCASTD", at, sum)
	default:
		op("VPSRAD.BCST", imm(zeroShift[m.zero]), at, sum)
	}
}

func (m *columns512) add(col int, sum reg.VecPhysical) {
	tmp := m.tmp[col%len(m.tmp)]
	op("VMULPS.BCST", recScale(m.c, col), m.scale, tmp)
	op("VCVTDQ2PS", sum, sum)
	op("VFMADD231PS", tmp, sum, m.acc[col])
}

// pair is emit for one token and a group of 32, with two sums that do not wait for each other.
func (m *columns512) pair() {
	a, b := m.sums[0], m.sums[1]
	m.init(a, recInit(1, 0, m.group, m.half))
	op("VPXORD", b, b, b)
	for g, w := range m.w {
		op("VPDPBUSD.BCST", mem(regX, 4*g), w, m.sums[g%2])
	}
	op("VPADDD", b, a, a)
	m.add(0, a)
}

func (m *columns512) minimum(min reg.VecPhysical) {
	for col, a := range m.acc {
		op("VFMADD231PS.BCST", recSum(m.c, col, m.group, m.half), min, a)
	}
}

func vec512(f *format, c int) {
	product(fmt.Sprintf("vec512%sx%d", f.name, c), productParams, "multiplies packed weights with the activations of "+fmt.Sprint(c)+" tokens.")
	p := pool512(32)
	u := newWeights512(f, &p)
	acc, sums, tmp := zmm[:c], zmm[c:c+max(2, c)], zmm[c+max(2, c):c+max(2, c)+2]
	if c+len(sums)+2 > int(p) {
		panic("too many registers")
	}
	u.constants()
	store, last, perTurn := store, []string(nil), 1
	if c == 1 {
		perTurn = 2
		store = func(acc [][]reg.VecPhysical) { storeAround(acc[0][0], 64, "around") }
		last = []string{fence}
	}
	rowLoop(func() {
		for _, a := range acc {
			op("VPXORD", a, a, a)
		}
		firstRecord(f.group)
		block := func(from int) {
			fetching(regW, from, f.blockBytes(), func() {
				u.scales()
				u.quants()
				for h := range f.groups() {
					m := columns512{c: c, group: f.group, half: h, zero: f.zero, w: u.w[h*4:], scale: u.scale[h], acc: acc, sums: sums, tmp: tmp}
					m.w = m.w[:f.group/4]
					if c == 1 && f.group == 32 {
						m.pair()
					} else {
						m.emit()
					}
					if f.min {
						m.minimum(u.min[h])
					}
				}
			})
			op("ADDQ", operand.U32(f.blockBytes()), regW)
			nextRecord(c, f.group)
		}
		blockLoop(f, u.head, perTurn, block)
		store512(byToken(acc, c), tmp, store)
		nextRows(1)
	}, last...)
}

// expand512 makes a function that expands weights: to unsigned quants with 128 added, as VPDPBUSD takes them, or
// to signed ones, as tiles do.
func expand512(f *format, signed bool) {
	name, add := "expand512"+f.name, 128-f.zero
	if signed {
		name, add = "expandAMX"+f.name, -f.zero
	}
	build.TEXT(name, attr.NOSPLIT, "func(w, dst *byte, blocks, rowBlocks int)")
	build.Pragma("noescape")
	build.Doc(name + " brings packed weights into the form that the tile functions read.")
	build.Load(build.Param("w"), regW)
	build.Load(build.Param("dst"), regOut)
	build.Load(build.Param("blocks"), regBlocks)
	build.Load(build.Param("rowBlocks"), regRows)
	p := pool512(32)
	u := newWeights512(f, &p)
	offset := p.take()
	u.constants()
	if add != 0 {
		broadcast512(offset, uint32(uint8(add))*0x01010101)
	}
	rowLoop(func() {
		blockLoop(f, u.head, 1, func(from int) {
			fetching(regW, from, f.blockBytes(), func() {
				u.scales()
				u.quants()
				for i, w := range u.w {
					if add != 0 {
						op("VPADDB", offset, w, w)
					}
					op("VMOVDQU64", w, mem(regOut, 64*i))
				}
				for h := range f.groups() {
					op("VMOVUPS", u.scale[h], mem(regOut, expScale(h)))
					if f.min {
						op("VMOVUPS", u.min[h], mem(regOut, expMin(f.group, h)))
					}
				}
			})
			op("ADDQ", operand.U32(f.blockBytes()), regW)
			op("ADDQ", operand.U32(expBytes(f.group, f.min)), regOut)
		})
	})
}

// nextRows steps over the results of n row blocks.
func nextRows(n int) {
	op("ADDQ", operand.U32(64*n), regOut)
	op("TESTQ", regBias, regBias)
	build.JZ(operand.LabelRef("next"))
	op("ADDQ", operand.U32(64*n), regBias)
	build.Label("next")
}

// tileName names a function that multiplies expanded weights.
func tileName(prefix string, group int, minimum bool, c int) string {
	if minimum {
		return fmt.Sprintf("%sg%dminx%d", prefix, group, c)
	}
	return fmt.Sprintf("%sg%dx%d", prefix, group, c)
}

// tileLoop runs body for every block of every row block or pair, and store after each. The accumulators are those of a
// token's row blocks, token after token.
func tileLoop(group int, minimum bool, acc [][]reg.VecPhysical, body, store func()) {
	c := len(acc)
	rowLoop(func() {
		begin("VPXORD", acc, 64)
		firstRecord(group)
		op("MOVQ", regBlocks, regLeft)
		build.Label("block")
		body()
		op("ADDQ", operand.U32(expBytes(group, minimum)), regW)
		nextRecord(c, group)
		op("DECQ", regLeft)
		build.JNZ(operand.LabelRef("block"))
		store()
	})
}

func tile512(group int, minimum bool, c int) {
	product(tileName("tile512", group, minimum, c), partParams, fmt.Sprintf("multiplies row blocks of expanded weights with a tile of %d tokens.", c))
	acc := zmm[:c]
	w := zmm[32-group/4:]
	free := zmm[c : 32-group/4]
	scale, tmp := free[0], free[1:3]
	sums := free[3:]
	if len(sums) > 8 {
		sums = sums[:8]
	}
	tileLoop(group, minimum, byToken(acc, c), func() {
		for h := range 32 / group {
			for i := range w {
				op("VMOVDQU64", mem(regW, 256*h+64*i), w[i])
			}
			op("VMOVUPS", mem(regW, expScale(h)), scale)
			m := columns512{c: c, group: group, half: h, zero: 128, w: w, scale: scale, acc: acc, sums: sums, tmp: tmp}
			m.emit()
			if minimum {
				op("VMOVUPS", mem(regW, expMin(group, h)), scale)
				m.minimum(scale)
			}
		}
	}, func() {
		store512(byToken(acc, c), tmp, store)
		nextRows(1)
	})
}

// maxTile512 is the width of a tile for which a pair of row blocks fills the registers with 12
// accumulators and 12 sums. A dot product takes 5 cycles and two begin in each, so 10 sums
// have to be in the making.
const maxTile512 = 6

// pair512 multiplies two row blocks, so that an activation that was broadcast is used twice:
// loads, not products, are what a tile of one row block waits for.
func pair512(group int, minimum bool) {
	const c, batch = maxTile512, maxTile512
	product(tileName("pair512", group, minimum, c), partParams, fmt.Sprintf("multiplies pairs of row blocks of expanded weights with a tile of %d tokens.", c))
	acc := [2][]reg.VecPhysical{zmm[:c], zmm[c : 2*c]}
	sums := [2][]reg.VecPhysical{zmm[2*c : 2*c+batch], zmm[2*c+batch : 2*c+2*batch]}
	free := zmm[2*c+2*batch:]
	w, scale, act, tmp := free[0:2], free[2:4], free[4:6], free[6:8]
	second := regConst
	weights := [2]reg.Register{regW, second}
	op("MOVQ", regBlocks, second)
	op("IMULQ", operand.U32(expBytes(group, minimum)), second)
	distance := reg.R11
	op("MOVQ", second, distance)
	tileLoop(group, minimum, byToken(zmm[:2*c], c), func() {
		op("LEAQ", operand.Mem{Base: regW, Index: distance, Scale: 1}, second)
		for h := range 32 / group {
			for r := range 2 {
				op("VMOVUPS", mem(weights[r], expScale(h)), scale[r])
			}
			for first := 0; first < c; first += batch {
				for i := range batch {
					for r := range 2 {
						op("VPBROADCASTD", recInit(c, first+i, group, h), sums[r][i])
					}
				}
				for g := range group / 4 {
					for r := range 2 {
						op("PREFETCHT0", mem(weights[r], 2*expBytes(group, minimum)+256*h+64*g))
						op("VMOVDQU64", mem(weights[r], 256*h+64*g), w[r])
					}
					for i := range batch {
						a := act[i%2]
						op("VPBROADCASTD", recQuant(c, first+i).Offset(16*h+4*g), a)
						for r := range 2 {
							op("VPDPBUSD", a, w[r], sums[r][i])
						}
					}
				}
				for i := range batch {
					a := act[i%2]
					op("VBROADCASTSS", recScale(c, first+i), a)
					for r := range 2 {
						op("VMULPS", a, scale[r], tmp[r])
						op("VCVTDQ2PS", sums[r][i], sums[r][i])
						op("VFMADD231PS", tmp[r], sums[r][i], acc[r][first+i])
					}
				}
			}
			if minimum {
				for r := range 2 {
					op("VMOVUPS", mem(weights[r], expMin(group, h)), scale[r])
				}
				for i := range c {
					a := act[i%2]
					op("VBROADCASTSS", recSum(c, i, group, h), a)
					for r := range 2 {
						op("VFMADD231PS", a, scale[r], acc[r][i])
					}
				}
			}
		}
	}, func() {
		store512(byToken(zmm[:2*c], c), tmp, store)
		op("ADDQ", distance, regW) // the second row block lies before the next pair
		nextRows(2)
	})
}
