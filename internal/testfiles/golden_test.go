package testfiles

import "testing"

func TestFirstDifference(t *testing.T) {
	tests := []struct {
		a, b, inA, inB string
		line           int
	}{
		{"", "", "", "", 0},
		{"a\nb\n", "a\nb\n", "", "", 0},
		{"a\nb\n", "a\nc\n", "b", "c", 2},
		{"a\n", "a", "a", "a", 1}, // the line end
		{"a\nb", "a\n", "b", "", 2},
		{"a\nb\n", "a\n", "b", "", 2},
		{"", "x", "", "x", 1},
		{"a\n\nb", "a\nb", "", "b", 2},
	}
	for _, tt := range tests {
		line, inA, inB, differs := firstDifference([]byte(tt.a), []byte(tt.b))
		if line != tt.line || string(inA) != tt.inA || string(inB) != tt.inB || differs != (tt.a != tt.b) {
			t.Errorf("%q and %q: line %d, %q and %q, %v", tt.a, tt.b, line, inA, inB, differs)
		}
	}
}

// recorder is a test that notes what is reported and goes on.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestGolden(t *testing.T) {
	t.Chdir(t.TempDir())
	Golden(t, true, "text", []byte("one\ntwo\n"))
	Golden(t, false, "text", []byte("one\ntwo\n"))
	r := &recorder{TB: t}
	if Golden(r, false, "text", []byte("one\nthree\n")); !r.failed {
		t.Error("another text passed")
	}
}
