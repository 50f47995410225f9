// Package emu is a Metal device without a GPU, on which the metal device's own code and kernels are tested.
//
// # What it is
//
// On Linux, and with the build tag metalemu, the device's Objective-C is built against GNUstep (emu/env has the compilers
// that takes) and a header that declares what it uses of Metal. The classes of a Metal device, its queue, command buffers
// and encoders are in device.m. A library is compiled from its source when the device is opened, as on a Mac: Translate
// makes C++ of it, g++ compiles that against a stand-in for Metal's standard library (include/), and the scheduler runs the
// threads of a threadgroup as fibers, which switch where they wait for each other.
//
// # What it finds
//
// It is made to be worse than hardware: work runs when somebody waits for it, or on commit, and dispatches between two
// barriers run backwards. Memory is NaN when it is new and ends at a page that faults; threadgroup memory is NaN for every
// group and has guards around each array. Threads run forward, backward, or one simdgroup ahead of all others. Barriers that
// some threads never reach, unbound buffers, misaligned offsets, and calls that Metal forbids are errors.
//
// # What it cannot find
//
// It knows nothing of Apple's compiler, of registers and speed, of races between threadgroups, and of the memory model. What
// simdgroup matrices round is one possibility among many. Small overruns of buffers within their last 64 bytes pass, and so
// do reads beyond a tensor within its pages.
//
// Translate and Compile need nothing but g++, and are built without the tag too.
package emu
