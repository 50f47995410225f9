//go:build !race

package cpu_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/mmap"
)

// TestLoadingNeedsTheWeightsOnce loads a mapped file, the weight that comes first in it half of the
// whole, and looks at the most memory that the process had meanwhile. (The race detector would add to it.)
func TestLoadingNeedsTheWeightsOnce(t *testing.T) {
	const in, rows, units = 1024, 2048, 48
	const size = rows * in / 32 * 18 // of a unit, in Q4_0
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, bytes.Repeat([]byte{0x3c}, units*size), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	released := make([]int, 0, units)
	var list []backend.Weight
	for at := 0; at < units; {
		n := 1
		if at == 0 {
			n = units / 2
		}
		from := at * size
		list = append(list, backend.Weight{
			Name: fmt.Sprint(at), Type: "Q4_0", In: in, Out: n * rows, Data: m.Bytes()[from:][:n*size],
			Release: func() {
				released = append(released, from)
				if err := m.Advise(from, n*size, mmap.DontNeed); err != nil {
					t.Error(err)
				}
			},
		})
		at += n
	}
	d, err := backend.Open("cpu", backend.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	debug.FreeOSMemory() // or what other tests left would be given back meanwhile
	before := memory(t, "VmRSS")
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skip("the system does not let the peak be reset: ", err)
	}
	if err := d.LoadWeights(context.Background(), list, nil); err != nil {
		t.Fatal(err)
	}
	if d.PoolStats().WeightBytes == 0 {
		t.Fatal("nothing was loaded")
	}
	if len(released) != len(list) {
		t.Skip("this machine's tier makes no copies")
	}
	peak := memory(t, "VmHWM") - before
	if most := units * size * 11 / 10; peak > most || peak < units*size*9/10 {
		t.Errorf("%d bytes at most while %d were loaded, want %d at most", peak, units*size, most)
	}
}

// memory returns a figure, in bytes, of what the system says about the process.
func memory(t *testing.T, figure string) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	_, rest, found := bytes.Cut(status, []byte(figure+":"))
	var kilobytes int
	if _, err := fmt.Fscan(bytes.NewReader(rest), &kilobytes); !found || err != nil {
		t.Skip("no ", figure)
	}
	return kilobytes << 10
}
