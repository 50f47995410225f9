package kernels

import (
	"fmt"

	"github.com/minfer/minfer/internal/quant"
)

// QuantizeRows encodes rows [r0, r1) of w in another format, one after the other from the
// start of dst. The error wraps one of quant's, and names the row: ErrNoEncoder for a format
// without an encoder, ErrLength for rows that are not whole blocks, ErrValue for values that
// the format cannot hold, such as infinities. Distinct rows may be encoded at the same time,
// each with its own Scratch.
func QuantizeRows(dst []byte, format *quant.Format, w *Weight, r0, r1 int, s *Scratch) error {
	n, err := format.RowBytes(w.In)
	if err != nil {
		return fmt.Errorf("kernels: rows of %s in %s: %w", w.Format.Name, format.Name, err)
	}
	s.floats = grow(s.floats, w.In)
	row := s.floats[:w.In]
	for r := r0; r < r1; r++ {
		w.GetRow(row, r)
		if err := format.Quantize(dst[(r-r0)*n:][:n], row); err != nil {
			return fmt.Errorf("kernels: row %d of %s in %s: %w", r, w.Format.Name, format.Name, err)
		}
	}
	return nil
}

// PackAs is Pack of the weight in another format: it fills row blocks [block0, block1) of
// dst, which has PackedSize bytes for that format. Only one row block exists unpacked at a time.
// Errors are those of PackedSize and QuantizeRows.
func PackAs(dst []byte, format *quant.Format, w *Weight, block0, block1 int, s *Scratch) error {
	if _, err := PackedSize(format, w.In, w.Out); err != nil {
		return err
	}
	n, err := format.RowBytes(w.In)
	if err != nil {
		return err
	}
	s.encoded = grow(s.encoded, PackedRows*n)
	size := rowBlockSize(format, w.In)
	for b := block0; b < block1; b++ {
		r0, r1 := b*PackedRows, min((b+1)*PackedRows, w.Out)
		if err := QuantizeRows(s.encoded, format, w, r0, r1, s); err != nil {
			return err
		}
		rows := Weight{Format: format, In: w.In, Out: r1 - r0, Data: s.encoded, rowBytes: n}
		Pack(dst[b*size:], &rows, 0, 1, s.Tier)
	}
	return nil
}
