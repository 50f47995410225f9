package sampling

import (
	"cmp"
	"math/bits"

	"golang.org/x/exp/slices"
)

// ranked is an element of a selection: the order is by ascending key, then id,
// so that no two elements are equal.
type ranked struct {
	key, w float64
	id     int32
}

func (a ranked) before(b ranked) bool {
	return a.key < b.key || (a.key == b.key && a.id < b.id)
}

func compareRanked(a, b ranked) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.id, b.id))
}

// prefixEnd returns the last element of the shortest prefix, in order, whose
// weights sum to at least target; the first element if the target is 0 or less,
// the last one if it is never reached. It is quickselect by weight: linear time
// on average, and sorting takes over when the pivots turn out badly. a, which
// must not be empty, is reordered.
func prefixEnd(a []ranked, target float64) ranked {
	var before float64 // weight of everything that precedes a
	for budget := 2 * bits.Len(uint(len(a))); len(a) > 24 && budget > 0; budget-- {
		mid, weight := partition(a)
		switch {
		case mid > 0 && before+weight >= target:
			a = a[:mid]
		case mid == len(a)-1 || before+weight+a[mid].w >= target:
			return a[mid]
		default:
			before += weight + a[mid].w
			a = a[mid+1:]
		}
	}
	slices.SortFunc(a, compareRanked)
	for _, r := range a {
		if before += r.w; before >= target {
			return r
		}
	}
	return a[len(a)-1]
}

// partition moves the elements that come before a pivot to the front and
// returns the pivot's place and the weight of those before it.
func partition(a []ranked) (mid int, weight float64) {
	end := len(a) - 1
	p := pivot(a)
	a[p], a[end] = a[end], a[p]
	last := a[end]
	for i := range a[:end] {
		if a[i].before(last) {
			weight += a[i].w
			a[i], a[mid] = a[mid], a[i]
			mid++
		}
	}
	a[mid], a[end] = a[end], a[mid]
	return mid, weight
}

// pivot returns the index of the median of nine elements spread over a, which
// has at least nine.
func pivot(a []ranked) int {
	step := len(a) / 9
	median := func(i, j, k int) int {
		if a[j].before(a[i]) {
			i, j = j, i
		}
		switch {
		case a[k].before(a[i]):
			return i
		case a[k].before(a[j]):
			return k
		}
		return j
	}
	third := func(i int) int { return median(i*step, (i+1)*step, (i+2)*step) }
	return median(third(0), third(3), third(6))
}

// heapTop appends to dst, which is empty, the k greatest logits of the row that
// are not -Inf, in no particular order; among equals the lower ids.
func heapTop(dst []candidate, row []float32, k int) []candidate {
	rest := 0
	for ; rest < len(row) && len(dst) < k; rest++ {
		if x := row[rest]; x > negInf {
			dst = append(dst, candidate{id: int32(rest), x: x})
		}
	}
	for i := len(dst)/2 - 1; i >= 0; i-- {
		sift(dst, i)
	}
	if len(dst) == 0 {
		return dst
	}
	// The root is the worst that is kept. Later ids lose against equal logits.
	worst := dst[0].x
	for i := rest; i < len(row); i++ {
		if row[i] > worst {
			dst[0] = candidate{id: int32(i), x: row[i]}
			sift(dst, 0)
			worst = dst[0].x
		}
	}
	return dst
}

// worse is the order of the heap: lower logits, then higher ids.
func worse(a, b *candidate) bool {
	return a.x < b.x || (a.x == b.x && a.id > b.id)
}

func sift(h []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && worse(&h[child+1], &h[child]) {
			child++
		}
		if !worse(&h[child], &h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

func sortByID(c []candidate) {
	slices.SortFunc(c, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
}
