//go:build unix || windows

package main

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"
)

// TestKeys reads what terminals send: line breaks within a message are told from its end.
func TestKeys(t *testing.T) {
	for typed, want := range map[string]string{
		"plain\r":             "plain\r",
		"\x1b[A\x1b[1;5C\x1b": "\x1b[A\x1b[1;5C\x1b",
		"one\x1b\rtwo\r":      "one⏎two\r",
		"\x1b[200~one\r\ntwo\nthree\r\x1b[201~\r": "one⏎two⏎three⏎\r",
		"\x1b[200~\x1b[A\x1b[201~\x1b[A":          "\x1b[A\x1b[A",
		"é🙂":                                      "é🙂",
	} {
		for name, r := range map[string]io.Reader{
			"at once": bytes.NewReader([]byte(typed)), "by halves": iotest.HalfReader(bytes.NewReader([]byte(typed))),
		} {
			got, err := io.ReadAll(iotest.OneByteReader(&keys{r: r}))
			if err != nil || string(got) != want {
				t.Errorf("%q %s: %q, %v, want %q", typed, name, got, err, want)
			}
		}
	}
}

// TestCursorIsNotAsked: a terminal that never answers where its cursor is keeps nobody waiting.
func TestCursorIsNotAsked(t *testing.T) {
	var out bytes.Buffer
	k := &keys{r: bytes.NewReader([]byte("x"))}
	c := &cursorAnswerer{&out, k}
	if n, err := c.Write([]byte("a\x1b[6nb")); n != 6 || err != nil || out.String() != "ab" {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
	if got, err := io.ReadAll(k); err != nil || string(got) != "\x1b[1;1Rx" {
		t.Errorf("%q, %v", got, err)
	}
}
