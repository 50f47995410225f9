package sampling

import "math"

// candidate is a token that is still in the race.
type candidate struct {
	id int32
	x  float32 // its logit
	w  float64 // its probability, up to the common factor Sampler.mass
}

// shape leaves in s.cands the tokens that survive truncation, by ascending id
// and with the weights to draw by. best is the id of the greatest logit.
func (s *Sampler) shape(row []float32, best int32) {
	s.gather(row, best)
	s.truncate(row[best])
}

// truncate is what comes after gather. Top is the greatest logit.
func (s *Sampler) truncate(top float32) {
	p := &s.params
	if p.TypicalP < 1 {
		s.typical(float64(p.TypicalP), top)
	}
	if p.TopP < 1 {
		s.topP(float64(p.TopP))
	}
	if p.MinP > 0 {
		s.minP(p.MinP)
	}
	if p.XTC.active() {
		s.xtc(float64(p.XTC.Probability), float64(p.XTC.Threshold))
	}
	s.heat(float64(p.Temperature))
}

// gather makes the candidates that enter truncation, with weights relative to
// the best logit. Where the first active stage is going to drop most of the
// vocabulary, what it certainly drops is left out at once.
func (s *Sampler) gather(row []float32, best int32) {
	p := &s.params
	top := row[best]
	switch {
	case p.TopK > 0 && p.TopK < len(row):
		s.topK(row, p.TopK)
		s.weigh(top)
	case p.TypicalP < 1:
		s.above(row, negInf)
		s.weigh(top)
	case p.TopP < 1:
		mass, floor := nucleus(row, top, float64(p.TopP))
		s.above(row, lowered(top, floor))
		s.weigh(top)
		s.mass = mass
	case p.MinP > 0:
		s.above(row, lowered(top, logarithm(float64(p.MinP))))
		s.weigh(top)
	default:
		s.above(row, negInf)
		s.weigh(top)
	}
}

// lowered is a logit certainly not above top+d, for d of at most 0.
func lowered(top float32, d float64) float32 {
	if math.IsInf(d, -1) {
		return negInf
	}
	x := float64(top) + d
	slack := 1e-6 * max(1, abs(x), abs(float64(top)))
	return bounded(x - float64(slack))
}

// above gathers the tokens with finite logits of at least floor.
func (s *Sampler) above(row []float32, floor float32) {
	s.cands = s.cands[:0]
	for i, x := range row {
		if x >= floor && x > negInf {
			s.cands = append(s.cands, candidate{id: int32(i), x: x})
		}
	}
}

// weigh sets the weights by the logits' distance from top, and their sum.
func (s *Sampler) weigh(top float32) {
	s.exponentiate(top, 1)
	s.top, s.mass = top, 0
	for i := range s.cands {
		s.mass += s.cands[i].w
	}
}

// exponentiate sets the weights to exp((x-top)/t). Two loops, for the reason
// that distances gives.
func (s *Sampler) exponentiate(top float32, t float64) {
	for i := range s.cands {
		c := &s.cands[i]
		c.w = float64(c.x) - float64(top)
	}
	for i := range s.cands {
		c := &s.cands[i]
		c.w = exponential(c.w / t)
	}
}

// heat sets the weights at temperature t. The reference is the best of the
// candidates that are left: XTC may have removed the best of all.
func (s *Sampler) heat(t float64) {
	top := negInf
	for i := range s.cands {
		top = max(top, s.cands[i].x)
	}
	if t == 1 && top == s.top {
		return // the weights are those already
	}
	s.exponentiate(top, t)
}

// heapLimit is the K up to which a heap beats partitioning the vocabulary.
const heapLimit = 8192

// topK gathers the k greatest logits, lower ids first among equals.
func (s *Sampler) topK(row []float32, k int) {
	if k <= heapLimit {
		s.cands = heapTop(s.cands[:0], row, k)
		sortByID(s.cands)
		return
	}
	s.above(row, negInf)
	if len(s.cands) <= k {
		return
	}
	s.keepPrefix(float64(k), func(c *candidate) (key, w float64) { return -float64(c.x), 1 })
}

// topP keeps the smallest set of likeliest tokens whose probability reaches p.
func (s *Sampler) topP(p float64) {
	s.keepPrefix(float64(p*s.mass), func(c *candidate) (key, w float64) { return -float64(c.x), c.w })
}

// typical keeps the smallest set of tokens whose probability reaches p, those
// first whose surprise is nearest to the expected one, the entropy.
func (s *Sampler) typical(p float64, top float32) {
	logMass := logarithm(s.mass)
	var entropy float64
	for i := range s.cands {
		c := &s.cands[i]
		surprise := logMass - (float64(c.x) - float64(top))
		if c.w > 0 {
			entropy += float64(c.w/s.mass) * surprise
		}
	}
	s.keepPrefix(float64(p*s.mass), func(c *candidate) (key, w float64) {
		surprise := logMass - (float64(c.x) - float64(top))
		return abs(surprise - entropy), c.w
	})
}

// keepPrefix ranks the candidates by ascending key, then id, keeps the
// shortest prefix whose weights reach target, at least one, and restores the
// order of ids.
func (s *Sampler) keepPrefix(target float64, rank func(*candidate) (key, w float64)) {
	s.ranked = s.ranked[:0]
	for i := range s.cands {
		key, w := rank(&s.cands[i])
		s.ranked = append(s.ranked, ranked{key: key, w: w, id: s.cands[i].id})
	}
	last := prefixEnd(s.ranked, target)
	kept := s.cands[:0]
	s.mass = 0
	for i := range s.cands {
		c := s.cands[i]
		key, _ := rank(&s.cands[i])
		if r := (ranked{key: key, id: c.id}); !last.before(r) {
			kept = append(kept, c)
			s.mass += c.w
		}
	}
	s.cands = kept
}

// minP keeps the tokens at least p times as likely as the likeliest.
func (s *Sampler) minP(p float32) {
	var best float64
	for i := range s.cands {
		best = max(best, s.cands[i].w)
	}
	s.keepHeavier(float64(float64(p) * best))
}

// keepHeavier keeps the tokens of at least the weight w.
func (s *Sampler) keepHeavier(w float64) {
	kept := s.cands[:0]
	s.mass = 0
	for _, c := range s.cands {
		if c.w >= w {
			kept = append(kept, c)
			s.mass += c.w
		}
	}
	s.cands = kept
}

// xtc removes, with the given chance, all tokens of at least the threshold
// probability but the least likely of them; of equally likely ones the highest
// id stays, being last in rank. It uses one random number, whatever the outcome.
func (s *Sampler) xtc(chance, threshold float64) {
	if s.uniform() >= chance {
		return
	}
	line := float64(threshold * s.mass)
	var least *candidate
	count := 0
	for i := range s.cands {
		c := &s.cands[i]
		if c.w < line {
			continue
		}
		count++
		if least == nil || c.x <= least.x {
			least = c
		}
	}
	if count < 2 {
		return
	}
	stays := least.id
	kept := s.cands[:0]
	s.mass = 0
	for _, c := range s.cands {
		if c.w < line || c.id == stays {
			kept = append(kept, c)
			s.mass += c.w
		}
	}
	s.cands = kept
}

// mirostat draws a token by version 2 of the algorithm: tokens more surprising
// than mu are out, and mu moves so that the surprise of what is drawn tends to
// tau. Surprise is measured under the distribution before truncation.
func (s *Sampler) mirostat(row []float32, best int32) int32 {
	m := s.params.Mirostat
	t, top := float64(s.params.Temperature), row[best]
	logMass := logarithm(sumExp(row, top, t))
	surprise := func(x float32) float64 {
		return (logMass - (float64(x)-float64(top))/t) / ln2
	}
	s.cands, s.top = s.cands[:0], negInf
	for i, x := range row {
		if x > negInf && (surprise(x) <= s.mu || int32(i) == best) {
			s.cands = append(s.cands, candidate{id: int32(i), x: x})
		}
	}
	s.heat(t)
	id := s.draw()
	s.mu -= float64(float64(m.Eta) * (surprise(row[id]) - float64(m.Tau)))
	return id
}

func abs(x float64) float64 { return max(x, -x) }
