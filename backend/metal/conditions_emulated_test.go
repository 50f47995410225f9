//go:build cgo && metalemu

package metal

import (
	"testing"

	"github.com/minfer/minfer/backend/metal/emu"
)

// conditions are those that a device's tests run under.
func conditions() map[string]func(testing.TB) {
	set := func(s emu.Settings) func(testing.TB) {
		return func(t testing.TB) {
			emu.Set(s)
			t.Cleanup(func() { emu.Set(emu.Settings{}) })
		}
	}
	return map[string]func(testing.TB){
		usual:     set(emu.Settings{}),
		"reverse": set(emu.Settings{Order: emu.Reverse, Eager: true}),
		"random":  set(emu.Settings{Order: emu.Random, Seed: 20261130}),
	}
}
