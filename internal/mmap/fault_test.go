//go:build linux || darwin

package mmap

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestGuard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	sum := 0
	read := func() error {
		for _, b := range m.Bytes() {
			sum += int(b)
		}
		return nil
	}
	if err := Guard(read); err != nil {
		t.Errorf("a whole file: %v", err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Guard(read); !errors.Is(err, ErrFault) {
			t.Errorf("a file cut short: %v", err)
		}
	}
	own := errors.New("own")
	if err := Guard(func() error { return own }); err != own {
		t.Errorf("error is %v", err)
	}
	func() {
		defer func() {
			if v := recover(); v != any(own) {
				t.Errorf("recovered %v", v)
			}
		}()
		Guard(func() error { panic(own) })
	}()
	// A nil pointer is no fault of a file.
	func() {
		defer func() {
			if v := recover(); v == nil || AsFault(v) != nil {
				t.Errorf("recovered %v", v)
			}
		}()
		var p *int
		Guard(func() error { sum += *p; return nil })
	}()
}
