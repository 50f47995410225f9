package quant

import (
	"encoding/binary"
	"math"
)

// F16ToF32 converts a half-precision number, exactly. A NaN keeps its sign and
// payload and becomes quiet.
func F16ToF32(h uint16) float32 {
	// Normal numbers, nearly all there are, only need their exponent rebased.
	if h&0x7c00-0x0400 < 0x7800 {
		return math.Float32frombits(uint32(h&0x8000)<<16 | (uint32(h&0x7fff)<<13 + 112<<23))
	}
	return f16SpecialToF32(h)
}

// f16SpecialToF32 converts zeros, subnormals, infinities and NaNs.
func f16SpecialToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	frac := uint32(h&0x03ff) << 13
	switch {
	case h&0x7c00 == 0:
		// (1+f)*2^-14 - 2^-14 is the subnormal's value, and exact.
		f := math.Float32frombits(113<<23|frac) - 0x1p-14
		return math.Float32frombits(sign | math.Float32bits(f))
	case frac == 0:
		return math.Float32frombits(sign | 0x7f800000)
	}
	return math.Float32frombits(sign | 0x7fc00000 | frac)
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

func decodeF32Bytes(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16Bytes(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeBF16Bytes(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}
