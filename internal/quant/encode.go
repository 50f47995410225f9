package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/exp/slices"
)

// Quantize encodes src into dst. F32, F16, BF16, Q8_0 and Q4_0 have encoders; for
// the others the error wraps ErrNoEncoder. It wraps ErrLength when src is not
// whole blocks or len(dst) is not RowBytes(len(src)). It wraps ErrValue, and
// names the index, when a value cannot be encoded: NaN and infinities in Q8_0
// and Q4_0, and finite values so large that F16, or the f16 scale of a block,
// would become infinite. After an error the contents of dst are undefined.
//
// Q8_0 and Q4_0 give the bytes of ggml's reference encoders. Blocks of zeros, and
// of values too small for an f16 scale, get scale 0 and decode to zeros.
func (f *Format) Quantize(dst []byte, src []float32) error {
	if !f.CanQuantize() {
		return fmt.Errorf("%w %s", ErrNoEncoder, f.Name)
	}
	want, err := f.RowBytes(len(src))
	if err != nil {
		return err
	}
	if len(dst) != want {
		return fmt.Errorf("%w: %d bytes for %d values of %s, want %d", ErrLength, len(dst), len(src), f.Name, want)
	}
	bad := -1
	switch f.kind {
	case kindF32:
		encodeF32Bytes(dst, src)
	case kindF16:
		bad = encodeF16Bytes(dst, src)
	case kindBF16:
		encodeBF16Bytes(dst, src)
	case kindQ8_0:
		bad = encodeQ8_0(dst, src)
	case kindQ4_0:
		bad = encodeQ4_0(dst, src)
	}
	if bad >= 0 {
		return fmt.Errorf("%w: %v at index %d is outside the range of %s", ErrValue, src[bad], bad, f.Name)
	}
	return nil
}

func encodeF32Bytes(dst []byte, src []float32) {
	dst = dst[:4*len(src)]
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

// encodeF16Bytes returns the index of a finite value that became infinite, or -1.
func encodeF16Bytes(dst []byte, src []float32) int {
	dst = dst[:2*len(src)]
	for i, v := range src {
		h := F32ToF16(v)
		if h&0x7fff == 0x7c00 && !math.IsInf(float64(v), 0) {
			return i
		}
		binary.LittleEndian.PutUint16(dst[2*i:], h)
	}
	return -1
}

func encodeBF16Bytes(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(v))
	}
}

// magnitude clears the sign of v. Magnitudes order as these bits do, with NaNs
// above infinity.
func magnitude(v float32) uint32 { return math.Float32bits(v) &^ (1 << 31) }

// largest returns the greatest magnitude in x, NaN or infinity if there is one.
func largest(x []float32) uint32 {
	var top uint32
	for _, v := range x {
		top = max(top, magnitude(v))
	}
	return top
}

// first returns the index of the first value in x with the given magnitude.
func first(x []float32, m uint32) int {
	return slices.IndexFunc(x, func(v float32) bool { return magnitude(v) == m })
}

// culprit returns the index of the value that keeps x from being encoded: the
// first that is not finite, else the largest.
func culprit(x []float32) int {
	notFinite := func(v float32) bool { return magnitude(v) >= 0x7f800000 }
	if i := slices.IndexFunc(x, notFinite); i >= 0 {
		return i
	}
	return first(x, largest(x))
}

// scaleOf turns a block's step d into the bits of its f16 scale and the factor
// for its values. The factor is 0 where the reciprocal overflows: the scale is
// then 0 too, and so must the quants be. ok is false when d is not finite or is
// out of f16's range.
func scaleOf(d float32) (bits uint16, inverse float32, ok bool) {
	bits = F32ToF16(d)
	if bits&0x7fff >= 0x7c00 {
		return 0, 0, false
	}
	inverse = 1 / d
	if math.IsInf(float64(inverse), 0) {
		inverse = 0
	}
	return bits, inverse, true
}

// encodeQ8_0 maps the largest magnitude of a block to 127 and rounds the values
// to the nearest step, halves away from zero. It returns the index of a value
// that cannot be encoded, or -1.
func encodeQ8_0(dst []byte, src []float32) int {
	for start := 0; start < len(src); start += 32 {
		x, b := src[start:][:32], dst[:34]
		bits, inverse, ok := scaleOf(math.Float32frombits(largest(x)) / 127)
		if !ok {
			return start + culprit(x)
		}
		binary.LittleEndian.PutUint16(b, bits)
		q := b[2:34]
		for i, v := range x {
			q[i] = byte(roundAway(v * inverse))
		}
		dst = dst[34:]
	}
	return -1
}

// roundAway rounds to the nearest integer, halves away from zero. In float64
// the addition of a half is exact where it matters; in float32 it would push the
// number just below a half up to 1.
func roundAway(v float32) int32 {
	half := math.Copysign(0.5, float64(v))
	return int32(float64(v) + half)
}

// encodeQ4_0 maps the value of largest magnitude in a block, with its sign, to
// -8; the far end of the other side is cut at 7. It returns the index of a value
// that cannot be encoded, or -1.
func encodeQ4_0(dst []byte, src []float32) int {
	for start := 0; start < len(src); start += 32 {
		x, b := src[start:][:32], dst[:18]
		bits, inverse, ok := scaleOf(x[first(x, largest(x))] / -8)
		if !ok {
			return start + culprit(x)
		}
		binary.LittleEndian.PutUint16(b, bits)
		low, high := x[:16], x[16:32]
		for i := range low {
			b[2+i] = nibble(low[i], inverse) | nibble(high[i], inverse)<<4
		}
		dst = dst[18:]
	}
	return -1
}

// nibble is the Q4_0 quant of v: the product and the sum are each rounded to
// float32, as the reference does.
func nibble(v, inverse float32) byte {
	return byte(min(int32(float32(v*inverse)+8.5), 15))
}
