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

	"github.com/progrium/darwinkit/macos/foundation"
	"github.com/progrium/darwinkit/macos/metal"
	"github.com/progrium/darwinkit/objc"
)

// gpu is the machine's Metal device with its queue and kernels.
type gpu struct {
	device    metal.DeviceObject
	queue     metal.CommandQueueObject
	library   metal.LibraryObject
	pipelines map[string]*pipeline
	maxBuffer int // bytes of the longest buffer
}

// pipeline is a kernel that is ready to run.
type pipeline struct {
	state      metal.ComputePipelineStateObject
	maxThreads int
}

// apple7 is MTLGPUFamilyApple7, the first whose simdgroups multiply matrices.
const apple7 = 1007

// findGPU returns the device, or why it cannot be used.
func findGPU() (*gpu, error) {
	p := C.metal_default_device()
	if p == nil {
		return nil, errors.New("this machine has no Metal device")
	}
	g := &gpu{device: metal.DeviceObject{Object: objc.ObjectFrom(p)}, pipelines: make(map[string]*pipeline)}
	if !g.device.SupportsFamily(apple7) || !g.device.HasUnifiedMemory() {
		name := g.device.Name()
		g.release()
		return nil, fmt.Errorf("the Metal device is %q, want one of Apple's own, M1 or later", name)
	}
	g.maxBuffer = int(min(uint64(g.device.MaxBufferLength()), math.MaxInt))
	return g, nil
}

// compile compiles the kernels. Without fast math: rounding is part of the results' definition.
func (g *gpu) compile(source string) (err error) {
	objc.WithAutoreleasePool(func() {
		options := metal.NewCompileOptions()
		options.SetFastMathEnabled(false)
		var failure unsafe.Pointer
		g.library = g.device.NewLibraryWithSourceOptionsError(source, options, unsafe.Pointer(&failure))
		if g.library.IsNil() {
			err = fmt.Errorf("metal: the kernels do not compile: %s", describe(failure))
		}
	})
	if err != nil {
		return err
	}
	g.queue = g.device.NewCommandQueue()
	if g.queue.IsNil() {
		return errors.New("metal: the device gives no command queue")
	}
	return nil
}

// describe is the text of an NSError.
func describe(failure unsafe.Pointer) string {
	if failure == nil {
		return "no reason was given"
	}
	return foundation.ErrorFrom(failure).LocalizedDescription()
}

// pipeline returns a kernel by name. Each is made on first use.
func (g *gpu) pipeline(kernel string) (p *pipeline, err error) {
	if p := g.pipelines[kernel]; p != nil {
		return p, nil
	}
	objc.WithAutoreleasePool(func() {
		function := g.library.NewFunctionWithName(kernel)
		if function.IsNil() {
			err = fmt.Errorf("metal: there is no kernel %s", kernel)
			return
		}
		defer function.Release()
		var failure unsafe.Pointer
		// By selector: darwinkit's own method panics, as do all that are given a Metal object.
		state := objc.Call[metal.ComputePipelineStateObject](g.device, objc.Sel("newComputePipelineStateWithFunction:error:"), function, unsafe.Pointer(&failure))
		if state.IsNil() {
			err = fmt.Errorf("metal: kernel %s: %s", kernel, describe(failure))
			return
		}
		p = &pipeline{state: state, maxThreads: int(state.MaxTotalThreadsPerThreadgroup())}
		g.pipelines[kernel] = p
	})
	return p, err
}

func (g *gpu) release() {
	for _, p := range g.pipelines {
		p.state.Release()
	}
	for _, o := range []objc.Object{g.library.Object, g.queue.Object, g.device.Object} {
		if !o.IsNil() {
			o.Release()
		}
	}
}

// block is memory that both the device and the host reach.
type block struct {
	buffer   metal.BufferObject
	contents unsafe.Pointer
	size     int
	constant bool // nobody writes it while commands may read it
}

// newBlock makes memory. Its contents are arbitrary.
func (g *gpu) newBlock(size int) (*block, error) {
	b := g.device.NewBufferWithLengthOptions(uint(size), metal.ResourceStorageModeShared)
	if b.IsNil() {
		return nil, fmt.Errorf("%w: the device has no %d bytes", ErrSize, size)
	}
	return &block{buffer: b, contents: b.Contents(), size: size}, nil
}

// mapBlock makes a block of memory that is there already, whole pages of it. It is not copied, and has to stay.
func (g *gpu) mapBlock(pages unsafe.Pointer, size int) (*block, error) {
	// By selector: a nil deallocator given to darwinkit's method becomes a block that calls nil.
	b := objc.Call[metal.BufferObject](g.device, objc.Sel("newBufferWithBytesNoCopy:length:options:deallocator:"),
		pages, uint(size), metal.ResourceStorageModeShared, nil)
	if b.IsNil() {
		return nil, fmt.Errorf("metal: the device refuses to use %d bytes where they are", size)
	}
	return &block{buffer: b, contents: pages, size: size}, nil
}

// release gives the memory up. A nil block is none.
func (b *block) release() {
	if b != nil {
		b.buffer.Release()
	}
}
