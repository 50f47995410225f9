//go:build cgo && (darwin || metalemu)

package metal

/*
#cgo CFLAGS: -x objective-c -fno-objc-arc
#cgo LDFLAGS: -framework Metal -framework CoreGraphics -framework Foundation
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// object is a Metal object that we own.
type object = unsafe.Pointer

// gpu is the machine's Metal device with its queue and kernels.
type gpu struct {
	device    object
	queue     object
	library   object
	pipelines map[string]*pipeline
	maxBuffer int // bytes of the longest buffer
}

// pipeline is a kernel that is ready to run.
type pipeline struct {
	state      object
	maxThreads int
}

// findGPU returns the device, or why it cannot be used.
func findGPU() (*gpu, error) {
	var facts C.metal_device_facts
	device := C.metal_default_device(&facts)
	if device == nil {
		return nil, errors.New("this machine has no Metal device")
	}
	g := &gpu{device: device, pipelines: make(map[string]*pipeline)}
	name := taken(facts.name)
	if facts.apple7 == 0 || facts.unified == 0 {
		g.release()
		return nil, fmt.Errorf("the Metal device is %q, want one of Apple's own, M1 or later", name)
	}
	g.maxBuffer = int(min(uint64(facts.max_buffer), math.MaxInt))
	return g, nil
}

// taken is a text that was given to us, or "".
func taken(text *C.char) string {
	defer C.free(unsafe.Pointer(text))
	return C.GoString(text)
}

// compile compiles the kernels.
func (g *gpu) compile(source string) error {
	text := C.CString(source)
	defer C.free(unsafe.Pointer(text))
	var failure *C.char
	if g.library = C.metal_new_library(g.device, text, &failure); g.library == nil {
		return fmt.Errorf("metal: the kernels do not compile: %s", taken(failure))
	}
	if g.queue = C.metal_new_queue(g.device); g.queue == nil {
		return errors.New("metal: the device gives no command queue")
	}
	return nil
}

// pipeline returns a kernel by name. Each is made on first use.
func (g *gpu) pipeline(kernel string) (*pipeline, error) {
	if p := g.pipelines[kernel]; p != nil {
		return p, nil
	}
	name := C.CString(kernel)
	defer C.free(unsafe.Pointer(name))
	var threads C.uint64_t
	var failure *C.char
	state := C.metal_new_pipeline(g.device, g.library, name, &threads, &failure)
	switch {
	case failure != nil:
		return nil, fmt.Errorf("metal: kernel %s: %s", kernel, taken(failure))
	case state == nil:
		return nil, fmt.Errorf("metal: there is no kernel %s", kernel)
	}
	p := &pipeline{state, int(threads)}
	g.pipelines[kernel] = p
	return p, nil
}

func (g *gpu) release() {
	for _, p := range g.pipelines {
		C.metal_release(p.state)
	}
	for _, o := range []object{g.library, g.queue, g.device} {
		C.metal_release(o)
	}
}

// block is memory that both the device and the host reach.
type block struct {
	buffer   object
	contents unsafe.Pointer // where the host finds it; nil for what was mapped
	size     int
	constant bool // nobody writes it while commands may read it
}

// newBlock makes memory. Its contents are arbitrary.
func (g *gpu) newBlock(size int) (*block, error) {
	b := &block{size: size}
	if b.buffer = C.metal_new_buffer(g.device, C.uint64_t(size), &b.contents); b.buffer == nil {
		return nil, fmt.Errorf("%w: the device has no %d bytes", ErrSize, size)
	}
	return b, nil
}

// mapBlock makes a block of memory that is there already, whole pages of it. It is not copied, and has to stay. The address
// is a number since the first page may begin inside of another object, which Go's collector must not be led to.
func (g *gpu) mapBlock(address uintptr, size int) (*block, error) {
	b := C.metal_new_buffer_of(g.device, C.uint64_t(address), C.uint64_t(size))
	if b == nil {
		return nil, fmt.Errorf("metal: the device refuses to use %d bytes where they are", size)
	}
	return &block{buffer: b, size: size, constant: true}, nil
}

// release gives the memory up. A nil block is none.
func (b *block) release() {
	if b != nil {
		C.metal_release(b.buffer)
	}
}
