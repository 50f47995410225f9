//go:build purego || !amd64

package kernels

// Without vectors, or with those of arm64, which only transpose, packing handles bits in plain Go.

func (Tier) splitNibbles(low, high, x []byte)                     { splitNibbles(low, high, x) }
func (Tier) splitPairs(dst []byte, step int, x []byte, apart int) { splitPairs(dst, step, x, apart) }
func (Tier) splitBits(dst []byte, step int, x []byte)             { splitBits(dst, step, x) }
func (Tier) joinTriples(dst []byte, step int)                     { joinTriples(dst, step) }
func (Tier) gatherBits(dst, line []byte)                          { gatherBits(dst, line) }
func (Tier) splitWords(a, b, c, d, line []byte)                   { splitWords(a, b, c, d, line) }
func (Tier) unzip(dst, x []byte, lines int)                       { unzip(dst, x, lines) }
func (Tier) halves(_, _ []byte, _ int, _ uint16) bool             { return false }
