//go:build purego || (!amd64 && !arm64)

package kernels

func plainTiers() []Tier { return nil }

func machineTiers() []Tier { return nil }
