// Program matmulint generates the integer matrix products of package kernels for amd64.
//
// Three families, in each tier:
//
//	vec    packed weights times a tile of 1 to 6 tokens, one function per format
//	expand packed weights to one common form, one function per format
//	tile   expanded weights times a tile of 1 to 6 tokens, one function per kind of group
//	pair   the same for two row blocks at a time and a whole tile
//	matrix expanded weights times a tile of 16 tokens, with the tile unit of AMX
//
// packed.go and panel.go of package kernels describe what lies where in memory.
package main

import (
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	build.ConstraintExpr("!purego")
	avx512()
	avx2()
	amx()
	roofs()
	build.Generate()
}

// op emits an instruction with physical registers, of which avo need not know anything.
func op(name string, operands ...operand.Op) {
	parts := strings.Split(name, ".")
	together(func() { build.Instruction(&ir.Instruction{Opcode: parts[0], Suffixes: parts[1:], Operands: operands}) })
}

// held are the instructions of a body that fetching is going to emit; nil if instructions are emitted at once.
var held []func()

// together emits instructions between which no others may come.
func together(emit func()) {
	if held == nil {
		emit()
		return
	}
	held = append(held, emit)
}

func imm(n int) operand.Op { return operand.U8(n) }

func mem(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }

// The registers that all functions use alike.
var (
	regW      = reg.RAX // weights
	regX      = reg.RBX // activations of the block
	regOut    = reg.RCX // results
	regBias   = reg.RDX // bias, or 0
	regBlocks = reg.RSI // blocks of 32 values, or super-blocks
	regRows   = reg.RDI // blocks of 16 rows, or pairs of them
	regStride = reg.R8  // bytes between the results of two tokens
	regX0     = reg.R9  // activations of the first block
	regLeft   = reg.R10 // blocks left
	regInner  = reg.R11 // blocks left of a super-block
	regPtr    = reg.R12 // results of a token
	regConst  = reg.R13 // constants, at the start; then weights of the second row block
	regX16    = reg.R14 // sums of 16 activations of the block
	regX160   = reg.R15 // sums of 16 activations of the first block
)

// The parameters of functions that multiply packed and expanded weights.
const (
	productParams = "w, acts, sums16, out, bias *byte, blocks, n, outStride int"
	partParams    = "w, acts, sums16, out, bias *byte, blocks, n, outStride, join int"
)

// product begins a function that multiplies n row blocks or pairs of them.
func product(name, params, doc string) {
	build.TEXT(name, attr.NOSPLIT, "func("+params+")")
	build.Pragma("noescape")
	build.Doc(name + " " + doc)
	for _, p := range []struct {
		name string
		reg  reg.Register
	}{{"w", regW}, {"acts", regX0}, {"sums16", regX160}, {"out", regOut}, {"bias", regBias}, {"blocks", regBlocks}, {"n", regRows}, {"outStride", regStride}} {
		build.Load(build.Param(p.name), p.reg)
	}
	op("SHLQ", imm(2), regStride)
}

// param is a parameter in memory, which is where those used once in a row block stay.
func param(name string) operand.Op {
	a, err := build.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return a.Addr
}

// begin sets the accumulators of a part of a row to 0 or, to join what there is, to the results so far: those of a token
// lie one after the other, size bytes apart.
func begin(zero string, acc [][]reg.VecPhysical, size int) {
	for _, token := range acc {
		for _, a := range token {
			op(zero, a, a, a)
		}
	}
	op("CMPQ", param("join"), imm(0))
	build.JEQ(operand.LabelRef("begun"))
	op("MOVQ", regOut, regPtr)
	for i, token := range acc {
		for r, a := range token {
			op("VMOVUPS", mem(regPtr, size*r), a)
		}
		if i+1 < len(acc) {
			op("ADDQ", regStride, regPtr)
		}
	}
	build.Label("begun")
}

// ladder is how far ahead of the weights in use memory is asked for more. Each line is asked for several times, since some of the
// hints come to nothing while all places of the caches that wait for memory are taken. Steps of 4096 and more are slower than no step.
var ladder = []struct {
	hint  string
	ahead int
}{
	{"PREFETCHT1", 9216},
	{"PREFETCHT1", 6144},
	{"PREFETCHT0", 3072},
	{"PREFETCHT0", 1024},
}

// fetching emits body, which has no labels and does not change base, and spreads over it the hints for so many bytes of what
// follows, a line at a time from some byte on: all of them at once would keep loads waiting.
func fetching(base reg.Register, from, bytes int, body func()) {
	held = []func(){}
	body()
	list := held
	held = nil
	var hints []func()
	for at := from; at < bytes; at += 64 {
		for _, step := range ladder {
			hints = append(hints, func() { op(step.hint, mem(base, at+step.ahead)) })
		}
	}
	done := 0
	for i, emit := range list {
		emit()
		for ; done < len(hints)*(i+1)/len(list); done++ {
			hints[done]()
		}
	}
}

// storeAround stores a vector of results around the caches if it is aligned there: bringing lines of results near, even in time, costs
// the stream of weights a twentieth. The labels begin with a name. A function that does so ends with a fence.
func storeAround(r reg.VecPhysical, size int, name string) {
	op("TESTQ", operand.U32(size-1), regOut)
	build.JNZ(operand.LabelRef(name + "Near"))
	op("VMOVNTPS", r, mem(regOut, 0))
	build.JMP(operand.LabelRef(name + "Done"))
	build.Label(name + "Near")
	op("VMOVUPS", r, mem(regOut, 0))
	build.Label(name + "Done")
}

// fence orders stores around the caches before those that follow, by which other threads learn of them.
const fence = "SFENCE"

// format is what a generator has to know of a packed format.
type format struct {
	name   string
	bits   string // "nib", "nib1", "nib2", "byte", "two", "three"
	table  string // name of the table of nibbles, or ""
	zero   int    // the unsigned quant that means 0
	group  int
	min    bool
	super  bool   // scales are bytes times a scale of the super-block
	signed bool   // those bytes are signed
	scale  string // "f16", "e8m0", or of super-blocks "bytes" or "nibbles"
}

var formats = []format{
	{name: "Q4_0", bits: "nib", zero: 8, group: 32, scale: "f16"},
	{name: "Q4_1", bits: "nib", group: 32, min: true, scale: "f16"},
	{name: "Q5_0", bits: "nib1", zero: 16, group: 32, scale: "f16"},
	{name: "Q5_1", bits: "nib1", group: 32, min: true, scale: "f16"},
	{name: "Q8_0", bits: "byte", zero: 128, group: 32, scale: "f16"},
	{name: "Q2_K", bits: "two", group: 16, min: true, super: true, scale: "nibbles"},
	{name: "Q3_K", bits: "three", zero: 4, group: 16, super: true, signed: true, scale: "bytes"},
	{name: "Q4_K", bits: "nib", group: 32, min: true, super: true, scale: "bytes"},
	{name: "Q5_K", bits: "nib1", group: 32, min: true, super: true, scale: "bytes"},
	{name: "Q6_K", bits: "nib2", zero: 32, group: 16, super: true, signed: true, scale: "bytes"},
	{name: "IQ4_NL", bits: "nib", table: "nonLinear4", zero: 128, group: 32, scale: "f16"},
	{name: "IQ4_XS", bits: "nib", table: "nonLinear4", zero: 128, group: 32, super: true, signed: true, scale: "bytes"},
	{name: "MXFP4", bits: "nib", table: "e2m1Doubled", zero: 128, group: 32, scale: "e8m0"},
}

func (f *format) groups() int { return 32 / f.group }

// quantBytes is the size of the quants of a block of 32 values and 16 rows.
func (f *format) quantBytes() int {
	return map[string]int{"nib": 256, "nib1": 320, "nib2": 384, "byte": 512, "two": 128, "three": 192}[f.bits]
}

// scaleBytes is the size of what lies before the quants of a block: its scales and minima.
func (f *format) scaleBytes() int {
	n := map[string]int{"f16": 32, "e8m0": 16, "bytes": 16, "nibbles": 16}[f.scale] * f.groups()
	if f.min && f.scale != "nibbles" {
		n *= 2
	}
	return n
}

func (f *format) blockBytes() int { return f.scaleBytes() + f.quantBytes() }

// headBytes is the size of the scales of a super-block.
func (f *format) headBytes() int {
	switch {
	case !f.super:
		return 0
	case f.min:
		return 64
	}
	return 32
}

// The record of a block of activations of c tokens, and that of its sums of 16, see panel.go.
func recQuant(c, col int) operand.Mem { return mem(regX, col*32) }
func recScale(c, col int) operand.Mem { return mem(regX, c*32+col*4) }
func recBytes(c int) int              { return c * 44 }
func rec16Bytes(c int) int            { return c * 16 }

// zeroShift is by how much to shift what a record has for the zero point of bytes, -128 times the sum of the quants, for another.
var zeroShift = map[int]int{128: 0, 32: 2, 16: 3, 8: 4, 4: 5}

func recInit(c, col, group, half int) operand.Mem {
	if group == 32 {
		return mem(regX, c*36+col*4)
	}
	return mem(regX16, c*4*half+col*4)
}

func recSum(c, col, group, half int) operand.Mem {
	if group == 32 {
		return mem(regX, c*40+col*4)
	}
	return mem(regX16, c*(8+4*half)+col*4)
}

// firstRecord goes to the first block of the activations, nextRecord to the next.
func firstRecord(group int) {
	op("MOVQ", regX0, regX)
	if group == 16 {
		op("MOVQ", regX160, regX16)
	}
}

func nextRecord(c, group int) {
	op("ADDQ", operand.U32(recBytes(c)), regX)
	if group == 16 {
		op("ADDQ", operand.U32(rec16Bytes(c)), regX16)
	}
}

// The record of a block of expanded weights: 512 bytes of quants + 128, then for each
// group 16 scales, then for each group 16 minima.
func expScale(half int) int      { return 512 + 64*half }
func expMin(group, half int) int { return 512 + 64*(32/group) + 64*half }
func expBytes(group int, min bool) int {
	n := 64 * (32 / group)
	if min {
		n *= 2
	}
	return 512 + n
}
