//go:build cgo && (darwin || metalemu)

package metal

import (
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
)

func openDevice(t testing.TB) *device {
	t.Helper()
	b, err := backend.Open("metal", backend.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return b.(*device)
}

// TestConformance runs the suite of all devices, under the emulation in every order of threads and times of execution.
func TestConformance(t *testing.T) {
	for name, conditions := range conditions() {
		t.Run(name, func(t *testing.T) {
			conditions(t)
			backendtest.Run(t, func(t *testing.T) backend.Backend { return openDevice(t) })
		})
	}
}
