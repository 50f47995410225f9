package main

import "fmt"

// format is what a generator has to know of a packed format.
type format struct {
	name   string
	bits   string // "nib", "nib1", "nib2", "byte", "two", "three"
	table  *[16]int8
	zero   int // the unsigned quant that means 0, once bytes and tables are signed
	group  int
	min    bool
	super  bool   // scales are bytes times a scale of the super-block
	signed bool   // those bytes are signed
	scale  string // "f16", "e8m0", or of super-blocks "bytes" or "nibbles"
}

var (
	nonLinear4  = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	e2m1Doubled = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

var formats = []format{
	{name: "Q4_0", bits: "nib", zero: 8, group: 32, scale: "f16"},
	{name: "Q4_1", bits: "nib", group: 32, min: true, scale: "f16"},
	{name: "Q5_0", bits: "nib1", zero: 16, group: 32, scale: "f16"},
	{name: "Q5_1", bits: "nib1", group: 32, min: true, scale: "f16"},
	{name: "Q8_0", bits: "byte", group: 32, scale: "f16"},
	{name: "Q2_K", bits: "two", group: 16, min: true, super: true, scale: "nibbles"},
	{name: "Q3_K", bits: "three", zero: 4, group: 16, super: true, signed: true, scale: "bytes"},
	{name: "Q4_K", bits: "nib", group: 32, min: true, super: true, scale: "bytes"},
	{name: "Q5_K", bits: "nib1", group: 32, min: true, super: true, scale: "bytes"},
	{name: "Q6_K", bits: "nib2", zero: 32, group: 16, super: true, signed: true, scale: "bytes"},
	{name: "IQ4_NL", bits: "nib", table: &nonLinear4, group: 32, scale: "f16"},
	{name: "IQ4_XS", bits: "nib", table: &nonLinear4, group: 32, super: true, signed: true, scale: "bytes"},
	{name: "MXFP4", bits: "nib", table: &e2m1Doubled, group: 32, scale: "e8m0"},
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

// The record of a block of expanded weights: 512 bytes of signed quants, then for each
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

// Integer registers of products.
const (
	regW      x = iota // weights of the row block
	regActs            // activations of the first block
	regSums            // sums of 16 of the first block
	regOut             // results
	regBias            // bias, or 0
	regBlocks          // blocks of a row
	regRows            // row blocks left
	regStride          // bytes between the results of two tokens
	regLeft            // blocks left
	regX               // activations of the block
	regX16             // its sums of 16
	regHead            // scales of the super-block
	regInner           // blocks left of a super-block
	regPtr             // results of a token
	regCursor          // weights of the block
)

// kernel is a function for c tokens, whose registers hold v vectors of four rows at a time.
// A row block takes 4/v passes.
type kernel struct {
	*function
	f    *format
	c, v int
	pass int

	acc, sums, acts []vec
	w, u            []vec // weights, temporaries
	t               vec
	d, dmin         []vec // scales of the super-block, if there is room

	line int // the one that is in w
}

// Constants of a format.
const (
	maskLow vec = 28
	maskTop vec = 29 // also the table
	maskAux vec = 30
)

func newKernel(fn *function, f *format, c int) *kernel {
	v := 4
	if c == 4 {
		v = 2
	}
	k := &kernel{function: fn, f: f, c: c, v: v, t: 31, line: -1}
	k.acc, k.sums, k.acts = span(0, c*v), span(vec(c*v), c*v), span(vec(2*c*v), 2*c)
	rest := vec(2*c*v + 2*c)
	k.w, k.u = span(rest, v), span(rest+vec(v), v)
	if c == 1 && f != nil && f.super {
		k.d, k.dmin = span(18, v), span(22, v)
	}
	return k
}

// constants loads what unpacking needs.
func (k *kernel) constants() {
	f := k.f
	low := map[string]int{"nib": 0x0f, "nib1": 0x0f, "nib2": 0x0f, "byte": 0x80, "two": 3, "three": 7}[f.bits]
	k.bytes(maskLow, low)
	if top := map[string]int{"nib1": 0x1f, "nib2": 0x3f}[f.bits]; top != 0 {
		k.bytes(maskTop, top)
	}
	if f.table != nil {
		var data [16]byte
		for i, v := range f.table {
			data[i] = byte(v)
		}
		name := "nonLinear4"
		if f.table == &e2m1Doubled {
			name = "e2m1Doubled"
		}
		k.table(maskTop, name, data)
	}
	switch f.scale {
	case "nibbles":
		k.bytes(maskAux, 0x0f)
	case "e8m0":
		k.words(maskAux, 1)
	}
}

// quantsAt is where line i of the block's quants lies.
func (k *kernel) quantsAt(i int) int { return k.f.scaleBytes() + 64*i + 16*k.v*k.pass }

// fetch brings a line of quants to w.
func (k *kernel) fetch(line int) {
	if k.line != line {
		k.loadAll(k.w, regCursor, k.quantsAt(line))
		k.line = line
	}
}

// left shifts bytes left or, if by is negative, right.
func (k *kernel) left(d, n vec, by int) {
	switch {
	case by > 0:
		k.shift("shl", "16b", d, n, by)
	case by < 0:
		k.shift("ushr", "16b", d, n, -by)
	}
}

// word4 unpacks word g of each row, four quants, into u.
func (k *kernel) word4(g int) {
	bits := k.f.bits
	switch bits {
	case "three":
		k.triple(g)
		return
	case "nib", "nib1", "nib2":
		k.fetch(g % 4)
	case "two":
		k.fetch(g / 4)
	case "byte":
		k.fetch(g)
	}
	// Bits above come first, shifted to their place, among others that are masked out.
	above, by, clean := 0, 0, false
	switch bits {
	case "nib1":
		above, by, clean = 4, 4-g, g == 7
	case "nib2":
		above, by, clean = 4+g/4, 4-2*(g%4), g%4 == 3
	}
	if above > 0 {
		k.loadAll(k.u, regCursor, k.quantsAt(above))
	}
	for j, u := range k.u {
		w := k.w[j]
		switch {
		case bits == "byte":
			k.op("eor.16b", u, w, maskLow)
		case bits == "nib" && g < 4:
			k.op("and.16b", u, w, maskLow)
		case bits == "nib":
			k.shift("ushr", "16b", u, w, 4)
		case bits == "two":
			k.pair(u, w, g%4)
		default:
			k.left(u, u, by)
			if g < 4 {
				k.op("bit.16b", u, w, maskLow)
			} else {
				k.shift("sri", "16b", u, w, 4)
			}
		}
		if above > 0 && !clean {
			k.op("and.16b", u, u, maskTop)
		}
		if k.f.table != nil {
			k.op("tbl 16b {16b} 16b", u, maskTop, u)
		}
	}
}

// triple is word4 for triples: words of nibbles, and of what lies above three bits in the nibbles of all lines.
func (k *kernel) triple(g int) {
	up := g / 4 * 4
	if g%4 < 3 {
		k.fetch(g % 4)
		for j, u := range k.u {
			from := k.w[j]
			if up > 0 {
				k.left(u, from, -up)
				from = u
			}
			k.op("and.16b", u, from, maskLow)
		}
		return
	}
	for line := range 3 {
		k.fetch(line)
		for j, u := range k.u {
			if line == 0 {
				k.left(u, k.w[j], -up-3)
				continue
			}
			k.left(k.t, k.w[j], -up-3)
			k.shift("sli", "16b", u, k.t, line)
		}
	}
	if up == 0 {
		for _, u := range k.u {
			k.op("and.16b", u, u, maskLow)
		}
	}
}

// pair brings bit pair i to the lowest bits.
func (k *kernel) pair(d, n vec, i int) {
	switch i {
	case 0:
		k.op("and.16b", d, n, maskLow)
	case 3:
		k.left(d, n, -6)
	default:
		k.left(d, n, -2*i)
		k.op("and.16b", d, d, maskLow)
	}
}

// wordsOf lists the words of a group in the order in which their lines are read once.
func wordsOf(bits string, group, half int) []int {
	switch {
	case group == 16 && half == 0:
		return []int{0, 1, 2, 3}
	case group == 16:
		return []int{4, 5, 6, 7}
	case bits == "byte":
		return []int{0, 1, 2, 3, 4, 5, 6, 7}
	}
	return []int{0, 4, 1, 5, 2, 6, 3, 7}
}

// lanesOf loads one float or integer of each token.
func (k *kernel) lanesOf(d vec, base x, at int) {
	k.load(map[int]string{1: "s", 2: "d", 4: "q"}[k.c], d, base, at)
}

// init sets the sums to what makes up for the zero point.
func (k *kernel) init(half int) {
	zero := 0
	if k.f != nil {
		zero = k.f.zero
	}
	if zero == 0 {
		for _, s := range k.sums {
			k.zero(s)
		}
		return
	}
	if k.f.group == 32 {
		k.lanesOf(k.t, regX, k.c*36)
	} else {
		k.lanesOf(k.t, regX16, k.c*4*half)
	}
	k.shift("sshr", "4s", k.t, k.t, map[int]int{32: 2, 16: 3, 8: 4, 4: 5}[zero])
	for i, s := range k.sums {
		k.dup(s, k.t, i/k.v)
	}
}

// products adds the products of a word, in regs, with those of each token.
func (k *kernel) products(g int, regs []vec) {
	for t := range k.c {
		for j, w := range regs {
			k.sdot(k.sums[t*k.v+j], w, k.acts[2*t+g/4], g%4)
		}
	}
}

func (k *kernel) loadActs() {
	for t := range k.c {
		k.loadPair(k.acts[2*t], k.acts[2*t+1], regX, 32*t)
	}
}

// accumulate adds the sums, times the scales in w and those of the tokens.
func (k *kernel) accumulate() {
	k.lanesOf(k.t, regX, k.c*32)
	for i, s := range k.sums {
		t, u := i/k.v, k.u[i%k.v]
		k.byElement("fmul", u, k.w[i%k.v], k.t, t)
		k.op("scvtf.4s", s, s)
		k.op("fmla.4s", k.acc[i], s, u)
	}
	k.line = -1
}

// minimum adds the minima in w, times the tokens' sums.
func (k *kernel) minimum(group, half int) {
	if group == 32 {
		k.lanesOf(k.t, regX, k.c*40)
	} else {
		k.lanesOf(k.t, regX16, k.c*(8+4*half))
	}
	for i, a := range k.acc {
		k.byElement("fmla", a, k.w[i%k.v], k.t, i/k.v)
	}
}

// halves loads half-precision numbers as floats.
func (k *kernel) halves(ds []vec, base x, at int) {
	for j, d := range ds {
		k.load("d", d, base, at+8*(j+k.v*k.pass))
		k.op("fcvtl 4s 4h", d, d)
	}
}

// smallScales loads bytes as integers into w: high nibbles, low ones, or whole.
func (k *kernel) smallScales(at int, part string) {
	u := k.u[0]
	k.load(map[int]string{2: "d", 4: "q"}[k.v], u, regCursor, at+4*k.v*k.pass)
	switch part {
	case "low":
		k.op("and.16b", u, u, maskAux)
	case "high":
		k.shift("ushr", "16b", u, u, 4)
	}
	widen := "uxtl"
	if part == "signed" {
		widen = "sxtl"
	}
	k.op(widen+" 8h 8b", k.w[0], u)
	if k.v == 4 {
		k.op(widen+"2 8h 16b", k.w[2], u)
		k.op(widen+"2 4s 8h", k.w[3], k.w[2])
		k.op(widen+" 4s 4h", k.w[2], k.w[2])
	}
	k.op(widen+"2 4s 8h", k.w[1], k.w[0])
	k.op(widen+" 4s 4h", k.w[0], k.w[0])
}

// times multiplies the integers in w with scales of the super-block.
func (k *kernel) times(kept []vec, at int) {
	if kept == nil {
		kept = k.u
		k.halves(k.u, regHead, at)
	}
	for j, w := range k.w {
		k.op("scvtf.4s", w, w)
		k.op("fmul.4s", w, w, kept[j])
	}
}

// scale and min bring those of group h into w.
func (k *kernel) scale(h int) {
	f := k.f
	switch f.scale {
	case "f16":
		k.halves(k.w, regCursor, 0)
	case "e8m0": // 2^(e-128), subnormal if e < 2: (1 + min(e, 1)) << 21, otherwise (e-1) << 23
		k.smallScales(0, "")
		for j, w := range k.w {
			u := k.u[j]
			k.op("umin.4s", u, w, maskAux)
			k.op("add.4s", u, u, maskAux)
			k.shift("shl", "4s", u, u, 21)
			k.op("sub.4s", w, w, maskAux)
			k.shift("shl", "4s", w, w, 23)
			k.op("smax.4s", w, w, u)
		}
	default:
		part := ""
		if f.scale == "nibbles" {
			part = "low"
		} else if f.signed {
			part = "signed"
		}
		k.smallScales(16*h, part)
		k.times(k.d, 0)
	}
}

func (k *kernel) min(h int) {
	switch k.f.scale {
	case "f16":
		k.halves(k.w, regCursor, 32)
	case "bytes":
		k.smallScales(16*k.f.groups()+16*h, "")
		k.times(k.dmin, 32)
	case "nibbles":
		k.smallScales(16*h, "high")
		k.times(k.dmin, 32)
	}
}

// The parameters of functions that multiply packed and expanded weights.
const (
	productParams = "w *byte, acts *byte, sums16 *byte, out *byte, bias *byte, blocks int, n int, outStride int"
	partParams    = productParams + ", join int"
)

// product writes a function that multiplies row blocks: begin sets the accumulators, body multiplies a block whose weights
// are at regCursor, step bytes from the next, head bytes of a super-block apart.
func (k *kernel) product(group, step int, begin, body func()) {
	head := 0
	if k.f != nil {
		head = k.f.headBytes()
	}
	for i, name := range []string{"w", "acts", "sums16", "out", "bias", "blocks", "n", "outStride"} {
		k.arg(name, x(i))
	}
	k.ins("LSL $2, R%d, R%d", regStride, regStride)
	k.label("row")
	for k.pass = range 4 / k.v {
		name := func(s string) string { return fmt.Sprint(s, k.pass) }
		begin()
		k.ins("MOVD R%d, R%d", regW, regCursor)
		k.ins("MOVD R%d, R%d", regActs, regX)
		k.ins("MOVD R%d, R%d", regSums, regX16)
		k.ins("MOVD R%d, R%d", regBlocks, regLeft)
		k.label(name("block"))
		if head > 0 {
			k.ins("MOVD R%d, R%d", regCursor, regHead)
			if k.d != nil {
				k.halves(k.d, regHead, 0)
				if k.f.min {
					k.halves(k.dmin, regHead, 32)
				}
			}
			k.add(head, regCursor)
			k.ins("MOVD $8, R%d", regInner)
			k.label(name("inner"))
		}
		k.line = -1
		body()
		k.add(step, regCursor)
		k.add(44*k.c, regX)
		if group == 16 {
			k.add(16*k.c, regX16)
		}
		if head > 0 {
			k.again(1, regInner, name("inner"))
		}
		k.again(1, regLeft, name("block"))
		k.finish(name("store"))
	}
	k.ins("MOVD R%d, R%d", regCursor, regW)
	k.add(64, regOut)
	k.again(1, regRows, "row")
	k.ret()
}

// clear sets the accumulators to 0.
func (k *kernel) clear() {
	for _, a := range k.acc {
		k.zero(a)
	}
}

// join sets the accumulators to 0 or, to join what there is, to the results so far.
func (k *kernel) join() {
	label := fmt.Sprint("begun", k.pass)
	k.clear()
	k.arg("join", regPtr)
	k.ins("CBZ R%d, %s", regPtr, label)
	k.ins("MOVD R%d, R%d", regOut, regPtr)
	for t := range k.c {
		k.loadAll(k.acc[t*k.v:][:k.v], regPtr, 16*k.v*k.pass)
		if t < k.c-1 {
			k.ins("ADD R%d, R%d, R%d", regStride, regPtr, regPtr)
		}
	}
	k.label(label)
}

// finish adds the bias and stores the results of a pass.
func (k *kernel) finish(label string) {
	at := 16 * k.v * k.pass
	k.ins("CBZ R%d, %s", regBias, label)
	k.loadAll(k.w, regBias, at)
	for i, a := range k.acc {
		k.op("fadd.4s", a, a, k.w[i%k.v])
	}
	if k.pass == 4/k.v-1 {
		k.add(64, regBias)
	}
	k.label(label)
	k.ins("MOVD R%d, R%d", regOut, regPtr)
	for t := range k.c {
		k.storeAll(k.acc[t*k.v:][:k.v], regPtr, at)
		if t < k.c-1 {
			k.ins("ADD R%d, R%d, R%d", regStride, regPtr, regPtr)
		}
	}
}

func (p *program) integer() {
	for i := range formats {
		for _, c := range []int{1, 2, 4} {
			p.vector(&formats[i], c)
		}
		p.expand(&formats[i])
	}
	for _, group := range []int{32, 16} {
		for _, min := range []bool{false, true} {
			for _, c := range []int{1, 2, 4} {
				p.tile(group, min, c)
			}
		}
	}
}

func tokens(c int) string {
	if c == 1 {
		return "one token"
	}
	return fmt.Sprintf("%d tokens", c)
}

func (p *program) vector(f *format, c int) {
	fn := p.text(fmt.Sprintf("vecNEON%sx%d", f.name, c), "multiplies packed weights with the activations of "+tokens(c)+".", productParams, "")
	k := newKernel(fn, f, c)
	k.constants()
	k.product(f.group, f.blockBytes(), k.clear, func() {
		k.loadActs()
		for h := range f.groups() {
			k.init(h)
			for _, g := range wordsOf(f.bits, f.group, h) {
				k.word4(g)
				k.products(g, k.u)
			}
			k.scale(h)
			k.accumulate()
			if f.min {
				k.min(h)
				k.minimum(f.group, h)
			}
		}
	})
}

func (p *program) expand(f *format) {
	fn := p.text("expandNEON"+f.name, "brings packed weights into the form that the tile functions read.", "w *byte, dst *byte, blocks int, rowBlocks int", "")
	k := newKernel(fn, f, 1)
	dst, zero := x(regX), vec(27)
	k.arg("w", regCursor)
	k.arg("dst", dst)
	k.arg("blocks", regBlocks)
	k.arg("rowBlocks", regRows)
	k.constants()
	if f.zero != 0 {
		k.bytes(zero, f.zero)
	}
	k.label("row")
	k.ins("MOVD R%d, R%d", regBlocks, regLeft)
	k.label("block")
	if f.super {
		k.halves(k.d, regCursor, 0)
		if f.min {
			k.halves(k.dmin, regCursor, 32)
		}
		k.add(f.headBytes(), regCursor)
		k.ins("MOVD $8, R%d", regInner)
		k.label("inner")
	}
	k.line = -1
	for _, g := range wordsOf(f.bits, 32, 0) {
		k.word4(g)
		if f.zero != 0 {
			for _, u := range k.u {
				k.op("sub.16b", u, u, zero)
			}
		}
		k.storeAll(k.u, dst, 64*g)
	}
	for h := range f.groups() {
		k.scale(h)
		k.storeAll(k.w, dst, expScale(h))
		if f.min {
			k.min(h)
			k.storeAll(k.w, dst, expMin(f.group, h))
		}
	}
	k.add(f.blockBytes(), regCursor)
	k.add(expBytes(f.group, f.min), dst)
	if f.super {
		k.again(1, regInner, "inner")
	}
	k.again(1, regLeft, "block")
	k.again(1, regRows, "row")
	k.ret()
}

func (p *program) tile(group int, min bool, c int) {
	name := fmt.Sprintf("tileNEONg%dx%d", group, c)
	if min {
		name = fmt.Sprintf("tileNEONg%dminx%d", group, c)
	}
	fn := p.text(name, "multiplies row blocks of expanded weights with a tile of "+tokens(c)+".", partParams, "")
	k := newKernel(fn, nil, c)
	k.product(group, expBytes(group, min), k.join, func() {
		at := 16 * k.v * k.pass
		k.loadActs()
		for h := range 32 / group {
			k.init(h)
			for _, g := range wordsOf("byte", group, h) {
				w := [][]vec{k.w, k.u}[g%2]
				k.loadAll(w, regCursor, 64*g+at)
				k.products(g, w)
			}
			k.loadAll(k.w, regCursor, expScale(h)+at)
			k.accumulate()
			if min {
				k.loadAll(k.w, regCursor, expMin(group, h)+at)
				k.minimum(group, h)
			}
		}
	})
}
