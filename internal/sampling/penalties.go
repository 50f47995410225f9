package sampling

// window is the last n tokens of the history; n < 0 means all.
func (s *Sampler) window(n int) []int32 {
	if n < 0 || n > len(s.history) {
		return s.history
	}
	return s.history[len(s.history)-n:]
}

// tallies returns one zero per vocabulary entry. Whoever counts in it sets it
// back to zero.
func (s *Sampler) tallies() []int32 {
	if s.tally == nil {
		s.tally = make([]int32, s.vocab)
	}
	return s.tally
}

func (s *Sampler) known(id int32) bool { return id >= 0 && int(id) < s.vocab }

// penalize applies repetition, frequency and presence penalties: each token of
// the window once, knowing how often it occurs.
func (s *Sampler) penalize(row []float32) {
	p := s.params.Penalties
	repeat, frequency, presence := float64(p.Repeat), float64(p.Frequency), float64(p.Presence)
	window, count := s.window(p.LastN), s.tallies()
	for _, id := range window {
		if s.known(id) {
			count[id]++
		}
	}
	for _, id := range window {
		if !s.known(id) || count[id] == 0 {
			continue
		}
		n := float64(count[id])
		count[id] = 0
		x := float64(row[id])
		// Dividing a negative logit would make the token likelier.
		if x > 0 {
			x /= repeat
		} else {
			x = float64(x * repeat)
		}
		row[id] = bounded(x - float64(n*frequency) - presence)
	}
}

// noteBreakers follows the breakers through the text of one more token.
func (s *Sampler) noteBreakers(id int32) {
	if !s.params.DRY.active() {
		return
	}
	broken := false
	if len(s.breaks) > 0 {
		text := s.text(id)
		for i, p := range s.breaks {
			state := s.breakState[i]
			for j := 0; j < len(text); j++ {
				var complete bool
				state, complete = p.Step(state, text[j])
				broken = broken || complete
			}
			s.breakState[i] = state
		}
	}
	s.broken = append(s.broken, broken)
}

// penalizeRepetition applies DRY. For every earlier position whose preceding
// tokens equal the end of the history, the token that followed there would
// repeat the sequence; it is penalised by the longest such match.
func (s *Sampler) penalizeRepetition(row []float32) {
	d := s.params.DRY
	window := s.window(d.LastN)
	broken := s.broken[len(s.history)-len(window):]
	limit := unbroken(broken)
	if limit < d.AllowedLength {
		return
	}
	s.match = suffixMatches(s.match, window)
	longest := s.tallies()
	// match[i] belongs to the sequence that ends i tokens before the end, so the
	// token after it is i-1 before the end.
	for i := 1; i < len(window); i++ {
		next := len(window) - i
		n := min(int(s.match[i]), limit)
		if id := window[next]; n >= d.AllowedLength && s.known(id) && !broken[next] {
			longest[id] = max(longest[id], int32(n))
		}
	}
	for _, id := range window {
		if !s.known(id) || longest[id] == 0 {
			continue
		}
		excess := int(longest[id]) - d.AllowedLength
		longest[id] = 0
		penalty := float64(float64(d.Multiplier) * power(float64(d.Base), excess))
		if !(penalty <= maxPenalty) {
			penalty = maxPenalty
		}
		row[id] = bounded(float64(row[id]) - penalty)
	}
}

// maxPenalty outweighs any finite logit; larger ones would only overflow.
const maxPenalty = 1e39

// unbroken is the number of tokens after the last one that a breaker ends in.
func unbroken(broken []bool) int {
	n := 0
	for n < len(broken) && !broken[len(broken)-1-n] {
		n++
	}
	return n
}

// suffixMatches returns, for every i, how many tokens the whole sequence and
// the sequence without its last i tokens have in common at their ends. It is
// the Z function of the reversed sequence and takes linear time. dst is reused.
func suffixMatches(dst, tokens []int32) []int32 {
	n := len(tokens)
	z := append(dst[:0], tokens...) // for its length; every entry is overwritten
	at := func(i int) int32 { return tokens[n-1-i] }
	if n > 0 {
		z[0] = int32(n)
	}
	// [left, right) is the match found so far that reaches farthest.
	for i, left, right := 1, 0, 0; i < n; i++ {
		k := 0
		if i < right {
			k = min(right-i, int(z[i-left]))
		}
		for i+k < n && at(k) == at(i+k) {
			k++
		}
		if i+k > right {
			left, right = i, i+k
		}
		z[i] = int32(k)
	}
	return z
}

// power is base to the power of n >= 0 by repeated squaring: the same bits
// everywhere, which math.Pow does not promise.
func power(base float64, n int) float64 {
	result := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = float64(result * base)
		}
		base = float64(base * base)
	}
	return result
}
