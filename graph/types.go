package graph

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// NodeID is the index of a node in its graph. Ids are dense and in build order.
type NodeID int

// None is the id of no node.
const None NodeID = -1

// DType is the element type of a node's value.
type DType uint8

// The element types. Activations are F32 and token ids, positions and cells are
// I32; F16 is what key and value regions hold by default. Q8_0 is blocks of 32
// int8 values that share a scale.
const (
	F32 DType = iota
	F16
	BF16
	I32
	Q8_0
)

var dtypeNames = [...]string{F32: "F32", F16: "F16", BF16: "BF16", I32: "I32", Q8_0: "Q8_0"}

// String returns the type's name as it stands in the text form.
func (t DType) String() string { return enumName(dtypeNames[:], int(t)) }

// MarshalText returns the type's name, for JSON.
func (t DType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// ParseDType returns the type with the given name.
func ParseDType(name string) (DType, error) {
	i, err := enumValue("element type", dtypeNames[:], name)
	return DType(i), err
}

// Bytes returns the memory that n elements take. For Q8_0, n is rounded up to
// whole blocks of 32 values, each of which takes 34 bytes.
func (t DType) Bytes(n int) int {
	switch t {
	case F16, BF16:
		return 2 * n
	case Q8_0:
		return (n + 31) / 32 * 34
	default:
		return 4 * n
	}
}

// Shape is the extent of a value in each of four dimensions, the fastest first.
// Unused dimensions are 1.
type Shape [4]int

// ShapeOf returns the shape with the given leading dimensions and 1 elsewhere.
func ShapeOf(dims ...int) Shape {
	s := Shape{1, 1, 1, 1}
	copy(s[:], dims)
	return s
}

// Elements returns the number of elements.
func (s Shape) Elements() int { return s[0] * s[1] * s[2] * s[3] }

// Rows returns the number of rows: everything but the first dimension.
func (s Shape) Rows() int { return s[1] * s[2] * s[3] }

// String returns the shape as "[896 5]", without trailing dimensions of 1.
func (s Shape) String() string {
	last := 0
	for i, d := range s {
		if d != 1 {
			last = i
		}
	}
	parts := make([]string, last+1)
	for i := range parts {
		parts[i] = strconv.Itoa(s[i])
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// maxElements bounds the size of one value, so that sizes in bytes cannot
// overflow an int.
const maxElements = math.MaxInt / 64

// check says what is wrong with a shape.
func (s Shape) check() error {
	n := 1
	for _, d := range s {
		if d <= 0 {
			return fmt.Errorf("shape %v has a dimension below 1", s)
		}
		if d > maxElements/n {
			return fmt.Errorf("shape %v has more than %d elements", s, maxElements)
		}
		n *= d
	}
	return nil
}

// Weight describes a tensor of the model file to the builder.
type Weight struct {
	Name string // the tensor's name in the file
	Type string // its storage type by ggml's name, such as "Q4_K"
	In   int    // values per row: GGUF's first dimension
	Out  int    // rows: GGUF's second dimension, 1 for a vector
}

// RoPEStyle says which two features of a head form a rotated pair.
type RoPEStyle uint8

const (
	// RoPEInterleaved pairs features 2i and 2i+1 (llama).
	RoPEInterleaved RoPEStyle = iota
	// RoPEHalves pairs features i and i+dim/2 (GPT-NeoX, qwen).
	RoPEHalves
)

var ropeStyleNames = [...]string{RoPEInterleaved: "interleaved", RoPEHalves: "halves"}

// String returns the style's name as it stands in the text form.
func (s RoPEStyle) String() string { return enumName(ropeStyleNames[:], int(s)) }

// MarshalText returns the style's name, for JSON.
func (s RoPEStyle) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// AttentionMode says which keys a token attends to.
type AttentionMode uint8

const (
	// Causal attention sees the token itself and what came before it.
	Causal AttentionMode = iota
	// Full attention sees every token of the sequence; it needs explicit spans,
	// since positions cannot bound it.
	Full
)

var attentionModeNames = [...]string{Causal: "causal", Full: "full"}

// String returns the mode's name as it stands in the text form.
func (m AttentionMode) String() string { return enumName(attentionModeNames[:], int(m)) }

// MarshalText returns the mode's name, for JSON.
func (m AttentionMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func enumName(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown(" + strconv.Itoa(i) + ")"
}

func enumValue(what string, names []string, name string) (int, error) {
	for i, n := range names {
		if n == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("graph: unknown %s %q (known: %s)", what, name, strings.Join(names, ", "))
}
