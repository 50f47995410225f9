package quant

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// The reasons for which this package refuses something; match with errors.Is.
var (
	// ErrUnsupported: the name is not that of a format which can be read.
	ErrUnsupported = errors.New("quant: unsupported block format")
	// ErrNoEncoder: the format can be read but not written.
	ErrNoEncoder = errors.New("quant: no encoder for block format")
	// ErrLength: a length does not fit the format's blocks.
	ErrLength = errors.New("quant: wrong length")
	// ErrValue: a number cannot be represented in the format.
	ErrValue = errors.New("quant: value cannot be encoded")
)

// Format describes how the values of a weight are stored. There is one Format
// per storage format, so formats compare with ==. Its fields must not be changed.
type Format struct {
	Name  string // ggml's name, such as "Q4_K"
	Block int    // values in a block
	Bytes int    // bytes in a block
	Group int    // values that share a scale in the integer form, 32 or 16; 0 for the float formats
	Min   bool   // groups of the integer form have a minimum

	kind kind
}

type kind uint8

const (
	kindF32 kind = iota
	kindF16
	kindBF16
	kindQ4_0
	kindQ4_1
	kindQ5_0
	kindQ5_1
	kindQ8_0
	kindQ2_K
	kindQ3_K
	kindQ4_K
	kindQ5_K
	kindQ6_K
	kindIQ4_NL
	kindIQ4_XS
	kindMXFP4
)

// superBlock is the number of values in a block of the K formats and of IQ4_XS.
const superBlock = 256

var formats = [...]Format{
	{Name: "F32", Block: 1, Bytes: 4, kind: kindF32},
	{Name: "F16", Block: 1, Bytes: 2, kind: kindF16},
	{Name: "BF16", Block: 1, Bytes: 2, kind: kindBF16},
	{Name: "Q4_0", Block: 32, Bytes: 18, Group: 32, kind: kindQ4_0},
	{Name: "Q4_1", Block: 32, Bytes: 20, Group: 32, Min: true, kind: kindQ4_1},
	{Name: "Q5_0", Block: 32, Bytes: 22, Group: 32, kind: kindQ5_0},
	{Name: "Q5_1", Block: 32, Bytes: 24, Group: 32, Min: true, kind: kindQ5_1},
	{Name: "Q8_0", Block: 32, Bytes: 34, Group: 32, kind: kindQ8_0},
	{Name: "Q2_K", Block: superBlock, Bytes: 84, Group: 16, Min: true, kind: kindQ2_K},
	{Name: "Q3_K", Block: superBlock, Bytes: 110, Group: 16, kind: kindQ3_K},
	{Name: "Q4_K", Block: superBlock, Bytes: 144, Group: 32, Min: true, kind: kindQ4_K},
	{Name: "Q5_K", Block: superBlock, Bytes: 176, Group: 32, Min: true, kind: kindQ5_K},
	{Name: "Q6_K", Block: superBlock, Bytes: 210, Group: 16, kind: kindQ6_K},
	{Name: "IQ4_NL", Block: 32, Bytes: 18, Group: 32, kind: kindIQ4_NL},
	{Name: "IQ4_XS", Block: superBlock, Bytes: 136, Group: 32, kind: kindIQ4_XS},
	{Name: "MXFP4", Block: 32, Bytes: 17, Group: 32, kind: kindMXFP4},
}

// Lookup returns the format that ggml calls name. For a name that is not in
// the table the error wraps ErrUnsupported and lists the names that are.
func Lookup(name string) (*Format, error) {
	for i := range formats {
		if formats[i].Name == name {
			return &formats[i], nil
		}
	}
	known := make([]string, len(formats))
	for i := range formats {
		known[i] = formats[i].Name
	}
	return nil, fmt.Errorf("%w %q; supported are %s", ErrUnsupported, name, strings.Join(known, ", "))
}

// Formats returns every format, in the order of the table: floats, the 32-value
// blocks, the K formats, then the non-linear ones. The slice is the caller's.
func Formats() []*Format {
	all := make([]*Format, len(formats))
	for i := range formats {
		all[i] = &formats[i]
	}
	return all
}

// String returns the format's name.
func (f *Format) String() string { return f.Name }

// RowBytes returns the number of bytes that n values take. The error wraps
// ErrLength when n is negative, is not a multiple of f.Block, or asks for more
// bytes than an int can count.
func (f *Format) RowBytes(n int) (int, error) {
	if n < 0 || n%f.Block != 0 {
		return 0, fmt.Errorf("%w: %d values in %s, want a multiple of %d", ErrLength, n, f.Name, f.Block)
	}
	blocks := n / f.Block
	if blocks > math.MaxInt/f.Bytes {
		return 0, fmt.Errorf("%w: %d values in %s exceed the address space", ErrLength, n, f.Name)
	}
	return blocks * f.Bytes, nil
}

// CanQuantize reports whether Quantize writes this format.
func (f *Format) CanQuantize() bool {
	switch f.kind {
	case kindF32, kindF16, kindBF16, kindQ8_0, kindQ4_0:
		return true
	}
	return false
}

// Dequantize decodes len(dst) values from src. The values are those of the
// package comment's formula, the same bits on every machine. It panics unless
// len(dst) is a multiple of f.Block and len(src) is RowBytes(len(dst)).
func (f *Format) Dequantize(dst []float32, src []byte) {
	f.check(len(dst), len(src))
	switch f.kind {
	case kindF32:
		decodeF32Bytes(dst, src)
	case kindF16:
		decodeF16Bytes(dst, src)
	case kindBF16:
		decodeBF16Bytes(dst, src)
	default:
		f.dequantizeBlocks(dst, src)
	}
}

// dequantizeBlocks goes through the integer form, a super-block's worth of
// values at a time so that the intermediate stays in the first-level cache.
func (f *Format) dequantizeBlocks(dst []float32, src []byte) {
	var (
		q     [superBlock]int8
		scale [superBlock / 16]float32
		mins  [superBlock / 16]float32
	)
	for len(dst) > 0 {
		n := min(superBlock, len(dst))
		size := n / f.Block * f.Bytes
		groups := n / f.Group
		f.unpackBlocks(q[:n], scale[:groups], mins[:groups], src[:size])
		if f.Min {
			scaleGroupsMin(dst[:n], q[:n], scale[:groups], mins[:groups])
		} else {
			scaleGroups(dst[:n], q[:n], scale[:groups])
		}
		dst, src = dst[n:], src[size:]
	}
}

// scaleGroups sets each dst value to its quant times the scale of its group.
// Groups are whole multiples of the eight values that a turn of the loop takes.
func scaleGroups(dst []float32, q []int8, scale []float32) {
	group := len(dst) / len(scale)
	for _, s := range scale {
		d, qs := dst[:group], q[:group]
		for len(d) >= 8 && len(qs) >= 8 {
			d[0] = s * float32(qs[0])
			d[1] = s * float32(qs[1])
			d[2] = s * float32(qs[2])
			d[3] = s * float32(qs[3])
			d[4] = s * float32(qs[4])
			d[5] = s * float32(qs[5])
			d[6] = s * float32(qs[6])
			d[7] = s * float32(qs[7])
			d, qs = d[8:], qs[8:]
		}
		dst, q = dst[group:], q[group:]
	}
}

// scaleGroupsMin is scaleGroups for formats with a minimum. The conversion of
// the product keeps compilers from fusing it with the addition.
func scaleGroupsMin(dst []float32, q []int8, scale, mins []float32) {
	group := len(dst) / len(scale)
	mins = mins[:len(scale)]
	for g, s := range scale {
		m := mins[g]
		d, qs := dst[:group], q[:group]
		for len(d) >= 8 && len(qs) >= 8 {
			d[0] = float32(s*float32(qs[0])) + m
			d[1] = float32(s*float32(qs[1])) + m
			d[2] = float32(s*float32(qs[2])) + m
			d[3] = float32(s*float32(qs[3])) + m
			d[4] = float32(s*float32(qs[4])) + m
			d[5] = float32(s*float32(qs[5])) + m
			d[6] = float32(s*float32(qs[6])) + m
			d[7] = float32(s*float32(qs[7])) + m
			d, qs = d[8:], qs[8:]
		}
		dst, q = dst[group:], q[group:]
	}
}

// check panics when values and bytes are not two measures of the same row.
func (f *Format) check(values, bytes int) {
	if values%f.Block != 0 || bytes%f.Bytes != 0 || values/f.Block != bytes/f.Bytes {
		panic(fmt.Sprintf("quant: %d values do not match %d bytes of %s", values, bytes, f.Name))
	}
}
