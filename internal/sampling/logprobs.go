package sampling

import (
	"cmp"

	"golang.org/x/exp/slices"
)

// LogProb is the natural logarithm of token id's probability under the softmax
// of the logits (pass the row cut to the vocabulary). Errors: ErrNonFinite;
// ErrLength for an id outside the row.
func LogProb(logits []float32, id int32) (float32, error) {
	if id < 0 || int(id) >= len(logits) {
		return 0, &LengthError{Got: len(logits), Want: max(0, int(id)) + 1}
	}
	if _, ok := argmax(logits); !ok {
		return 0, census(logits, "model")
	}
	return logProb(logits, id), nil
}

func logProb(row []float32, id int32) float32 {
	best, _ := argmax(row)
	return float32(float64(row[id]) - float64(row[best]) - logarithm(sumExp(row, row[best], 1)))
}

// LogProbs appends the log-probabilities of all tokens to dst, in the order of
// ids. Errors: ErrNonFinite.
func LogProbs(dst []float32, logits []float32) ([]float32, error) {
	best, ok := argmax(logits)
	if !ok {
		return dst, census(logits, "model")
	}
	top := float64(logits[best])
	logMass := logarithm(sumExp(logits, logits[best], 1))
	dst = slices.Grow(dst, len(logits))
	for _, x := range logits {
		dst = append(dst, float32(float64(x)-top-logMass))
	}
	return dst, nil
}

// TopLogProbs appends the n likeliest tokens to dst, best first, lower ids first
// among equals; fewer if the vocabulary, or what is not masked of it, is
// smaller. Errors: ErrNonFinite.
func TopLogProbs(dst []Token, logits []float32, n int) ([]Token, error) {
	best, ok := argmax(logits)
	if !ok {
		return dst, census(logits, "model")
	}
	n = min(n, len(logits))
	if n <= 0 {
		return dst, nil
	}
	top := float64(logits[best])
	logMass := logarithm(sumExp(logits, logits[best], 1))
	heap := heapTop(make([]candidate, 0, n), logits, n)
	slices.SortFunc(heap, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.x, a.x), cmp.Compare(a.id, b.id))
	})
	for _, c := range heap {
		dst = append(dst, Token{ID: c.id, LogProb: float32(float64(c.x) - top - logMass)})
	}
	return dst, nil
}
