// Server serves a language model over HTTP as the OpenAI API, for the clients that programs
// have already, and a page to chat with it in a browser:
//
//	server
//	server -m MODEL.gguf -addr 0.0.0.0:8080 -api-key SECRET
//
// Without -m it serves the storyteller, a 3 MB model that is embedded in the program.
//
// # What it serves
//
//	POST /v1/chat/completions   answers in conversations, with tools, streamed or not
//	POST /v1/completions        continuations of texts
//	POST /v1/embeddings         vectors for texts
//	GET  /v1/models             the model
//	GET  /health                200 when it can answer
//	GET  /metrics               counters, for Prometheus
//	GET  /                      a page to chat
//
// # How requests share the model
//
// There are -slots sessions on one cache. A request gets the one that already holds the most of
// its prompt, so that a conversation that goes on costs only what is new. Requests that are
// answered at the same time are evaluated together. More requests than slots wait in line, up to
// -queue of them; a client that goes away, in line or in the middle of its answer, costs nothing
// from then on.
//
// An answer is a function of the request alone, not of what was answered before or at the same
// time: equal requests with equal seeds have equal answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stderr)) }

// run is the program, and returns what it exits with. It ends by a signal or with its context.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	settings, err := parseSettings(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(stderr, usageText())
		return 0
	}
	if err == nil {
		err = serve(ctx, settings, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "server:", strings.TrimPrefix(err.Error(), "minfer: "))
		return 1
	}
	return 0
}

// serve serves until it is interrupted. It then turns new requests away and gives those under
// way some time; a second interrupt ends that time.
func serve(ctx context.Context, settings *settings, stderr io.Writer) (err error) {
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: settings.level()}))
	s, err := newServer(settings, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	listener, err := net.Listen("tcp", settings.addr)
	if err != nil {
		return err
	}
	requests, abort := context.WithCancel(context.Background())
	defer abort()
	web := &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	fmt.Fprintf(stderr, "%s is served on http://%s\n", s.modelID, listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop()
	log.Info("shutting down")
	return s.shutdown(web, abort)
}

// shutdown lets the answers under way end. After the time for that, or at an interrupt, they
// are cut off.
func (s *server) shutdown(web *http.Server, abort context.CancelFunc) error {
	s.pool.drain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, s.settings.grace)
	defer cancel()
	if web.Shutdown(ctx) == nil {
		return nil
	}
	abort()
	ctx, cancel = context.WithTimeout(context.Background(), s.settings.patience)
	defer cancel()
	if err := web.Shutdown(ctx); err != nil {
		return errors.Join(err, web.Close())
	}
	return nil
}
