package kernels

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Tier says with which instructions a kernel computes. It changes the speed and the order
// in which operands lie in memory, never a bit of a result.
//
// A Tier is a value that its user holds: [Scratch] and [QActs] carry one, so that devices of
// different tiers can live side by side. The zero value is Generic.
type Tier uint8

const (
	Generic Tier = iota // plain Go, the definition
	AVX2                // amd64: AVX2, FMA and F16C
	AVXVNNI             // amd64: AVX2 with the 8-bit dot products of AVX-VNNI
	AVX512              // amd64: AVX-512 F, BW, DQ, VL and VNNI
	AMX                 // amd64: AVX512, and the tiles of AMX for 8-bit integers and BF16
	NEON                // arm64: Advanced SIMD with dot products
)

var tierNames = [...]string{Generic: "generic", AVX2: "avx2", AVXVNNI: "avxvnni", AVX512: "avx512", AMX: "amx", NEON: "neon"}

// String returns the name under which ParseTier knows the tier.
func (t Tier) String() string {
	if int(t) < len(tierNames) {
		return tierNames[t]
	}
	return fmt.Sprintf("tier %d", uint8(t))
}

// ErrTier is the reason for which a tier cannot be had: no such name, or a machine or
// build without it.
var ErrTier = errors.New("kernels: no such processor tier")

// TierVariable is the environment variable that limits the tier of a process.
const TierVariable = "MINFER_CPU"

// ParseTier returns the tier of that name, whether or not this machine has it.
func ParseTier(name string) (Tier, error) {
	if i := slices.Index(tierNames[:], strings.ToLower(name)); i >= 0 {
		return Tier(i), nil
	}
	return Generic, fmt.Errorf("%w: %q; known are %s", ErrTier, name, strings.Join(tierNames[:], ", "))
}

// Tiers returns what this machine and build can compute with, the fastest last. Generic is
// always among them; with the build tag purego it is the only one. Where the processor has AMX, the
// first call asks the system for leave to use it, which holds for the process from then on.
func Tiers() []Tier { return append([]Tier{Generic}, machineTiers()...) }

// Available says whether the machine and build have the tier. Only for AMX the system is asked.
func (t Tier) Available() bool {
	if t == AMX {
		return slices.Contains(Tiers(), t)
	}
	return t == Generic || slices.Contains(plainTiers(), t)
}

// DefaultTier returns the fastest tier there is, or the one that the environment variable
// MINFER_CPU names. When that name is unknown or the machine lacks the tier, the error wraps
// ErrTier and the tier is the fastest one, so that a caller may also go on.
func DefaultTier() (Tier, error) {
	name := os.Getenv(TierVariable)
	t, err := ParseTier(name)
	if err == nil && t.Available() {
		return t, nil
	}
	tiers := Tiers()
	best := tiers[len(tiers)-1]
	switch {
	case name == "":
		return best, nil
	case err != nil:
		return best, fmt.Errorf("%s: %w", TierVariable, err)
	}
	return best, fmt.Errorf("%s: %w: this machine or build lacks %s, it has %v", TierVariable, ErrTier, t, tiers)
}
