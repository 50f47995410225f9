//go:build cuda

package cuda

import (
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
)

// openTest opens a device, or skips the test where the machine has none.
func openTest(t *testing.T) *device {
	t.Helper()
	if err := available(); err != nil {
		t.Skip(err)
	}
	b, err := backend.Open("cuda", backend.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return b.(*device)
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Backend { return openTest(t) })
}
