package mmap

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func file(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBytesAreTheFile(t *testing.T) {
	for _, size := range []int{0, 1, os.Getpagesize() - 1, os.Getpagesize(), 3*os.Getpagesize() + 7} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i * 31)
		}
		path := file(t, want)
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []Advice{Normal, Sequential, Random, WillNeed, DontNeed} {
			for _, r := range [][2]int{{0, size}, {1, size}, {os.Getpagesize() - 1, 2}, {-1, 5}, {size, 1}, {0, 0}, {1, 1 << 30}} {
				if err := m.Advise(r[0], r[1], a); err != nil {
					t.Errorf("size %d, advice %d on %v: %v", size, a, r, err)
				}
			}
			if !bytes.Equal(m.Bytes(), want) {
				t.Errorf("size %d: wrong bytes after advice %d", size, a)
			}
		}
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		if m.Bytes() != nil {
			t.Error("a closed mapping has bytes")
		}
		if err := m.Advise(0, size, WillNeed); !errors.Is(err, ErrClosed) {
			t.Errorf("advice after Close: %v", err)
		}
		// On Windows this fails if a handle or view was left behind.
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a directory: %v", err)
	}
	m, err := Open(file(t, []byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Advise(0, 1, Advice(99)); Supported && runtime.GOOS != "windows" && err == nil {
		t.Error("unknown advice is taken")
	}
}

// The kernel's attribute files are regular, have a size, and cannot be mapped.
func TestCannotMap(t *testing.T) {
	const path = "/sys/kernel/uevent_seqnum"
	if info, err := os.Stat(path); runtime.GOOS != "linux" || err != nil || info.Size() == 0 {
		t.Skip("this system has no file that cannot be mapped")
	}
	if _, err := Open(path); !errors.Is(err, ErrCannotMap) {
		t.Errorf("error is %v", err)
	}
}

// The mapping holds the file, not its name.
func TestUnlinkedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be removed on Windows")
	}
	want := bytes.Repeat([]byte("abc"), 10000)
	path := file(t, want)
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.Bytes(), want) {
		t.Error("the bytes went with the name")
	}
}

func TestPageRange(t *testing.T) {
	const size, page = 1000, 100
	cases := []struct {
		off, n  int
		inwards bool
		lo, hi  int
	}{
		{0, 1000, false, 0, 1000},
		{150, 100, false, 100, 300},
		{150, 50, false, 100, 200},
		{990, 5, false, 900, 1000},
		{990, 500, false, 900, 1000},
		{150, 100, true, 200, 200},
		{150, 200, true, 200, 300},
		{100, 100, true, 100, 200},
		{950, 50, true, 0, 0}, // no whole page in it
		{850, 150, true, 900, 1000},
		{-1, 10, false, 0, 0},
		{0, -1, false, 0, 0},
		{1000, 1, false, 0, 0},
	}
	for _, c := range cases {
		if lo, hi := pageRange(c.off, c.n, size, page, c.inwards); lo != c.lo || hi != c.hi {
			t.Errorf("[%d,+%d) inwards %v: [%d,%d), want [%d,%d)", c.off, c.n, c.inwards, lo, hi, c.lo, c.hi)
		}
	}
	if lo, hi := pageRange(4050, 10, 4055, 100, false); lo != 4000 || hi != 4055 {
		t.Errorf("last, partial page: [%d,%d)", lo, hi)
	}
}
