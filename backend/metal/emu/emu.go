//go:build metalemu

package emu

/*
#cgo CFLAGS: -O1
#cgo CXXFLAGS: -std=c++17 -O2
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "device.h"
#include "scheduler.h"
*/
import "C"

import "unsafe"

// Order is the order in which the threads of a threadgroup run.
type Order int

// The orders. In a random one, a simdgroup runs ahead as far as it can while the others stand still.
const (
	Forward Order = C.METALEMU_FORWARD
	Reverse Order = C.METALEMU_REVERSE
	Random  Order = C.METALEMU_RANDOM
)

// Settings are peculiarities of the device. The zero value has none.
type Settings struct {
	Order      Order
	Seed       uint64 // of a random order; 0 goes on with the last
	Absent     bool   // there is no device
	Discrete   bool   // the device has memory of its own
	Family     int    // the newest MTLGPUFamily that the device is one of; 0 for all
	Eager      bool   // commands run when they are committed, not when somebody waits
	FailKernel string // dispatches of this kernel fail
	FailAfter  int    // the dispatch of this number from now on fails
	MaxBuffer  int    // longest buffer
	MaxThreads int    // most threads of a threadgroup
}

// Set changes the settings of all devices.
func Set(s Settings) {
	C.metalemu_set_order(C.int(s.Order), C.uint64_t(s.Seed))
	settings := C.struct_metalemu_settings{
		absent: number(s.Absent), discrete: number(s.Discrete), family: C.int(s.Family), eager: number(s.Eager),
		fail_after: C.int(s.FailAfter), max_buffer: C.size_t(s.MaxBuffer), max_threads: C.size_t(s.MaxThreads),
	}
	for i := range min(len(s.FailKernel), len(settings.fail_kernel)-1) {
		settings.fail_kernel[i] = C.char(s.FailKernel[i])
	}
	C.metalemu_settings = settings
}

func number(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Counters says what happened since the program began.
type Counters struct {
	Commands, Commits, Waits, Dispatches int
	InPlace                              int // buffers made of memory of others
	Objects                              int // buffers that are alive
}

// Count returns the counters.
func Count() Counters {
	c := &C.metalemu_counters
	return Counters{
		Commands: int(c.commands), Commits: int(c.commits), Waits: int(c.waits), Dispatches: int(c.dispatches),
		InPlace: int(c.in_place), Objects: int(c.objects),
	}
}

//export metalemu_compile
func metalemu_compile(source *C.char, failure **C.char) unsafe.Pointer {
	path, err := Compile(C.GoString(source))
	if err != nil {
		*failure = C.CString(err.Error())
		return nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text *C.char
	library := C.metalemu_load(name, &text)
	if library == nil {
		*failure = C.CString(C.GoString(text))
	}
	return library
}
