package stop

// Pattern is the Knuth-Morris-Pratt automaton of one string. It is immutable,
// so any number of streams may share it, each keeping its own state: the number
// of bytes of the string that the text so far ends in.
type Pattern struct {
	text string
	// border[n] is the length of the longest proper prefix of text[:n] that is
	// also its suffix: where matching resumes after n matched bytes.
	border []int32
}

// Compile builds the automaton of text, which must not be empty.
func Compile(text string) Pattern {
	border := make([]int32, len(text)+1)
	p := Pattern{text: text, border: border}
	for n := 1; n < len(text); n++ {
		state, _ := p.Step(int(border[n]), text[n])
		border[n+1] = int32(state)
	}
	return p
}

// String is the string that the pattern matches.
func (p Pattern) String() string { return p.text }

// Step moves from state over the byte b. It returns the next state, and
// whether the pattern has just become complete; matching may go on from there,
// overlapping occurrences included. The first state is 0.
func (p Pattern) Step(state int, b byte) (next int, complete bool) {
	if state == len(p.text) {
		state = int(p.border[state])
	}
	for state > 0 && p.text[state] != b {
		state = int(p.border[state])
	}
	if p.text[state] == b {
		state++
	}
	return state, state == len(p.text)
}
