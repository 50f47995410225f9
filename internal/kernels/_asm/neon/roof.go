package main

// roofs writes what measures a machine: reading memory, and dot products and fused
// multiply-adds of registers.
func (p *program) roofs() {
	f := p.text("readNEON", "reads n times 512 bytes.", "p *byte, n int", "")
	f.arg("p", 0)
	f.arg("n", 1)
	f.label("loop")
	for at := 0; at < 512; at += 32 {
		a := vec(at / 32 % 4 * 2)
		f.loadPair(16+a, 17+a, 0, at)
		f.op("add.4s", a, a, 16+a)
		f.op("add.4s", a+1, a+1, 17+a)
	}
	f.add(512, 0)
	f.again(1, 1, "loop")
	f.ret()

	p.busy("dotsNEON", func(f *function, v vec) { f.sdot(v, 12, 13, 0) })
	p.busy("fmasNEON", func(f *function, v vec) { f.op("fmla.4s", v, 12, 13) })
}

// busy writes a function that does an operation with 12 sums in a turn, from the 13th and the 14th
// register.
func (p *program) busy(name string, op func(f *function, v vec)) {
	f := p.text(name, "does n times 12 operations on whole registers.", "n int", "")
	f.arg("n", 1)
	for v := range vec(14) {
		f.zero(v)
	}
	f.label("loop")
	for v := range vec(12) {
		op(f, v)
	}
	f.again(1, 1, "loop")
	f.ret()
}
