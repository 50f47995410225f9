package main

import "strings"

// thinkSplitter parts the reasoning at the beginning of an answer, which models put between
// <think> and </think>, from the answer itself.
type thinkSplitter struct {
	state thinkState
	held  string
}

type thinkState uint8

const (
	thinkUndecided thinkState = iota // only white space, or the beginning of a mark, so far
	thinking
	thinkSpace // behind the reasoning, before the answer
	thinkOver
)

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
	blank      = " \t\r\n"
)

// newThinkSplitter makes a splitter for an answer to a prompt, which may have begun the
// reasoning already.
func newThinkSplitter(prompt string) thinkSplitter {
	if strings.HasSuffix(strings.TrimRight(prompt, blank), thinkOpen) {
		return thinkSplitter{state: thinking}
	}
	return thinkSplitter{}
}

// push takes the next text of the answer.
func (t *thinkSplitter) push(text string) (reasoning, answer string) {
	t.held += text
	if t.state == thinkUndecided {
		rest := strings.TrimLeft(t.held, blank)
		switch {
		case strings.HasPrefix(rest, thinkOpen):
			t.held = rest[len(thinkOpen):]
			t.state = thinking
		case strings.HasPrefix(thinkOpen, rest):
			return "", ""
		default:
			t.state = thinkOver
		}
	}
	if t.state == thinking {
		before, after, closed := strings.Cut(t.held, thinkClose)
		if !closed {
			// White space is held too: that at the end belongs to the mark.
			keep := len(strings.TrimRight(t.held[:len(t.held)-overlap(t.held, thinkClose)], blank))
			reasoning, t.held = t.held[:keep], t.held[keep:]
			return reasoning, ""
		}
		reasoning, t.held = strings.TrimRight(before, blank), after
		t.state = thinkSpace
	}
	if t.state == thinkSpace {
		t.held = strings.TrimLeft(t.held, blank)
		if t.held == "" {
			return reasoning, ""
		}
		t.state = thinkOver
	}
	answer, t.held = t.held, ""
	return reasoning, answer
}

// finish returns what was held when the answer ended.
func (t *thinkSplitter) finish() (reasoning, answer string) {
	held := t.held
	t.held = ""
	if t.state == thinking {
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
