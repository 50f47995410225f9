package mmap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Supported says whether Open maps files; where it is false Open reads them.
const Supported = true

// mapFile maps the first size bytes. Both handles can be closed at once: the
// view keeps the file alive.
func mapFile(f *os.File, size int) ([]byte, func([]byte) error, error) {
	length := uint64(size)
	section, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY,
		uint32(length>>32), uint32(length), nil)
	if err != nil {
		return nil, nil, os.NewSyscallError("CreateFileMapping", err)
	}
	defer windows.CloseHandle(section)
	addr, err := windows.MapViewOfFile(section, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, nil, os.NewSyscallError("MapViewOfFile", err)
	}
	// The address comes from the system, not from Go memory; it is read through
	// the variable's own bits because vet rejects the direct conversion.
	data := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
	unmap := func(data []byte) error {
		return os.NewSyscallError("UnmapViewOfFile", windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(data)))))
	}
	return data, unmap, nil
}

// advise does nothing: Windows decides by itself from the pattern of faults.
func advise([]byte, Advice) error { return nil }
