package kvcells_test

import (
	"fmt"

	"github.com/minfer/minfer/internal/kvcells"
)

// Two sequences of a pool of 8 blocks of 4 cells, of which one forks.
func Example() {
	pool := kvcells.NewPool(32, 4, 8)
	s := pool.New()
	if _, err := s.Append(6, nil); err != nil {
		fmt.Println(err)
	}
	fmt.Println("runs:", s.Runs(), "free:", pool.Free())

	// The fork shares both blocks. It has to have the second one for itself to append.
	f := s.Fork()
	fmt.Println("free with a fork:", pool.Free())
	copies, err := f.Append(1, nil)
	fmt.Println("copies:", copies, err)
	fmt.Println("runs:", s.Runs(), f.Runs(), "free:", pool.Free())

	s.Truncate(0)
	fmt.Println("without the first:", pool.Free())
	// Output:
	// runs: [{0 6}] free: 24
	// free with a fork: 24
	// copies: [{4 20}] <nil>
	// runs: [{0 6}] [{0 4} {20 3}] free: 20
	// without the first: 24
}
