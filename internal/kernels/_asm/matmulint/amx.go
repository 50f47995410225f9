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
//
// Tiles also turn most sums into floats, which spares the vectors a conversion for each token. A sum begins not at 0 but at the
// integer whose bits are the float 1.5*2^23. With n added to it, less than 2^22 either way, it is the float 1.5*2^23 + n, and
// a product of constants in BF16, or an addition, takes the 1.5*2^23 away. All of that is exact.
const (
	amxSlots = 4 // sums in the ring: vectors follow so many products behind
	amxFloat = 1 // products after which a tile's sums become floats

	amxStart    = 0x4b400000 // 1.5*2^23 as a float
	amxNegative = 0xcb400000 // -1.5*2^23
	amxTake     = 0xcb40     // -1.5*2^23 in BF16
	amxOne      = 0x3f80     // 1 in BF16
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
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBSSD, TDPBF16PS, TILELOADD and others.

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

// A tile's rows lie stride bytes apart in memory. SP stands for no stride.
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

// tileFill loads the same row for all of a tile.
func tileFill(tile int, base reg.Register, disp int) { tileLoad(tile, base, reg.RSP, disp) }

func tileZero(tile int) { vex(vexF2, 0x49, 0, 0, 0, 0xc0|byte(tile)<<3) }
func tileRelease()      { vex(vexNone, 0x49, 0, 0, 0, 0xc0) }

// tileConfig reads the shapes of tiles from where base, one of AX, CX, DX and BX, points.
func tileConfig(base reg.Register) { vex(vexNone, 0x49, 0, 0, 0, number(base)) }

// tileDot adds the products of signed bytes of a and b to sum.
func tileDot(sum, a, b int) { vex(vexF2, 0x5e, 0, 0, byte(b), 0xc0|byte(sum)<<3|byte(a)) }

// tileDotBF16 adds the products of numbers in BF16 of a and b, in float32.
func tileDotBF16(sum, a, b int) { vex(vexF3, 0x5c, 0, 0, byte(b), 0xc0|byte(sum)<<3|byte(a)) }

// The tiles: activations of 16 tokens, weights of 16 rows, two constants whose product is taken from sums, and sums of amxSlots products.
const (
	tileActs    = 0
	tileWeights = 1
	tileOne     = 2
	tileTake    = 3
	tileSums    = 4
)

// What follows the shapes of tiles in memory: a row of tileTake and one of tileOne.
const (
	amxTakeAt = 64
	amxOneAt  = 128
)

// amxStartAt is where the ring has a row of what sums begin with.
const amxStartAt = 1024 * amxSlots

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

// delay is the number of products after which sums are stored: late enough to be complete, early enough for the vectors.
func (m *matrixAMX) delay() int { return amxSlots - m.groups() }

func (m *matrixAMX) function() {
	constants := m.constants()
	build.TEXT(m.name(), attr.NOSPLIT, "func(w, acts, sums16, out, bias, ring *byte, blocks, n, outStride, tokens, join int)")
	build.Pragma("noescape")
	build.Doc(m.name() + " multiplies row blocks of expanded weights, signed ones, with a tile of 16 tokens, of which it stores the first.")
	op("LEAQ", constants, reg.RAX)
	tileConfig(reg.RAX)
	tileFill(tileTake, reg.RAX, amxTakeAt)
	tileFill(tileOne, reg.RAX, amxOneAt)
	build.Load(build.Param("w"), regW)
	build.Load(build.Param("out"), regOut)
	build.Load(build.Param("bias"), regBias)
	build.Load(build.Param("n"), regRows)
	build.Load(build.Param("ring"), amxRing)
	broadcast512(zmm[0], amxStart)
	op("VMOVUPS", zmm[0], mem(amxRing, amxStartAt))
	if m.adds() {
		broadcast512(amxMinus, amxNegative)
	}
	op("MOVQ", operand.U32(32), amxNarrow)
	op("MOVQ", operand.U32(64), amxWide)
	op("MOVQ", regW, amxW)
	op("MOVQ", param("acts"), amxX)
	op("MOVQ", param("blocks"), amxLeft)
	for i := range amxSlots {
		for _, f := range m.tiles(i, i) {
			f()
		}
	}
	m.advanceTiles()
	op("XORL", amxStep.As32(), amxStep.As32())
	build.JMP(operand.LabelRef("begin"))

	acc := zmm[:amxTokens]
	build.Label("loop")
	for i := 0; i < amxSlots; i += m.groups() {
		m.vectors(acc, i)
		op("ADDQ", operand.U32(recBytes(amxTokens)), regX)
		if m.group == 16 {
			op("ADDQ", operand.U32(rec16Bytes(amxTokens)), regX16)
		}
		op("DECQ", regLeft)
		if i+m.groups() == amxSlots {
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
	for i := 0; i+m.groups() < amxSlots; i += m.groups() {
		op("CMPL", amxStep.As32(), operand.U8(i+1))
		build.JEQ(operand.LabelRef(fmt.Sprint("next", i)))
	}
	build.JMP(operand.LabelRef("loop"))
	for i := 0; i+m.groups() < amxSlots; i += m.groups() {
		build.Label(fmt.Sprint("end", i))
		op("MOVL", operand.U32(i+1), amxStep.As32())
		build.JMP(operand.LabelRef("finish"))
	}
	build.Label("done")
	tileRelease()
	op("VZEROUPPER")
	build.RET()
}

// constants writes the shapes of the tiles and what some of them hold.
func (m *matrixAMX) constants() operand.Mem {
	constants := build.GLOBL(m.name()+"Tiles", attr.RODATA|attr.NOPTR)
	var shapes [8]struct{ rows, bytes int }
	for i := range shapes {
		switch {
		case i == tileActs:
			shapes[i].rows, shapes[i].bytes = amxTokens, m.group
		case i == tileOne:
			shapes[i].rows, shapes[i].bytes = amxTokens, 4
		case i == tileTake:
			shapes[i].rows, shapes[i].bytes = 1, 64
		case i == tileWeights:
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
	for i := range 16 {
		build.DATA(amxTakeAt+4*i, operand.U32(amxTake)) // two numbers, the second being 0
	}
	build.DATA(amxOneAt, operand.U32(amxOne))
	return constants
}

// iteration is the size of the weights of amxSlots products.
func (m *matrixAMX) iteration() int { return amxSlots / m.groups() * expBytes(m.group, m.min) }

// advanceTiles goes on in the weights, which lie one after the other. It leaves flags as they are.
func (m *matrixAMX) advanceTiles() { op("LEAQ", mem(amxW, m.iteration()), amxW) }

// A conversion is how the sums of a step become floats.
type conversion int

const (
	byTiles conversion = iota
	byConverting
	byAdding
)

// conversion balances the units. With groups of 32 values and no minimum vectors have the least to do, and to fill a tile takes loads, of
// which there are too many then; so they take turns with tiles. With groups of 16 tiles have the most to do. Additions, unlike
// conversions, do not wait for the multiplier, but for the unit of shuffles, and tiles need that when they are stored.
func (m *matrixAMX) conversion(i int) conversion {
	switch {
	case m.min || i%2 > 0:
		return byTiles
	case m.group == 32:
		return byConverting
	}
	return byAdding
}

// adds says whether some sums become floats by an addition.
func (m *matrixAMX) adds() bool { return m.conversion(0) == byAdding }

// tiles is step i of the tile unit, which has begun some products before, in pieces between which other instructions may
// come. It goes beyond the last product by amxSlots, of which nothing is used.
func (m *matrixAMX) tiles(i, begun int) []func() {
	block, h := i/m.groups(), i%m.groups()
	before := func(n int) int { return (i + amxSlots - n) % amxSlots }
	var steps []func()
	if begun >= m.delay() {
		slot := before(m.delay())
		steps = append(steps, func() { tileStore(tileSums+slot, amxRing, amxWide, 1024*slot) })
	}
	if slot := before(amxFloat); begun >= amxFloat && m.conversion(slot) == byTiles {
		steps = append(steps, func() { tileDotBF16(tileSums+slot, tileOne, tileTake) })
	}
	start := func() { tileFill(tileSums+i, amxRing, amxStartAt) }
	if m.conversion(i) == byConverting {
		start = func() { tileZero(tileSums + i) }
	}
	steps = append(steps,
		start,
		func() { tileLoad(tileActs, amxX, amxNarrow, 16*h) },
		func() { tileLoad(tileWeights, amxW, amxWide, block*expBytes(m.group, m.min)+256*h) },
		func() { tileDot(tileSums+i, tileActs, tileWeights) })
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

// amxMinus is -1.5*2^23 in all lanes, for additions.
var amxMinus = zmm[31]

// vectors adds the sums of a block, that of step i and the following, to the accumulators and mixes the next steps of tiles in.
func (m *matrixAMX) vectors(acc []reg.VecPhysical, i int) {
	var steps []func()
	for h := range m.groups() {
		steps = append(steps, m.tiles(i+h, amxSlots)...)
	}
	b := m.block(i)
	done := 0
	for j, a := range acc {
		for ; done < len(steps)*j/len(acc); done++ {
			steps[done]()
		}
		b.token(j, a)
	}
	for ; done < len(steps); done++ {
		steps[done]()
	}
}

// blockAMX is what vectors have of a block.
type blockAMX struct {
	*matrixAMX
	step         int               // that of its first sums
	scales, mins []reg.VecPhysical // by group
	four         []reg.VecPhysical // of four tokens: the scales, and by group the sums that minima multiply
	values       []reg.VecPhysical // taken in turn for what a token needs, see block
	used         int
}

// block reads the scales and minima of the block whose first sums are those of step i.
func (m *matrixAMX) block(i int) *blockAMX {
	b := &blockAMX{matrixAMX: m, step: i, scales: zmm[16:18], mins: zmm[18:20], four: zmm[20:23], values: zmm[23:31]}
	// A token takes one for its scale and, for each group, one for the product of scales and one for its sum as a float or for what the
	// minimum multiplies: 5 at most. The first is in use to the end.
	if 1+2*m.groups() > len(b.values) {
		panic("too few registers")
	}
	weights := i / m.groups() * expBytes(m.group, m.min)
	for h := range m.groups() {
		op("VMOVUPS", mem(regW, weights+expScale(h)), b.scales[h])
		if m.min {
			op("VMOVUPS", mem(regW, weights+expMin(m.group, h)), b.mins[h])
		}
	}
	return b
}

// token adds the sums of token j to its accumulator.
func (b *blockAMX) token(j int, acc reg.VecPhysical) {
	d := b.all(j, b.four[0], recScale(amxTokens, j))
	for h := range b.groups() {
		scale := b.value()
		op("VMULPS", b.scales[h], d, scale)
		op("VFMADD231PS", b.sum(j, h), scale, acc)
		if b.min {
			op("VFMADD231PS", b.mins[h], b.all(j, b.four[1+h], recSum(amxTokens, j, b.group, h)), acc)
		}
	}
}

// value takes the next of the values.
func (b *blockAMX) value() reg.VecPhysical {
	b.used++
	return b.values[b.used%len(b.values)]
}

// all returns token j's value of the record in all lanes. Loads are scarce, shuffles are not, so four are loaded at a time.
func (b *blockAMX) all(j int, from reg.VecPhysical, record operand.Mem) reg.VecPhysical {
	value := b.value()
	if j%4 == 0 {
		op("VBROADCASTF32X4", record, from)
	}
	op("VPERMILPS", imm(j%4*0x55), from, value)
	return value
}

// sum returns token j's sums of group h as floats, in the ring if tiles have made them such.
func (b *blockAMX) sum(j, h int) operand.Op {
	sum := mem(amxRing, 1024*(b.step+h)+64*j)
	how := b.conversion(b.step + h)
	if how == byTiles {
		return sum
	}
	float := b.value()
	if how == byConverting {
		op("VCVTDQ2PS", sum, float)
	} else {
		op("VADDPS", sum, amxMinus, float)
	}
	return float
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
