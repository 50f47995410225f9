//go:build !windows

package fetch

import (
	"errors"
	"syscall"
)

// isDiskFull reports whether a write failed for lack of space or of the user's share of it.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
