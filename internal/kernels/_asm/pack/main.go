// Command pack generates the assembly that turns rows of words into lines of lanes.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64,!purego")
	lines()
	Generate()
}

// lines transposes groups of four words of 16 rows. Half of a line is a vector: of two times four rows the
// words of 16 bytes become two times four lanes.
func lines() {
	TEXT("linesAVX2", NOSPLIT, "func(dst, src *byte, stride, groups int)")
	Doc("linesAVX2 makes 4*groups lines of 64 bytes, each of a word of 16 rows, which lie stride bytes apart.")
	Pragma("noescape")
	param := func(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }
	dst, src, stride, groups := param("dst"), param("src"), param("stride"), param("groups")
	stride3, rows8 := GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	LEAQ(Mem{Base: src, Index: stride, Scale: 8}, rows8)
	Label("loop")
	for half, base := range []reg.GPVirtual{src, rows8} {
		upper := GP64()
		LEAQ(Mem{Base: base, Index: stride, Scale: 4}, upper)
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = YMM()
			VMOVDQU(rowAt(base, stride, stride3, i), v[i].AsX())
			VINSERTI128(Imm(1), rowAt(upper, stride, stride3, i), v[i], v[i])
		}
		for i, r := range transpose(v) {
			VMOVDQU(r, Mem{Base: dst, Disp: 64*i + 32*half})
		}
	}
	ADDQ(Imm(16), src)
	ADDQ(Imm(16), rows8)
	ADDQ(U32(256), dst)
	DECQ(groups)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// rowAt addresses row i of four.
func rowAt(base, stride, stride3 reg.GPVirtual, i int) Mem {
	switch i {
	case 0:
		return Mem{Base: base}
	case 3:
		return Mem{Base: base, Index: stride3, Scale: 1}
	}
	return Mem{Base: base, Index: stride, Scale: uint8(i)}
}

// transpose transposes the four by four words in each half of the vectors.
func transpose(v [4]reg.VecVirtual) (out [4]reg.VecVirtual) {
	var t [4]reg.VecVirtual
	for i := range t {
		t[i], out[i] = YMM(), YMM()
	}
	VPUNPCKLDQ(v[1], v[0], t[0])
	VPUNPCKHDQ(v[1], v[0], t[1])
	VPUNPCKLDQ(v[3], v[2], t[2])
	VPUNPCKHDQ(v[3], v[2], t[3])
	VPUNPCKLQDQ(t[2], t[0], out[0])
	VPUNPCKHQDQ(t[2], t[0], out[1])
	VPUNPCKLQDQ(t[3], t[1], out[2])
	VPUNPCKHQDQ(t[3], t[1], out[3])
	return out
}
