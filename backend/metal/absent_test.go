//go:build !cgo || !(darwin || metalemu)

package metal

import (
	"errors"
	"strings"
	"testing"

	"github.com/minfer/minfer/backend"
)

// A build without Metal knows the device, and says why it cannot be used.
func TestAbsent(t *testing.T) {
	_, err := backend.Open("metal", backend.Config{})
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "macOS") && !strings.Contains(err.Error(), "cgo") {
		t.Errorf("error is %v, want ErrUnavailable with the reason", err)
	}
	for _, name := range backend.DefaultNames() {
		if name == "metal" {
			t.Error("metal is among the default devices")
		}
	}
	if _, err := open(backend.Config{}); err == nil {
		t.Error("the device opened")
	}
}
