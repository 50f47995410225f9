package kernels

import (
	"encoding/binary"

	"github.com/minfer/minfer/internal/quant"
)

// Packing turns rows into lanes. A word of 4 bytes of each of 16 rows makes a line of 64 bytes;
// once the words of a block lie in lines, what is left to do is the same for every lane, and
// is done to eight bytes at a time.
const lineSize = 4 * PackedRows

// Pack fills row blocks [block0, block1) of dst, which has PackedSize bytes. The weight must be
// one that PackedSize accepts. Distinct row blocks may be packed at the same time.
func Pack(dst []byte, w *Weight, block0, block1 int, tier Tier) {
	size := rowBlockSize(w.Format, w.In)
	p := packing{tier: tier, f: w.Format, l: packedLayouts[w.Format.Name], stride: w.rowBytes}
	for b := block0; b < block1; b++ {
		r0, r1 := b*PackedRows, min((b+1)*PackedRows, w.Out)
		p.dst, p.src, p.rows = dst[b*size:][:size], w.Data[r0*w.rowBytes:r1*w.rowBytes], r1-r0
		if p.rows < PackedRows {
			clear(p.dst)
			clear(p.lines[:])
		}
		p.rowBlock(w)
	}
}

// packing is a row block that is being packed.
type packing struct {
	tier         Tier
	f            *quant.Format
	l            *packedLayout // nil for floats
	dst          []byte        // of the row block, what is left to be packed
	src          []byte        // of its rows, from the first one's next block on
	stride, rows int           // bytes from row to row, and how many rows there are

	lines [maxWords * lineSize]byte // words of a block, or of a row of floats
}

// maxWords is the most words of a block.
const maxWords = 52

func (p *packing) rowBlock(w *Weight) {
	if p.l == nil {
		p.floats(w.In)
		return
	}
	n := len(p.dst) / (w.In / p.f.Block)
	for {
		if p.l.super() {
			p.superBlock()
		} else {
			p.block()
		}
		if p.dst = p.dst[n:]; len(p.dst) == 0 {
			return
		}
		p.src = p.src[p.f.Bytes:]
	}
}

// words makes lines of n words of each row from byte at of the block on, with bits of flip flipped.
func (p *packing) words(lines []byte, at, n int, flip uint32) {
	if p.rows == PackedRows {
		if done := p.tier.lines(lines, p.src[at:], p.stride, n, flip); done > 0 {
			if done < n {
				last := n - 4 // some of these words are made again
				p.tier.lines(lines[last*lineSize:], p.src[at+4*last:], p.stride, 4, flip)
			}
			return
		}
	}
	lines = lines[:n*lineSize]
	for r := range p.rows {
		src := p.src[r*p.stride+at:][:4*n]
		for w := 4 * r; len(src) >= 4; w += lineSize {
			binary.LittleEndian.PutUint32(lines[w:], binary.LittleEndian.Uint32(src)^flip)
			src = src[4:]
		}
	}
}

// halves puts the two bytes at of each row's block side by side, with bits of flip flipped.
func (p *packing) halves(dst []byte, at int, flip uint16) {
	if p.rows == PackedRows && p.tier.halves(dst, p.src[at:], p.stride, flip) {
		return
	}
	for r := range p.rows {
		binary.LittleEndian.PutUint16(dst[2*r:], binary.LittleEndian.Uint16(p.src[r*p.stride+at:])^flip)
	}
}

// block packs a block of 32 values: scale, minimum if there is one, then the
// quants, which lie word by word in the file too. Fifth bits are the word before them.
func (p *packing) block() {
	if p.l.scale == scalePower {
		for r := range p.rows {
			p.dst[r] = p.src[r*p.stride]
		}
	} else {
		p.halves(p.dst, 0, 0)
		if p.f.Min {
			p.halves(p.dst[32:], 2, 0)
		}
	}
	d := p.quants(0)
	switch p.l.quants {
	case quantBytes:
		p.words(d, p.l.raw, 8, 0x80808080)
	case quantNibbles:
		p.words(d, p.l.raw, 4, 0)
	case quantNibblesBit:
		p.words(d, p.l.raw, 4, 0)
		p.words(p.lines[:], p.l.raw-4, 4, 0) // one would do, but vectors make four
		p.tier.gatherBits(d[4*lineSize:], p.lines[:])
	}
}

// quantsAt is where the quants of block b go.
func (p *packing) quantsAt(b int) int {
	return p.l.headSize(p.f) + b*p.l.blockSize(p.f) + p.l.scaleSize(p.f)
}

func (p *packing) quants(b int) []byte { return p.dst[p.quantsAt(b):][:p.l.quantSize()] }

// superBlock packs a super-block of 8 blocks.
func (p *packing) superBlock() {
	x := &p.lines
	switch p.f.Name {
	case "Q2_K":
		p.halves(p.dst, 80, 0)
		p.halves(p.dst[32:], 82, 0x8000)
		p.words(x[:], 0, 20, 0)
		for i := range 4 {
			p.subScales(4*i, x[i*lineSize:])
		}
		p.pairs(x[4*lineSize:], 0, 4, 1)
	case "Q3_K":
		p.halves(p.dst, 108, 0)
		p.words(x[:], 0, 27, 0)
		p.scales3K(x[24*lineSize:])
		p.pairs(x[8*lineSize:], 0, 1, 2)
		p.bits(x[:], 2*lineSize)
		p.tier.joinTriples(p.dst[p.quantsAt(0):], p.l.blockSize(p.f))
	case "Q4_K":
		p.halves(p.dst, 0, 0)
		p.halves(p.dst[32:], 2, 0x8000)
		p.words(x[:], 0, 36, 0)
		p.scales4K(x[lineSize:])
		p.nibbles4K(x[4*lineSize:])
	case "Q5_K":
		p.halves(p.dst, 0, 0)
		p.halves(p.dst[32:], 2, 0x8000)
		p.words(x[:], 0, 44, 0)
		p.scales4K(x[lineSize:])
		p.bits(x[4*lineSize:], 4*lineSize)
		p.nibbles4K(x[12*lineSize:])
	case "Q6_K":
		p.halves(p.dst, 208, 0)
		p.words(x[:], 0, 52, 0)
		for half := range 2 {
			for k := range 2 {
				p.tier.splitNibbles(p.quants(4*half+k), p.quants(4*half+k+2), x[(2*half+k)*8*lineSize:])
			}
		}
		p.pairs(x[32*lineSize:], 4*lineSize, 4, 1)
		for i := range 4 {
			p.subScales(4*i, x[(48+i)*lineSize:])
		}
	case "IQ4_XS":
		p.halves(p.dst, 0, 0)
		for b := range 8 {
			p.words(p.quants(b), p.l.raw+16*b, 4, 0)
		}
		p.scalesXS()
	}
}

// subScales stores sub-scales i to i+3, the bytes of the words in line.
func (p *packing) subScales(i int, line []byte) { p.scatter(i, 0, line) }

// minima stores minima i to i+3 likewise.
func (p *packing) minima(i int, line []byte) { p.scatter(i, BlockSize/p.f.Group, line) }

// scatter stores byte j of each word of line as one of group i+j, after skipped others of its block.
func (p *packing) scatter(i, skipped int, line []byte) {
	groups, size := BlockSize/p.f.Group, p.l.blockSize(p.f)
	head := p.dst[p.l.headSize(p.f):]
	at := func(i int) []byte { return head[i/groups*size+(skipped+i%groups)*PackedRows:][:PackedRows] }
	p.tier.splitWords(at(i), at(i+1), at(i+2), at(i+3), line[:lineSize])
}

// splitWords puts byte 0 of each word of a line side by side in a, byte 1 in b, and so on.
func splitWords(a, b, c, d, line []byte) {
	a, b, c, d, line = a[:PackedRows], b[:PackedRows], c[:PackedRows], d[:PackedRows], line[:lineSize]
	for r := range a {
		w := binary.LittleEndian.Uint32(line[4*r:])
		a[r], b[r], c[r], d[r] = byte(w), byte(w>>8), byte(w>>16), byte(w>>24)
	}
}

// scales4K splits the three words of 6-bit sub-scales and minima that Q4_K and Q5_K have.
func (p *packing) scales4K(x []byte) {
	x = x[:3*lineSize]
	var s, m [2][lineSize]byte
	for i := 0; i < lineSize; i += 8 {
		a, b, c := getWord(x[i:]), getWord(x[lineSize+i:]), getWord(x[2*lineSize+i:])
		putWord(s[0][i:], a&(63*each))
		putWord(m[0][i:], b&(63*each))
		putWord(s[1][i:], c&(15*each)|a>>6&(3*each)<<4)
		putWord(m[1][i:], c>>4&(15*each)|b>>6&(3*each)<<4)
	}
	for i := range 2 {
		p.subScales(4*i, s[i][:])
		p.minima(4*i, m[i][:])
	}
}

// scales3K splits the three words of 6-bit sub-scales of Q3_K: two of low nibbles, one of high pairs.
func (p *packing) scales3K(x []byte) {
	x = x[:3*lineSize]
	var s [4][lineSize]byte
	for i := 0; i < lineSize; i += 8 {
		a, b, high := getWord(x[i:]), getWord(x[lineSize+i:]), getWord(x[2*lineSize+i:])
		putWord(s[0][i:], minus32(a&(15*each)|high&(3*each)<<4))
		putWord(s[1][i:], minus32(b&(15*each)|high>>2&(3*each)<<4))
		putWord(s[2][i:], minus32(a>>4&(15*each)|high>>4&(3*each)<<4))
		putWord(s[3][i:], minus32(b>>4&(15*each)|high>>6&(3*each)<<4))
	}
	for i := range s {
		p.subScales(4*i, s[i][:])
	}
}

// scalesXS gathers the 6-bit sub-scales of IQ4_XS.
func (p *packing) scalesXS() {
	var s [2][lineSize]byte
	for r := range p.rows {
		src := p.src[r*p.stride:][:8]
		high := binary.LittleEndian.Uint16(src[2:])
		for g := range 8 {
			s[g/4][4*r+g%4] = (src[4+g/2]>>(g%2*4)&15 | byte(high>>(2*g)&3)<<4) - 32
		}
	}
	p.subScales(0, s[0][:])
	p.subScales(4, s[1][:])
}

// nibbles4K splits the nibbles of Q4_K and Q5_K: 8 words have the low ones of a block, and the
// high ones of the next.
func (p *packing) nibbles4K(x []byte) {
	for b := 0; b < 8; b += 2 {
		p.tier.splitNibbles(p.quants(b), p.quants(b+1), x[b*4*lineSize:])
	}
}

// splitNibbles makes the 4 lines of low and of high nibbles from 8 lines of words.
func splitNibbles(low, high, x []byte) {
	low, high, x = low[:4*lineSize], high[:4*lineSize], x[:8*lineSize]
	for i := 0; i < 4*lineSize; i += 8 {
		a, b := getWord(x[i:]), getWord(x[4*lineSize+i:])
		putWord(low[i:], a&(15*each)|b&(15*each)<<4)
		putWord(high[i:], a>>4&(15*each)|b>>4&(15*each)<<4)
	}
}

// pairs makes the lines of bit pairs of 8 blocks, at byte at of their quants. In x are 8 words
// for each four blocks, pair k of a word being of the k-th of them. The words of a block's first line begin with 0, those
// of its second line with second, and lie apart words apart.
func (p *packing) pairs(x []byte, at, second, apart int) {
	for line := range 4 {
		dst := p.dst[p.quantsAt(line/2*4)+at+line%2*lineSize:]
		p.tier.splitPairs(dst, p.l.blockSize(p.f), x[(line/2*8+line%2*second)*lineSize:], apart*lineSize)
	}
}

// splitPairs makes lines, step bytes apart, of the bit pairs of 4 lines of words, which lie apart bytes apart.
func splitPairs(dst []byte, step int, x []byte, apart int) {
	x0, x1, x2, x3 := x[:lineSize], x[apart:][:lineSize], x[2*apart:][:lineSize], x[3*apart:][:lineSize]
	for i := 0; i < lineSize; i += 8 {
		w0, w1, w2, w3 := getWord(x0[i:]), getWord(x1[i:]), getWord(x2[i:]), getWord(x3[i:])
		w0, w2 = exchange(w0, w2, 4, 0x0f)
		w1, w3 = exchange(w1, w3, 4, 0x0f)
		w0, w1 = exchange(w0, w1, 2, 0x33)
		w2, w3 = exchange(w2, w3, 2, 0x33)
		putWord(dst[i:], w0)
		putWord(dst[step+i:], w1)
		putWord(dst[2*step+i:], w2)
		putWord(dst[3*step+i:], w3)
	}
}

// bits makes the line of single bits of 8 blocks, at byte at of their quants. In x are 8 words,
// bit k of which is of the k-th block.
func (p *packing) bits(x []byte, at int) {
	p.tier.splitBits(p.dst[p.quantsAt(0)+at:], p.l.blockSize(p.f), x)
}

// splitBits makes lines, step bytes apart, of the bits of 8 lines of words.
func splitBits(dst []byte, step int, x []byte) {
	x = x[:8*lineSize]
	for i := 0; i < lineSize; i += 8 {
		var w [8]uint64
		for g := range w {
			w[g] = getWord(x[g*lineSize+i:])
		}
		for g := range 4 {
			w[g], w[g+4] = exchange(w[g], w[g+4], 4, 0x0f)
		}
		for _, g := range [...]int{0, 1, 4, 5} {
			w[g], w[g+2] = exchange(w[g], w[g+2], 2, 0x33)
		}
		for g := 0; g < 8; g += 2 {
			w[g], w[g+1] = exchange(w[g], w[g+1], 1, 0x55)
		}
		for b := range w {
			putWord(dst[b*step+i:], w[b])
		}
	}
}

// joinTriples makes, in their place, triples of the lines of 8 blocks, which lie step bytes apart: pairs of words 0, 2, 4 and 6, pairs of
// the others, and bits.
func joinTriples(dst []byte, step int) {
	for b := range 8 {
		d := dst[b*step:][:3*lineSize]
		for i := 0; i < lineSize; i += 8 {
			even, odd, h := getWord(d[i:]), getWord(d[lineSize+i:]), getWord(d[2*lineSize+i:])
			putWord(d[i:], even&(0x33*each)|h<<2&(0x44*each)|odd<<1&(0x88*each))
			putWord(d[lineSize+i:], odd&(0xbb*each)|h<<1&(0x44*each))
			putWord(d[2*lineSize+i:], even>>2&(0x33*each)|h&(0xcc*each))
		}
	}
}

// exchange swaps, in each byte, the bits of a that lie n above mask for those of b under mask.
func exchange(a, b uint64, n uint, mask uint64) (uint64, uint64) {
	t := (a>>n ^ b) & (mask * each)
	return a ^ t<<n, b ^ t
}

// gatherBits takes words with a bit for each value of a block, ascending, and makes bit i of
// byte j that of value 4i+j. Seen as numbers of 5 binary digits, the places of bits are rotated by 2
// digits, which is done by exchanging the highest digit with each of the others in turn.
func gatherBits(dst, line []byte) {
	dst, line = dst[:lineSize], line[:lineSize]
	for i := 0; i < lineSize; i += 8 {
		w := getWord(line[i:])
		w = exchangeDigits(w, 16-4, 0xf0f0)
		w = exchangeDigits(w, 16-1, 0xaaaa)
		w = exchangeDigits(w, 16-8, 0xff00)
		w = exchangeDigits(w, 16-2, 0xcccc)
		putWord(dst[i:], w)
	}
}

// exchangeDigits swaps, in both words of 4 bytes, the bits under mask for those n above it.
func exchangeDigits(w uint64, n uint, mask uint64) uint64 {
	t := (w>>n ^ w) & (mask | mask<<32)
	return w ^ t ^ t<<n
}

// floats packs rows of in values of a float format.
func (p *packing) floats(in int) {
	const step = 16 // words at a time
	if p.f.Bytes == 4 {
		for k := 0; k < in; k += step {
			p.words(p.dst[k*lineSize:], 4*k, min(step, in-k), 0)
		}
		return
	}
	for k := 0; k+2 <= in; k += 2 * step {
		n := min(step, (in-k)/2)
		p.words(p.lines[:], 2*k, n, 0)
		p.tier.unzip(p.dst[k/2*lineSize:], p.lines[:], n)
	}
	if last := in - 1; in%2 != 0 {
		p.halves(p.dst[last*2*PackedRows:], 2*last, 0)
	}
}

// unzip puts, of each line, the low halves of the words first and the high ones after them.
func unzip(dst, x []byte, lines int) {
	for ; lines > 0; lines-- {
		d, line := dst[:lineSize], x[:lineSize]
		for i := 0; i < lineSize/2; i += 8 {
			a, b := getWord(line[2*i:]), getWord(line[2*i+8:])
			putWord(d[i:], lowHalves(a)|lowHalves(b)<<32)
			putWord(d[lineSize/2+i:], lowHalves(a>>16)|lowHalves(b>>16)<<32)
		}
		dst, x = dst[lineSize:], x[lineSize:]
	}
}

// lowHalves brings the low halves of two words together.
func lowHalves(w uint64) uint64 { return w&0xffff | w>>16&0xffff0000 }

// each is a word with 1 in every byte.
const each = 0x0101010101010101

// minus32 subtracts 32 from each byte, which is below 64.
func minus32(w uint64) uint64 { return (w | 0x80*each) - 32*each ^ 0x80*each }

func getWord(b []byte) uint64    { return binary.LittleEndian.Uint64(b) }
func putWord(b []byte, w uint64) { binary.LittleEndian.PutUint64(b, w) }
