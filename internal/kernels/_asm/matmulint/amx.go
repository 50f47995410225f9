package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amxTokens is the number of tokens of a tile, one for each row of a tile register.
const amxTokens = 16

// Tiles wait in a ring of amxSlots blocks until their sums are used, amxLag blocks later.
const (
	amxSlots = 4
	amxLag   = 3
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
func tileStore(tile int, base, stride reg.Register) { tileMemory(vexF3, tile, base, stride, 0) }
func tileZero(tile int)                             { vex(vexF2, 0x49, 0, 0, 0, 0xc0|byte(tile)<<3) }
func tileRelease()                                  { vex(vexNone, 0x49, 0, 0, 0, 0xc0) }

// tileConfig reads the shapes of tiles from where base, one of AX, CX, DX and BX, points.
func tileConfig(base reg.Register) { vex(vexNone, 0x49, 0, 0, 0, number(base)) }

// tileDot adds the products of signed bytes of a and b to sum.
func tileDot(sum, a, b int) { vex(vexF2, 0x5e, 0, 0, byte(b), 0xc0|byte(sum)<<3|byte(a)) }

// The tiles: activations of 16 tokens, weights of 16 rows, and sums.
const (
	tileActs = iota
	tileWeights
	tileSums
)

// matrixAMX is a function that multiplies row blocks of expanded weights with a tile of
// tokens. While the tile unit makes the sums of a block, the vector unit adds those of an
// earlier one to the accumulators: a conversion, two products and an addition for each sum
// are what takes the time.
type matrixAMX struct {
	group int
	min   bool
}

// Registers in addition to those of product: the tile unit has pointers of its own, for it is ahead.
var (
	amxW      = reg.RSI // weights of the block whose sums are being made
	amxX      = reg.R12 // its activations
	amxWrite  = reg.R9  // where in the ring they go
	amxRead   = reg.R15 // those of the block that is added
	amxAhead  = reg.R8  // blocks of which the sums are made before any are used
	amxNarrow = reg.R11 // bytes from a token's quants to the next one's
	amxWide   = reg.R13 // bytes of a row of weights or sums
)

func (m *matrixAMX) name() string { return tileName("matrixAMX", m.group, m.min, amxTokens) }

// slot is the size of a block's sums.
func (m *matrixAMX) slot() int { return 1024 * (32 / m.group) }

func (m *matrixAMX) ring() int { return amxSlots * m.slot() }

func (m *matrixAMX) function() {
	config := m.config()
	build.TEXT(m.name(), attr.NOSPLIT, "func(w, acts, sums16, out, bias, ring *byte, blocks, n, outStride, tokens int)")
	build.Pragma("noescape")
	build.Doc(m.name() + " multiplies row blocks of expanded weights, signed ones, with a tile of 16 tokens, of which it stores the first.")
	op("LEAQ", config, reg.RAX)
	tileConfig(reg.RAX)
	build.Load(build.Param("w"), regW)
	build.Load(build.Param("out"), regOut)
	build.Load(build.Param("bias"), regBias)
	build.Load(build.Param("n"), regRows)
	build.Load(build.Param("ring"), amxWrite)
	op("MOVQ", operand.U32(32), amxNarrow)
	op("MOVQ", operand.U32(64), amxWide)
	op("MOVQ", amxWrite, amxRead)
	acc := zmm[:amxTokens]
	build.Label("rows")
	for _, a := range acc {
		op("VPXORD", a, a, a)
	}
	build.Load(build.Param("acts"), regX)
	if m.group == 16 {
		build.Load(build.Param("sums16"), regX16)
	}
	op("MOVQ", regX, amxX)
	op("MOVQ", regW, amxW)
	build.Load(build.Param("blocks"), regLeft)
	op("MOVQ", operand.U32(amxLag), amxAhead)
	op("CMPQ", regLeft, amxAhead)
	op("CMOVQLT", regLeft, amxAhead)

	op("MOVQ", amxAhead, regLeft)
	build.Label("ahead")
	for _, f := range m.tiles() {
		f()
	}
	op("DECQ", regLeft)
	build.JNZ(operand.LabelRef("ahead"))

	build.Load(build.Param("blocks"), regLeft)
	op("SUBQ", amxAhead, regLeft)
	build.JZ(operand.LabelRef("rest"))
	build.Label("both")
	m.vectors(acc, m.tiles())
	op("DECQ", regLeft)
	build.JNZ(operand.LabelRef("both"))

	build.Label("rest")
	m.vectors(acc, nil)
	op("DECQ", amxAhead)
	build.JNZ(operand.LabelRef("rest"))

	m.store(acc)
	nextRows(1)
	op("DECQ", regRows)
	build.JNZ(operand.LabelRef("rows"))
	tileRelease()
	op("VZEROUPPER")
	build.RET()
}

// config writes the shapes of the tiles.
func (m *matrixAMX) config() operand.Mem {
	config := build.GLOBL(m.name()+"Tiles", attr.RODATA|attr.NOPTR)
	shapes := [8]struct{ rows, bytes int }{
		tileActs:    {amxTokens, m.group},
		tileWeights: {m.group / 4, 64},
		tileSums:    {amxTokens, 64},
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

// tiles makes the sums of a block and goes on to the next, in steps between which other instructions may come.
// To zero a tile takes long, so it comes first.
func (m *matrixAMX) tiles() []func() {
	var steps []func()
	for h := range 32 / m.group {
		steps = append(steps,
			func() { tileZero(tileSums) },
			func() { tileLoad(tileActs, amxX, amxNarrow, 16*h) },
			func() { tileLoad(tileWeights, amxW, amxWide, 256*h) },
			func() { tileDot(tileSums, tileActs, tileWeights) },
			func() {
				tileStore(tileSums, amxWrite, amxWide)
				m.advance(amxWrite, 1024)
			})
	}
	return append(steps, func() {
		op("ADDQ", operand.U32(expBytes(m.group, m.min)), amxW)
		op("ADDQ", operand.U32(recBytes(amxTokens)), amxX)
	})
}

// advance goes on in the ring, which begins at a multiple of twice its size.
func (m *matrixAMX) advance(r reg.Register, n int) {
	op("ADDQ", operand.U32(n), r)
	op("ANDQ", operand.I32(^m.ring()), r)
}

// vectors adds the sums of a block to the accumulators, goes on to the next, and mixes steps in.
func (m *matrixAMX) vectors(acc []reg.VecPhysical, steps []func()) {
	free := zmm[len(acc):]
	scale, tmp, sum := free[0], free[1:5], free[5:9]
	groups := 32 / m.group
	total, n := len(steps), 0
	for h := range groups {
		op("VMOVUPS", mem(regW, expScale(h)), scale)
		for i, a := range acc {
			for n < total*(h*len(acc)+i)/(groups*len(acc)) {
				steps[n]()
				n++
			}
			t, s := tmp[i%len(tmp)], sum[i%len(sum)]
			op("VMULPS.BCST", recScale(amxTokens, i), scale, t)
			op("VCVTDQ2PS", mem(amxRead, 1024*h+64*i), s)
			op("VFMADD231PS", t, s, a)
		}
		if m.min {
			op("VMOVUPS", mem(regW, expMin(m.group, h)), scale)
			for i, a := range acc {
				op("VFMADD231PS.BCST", recSum(amxTokens, i, m.group, h), scale, a)
			}
		}
	}
	for ; n < total; n++ {
		steps[n]()
	}
	m.advance(amxRead, m.slot())
	op("ADDQ", operand.U32(expBytes(m.group, m.min)), regW)
	nextRecord(amxTokens, m.group)
}

// store adds the bias to the accumulators and stores those of the tokens that there are.
func (m *matrixAMX) store(acc []reg.VecPhysical) {
	tmp := zmm[len(acc)]
	op("TESTQ", regBias, regBias)
	build.JZ(operand.LabelRef("store"))
	op("VMOVUPS", mem(regBias, 0), tmp)
	for _, a := range acc {
		op("VADDPS", tmp, a, a)
	}
	build.Label("store")
	stride, out, left := amxAhead, amxX, regLeft
	build.Load(build.Param("outStride"), stride)
	build.Load(build.Param("tokens"), left)
	op("SHLQ", imm(2), stride)
	op("MOVQ", regOut, out)
	for _, a := range acc {
		op("VMOVUPS", a, mem(out, 0))
		op("DECQ", left)
		build.JZ(operand.LabelRef("stored"))
		op("ADDQ", stride, out)
	}
	build.Label("stored")
}
