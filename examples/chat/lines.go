package main

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// The prompts of the first and the further lines of a message.
const (
	firstPrompt = "> "
	nextPrompt  = ". "
)

// errInterrupted: Ctrl+C was pressed at the prompt.
var errInterrupted = errors.New("interrupted")

// lineReader is where messages come from.
type lineReader interface {
	// ReadLine returns the next line without its end. The error is errInterrupted or
	// io.EOF, or what reading met.
	ReadLine(prompt string) (string, error)
	// Interactive reports whether somebody sits at a terminal.
	Interactive() bool
	Close() error
}

// newLines edits lines if both ends are a terminal, and reads them plainly if not.
func newLines(stdin io.Reader, stdout, stderr io.Writer, notes *notes) lineReader {
	interactive := isTerminal(stdin) && isTerminal(stderr)
	if interactive {
		if lines, ok := newEditor(notes); ok {
			return lines
		}
	}
	return &plainLines{r: bufio.NewReader(stdin), notes: notes, interactive: interactive}
}

// plainLines reads lines as they come.
type plainLines struct {
	r           *bufio.Reader
	notes       *notes
	interactive bool
}

func (p *plainLines) ReadLine(prompt string) (string, error) {
	if p.interactive {
		io.WriteString(p.notes.w, p.notes.prompt(prompt))
	}
	line, err := p.r.ReadString('\n')
	if line == "" {
		return "", err
	}
	// A last line need not have an end.
	line = strings.TrimSuffix(line, "\n")
	return strings.TrimSuffix(line, "\r"), nil
}

func (p *plainLines) Interactive() bool { return p.interactive }

func (p *plainLines) Close() error { return nil }
