package quant

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// The unpackers below decode all blocks of src: q gets one quant per value,
// scale (and min, where the format has minima) one number per group. They treat
// eight bytes of quants as one uint64 whose bytes never carry into each other.

// unpackBlocks calls the unpacker of f. The slices have the lengths that src
// implies; min is not touched when the format has no minimum. Static calls, not
// function values, so that callers' buffers can stay on their stack.
func (f *Format) unpackBlocks(q []int8, scale, mins []float32, src []byte) {
	switch f.kind {
	case kindQ4_0:
		unpackQ4_0(q, scale, src)
	case kindQ4_1:
		unpackQ4_1(q, scale, mins, src)
	case kindQ5_0:
		unpackQ5_0(q, scale, src)
	case kindQ5_1:
		unpackQ5_1(q, scale, mins, src)
	case kindQ8_0:
		unpackQ8_0(q, scale, src)
	case kindQ2_K:
		unpackQ2_K(q, scale, mins, src)
	case kindQ3_K:
		unpackQ3_K(q, scale, src)
	case kindQ4_K:
		unpackQ4_K(q, scale, mins, src)
	case kindQ5_K:
		unpackQ5_K(q, scale, mins, src)
	case kindQ6_K:
		unpackQ6_K(q, scale, src)
	case kindIQ4_NL:
		unpackIQ4_NL(q, scale, src)
	case kindIQ4_XS:
		unpackIQ4_XS(q, scale, src)
	case kindMXFP4:
		unpackMXFP4(q, scale, src)
	}
}

// each is a uint64 with 1 in each of its bytes; n*each has n in each.
const each = 0x0101010101010101

// asBytes is q seen as bytes, so that eight quants can be stored at once. The
// two types have the same size and the order of the bytes is fixed by
// encoding/binary, so this holds on every machine.
func asBytes(q []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q))), len(q))
}

func load8(b []byte) uint64     { return binary.LittleEndian.Uint64(b) }
func store8(b []byte, w uint64) { binary.LittleEndian.PutUint64(b, w) }

// minus subtracts n from each byte of w, with results in two's complement. The
// bytes of w and n are below 128: the top bit, set for the subtraction, absorbs
// the borrow.
func minus(w uint64, n uint64) uint64 {
	return ((w | 0x80*each) - n*each) ^ 0x80*each
}

// spread moves bit i of b to byte i, as 0 or 1.
func spread(b byte) uint64 {
	w := uint64(b) * each & 0x8040201008040201
	return (w + 0x7f*each) >> 7 & each
}

func f16At(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

// Q4_0: f16 d, then 16 bytes whose low nibbles are values 0..15 and whose high
// nibbles are values 16..31; 8 means zero.
func unpackQ4_0(q []int8, scale []float32, src []byte) {
	out := asBytes(q)
	for i := range scale {
		b, o := src[:18], out[:32]
		scale[i] = f16At(b)
		w0, w1 := load8(b[2:]), load8(b[10:])
		store8(o[0:], minus(w0&(15*each), 8))
		store8(o[8:], minus(w1&(15*each), 8))
		store8(o[16:], minus(w0>>4&(15*each), 8))
		store8(o[24:], minus(w1>>4&(15*each), 8))
		src, out = src[18:], out[32:]
	}
}

// Q4_1: f16 d, f16 minimum, then nibbles as in Q4_0, unsigned.
func unpackQ4_1(q []int8, scale, mins []float32, src []byte) {
	out := asBytes(q)
	mins = mins[:len(scale)]
	for i := range scale {
		b, o := src[:20], out[:32]
		scale[i], mins[i] = f16At(b), f16At(b[2:])
		w0, w1 := load8(b[4:]), load8(b[12:])
		store8(o[0:], w0&(15*each))
		store8(o[8:], w1&(15*each))
		store8(o[16:], w0>>4&(15*each))
		store8(o[24:], w1>>4&(15*each))
		src, out = src[20:], out[32:]
	}
}

// Q5_0: f16 d, 32 fifth bits in the order of the values, then nibbles as in
// Q4_0; 16 means zero.
func unpackQ5_0(q []int8, scale []float32, src []byte) {
	out := asBytes(q)
	for i := range scale {
		b, o := src[:22], out[:32]
		scale[i] = f16At(b)
		w0, w1 := load8(b[6:]), load8(b[14:])
		store8(o[0:], minus(w0&(15*each)|spread(b[2])<<4, 16))
		store8(o[8:], minus(w1&(15*each)|spread(b[3])<<4, 16))
		store8(o[16:], minus(w0>>4&(15*each)|spread(b[4])<<4, 16))
		store8(o[24:], minus(w1>>4&(15*each)|spread(b[5])<<4, 16))
		src, out = src[22:], out[32:]
	}
}

// Q5_1: f16 d, f16 minimum, then as Q5_0, unsigned.
func unpackQ5_1(q []int8, scale, mins []float32, src []byte) {
	out := asBytes(q)
	mins = mins[:len(scale)]
	for i := range scale {
		b, o := src[:24], out[:32]
		scale[i], mins[i] = f16At(b), f16At(b[2:])
		w0, w1 := load8(b[8:]), load8(b[16:])
		store8(o[0:], w0&(15*each)|spread(b[4])<<4)
		store8(o[8:], w1&(15*each)|spread(b[5])<<4)
		store8(o[16:], w0>>4&(15*each)|spread(b[6])<<4)
		store8(o[24:], w1>>4&(15*each)|spread(b[7])<<4)
		src, out = src[24:], out[32:]
	}
}

// Q8_0: f16 d, then 32 signed bytes.
func unpackQ8_0(q []int8, scale []float32, src []byte) {
	out := asBytes(q)
	for i := range scale {
		b := src[:34]
		scale[i] = f16At(b)
		copy(out[:32], b[2:])
		src, out = src[34:], out[32:]
	}
}

// Q2_K: 16 bytes of scales (low nibble) and minima (high nibble), 64 bytes of
// quants, f16 d, f16 dmin. Each half of 128 values has 32 bytes; bit pair j of
// byte l is value 32j+l of the half.
func unpackQ2_K(q []int8, scale, mins []float32, src []byte) {
	out := asBytes(q)
	for len(src) >= 84 {
		b, o := src[:84], out[:superBlock]
		s, m := scale[:16], mins[:16]
		d, dmin := f16At(b[80:]), f16At(b[82:])
		for i, c := range b[:16] {
			s[i] = d * float32(c&15)
			m[i] = -(dmin * float32(c>>4))
		}
		for half := 0; half < 2; half++ {
			for l := 0; l < 32; l += 8 {
				w := load8(b[16+32*half+l:])
				p := o[128*half+l:]
				store8(p[0:], w&(3*each))
				store8(p[32:], w>>2&(3*each))
				store8(p[64:], w>>4&(3*each))
				store8(p[96:], w>>6&(3*each))
			}
		}
		src, out, scale, mins = src[84:], out[superBlock:], scale[16:], mins[16:]
	}
}

// Q3_K: 32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 6-bit
// scales, f16 d. The pairs lie as in Q2_K; bit j of byte l of the third bits
// belongs to value 32j+l. 4 means zero, and 32 in a scale.
func unpackQ3_K(q []int8, scale []float32, src []byte) {
	out := asBytes(q)
	for len(src) >= 110 {
		b, o := src[:110], out[:superBlock]
		s, packed := scale[:16], b[96:108]
		d := f16At(b[108:])
		for i := range s {
			low := packed[i&7] >> (i >> 3 * 4) & 15
			high := packed[8+i&3] >> (i >> 2 * 2) & 3
			s[i] = d * float32(int(low|high<<4)-32)
		}
		for l := 0; l < 32; l += 8 {
			third := load8(b[l:])
			for half := 0; half < 2; half++ {
				w := load8(b[32+32*half+l:])
				t := third >> (4 * half)
				p := o[128*half+l:]
				store8(p[0:], minus(w&(3*each)|t<<2&(4*each), 4))
				store8(p[32:], minus(w>>2&(3*each)|t<<1&(4*each), 4))
				store8(p[64:], minus(w>>4&(3*each)|t&(4*each), 4))
				store8(p[96:], minus(w>>6&(3*each)|t>>1&(4*each), 4))
			}
		}
		src, out, scale = src[110:], out[superBlock:], scale[16:]
	}
}

// unpackScales4K reads the head that Q4_K and Q5_K share: f16 d, f16 dmin, and 12
// bytes with eight 6-bit scales and eight 6-bit minima. The first four of each
// fill the low six bits of bytes 0..3 and 4..7; the others have their low nibbles
// in bytes 8..11 and their top two bits in what was left free.
func unpackScales4K(scale, mins []float32, head []byte) {
	s, m, b := scale[:8], mins[:8], head[:16]
	d, dmin := f16At(b), f16At(b[2:])
	for i := 0; i < 4; i++ {
		sc, mn, low := b[4+i], b[8+i], b[12+i]
		s[i] = d * float32(sc&63)
		m[i] = -(dmin * float32(mn&63))
		s[4+i] = d * float32(low&15|sc>>6<<4)
		m[4+i] = -(dmin * float32(low>>4|mn>>6<<4))
	}
}

// Q4_K: the 16-byte head of scales, then 128 bytes of nibbles. Each 32 bytes are
// 64 values: all the low nibbles, then all the high ones.
func unpackQ4_K(q []int8, scale, mins []float32, src []byte) {
	out := asBytes(q)
	for len(src) >= 144 {
		b, o := src[:144], out[:superBlock]
		unpackScales4K(scale, mins, b)
		for j := 0; j < 4; j++ {
			in, p := b[16+32*j:][:32], o[64*j:][:64]
			for l := 0; l < 32; l += 8 {
				w := load8(in[l:])
				store8(p[l:], w&(15*each))
				store8(p[32+l:], w>>4&(15*each))
			}
		}
		src, out, scale, mins = src[144:], out[superBlock:], scale[8:], mins[8:]
	}
}

// Q5_K: the head of Q4_K, 32 bytes of fifth bits, then nibbles as in Q4_K. Bit
// j of byte l of the fifth bits belongs to value 32j+l.
func unpackQ5_K(q []int8, scale, mins []float32, src []byte) {
	out := asBytes(q)
	for len(src) >= 176 {
		b, o := src[:176], out[:superBlock]
		unpackScales4K(scale, mins, b)
		for l := 0; l < 32; l += 8 {
			fifth := load8(b[16+l:])
			for j := 0; j < 4; j++ {
				w := load8(b[48+32*j+l:])
				p := o[64*j+l:]
				store8(p[0:], w&(15*each)|fifth&each<<4)
				store8(p[32:], w>>4&(15*each)|fifth>>1&each<<4)
				fifth >>= 2
			}
		}
		src, out, scale, mins = src[176:], out[superBlock:], scale[8:], mins[8:]
	}
}

// Q6_K: 128 bytes of nibbles, 64 bytes of bit pairs above them, 16 signed
// scales, f16 d. A half of 128 values has 64 bytes of nibbles, all low ones then
// all high ones, and 32 bytes of pairs that lie as in Q2_K. 32 means zero.
func unpackQ6_K(q []int8, scale []float32, src []byte) {
	out := asBytes(q)
	for len(src) >= 210 {
		b, o := src[:210], out[:superBlock]
		s, d := scale[:16], f16At(b[208:])
		for i, c := range b[192:208] {
			s[i] = d * float32(int8(c))
		}
		for half := 0; half < 2; half++ {
			for l := 0; l < 32; l += 8 {
				w0, w1 := load8(b[64*half+l:]), load8(b[64*half+32+l:])
				high := load8(b[128+32*half+l:])
				p := o[128*half+l:]
				store8(p[0:], minus(w0&(15*each)|high&(3*each)<<4, 32))
				store8(p[32:], minus(w1&(15*each)|high>>2&(3*each)<<4, 32))
				store8(p[64:], minus(w0>>4&(15*each)|high>>4&(3*each)<<4, 32))
				store8(p[96:], minus(w1>>4&(15*each)|high>>6&(3*each)<<4, 32))
			}
		}
		src, out, scale = src[210:], out[superBlock:], scale[16:]
	}
}

// nonLinear4 has the sixteen levels of IQ4_NL and IQ4_XS.
var nonLinear4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// e2m1Doubled has the sixteen values of E2M1 times two, which makes them integers.
var e2m1Doubled = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// lookupNibbles maps 16 bytes of nibbles, laid out as in Q4_0, through table.
func lookupNibbles(q []int8, nibbles []byte, table *[16]int8) {
	q, nibbles = q[:32], nibbles[:16]
	for i, c := range nibbles {
		q[i] = table[c&15]
		q[16+i] = table[c>>4]
	}
}

// IQ4_NL: f16 d, then nibbles as in Q4_0 that number the levels of a table.
func unpackIQ4_NL(q []int8, scale []float32, src []byte) {
	for i := range scale {
		b := src[:18]
		scale[i] = f16At(b)
		lookupNibbles(q, b[2:], &nonLinear4)
		src, q = src[18:], q[32:]
	}
}

// IQ4_XS: f16 d, 16 bits with the top two of each of eight scales, 4 bytes with
// their low nibbles, then eight times the 16 bytes of IQ4_NL. 32 in a scale
// means zero.
func unpackIQ4_XS(q []int8, scale []float32, src []byte) {
	for len(src) >= 136 {
		b, s := src[:136], scale[:8]
		d, high := f16At(b), binary.LittleEndian.Uint16(b[2:])
		for g := range s {
			sc := b[4+g>>1]>>(g&1*4)&15 | byte(high&3)<<4
			s[g] = d * float32(int(sc)-32)
			lookupNibbles(q, b[8+16*g:], &nonLinear4)
			high >>= 2
			q = q[32:]
		}
		src, scale = src[136:], scale[8:]
	}
}

// MXFP4: an E8M0 exponent, then E2M1 values in nibbles as in Q4_0.
func unpackMXFP4(q []int8, scale []float32, src []byte) {
	for i := range scale {
		b := src[:17]
		scale[i] = e8m0Half(b[0])
		lookupNibbles(q, b[1:], &e2m1Doubled)
		src, q = src[17:], q[32:]
	}
}

// e8m0Half returns 2^(e-128), half of what the exponent says, to go with doubled
// quants. The two smallest are subnormal.
func e8m0Half(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}
