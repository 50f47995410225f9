package relay_test

import (
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
	"github.com/minfer/minfer/examples/customdevice/relay"
	"github.com/minfer/minfer/graph"
)

// Kinds for the conformance suite: one that takes every operation, and one that takes few.
var (
	_ = relay.Register(relay.Options{Name: "relay-all", ID: 2000})
	_ = relay.Register(relay.Options{Name: "relay-few", ID: 2002, Takes: func(op graph.Op, _ graph.DType) bool {
		return op.Kind() == graph.KindRMSNorm || op.Kind() == graph.KindAdd
	}})
)

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

func TestConformanceOfFew(t *testing.T) {
	backendtest.Run(t, opener("relay-few"))
}
