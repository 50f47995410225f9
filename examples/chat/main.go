// Chat talks with a language model on the terminal, or answers one question:
//
//	chat -m MODEL.gguf
//	chat -m MODEL.gguf "Write one sentence about the sea."
//	chat -m hf:OWNER/REPO:FILE.gguf
//
// Without -m it starts on the storyteller, a 3 MB model that is embedded in the program.
// Answers go to the standard output and everything else to the standard error, so that
// answers can be piped on. If the standard input is no terminal, every line of it is a
// message or a command.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/minfer/minfer"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// exitInterrupted is what a program that ended by Ctrl+C exits with: 128 and the signal's number.
const exitInterrupted = 130

// run is the program, and returns what it exits with.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	notes := newNotes(stderr)
	s, err := parseSettings(args)
	switch {
	case errors.Is(err, errHelp):
		fmt.Fprint(stderr, usage())
		return 0
	case err != nil:
		return fail(stderr, err)
	}
	c, err := openConversation(s, stdout, notes)
	if errors.Is(err, context.Canceled) {
		fail(stderr, err)
		return exitInterrupted
	}
	if err != nil {
		return fail(stderr, err)
	}
	defer c.close()
	if s.prompt == "" {
		err = c.converse(newLines(stdin, stdout, stderr, notes))
	} else {
		err = c.ask(s.prompt)
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if err != nil {
		return fail(stderr, err)
	}
	return 0
}

func fail(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "chat:", short(err))
	return 1
}

// short is an error without the name of the library, which means nothing to the user.
func short(err error) string { return strings.TrimPrefix(err.Error(), "minfer: ") }

// explain puts an error in terms of this program where the library's are not.
func explain(err error) error {
	var file *fs.PathError
	var fetching *minfer.FetchError
	switch {
	case errors.As(err, &fetching):
		return err // it says all, and its files are those of the cache
	case errors.As(err, &file):
		return fmt.Errorf("cannot read %s: %w", file.Path, file.Err)
	case errors.Is(err, minfer.ErrNoChatTemplate):
		return errors.New("the model has no chat template, so it is not made for conversation; take an instruct model, or give a template with -template FILE")
	}
	return err
}
