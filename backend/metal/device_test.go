//go:build cgo && (darwin || metalemu)

package metal

import (
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		b, err := backend.Open("metal", backend.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}
