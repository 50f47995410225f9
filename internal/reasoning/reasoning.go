// Package reasoning parts the thoughts of a model from its answer.
//
// Models that think write their thoughts between <think> and </think> at the beginning of an
// answer. Some templates write the first mark into the prompt, so that the answer begins within
// the thoughts. A Splitter is given the text as it is generated; it holds back only what may turn
// out to be part of a mark, and the white space around marks, which belongs to neither part.
//
// It keeps no more than what it holds back, is for one answer and for one goroutine.
package reasoning

import "strings"

// The marks around thoughts.
const (
	Open  = "<think>"
	Close = "</think>"
)

const blank = " \t\r\n"

// Known reports whether a chat template, in Jinja, knows of thoughts.
func Known(template string) bool {
	return strings.Contains(template, Open) || strings.Contains(template, Close)
}

type state uint8

const (
	undecided state = iota // only white space, or the beginning of a mark, so far
	opened                 // behind the first mark, before the thoughts
	thinking
	closed // behind the thoughts, before the answer
	over
)

// Splitter parts one answer. Make it with New.
type Splitter struct {
	state state
	held  string
}

// New returns a splitter for the answer to a prompt, which may have begun the thoughts.
func New(prompt string) *Splitter {
	if strings.HasSuffix(strings.TrimRight(prompt, blank), Open) {
		return &Splitter{state: opened}
	}
	return &Splitter{}
}

// Thinking reports whether the answer is within the thoughts.
func (s *Splitter) Thinking() bool { return s.state == opened || s.state == thinking }

// Push takes the next text of the answer and returns what is new of either part.
func (s *Splitter) Push(text string) (thoughts, answer string) {
	s.held += text
	if s.state == undecided && !s.decide() {
		return "", ""
	}
	if s.state == opened && s.skipBlank() {
		s.state = thinking
	}
	if s.state == thinking {
		before, after, done := strings.Cut(s.held, Close)
		if !done {
			// White space is held too: that at the end belongs to the mark.
			keep := len(strings.TrimRight(s.held[:len(s.held)-overlap(s.held, Close)], blank))
			thoughts, s.held = s.held[:keep], s.held[keep:]
			return thoughts, ""
		}
		thoughts, s.held = strings.TrimRight(before, blank), after
		s.state = closed
	}
	if s.state == closed && s.skipBlank() {
		s.state = over
	}
	if s.state == over {
		answer, s.held = s.held, ""
	}
	return thoughts, answer
}

// decide finds out whether the answer begins with thoughts, and reports false as long as that
// is open.
func (s *Splitter) decide() bool {
	rest := strings.TrimLeft(s.held, blank)
	switch {
	case strings.HasPrefix(rest, Open):
		s.held, s.state = rest[len(Open):], opened
	case strings.HasPrefix(Open, rest):
		return false
	default:
		s.state = over
	}
	return true
}

// skipBlank drops white space and reports whether anything else is there.
func (s *Splitter) skipBlank() bool {
	s.held = strings.TrimLeft(s.held, blank)
	return s.held != ""
}

// Finish ends the answer and returns what was held.
func (s *Splitter) Finish() (thoughts, answer string) {
	held := s.held
	s.held = ""
	if s.Thinking() {
		return held, ""
	}
	return "", held
}

// overlap is the length of the longest end of text that mark begins with.
func overlap(text, mark string) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}
