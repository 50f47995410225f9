//go:build purego || (!amd64 && !arm64)

package kernels

type simdScratch struct{}

// Without vectors, these leave all to the definition.

func (Tier) attendOne(_, _ []float32, _ *Attention, _ *attendScratch) bool { return false }

func (Tier) attendTile(_, _ []float32, _, _ int, _ *Attention, _ []int, _ *attendScratch) bool {
	return false
}

func (Tier) attendChunks(_, _ []float32, _ *Attention, _, _ int, _ *attendScratch) bool { return false }

func (Tier) mergePartial(_ *partial, _, _ int, _ *attendScratch) bool { return false }
