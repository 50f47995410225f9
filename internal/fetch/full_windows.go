package fetch

import (
	"errors"
	"syscall"
)

// isDiskFull reports whether a write failed for lack of space: ERROR_HANDLE_DISK_FULL or
// ERROR_DISK_FULL.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.Errno(39)) || errors.Is(err, syscall.Errno(112))
}
