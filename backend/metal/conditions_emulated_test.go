//go:build cgo && metalemu

package metal

import (
	"runtime/debug"
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
		"random": func(t testing.TB) {
			set(emu.Settings{Order: emu.Random, Seed: 20261130})(t)
			// A collector in a hurry finds addresses that it should not have been shown, and memory that it cannot see in use.
			percent := debug.SetGCPercent(3)
			t.Cleanup(func() { debug.SetGCPercent(percent) })
		},
	}
}
