package trace

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/quant"
	"github.com/minfer/minfer/sched"
)

// Number is a float32 that may be no number: in JSON, NaN and the infinities are the strings
// "NaN", "+Inf" and "-Inf".
type Number float32

// MarshalJSON returns the shortest form that reads back as the same number.
func (x Number) MarshalJSON() ([]byte, error) { return x.append(nil), nil }

func (x Number) append(b []byte) []byte {
	f := float64(x)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(b, strconv.FormatFloat(f, 'g', -1, 32))
	}
	return strconv.AppendFloat(b, f, 'g', -1, 32)
}

// UnmarshalJSON takes a number, or one of the three strings.
func (x *Number) UnmarshalJSON(b []byte) error {
	text := string(b)
	if len(b) > 0 && b[0] == '"' {
		var err error
		if text, err = strconv.Unquote(text); err != nil || text != "NaN" && text != "+Inf" && text != "-Inf" {
			return fmt.Errorf("trace: %s is neither a number nor \"NaN\", \"+Inf\" or \"-Inf\"", b)
		}
	}
	f, err := strconv.ParseFloat(text, 32)
	if err != nil {
		return fmt.Errorf("trace: %s is no number", b)
	}
	*x = Number(f)
	return nil
}

// Statistics describe the elements of a value. All but the counts are of the finite elements,
// and 0 if there are none.
type Statistics struct {
	Min  Number  `json:"min"`
	Max  Number  `json:"max"`
	Mean float64 `json:"mean"`
	RMS  float64 `json:"rms"` // root of the mean of the squares
	NaN  int     `json:"nan,omitempty"`
	Inf  int     `json:"inf,omitempty"`
}

// Describe computes the statistics of some elements.
func Describe(x []float32) *Statistics {
	s := &Statistics{Min: Number(math.Inf(1)), Max: Number(math.Inf(-1))}
	var sum, squares float64
	for _, v := range x {
		f := float64(v)
		switch {
		case f != f:
			s.NaN++
		case math.IsInf(f, 0):
			s.Inf++
		default:
			s.Min, s.Max = min(s.Min, Number(v)), max(s.Max, Number(v))
			sum += f
			squares += float64(f * f)
		}
	}
	if n := float64(len(x) - s.NaN - s.Inf); n > 0 {
		s.Mean, s.RMS = sum/n, math.Sqrt(squares/n)
	} else {
		s.Min, s.Max = 0, 0
	}
	return s
}

// histogram counts the finite elements in equal bins between the least and the greatest, which are no more than
// there are elements.
func histogram(x []float32, s *Statistics, bins int) []int {
	span := float64(s.Max) - float64(s.Min)
	if bins = min(bins, len(x)); bins <= 0 || span == 0 {
		return nil
	}
	counts := make([]int, bins)
	for _, v := range x {
		f := float64(v)
		if f != f || math.IsInf(f, 0) {
			continue
		}
		counts[min(bins-1, int((f-float64(s.Min))/span*float64(bins)))]++
	}
	return counts
}

// Sample is some elements of a value.
type Sample struct {
	Rows   []int    `json:"rows"`   // which rows, ascending
	Stride int      `json:"stride"` // of a row, every so manyth element
	Values []Number `json:"values"` // row after row
}

// sampleOf takes elements of the last rows, evenly spaced within each.
func sampleOf(x []float32, width, rows, columns int) *Sample {
	if rows <= 0 || columns <= 0 || width == 0 {
		return nil
	}
	all := len(x) / width
	rows, columns = min(rows, all), min(columns, width)
	s := &Sample{Stride: (width + columns - 1) / columns}
	for r := all - rows; r < all; r++ {
		s.Rows = append(s.Rows, r)
		for i := 0; i < width; i += s.Stride {
			s.Values = append(s.Values, Number(x[r*width+i]))
		}
	}
	return s
}

// Reader reads values of steps into memory that it uses again and again.
type Reader struct {
	raw    []byte
	floats []float32
}

// Value returns the step's value as floats, or nil if it has none (a key and value region) or one
// whose elements are blocks. It is valid until the next call, and is to be called within
// Observer.After.
func (r *Reader) Value(s *sched.Step) ([]float32, error) {
	n := s.Node()
	return r.read(n.Type, s.Bytes(), n.Shape.Elements(), func(raw []byte) error { return s.Read(0, raw) })
}

// Row is Value for one row of the value: the elements of its first dimension. A negative row
// counts from the end.
func (r *Reader) Row(s *sched.Step, row int) ([]float32, error) {
	n := s.Node()
	if row < 0 {
		row += n.Shape.Rows()
	}
	bytes := n.Type.Bytes(n.Shape[0])
	if s.Bytes() == 0 {
		return nil, nil
	}
	return r.read(n.Type, bytes, n.Shape[0], func(raw []byte) error { return s.Read(row*bytes, raw) })
}

func (r *Reader) read(t graph.DType, bytes, elements int, read func([]byte) error) ([]float32, error) {
	if bytes == 0 || t == graph.Q8_0 {
		return nil, nil
	}
	if cap(r.raw) < bytes {
		r.raw = make([]byte, bytes)
	}
	if cap(r.floats) < elements {
		r.floats = make([]float32, elements)
	}
	raw, x := r.raw[:bytes], r.floats[:elements]
	if err := read(raw); err != nil {
		return nil, err
	}
	decode(x, raw, t)
	return x, nil
}

func decode(x []float32, raw []byte, t graph.DType) {
	for i := range x {
		switch t {
		case graph.F32:
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		case graph.I32:
			x[i] = float32(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		case graph.BF16:
			x[i] = quant.BF16ToF32(binary.LittleEndian.Uint16(raw[2*i:]))
		case graph.F16:
			x[i] = quant.F16ToF32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}
}
