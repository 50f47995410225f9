package gguf

import (
	"fmt"
	"strings"
)

// Type is the number by which a file names the element format of a tensor.
// The numbers are ggml's and are never reused: an id whose format was withdrawn
// stays here under its name and counts as removed.
type Type uint32

// The tensor types. The comments give the values and bytes of a block.
const (
	TypeF32     Type = 0  // 1 value, 4 bytes
	TypeF16     Type = 1  // 1 value, 2 bytes
	TypeQ4_0    Type = 2  // 32 values, 18 bytes
	TypeQ4_1    Type = 3  // 32 values, 20 bytes
	TypeQ4_2    Type = 4  // removed
	TypeQ4_3    Type = 5  // removed
	TypeQ5_0    Type = 6  // 32 values, 22 bytes
	TypeQ5_1    Type = 7  // 32 values, 24 bytes
	TypeQ8_0    Type = 8  // 32 values, 34 bytes
	TypeQ8_1    Type = 9  // 32 values, 36 bytes
	TypeQ2_K    Type = 10 // 256 values, 84 bytes
	TypeQ3_K    Type = 11 // 256 values, 110 bytes
	TypeQ4_K    Type = 12 // 256 values, 144 bytes
	TypeQ5_K    Type = 13 // 256 values, 176 bytes
	TypeQ6_K    Type = 14 // 256 values, 210 bytes
	TypeQ8_K    Type = 15 // 256 values, 292 bytes
	TypeIQ2_XXS Type = 16 // 256 values, 66 bytes
	TypeIQ2_XS  Type = 17 // 256 values, 74 bytes
	TypeIQ3_XXS Type = 18 // 256 values, 98 bytes
	TypeIQ1_S   Type = 19 // 256 values, 50 bytes
	TypeIQ4_NL  Type = 20 // 32 values, 18 bytes
	TypeIQ3_S   Type = 21 // 256 values, 110 bytes
	TypeIQ2_S   Type = 22 // 256 values, 82 bytes
	TypeIQ4_XS  Type = 23 // 256 values, 136 bytes
	TypeI8      Type = 24 // 1 value, 1 byte
	TypeI16     Type = 25 // 1 value, 2 bytes
	TypeI32     Type = 26 // 1 value, 4 bytes
	TypeI64     Type = 27 // 1 value, 8 bytes
	TypeF64     Type = 28 // 1 value, 8 bytes
	TypeIQ1_M   Type = 29 // 256 values, 56 bytes
	TypeBF16    Type = 30 // 1 value, 2 bytes

	TypeQ4_0_4_4   Type = 31 // removed: Q4_0 interleaved in memory since
	TypeQ4_0_4_8   Type = 32 // removed
	TypeQ4_0_8_8   Type = 33 // removed
	TypeTQ1_0      Type = 34 // 256 values, 54 bytes
	TypeTQ2_0      Type = 35 // 256 values, 66 bytes
	TypeIQ4_NL_4_4 Type = 36 // removed
	TypeIQ4_NL_4_8 Type = 37 // removed
	TypeIQ4_NL_8_8 Type = 38 // removed
	TypeMXFP4      Type = 39 // 32 values, 17 bytes
	TypeNVFP4      Type = 40 // 64 values, 36 bytes
	TypeQ1_0       Type = 41 // 128 values, 18 bytes
	TypeQ2_0       Type = 42 // 64 values, 18 bytes
)

// layout is the name and block of a type. A removed type has no block.
type layout struct {
	name   string
	values int
	bytes  int
}

var layouts = [...]layout{
	TypeF32:        {"F32", 1, 4},
	TypeF16:        {"F16", 1, 2},
	TypeQ4_0:       {"Q4_0", 32, 18},
	TypeQ4_1:       {"Q4_1", 32, 20},
	TypeQ4_2:       {name: "Q4_2"},
	TypeQ4_3:       {name: "Q4_3"},
	TypeQ5_0:       {"Q5_0", 32, 22},
	TypeQ5_1:       {"Q5_1", 32, 24},
	TypeQ8_0:       {"Q8_0", 32, 34},
	TypeQ8_1:       {"Q8_1", 32, 36},
	TypeQ2_K:       {"Q2_K", 256, 84},
	TypeQ3_K:       {"Q3_K", 256, 110},
	TypeQ4_K:       {"Q4_K", 256, 144},
	TypeQ5_K:       {"Q5_K", 256, 176},
	TypeQ6_K:       {"Q6_K", 256, 210},
	TypeQ8_K:       {"Q8_K", 256, 292},
	TypeIQ2_XXS:    {"IQ2_XXS", 256, 66},
	TypeIQ2_XS:     {"IQ2_XS", 256, 74},
	TypeIQ3_XXS:    {"IQ3_XXS", 256, 98},
	TypeIQ1_S:      {"IQ1_S", 256, 50},
	TypeIQ4_NL:     {"IQ4_NL", 32, 18},
	TypeIQ3_S:      {"IQ3_S", 256, 110},
	TypeIQ2_S:      {"IQ2_S", 256, 82},
	TypeIQ4_XS:     {"IQ4_XS", 256, 136},
	TypeI8:         {"I8", 1, 1},
	TypeI16:        {"I16", 1, 2},
	TypeI32:        {"I32", 1, 4},
	TypeI64:        {"I64", 1, 8},
	TypeF64:        {"F64", 1, 8},
	TypeIQ1_M:      {"IQ1_M", 256, 56},
	TypeBF16:       {"BF16", 1, 2},
	TypeQ4_0_4_4:   {name: "Q4_0_4_4"},
	TypeQ4_0_4_8:   {name: "Q4_0_4_8"},
	TypeQ4_0_8_8:   {name: "Q4_0_8_8"},
	TypeTQ1_0:      {"TQ1_0", 256, 54},
	TypeTQ2_0:      {"TQ2_0", 256, 66},
	TypeIQ4_NL_4_4: {name: "IQ4_NL_4_4"},
	TypeIQ4_NL_4_8: {name: "IQ4_NL_4_8"},
	TypeIQ4_NL_8_8: {name: "IQ4_NL_8_8"},
	TypeMXFP4:      {"MXFP4", 32, 17},
	TypeNVFP4:      {"NVFP4", 64, 36},
	TypeQ1_0:       {"Q1_0", 128, 18},
	TypeQ2_0:       {"Q2_0", 64, 18},
}

func (t Type) layout() layout {
	if uint64(t) < uint64(len(layouts)) {
		return layouts[t]
	}
	return layout{}
}

// Known says whether the type's block is known, so that a tensor of it has a
// size. It does not promise that any device computes with it.
func (t Type) Known() bool { return t.layout().values != 0 }

// Removed says whether the id belongs to a format that ggml withdrew. Files
// with such tensors have to be made again from the original weights.
func (t Type) Removed() bool {
	l := t.layout()
	return l.name != "" && l.values == 0
}

// BlockSize is the number of consecutive values of a row that are stored
// together; 0 for a removed or unknown type.
func (t Type) BlockSize() int { return t.layout().values }

// BlockBytes is the number of bytes of a block; 0 for a removed or unknown type.
func (t Type) BlockBytes() int { return t.layout().bytes }

// String is ggml's name in capitals ("Q4_K"), or "type N" for an unknown id.
func (t Type) String() string {
	if name := t.layout().name; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Types lists the known types in the order of their ids.
func Types() []Type {
	var known []Type
	for id := range layouts {
		if t := Type(id); t.Known() {
			known = append(known, t)
		}
	}
	return known
}

// ParseType finds a type by its name, in any mix of upper and lower case.
// Removed types are found too. The error is ErrUnsupportedType.
func ParseType(name string) (Type, error) {
	for id, l := range layouts {
		if strings.EqualFold(l.name, name) && name != "" {
			return Type(id), nil
		}
	}
	return 0, fmt.Errorf("gguf: no tensor type is named %q: %w", clip(name), ErrUnsupportedType)
}

// ValueKind is the kind of a metadata value.
type ValueKind uint32

// The value kinds, under the numbers that files use.
const (
	KindUint8   ValueKind = 0
	KindInt8    ValueKind = 1
	KindUint16  ValueKind = 2
	KindInt16   ValueKind = 3
	KindUint32  ValueKind = 4
	KindInt32   ValueKind = 5
	KindFloat32 ValueKind = 6
	KindBool    ValueKind = 7
	KindString  ValueKind = 8
	KindArray   ValueKind = 9
	KindUint64  ValueKind = 10
	KindInt64   ValueKind = 11
	KindFloat64 ValueKind = 12
)

var kinds = [...]struct {
	name string
	size int // bytes of a value; 0 where it varies
}{
	KindUint8:   {"uint8", 1},
	KindInt8:    {"int8", 1},
	KindUint16:  {"uint16", 2},
	KindInt16:   {"int16", 2},
	KindUint32:  {"uint32", 4},
	KindInt32:   {"int32", 4},
	KindFloat32: {"float32", 4},
	KindBool:    {"bool", 1},
	KindString:  {"string", 0},
	KindArray:   {"array", 0},
	KindUint64:  {"uint64", 8},
	KindInt64:   {"int64", 8},
	KindFloat64: {"float64", 8},
}

func (k ValueKind) valid() bool { return uint64(k) < uint64(len(kinds)) }

// String is the kind's Go-like name, or "kind N" for an unknown number.
func (k ValueKind) String() string {
	if k.valid() {
		return kinds[k].name
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// IsInteger says whether values of the kind are whole numbers (bool is not).
func (k ValueKind) IsInteger() bool {
	switch k {
	case KindUint8, KindInt8, KindUint16, KindInt16, KindUint32, KindInt32, KindUint64, KindInt64:
		return true
	}
	return false
}

// minSize is the fewest bytes that one value of the kind takes in a file.
func (k ValueKind) minSize() int64 {
	switch k {
	case KindString:
		return 8 // the length
	case KindArray:
		return 12 // element kind and count
	}
	return int64(kinds[k].size)
}
