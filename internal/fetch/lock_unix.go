//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fetch

import (
	"io"
	"os"
	"syscall"
)

// tryLock returns what holds the lock until it is closed, or nil if somebody else does. The
// system releases the lock when the process ends, however it does.
func tryLock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if err == syscall.EWOULDBLOCK {
		return nil, nil
	}
	return nil, &os.PathError{Op: "flock", Path: path, Err: err}
}
