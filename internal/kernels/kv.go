package kernels

import "github.com/minfer/minfer/internal/quant"

// kvBlock is the number of cells that lie together: the lanes of a vector. It equals
// backend.KVBlock, by which regions are shared and saved.
const kvBlock = 16

// KVRegion is the keys or the values of one layer: a row of Dim values for each
// cell, in F16 or F32, whichever of the two is not nil.
//
// Callers reach rows through its methods only, since the order inside serves Attend:
// every 16 cells are a block of 16*Dim elements, within which
//
//	keys    [Dim][16 cells]                       a vector is one feature of 16 keys
//	values  [Dim/16][16 cells][16 features]       a vector is 16 features of one value
//
// so that all of a block that belongs to one head lies together. The last group of
// features of values is narrower if Dim is no multiple of 16. Cells that make no whole
// block at the end are rows one after another.
type KVRegion struct {
	Dim  int
	Keys bool // of the order of keys, not of values
	Tier Tier // what Store computes with
	F16  []uint16
	F32  []float32
}

// NewKeys makes a region of zeros for keys, with float32 elements if wide.
func NewKeys(cells, dim int, wide bool) *KVRegion {
	k := NewValues(cells, dim, wide)
	k.Keys = true
	return k
}

// NewValues makes a region of zeros for values, with float32 elements if wide.
func NewValues(cells, dim int, wide bool) *KVRegion {
	if wide {
		return &KVRegion{Dim: dim, F32: make([]float32, cells*dim)}
	}
	return &KVRegion{Dim: dim, F16: make([]uint16, cells*dim)}
}

// Cells is the number of rows.
func (k *KVRegion) Cells() int { return (len(k.F16) + len(k.F32)) / k.Dim }

// place returns where element d of a cell's row lies, how many elements from there on lie
// at the same distance, and that distance.
func (k *KVRegion) place(cell, d int) (at, n, stride int) {
	in, first := cell%kvBlock, cell-cell%kvBlock
	if first+kvBlock > k.Cells() {
		return cell*k.Dim + d, k.Dim - d, 1
	}
	at, n, stride = placeInBlock(k.Dim, k.Keys, in, d)
	return first*k.Dim + at, n, stride
}

// placeInBlock is place for a cell of a block.
func placeInBlock(dim int, keys bool, cell, d int) (at, n, stride int) {
	if keys {
		return d*kvBlock + cell, dim - d, kvBlock
	}
	group := d - d%kvBlock
	width := min(kvBlock, dim-group)
	return group*kvBlock + cell*width + d - group, group + width - d, 1
}

// BlockToRows writes the block of 16 cells of a region, whose elements of so many bytes are rows of
// dim, as 16 rows one after the other. BlockFromRows is its inverse.
func BlockToRows(rows, block []byte, dim, size int, keys bool) {
	eachPart(dim, size, keys, func(row, at, n int) { copy(rows[row:row+n], block[at:]) })
}

// BlockFromRows is the inverse of BlockToRows.
func BlockFromRows(block, rows []byte, dim, size int, keys bool) {
	eachPart(dim, size, keys, func(row, at, n int) { copy(block[at:at+n], rows[row:]) })
}

// eachPart calls f with where n bytes of rows lie and where the same bytes of their block do.
func eachPart(dim, size int, keys bool, f func(row, at, n int)) {
	for cell := range kvBlock {
		for d := 0; d < dim; {
			at, n, stride := placeInBlock(dim, keys, cell, d)
			if stride != 1 {
				n = 1
			}
			f((cell*dim+d)*size, at*size, n*size)
			d += n
		}
	}
}

// Store writes the first Dim values of row to a cell. In F16 they are rounded to
// nearest even, and to infinity beyond its range.
func (k *KVRegion) Store(cell int, row []float32) { k.store(cell, 0, row[:k.Dim]) }

// store writes the elements of a cell's row from from on.
func (k *KVRegion) store(cell, from int, row []float32) {
	for len(row) > 0 {
		at, n, stride := k.place(cell, from)
		n = min(n, len(row))
		part := row[:n]
		row, from = row[n:], from+n
		switch {
		case k.F32 != nil && stride == 1:
			copy(k.F32[at:][:n], part)
		case k.F32 != nil:
			scatter(k.F32[at:], stride, part)
		case stride == 1:
			k.Tier.EncodeF16(k.F16[at:][:n], part)
		default:
			done := k.Tier.scatterF16(k.F16[at:], part)
			for i, v := range part[done:] {
				k.F16[at+(done+i)*stride] = quant.F32ToF16(v)
			}
		}
	}
}

// StoreRows stores n elements, from from on, of the rows of cells: those of successive cells lie stride values apart. Cells that
// make up a block are stored together, several times as fast as one by one.
func (k *KVRegion) StoreRows(cells []int32, from, n int, rows []float32, stride int) {
	for i := 0; i < len(cells); {
		if k.storeBlock(cells[i:], from, n, rows[i*stride:], stride) {
			i += kvBlock
			continue
		}
		k.store(int(cells[i]), from, rows[i*stride:][:n])
		i++
	}
}

// storeBlock stores elements of the rows of the first 16 cells if they are a block.
func (k *KVRegion) storeBlock(cells []int32, from, n int, rows []float32, stride int) bool {
	if k.F16 == nil || len(cells) < kvBlock || cells[0]%kvBlock != 0 || from%kvBlock != 0 || n%kvBlock != 0 {
		return false
	}
	first := int(cells[0])
	for i, c := range cells[:kvBlock] {
		if int(c) != first+i {
			return false
		}
	}
	if first+kvBlock > k.Cells() {
		return false
	}
	return k.Tier.storeBlockF16(k.F16[first*k.Dim+from*kvBlock:][:n*kvBlock], rows[:(kvBlock-1)*stride+n], stride, n, k.Keys)
}

func scatter(dst []float32, stride int, src []float32) {
	for i, v := range src {
		dst[i*stride] = v
	}
}

// Load writes elements [from, from+len(dst)) of a cell's row to dst.
func (k *KVRegion) Load(dst []float32, cell, from int) {
	for len(dst) > 0 {
		at, n, stride := k.place(cell, from)
		n = min(n, len(dst))
		part := dst[:n]
		dst, from = dst[n:], from+n
		switch {
		case k.F32 != nil && stride == 1:
			copy(part, k.F32[at:])
		case k.F32 != nil:
			src := k.F32[at : at+(n-1)*stride+1]
			for i := range part {
				part[i] = src[i*stride]
			}
		case stride == 1:
			quant.DecodeF16(part, k.F16[at:][:n])
		default:
			src := k.F16[at : at+(n-1)*stride+1]
			for i := range part {
				part[i] = quant.F16ToF32(src[i*stride])
			}
		}
	}
}
