package minfer_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/minfer/minfer"
)

// residentBytes returns how much of this process is in memory, what the garbage collector
// does not know of included.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("this system does not tell what is resident: %v", err)
	}
	var total, resident int64
	if _, err := fmt.Sscan(string(data), &total, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

// TestManySessions opens and closes ten thousand sessions, each with a cache of its own. One
// that kept a single page of 4 KiB would show: 9,000 of them are 36 MiB.
func TestManySessions(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector keeps memory of its own")
	}
	m := smallModel{vocab: 257}.open(t, minfer.WithThreads(1))
	round := func(n int) {
		for i := range n {
			s, err := m.NewSession(minfer.WithContext(64))
			if err != nil {
				t.Fatal(err)
			}
			eval(t, s, 1, minfer.Token(i%200))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	round(1000)
	before := residentBytes(t)
	round(9000)
	after := residentBytes(t)
	t.Logf("%d KiB after 1,000 sessions, %d KiB after 10,000", before>>10, after>>10)
	if after > before+16<<20 {
		t.Errorf("%d KiB are resident after 10,000 sessions, %d KiB after 1,000", after>>10, before>>10)
	}
}
