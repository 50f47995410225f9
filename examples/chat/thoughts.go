package main

import (
	"strings"
	"time"
)

// thoughts are those of the last answer. Folded, they are a line that says how far they are, and what
// is left of them is how long they took; unfolded, they are shown as they come, dim. Where notes go
// to no terminal they are always shown.
type thoughts struct {
	notes  *notes
	status *status
	folded bool

	text   strings.Builder
	begun  time.Time
	tokens int
	screen *screen // nil before the first thought, and behind the last
}

// begin forgets the thoughts of the answer before.
func (t *thoughts) begin() {
	t.text.Reset()
	t.tokens, t.screen = 0, nil
}

// add takes a further part.
func (t *thoughts) add(text string) {
	if t.screen == nil {
		t.begun = time.Now()
		t.screen = newScreen(t.notes.w)
		if t.notes.colour {
			t.screen.style = dim
		}
	}
	t.tokens++
	t.text.WriteString(text)
	if t.hidden() {
		all := strings.Join(strings.Fields(harmless(t.text.String())), " ")
		t.status.show("thinking, %s: …%s", tokens(t.tokens), tail(all, 60))
		return
	}
	t.screen.write(text) // what cannot be noted cannot be helped
}

// end ends them, if there are any: the answer begins.
func (t *thoughts) end() {
	if t.screen == nil {
		return
	}
	if t.hidden() {
		t.status.clear()
		t.notes.say("[thought for %.1f s, %s; /thoughts shows them, /fold lets them be seen]", time.Since(t.begun).Seconds(), tokens(t.tokens))
	} else {
		t.screen.end()
		t.notes.say("")
	}
	t.screen = nil
}

// hidden reports whether the thoughts are a line only.
func (t *thoughts) hidden() bool { return t.folded && t.status.columns != nil }

// tail is the last n characters of a text.
func tail(text string, n int) string {
	runes := []rune(text)
	return string(runes[max(0, len(runes)-n):])
}
