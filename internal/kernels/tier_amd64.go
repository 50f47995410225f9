//go:build !purego

package kernels

import "golang.org/x/sys/cpu"

// machineTiers relies on F16C coming with AVX2, as it does in every processor made.
func machineTiers() []Tier {
	var tiers []Tier
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA {
		return nil
	}
	tiers = append(tiers, AVX2)
	if x.HasAVXVNNI {
		tiers = append(tiers, AVXVNNI)
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
		tiers = append(tiers, AVX512)
	}
	return tiers
}
