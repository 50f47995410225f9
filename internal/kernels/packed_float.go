package kernels

// packFloat fills row blocks [block0, block1) of dst with a weight of a float format.
func packFloat(dst []byte, w *Weight, block0, block1 int) {
	size := w.Format.Bytes
	n := rowBlockSize(w.Format, w.In)
	for b := block0; b < block1; b++ {
		d := dst[b*n:][:n]
		rows := min(PackedRows, w.Out-b*PackedRows)
		if rows < PackedRows {
			clear(d)
		}
		for r := range rows {
			row := w.Row(b*PackedRows + r)
			if size == 2 {
				interleave2(d[r*2:], row)
			} else {
				interleave4(d[r*4:], row)
			}
		}
	}
}

// interleave2 copies values of two bytes to every sixteenth place of dst.
func interleave2(dst, src []byte) {
	for i := 0; len(src) >= 2; i += 2 * PackedRows {
		*(*[2]byte)(dst[i:]) = [2]byte(src)
		src = src[2:]
	}
}

// interleave4 is interleave2 for values of four bytes.
func interleave4(dst, src []byte) {
	for i := 0; len(src) >= 4; i += 4 * PackedRows {
		*(*[4]byte)(dst[i:]) = [4]byte(src)
		src = src[4:]
	}
}

// unpackFloatRow writes row r of a float format as float32 into dst.
func unpackFloatRow(dst []float32, p *Packed, r int) {
	size := p.Format.Bytes
	src := p.Data[r/PackedRows*rowBlockSize(p.Format, p.In)+r%PackedRows*size:]
	for k := range dst[:p.In] {
		p.Format.Dequantize(dst[k:k+1], src[k*PackedRows*size:][:size])
	}
}
