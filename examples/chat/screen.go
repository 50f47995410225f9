package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// screen is where the answer goes. On a terminal, words that do not fit at its edge go to the next
// line, and text that could steer the terminal is taken out.
type screen struct {
	w       io.Writer
	columns func() int // of the terminal; nil if there is none
	style   string     // escape sequence of the words, or ""

	at   int    // column that the next character goes to
	word string // that has begun and may have to move
	wide int    // its columns
	last byte   // that was written, or 0
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.columns = func() int {
			columns, _, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0
			}
			return columns
		}
	}
	return s
}

// write shows a further part of a text.
func (s *screen) write(text string) error {
	if s.columns != nil {
		text = s.wrap(harmless(text), s.columns()-1) // the last column is never used: terminals differ in what comes of it
		if s.style != "" && text != "" {
			text = s.style + text + "\x1b[0m"
		}
	}
	if text == "" {
		return nil
	}
	s.last = text[len(text)-1]
	_, err := io.WriteString(s.w, text)
	return err
}

// end ends the line, if anything is on it.
func (s *screen) end() error {
	if s.last == 0 || s.last == '\n' {
		return nil
	}
	s.at, s.word, s.wide, s.last = 0, "", 0, '\n'
	_, err := io.WriteString(s.w, "\n")
	return err
}

// wrap returns what shows the text in so many columns. A word that has been shown in part and does
// not fit is wiped out and begins again on the next line.
func (s *screen) wrap(text string, columns int) string {
	if columns < 2 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		n := cells(r, s.at)
		switch {
		case r == '\n':
			s.at, s.word, s.wide = 0, "", 0
			b.WriteByte('\n')
			continue
		case s.at+n <= columns:
		case unicode.IsSpace(r):
			s.at, s.word, s.wide = 0, "", 0
			b.WriteByte('\n')
			continue
		case s.word == "" || s.wide+n > columns || n == 2:
			b.WriteByte('\n') // a word of its own, or one that no line can hold
			s.at, s.word, s.wide = 0, "", 0
		default:
			fmt.Fprintf(&b, "\x1b[%dD\x1b[K\n%s", s.wide, s.word)
			s.at = s.wide
		}
		b.WriteRune(r)
		s.at += n
		if unicode.IsSpace(r) || n == 2 { // scripts with wide characters break anywhere
			s.word, s.wide = "", 0
		} else {
			s.word, s.wide = s.word+string(r), s.wide+n
		}
	}
	return b.String()
}

// cells is how many columns a character takes that comes at a column.
func cells(r rune, at int) int {
	switch {
	case r == '\t':
		return 8 - at%8
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// harmless is text without the control characters by which a terminal is steered: a model
// may say anything.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// status is a line that says what goes on, painted over again and again and wiped out in the end.
// Where nobody watches it is not shown.
type status struct {
	notes   *notes
	columns func() int // nil if it is not shown
	painted time.Time
	shown   bool
}

func newStatus(notes *notes) *status {
	s := &status{notes: notes}
	if f, ok := notes.w.(*os.File); ok && isTerminal(notes.w) && os.Getenv("TERM") != "dumb" {
		s.columns = func() int {
			columns, _, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 80
			}
			return columns
		}
	}
	return s
}

// begin has nothing shown of what takes but a moment.
func (s *status) begin() { s.painted = time.Now() }

// show paints the line, cut to the terminal's width, unless it was painted just now.
func (s *status) show(format string, args ...any) {
	if s.columns == nil || time.Since(s.painted) < repaint {
		return
	}
	s.painted, s.shown = time.Now(), true
	text, room := []rune(fmt.Sprintf(format, args...)), s.columns()-1
	for i, r := range text {
		if room -= cells(r, 0); room < 0 {
			text = text[:i]
			break
		}
	}
	io.WriteString(s.notes.w, "\r\x1b[K")
	s.notes.write(string(text))
}

// clear wipes the line out.
func (s *status) clear() {
	if s.shown {
		io.WriteString(s.notes.w, "\r\x1b[K")
		s.shown = false
	}
}
