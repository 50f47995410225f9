// Package devices brings GPUs into the examples: CUDA into those that are built with the tag cuda, Metal
// on a Mac. A program of one's own imports the device that it wants:
//
//	import _ "github.com/minfer/minfer/backend/cuda"
package devices
