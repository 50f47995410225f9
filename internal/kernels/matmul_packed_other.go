//go:build purego || (!amd64 && !arm64)

package kernels

// kernelsOf returns the functions of a tier, or nil for Generic.
func kernelsOf(Tier) *vectorKernels { return nil }
