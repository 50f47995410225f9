// Package driver is the CUDA driver as package cuda uses it: what gorgonia.org/cu lacks, a
// loader that finds the driver when the program runs, and, with the build tag cudaemu, an
// emulated driver in its place.
//
// # Loading
//
// gorgonia.org/cu is linked to libcuda and ends the process if cuInit fails. So that a program
// starts on machines without a driver, this package defines the driver's functions itself, as
// jumps through a table that cuInit fills from libcuda.so.1. cuInit always succeeds;
// [InitError] has what it came to. MINFER_LIBCUDA names another library than libcuda.so.1.
//
// # Work
//
// An [Op] is a launch, a copy or a fill, laid out as C reads it, and [Run] queues a list of
// them on a stream in one call. [Capture] records a list as a graph instead.
//
// # The emulated driver
//
// It runs the kernels of folder kernels, built for the host by g++, and is hostile: queued
// work runs only when somebody waits for it, memory is full of NaN at first, what lies behind
// an allocation is not mapped, and threads run in an order of the tester's choice. See
// emu/driver.cc for the environment variables.
package driver
