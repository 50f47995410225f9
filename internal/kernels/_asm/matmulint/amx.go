package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amxTokens is the number of tokens of a tile, one for each row of a tile register.
const amxTokens = 16

// The products of a tile of tokens with some row blocks, one for each group of each, are a sequence, and two units
// work on it at a time: tiles make the sums of a product, vectors add those of an earlier one to the accumulators. Sums
// wait in a ring in between. The processor takes one step of both after the other, so what matters is how far they are apart.
const (
	amxSlots = 4 // sums in the ring: vectors follow so many products behind
	amxDelay = 2 // products after which a tile's sums are stored: by then they are there
)

func amx() {
	for i := range formats {
		expand512(&formats[i], true)
	}
	for _, group := range []int{32, 16} {
		for _, min := range []bool{false, true} {
			m := &matrixAMX{group: group, min: min}
			m.function()
		}
	}
}

// The assembler does not know the instructions of tiles, so they are encoded here.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBSSD, TILELOADD and others.

// vexPrefix is one that selects the instruction set.
type vexPrefix byte

const (
	vexNone vexPrefix = iota
	vex66
	vexF3
	vexF2
)

// number is that of a register in an instruction.
func number(r reg.Register) byte { return byte(reg.ToPhysical(r).PhysicalIndex()) }

// vex emits an instruction of map 0F38 with what follows the opcode. The registers are those that extend ModRM and
// SIB, and the one in VEX itself.
func vex(prefix vexPrefix, opcode byte, index, base, second byte, rest ...byte) {
	code := append([]byte{
		0xc4,
		0x80 | ^index>>3&1<<6 | ^base>>3&1<<5 | 2,
		^second&15<<3 | byte(prefix),
		opcode,
	}, rest...)
	for len(code) >= 4 {
		op("LONG", operand.U32(uint32(code[0])|uint32(code[1])<<8|uint32(code[2])<<16|uint32(code[3])<<24))
		code = code[4:]
	}
	for _, b := range code {
		op("BYTE", operand.U8(b))
	}
}

// A tile's rows lie stride bytes apart in memory.
func tileMemory(prefix vexPrefix, tile int, base, stride reg.Register, disp int) {
	b, s := number(base), number(stride)
	vex(prefix, 0x4b, s, b, 0, 0x84|byte(tile)<<3, s&7<<3|b&7, byte(disp), byte(disp>>8), byte(disp>>16), byte(disp>>24))
}

func tileLoad(tile int, base, stride reg.Register, disp int) {
	tileMemory(vexF2, tile, base, stride, disp)
}
func tileStore(tile int, base, stride reg.Register, disp int) {
	tileMemory(vexF3, tile, base, stride, disp)
}
func tileZero(tile int) { vex(vexF2, 0x49, 0, 0, 0, 0xc0|byte(tile)<<3) }
func tileRelease()      { vex(vexNone, 0x49, 0, 0, 0, 0xc0) }

// tileConfig reads the shapes of tiles from where base, one of AX, CX, DX and BX, points.
func tileConfig(base reg.Register) { vex(vexNone, 0x49, 0, 0, 0, number(base)) }

// tileDot adds the products of signed bytes of a and b to sum.
func tileDot(sum, a, b int) { vex(vexF2, 0x5e, 0, 0, byte(b), 0xc0|byte(sum)<<3|byte(a)) }

// The tiles: activations of 16 tokens and weights of 16 rows, each in turn with another, and sums of amxSlots products.
const (
	tileActs    = 0
	tileWeights = 2
	tileSums    = 4
)

// matrixAMX is a function that multiplies row blocks of expanded weights with a tile of
// tokens.
type matrixAMX struct {
	group int
	min   bool
}

// Registers in addition to those of product: the tile unit has pointers of its own, for it is ahead.
var (
	amxW      = reg.RSI // weights of the products whose sums are being made
	amxX      = reg.R12 // their activations
	amxLeft   = reg.R8  // blocks of their row that are left
	amxRing   = reg.R9
	amxNarrow = reg.R11 // bytes from a token's quants to the next one's
	amxWide   = reg.R13 // bytes of a row of weights or sums
	amxStep   = reg.R15 // the step after which a row block was finished
)

func (m *matrixAMX) name() string { return tileName("matrixAMX", m.group, m.min, amxTokens) }

// groups is the number of products of a block.
func (m *matrixAMX) groups() int { return 32 / m.group }

func (m *matrixAMX) function() {
	config := m.config()
	build.TEXT(m.name(), attr.NOSPLIT, "func(w, acts, sums16, out, bias, ring *byte, blocks, n, outStride, tokens, join int)")
	build.Pragma("noescape")
	build.Doc(m.name() + " multiplies row blocks of expanded weights, signed ones, with a tile of 16 tokens, of which it stores the first.")
	op("LEAQ", config, reg.RAX)
	tileConfig(reg.RAX)
	build.Load(build.Param("w"), regW)
	build.Load(build.Param("out"), regOut)
	build.Load(build.Param("bias"), regBias)
	build.Load(build.Param("n"), regRows)
	build.Load(build.Param("ring"), amxRing)
	op("MOVQ", operand.U32(32), amxNarrow)
	op("MOVQ", operand.U32(64), amxWide)
	op("MOVQ", regW, amxW)
	op("MOVQ", param("acts"), amxX)
	op("MOVQ", param("blocks"), amxLeft)
	for i := range amxSlots {
		for _, f := range m.tiles(i, i >= amxDelay) {
			f()
		}
	}
	m.advanceTiles()
	op("XORL", amxStep.As32(), amxStep.As32())
	build.JMP(operand.LabelRef("begin"))

	acc := zmm[:amxTokens]
	build.Label("loop")
	for i := range amxSlots {
		m.vectors(acc, i, m.tiles(i, true))
		if (i+1)%m.groups() > 0 {
			continue
		}
		op("ADDQ", operand.U32(recBytes(amxTokens)), regX)
		if m.group == 16 {
			op("ADDQ", operand.U32(rec16Bytes(amxTokens)), regX16)
		}
		op("DECQ", regLeft)
		if i+1 == amxSlots {
			m.advanceTiles()
			op("LEAQ", mem(regW, m.iteration()), regW)
			build.JNZ(operand.LabelRef("loop"))
			op("XORL", amxStep.As32(), amxStep.As32())
			break
		}
		build.JZ(operand.LabelRef(fmt.Sprint("end", i)))
		build.Label(fmt.Sprint("next", i))
	}

	build.Label("finish")
	m.store(acc)
	nextRows(1)
	op("DECQ", regRows)
	build.JZ(operand.LabelRef("done"))
	build.Label("begin")
	m.load(acc)
	op("MOVQ", param("acts"), regX)
	if m.group == 16 {
		op("MOVQ", param("sums16"), regX16)
	}
	op("MOVQ", param("blocks"), regLeft)
	for i := m.groups() - 1; i+1 < amxSlots; i += m.groups() {
		op("CMPL", amxStep.As32(), operand.U8(i+1))
		build.JEQ(operand.LabelRef(fmt.Sprint("next", i)))
	}
	build.JMP(operand.LabelRef("loop"))
	for i := m.groups() - 1; i+1 < amxSlots; i += m.groups() {
		build.Label(fmt.Sprint("end", i))
		op("MOVL", operand.U32(i+1), amxStep.As32())
		build.JMP(operand.LabelRef("finish"))
	}
	build.Label("done")
	tileRelease()
	op("VZEROUPPER")
	build.RET()
}

// config writes the shapes of the tiles.
func (m *matrixAMX) config() operand.Mem {
	config := build.GLOBL(m.name()+"Tiles", attr.RODATA|attr.NOPTR)
	var shapes [8]struct{ rows, bytes int }
	for i := range shapes {
		switch {
		case i < tileWeights:
			shapes[i].rows, shapes[i].bytes = amxTokens, m.group
		case i < tileSums:
			shapes[i].rows, shapes[i].bytes = m.group/4, 64
		default:
			shapes[i].rows, shapes[i].bytes = amxTokens, 64
		}
	}
	build.DATA(0, operand.U8(1)) // the palette
	for i, s := range shapes {
		build.DATA(16+2*i, operand.U16(s.bytes))
	}
	for i, s := range shapes {
		build.DATA(48+i, operand.U8(s.rows))
	}
	build.DATA(56, operand.U64(0))
	return config
}

// iteration is the size of the weights of amxSlots products.
func (m *matrixAMX) iteration() int { return amxSlots / m.groups() * expBytes(m.group, m.min) }

// advanceTiles goes on in the weights, which lie one after the other. It leaves flags as they are.
func (m *matrixAMX) advanceTiles() { op("LEAQ", mem(amxW, m.iteration()), amxW) }

// tiles is step i of the tile unit, in pieces between which other instructions may come. It goes beyond the last product
// by amxSlots, of which nothing is used.
func (m *matrixAMX) tiles(i int, store bool) []func() {
	block, h := i/m.groups(), i%m.groups()
	sums, acts, weights := tileSums+i, tileActs+i%2, tileWeights+i%2
	var steps []func()
	if store {
		j := (i + amxSlots - amxDelay) % amxSlots
		steps = append(steps, func() { tileStore(tileSums+j, amxRing, amxWide, 1024*j) })
	}
	// To zero a tile takes long, so it comes first.
	steps = append(steps,
		func() { tileZero(sums) },
		func() { tileLoad(acts, amxX, amxNarrow, 16*h) },
		func() { tileLoad(weights, amxW, amxWide, block*expBytes(m.group, m.min)+256*h) },
		func() { tileDot(sums, acts, weights) })
	if h+1 == m.groups() {
		steps = append(steps, func() {
			op("ADDQ", operand.U32(recBytes(amxTokens)), amxX)
			op("DECQ", amxLeft)
			op("CMOVQEQ", param("acts"), amxX)
			op("CMOVQEQ", param("blocks"), amxLeft)
		})
	}
	return steps
}

// vectors adds the sums of step i to the accumulators and mixes other steps in.
func (m *matrixAMX) vectors(acc []reg.VecPhysical, i int, steps []func()) {
	free := zmm[len(acc):]
	scale, tmp, sum := free[0], free[1:5], free[5:9]
	block, h := i/m.groups(), i%m.groups()
	weights := block * expBytes(m.group, m.min)
	n := 0
	op("VMOVUPS", mem(regW, weights+expScale(h)), scale)
	for j, a := range acc {
		for ; n < len(steps)*j/len(acc); n++ {
			steps[n]()
		}
		t, s := tmp[j%len(tmp)], sum[j%len(sum)]
		op("VMULPS.BCST", recScale(amxTokens, j), scale, t)
		op("VCVTDQ2PS", mem(amxRing, 1024*i+64*j), s)
		op("VFMADD231PS", t, s, a)
	}
	if m.min {
		op("VMOVUPS", mem(regW, weights+expMin(m.group, h)), scale)
		for j, a := range acc {
			op("VFMADD231PS.BCST", recSum(amxTokens, j, m.group, h), scale, a)
		}
	}
	for ; n < len(steps); n++ {
		steps[n]()
	}
}

// While a row block ends the registers for its activations serve otherwise.
var (
	amxOut    = regX
	amxStride = regX16
	amxTodo   = regLeft
)

// results runs do for the accumulators of the tokens that there are and their places in memory.
func (m *matrixAMX) results(acc []reg.VecPhysical, end string, do func(a reg.VecPhysical, at operand.Mem)) {
	op("MOVQ", param("outStride"), amxStride)
	op("MOVQ", param("tokens"), amxTodo)
	op("SHLQ", imm(2), amxStride)
	op("MOVQ", regOut, amxOut)
	for _, a := range acc {
		do(a, mem(amxOut, 0))
		op("DECQ", amxTodo)
		build.JZ(operand.LabelRef(end))
		op("ADDQ", amxStride, amxOut)
	}
	build.Label(end)
}

// load sets the accumulators to 0 or, to join what there is, to the results so far.
func (m *matrixAMX) load(acc []reg.VecPhysical) {
	for _, a := range acc {
		op("VPXORD", a, a, a)
	}
	op("CMPQ", param("join"), imm(0))
	build.JEQ(operand.LabelRef("loaded"))
	m.results(acc, "loaded", func(a reg.VecPhysical, at operand.Mem) { op("VMOVUPS", at, a) })
}

// store adds the bias to the accumulators and stores them.
func (m *matrixAMX) store(acc []reg.VecPhysical) {
	tmp := zmm[len(acc)]
	op("TESTQ", regBias, regBias)
	build.JZ(operand.LabelRef("store"))
	op("VMOVUPS", mem(regBias, 0), tmp)
	for _, a := range acc {
		op("VADDPS", tmp, a, a)
	}
	build.Label("store")
	m.results(acc, "stored", func(a reg.VecPhysical, at operand.Mem) { op("VMOVUPS", a, at) })
}
