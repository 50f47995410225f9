package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/minfer/minfer"
	_ "github.com/minfer/minfer/examples/devices" // GPUs, by tag
	"github.com/minfer/minfer/examples/storyteller"
)

// settings are the command line.
type settings struct {
	model     string // path, or "" for the storyteller
	name      string // under which the model is served
	addr      string
	apiKey    string
	origins   string // of browsers' pages that may use the API
	template  string // path, or "" for the model's own
	backends  string
	threads   int
	context   int // of each slot; 0 for the library's default
	batch     int
	batching  bool
	slots     int
	queue     int
	maxTokens int // 0 for no limit
	maxBody   int64
	grace     time.Duration // for answers under way when the server is to end
	patience  time.Duration // with clients that do not read or write
	verbose   bool
	sampling  minfer.Sampling
}

var errHelp = flag.ErrHelp

// envKey supplies the default of -api-key, since other users of a machine can see command lines.
const envKey = "MINFER_API_KEY"

// flags declares the command line. Sampling is checked by the library, so that its rules
// are in one place.
func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("server", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.model, "m", "", "`model`: the path of a GGUF file, hf:OWNER/REPO:FILE or ollama:NAME:TAG to download, or the name of one that was downloaded; the embedded storyteller if left out")
	f.StringVar(&s.name, "name", "", "`name` of the model for clients; that of its file if left out")
	f.StringVar(&s.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	f.StringVar(&s.apiKey, "api-key", os.Getenv(envKey), "`key` that requests have to bear; "+envKey+" if left out")
	f.StringVar(&s.origins, "cors", "", "`origins` of web pages that may use the API, separated by commas; * is any")
	f.StringVar(&s.template, "template", "", "`file` with a chat template to use instead of the model's")
	f.StringVar(&s.backends, "backends", "", "devices, the preferred first, such as `cuda,cpu`")
	f.IntVar(&s.threads, "threads", 0, "worker `threads`; 0 is one per processor")
	f.IntVar(&s.context, "ctx", 0, "`tokens` that a conversation can hold; 0 is 4096 or what the model was trained for")
	f.IntVar(&s.batch, "batch", 256, "`tokens` of a prompt that are evaluated at once; fewer let other answers go on sooner")
	f.BoolVar(&s.batching, "batching", true, "evaluate the tokens of concurrent answers together")
	f.IntVar(&s.slots, "slots", 4, "`requests` that are answered at the same time")
	f.IntVar(&s.queue, "queue", 64, "`requests` that may wait")
	f.IntVar(&s.maxTokens, "n", 0, "most `tokens` of an answer to a request that sets no limit; 0 is no limit")
	f.Int64Var(&s.maxBody, "max-body", 4<<20, "most `bytes` of a request")
	f.DurationVar(&s.grace, "grace", 10*time.Second, "`time` for answers under way when the server is interrupted")
	f.DurationVar(&s.patience, "patience", 30*time.Second, "`time` for a client to send its request, or to read a piece of an answer")
	f.BoolVar(&s.verbose, "v", false, "log every request")
	s.sampling = minfer.DefaultSampling()
	float32Var(f, &s.sampling.Temperature, "temp", "temperature; 0 always takes the likeliest token")
	f.IntVar(&s.sampling.TopK, "top-k", s.sampling.TopK, "keep the `k` likeliest tokens; 0 keeps all")
	float32Var(f, &s.sampling.TopP, "top-p", "keep the likeliest tokens up to this mass")
	float32Var(f, &s.sampling.MinP, "min-p", "keep tokens at least this much as likely as the best")
	return f
}

// float32Var declares a flag for a float32 that has its default already.
func float32Var(f *flag.FlagSet, p *float32, name, usage string) {
	f.Func(name, fmt.Sprintf("%s, where a request says nothing (default %v)", usage, *p), func(v string) error {
		x, err := strconv.ParseFloat(v, 32)
		*p = float32(x)
		return err
	})
}

func parseSettings(args []string) (*settings, error) {
	s := &settings{}
	f := s.flags()
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag", f.Arg(0))
	}
	return s, s.validate()
}

func (s *settings) validate() error {
	var errs []error
	atLeast := func(name string, n, low int64) {
		if n < low {
			errs = append(errs, fmt.Errorf("-%s %d: want %d or more", name, n, low))
		}
	}
	atLeast("slots", int64(s.slots), 1)
	atLeast("queue", int64(s.queue), 0)
	atLeast("n", int64(s.maxTokens), 0)
	atLeast("ctx", int64(s.context), 0)
	atLeast("max-body", s.maxBody, 1)
	if s.slots > maxSlots {
		errs = append(errs, fmt.Errorf("-slots %d: want at most %d", s.slots, maxSlots))
	}
	if s.grace < 0 || s.patience <= 0 {
		errs = append(errs, errors.New("-grace and -patience: want a time"))
	}
	return errors.Join(errs...)
}

const maxSlots = 1024

// usageText is what -h prints.
func usageText() string {
	var b strings.Builder
	b.WriteString("usage: server [flags]\n\nServes a model as the OpenAI API, and a page to chat with it.\n\n")
	s := &settings{}
	f := s.flags()
	f.SetOutput(&b)
	f.Lookup("api-key").DefValue = "" // a secret
	f.PrintDefaults()
	return b.String()
}

func (s *settings) level() slog.Level {
	if s.verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// open opens the model, which may have to be downloaded first.
func (s *settings) open(log *slog.Logger) (*minfer.Model, error) {
	options := []minfer.Option{minfer.WithThreads(s.threads)}
	if s.backends != "" {
		options = append(options, minfer.WithBackends(strings.Split(s.backends, ",")...))
	}
	if s.template != "" {
		source, err := os.ReadFile(s.template)
		if err != nil {
			return nil, err
		}
		options = append(options, minfer.WithChatTemplate(string(source)))
	}
	if s.model == "" {
		return minfer.OpenBytes(storyteller.Model, options...)
	}
	shown := int64(-1)
	path, err := minfer.Fetch(context.Background(), s.model, minfer.WithFetchProgress(func(p minfer.FetchProgress) {
		if tenth := p.Done * 10 / max(p.Total, 1); tenth != shown {
			shown = tenth
			log.Info("downloading", "file", p.File, "bytes", p.Done, "of", p.Total)
		}
	}))
	if err != nil {
		return nil, err
	}
	s.model = path
	return minfer.Open(path, options...)
}

// modelID is the name under which the model is served.
func (s *settings) modelID() string {
	switch {
	case s.name != "":
		return s.name
	case s.model == "":
		return "storyteller"
	}
	return strings.TrimSuffix(filepath.Base(s.model), ".gguf")
}
