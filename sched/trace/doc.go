// Package trace looks into forward passes while they run, and keeps what it saw.
//
// # Observers
//
// An [Observer] is told of every pass, of every node before and after it runs, and of the tokens
// that are chosen. Within After it reads values from whatever device they are on: sched.Step
// has the reading, [Reader] turns it into floats. minfer.Model.Observe attaches one. Observers
// read; they cannot change a result.
//
// [NewRecorder] makes the observer that keeps traces, [NewProfiler] the one for Go's own
// execution tracer and profiler.
//
// # Traces
//
// A trace is lines of JSON, each a [Record]: a [Header], each [Graph] before its first pass, a
// [PassRecord] for every pass, a [ChoiceRecord] for every token that was chosen. docs/trace.md
// describes the form field by field. A [Writer] writes them, [Records] reads them, and
// [ChromeWriter] makes of them the trace events that Perfetto and Chrome draw as timelines.
//
// Times are of when a value was there: the recorder waits for the device after every node. So on
// a device that works ahead of the host the sum of a trace's times is more than a pass takes
// unobserved. What reading values takes is in no node's time.
//
// # Concurrency
//
// A Recorder is of one model, and takes what that model tells observers from whichever goroutines.
// Other writers belong to one goroutine at a time.
package trace
