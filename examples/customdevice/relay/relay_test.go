package relay_test

import (
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
	"github.com/minfer/minfer/examples/customdevice/relay"
)

// all takes every operation, so that the conformance suite has something to test.
var all = relay.Register(relay.Options{Name: "relay-all", ID: 2000})

func opener(name string) func(*testing.T) backend.Backend {
	return func(t *testing.T) backend.Backend {
		t.Helper()
		b, err := backend.Open(name, backend.Config{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, opener("relay-all"), backendtest.Exact())
}

func TestConformanceOfPart(t *testing.T) {
	backendtest.Run(t, opener("relay"), backendtest.Exact())
}
