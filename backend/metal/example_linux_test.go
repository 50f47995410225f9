//go:build linux && !metalemu

package metal_test

import (
	"errors"
	"fmt"

	"github.com/minfer/minfer/backend"
	_ "github.com/minfer/minfer/backend/metal"
)

// A program that imports the device builds everywhere. On a Mac it has the device; here it is told why not.
func Example() {
	_, err := backend.Open("metal", backend.Config{})
	fmt.Println(errors.Is(err, backend.ErrUnavailable))
	fmt.Println(err)
	// Output:
	// true
	// backend: "metal": device is not usable on this machine: Metal is part of macOS, and this program was built for linux; choose another:
}
