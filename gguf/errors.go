package gguf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/minfer/minfer/internal/mmap"
)

// What can be wrong with a file. Open and its siblings return these inside a
// [*FormatError], so test with errors.Is.
var (
	// ErrNotGGUF: the file does not begin with "GGUF".
	ErrNotGGUF = errors.New("not a GGUF file")
	// ErrVersion: a version other than 2 and 3.
	ErrVersion = errors.New("unsupported version")
	// ErrByteOrder: a big-endian file.
	ErrByteOrder = errors.New("wrong byte order")
	// ErrTruncated: the file ends before what it promises.
	ErrTruncated = errors.New("file is truncated")
	// ErrTooLarge: a count, length or size over this package's limits.
	ErrTooLarge = errors.New("over the limit")
	// ErrKind: a metadata value of unknown kind.
	ErrKind = errors.New("unknown value kind")
	// ErrValue: a metadata value that its kind does not allow (a bool of 2).
	ErrValue = errors.New("invalid value")
	// ErrNesting: arrays nested too deep.
	ErrNesting = errors.New("arrays nested too deep")
	// ErrName: an empty key or tensor name.
	ErrName = errors.New("invalid name")
	// ErrDuplicate: a key or tensor name that occurs twice.
	ErrDuplicate = errors.New("duplicate name")
	// ErrAlignment: a bad general.alignment, or a tensor that is not aligned.
	ErrAlignment = errors.New("bad alignment")
	// ErrShape: dimensions that cannot be, or do not fit the tensor type's block.
	ErrShape = errors.New("bad tensor shape")
	// ErrOverlap: two tensors share bytes.
	ErrOverlap = errors.New("tensors overlap")
	// ErrUnsupportedType: a tensor of an unknown or removed type.
	ErrUnsupportedType = errors.New("unsupported tensor type")
	// ErrSplit: parts of a split model that are missing or do not belong together.
	ErrSplit = errors.New("bad split file")
)

// What can go wrong when using an open file.
var (
	// ErrMissingKey: the file has no such key.
	ErrMissingKey = errors.New("missing key")
	// ErrWrongKind: the value is of another kind than asked for.
	ErrWrongKind = errors.New("wrong kind of value")
	// ErrOutOfRange: the value does not fit the type asked for.
	ErrOutOfRange = errors.New("value out of range")
	// ErrNoTensor: the file has no such tensor.
	ErrNoTensor = errors.New("no such tensor")
	// ErrChanged: the file was written to while it was open.
	ErrChanged = errors.New("file changed while it was open")
	// ErrFault: a mapped file was cut short while it was open, or its disk failed.
	ErrFault = mmap.ErrFault
	// ErrClosed: the file was closed.
	ErrClosed = errors.New("file is closed")
)

// FormatError says what is wrong with a file, and where.
type FormatError struct {
	Path   string // the file, where it was opened by name
	Part   int    // the part of a split model, from 0
	Offset int64  // the byte of the file at which the wrong thing lies
	What   string // the thing: `tensor "x"`, `key "y"`, "header"
	Size   int64  // bytes of the file
	Need   uint64 // for ErrTruncated, the bytes that it would have to have
	Err    error  // the cause, which wraps one of the sentinels
}

// Error gives the path, the thing, the cause and the offset.
func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString("gguf: ")
	if e.Path != "" {
		fmt.Fprintf(&b, "%s: ", e.Path)
	}
	if e.What != "" {
		fmt.Fprintf(&b, "%s: ", e.What)
	}
	fmt.Fprintf(&b, "%v (at byte %d)", e.Err, e.Offset)
	return b.String()
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// KeyError says why a metadata value cannot be had in the form asked for.
type KeyError struct {
	Key  string
	Want string // the form asked for
	Have string // the form in the file; empty when the key is missing
	Err  error  // ErrMissingKey, ErrWrongKind, ErrOutOfRange, ErrClosed, or a read error
}

// Error names the key, what was asked for and what is there.
func (e *KeyError) Error() string {
	if e.Have == "" {
		return fmt.Sprintf("gguf: key %q (%s): %v", clip(e.Key), e.Want, e.Err)
	}
	return fmt.Sprintf("gguf: key %q: %v: have %s, want %s", clip(e.Key), e.Err, e.Have, e.Want)
}

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.Err }

// TensorError says why a tensor of an open file cannot be used.
type TensorError struct {
	Name string
	Type Type
	Err  error // wraps ErrNoTensor, ErrUnsupportedType, ErrShape, ErrTooLarge, ErrClosed, or is a read error
}

// Error names the tensor and the cause.
func (e *TensorError) Error() string {
	return fmt.Sprintf("gguf: tensor %q: %v", clip(e.Name), e.Err)
}

// Unwrap returns the cause.
func (e *TensorError) Unwrap() error { return e.Err }

// clip shortens a name from a file, so that a hostile one cannot flood a log.
func clip(name string) string {
	const most = 100
	if len(name) <= most {
		return name
	}
	return name[:most] + "..."
}
