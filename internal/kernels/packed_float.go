package kernels

// unpackFloatRow writes row r of a float format as float32 into dst.
func unpackFloatRow(dst []float32, p *Packed, r int) {
	size := p.Format.Bytes
	src := p.Data[r/PackedRows*rowBlockSize(p.Format, p.In)+r%PackedRows*size:]
	for k := range dst[:p.In] {
		p.Format.Dequantize(dst[k:k+1], src[k*PackedRows*size:][:size])
	}
}
