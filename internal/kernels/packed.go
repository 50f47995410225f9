package kernels

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/minfer/minfer/internal/quant"
)

// PackedRows is the number of rows that a packed weight interleaves: a lane is a row.
const PackedRows = 16

// Packed is a weight in the order in which vector kernels read it, which is the
// same for all tiers and takes as many bytes as the file does, Q3_K 4 % and some formats up
// to 3 % more.
//
// Rows come in blocks of 16, the last one padded with rows of zeros. "x16" below means one for
// each of the 16 rows. A row block of a float format has each value of a row, ascending, x16.
//
// Within a row block of an integer format come its blocks of 32 values, ascending, and
// word g of a row is what concerns its values 4g to 4g+3, 4 bytes, so that a line of 64
// bytes is one word x16. Quants are unsigned here, the format's zero point not taken off.
//
// Block of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4:
//
//	scale x16 (f16, MXFP4: a byte), then, if there is one, minimum x16 (f16)
//	quants
//
// Super-block of the K formats and IQ4_XS:
//
//	d x16 (f16), then, if the format has minima, -dmin x16 (f16)
//	8 blocks: sub-scales x16 (a byte; signed for Q3_K, Q6_K, IQ4_XS), for each group
//	          minima x16 likewise; in Q2_K the high nibble of the sub-scales
//	          quants
//
// Quants of a block are 8 words if they are bytes. Otherwise: 4 words whose low nibbles are
// words 0 to 3 and whose high nibbles are words 4 to 7 (nibbles; numbers of levels in the
// table formats); or 2 words, in which bit pair i is word i and word 4+i (pairs). Two bits above nibbles
// follow as the latter do, a single bit above nibbles in one word of which bit i is word i. Or they are
// 3 words with words 0 to 2 in the lower three bits of low nibbles and words 4 to 6 in those of high nibbles. The top bit of
// low nibbles of the i-th of the 3 is bit i of word 3, that of high nibbles bit i of word 7 (triples).
type Packed struct {
	Format *quant.Format
	In     int // values of a row
	Out    int // rows
	Data   []byte

	layout *packedLayout
}

// packedLayout is how a format is packed.
type packedLayout struct {
	index int // of the format in the kernels' tables
	quants
	zero  int // the unsigned quant that means 0
	table *[16]int8
	raw   int // where a block of the file has its nibbles or bytes, if they need no unpacking; or 0
	scale scaleKind
}

type quants uint8

const (
	quantNibbles quants = iota
	quantNibblesBit
	quantNibblesPair
	quantBytes
	quantPairs
	quantTriples
)

type scaleKind uint8

const (
	scaleHalf    scaleKind = iota // f16
	scalePower                    // E8M0
	scaleBytes                    // a byte times the scale of the super-block
	scaleNibbles                  // a nibble, below that of the minimum
)

var packedLayouts = map[string]*packedLayout{
	"Q4_0":   {0, quantNibbles, 8, nil, 2, scaleHalf},
	"Q4_1":   {1, quantNibbles, 0, nil, 4, scaleHalf},
	"Q5_0":   {2, quantNibblesBit, 16, nil, 6, scaleHalf},
	"Q5_1":   {3, quantNibblesBit, 0, nil, 8, scaleHalf},
	"Q8_0":   {4, quantBytes, 128, nil, 2, scaleHalf},
	"Q2_K":   {5, quantPairs, 0, nil, 0, scaleNibbles},
	"Q3_K":   {6, quantTriples, 4, nil, 0, scaleBytes},
	"Q4_K":   {7, quantNibbles, 0, nil, 0, scaleBytes},
	"Q5_K":   {8, quantNibblesBit, 0, nil, 0, scaleBytes},
	"Q6_K":   {9, quantNibblesPair, 32, nil, 0, scaleBytes},
	"IQ4_NL": {10, quantNibbles, 0, &nonLinear4, 2, scaleHalf},
	"IQ4_XS": {11, quantNibbles, 0, &nonLinear4, 8, scaleBytes},
	"MXFP4":  {12, quantNibbles, 0, &e2m1Doubled, 1, scalePower},
}

const packedFormats = 13

var (
	nonLinear4  = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	e2m1Doubled = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

// superBlock is the number of values of a super-block.
const superBlock = 256

func (l *packedLayout) super() bool { return l.scale >= scaleBytes }

// wide says whether quants, as unsigned numbers, take 8 bits.
func (l *packedLayout) wide() bool { return l.quants == quantBytes || l.table == &nonLinear4 }

// quantSize is the size of a block's quants.
func (l *packedLayout) quantSize() int {
	return [...]int{quantNibbles: 256, quantNibblesBit: 320, quantNibblesPair: 384, quantBytes: 512, quantPairs: 128, quantTriples: 192}[l.quants]
}

// scaleSize is the size of a block's scales and minima.
func (l *packedLayout) scaleSize(f *quant.Format) int {
	n := [...]int{scaleHalf: 32, scalePower: 16, scaleBytes: 16, scaleNibbles: 16}[l.scale] * (BlockSize / f.Group)
	if f.Min && l.scale != scaleNibbles {
		n *= 2
	}
	return n
}

func (l *packedLayout) blockSize(f *quant.Format) int { return l.scaleSize(f) + l.quantSize() }

// headSize is the size of a super-block's scales.
func (l *packedLayout) headSize(f *quant.Format) int {
	switch {
	case !l.super():
		return 0
	case f.Min:
		return 64
	}
	return 32
}

// rowBlockSize is the size of 16 rows of in values.
func (l *packedLayout) rowBlockSize(f *quant.Format, in int) int {
	return in/BlockSize*l.blockSize(f) + in/superBlock*l.headSize(f)
}

// PackedSize returns the number of bytes that Pack writes for out rows of in values.
// The error says why a weight cannot be packed.
func PackedSize(format *quant.Format, in, out int) (int, error) {
	if in <= 0 || out <= 0 || in%format.Block != 0 {
		return 0, fmt.Errorf("kernels: %d rows of %d values in %s cannot be packed: both must be positive, and values a multiple of %d",
			out, in, format.Name, format.Block)
	}
	const maxInt = int(^uint(0) >> 1)
	if in > maxInt/(4*PackedRows) || rowBlocks(out) > maxInt/rowBlockSize(format, in) {
		return 0, fmt.Errorf("kernels: %d rows of %d values in %s exceed the address space when packed", out, in, format.Name)
	}
	return rowBlocks(out) * rowBlockSize(format, in), nil
}

// rowBlockSize is the size of 16 rows of in values.
func rowBlockSize(format *quant.Format, in int) int {
	if format.Group == 0 {
		return PackedRows * in * format.Bytes
	}
	return packedLayouts[format.Name].rowBlockSize(format, in)
}

func rowBlocks(out int) int { return (out-1)/PackedRows + 1 }

// NewPacked describes a weight in data, of which it uses the first PackedSize bytes. They are
// filled by Pack, before or afterwards.
func NewPacked(format *quant.Format, in, out int, data []byte) (*Packed, error) {
	n, err := PackedSize(format, in, out)
	if err != nil {
		return nil, err
	}
	if len(data) < n {
		return nil, fmt.Errorf("kernels: %d rows of %d values in %s take %d bytes when packed, there are %d", out, in, format.Name, n, len(data))
	}
	return &Packed{Format: format, In: in, Out: out, Data: data[:n:n], layout: packedLayouts[format.Name]}, nil
}

// Integer says whether products with the weight take quantised activations (MatMulPacked) or
// float ones (MatMulPackedFloat).
func (p *Packed) Integer() bool { return p.Format.Group != 0 }

// Blocks returns the number of row blocks, the unit in which work is split.
func (p *Packed) Blocks() int { return rowBlocks(p.Out) }

// block returns the bytes from row block i on.
func (p *Packed) block(i int) []byte { return p.Data[i*p.layout.rowBlockSize(p.Format, p.In):] }

func (p *Packed) shape() (*quant.Format, int) { return p.Format, p.In }

// unpackRow brings row r into its integer form, the same that Format.Unpack gives.
func (p *Packed) unpackRow(row *quant.IntRow, r int) {
	l, f := p.layout, p.Format
	row.Reset(f, p.In)
	src, lane := p.block(r/PackedRows), r%PackedRows
	size, scales, groups := l.blockSize(f), l.scaleSize(f), BlockSize/f.Group
	half := func(at int) float32 { return quant.F16ToF32(binary.LittleEndian.Uint16(src[at+2*lane:])) }
	var d, dmin float32
	for b := range p.In / BlockSize {
		if l.super() && b%8 == 0 {
			d = half(0)
			if f.Min {
				dmin = half(32)
			}
			src = src[l.headSize(f):]
		}
		for g := range groups {
			i, c := b*groups+g, src[g*PackedRows+lane]
			switch l.scale {
			case scaleHalf:
				row.Scale[i] = half(0)
				if f.Min {
					row.Min[i] = half(32)
				}
			case scalePower:
				row.Scale[i] = powerScale(c)
			case scaleNibbles:
				row.Scale[i], row.Min[i] = d*float32(c&15), dmin*float32(c>>4)
			case scaleBytes:
				switch {
				case f.Min:
					row.Scale[i], row.Min[i] = d*float32(c), dmin*float32(src[(groups+g)*PackedRows+lane])
				default:
					row.Scale[i] = d * float32(int8(c))
				}
			}
		}
		l.unpackQuants((*[BlockSize]int8)(row.Q[b*BlockSize:]), src[scales:], lane)
		src = src[size:]
	}
}

// powerScale returns 2^(e-128).
func powerScale(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e) // subnormal
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// unpackQuants reads the quants of a row: four at a time, which lie in one word of a line.
func (l *packedLayout) unpackQuants(q *[BlockSize]int8, d []byte, r int) {
	word := func(line int) uint32 { return binary.LittleEndian.Uint32(d[lineSize*line+4*r:]) }
	for g := range BlockSize / 4 {
		low := func(at int) uint32 { return word(at+g&3) >> (g >> 2 * 4) & 0x0f0f0f0f }
		pair := func(at int) uint32 { return word(at+g>>2) >> (2 * (g & 3)) & 0x03030303 }
		bit := func(at int) uint32 { return word(at) >> g & 0x01010101 }
		var v uint32
		switch l.quants {
		case quantNibbles:
			v = low(0)
		case quantNibblesBit:
			v = low(0) | bit(4)<<4
		case quantNibblesPair:
			v = low(0) | pair(4)<<4
		case quantBytes:
			v = word(g)
		case quantPairs:
			v = pair(0)
		case quantTriples:
			v = triple(word, g)
		}
		for i := range q[4*g:][:4] {
			b := byte(v >> (8 * i))
			if l.table != nil {
				q[4*g+i] = l.table[b]
			} else {
				q[4*g+i] = int8(b - byte(l.zero))
			}
		}
	}
}

// triple returns word g of a block of triples.
func triple(word func(line int) uint32, g int) uint32 {
	nibble := func(line int) uint32 { return word(line) >> (g >> 2 * 4) & 0x0f0f0f0f }
	if g&3 == 3 {
		return nibble(0)>>3&0x01010101 | nibble(1)>>2&0x02020202 | nibble(2)>>1&0x04040404
	}
	return nibble(g&3) & 0x07070707
}

// GetRow writes row r as float32 into the first In values of dst, the same values that
// Weight.GetRow gives.
func (p *Packed) GetRow(dst []float32, r int, s *Scratch) {
	if !p.Integer() {
		unpackFloatRow(dst, p, r)
		return
	}
	row := &s.rows[0]
	p.unpackRow(row, r)
	for g, scale := range row.Scale {
		d, q := dst[g*p.Format.Group:][:p.Format.Group], row.Q[g*p.Format.Group:]
		for i := range d {
			d[i] = scale * float32(q[i])
		}
	}
	for g, m := range row.Min {
		d := dst[g*p.Format.Group:][:p.Format.Group]
		for i := range d {
			d[i] += m
		}
	}
}
