package kernels

import (
	"fmt"

	"github.com/minfer/minfer/internal/quant"
)

// Weight is a matrix of a model, in the order in which files carry it: Out rows
// of In values each, one after the other, in the blocks of Format.
type Weight struct {
	Format *quant.Format
	In     int // values of a row
	Out    int // rows
	Data   []byte

	rowBytes int
}

// NewWeight checks that data holds at least out rows of in values. It keeps data.
func NewWeight(format *quant.Format, in, out int, data []byte) (*Weight, error) {
	n, err := format.RowBytes(in)
	if err != nil {
		return nil, err
	}
	if in <= 0 || out <= 0 {
		return nil, fmt.Errorf("kernels: weight of %d rows of %d values: both must be positive", out, in)
	}
	if format.Group != 0 && in%BlockSize != 0 {
		return nil, fmt.Errorf("kernels: %s row of %d values is not a multiple of %d", format.Name, in, BlockSize)
	}
	if n > 0 && len(data)/n < out {
		return nil, fmt.Errorf("kernels: %s weight of %d rows of %d values takes %d bytes a row, but there are %d bytes in all",
			format.Name, out, in, n, len(data))
	}
	return &Weight{Format: format, In: in, Out: out, Data: data, rowBytes: n}, nil
}

// Integer says whether products with the weight take quantised activations
// (MatMulInt) or float ones (MatMulFloat).
func (w *Weight) Integer() bool { return w.Format.Group != 0 }

// Row returns the bytes of row r.
func (w *Weight) Row(r int) []byte { return w.Data[r*w.rowBytes:][:w.rowBytes] }

// GetRow writes row r as float32 into the first In values of dst.
func (w *Weight) GetRow(dst []float32, r int) {
	w.Format.Dequantize(dst[:w.In], w.Row(r))
}

// Scratch is what one worker needs to run any kernel. The zero value is ready;
// it grows to the largest need and is then reused.
type Scratch struct {
	Tier Tier // what kernels compute with; set before use

	rows   [tileRows]quant.IntRow
	packed []int64
	floats []float32
	attend attendScratch

	results []float32 // see Results
	partial []float32 // results of a row block that is not whole
	lines   []byte    // expanded weights
	encoded []byte    // rows in another format
	strip   strip
}

// Results returns memory of the worker for n results, whatever is in it. It is used by nothing else, until the next call.
func (s *Scratch) Results(n int) []float32 {
	s.results = GrowLarge(s.results, n)
	return s.results
}

// intMatrix is what the plain products need of a weight, packed or not.
type intMatrix interface {
	shape() (format *quant.Format, in int)
	unpackRow(row *quant.IntRow, r int)
}

func (w *Weight) shape() (*quant.Format, int)        { return w.Format, w.In }
func (w *Weight) unpackRow(row *quant.IntRow, r int) { w.Format.Unpack(row, w.Row(r)) }

// MatMulInt computes rows [r0, r1) of an integer weight for every token of acts:
//
//	out[t*outStride+r] = w[r] . x[t] + bias[r]
//
// bias is nil or has Out values. Calls with distinct rows may run at the same
// time, each with its own Scratch. With vectors, rows are packed on the way (see strip), and r0 is
// a multiple of PackedRows.
func MatMulInt(out []float32, outStride int, w *Weight, r0, r1 int, bias []float32, acts *QActs, s *Scratch) {
	if kernelsOf(acts.Tier) == nil {
		matMulIntRange(out, outStride, w, r0, r1, bias, acts, s)
		return
	}
	for r := r0; r < r1; {
		p := s.strip.pack(w, r, r1, acts.Tier)
		MatMulPacked(out[r:], outStride, p, 0, p.Blocks(), after(bias, r), acts, s)
		r += p.Out
	}
}

func matMulIntRange(out []float32, outStride int, w intMatrix, r0, r1 int, bias []float32, acts *QActs, s *Scratch) {
	if usesTiles(acts.Tokens) {
		matMulIntTiles(out, outStride, w, r0, r1, acts, s)
	} else {
		matMulIntRows(out, outStride, w, r0, r1, acts, s)
	}
	addBias(out, outStride, r0, r1, bias, acts.Tokens)
}

// MatMulFloat computes rows [r0, r1) of a float weight for tokens rows of x,
// which lie xStride values apart:
//
//	out[t*outStride+r] = w[r] . x[t] + bias[r]
//
// bias is nil or has Out values. Calls with distinct rows or tokens may run at the
// same time, each with its own Scratch. Any format will do: an integer one is
// dequantised row by row, which is exact but not what a model's products use. With vectors, rows of a
// float one are packed on the way, and r0 is a multiple of PackedRows.
func MatMulFloat(out []float32, outStride int, w *Weight, r0, r1 int, bias []float32, x []float32, xStride, tokens int, s *Scratch) {
	if w.Integer() || floatRoutinesOf(s.Tier) == nil {
		matMulFloatRows(out, outStride, w, r0, r1, x, xStride, tokens, s)
		addBias(out, outStride, r0, r1, bias, tokens)
		return
	}
	for r := r0; r < r1; {
		p := s.strip.pack(w, r, r1, s.Tier)
		MatMulPackedFloat(out[r:], outStride, p, 0, p.Blocks(), after(bias, r), x, xStride, tokens, s)
		r += p.Out
	}
}

// after returns the bias of rows from r on.
func after(bias []float32, r int) []float32 {
	if bias == nil {
		return nil
	}
	return bias[r:]
}

func addBias(out []float32, outStride, r0, r1 int, bias []float32, tokens int) {
	if bias == nil {
		return
	}
	b := bias[r0:r1]
	for t := range tokens {
		o := out[t*outStride+r0:][:len(b)]
		for i := range o {
			o[i] += b[i]
		}
	}
}
