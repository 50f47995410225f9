// Package alloc decides where the values of a graph lie, and owns every buffer that a
// run of it needs.
//
// # Plan
//
// [NewPlan] is a pure function of a graph whose nodes have devices. It gives each value
// an offset in its device's arena, by these rules:
//
//   - A value's memory is free again after its last reader in build order, which is
//     the order of execution.
//   - Inputs and outputs are never recycled: the host writes inputs before the first
//     node runs and reads outputs after the last one.
//   - A view shares its source's memory and keeps it in use.
//   - A node whose operation allows it (graph.Traits.InPlace) takes over the memory of a
//     source of the same size when it is the last to read it, all that read it are on
//     the node's device, and it is no input, output or region. A source that another
//     device reads is never overwritten in place, so that a graph can run again and
//     again.
//   - Nodes that nothing depends on get no memory.
//   - Key and value regions belong to their layer, not to a graph.
//   - A value that another device reads has a copy there, outside of the arenas.
//
// Sizes and offsets are in bytes; offsets are multiples of backend.Alignment, except
// for views, which begin where they say.
//
// # Allocator
//
// An [Allocator] turns plans into buffers. All graphs of an allocator share one arena
// per device, as large as the largest plan, so the values of one graph are gone when
// another runs. The key and value regions are shared too, and what they hold survives:
// they are made on first use, on the device that runs the layer's attention, and never
// freed before Close. [Allocator.KVPair] is the only way to them.
//
// When an arena or the regions grow, [Allocator.Generation] changes and each [Binding]
// has to be refreshed before it is used again; that makes no garbage.
//
// # Errors and concurrency
//
// Errors wrap [ErrPlan], [ErrRegion] or [ErrClosed], or are the device's own. A
// call that failed leaves what was there before in working order. A Plan is immutable and
// safe for concurrent use; an Allocator and its Bindings belong to one goroutine at a
// time.
package alloc
