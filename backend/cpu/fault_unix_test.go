//go:build linux || darwin

package cpu_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/mmap"
)

// TestFileCutWhileMapped reads weights from a mapped file that somebody truncates: the
// operating system's fault must reach the caller as an error, from any thread.
func TestFileCutWhileMapped(t *testing.T) {
	for _, threads := range []int{1, 3} {
		w := testWeight(t, "w", "Q8_0", 1024, 512)
		path := filepath.Join(t.TempDir(), "weights")
		if err := os.WriteFile(path, w.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		mapped, err := syscall.Mmap(int(f.Fd()), 0, len(w.Data), syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		w.Data = mapped
		b, err := backend.Open("cpu", backend.Config{Threads: threads, InPlace: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.LoadWeights(t.Context(), []backend.Weight{w}, nil); err != nil {
			t.Fatal(err)
		}
		gb := graph.NewBuilder(graph.Params{})
		gb.Output(gb.MatMul("y", gb.Input("x", graph.F32, 1024, 2), graph.Weight{Name: "w", Type: "Q8_0", In: 1024, Out: 512}, graph.Weight{}))
		g, err := gb.Build()
		if err != nil {
			t.Fatal(err)
		}
		p := bind(t, b, g)
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		if err := p.run(); !errors.Is(err, mmap.ErrFault) {
			t.Errorf("%d threads: %v", threads, err)
		}
		b.Close()
		syscall.Munmap(mapped)
	}
}
