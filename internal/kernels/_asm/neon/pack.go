package main

// lines transposes groups of four words of 16 rows, four rows at a time.
func (p *program) lines() {
	f := p.text("linesNEON", "makes 4*groups lines, each of a word of 16 rows, which lie stride bytes apart, and flips the bits of flip in each word.",
		"dst *byte, src *byte, stride int, groups int, flip int", "")
	const dst, src, stride, groups, row, flip x = 0, 1, 2, 3, 4, 5
	const flips vec = 8
	f.arg("dst", dst)
	f.arg("src", src)
	f.arg("stride", stride)
	f.arg("groups", groups)
	f.arg("flip", flip)
	f.dupx(flips, flip)
	f.label("loop")
	f.ins("MOVD R%d, R%d", src, row)
	for quad := range 4 {
		for i := range vec(4) {
			f.load("q", i, row, 0)
			f.ins("ADD R%d, R%d, R%d", stride, row, row)
		}
		for i := range vec(2) { // words 0 and 2, then 1 and 3, of two rows
			f.op("trn1.4s", 4+2*i, 2*i, 2*i+1)
			f.op("trn2.4s", 5+2*i, 2*i, 2*i+1)
		}
		for i := range vec(2) {
			f.op("zip1.2d", i, 4+i, 6+i)
			f.op("zip2.2d", 2+i, 4+i, 6+i)
		}
		for i := range vec(4) {
			f.op("eor.16b", i, i, flips)
			f.store(i, dst, 64*int(i)+16*quad)
		}
	}
	f.add(16, src)
	f.add(256, dst)
	f.again(1, groups, "loop")
	f.ret()
}
