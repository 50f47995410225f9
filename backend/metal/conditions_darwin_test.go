//go:build cgo && !metalemu

package metal

import "testing"

// conditions are those that a device's tests run under. A Mac has one.
func conditions() map[string]func(testing.TB) {
	return map[string]func(testing.TB){usual: func(testing.TB) {}}
}
