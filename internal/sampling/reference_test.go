package sampling

import (
	"cmp"
	"math"

	"golang.org/x/exp/slices"
)

// The chain once more, as plainly as it can be said: full sorts, maps, the
// standard library's exponential. Tests hold the fast one against it.

type refToken struct {
	id int32
	x  float64
	p  float64
}

func refSoftmax(c []refToken, t float64) {
	top, sum := math.Inf(-1), 0.0
	for _, k := range c {
		top = max(top, k.x)
	}
	for i := range c {
		c[i].p = math.Exp((c[i].x - top) / t)
		sum += c[i].p
	}
	for i := range c {
		c[i].p /= sum
	}
}

func refSort(c []refToken, key func(refToken) float64) {
	slices.SortFunc(c, func(a, b refToken) int {
		return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a.id, b.id))
	})
}

func descending(k refToken) float64 { return -k.x }

func refPrefix(c []refToken, mass float64) []refToken {
	sum := 0.0
	for i := range c {
		if sum += c[i].p; sum >= mass {
			return c[:i+1]
		}
	}
	return c
}

// refShape is truncation and temperature; exclude says whether XTC strikes.
func refShape(row []float32, p Params, exclude bool) []refToken {
	var c []refToken
	for i, x := range row {
		if !math.IsInf(float64(x), -1) {
			c = append(c, refToken{id: int32(i), x: float64(x)})
		}
	}
	refSort(c, descending)
	if p.TopK > 0 && p.TopK < len(c) {
		c = c[:p.TopK]
	}
	refSoftmax(c, 1)
	if p.TypicalP < 1 {
		h := 0.0
		for _, k := range c {
			if k.p > 0 {
				h -= k.p * math.Log(k.p)
			}
		}
		refSort(c, func(k refToken) float64 { return math.Abs(-math.Log(k.p) - h) })
		c = refPrefix(c, float64(p.TypicalP))
		refSort(c, descending)
		refSoftmax(c, 1)
	}
	if p.TopP < 1 {
		c = refPrefix(c, float64(p.TopP))
		refSoftmax(c, 1)
	}
	if p.MinP > 0 {
		line := float64(p.MinP) * c[0].p
		c = slices.DeleteFunc(c, func(k refToken) bool { return k.p < line })
		refSoftmax(c, 1)
	}
	if p.XTC.active() && exclude {
		above := 0
		for above < len(c) && c[above].p >= float64(p.XTC.Threshold) {
			above++
		}
		if above > 1 {
			c = c[above-1:]
		}
	}
	refSoftmax(c, float64(p.Temperature))
	slices.SortFunc(c, func(a, b refToken) int { return cmp.Compare(a.id, b.id) })
	return c
}

// refDRY is the definition of the original pull request, with breakers given
// as the set of tokens that they end in.
func refDRY(history []int32, breaker func(i int) bool, d DRY) map[int32]float64 {
	if d.LastN >= 0 && len(history) > d.LastN {
		shift := len(history) - d.LastN
		whole := breaker
		breaker = func(i int) bool { return whole(i + shift) }
		history = history[shift:]
	}
	lengths := map[int32]int{}
	last := len(history) - 1
	if last < 0 || breaker(last) {
		return nil
	}
	for i := range last {
		if history[i] != history[last] || breaker(i+1) {
			continue
		}
		n := 1
		for n <= i && history[i-n] == history[last-n] && !breaker(last-n) {
			n++
		}
		lengths[history[i+1]] = max(lengths[history[i+1]], n)
	}
	penalties := map[int32]float64{}
	for id, n := range lengths {
		if n >= d.AllowedLength {
			penalties[id] = float64(d.Multiplier) * math.Pow(float64(d.Base), float64(n-d.AllowedLength))
		}
	}
	return penalties
}
