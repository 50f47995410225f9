//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package fetch

import "io"

// tryLock has nothing to add to the locks among goroutines: the system has no file locks
// that end with the process.
func tryLock(string) (io.Closer, error) { return io.NopCloser(nil), nil }
