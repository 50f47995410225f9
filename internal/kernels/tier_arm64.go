//go:build !purego

package kernels

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// machineTiers takes for granted that Apple's processors for computers have dot products: all
// of them do, and package cpu does not ask them.
func machineTiers() []Tier {
	if runtime.GOOS == "darwin" || cpu.ARM64.HasASIMDDP {
		return []Tier{NEON}
	}
	return nil
}
