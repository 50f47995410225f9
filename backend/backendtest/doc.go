// Package backendtest is the conformance suite for devices: what every implementation
// of backend.Backend has to do, checked through its public interface alone. A device's
// package, in any module, calls Run from one of its tests:
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backend.Backend {
//			b, err := backend.Open("mydevice", backend.Config{})
//			if err != nil {
//				t.Fatal(err)
//			}
//			return b
//		})
//	}
//
// # What is compared
//
// Each operation that the device says it supports runs on small shapes, odd ones among
// them, and is compared with a definition in float64 that is written here and shares
// nothing with any device. Sums and products of two numbers must be exact; for the
// others there is a bound on the normalised square error, wide enough for half
// precision inside a product and far too narrow for a wrong element. What a device
// does not support is skipped, and the test says so.
//
// Equality with == is asked for where the library promises it, and only there, always
// of a device with itself: two runs, a batch and its rows one by one, a fused operation
// and its parts, spans in several runs and in one, in place and not. With [Exact], the
// products of quantised weights must also equal the numerics contract of the library
// to the last bit.
//
// # Memory
//
// Values lie between guard bytes, results start out as NaN, and regions of keys and
// values are only looked at through attention, since a device may order them as it
// likes.
//
// # Wrong calls
//
// Bad handles, ids, cells, positions, shapes and names must come back as errors, and
// leave the device in working order.
package backendtest
