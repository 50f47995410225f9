// Viz serves a page that shows a model at work: the graph of its forward pass, live while it
// generates, with the time and the values of every node, what each head attends to, and what the
// model would say if its layers ended earlier:
//
//	viz -m MODEL.gguf
//	viz -m MODEL-Q8_0.gguf -against MODEL-Q4_0.gguf
//	viz -open run.trace
//
// A second run along the same tokens stands beside the first: without fused operations, of another
// file, or on other devices. What is shown can be saved as a trace, and a trace that was saved, or
// written by minfer.WithTrace, opens in the same page.
//
// # How it is made
//
// The model is observed by a trace.Recorder whose records go to the page as they come, as lines of
// JSON in server-sent events. The logit lens is an observer of its own (lens.go), which keeps the
// residual stream and asks minfer.Model.Head what it says.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/minfer/minfer"
	_ "github.com/minfer/minfer/examples/devices" // GPUs, by tag
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run is the program, and returns what it exits with. It ends with its context.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	s := &settings{}
	f := s.flags()
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, "usage: viz [flags]\n\n")
		f.SetOutput(stderr)
		f.PrintDefaults()
		return 0
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("%q is left over; -h lists the flags", f.Arg(0))
	}
	if err == nil {
		err = s.serve(ctx, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "viz:", strings.TrimPrefix(err.Error(), "minfer: "))
		return 1
	}
	return 0
}

// settings are the command line.
type settings struct {
	model           string
	backends        string
	against         string
	againstBackends string
	open            string
	addr            string
	context         int
}

func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("viz", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.model, "m", "", "`path` of the model; without one, the storyteller that is part of this program")
	f.StringVar(&s.backends, "backends", "", "devices, the preferred first, such as `cuda,cpu`")
	f.StringVar(&s.against, "against", "", "`path` of a second model to compare with, such as another quantisation")
	f.StringVar(&s.againstBackends, "against-backends", "", "`devices` to compare with")
	f.StringVar(&s.open, "open", "", "`trace` to show at the start")
	f.StringVar(&s.addr, "addr", "127.0.0.1:8090", "`address` to serve the page on")
	f.IntVar(&s.context, "ctx", 1024, "`tokens` that a run can have, prompt and answer together")
	return f
}

// serve serves the page until the context ends.
func (s *settings) serve(ctx context.Context, stderr io.Writer) (err error) {
	v, err := newViewer(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	web := &http.Server{
		Handler:           v.handler(listener.Addr()),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	if v.cut != nil {
		fmt.Fprintf(stderr, "viz: %v; what comes before is shown\n", v.cut)
	}
	fmt.Fprintf(stderr, "%s is shown on http://%s\n", v.models[0].title, listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if web.Shutdown(patience) != nil {
		return web.Close()
	}
	return nil
}

// options are those by which a model is opened.
func options(backends string, more ...minfer.Option) []minfer.Option {
	if backends != "" {
		more = append(more, minfer.WithBackends(strings.Split(backends, ",")...))
	}
	return more
}
