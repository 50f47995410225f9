package backend

import (
	"context"

	"github.com/minfer/minfer/graph"
)

// Alignment is what the offsets of buffers are multiples of, in bytes: a cache line,
// and the width of the widest vector.
const Alignment = 64

// KVBlock is the number of cells of a key and value region that are handed out,
// shared and saved together. A device may lay a block's cells out as it likes, so long
// as blocks follow one another in memory and all have the same size.
const KVBlock = 16

// Buffer is a handle to a device's memory: Size bytes from Offset on, in the
// allocation with the device's number ID. The zero Buffer is no memory.
type Buffer struct {
	ID     int // the allocation, counted from 1 by the device
	Offset int // bytes
	Size   int // bytes
}

// Slice returns n bytes of the buffer, from byte offset on.
func (b Buffer) Slice(offset, n int) Buffer {
	return Buffer{ID: b.ID, Offset: b.Offset + offset, Size: n}
}

// Operand is a value that a node reads or writes.
type Operand struct {
	Buffer Buffer
	Shape  graph.Shape
	Type   graph.DType
}

// KV is a layer's pair of key and value regions, each Cells rows of Width elements.
type KV struct {
	K, V  Buffer
	Width int
	Cells int
	Type  graph.DType // F16 or F32
}

// Weight is a tensor of the model, as the file has it.
type Weight struct {
	Name string
	Type string // storage type by ggml's name, such as "Q4_K"
	In   int    // values per row
	Out  int    // rows
	// Data is the tensor's bytes, Out rows one after the other. It stays valid and
	// unchanged until the device is closed, and must not be written.
	Data []byte
	// Table says that rows are looked up and no product is computed, so that a device need
	// not bring the weight into the order of its products.
	Table bool
	// Release, if not nil, is called by a device that has made a copy. It gives back memory
	// from which Data can be read again, such as pages of a mapped file, since loading may fail after it.
	Release func()
}

// Fence stands for a copy under way.
type Fence uint64

// Backend is an open device. See the package comment for memory and concurrency.
type Backend interface {
	// Name is the name the device was opened by, such as "cpu" or "cuda:1".
	Name() string

	// Capabilities returns the same value that the registry's entry holds.
	Capabilities() *Capabilities

	// LoadWeights makes weights known by name. Nodes executed later refer to them. It
	// may return early when ctx ends, with its error; progress, if not nil, is told how
	// many bytes of how many are done.
	LoadWeights(ctx context.Context, weights []Weight, progress func(done, total int64)) error

	// Alloc returns size bytes, whose contents are arbitrary. It may reuse what Free gave back.
	Alloc(size int) (Buffer, error)

	// AllocFresh is Alloc that never reuses freed memory, and returns zeroed bytes.
	AllocFresh(size int) (Buffer, error)

	// Free gives a buffer back that Alloc or AllocFresh returned.
	Free(Buffer)

	// Execute runs a node. The operands are the node's sources in order and its own
	// value; kv is the layer's pair of regions for nodes that store or attend, and nil
	// for others. Where the node's traits allow it, out may be the memory of a source.
	// The slices are not kept.
	Execute(node *graph.Node, in []Operand, out Operand, kv *KV) error

	// ReadHost waits for the work that the buffer depends on and copies its first
	// len(dst) bytes to dst. Part of a buffer is read through Buffer.Slice.
	ReadHost(dst []byte, src Buffer) error

	// WriteHost copies src to the first len(src) bytes of a buffer. It does not keep src.
	WriteHost(dst Buffer, src []byte) error

	// CopyAcross copies a buffer of this device to one of another, of the same size. It
	// may return before the copy is done. Before the receiver's copy is read, or the
	// original overwritten, WaitCopy is called on the device that gave the fence.
	CopyAcross(dst Backend, to Buffer, from Buffer) (Fence, error)

	// WaitCopy returns when the copy of a fence of this device is done.
	WaitCopy(Fence) error

	// Synchronize returns when all work is done, with the first error that work met.
	Synchronize() error

	// PoolStats returns how much memory the device holds.
	PoolStats() PoolStats

	// Close frees everything. Later calls return ErrClosed.
	Close() error
}

// PoolStats is what a device holds, in bytes.
type PoolStats struct {
	Buffers     int   // allocations in use
	BufferBytes int64 // their size
	FreeBytes   int64 // given back and kept for reuse
	WeightBytes int64 // weights, as the device holds them
}

// Replayer is a device that can record the nodes of a run and launch them at once
// when the same run comes again.
type Replayer interface {
	// Replay launches the recorded run of the nodes first to last-1 of the binding of a
	// graph to memory that uid stands for, and reports whether it did. If not, the caller
	// executes the nodes, and the device may record them; the run ends with Synchronize or
	// the next Replay call. A uid is never used again once the graph or one of its buffers
	// has changed.
	Replay(uid uint64, first, last int) (bool, error)
}

// WeightMeter is a device that can tell beforehand what weights will take.
type WeightMeter interface {
	// MeasureWeights returns the bytes by which PoolStats.WeightBytes would grow if all of
	// the weights were loaded into a device that has none of them. It loads nothing, and
	// fails for what LoadWeights would refuse.
	MeasureWeights(weights []Weight) (int64, error)
}

// MemoryMeter is a device that can tell how much memory it has left.
type MemoryMeter interface {
	// FreeMemory returns the bytes that could be allocated now, about.
	FreeMemory() (int64, error)
}

// KVOrder is a device that can bring a block of its key and value regions into an order that all
// such devices share, so that sessions saved on one load on another: KVBlock rows of Width elements,
// one for each cell, keys and values likewise.
type KVOrder interface {
	// KVToRows rearranges the bytes of a block of keys and of one of values, as ReadHost gave
	// them, in place. KVFromRows is its inverse. Neither touches the device.
	KVToRows(kv *KV, k, v []byte) error
	KVFromRows(kv *KV, k, v []byte) error
}

// Capturer is a device that must be told when values of nodes will be read in
// between, so that it leaves out shortcuts that would make them unreadable.
type Capturer interface {
	// Capture switches the reading of intermediate values on or off.
	Capture(on bool)
}
