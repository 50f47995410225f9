// Package cpu is the device that every program has: it runs all operations of
// package graph in plain memory, for all weight types of the module, on as many
// goroutines as it is told to. It registers itself under the name "cpu".
//
// # Results
//
// What each operation yields, to the last bit, is defined by package
// internal/kernels. This package decides only who computes which output: rows of a
// product, tokens of a norm, (token, key head) pairs of attention. Every output has
// one canonical order of operations inside, so the number of threads, the size of
// the batch and the place of a buffer never change a bit. Activations are quantised
// once per product and shared by all rows, and by all projections of a fused
// operation; those between the products of a feed-forward block where they arise.
//
// # Memory
//
// Buffers are byte slices that begin at multiples of backend.Alignment; a handle is
// an index with a generation, so a stale or made-up one is refused. The values of a pass lie in huge pages. Freed memory is
// kept for reuse, in classes by powers of two, up to the most that was ever in use.
// Regions of keys and values get huge pages with the first token that reaches a good part of them. Those smaller than such a page
// follow one another in pieces of 8 MB, and the garbage collector has a piece back when no region in it is left.
// Weights stay where the caller has them; only vectors (norm weights, biases, RoPE
// factors) are decoded, once.
//
// # Threads
//
// Workers start with the first operation that is large enough to share. Between operations they look
// for the next for two milliseconds, letting other goroutines run meanwhile, then they sleep, so that an
// idle model costs nothing. Close stops them. Each thread has its share of an operation and takes half of what is left of
// it at a time, then half of what others have left; the calling goroutine takes part. With one token, those who wait for the
// end of a product, or for the next, meanwhile read the weights that theirs begins with: the ones that came next
// the last time. A step that repeats allocates no memory.
//
// # Errors
//
// What a caller can get wrong (handles, shapes, names, ids, cells, positions) is
// checked before anything is written, and comes back as a *backend.NodeError. A
// panic in a kernel, or a fault in memory that is mapped from a file which somebody
// truncates, becomes an error that wraps a *backend.PanicError or mmap.ErrFault; since the device's state is then unknown, it
// returns that error from then on.
package cpu
