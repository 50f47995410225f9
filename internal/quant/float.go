package quant

import (
	"encoding/binary"
	"math"
)

// Half precision is decoded without branches: the sixty-four values of sign and
// exponent select what is added to the bits that the fraction contributes. Those
// depend on the exponent too, but only on its being 0 (subnormal), 31 (infinity
// or NaN) or another, so three runs of 1024 entries hold them all.
var (
	f16Fraction [4 * 1024]uint32 // the fourth run pads to a power of two, for the index's sake
	f16Exponent [64]struct{ run, add uint32 }
)

const (
	runSubnormal = 0 << 10
	runNormal    = 1 << 10
	runSpecial   = 2 << 10
)

func init() {
	for i := range uint32(1024) {
		f16Fraction[runSubnormal|i] = math.Float32bits(float32(i) * 0x1p-24)
		f16Fraction[runNormal|i] = i << 13
		f16Fraction[runSpecial|i] = i << 13
		if i != 0 {
			f16Fraction[runSpecial|i] |= 1 << 22 // NaNs become quiet
		}
	}
	for i := range f16Exponent {
		sign, exponent := uint32(i>>5), uint32(i&31)
		e := &f16Exponent[i]
		switch exponent {
		case 0:
			e.run, e.add = runSubnormal, sign<<31
		case 31:
			e.run, e.add = runSpecial, sign<<31|255<<23
		default:
			e.run, e.add = runNormal, sign<<31|(exponent+127-15)<<23
		}
	}
}

// F16ToF32 converts a half-precision number, exactly. A NaN keeps its sign and
// payload and becomes quiet.
func F16ToF32(h uint16) float32 {
	e := &f16Exponent[h>>10]
	return math.Float32frombits(f16Fraction[(uint32(h&0x03ff)|e.run)&0x0fff] + e.add)
}

// F32ToF16 converts to half precision, rounding to nearest, ties to even. Values
// from 65520 on become infinite; a NaN keeps its sign and the top of its payload
// and becomes quiet.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b-0x38800000 < 0x47800000-0x38800000: // normal in half precision, before rounding
		return sign | uint16((b-112<<23+0x0fff+b>>13&1)>>13)
	case b < 0x38800000:
		// Next to 0.5 the step of float32 is 2^-24, the smallest half: the
		// addition rounds to the right place.
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	case b <= 0x7f800000:
		return sign | 0x7c00
	}
	return sign | 0x7e00 | uint16(b>>13&0x03ff)
}

// BF16ToF32 converts a bfloat16 number, exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 converts to bfloat16, rounding to nearest, ties to even. A NaN
// keeps its sign and the top of its payload and becomes quiet.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x0040
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// DecodeF16 converts src to float32. It panics if dst is shorter than src.
func DecodeF16(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = F16ToF32(h)
	}
}

// EncodeF16 rounds src to half precision as F32ToF16 does. It panics if dst is
// shorter than src.
func EncodeF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = F32ToF16(f)
	}
}

// DecodeBF16 converts src to float32. It panics if dst is shorter than src.
func DecodeBF16(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = BF16ToF32(h)
	}
}

// EncodeBF16 rounds src to bfloat16 as F32ToBF16 does. It panics if dst is
// shorter than src.
func EncodeBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = F32ToBF16(f)
	}
}

// The decoders below take four values at a time, which spares most of the checks
// of bounds, and then what is left. dst and src are the same row.

func decodeF32Bytes(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 16 {
		dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
		dst[1] = math.Float32frombits(binary.LittleEndian.Uint32(src[4:]))
		dst[2] = math.Float32frombits(binary.LittleEndian.Uint32(src[8:]))
		dst[3] = math.Float32frombits(binary.LittleEndian.Uint32(src[12:]))
		dst, src = dst[4:], src[16:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16Bytes(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = F16ToF32(uint16(w))
		dst[1] = F16ToF32(uint16(w >> 16))
		dst[2] = F16ToF32(uint16(w >> 32))
		dst[3] = F16ToF32(uint16(w >> 48))
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = f16At(src[2*i:])
	}
}

func decodeBF16Bytes(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = BF16ToF32(uint16(w))
		dst[1] = BF16ToF32(uint16(w >> 16))
		dst[2] = BF16ToF32(uint16(w >> 32))
		dst[3] = BF16ToF32(uint16(w >> 48))
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}
