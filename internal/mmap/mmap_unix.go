//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris

package mmap

import (
	"os"

	"golang.org/x/sys/unix"
)

// Supported says whether Open maps files; where it is false Open reads them.
const Supported = true

// mapFile maps the first size bytes. The mapping is shared, so that every
// process that maps the same model uses the same page cache.
func mapFile(f *os.File, size int) ([]byte, func([]byte) error, error) {
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return data, unix.Munmap, nil
}

var adviceCode = [...]int{
	Normal:     unix.MADV_NORMAL,
	Sequential: unix.MADV_SEQUENTIAL,
	Random:     unix.MADV_RANDOM,
	WillNeed:   unix.MADV_WILLNEED,
	DontNeed:   unix.MADV_DONTNEED,
}

func advise(pages []byte, advice Advice) error {
	if advice < 0 || int(advice) >= len(adviceCode) {
		return os.NewSyscallError("madvise", unix.EINVAL)
	}
	return os.NewSyscallError("madvise", unix.Madvise(pages, adviceCode[advice]))
}
