//go:build purego || (!amd64 && !arm64)

package kernels

func machineTiers() []Tier { return nil }
