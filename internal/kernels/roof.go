package kernels

import (
	"sync/atomic"
	"unsafe"
)

// ReadMemory reads all of p, at least its whole multiples of 512 bytes, as fast as the tier can and
// without using it: timing it gives the limit for products with few tokens.
func (t Tier) ReadMemory(p []byte) {
	if k := kernelsOf(t); k != nil {
		if n := len(p) / 512; n > 0 {
			k.read(unsafe.SliceData(p), n)
		}
		return
	}
	var sum byte
	for i := 0; i < len(p); i += 64 {
		sum += p[i]
	}
	memorySink.Store(uint32(sum))
}

// memorySink keeps a sum from being optimised away.
var memorySink atomic.Uint32

// DotProducts does 12n of the tier's dot products of 8-bit integers on registers and returns how many
// multiplications they have: timing it gives the limit for products with many tokens.
// It returns 0, having done nothing, for a tier that has none.
func (t Tier) DotProducts(n int) (multiplications int) {
	k := kernelsOf(t)
	if k == nil || n <= 0 {
		return 0
	}
	k.dots(n)
	return 12 * n * k.dotSize
}

// MultiplyAdds does 12n of the tier's fused multiply-adds of float32 on registers and returns how many
// multiplications they have: timing it gives the limit for float products with many tokens.
// It returns 0, having done nothing, for a tier that has none.
func (t Tier) MultiplyAdds(n int) (multiplications int) {
	k := kernelsOf(t)
	if k == nil || n <= 0 {
		return 0
	}
	k.fmas(n)
	return 12 * n * k.dotSize / 4
}
