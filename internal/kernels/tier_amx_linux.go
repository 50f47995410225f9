//go:build amd64 && !purego

package kernels

import "golang.org/x/sys/unix"

// The request of arch_prctl that lets a process use a part of the processor's state, and the
// number of the part that holds tiles.
//
// Source: Linux, Documentation/arch/x86/xstate.rst.
const (
	archReqXcompPerm = 0x1023
	xfeatureTileData = 18
)

// askForTiles reports whether this process may use the tiles of AMX. Linux saves them only for threads that have used
// them, and refuses where it does not save them at all, or where some thread has a stack for signals that is too
// small for them: Go's are large enough, those of a C program that calls Go may not be.
func askForTiles() bool {
	_, _, err := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archReqXcompPerm, xfeatureTileData, 0)
	return err == 0
}
