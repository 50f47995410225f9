package minfer_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/backend"
)

// roomy is the CPU device under another name, which says how much memory it has left.
type roomy struct {
	backend.Backend
	name string
}

func (r *roomy) Name() string { return r.name }

func (r *roomy) FreeMemory() (int64, error) { return roomyFree.Load(), nil }

// roomyFree is what roomy devices have left. There are none while it is 0.
var roomyFree atomic.Int64

func init() {
	entry, _, err := backend.Lookup("cpu")
	if err != nil {
		panic(err)
	}
	backend.Register(backend.Entry{
		Name: "roomy", ID: 1920, Priority: 3, Capabilities: entry.Capabilities,
		Available: func() error {
			if roomyFree.Load() != 0 {
				return nil
			}
			return errors.New("no test asks for it")
		},
		Open: func(c backend.Config) (backend.Backend, error) {
			b, err := entry.Open(backend.Config{Name: "cpu", Threads: c.Threads})
			return &roomy{Backend: b, name: c.Name}, err
		},
	})
}

func TestDeviceLayers(t *testing.T) {
	roomyFree.Store(1 << 40)
	t.Cleanup(func() { roomyFree.Store(0) })
	path := filepath.Join("testdata", "storyteller-q4_0.gguf")
	tokens := []minfer.Token{5, 9, 2, 33, 64, 17}
	run := func(opts ...minfer.Option) ([][]float32, minfer.Placement) {
		t.Helper()
		m := openModel(t, path, opts...)
		s := newSession(t, m)
		rows, err := s.EvalAll(context.Background(), tokens)
		if err != nil {
			t.Fatal(err)
		}
		last, err := s.Eval(context.Background(), []minfer.Token{3})
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Placement()
		if err != nil {
			t.Fatal(err)
		}
		return append(rows, append([]float32(nil), last...)), p
	}
	want, alone := run(minfer.WithBackends("cpu"))
	layers := len(alone[0].Layers)
	split := minfer.WithBackends("roomy", "cpu")
	check := func(name string, first int, opts ...minfer.Option) minfer.Placement {
		t.Helper()
		got, p := run(append(opts, split)...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: logits differ from those of the CPU alone", name)
		}
		if n := len(p[0].Layers); n != first || len(p[1].Layers) != layers-first {
			t.Errorf("%s: %d and %d layers, want %d and %d", name, n, len(p[1].Layers), first, layers-first)
		}
		for i, layer := range p[0].Layers {
			if layer != i {
				t.Errorf("%s: the preferred device has the layers %v", name, p[0].Layers)
			}
		}
		return p
	}
	for n := range layers + 2 {
		p := check("asked for", min(n, layers), minfer.WithDeviceLayers(n))
		if n == layers && p[1].Tensors != 0 {
			t.Errorf("with all layers on the device, %d tensors are elsewhere", p[1].Tensors)
		}
		if n > 0 && n < layers && (p[0].WeightBytes >= alone[0].WeightBytes || p[1].WeightBytes >= alone[0].WeightBytes) {
			t.Errorf("%d layers: the weights of both devices are %d and %d, of one %d", n, p[0].WeightBytes, p[1].WeightBytes, alone[0].WeightBytes)
		}
	}
	check("room for all", layers)
	m, err := minfer.Estimate(path, 0, 0, split, minfer.WithDeviceLayers(1))
	if err != nil {
		t.Fatal(err)
	}
	roomyFree.Store((m.Devices[0].Weights+m.Devices[0].KV+m.Devices[0].Activations)*16/15 + 1<<10)
	check("room for one", 1)
	roomyFree.Store(1)
	check("room for none", 0)
	if _, err := minfer.Open(path, minfer.WithDeviceLayers(-1)); err == nil {
		t.Error("a negative number of layers was accepted")
	}
}
