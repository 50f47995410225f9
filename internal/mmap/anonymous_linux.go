package mmap

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapAnonymous(size int) ([]byte, func([]byte) error, error) {
	data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	// Huge pages are only a wish; a system that does not grant them is as right.
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE)
	return data, unix.Munmap, nil
}

// wantHuge ignores the answer, as mapAnonymous does.
func wantHuge(start, size uintptr) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, size, unix.MADV_HUGEPAGE)
}

// collapse makes huge pages of memory that has been touched before, as what the garbage collector gives out again has. Kernels
// that cannot do it on demand do it in time.
func collapse(start, size uintptr) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, size, unix.MADV_COLLAPSE)
}
