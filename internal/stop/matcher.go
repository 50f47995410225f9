package stop

import (
	"errors"
	"fmt"

	"golang.org/x/exp/slices"
)

// Limits on what New accepts. Stop strings often come from a request, and each
// one costs time on every byte of output.
const (
	MaxStops  = 64   // number of stop strings
	MaxLength = 4096 // bytes of one stop string
)

// ErrInvalid is matched, by errors.Is, by every error of New.
var ErrInvalid = errors.New("stop: invalid stop strings")

// Error says which stop string New refused and why. It matches ErrInvalid.
type Error struct {
	Index  int    // position in the list; -1 when the list itself is at fault
	Reason string // what is wrong, and what would be right
}

func (e *Error) Error() string {
	if e.Index < 0 {
		return "stop: " + e.Reason
	}
	return fmt.Sprintf("stop: stop string %d: %s", e.Index, e.Reason)
}

// Is reports whether target is ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// Matcher watches one stream of text for stop strings. Not safe for concurrent
// use.
type Matcher struct {
	patterns []Pattern
	states   []int
	held     string // the text's suffix that may be the start of a stop string
	which    string // the stop string found
	stopped  bool
}

// New makes a matcher for the stop strings. An empty list is allowed: the
// matcher then passes everything through. Errors match ErrInvalid and are of
// type *Error.
func New(stops []string) (*Matcher, error) {
	if len(stops) > MaxStops {
		return nil, &Error{Index: -1, Reason: fmt.Sprintf("%d stop strings, at most %d are allowed", len(stops), MaxStops)}
	}
	m := &Matcher{patterns: make([]Pattern, len(stops)), states: make([]int, len(stops))}
	for i, s := range stops {
		switch {
		case s == "":
			return nil, &Error{Index: i, Reason: "empty; it would match everywhere, leave it out instead"}
		case len(s) > MaxLength:
			return nil, &Error{Index: i, Reason: fmt.Sprintf("%d bytes long, at most %d are allowed", len(s), MaxLength)}
		}
		m.patterns[i] = Compile(s)
	}
	return m, nil
}

// Push takes the next piece of text and returns what may be shown now.
//
// When a stop string becomes complete, emit is the rest of the text before it,
// stopped is true and which is that string. The matcher stays stopped: later
// calls emit nothing and report the same string.
func (m *Matcher) Push(text string) (emit string, stopped bool, which string) {
	if m.stopped {
		return "", true, m.which
	}
	for i := 0; i < len(text); i++ {
		found := m.step(text[i])
		if found < 0 {
			continue
		}
		m.stopped, m.which = true, m.patterns[found].text
		emit = m.release(text[:i+1], len(m.which))
		m.held = ""
		return emit, true, m.which
	}
	return m.release(text, m.longest()), false, ""
}

// Flush ends the stream and returns the text still held, which turned out to
// be no stop string. Every byte comes out once: a second Flush returns "", as
// does one after a stop. Text pushed afterwards starts a new search.
func (m *Matcher) Flush() string {
	held := m.held
	m.held = ""
	clear(m.states)
	return held
}

// Held is the text that the matcher holds back at the moment.
func (m *Matcher) Held() string { return m.held }

// Reset forgets all text, so that the matcher can serve another stream.
func (m *Matcher) Reset() {
	m.held, m.which, m.stopped = "", "", false
	clear(m.states)
}

// Clone returns an independent matcher in the same state, for a stream that
// forks.
func (m *Matcher) Clone() *Matcher {
	c := *m
	c.states = slices.Clone(m.states)
	return &c
}

// step feeds one byte to every pattern and returns the index of the winner
// among those that became complete, or -1.
func (m *Matcher) step(b byte) int {
	found := -1
	for i, p := range m.patterns {
		next, complete := p.Step(m.states[i], b)
		m.states[i] = next
		if complete && (found < 0 || len(p.text) > len(m.patterns[found].text)) {
			found = i
		}
	}
	return found
}

// longest is the length of the longest suffix of the text that some stop string
// begins with.
func (m *Matcher) longest() int {
	longest := 0
	for _, state := range m.states {
		longest = max(longest, state)
	}
	return longest
}

// release appends text to what is held, holds back the last keep bytes and
// returns the rest.
func (m *Matcher) release(text string, keep int) string {
	if keep <= len(text) {
		cut := len(text) - keep
		emit := m.held + text[:cut]
		m.held = text[cut:]
		return emit
	}
	// The suffix reaches back into the text held before.
	cut := len(m.held) + len(text) - keep
	emit := m.held[:cut]
	m.held = m.held[cut:] + text
	return emit
}
