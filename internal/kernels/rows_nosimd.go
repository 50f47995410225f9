//go:build purego || (!amd64 && !arm64)

package kernels

// Without vectors, no element is worked off before the definition is.

func (Tier) add(_, _, _ []float32) int { return 0 }

func (Tier) mul(_, _, _ []float32) int { return 0 }

func (Tier) scale(_, _ []float32, _ float32) int { return 0 }

func (Tier) silu(_, _ []float32) int { return 0 }

func (Tier) gelu(_, _ []float32) int { return 0 }

func (Tier) swiglu(_, _, _ []float32) int { return 0 }

func (Tier) squares(_ *[16]float32, _ []float32) int { return 0 }

func (Tier) weigh(_, _, _ []float32, _ float32) int { return 0 }

func (Tier) expSum(_, _ []float32, _ *[16]float32, _ float32) int { return 0 }

func (Tier) rotateHalves(_, _, _, _, _, _ []float32) int { return 0 }

func (Tier) decodeF16(_ []float32, _ []uint16) int { return 0 }

func (Tier) encodeF16(_ []uint16, _ []float32) int { return 0 }

func (Tier) decodeBF16(_ []float32, _ []uint16) int { return 0 }

func (Tier) encodeBF16(_ []uint16, _ []float32) int { return 0 }

func (Tier) maximum([]float32) (m float32, n int) { return minusInf, 0 }

func (Tier) rotatePairs(_, _, _, _ []float32) int { return 0 }

func (Tier) scatterF16([]uint16, []float32) int { return 0 }

func (Tier) lines(_, _ []byte, _, _ int, _ uint32) int { return 0 }

func (Tier) storeBlockF16([]uint16, []float32, int, int, bool) bool { return false }

func (Tier) finishHeads(_, _ []float32, _, _, _ int, _ *Heads, _, _ []float32, _, _ int) bool {
	return false
}
