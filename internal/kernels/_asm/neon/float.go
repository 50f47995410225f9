package main

import "fmt"

// A multiplier holds the sums of some tokens (or rows of queries, or of weights of values) by
// some blocks (or tiles) of 16 outputs, four vectors each.
type multiplier struct {
	*function
	kind           string // F32, F16 or BF16, of the blocks
	tokens, blocks int
	acc            []vec
	xs             []vec // four factors of each token
	pool           []vec // for blocks' elements
	used           int
	fetches        bool  // R5 lines from R4 on, one with four elements
	x, w           []int // registers of pointers to either
}

func newMultiplier(f *function, kind string, tokens, blocks int, xs, ws []int) *multiplier {
	m := &multiplier{function: f, kind: kind, tokens: tokens, blocks: blocks, x: xs, w: ws}
	n := tokens * blocks * 4
	m.acc = span(0, n)
	m.xs = span(vec(n), tokens)
	m.pool = span(vec(n+tokens), 32-n-tokens)
	return m
}

// at is the sum of a token in vector j of a block.
func (m *multiplier) at(t, b, j int) vec { return m.acc[(t*m.blocks+b)*4+j] }

func (m *multiplier) reg() vec {
	r := m.pool[m.used%len(m.pool)]
	m.used++
	return r
}

// size is the number of bytes of 16 elements.
func (m *multiplier) size() int {
	if m.kind == "F32" {
		return 64
	}
	return 32
}

// widen returns the halves of n as floats, n being free afterwards.
func (m *multiplier) widen(d, n vec, upper bool) {
	switch {
	case m.kind == "BF16":
		m.shll(d, n, upper)
	case upper:
		m.op("fcvtl2 4s 8h", d, n)
	default:
		m.op("fcvtl 4s 4h", d, n)
	}
}

// step multiplies element i of every block, of which factor i of the tokens is the partner.
func (m *multiplier) step(i int) {
	each := func(b, j int, w vec) {
		for t := range m.tokens {
			m.byElement("fmla", m.at(t, b, j), w, m.xs[t], i)
		}
	}
	for b := range m.blocks {
		for j := 0; j < 4; j += 2 {
			lo, hi := m.reg(), m.reg()
			if m.kind == "F32" {
				m.loadPair(lo, hi, x(m.w[b]), i*64+j*16)
				each(b, j, lo)
				each(b, j+1, hi)
				continue
			}
			m.load("q", lo, x(m.w[b]), i*32+j*8)
			m.widen(hi, lo, false)
			each(b, j, hi)
			m.widen(lo, lo, true)
			each(b, j+1, lo)
		}
	}
}

// advance moves the blocks' pointers n elements on.
func (m *multiplier) advance(n int) {
	for b := range m.blocks {
		m.add(n*m.size(), x(m.w[b]))
	}
}

// loop multiplies as many elements as the register says, which is used up.
func (m *multiplier) loop(steps x, four, few, one, done string) {
	m.ins("SUBS $4, R%d, R%d", steps, steps)
	m.ins("BLT %s", few)
	m.label(four)
	if m.fetches {
		m.ins("SUBS $1, R5, R5")
		m.ins("BLT fetched")
		m.ins("PRFM (R4), PLDL2KEEP")
		m.add(64, 4)
		m.label("fetched")
	}
	for t := range m.tokens {
		m.next("q", m.xs[t], x(m.x[t]))
	}
	for i := range 4 {
		m.step(i)
	}
	m.advance(4)
	m.ins("SUBS $4, R%d, R%d", steps, steps)
	m.ins("BGE %s", four)
	m.label(few)
	m.ins("ADDS $4, R%d, R%d", steps, steps)
	m.ins("BEQ %s", done)
	m.label(one)
	for t := range m.tokens {
		m.next("s", m.xs[t], x(m.x[t]))
	}
	m.step(0)
	m.advance(1)
	m.again(1, steps, one)
	m.label(done)
}

// rows writes loads or stores of the sums, rows of which are stride bytes apart from base on.
func (m *multiplier) sums(base, stride, ptr x, do func(regs []vec, base x, at int)) {
	m.ins("MOVD R%d, R%d", base, ptr)
	for t := range m.tokens {
		for b := range m.blocks {
			do(m.acc[(t*m.blocks+b)*4:][:4], ptr, 64*b)
		}
		if t < m.tokens-1 {
			m.ins("ADD R%d, R%d, R%d", stride, ptr, ptr)
		}
	}
}

// pointers sets registers to what lies stride bytes apart.
func (m *multiplier) pointers(base, stride x, regs []int) {
	for i, r := range regs {
		if i == 0 {
			m.ins("MOVD R%d, R%d", base, r)
		} else {
			m.ins("ADD R%d, R%d, R%d", stride, regs[i-1], r)
		}
	}
}

func (m *multiplier) clear() {
	for _, a := range m.acc {
		m.zero(a)
	}
}

// Pointers to factors and to blocks.
func tokenRegs(n int) []int { return []int{8, 9, 10, 11, 12, 13}[:n] }
func blockRegs(n int) []int { return []int{14, 15, 16, 17}[:n] }

func (p *program) floats() {
	for _, kind := range []string{"F32", "F16", "BF16"} {
		p.widen(kind)
		for tokens := 1; tokens <= 6; tokens++ {
			p.direct(kind, tokens, 1)
		}
		p.direct(kind, 1, 4)
	}
	for tokens := 1; tokens <= 6; tokens++ {
		p.floatTile(tokens)
	}
}

func (p *program) widen(kind string) {
	f := p.text("widen1"+kind+"NEON", "fills a panel with k values of each row of one block as float32.", "panel *float32, w *byte, wStride uintptr, k int", "")
	m := newMultiplier(f, kind, 1, 1, nil, nil)
	f.arg("panel", 0)
	f.arg("w", 1)
	f.arg("k", 2)
	f.label("loop")
	regs := span(0, 4)
	if kind == "F32" {
		f.loadAll(regs, 1, 0)
	} else {
		f.loadPair(4, 5, 1, 0)
		for j, d := range regs {
			m.widen(d, vec(4+j/2), j%2 == 1)
		}
	}
	f.storeAll(regs, 0, 0)
	f.add(64, 0)
	f.add(m.size(), 1)
	f.again(1, 2, "loop")
	f.ret()
}

// addBias adds the bias in R7, if there is one.
func (m *multiplier) addBias() {
	m.ins("CBZ R7, store")
	for b := range m.blocks {
		for j := range 4 {
			r := m.reg()
			m.load("q", r, 7, 64*b+16*j)
			for t := range m.tokens {
				m.op("fadd.4s", m.at(t, b, j), m.at(t, b, j), r)
			}
		}
	}
	m.label("store")
}

// direct multiplies blocks as they are stored with all values of some tokens.
func (p *program) direct(kind string, n, blocks int) {
	what := "one block"
	if blocks > 1 {
		what = fmt.Sprintf("%d blocks", blocks)
	}
	f := p.text(fmt.Sprintf("direct%dx%d%sNEON", blocks, n, kind), fmt.Sprintf("multiplies %s of %s, wStride bytes apart, with %s of k values.", what, kind, tokens(n)),
		"out *float32, outStride uintptr, w *byte, wStride uintptr, x *float32, xStride uintptr, k int, bias *float32", "")
	m := newMultiplier(f, kind, n, blocks, tokenRegs(n), blockRegs(blocks))
	for i, name := range []string{"out", "outStride", "w", "wStride", "x", "xStride", "k", "bias"} {
		f.arg(name, x(i))
	}
	m.pointers(4, 5, m.x)
	m.pointers(2, 3, m.w)
	m.clear()
	m.loop(6, "four", "few", "one", "done")
	m.addBias()
	m.sums(0, 1, 2, f.storeAll)
	f.ret()
}

// floatTile multiplies a part of the values of a block, already widened, with those of some
// tokens.
func (p *program) floatTile(n int) {
	f := p.text(fmt.Sprintf("tile1x%dNEON", n), "multiplies a panel of one block with k values of "+tokens(n)+", adds that to out unless it is the first, and fetches so many lines from ahead on.",
		"out *float32, outStride uintptr, panel *float32, x *float32, xStride uintptr, k int, bias *float32, first bool, ahead *byte, lines int", "")
	m := newMultiplier(f, "F32", n, 1, tokenRegs(n), blockRegs(1))
	for _, a := range []struct {
		name string
		reg  x
	}{{"out", 0}, {"outStride", 1}, {"panel", x(m.w[0])}, {"x", 4}, {"xStride", 5}, {"k", 6}, {"bias", 7}, {"first", 3}} {
		f.arg(a.name, a.reg)
	}
	m.pointers(4, 5, m.x)
	f.arg("ahead", 4)
	f.arg("lines", 5)
	m.fetches = true
	f.ins("CBNZ R3, first")
	m.sums(0, 1, 2, f.loadAll)
	f.ins("B begin")
	f.label("first")
	m.clear()
	f.label("begin")
	m.loop(6, "four", "few", "one", "done")
	m.addBias()
	m.sums(0, 1, 2, f.storeAll)
	f.ret()
}
