package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/minfer/minfer"
)

// notes is where everything but answers goes. They are dim where that can be shown.
type notes struct {
	w      io.Writer
	colour bool
}

const dim = "\x1b[2m"

func newNotes(stderr io.Writer) *notes {
	return &notes{w: stderr, colour: isTerminal(stderr) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (n *notes) say(format string, args ...any) {
	s := newScreen(n.w)
	if n.colour {
		s.style = dim
	}
	s.write(fmt.Sprintf(format, args...) + "\n") // what cannot be noted cannot be helped
}

func (n *notes) write(text string) {
	if n.colour {
		text = dim + text + "\x1b[0m"
	}
	fmt.Fprint(n.w, text)
}

// prompt is a prompt in bold where that can be shown.
func (n *notes) prompt(text string) string {
	if n.colour {
		return "\x1b[1m" + text + "\x1b[0m"
	}
	return text
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func row(b *strings.Builder, name, format string, args ...any) {
	fmt.Fprintf(b, "%-9s ", name)
	fmt.Fprintf(b, format+"\n", args...)
}

// speed describes what an answer took.
func speed(u minfer.Usage) string {
	kept := ""
	if u.Cached > 0 {
		kept = fmt.Sprintf(" (and %d kept)", u.Cached)
	}
	// The first token comes from the evaluation of the prompt.
	return fmt.Sprintf("prompt: %s%s, %s; answer: %s, %s",
		tokens(u.Prompt), kept, rate(u.Prompt, u.PromptTime), tokens(u.Generated), rate(u.Generated-1, u.GenerateTime))
}

// tokens is a number of tokens in words.
func tokens(n int) string { return counted(n, "token", "tokens") }

// counted is a number of things in words.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func rate(tokens int, d time.Duration) string {
	if tokens <= 0 || d <= 0 {
		return "- tokens/s"
	}
	return fmt.Sprintf("%.1f tokens/s", float64(tokens)/d.Seconds())
}

// count is a large number, rounded: 135 M.
func count(n uint64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f B", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

// size is a number of bytes, rounded.
func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
