// Package cuda is the device "cuda": NVIDIA GPUs from Turing (compute capability 7.5) on.
//
// # Building
//
// The device joins by
//
//	import _ "github.com/minfer/minfer/backend/cuda"
//
// in a build with the tag cuda and cgo. No CUDA SDK is needed, but gorgonia.org/cu looks for
// cuda.h, of which this module has its own:
//
//	export CGO_CFLAGS="-O2 -g -I$(go list -m -f '{{.Dir}}' github.com/minfer/minfer/backend/cuda)/include"
//	go build -tags cuda
//
// The program then runs everywhere; where there is no NVIDIA driver, the device says so when it
// is asked for. Without the tag, importing the package does nothing.
//
// With the tag cudaemu besides, an emulated driver takes the driver's place (package driver): that is
// how the tests run on machines without a GPU.
//
// # Devices
//
// "cuda" and "cuda:0" are the first GPU, "cuda:1" the second, in the driver's order.
//
// # Order of work
//
// All work of a device is queued on one stream, and the host waits only where a value is read, in
// ReadHost, CopyAcross and Synchronize. Execute writes down what is to be launched; the list is
// handed to the driver in one call when it has grown, and when somebody waits. A run that the
// scheduler repeats (backend.Replayer) is recorded as a graph when it comes for the second time,
// and from then on is one launch. Recordings are given up when memory that they use moves, and
// none are made while values of nodes are read in between (backend.Capturer).
//
// Indices that a node reads, such as token ids, positions and cells, are checked by the kernel that
// uses them. One that is out of range is reported by the next call that waits, as an error that
// names the node.
//
// # Numerics
//
// Results are the same from run to run, and do not depend on the batch, on how a prompt was cut
// into pieces, on replay or on fusion: every sum has an order of its own that no launch changes,
// and nothing is added up by atomic operations. Quantised products use the numerics contract's
// activations and exact integer sums per group; the order in which groups are added up is that of
// kernels/matmul.cu. Products with weights of F16 and BF16 take two halves for each activation, on
// tensor cores, for one token as for many (kernels/halves.cu); below compute capability 8.0 they are
// scalar. Attention goes over chunks of positions whose bounds are fixed and joins them in ascending
// order. Over a cache of F16 it takes tensor cores, for one token as for many too: queries and
// weights as two halves each (kernels/flash.cu). With a cache of F32, with heads of no multiple of 16 features and below
// compute capability 8.0 it is scalar (kernels/attention.cu). Results agree with the CPU's up to rounding.
//
// # Memory
//
// Weights are copied into an order that warps read in whole lines (kernels/formats.h). Buffers
// are allocations of the driver, kept for reuse when they are freed.
//
// # Errors
//
// An error of the driver carries its text, and the kernel and node that it was met at. After an error that
// the driver calls unrecoverable, such as a bad address, the device returns it from every call.
//
// # Sources
//
// Flash attention and its form with split keys: Dao et al., 2022; Dao et al., Flash-Decoding, 2023.
// Online softmax: Milakov and Gimelshein, 2018.
package cuda
