// Package graph is the intermediate representation of a forward pass: a list of
// nodes in execution order, each an operation on the values of earlier nodes.
//
// A graph is pure data. Nothing here computes, allocates device memory or knows
// which devices exist; those are the businesses of the packages alloc, sched and
// backend, all of which import this one. It imports nothing of the module.
//
// # Shapes
//
// Shapes are feature-major: the first dimension is the one whose elements lie
// next to each other. An activation of d features for n tokens has the shape
// [d n], and token t occupies the elements t*d to t*d+d-1. A weight that maps in
// features to out features carries the metadata [in out] of the GGUF format and
// lies in memory as out rows of in values.
//
// # Operations
//
// An operation is a small comparable struct with its whole payload in it, such as
// MatMul{Weight: "output.weight", In: 896, Out: 151936, Type: "Q8_0"}. Weights are
// named and never copied: a device looks the name up in its own table. Because
// every payload is comparable, two graphs are equal when their nodes are equal
// with ==. The table in op.go says of each operation how many sources it takes
// and what may be done with it.
//
// # Topology
//
// Nothing in a graph depends on how much text has been generated. Rows of the key
// and value regions are chosen by the input named "cells", rotary angles and the
// causal bound by the input named "positions". So a graph is a function of
// [Params] alone and one decode graph serves every decode step.
//
// # Order
//
// Build order is execution order: a node's sources have smaller ids. [Graph.Verify]
// proves that and the rest of the rules; the builder, the passes and the tests
// call it.
//
// # Forms
//
// [Graph.String] and [Parse] are a text form that loses nothing; tests of passes
// compare texts. [Graph.WriteDOT] and [Graph.WriteJSON] are for people and tools.
package graph
