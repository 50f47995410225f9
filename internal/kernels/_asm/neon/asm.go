package main

import (
	"fmt"
	"math"
	"strings"
)

// Go's assembler lacks most vector instructions of arm64. So each is written as the number that
// encodes it, with its name in Arm's notation beside it.

// program is the text of the two files.
type program struct {
	asm, stubs, data strings.Builder
	known            map[string]bool // what data defines
}

// function is one that is being written.
type function struct {
	*program
	name    string
	offsets map[string]int
	instr   map[string]string // that loads a parameter
}

// A vec is a vector register, an x one of the integer registers.
type (
	vec int
	x   int
)

// text begins a function. Parameters and result are as in Go, one name for each type.
func (p *program) text(name, doc, params, result string) *function {
	f := &function{program: p, name: name, offsets: map[string]int{}, instr: map[string]string{}}
	at := 0
	add := func(name, typ string) {
		size, instr := 8, "MOVD"
		switch typ {
		case "float32":
			size, instr = 4, "FMOVS"
		case "bool":
			size, instr = 1, "MOVBU"
		}
		at = (at + size - 1) / size * size
		f.offsets[name], f.instr[name] = at, instr
		at += size
	}
	for _, param := range strings.Split(params, ", ") {
		name, typ, _ := strings.Cut(param, " ")
		add(name, typ)
	}
	if result != "" {
		at = (at + 7) / 8 * 8
		add("ret", result)
		result = " " + result
	}
	fmt.Fprintf(&p.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s(%s)%s\n", name, doc, name, params, result)
	fmt.Fprintf(&p.asm, "\n// func %s(%s)%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, params, result, name, at)
	return f
}

// ins writes an instruction that Go's assembler knows.
func (f *function) ins(format string, args ...any) {
	fmt.Fprintf(&f.asm, "\t"+format+"\n", args...)
}

func (f *function) label(name string) { fmt.Fprintf(&f.asm, "\n%s:\n", name) }

func (f *function) ret() { f.ins("RET") }

// arg loads a parameter into an integer register.
func (f *function) arg(name string, r x) {
	f.ins("%s %s+%d(FP), R%d", f.instr[name], name, f.offsets[name], r)
}

// float loads a parameter into a vector register.
func (f *function) float(name string, v vec) {
	f.ins("FMOVS %s+%d(FP), F%d", name, f.offsets[name], v)
}

// add adds a constant to a register.
func (f *function) add(n int, r x) {
	switch {
	case n > 0:
		f.ins("ADD $%d, R%d, R%d", n, r, r)
	case n < 0:
		f.ins("SUB $%d, R%d, R%d", -n, r, r)
	}
}

// again goes to a label unless the counter, from which n is taken, has come to zero.
func (f *function) again(n int, counter x, label string) {
	f.ins("SUBS $%d, R%d, R%d", n, counter, counter)
	f.ins("BNE %s", label)
}

// word writes an encoded instruction.
func (f *function) word(code uint32, format string, args ...any) {
	fmt.Fprintf(&f.asm, "\tWORD $0x%08x // %s\n", code, fmt.Sprintf(format, args...))
}

// same are instructions whose registers have the same arrangement.
var same = map[string]uint32{
	"and.16b": 0x4e201c00, "orr.16b": 0x4ea01c00, "eor.16b": 0x6e201c00, "bic.16b": 0x4e601c00,
	"bit.16b": 0x6ea01c00, "bif.16b": 0x6ee01c00,
	"add.16b": 0x4e208400, "sub.16b": 0x6e208400, "add.4s": 0x4ea08400, "sub.4s": 0x6ea08400,
	"umax.4s": 0x6ea06400, "umin.4s": 0x6ea06c00, "smax.4s": 0x4ea06400,
	"fadd.4s": 0x4e20d400, "fsub.4s": 0x4ea0d400, "fmul.4s": 0x6e20dc00, "fdiv.4s": 0x6e20fc00,
	"fmla.4s": 0x4e20cc00, "fmls.4s": 0x4ea0cc00,
	"fcmge.4s": 0x6e20e400, "fcmgt.4s": 0x6ea0e400, "fcmeq.4s": 0x4e20e400,
	"fneg.4s": 0x6ea0f800, "fabs.4s": 0x4ea0f800,
	"trn1.4s": 0x4e802800, "trn2.4s": 0x4e806800, "zip1.2d": 0x4ec03800, "zip2.2d": 0x4ec07800,
	"scvtf.4s": 0x4e21d800, "fcvtns.4s": 0x4e21a800,
}

// mixed are instructions whose registers have different ones.
var mixed = map[string]uint32{
	"fcvtl 4s 4h": 0x0e217800, "fcvtl2 4s 8h": 0x4e217800,
	"fcvtn 4h 4s": 0x0e216800, "fcvtn2 8h 4s": 0x4e216800,
	"xtn 4h 4s": 0x0e612800, "xtn2 8h 4s": 0x4e612800, "xtn 8b 8h": 0x0e212800, "xtn2 16b 8h": 0x4e212800,
	"sdot 4s 16b 16b": 0x4e809400, "tbl 16b {16b} 16b": 0x4e000000,
	"sxtl 8h 8b": 0x0f08a400, "sxtl2 8h 16b": 0x4f08a400, "sxtl 4s 4h": 0x0f10a400, "sxtl2 4s 8h": 0x4f10a400,
	"uxtl 8h 8b": 0x2f08a400, "uxtl2 8h 16b": 0x6f08a400, "uxtl 4s 4h": 0x2f10a400, "uxtl2 4s 8h": 0x6f10a400,
}

// op writes an instruction of same or mixed; registers are the destination and then the operands.
func (f *function) op(name string, regs ...vec) {
	code, ok := same[name]
	mnemonic, arrangement, _ := strings.Cut(name, ".")
	arrangements := []string{arrangement, arrangement, arrangement}
	if !ok {
		if code, ok = mixed[name]; !ok {
			panic("no instruction " + name)
		}
		parts := strings.Split(name, " ")
		mnemonic, arrangements = parts[0], parts[1:]
	}
	operands := make([]string, len(regs))
	for i, r := range regs {
		a := arrangements[i]
		operands[i] = fmt.Sprintf("v%d.%s", r, a)
		if a[0] == '{' {
			operands[i] = fmt.Sprintf("{v%d.%s}", r, a[1:len(a)-1])
		}
		code |= uint32(r) << []int{0, 5, 16}[i]
	}
	f.word(code, "%s %s", mnemonic, strings.Join(operands, ", "))
}

// mov copies a register.
func (f *function) mov(d, n vec) {
	f.word(0x4ea01c00|uint32(n)<<16|uint32(n)<<5|uint32(d), "mov v%d.16b, v%d.16b", d, n)
}

// fma sets d to a + n*m, rounded once; a and d must differ.
func (f *function) fma(d, n, m, a vec) {
	f.mov(d, a)
	f.op("fmla.4s", d, n, m)
}

// shifts are by a constant, in each byte or word.
var shifts = map[string]uint32{"ushr": 0x6f000400, "sshr": 0x4f000400, "shl": 0x4f005400, "sli": 0x6f005400, "sri": 0x6f004400}

func (f *function) shift(name, arrangement string, d, n vec, by int) {
	size := map[string]int{"16b": 8, "4s": 32}[arrangement]
	imm := 2*size - by
	if name == "shl" || name == "sli" {
		imm = size + by
	}
	f.word(shifts[name]|uint32(imm)<<16|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s, #%d", name, d, arrangement, n, arrangement, by)
}

// shll widens the lower four halves, or the upper ones, to the top of words.
func (f *function) shll(d, n vec, upper bool) {
	if upper {
		f.word(0x6e613800|uint32(n)<<5|uint32(d), "shll2 v%d.4s, v%d.8h, #16", d, n)
		return
	}
	f.word(0x2e613800|uint32(n)<<5|uint32(d), "shll v%d.4s, v%d.4h, #16", d, n)
}

// shrn keeps the upper halves of words, as the lower or upper half of d.
func (f *function) shrn(d, n vec, upper bool) {
	if upper {
		f.word(0x4f108400|uint32(n)<<5|uint32(d), "shrn2 v%d.8h, v%d.4s, #16", d, n)
		return
	}
	f.word(0x0f108400|uint32(n)<<5|uint32(d), "shrn v%d.4h, v%d.4s, #16", d, n)
}

// lane is the encoding of element i of m, a word.
func lane(m vec, i int) uint32 { return uint32(i&1)<<21 | uint32(m)<<16 | uint32(i>>1)<<11 }

// byElement are d += n * m[i] and, for fmul, d = n * m[i].
func (f *function) byElement(name string, d, n, m vec, i int) {
	code := map[string]uint32{"fmla": 0x4f801000, "fmul": 0x4f809000}[name]
	f.word(code|lane(m, i)|uint32(n)<<5|uint32(d), "%s v%d.4s, v%d.4s, v%d.s[%d]", name, d, n, m, i)
}

// sdot adds to each word of d the products of four bytes of n with word i of m.
func (f *function) sdot(d, n, m vec, i int) {
	f.word(0x4f80e000|lane(m, i)|uint32(n)<<5|uint32(d), "sdot v%d.4s, v%d.16b, v%d.4b[%d]", d, n, m, i)
}

// dup fills d with word i of n.
func (f *function) dup(d, n vec, i int) {
	f.word(0x4e040400|uint32(i)<<19|uint32(n)<<5|uint32(d), "dup v%d.4s, v%d.s[%d]", d, n, i)
}

// dupx fills d with the lower 32 bits of r.
func (f *function) dupx(d vec, r x) {
	f.word(0x4e040c00|uint32(r)<<5|uint32(d), "dup v%d.4s, w%d", d, r)
}

// ext sets d to the upper 8 bytes of n and the lower 8 of m.
func (f *function) ext(d, n, m vec) {
	f.word(0x6e004000|uint32(m)<<16|uint32(n)<<5|uint32(d), "ext v%d.16b, v%d.16b, v%d.16b, #8", d, n, m)
}

// across reduces a vector to a scalar.
func (f *function) across(name string, d, n vec) {
	r := map[string]struct {
		code uint32
		text string
	}{
		"umaxv":  {0x6eb0a800, "umaxv s%d, v%d.4s"},
		"addv":   {0x4eb1b800, "addv s%d, v%d.4s"},
		"saddlv": {0x4e303800, "saddlv h%d, v%d.16b"},
		"faddp":  {0x7e30d800, "faddp s%d, v%d.2s"},
	}[name]
	f.word(r.code|uint32(n)<<5|uint32(d), r.text, d, n)
}

func (f *function) zero(d vec) { f.word(0x6f00e400|uint32(d), "movi v%d.2d, #0000000000000000", d) }

// bytes fills d with a byte, words with a word below 256.
func (f *function) bytes(d vec, v int) {
	f.word(0x4f00e400|uint32(v>>5)<<16|uint32(v&31)<<5|uint32(d), "movi v%d.16b, #%d", d, v)
}

func (f *function) words(d vec, v int) {
	f.word(0x4f000400|uint32(v>>5)<<16|uint32(v&31)<<5|uint32(d), "movi v%d.4s, #%d", d, v)
}

// bits fills d with a word, by way of R26.
func (f *function) bits(d vec, v uint32) {
	f.ins("MOVD $0x%08x, R26", v)
	f.dupx(d, 26)
}

func (f *function) constant(d vec, v float32) { f.bits(d, math.Float32bits(v)) }

// memory are loads and stores by the letter of the register's size.
var memory = map[string]struct {
	load, store uint32
	size        int
}{"q": {0x3dc00000, 0x3d800000, 16}, "d": {0xfd400000, 0xfd000000, 8}, "s": {0xbd400000, 0xbd000000, 4}}

func (f *function) load(size string, d vec, base x, at int) { f.access("ldr", size, d, base, at) }

func (f *function) store(d vec, base x, at int) { f.access("str", "q", d, base, at) }

func (f *function) access(name, size string, d vec, base x, at int) {
	m := memory[size]
	if at < 0 || at%m.size != 0 || at/m.size > 4095 {
		panic(fmt.Sprintf("%s: offset %d of %s", f.name, at, size))
	}
	code := m.load
	if name == "str" {
		code = m.store
	}
	text := fmt.Sprintf("%s %s%d, [x%d]", name, size, d, base)
	if at > 0 {
		text = fmt.Sprintf("%s %s%d, [x%d, #%d]", name, size, d, base, at)
	}
	f.word(code|uint32(at/m.size)<<10|uint32(base)<<5|uint32(d), "%s", text)
}

// loadPair loads two registers from 32 bytes.
func (f *function) loadPair(d, e vec, base x, at int) {
	if at < 0 || at%16 != 0 || at/16 > 63 {
		panic(fmt.Sprintf("%s: offset %d of a pair", f.name, at))
	}
	text := fmt.Sprintf("ldp q%d, q%d, [x%d]", d, e, base)
	if at > 0 {
		text = fmt.Sprintf("ldp q%d, q%d, [x%d, #%d]", d, e, base, at)
	}
	f.word(0xad400000|uint32(at/16)<<15|uint32(e)<<10|uint32(base)<<5|uint32(d), "%s", text)
}

// loadAll loads registers that follow one another in memory.
func (f *function) loadAll(ds []vec, base x, at int) {
	for ; len(ds) > 1; ds, at = ds[2:], at+32 {
		f.loadPair(ds[0], ds[1], base, at)
	}
	if len(ds) == 1 {
		f.load("q", ds[0], base, at)
	}
}

func (f *function) storeAll(ds []vec, base x, at int) {
	for i, d := range ds {
		f.store(d, base, at+16*i)
	}
}

// next loads a register of so many bytes and steps on.
func (f *function) next(size string, d vec, base x) {
	code := map[string]uint32{"q": 0x3cc00400, "s": 0xbc400400}[size]
	n := memory[size].size
	f.word(code|uint32(n)<<12|uint32(base)<<5|uint32(d), "ldr %s%d, [x%d], #%d", size, d, base, n)
}

// fill loads a float into all lanes.
func (f *function) fill(d vec, base x) {
	f.word(0x4d40c800|uint32(base)<<5|uint32(d), "ld1r {v%d.4s}, [x%d]", d, base)
}

// split loads pairs of floats, the first into d, the second into d+1; join stores them.
func (f *function) split(d vec, base x) {
	f.word(0x4c408800|uint32(base)<<5|uint32(d), "ld2 {v%d.4s, v%d.4s}, [x%d]", d, d+1, base)
}

func (f *function) join(d vec, base x) {
	f.word(0x4c008800|uint32(base)<<5|uint32(d), "st2 {v%d.4s, v%d.4s}, [x%d]", d, d+1, base)
}

// storeHalf stores half i of a register and steps on by the bytes in step.
func (f *function) storeHalf(d vec, i int, base, step x) {
	code := 0x0d804000 | uint32(step)<<16 | uint32(i>>2)<<30 | uint32(i>>1&1)<<12 | uint32(i&1)<<11
	f.word(code|uint32(base)<<5|uint32(d), "st1 {v%d.h}[%d], [x%d], x%d", d, i, base, step)
}

// scalar are operations on single floats.
func (f *function) scalar(name string, d, n, m vec) {
	code := map[string]uint32{"fadd": 0x1e202800, "fmul": 0x1e200800, "fdiv": 0x1e201800}[name]
	f.word(code|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s s%d, s%d, s%d", name, d, n, m)
}

// storeFloat stores a single word.
func (f *function) storeFloat(d vec, base x) { f.access("str", "s", d, base, 0) }

// table loads 16 bytes that data defines.
func (f *function) table(d vec, name string, data [16]byte) {
	if !f.known[name] {
		f.known[name] = true
		for i := 0; i < 16; i += 8 {
			var v uint64
			for j := range 8 {
				v |= uint64(data[i+j]) << (8 * j)
			}
			fmt.Fprintf(&f.data, "DATA %s<>+%d(SB)/8, $0x%016x\n", name, i, v)
		}
		fmt.Fprintf(&f.data, "GLOBL %s<>(SB), RODATA|NOPTR, $16\n\n", name)
	}
	f.ins("MOVD $%s<>(SB), R26", name)
	f.load("q", d, 26, 0)
}

// span returns n registers from one on.
func span(from vec, n int) []vec {
	r := make([]vec, n)
	for i := range r {
		r[i] = from + vec(i)
	}
	return r
}
