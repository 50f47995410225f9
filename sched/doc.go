// Package sched assigns the nodes of a graph to devices, cuts the graph into runs of one
// device, and executes it.
//
// # Use
//
//	err := sched.Assign(g, devices)       // each node gets a device
//	_, err = fusion.Run(g, capabilities)  // rewrites, where that device has the operation
//	p, err := sched.Prepare(g, allocator) // a Schedule, and memory for it; every operand resolved
//	for each step {
//		err = p.WriteInput("token_ids", ids) // and all other inputs
//		err = p.Execute(ctx)
//		err = p.ReadOutput(0, 0, logits)
//	}
//
// # Assignment
//
// [Assign] is a pure function of the graph and of what devices say they can do. It is the
// one place where a device is chosen: a device that fails later is an error, and the
// work does not move. Every node goes to the first device of the list that can run it,
// with three exceptions. A placement that a node carries already is kept, or refused. All
// nodes that touch the key and value regions of a layer go to one device that can run
// all of them, because the regions lie there. And what no device computes follows what
// it belongs to: a view its source, an input its first reader.
//
// Graphs of one allocator share regions. If they can differ in the operations that touch
// them, [PlaceLayers] finds devices that can run those of all, and [Layers.Pin] places
// the nodes of each graph there before it is assigned.
//
// # Splits
//
// A split is a run of computed nodes on one device, in build order. Values made
// elsewhere are copied in when the split starts, once per value and device, and waited for
// at the first node that reads the copy.
//
// # Execution
//
// Nodes run in build order, without those that nothing depends on. In the steady state
// [Program.Execute] makes no garbage. It looks at its context between nodes. When it
// returns, for whatever reason, nothing is in flight any more and the program can be
// executed again. Errors of a device are *backend.NodeError, and a panic in a device
// is a [PanicError]: none gets through.
//
// All programs of an allocator share memory. The inputs of a program have to be written
// before each execution, and its outputs read before another program is prepared,
// written to or executed.
//
// # Looking inside
//
// A [Schedule] is what Prepare adds memory to: printed or drawn, it shows what is executed. An
// [Observer] is told of every node, and reads values through its [Step]; package sched/trace has
// recorders of that. Devices do not run from recordings meanwhile.
//
// # Concurrency
//
// Programs of one allocator, and the allocator itself, belong to one goroutine at a time.
package sched
