package gguf

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// The keys by which the parts of a split model know each other.
const (
	splitNoKey      = "split.no"
	splitCountKey   = "split.count"
	splitTensorsKey = "split.tensors.count"

	maxParts = 1<<16 - 1 // split.count is a uint16 in the format
)

// splitInfo is what a part says of its place in a split model. count is 0 when
// the file says nothing.
type splitInfo struct {
	no, count uint64
	at        int64 // of split.count
}

// needsName is the error for a part that is not opened under its proper name.
func (s splitInfo) needsName() error {
	if s.no != 0 {
		return fmt.Errorf("this is part %d of %d; open the first part, by its path NAME%s: %w",
			s.no+1, s.count, partSuffix(1, s.count), ErrSplit)
	}
	return fmt.Errorf("this is part 1 of %d; open it by its path, which has to be NAME%s with the other parts beside it: %w",
		s.count, partSuffix(1, s.count), ErrSplit)
}

// split reads the split keys of a part.
func (p *part) split() (splitInfo, error) {
	var s splitInfo
	e, ok := p.find(splitCountKey)
	if !ok {
		return s, nil
	}
	s.at = e.at
	var err error
	if s.count, err = p.splitNumber(splitCountKey); err != nil {
		return s, err
	}
	if s.count > maxParts {
		return s, p.fault(e.off, keyNamed(splitCountKey), "%d parts, at most %d are allowed: %w", s.count, maxParts, ErrSplit)
	}
	if s.count <= 1 {
		return s, nil
	}
	if _, ok := p.find(splitNoKey); !ok {
		return s, p.fault(e.at, keyNamed(splitNoKey), "missing from a file with %s: %w", splitCountKey, ErrSplit)
	}
	if s.no, err = p.splitNumber(splitNoKey); err != nil {
		return s, err
	}
	if s.no >= s.count {
		return s, p.fault(e.at, keyNamed(splitNoKey), "is %d, but there are only %d parts (counted from 0): %w", s.no, s.count, ErrSplit)
	}
	return s, nil
}

// splitNumber reads an integer that must be there and not be negative.
func (p *part) splitNumber(key string) (uint64, error) {
	e, _ := p.find(key)
	if !e.kind.IsInteger() {
		return 0, p.fault(e.at, keyNamed(key), "is of kind %s, want an integer: %w", e.kind, ErrSplit)
	}
	b := make([]byte, e.n)
	if err := p.readAt(b, e.off); err != nil {
		return 0, p.fault(e.off, keyNamed(key), "read: %w", err)
	}
	v, negative := integer(e.kind, b)
	if negative {
		return 0, p.fault(e.off, keyNamed(key), "is %d, want at least 0: %w", int64(v), ErrSplit)
	}
	return v, nil
}

// partSuffix is how the name of part no (from 1) of count ends.
func partSuffix(no, count uint64) string { return fmt.Sprintf("-%05d-of-%05d.gguf", no, count) }

// parsePartName takes apart a name that ends like partSuffix.
func parsePartName(path string) (prefix string, no, count uint64, ok bool) {
	rest, ok := strings.CutSuffix(path, ".gguf")
	if !ok {
		return "", 0, 0, false
	}
	rest, countText, ok := cutLast(rest, "-of-")
	if !ok {
		return "", 0, 0, false
	}
	prefix, noText, ok := cutLast(rest, "-")
	if !ok {
		return "", 0, 0, false
	}
	no, err := strconv.ParseUint(noText, 10, 32)
	if err != nil {
		return "", 0, 0, false
	}
	if count, err = strconv.ParseUint(countText, 10, 32); err != nil {
		return "", 0, 0, false
	}
	return prefix, no, count, prefix+partSuffix(no, count) == path
}

// cutLast cuts s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+len(sep):], true
}

// openParts opens path and, if it is the first part of a split model, the rest.
func (f *File) openParts(path string, cfg config) error {
	first, err := f.openPart(path, cfg)
	if first == nil {
		return fmt.Errorf("gguf: %w", err)
	}
	if err != nil {
		return err
	}
	s, err := first.split()
	if err != nil {
		return err
	}
	prefix, no, count, named := parsePartName(path)
	if s.count <= 1 {
		if named && count > 1 {
			return first.fault(0, theSplit, "is named as part %d of %d but has no %s to match: %w", no, count, splitCountKey, ErrSplit)
		}
		return f.index()
	}
	if s.no != 0 && named && count == s.count {
		return first.fault(s.at, theSplit, "this is part %d of %d; open the first part, %s: %w",
			s.no+1, s.count, prefix+partSuffix(1, count), ErrSplit)
	}
	if s.no != 0 || !named || no != 1 || count != s.count {
		return first.fault(s.at, theSplit, "%w", s.needsName())
	}
	for i := uint64(1); i < s.count; i++ {
		if err := f.openNext(prefix, i, s, cfg); err != nil {
			return err
		}
	}
	if err := f.checkTensorCount(); err != nil {
		return err
	}
	return f.index()
}

// openNext opens part i, counted from 0, and checks that it belongs here.
func (f *File) openNext(prefix string, i uint64, of splitInfo, cfg config) error {
	path := prefix + partSuffix(i+1, of.count)
	p, err := f.openPart(path, cfg)
	if p == nil {
		return &FormatError{Path: f.parts[0].path, What: theSplit.String(), Offset: of.at, Size: f.parts[0].size,
			Err: fmt.Errorf("%w: part %d of %d, %s: %w", ErrSplit, i+1, of.count, filepath.Base(path), err)}
	}
	if err != nil {
		return err
	}
	s, err := p.split()
	if err != nil {
		return err
	}
	if s.count != of.count || s.no != i {
		return p.fault(s.at, theSplit, "should have %s %d and %s %d but has %d and %d: %w",
			splitNoKey, i, splitCountKey, of.count, s.no, s.count, ErrSplit)
	}
	if total := f.countTensors(); total > MaxTensors {
		return p.fault(0, theSplit, "%d tensors in the first %d parts, at most %d are allowed: %w", total, i+1, MaxTensors, ErrTooLarge)
	}
	return nil
}

func (f *File) countTensors() int {
	n := 0
	for _, p := range f.parts {
		n += len(p.tensors)
	}
	return n
}

// checkTensorCount holds split.tensors.count, where it is given, against what
// the parts have.
func (f *File) checkTensorCount() error {
	first := f.parts[0]
	e, ok := first.find(splitTensorsKey)
	if !ok {
		return nil
	}
	want, err := first.splitNumber(splitTensorsKey)
	if err != nil {
		return err
	}
	if have := uint64(f.countTensors()); have != want {
		return first.fault(e.off, keyNamed(splitTensorsKey), "is %d, but the %d parts have %d tensors: %w", want, len(f.parts), have, ErrSplit)
	}
	return nil
}
