//go:build unix || windows

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/ergochat/readline"
)

// editor reads lines that can be edited, with a history.
type editor struct {
	readline    *readline.Instance
	notes       *notes
	interrupted bool // by the last key
}

// newEditor begins editing on the terminal. It fails on terminals that cannot do it.
func newEditor(notes *notes) (lineReader, bool) {
	if os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	keys := &keys{r: os.Stdin}
	r, err := readline.NewFromConfig(&readline.Config{
		Stdin: keys, Stdout: &cursorAnswerer{os.Stderr, keys}, InterruptPrompt: "\n", EOFPrompt: "\n",
	})
	if err != nil {
		return nil, false
	}
	io.WriteString(os.Stderr, pasteOn)
	return &editor{readline: r, notes: notes}, true
}

func (e *editor) ReadLine(prompt string) (string, error) {
	e.readline.SetPrompt(e.notes.prompt(prompt))
	line, err := e.readline.ReadLine()
	if !errors.Is(err, readline.ErrInterrupt) {
		e.interrupted = false
		return strings.ReplaceAll(line, newLine, "\n"), err
	}
	if e.interrupted {
		return "", io.EOF
	}
	e.interrupted = true
	e.notes.say("[Ctrl+C again or Ctrl+D to leave]")
	return "", errInterrupted
}

func (e *editor) Interactive() bool { return true }

func (e *editor) Close() error {
	io.WriteString(os.Stderr, pasteOff)
	return e.readline.Close()
}

// What terminals send and are sent (xterm's control sequences).
const (
	pasteOn, pasteOff      = "\x1b[?2004h", "\x1b[?2004l"
	pasteBegins, pasteEnds = "\x1b[200~", "\x1b[201~"
	altEnter               = "\x1b\r"
	askCursor              = "\x1b[6n"
	cursorAtLineStart      = "\x1b[1;1R"
)

// newLine stands for a line break within the line that is edited.
const newLine = "⏎"

// cursorAnswerer answers the editor's question where the cursor is: at the beginning of a line, since
// all that is written ends with one. Some terminals never answer, and the editor would wait for ever.
type cursorAnswerer struct {
	w    io.Writer
	keys *keys
}

func (c *cursorAnswerer) Write(p []byte) (int, error) {
	rest := bytes.ReplaceAll(p, []byte(askCursor), nil)
	for range (len(p) - len(rest)) / len(askCursor) {
		c.keys.put(cursorAtLineStart)
	}
	if n, err := c.w.Write(rest); err != nil {
		return min(n, len(p)), err
	}
	return len(p), nil
}

// keys is what is typed. Line breaks in what is pasted, and those by Alt+Enter, become newLine.
type keys struct {
	r io.Reader

	mu     sync.Mutex // guards what follows
	ready  []byte     // to be given out
	held   []byte     // the beginning of a sequence
	pasted bool       // what comes is
}

// put has text read next.
func (k *keys) put(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready = append(k.ready, text...)
}

// Read gives out at least a byte.
func (k *keys) Read(p []byte) (int, error) {
	for {
		if n := k.take(p); n > 0 {
			return n, nil
		}
		typed := make([]byte, 1024)
		n, err := k.r.Read(typed)
		k.translate(typed[:n])
		if err != nil {
			return k.take(p), err
		}
	}
}

func (k *keys) take(p []byte) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := copy(p, k.ready)
	k.ready = k.ready[n:]
	return n
}

func (k *keys) translate(typed []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	typed = append(k.held, typed...)
	k.held = nil
	for len(typed) > 0 {
		switch {
		case bytes.HasPrefix(typed, []byte(pasteBegins)):
			k.pasted, typed = true, typed[len(pasteBegins):]
		case bytes.HasPrefix(typed, []byte(pasteEnds)):
			k.pasted, typed = false, typed[len(pasteEnds):]
		case bytes.HasPrefix(typed, []byte(altEnter)):
			k.ready, typed = append(k.ready, newLine...), typed[len(altEnter):]
		case k.pasted && (typed[0] == '\r' || typed[0] == '\n'):
			k.ready = append(k.ready, newLine...)
			typed = bytes.TrimPrefix(typed[1:], []byte("\n"))
		case len(typed) > 1 && (strings.HasPrefix(pasteBegins, string(typed)) || strings.HasPrefix(pasteEnds, string(typed))):
			k.held = bytes.Clone(typed) // it goes on in the next read
			return
		default:
			k.ready, typed = append(k.ready, typed[0]), typed[1:]
		}
	}
}
