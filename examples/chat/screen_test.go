package main

import (
	"bytes"
	"strings"
	"testing"
)

// terminal is what a terminal of so many columns shows of a text, with the sequences that screen
// uses, and a line that goes on at its edge broken by a "\\".
type terminal struct {
	columns int
	lines   [][]rune
	x       int
}

func (m *terminal) show(text string) {
	if m.lines == nil {
		m.lines = [][]rune{nil}
	}
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		last := &m.lines[len(m.lines)-1]
		switch r := runes[i]; {
		case r == '\n':
			m.lines, m.x = append(m.lines, nil), 0
		case r == '\x1b' && runes[i+1] == '[':
			n := 0
			for i += 2; '0' <= runes[i] && runes[i] <= '9'; i++ {
				n = n*10 + int(runes[i]-'0')
			}
			switch runes[i] {
			case 'D':
				m.x -= n
			case 'K':
				*last = (*last)[:m.x]
			}
		default:
			if m.x == m.columns {
				*last = append(*last, '\\')
				m.lines, m.x = append(m.lines, nil), 0
				last = &m.lines[len(m.lines)-1]
			}
			*last = append((*last)[:m.x], r)
			m.x++
		}
	}
}

func (m *terminal) text() string {
	var lines []string
	for _, l := range m.lines {
		lines = append(lines, strings.TrimRight(string(l), " "))
	}
	return strings.Join(lines, "\n")
}

// TestWrapping shows texts on a terminal, in pieces of all sizes.
func TestWrapping(t *testing.T) {
	for _, c := range []struct {
		text, want string
		columns    int
	}{
		{"There once was a fox", "There once\nwas a fox", 12},
		{"There once was a fox", "There once was\na fox", 16},
		{"abcdefghijklmnop qr", "abcdefg\nhijklmn\nop qr", 8},
		{"to abcdefghijklmnop", "to\nabcdefg\nhijklmn\nop", 8},
		{"one\n\n  two three", "one\n\n  two\nthree", 8},
		{"a b\nc", "a b\nc", 80},
		{"it is so, that", "it is\nso,\nthat", 7},
	} {
		for size := 1; size <= len(c.text); size++ {
			var out bytes.Buffer
			s := &screen{w: &out, columns: func() int { return c.columns }}
			m := &terminal{columns: c.columns}
			for i := 0; i < len(c.text); i += size {
				if err := s.write(c.text[i:min(i+size, len(c.text))]); err != nil {
					t.Fatal(err)
				}
			}
			m.show(out.String())
			if got := m.text(); got != c.want {
				t.Errorf("%q in pieces of %d on %d columns:\n%s\nwant\n%s", c.text, size, c.columns, got, c.want)
			}
		}
	}
	var out bytes.Buffer
	s := &screen{w: &out, columns: func() int { return 7 }}
	if s.write("你好你好 你好é\x1b[2J"); out.String() != "你好你\n好 你\n好é[2J" {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	s = newScreen(&out)
	if s.write("no terminal \x1b, no breaks"); out.String() != "no terminal \x1b, no breaks" || s.end() != nil || !strings.HasSuffix(out.String(), "breaks\n") {
		t.Errorf("%q", out.String())
	}
}

func TestStatus(t *testing.T) {
	var out bytes.Buffer
	s := &status{notes: &notes{w: &out}, columns: func() int { return 20 }}
	s.begin()
	s.show("too soon")
	s.painted = s.painted.Add(-repaint)
	s.show("reading: %d of %s", 5, tokens(1000))
	s.clear()
	s.clear()
	if got := out.String(); got != "\r\x1b[Kreading: 5 of 1000 \r\x1b[K" {
		t.Errorf("%q", got)
	}
}

// TestFoldedThoughts: a line while they come, a line when they are over, and all of them on demand.
func TestFoldedThoughts(t *testing.T) {
	var out bytes.Buffer
	n := &notes{w: &out}
	th := &thoughts{notes: n, status: &status{notes: n, columns: func() int { return 40 }}, folded: true}
	th.begin()
	th.end()
	for _, word := range []string{"Hm,", " what", "\nnow?"} {
		th.status.painted = th.status.painted.Add(-repaint)
		th.add(word)
	}
	th.end()
	th.end()
	got := strings.ReplaceAll(out.String(), "\r\x1b[K", "|")
	if !strings.HasPrefix(got, "|thinking, 1 token: …Hm,") || !strings.HasSuffix(got, "|[thought for 0.0 s, 3 tokens; /thoughts shows them, /fold lets them be seen]\n") {
		t.Errorf("%q", got)
	}
	if th.text.String() != "Hm, what\nnow?" {
		t.Errorf("%q", th.text.String())
	}
}
