// Package metal is the device that computes on the GPU of a Mac. Importing it for its side effect registers "metal":
//
//	import _ "github.com/minfer/minfer/backend/metal"
//
// It is a module of its own, so a program that does not import it has nothing of it. It reaches Metal through
// a little Objective-C (bridge.m), which needs cgo. Built for another system, or without cgo, the device is registered all the
// same, and says why it cannot be used when somebody asks for it.
//
// # Results
//
// A row of a result does not depend on the batch it is computed in, on chunks, or on the kernel that was chosen: every sum
// has one order, written down where the kernels are (kernels/*.metal). For quantised weights the activations are quantised
// like those of the CPU, to the bit; their products with weights are exact sums of integers, added up in eight strands where
// the CPU has one, so results differ from the CPU's by rounding alone. Norms, softmax and attention use Metal's precise
// functions, and no fast math.
//
// Products of prompts and attention are left to simdgroup matrices. For weights of single values (F32, F16, BF16) those of a
// single token are too, so that the order in which the hardware adds up is the same; they and attention are in single
// precision throughout.
//
// Two properties of the hardware are taken for granted: simdgroup matrices of half precision add up integers below 2^24
// exactly in single precision, and they compute an element from its row and its column, whatever the others hold. The
// conformance suite, backend/backendtest, would show a device where they do not hold.
//
// # Memory
//
// Memory is shared by both processors: the host reads and writes buffers in place, once the commands that use them are
// done. Weights stay where the file is mapped; the pages around neighbouring tensors become one buffer of the device, or
// several where they are longer than the device allows. Only vectors (norm weights, biases, factors) are decoded.
//
// # Commands
//
// Execute encodes nothing: it checks operands, ids, cells and positions on the host, and notes the dispatches. When results
// are asked for, by ReadHost, CopyAcross or Synchronize, or memory in use is to be written, all that was noted goes to the
// device as one command buffer, which is one for each split of a graph. Dispatches that do not depend on each other run
// side by side.
//
// # Errors
//
// What a caller can get wrong comes back from Execute as a *backend.NodeError. A command buffer that fails on the device is
// a *CommandError from the call that waits for it, with the nodes and kernels that were in it and Metal's text.
//
// # Tests without a Mac
//
// With the build tag metalemu, on Linux, package emu stands in for Metal and the same Go code, Objective-C and kernels run
// on the CPU. See docs/devices.md.
package metal
