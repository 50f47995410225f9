//go:build linux

package kernels

import (
	"bytes"
	"syscall"
	"testing"
	"unsafe"

	"github.com/minfer/minfer/internal/quant"
)

// beforeGap returns n bytes that end where an unreadable page begins.
func beforeGap(t *testing.T, n int) []byte {
	page := syscall.Getpagesize()
	size := (n + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(m) })
	if err := syscall.Mprotect(m[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return m[size-n : size : size]
}

// TestPackedStaysWithin puts weights, activations, bias and results at the end of readable memory: what
// reaches beyond ends the test.
func TestPackedStaysWithin(t *testing.T) {
	floats := func(n int) []float32 {
		return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(beforeGap(t, 4*n)))), n)
	}
	for _, name := range integerFormats {
		f, _ := quant.Lookup(name)
		w := randWeight(t, name, f.Block, 32, 1)
		size, _ := PackedSize(f, w.In, w.Out)
		p, err := NewPacked(f, w.In, w.Out, beforeGap(t, size))
		if err != nil {
			t.Fatal(err)
		}
		Pack(p.Data, w, 0, 2, Generic)
		bias := floats(w.Out)
		for _, tokens := range []int{1, 3, 4, 7, 19, 31} {
			x, out := floats(tokens*w.In), floats(tokens*w.Out)
			copy(x, randFloats(len(x), 2))
			for _, tier := range Tiers() {
				acts, s := QActs{Tier: tier}, Scratch{}
				if k := kernelsOf(tier); k != nil {
					room, _ := k.tiling(tokens)
					n := room * (w.In / BlockSize)
					acts.panels = beforeGap(t, n*panelBlock)
					acts.sums16 = beforeGap(t, n*panelSums16)
				}
				acts.Quantize(x, w.In, tokens, w.In)
				MatMulPacked(out, w.Out, p, 0, 2, bias, &acts, &s)
			}
		}
	}
}

// TestPackStaysWithin does so with what is packed, and where to.
func TestPackStaysWithin(t *testing.T) {
	for _, name := range formatNames {
		f, _ := quant.Lookup(name)
		for _, in := range []int{f.Block, 2 * f.Block, 37 * f.Block} {
			w := randWeight(t, name, in, 32, 1)
			copied := beforeGap(t, len(w.Data))
			copy(copied, w.Data)
			w.Data = copied
			want := mustPack(t, w)
			for _, tier := range Tiers() {
				got := beforeGap(t, len(want.Data))
				for b := range 2 {
					Pack(got, w, b, b+1, tier)
				}
				if !bytes.Equal(got, want.Data) {
					t.Errorf("%s, rows of %d, %v: differs from plain Go", name, in, tier)
				}
			}
		}
	}
}

func TestRoofReadsWithin(t *testing.T) {
	for _, tier := range Tiers() {
		for _, n := range []int{0, 1, 511, 512, 4096} {
			tier.ReadMemory(beforeGap(t, max(n, 1))[:n])
		}
		if got := tier.DotProducts(10); (got == 0) != (tier == Generic) {
			t.Errorf("%v: %d multiplications", tier, got)
		}
		if got := tier.DotProducts(0); got != 0 {
			t.Errorf("%v: %d multiplications without any", tier, got)
		}
	}
}
