//go:build !purego

package kernels

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// plainTiers takes for granted that Apple's processors for computers have dot products: all
// of them do, and package cpu does not ask them.
func plainTiers() []Tier {
	if runtime.GOOS == "darwin" || cpu.ARM64.HasASIMDDP {
		return []Tier{NEON}
	}
	return nil
}

func machineTiers() []Tier { return plainTiers() }
