//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris || windows)

package mmap

import (
	"io"
	"os"
)

// Supported says whether Open maps files; where it is false Open reads them.
const Supported = false

// mapFile reads the file: this platform has no mappings.
func mapFile(f *os.File, size int) ([]byte, func([]byte) error, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	return data, nil, nil
}

// advise does nothing: the bytes are ordinary memory.
func advise([]byte, Advice) error { return nil }
