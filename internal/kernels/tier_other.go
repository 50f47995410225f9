//go:build purego || !amd64

package kernels

func machineTiers() []Tier { return nil }
