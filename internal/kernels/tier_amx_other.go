//go:build amd64 && !purego && !linux

package kernels

// askForTiles reports whether this process may use the tiles of AMX. How to ask is known for Linux only.
func askForTiles() bool { return false }
