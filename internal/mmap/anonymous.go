package mmap

import "fmt"

// Anonymous returns a mapping of size zeroed bytes that belong to no file and may be
// written. Where the system has huge pages it is asked for them: a matrix that is read
// from end to end for every token then costs a fraction of the address translations.
// On platforms without mappings it is ordinary memory.
func Anonymous(size int) (*Mapping, error) {
	if size < 0 {
		return nil, fmt.Errorf("mmap: %d anonymous bytes", size)
	}
	if size == 0 {
		return &Mapping{}, nil
	}
	data, unmap, err := mapAnonymous(size)
	if err != nil {
		return nil, fmt.Errorf("mmap: %d anonymous bytes: %w", size, err)
	}
	return &Mapping{data: data, unmap: unmap}, nil
}
