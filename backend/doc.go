// Package backend is what a device has to be: the Backend interface, the registry
// that makes devices known by name, and the handles of their memory.
//
// # Joining
//
// A device's package registers an [Entry] from an init function, so a host program
// gets the device by importing the package, if only for its side effect, and picks
// it by name. A device may live in any module: nothing outside its package tells
// devices apart by their identity.
//
// # Capabilities
//
// What a device can run is asked before anything runs, when nodes are assigned:
// [Capabilities] answers for an operation with its payload. The registry and an
// open device hold the same Capabilities value. A device that is handed a node it
// cannot run after all returns an error; work never moves to another device in
// the middle of a run.
//
// # Memory
//
// A [Buffer] is a handle to bytes that only its device can touch. The host reads and
// writes through [Backend.ReadHost] and [Backend.WriteHost], and bytes move between devices
// by [Backend.CopyAcross]. Values lie in memory in the layout of package graph, little-endian
// where a host sees them; I32 values are integers, not floats. Buffers begin at multiples
// of [Alignment].
//
// # Concurrency
//
// The engine serialises its calls: a Backend is used by one goroutine at a time,
// and need not be safe for concurrent use. It may run asynchronously inside: Execute
// and CopyAcross may return before the work is done, as long as ReadHost and
// Synchronize wait for it and later calls see its results. An error that such work meets is
// returned by the next call that waits, ReadHost or Synchronize, and by WaitCopy for copies
// of what depends on it; what is queued behind it is given up, and once the error has been
// returned, the device is in working order. examples/customdevice has a device of this kind.
//
// # Optional interfaces
//
// [Replayer], [Capturer], [WeightMeter], [MemoryMeter] and [KVOrder] are found by type assertion. A Capturer is told
// before an execution that is observed, and after it. A device that keeps keys and values in rows has KVOrder by
// embedding [RowOrder].
//
// The package imports graph and nothing else of the module, and must not know any
// device.
package backend
