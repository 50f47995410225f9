//go:build cgo && (darwin || metalemu)

package metal

import (
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
	"github.com/minfer/minfer/graph"
)

func openDevice(t testing.TB) *device {
	t.Helper()
	b, err := backend.Open("metal", backend.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return b.(*device)
}

// TestConformance runs the suite of all devices. Under the emulation it does so in every order of threads, and with work done late
// and at once. What formats share is then tested with some of them: one for each shape that their blocks have.
func TestConformance(t *testing.T) {
	for name, set := range conditions() {
		t.Run(name, func(t *testing.T) {
			set(t)
			backendtest.Run(t, func(t *testing.T) backend.Backend {
				if name == usual {
					return openDevice(t)
				}
				return filtered{openDevice(t), &someFormats}
			})
		})
	}
}

// usual is the condition under which all formats are tested.
const usual = "usual"

// someFormats is the device without products of most formats.
var someFormats = func() backend.Capabilities {
	c := capabilities
	c.Supports = func(op graph.Op, t graph.DType) bool {
		if m, ok := op.(graph.MatMul); ok && m.Type != "Q8_0" && m.Type != "Q4_K" && m.Type != "Q6_K" && m.Type != "F32" {
			return false
		}
		return bounds.Supports(op, t)
	}
	return c
}()
