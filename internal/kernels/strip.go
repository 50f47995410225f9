package kernels

// strip is some rows of a weight that are packed for the moment. So vectors compute with weights
// that nobody has packed: the price is packing them for every product.
type strip struct {
	packed Packed
	bytes  []byte
}

// stripBudget is how many bytes are packed at once: they are to be in the second-level cache still
// when they are read.
const stripBudget = 128 << 10

// pack packs rows from r0 on, up to r1 at most. What it returns is valid until the next call.
func (s *strip) pack(w *Weight, r0, r1 int, tier Tier) *Packed {
	size := rowBlockSize(w.Format, w.In)
	blocks := max(1, stripBudget/size/2*2)
	n := min(blocks*PackedRows, r1-r0)
	s.bytes = grow(s.bytes, blocks*size)
	rows := Weight{Format: w.Format, In: w.In, Out: n, Data: w.Data[r0*w.rowBytes:][:n*w.rowBytes], rowBytes: w.rowBytes}
	Pack(s.bytes, &rows, 0, rowBlocks(n), tier)
	s.packed = Packed{Format: w.Format, In: w.In, Out: n, Data: s.bytes, layout: packedLayouts[w.Format.Name]}
	return &s.packed
}
