//go:build race

package cpu_test

// The race detector makes everything ten times slower. One count of threads, more than
// one and uneven, shows it all that it can find.
var threadCounts = []int{3}
