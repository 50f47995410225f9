package main

// roofs writes what measures a machine: reading memory, and dot products of registers.
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

	f = p.text("dotsNEON", "does n times 12 dot products of whole registers.", "n int", "")
	f.arg("n", 1)
	for v := range vec(14) {
		f.zero(v)
	}
	f.label("loop")
	for v := range vec(12) {
		f.sdot(v, 12, 13, 0)
	}
	f.again(1, 1, "loop")
	f.ret()
}
