// Command matmulfloat generates the assembly of the float matrix products: what
// MatMulPackedFloat calls on amd64.
//
// A lane of a vector is an output row, so the canonical order of the contract (one
// accumulator per output, k ascending) holds whatever the shape of a tile, and the
// kernels differ only in how many rows and tokens share the loads.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// blockRows is how many rows a packed block interleaves.
const blockRows = 16

// isa is one instruction set: how wide its vectors are and which shapes of tile
// its registers have room for.
type isa struct {
	name  string
	lanes int
	// panel lists, for tiles over a widened panel, the numbers of row blocks.
	panel []int
	// direct lists, for tiles over the weights as stored, the numbers of row blocks
	// by whether there is one token or more.
	directOne, directMany []int
}

var sets = []isa{
	{name: "AVX512", lanes: 16, panel: []int{4, 2, 1}, directOne: []int{4, 1}, directMany: []int{4}},
	{name: "AVX2", lanes: 8, panel: []int{1}, directOne: []int{4, 1}, directMany: []int{1}},
}

// maxCols is the largest number of tokens of a tile: 4 blocks by 6 tokens are 24 of
// the 32 registers of AVX-512, 2 half blocks by 6 tokens 12 of the 16 of AVX2.
const maxCols = 6

func main() {
	ConstraintExpr("amd64,!purego")
	for _, s := range sets {
		for _, f := range []string{"F32", "F16", "BF16"} {
			for _, r := range s.panel {
				s.widen(f, r)
			}
			for _, r := range s.directOne {
				s.direct(f, r, 1)
			}
			for c := 2; c <= maxCols; c++ {
				for _, r := range s.directMany {
					s.direct(f, r, c)
				}
			}
		}
		for _, r := range s.panel {
			for c := 1; c <= maxCols; c++ {
				s.tile(r, c)
			}
		}
	}
	Generate()
}

func (s isa) vec() reg.VecVirtual {
	if s.lanes == 16 {
		return ZMM()
	}
	return YMM()
}

func (s isa) vecs(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = s.vec()
	}
	return v
}

func (s isa) zero(v reg.VecVirtual) {
	if s.lanes == 16 {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
}

// perBlock is the number of vectors that hold one value of each row of a block.
func (s isa) perBlock() int { return blockRows / s.lanes }

// strided addresses things that lie stride bytes apart, three from each pointer.
type strided struct {
	bases  []reg.GPVirtual
	stride reg.GPVirtual
}

func newStrided(base, stride reg.GPVirtual, n int) strided {
	t := strided{bases: []reg.GPVirtual{base}, stride: stride}
	for i := 3; i < n; i += 3 {
		next, last := GP64(), t.bases[len(t.bases)-1]
		LEAQ(Mem{Base: last, Index: stride, Scale: 2}, next)
		ADDQ(stride, next)
		t.bases = append(t.bases, next)
	}
	return t
}

func (t strided) at(i, disp int) Mem {
	m := Mem{Base: t.bases[i/3], Disp: disp}
	if i%3 > 0 {
		m.Index, m.Scale = t.stride, uint8(i%3)
	}
	return m
}

func (t strided) advance(n int) {
	for _, b := range t.bases {
		ADDQ(I32(n), b)
	}
}

func load64(name string) reg.GPVirtual {
	return Load(Param(name), GP64()).(reg.GPVirtual)
}

// finish adds the bias, if there is one, and stores the accumulators, which are
// ordered by token and then by vector. Around the caches, if the results are aligned, they do not keep the stream of weights waiting
// for lines of theirs.
func (s isa) finish(acc []reg.VecVirtual, cols int, around bool) {
	bias, per := load64("bias"), len(acc)/cols
	TESTQ(bias, bias)
	JZ(LabelRef("store"))
	for v := range per {
		b := s.vec()
		VMOVUPS(Mem{Base: bias, Disp: v * s.lanes * 4}, b)
		for c := range cols {
			VADDPS(b, acc[c*per+v], acc[c*per+v])
		}
	}
	Label("store")
	out := newStrided(load64("out"), load64("outStride"), cols)
	store := func(move func(...Op)) {
		for c := range cols {
			for v := range per {
				move(acc[c*per+v], out.at(c, v*s.lanes*4))
			}
		}
	}
	if around {
		TESTQ(I32(s.lanes*4-1), out.bases[0])
		JNZ(LabelRef("near"))
		store(func(o ...Op) { VMOVNTPS(o[0], o[1]) })
		SFENCE()
		JMP(LabelRef("stored"))
		Label("near")
	}
	store(VMOVUPS)
	Label("stored")
	VZEROUPPER()
	RET()
}

// elementBytes is the size of a stored value.
func elementBytes(format string) int {
	if format == "F32" {
		return 4
	}
	return 2
}

// widenTo loads one vector of stored values as float32.
func (s isa) widenTo(format string, m Mem, v reg.VecVirtual) {
	switch format {
	case "F32":
		VMOVUPS(m, v)
	case "F16":
		VCVTPH2PS(m, v)
	case "BF16":
		VPMOVZXWD(m, v)
		VPSLLD(Imm(16), v, v)
	}
}

// widen generates the copy of k values of the rows of some blocks to a panel, in float32.
func (s isa) widen(format string, blocks int) {
	const unroll = 4
	name := fmt.Sprintf("widen%d%s%s", blocks, format, s.name)
	TEXT(name, NOSPLIT, "func(panel *float32, w *byte, wStride uintptr, k int)")
	Doc(fmt.Sprintf("%s fills a panel with k values of each row of %s, wStride bytes apart, as float32.", name, plural(blocks, "block")))
	Pragma("noescape")
	panel, k := load64("panel"), load64("k")
	w := newStrided(load64("w"), load64("wStride"), blocks)
	size := blockRows * elementBytes(format)
	step := func(n int) {
		at := 0
		for i := range n {
			for r := range blocks {
				for h := range s.perBlock() {
					v := s.vec()
					s.widenTo(format, w.at(r, i*size+h*size/s.perBlock()), v)
					VMOVUPS(v, Mem{Base: panel, Disp: at})
					at += s.lanes * 4
				}
			}
		}
		ADDQ(I32(at), panel)
		w.advance(n * size)
	}
	Label("four")
	SUBQ(I32(unroll), k)
	JL(LabelRef("last"))
	step(unroll)
	JMP(LabelRef("four"))
	Label("last")
	ADDQ(I32(unroll), k)
	JZ(LabelRef("done"))
	Label("one")
	step(1)
	DECQ(k)
	JNZ(LabelRef("one"))
	Label("done")
	VZEROUPPER()
	RET()
}

// tile generates the product of a panel of blocks with cols tokens. Called for one
// range of k after the other it continues the chains from out, where they
// lie in float32, so that cutting k changes no bit.
func (s isa) tile(blocks, cols int) {
	const unroll = 4
	name := fmt.Sprintf("tile%dx%d%s", blocks, cols, s.name)
	TEXT(name, NOSPLIT, "func(out *float32, outStride uintptr, panel *float32, x *float32, xStride uintptr, k int, bias *float32, first bool, ahead *byte, lines int)")
	Doc(fmt.Sprintf("%s multiplies k columns of %s with %s. It starts from zero if first, else from out, and fetches so many lines from ahead on.", name, plural(blocks, "widened block"), plural(cols, "token")))
	Pragma("noescape")
	per := blocks * s.perBlock()
	acc := s.vecs(per * cols)

	first := Load(Param("first"), GP8()).(reg.GPVirtual)
	TESTB(first, first)
	JNZ(LabelRef("zero"))
	out := newStrided(load64("out"), load64("outStride"), cols)
	for c := range cols {
		for v := range per {
			VMOVUPS(out.at(c, v*s.lanes*4), acc[c*per+v])
		}
	}
	JMP(LabelRef("start"))
	Label("zero")
	for _, a := range acc {
		s.zero(a)
	}
	Label("start")
	// Lines are fetched a few at a time, while there is much to multiply: many at once would fill the buffers through which
	// the panel comes.
	ahead, lines := load64("ahead"), load64("lines")
	fetch := func() {
		DECQ(lines)
		JL(LabelRef("fetched"))
		PREFETCHT1(Mem{Base: ahead})
		ADDQ(I32(64), ahead)
		Label("fetched")
	}
	// The results of the next tile lie in as many other rows, of which hardware sees too
	// little to fetch them in time.
	if cols == maxCols {
		stride, next, rows := load64("outStride"), GP64(), GP64()
		IMUL3Q(I32(cols), stride, next)
		ADDQ(load64("out"), next)
		MOVQ(I32(cols), rows)
		weights := fetch
		fetch = func() {
			weights()
			DECQ(rows)
			JL(LabelRef("ready"))
			for line := 0; line < blocks*blockRows*4; line += 64 {
				PREFETCHT0(Mem{Base: next, Disp: line})
			}
			ADDQ(stride, next)
			Label("ready")
		}
	}
	panel, k := load64("panel"), load64("k")
	x := newStrided(load64("x"), load64("xStride"), cols)
	step := func(n int) {
		for i := range n {
			w := s.vecs(per)
			for v := range per {
				VMOVUPS(Mem{Base: panel, Disp: (i*per + v) * s.lanes * 4}, w[v])
			}
			s.multiply(acc, w, x, cols, i)
		}
		ADDQ(I32(n*per*s.lanes*4), panel)
		x.advance(4 * n)
	}
	Label("four")
	SUBQ(I32(unroll), k)
	JL(LabelRef("last"))
	fetch()
	step(unroll)
	JMP(LabelRef("four"))
	Label("last")
	ADDQ(I32(unroll), k)
	JZ(LabelRef("end"))
	Label("one")
	step(1)
	DECQ(k)
	JNZ(LabelRef("one"))
	Label("end")
	s.finish(acc, cols, false)
}

// multiply adds the products of the vectors w with the i-th value of each token.
func (s isa) multiply(acc, w []reg.VecVirtual, x strided, cols, i int) {
	for c := range cols {
		b := s.vec()
		VBROADCASTSS(x.at(c, 4*i), b)
		for v := range w {
			VFMADD231PS(b, w[v], acc[c*len(w)+v])
		}
	}
}

// ladder is how far ahead of the weights in use memory is asked for more, in bytes of each block: each line several times, since some of the
// hints come to nothing while all places of the caches that wait for memory are taken.
var ladder = []struct {
	hint     func(Op)
	ahead    int
	nextCall bool // at the end of a block it names the next call's
}{
	{func(m Op) { PREFETCHT1(m) }, ahead, true},
	{func(m Op) { PREFETCHT1(m) }, 2048, false},
	{func(m Op) { PREFETCHT0(m) }, 1024, false},
}

// ahead is the farthest of the ladder.
const ahead = 3072

// direct generates the product of blocks, as stored, with one or a few tokens.
// Memory sets its speed: several blocks are read at once, each some way ahead.
func (s isa) direct(format string, blocks, cols int) {
	name := fmt.Sprintf("direct%dx%d%s%s", blocks, cols, format, s.name)
	TEXT(name, NOSPLIT, "func(out *float32, outStride uintptr, w *byte, wStride uintptr, x *float32, xStride uintptr, k int, bias *float32)")
	Doc(fmt.Sprintf("%s multiplies %s of %s, wStride bytes apart, with %s of k values.", name, plural(blocks, "block"), format, plural(cols, "token")))
	Pragma("noescape")
	size := blockRows * elementBytes(format)
	unroll := 128 / size
	per := s.perBlock()
	acc := s.vecs(blocks * per * cols)
	for _, a := range acc {
		s.zero(a)
	}
	w := newStrided(load64("w"), load64("wStride"), blocks)
	x := newStrided(load64("x"), load64("xStride"), cols)
	fetchFrom := strided{stride: w.stride}
	for _, b := range w.bases {
		f := GP64()
		MOVQ(b, f)
		fetchFrom.bases = append(fetchFrom.bases, f)
	}

	// The last part of each block fetches, with its farthest hint, the beginning of a block of the next call:
	// what follows a block in memory is its neighbour, which is being read already. Nearer hints, moved as far, would name
	// ends of blocks first.
	k, rest := load64("k"), GP64()
	MOVQ(k, rest)
	SUBQ(I32(ahead/size), k)
	JGE(LabelRef("long"))
	XORQ(k, k)
	Label("long")
	ANDQ(I32(-unroll), k)
	SUBQ(k, rest)

	// step multiplies n values of each row, and calls between as often as there are blocks.
	step := func(n int, between func()) {
		for i := range n {
			if cols == 1 {
				b := s.vec()
				VBROADCASTSS(x.at(0, 4*i), b)
				for r := range blocks {
					for h := range per {
						m := w.at(r, i*size+h*size/per)
						if format == "F32" {
							VFMADD231PS(m, b, acc[r*per+h])
							continue
						}
						v := s.vec()
						s.widenTo(format, m, v)
						VFMADD231PS(v, b, acc[r*per+h])
					}
					between()
				}
				continue
			}
			vs := make([]reg.VecVirtual, 0, blocks*per)
			for r := range blocks {
				for h := range per {
					v := s.vec()
					s.widenTo(format, w.at(r, i*size+h*size/per), v)
					vs = append(vs, v)
				}
				between()
			}
			s.multiply(acc, vs, x, cols, i)
		}
		w.advance(n * size)
		x.advance(n * 4)
	}
	var hints []func()
	for line := 0; line < unroll*size; line += 64 {
		for r := range blocks {
			for _, l := range ladder {
				from := w
				if l.nextCall {
					from = fetchFrom
				}
				hints = append(hints, func() { l.hint(from.at(r, line+l.ahead)) })
			}
		}
	}
	Label("many")
	SUBQ(I32(unroll), k)
	JL(LabelRef("part"))
	// All hints at once would keep loads waiting.
	given, steps := 0, 0
	step(unroll, func() {
		for steps++; given < len(hints)*steps/(unroll*blocks); given++ {
			hints[given]()
		}
	})
	fetchFrom.advance(unroll * size)
	JMP(LabelRef("many"))
	Label("part")
	ADDQ(I32(unroll), k)
	TESTQ(rest, rest)
	JZ(LabelRef("last"))
	MOVQ(rest, k)
	XORQ(rest, rest)
	for _, f := range fetchFrom.bases {
		for range blocks - 1 {
			ADDQ(w.stride, f)
		}
	}
	JMP(LabelRef("many"))
	Label("last")
	TESTQ(k, k)
	JZ(LabelRef("end"))
	Label("one")
	step(1, func() {})
	DECQ(k)
	JNZ(LabelRef("one"))
	Label("end")
	s.finish(acc, cols, cols == 1)
}

func plural(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
