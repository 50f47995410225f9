// Customdevice runs a model on a device that is not part of minfer: package relay, which
// hands work to a computer out of the host's reach. Importing that package is all it
// takes; the device is then chosen by its name. It has only some of the operations, so
// minfer cuts the graph into runs of one device each, and copies values between them.
//
//	go run ./examples/customdevice
//	go run ./examples/customdevice -backends relay,cpu -m model.gguf "What is the sea?"
//
// The answer is the same to the last bit on all devices.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/customdevice/relay" // registers the device
	"github.com/minfer/minfer/examples/storyteller"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

func main() {
	model := flag.String("m", "", "model file (default: a small one that is built in)")
	backends := flag.String("backends", "relay,cpu", "devices, the preferred first")
	limit := flag.Int("n", 60, "length of the answer in tokens")
	flag.Parse()
	prompt := strings.Join(flag.Args(), " ")
	if prompt == "" {
		prompt = "What is 3 + 4?"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *model, strings.Split(*backends, ","), prompt, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "customdevice:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, path string, backends []string, prompt string, limit int) (err error) {
	m, err := openModel(path, minfer.WithBackends(backends...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	g, err := m.Graph(graph.Params{Tokens: 1})
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "Where a step of one token runs, and what crosses:")
	if err := sched.WriteTrace(w, g); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n> %s\n", prompt)
	if err := answer(ctx, w, m, prompt, limit); err != nil {
		return err
	}
	t := relay.Default.Traffic()
	_, err = fmt.Fprintf(w, "\nThe relay ran %d operations. %d bytes went to it, %d came back to the host and %d to other devices.\n",
		t.Nodes, t.Written, t.Read, t.Copied)
	return err
}

func openModel(path string, opts ...minfer.Option) (*minfer.Model, error) {
	if path == "" {
		return minfer.OpenBytes(storyteller.Model, opts...)
	}
	return minfer.Open(path, opts...)
}

func answer(ctx context.Context, w io.Writer, m *minfer.Model, prompt string, limit int) (err error) {
	s, err := m.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for piece, err := range s.Chat().Say(ctx, prompt, minfer.MaxTokens(limit), minfer.Temperature(0)) {
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, piece.Text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(w)
	return err
}
