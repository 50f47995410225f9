package testfiles

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Golden compares what a test got with the file of that name in testdata, and reports the
// first line that differs. With update, it writes the file instead; packages set that by a
// flag of their own.
func Golden(t testing.TB, update bool, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A checkout may have given text files the line ends of its system.
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	if line, w, g, differs := firstDifference(want, got); differs {
		t.Errorf("%s differs (run with -update if that is meant), first in line %d:\n got %q\nwant %q", name, line, g, w)
	}
}

// firstDifference returns the number, from 1, and the text of the first line in which two
// texts differ; beyond its end a text has empty lines.
func firstDifference(a, b []byte) (line int, inA, inB []byte, differs bool) {
	for line = 1; !bytes.Equal(a, b); line++ {
		inA, a, _ = bytes.Cut(a, []byte("\n"))
		inB, b, _ = bytes.Cut(b, []byte("\n"))
		if !bytes.Equal(inA, inB) || len(a) == 0 && len(b) == 0 {
			return line, inA, inB, true
		}
	}
	return 0, nil, nil, false
}
