//go:build cuda

package driver

/*
#cgo CFLAGS: -O2 -I${SRCDIR}/../../include
#cgo CXXFLAGS: -std=c++17 -O2 -fvisibility=hidden -DGPU_EMU -Wno-unused-function -I${SRCDIR}/../../include
#cgo LDFLAGS: -L${SRCDIR}/link -ldl
#include "run.h"
int minfer_cuda_init_error(void);
*/
import "C"

import (
	"embed"
	"fmt"
	"math"
	"unsafe"

	"gorgonia.org/cu"
)

// InitError says why there is no driver to use, or returns nil.
func InitError() error {
	switch code := int(C.minfer_cuda_init_error()); code {
	case 0:
		return nil
	case -1:
		return fmt.Errorf("driver: there is no NVIDIA driver (libcuda.so.1)")
	default:
		return fmt.Errorf("driver: the NVIDIA driver does not start: %w", Error(code))
	}
}

//go:embed ptx
var ptx embed.FS

// PTX returns the kernels of a file of folder kernels, for matmul.cu and tensor.cu those of one
// format, for devices of a compute capability.
func PTX(name string, major int) (string, error) {
	for _, arch := range []string{"sm_80", "sm_75"} {
		if arch == "sm_80" && major < 8 {
			continue
		}
		if b, err := ptx.ReadFile("ptx/" + name + "." + arch + ".ptx"); err == nil {
			return string(b), nil
		}
	}
	return "", fmt.Errorf("driver: no kernels %s", name)
}

// Error is a result of the driver other than success.
type Error int

// Error returns the driver's text.
func (e Error) Error() string {
	var name, text *C.char
	C.cuGetErrorName(C.CUresult(e), &name)
	C.cuGetErrorString(C.CUresult(e), &text)
	if name == nil || text == nil {
		return fmt.Sprintf("CUDA error %d", int(e))
	}
	return fmt.Sprintf("%s (%d): %s", C.GoString(name), int(e), C.GoString(text))
}

func result(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return Error(r)
}

// cu's handles are structs of one field, the handle of C. These do not compile if one of them
// ever is not.
const (
	_ = -(unsafe.Sizeof(cu.Stream{}) ^ 8)
	_ = -(unsafe.Sizeof(cu.Function{}) ^ 8)
	_ = -(unsafe.Sizeof(Op{}) ^ C.sizeof_minfer_op)
)

func stream(s cu.Stream) C.CUstream { return *(*C.CUstream)(unsafe.Pointer(&s)) }

// Kind is what an Op does.
type Kind uint32

// The kinds, with the arguments that they take.
const (
	Launch   Kind = iota // a kernel: its parameters
	ToDevice             // destination, source in pinned memory, bytes
	ToHost               // destination in pinned memory, source, bytes
	OnDevice             // destination, source, bytes
	Fill                 // destination, byte, bytes
	Replay               // a graph
)

// MaxArgs is the number of parameters that a kernel can have.
const MaxArgs = 27

// Op is a piece of work for a stream. Each argument has a slot of 8 bytes.
type Op struct {
	Kind   Kind
	Shared uint32 // bytes of shared memory
	Grid   [3]uint32
	Block  uint32
	Fn     uint64 // from FunctionHandle or Graph.Handle
	Args   [MaxArgs]uint64
	n      uint64 // arguments given so far
}

// Ptr adds an argument that is an address, or an integer of 64 bits.
func (o *Op) Ptr(p uint64) *Op {
	o.Args[o.n] = p
	o.n++
	return o
}

// Int adds an argument that is an integer of 32 bits.
func (o *Op) Int(v int) *Op { return o.Ptr(uint64(uint32(int32(v)))) }

// Float adds an argument that is a float.
func (o *Op) Float(v float32) *Op { return o.Ptr(uint64(math.Float32bits(v))) }

// FunctionHandle is the driver's handle of a kernel.
func FunctionHandle(f cu.Function) uint64 { return *(*uint64)(unsafe.Pointer(&f)) }

// Run queues ops on a stream, up to the first that the driver refuses, and returns how many
// it took. The context is the calling thread's.
func Run(s cu.Stream, ops []Op) (done int, err error) {
	if len(ops) == 0 {
		return 0, nil
	}
	n := C.int(0)
	err = result(C.minfer_run((*C.minfer_op)(unsafe.Pointer(&ops[0])), C.int(len(ops)), stream(s), &n))
	return int(n), err
}

// Graph is work that can be launched at once.
type Graph struct{ exec C.CUgraphExec }

// Capture makes a graph of ops. When it fails, done is the op that failed, or the number of ops.
func Capture(s cu.Stream, ops []Op) (g Graph, done int, err error) {
	if err = result(C.cuStreamBeginCapture(stream(s), C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); err != nil {
		return g, len(ops), err
	}
	done, err = Run(s, ops)
	var raw C.CUgraph
	if e := result(C.cuStreamEndCapture(stream(s), &raw)); err == nil {
		err = e
	}
	if raw == nil {
		return g, done, err
	}
	defer C.cuGraphDestroy(raw)
	if err == nil {
		err = result(C.cuGraphInstantiateWithFlags(&g.exec, raw, 0))
	}
	return g, done, err
}

// Handle is what an Op of kind Replay takes.
func (g Graph) Handle() uint64 { return uint64(uintptr(unsafe.Pointer(g.exec))) }

// Destroy gives the graph back.
func (g Graph) Destroy() error { return result(C.cuGraphExecDestroy(g.exec)) }

// AllocHost returns n bytes of pinned memory, for cu.MemFreeHost to free.
func AllocHost(n int) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	err := result(C.cuMemHostAlloc(&p, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE))
	return p, err
}

// AllowShared lets a kernel be launched with n bytes of shared memory.
func AllowShared(fn uint64, n int) error {
	return result(C.minfer_allow_shared(C.uint64_t(fn), C.int(n)))
}
