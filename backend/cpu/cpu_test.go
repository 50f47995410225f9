package cpu_test

import (
	"fmt"
	"testing"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/backend/backendtest"
	_ "github.com/minfer/minfer/backend/cpu"
)

var threadCounts = []int{1, 2, 3, 8}

func open(t testing.TB, threads int) backend.Backend {
	t.Helper()
	b, err := backend.Open("cpu", backend.Config{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	for _, threads := range threadCounts {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backend.Backend { return open(t, threads) }, backendtest.Exact())
		})
	}
}
