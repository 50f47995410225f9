//go:build !purego

package kernels

import (
	"sync"

	"golang.org/x/sys/cpu"
)

// machineTiers are plainTiers, and AMX.
func machineTiers() []Tier {
	tiers := plainTiers()
	x := &cpu.X86
	if n := len(tiers); n > 0 && tiers[n-1] == AVX512 && x.HasAMXTile && x.HasAMXInt8 && x.HasAMXBF16 && mayUseTiles() {
		tiers = append(tiers, AMX)
	}
	return tiers
}

// mayUseTiles asks the system for leave to use the tiles of AMX, once.
var mayUseTiles = sync.OnceValue(askForTiles)

// plainTiers are those for which nobody has to be asked. It relies on F16C coming with AVX2, as it does
// in every processor made.
func plainTiers() []Tier {
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
