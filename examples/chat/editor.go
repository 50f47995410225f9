//go:build unix || windows

package main

import (
	"errors"
	"io"
	"os"

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
		return nil, false // it cannot tell where its cursor is, which the editor would wait for
	}
	r, err := readline.NewFromConfig(&readline.Config{Stdout: os.Stderr, InterruptPrompt: "\n", EOFPrompt: "\n"})
	if err != nil {
		return nil, false
	}
	return &editor{readline: r, notes: notes}, true
}

func (e *editor) ReadLine(prompt string) (string, error) {
	e.readline.SetPrompt(e.notes.prompt(prompt))
	line, err := e.readline.ReadLine()
	if !errors.Is(err, readline.ErrInterrupt) {
		e.interrupted = false
		return line, err
	}
	if e.interrupted {
		return "", io.EOF
	}
	e.interrupted = true
	e.notes.say("[Ctrl+C again or Ctrl+D to leave]")
	return "", errInterrupted
}

func (e *editor) Interactive() bool { return true }

func (e *editor) Close() error { return e.readline.Close() }
