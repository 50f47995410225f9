//go:build cuda && cudaemu

package driver

/*
#cgo LDFLAGS: -Wl,--export-dynamic
long minfer_emu_launches(void);
*/
import "C"

import "embed"

// The files that emu.cc includes, so that the package is built again when one changes.
//
//go:embed emu kernels
var _ embed.FS

// Launches is how many kernels and graphs the emulated driver has been asked to launch or
// record so far.
func Launches() int { return int(C.minfer_emu_launches()) }
