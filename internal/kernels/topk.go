package kernels

import "math"

// TopK finds the k greatest of x, k being half of len(dst): dst is these values, the greatest first
// and of equal ones that with the lower index, and then their indices as numbers. NaN is greater
// than any number. Values of -Inf are left out; where there are too few others, the rest is -Inf
// with index -1. Indices are exact below 2^24.
func TopK(dst, x []float32) {
	k := len(dst) / 2
	values, indices := dst[:k], dst[k:2*k]
	for i := range values {
		values[i], indices[i] = float32(math.Inf(-1)), -1
	}
	worst := values[k-1]
	for i, v := range x {
		if v <= worst { // later indices lose against equal values
			continue
		}
		at := k - 1
		if !above(v, worst) {
			continue
		}
		for at > 0 && above(v, values[at-1]) {
			values[at], indices[at] = values[at-1], indices[at-1]
			at--
		}
		values[at], indices[at] = v, float32(i)
		worst = values[k-1]
	}
}

// above reports whether a ranks before b, which has a lower index.
func above(a, b float32) bool { return a > b || a != a && b == b }
