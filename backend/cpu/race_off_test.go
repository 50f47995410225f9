//go:build !race

package cpu_test

// threadCounts are the numbers of threads that must all yield the same bits.
var threadCounts = []int{1, 2, 3, 8}
