package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"github.com/minfer/minfer"
	_ "github.com/minfer/minfer/examples/devices" // GPUs, by tag
	"github.com/minfer/minfer/examples/storyteller"
	"github.com/minfer/minfer/graph"
)

// settings are the command line.
type settings struct {
	model     string // what minfer.Fetch takes, or "" for the storyteller
	prompt    string // "" for a conversation
	system    string
	session   string // path of the saved conversation, or ""
	fold      bool   // thoughts are folded
	template  string // path, or "" for the model's own
	backends  string
	threads   int
	context   int // 0 for the library's default
	maxTokens int // 0 for no limit
	kv        string
	think     bool
	thinkSet  bool
	sampling  minfer.Sampling
}

var errHelp = flag.ErrHelp

// defaultSampling keeps small models to the point and still gives another answer each time.
func defaultSampling() minfer.Sampling {
	p := minfer.DefaultSampling()
	p.Temperature = 0.5
	p.Seed = rand.Uint64()
	return p
}

// flags declares the command line. Sampling is checked by the library, so that its rules
// are in one place.
func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("chat", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.model, "m", "", "`model`: a GGUF file, hf:OWNER/REPO:FILE.gguf, ollama:NAME:TAG or an https address to download it from, or the name of one downloaded before; the embedded storyteller if left out")
	f.StringVar(&s.system, "system", "", "system `message`")
	f.StringVar(&s.session, "session", "", "`file` that the conversation is kept in: it goes on where it was left")
	f.BoolVar(&s.fold, "fold", true, "show of the model's thoughts only that there are some")
	f.StringVar(&s.template, "template", "", "`file` with a chat template to use instead of the model's")
	f.StringVar(&s.backends, "backends", "", "devices, the preferred first, such as `cuda,cpu`")
	f.IntVar(&s.threads, "threads", 0, "worker `threads`; 0 is one per processor")
	f.IntVar(&s.context, "ctx", 0, "`tokens` that the conversation can hold; 0 is 4096 or what the model was trained for")
	f.IntVar(&s.maxTokens, "n", 0, "most `tokens` of an answer; 0 is no limit")
	f.StringVar(&s.kv, "kv", "f16", "`type` of the key and value cache: f16 or f32")
	f.BoolVar(&s.think, "think", false, "switch the reasoning of models that can on, or off with -think=false")
	s.sampling = defaultSampling()
	float32Var(f, &s.sampling.Temperature, "temp", "temperature; 0 always takes the likeliest token")
	f.IntVar(&s.sampling.TopK, "top-k", s.sampling.TopK, "keep the `k` likeliest tokens; 0 keeps all")
	float32Var(f, &s.sampling.TopP, "top-p", "keep the likeliest tokens up to this mass")
	float32Var(f, &s.sampling.MinP, "min-p", "keep tokens at least this much as likely as the best")
	f.Func("seed", "`number` that makes answers repeatable; random if left out", func(v string) (err error) {
		s.sampling.Seed, err = strconv.ParseUint(v, 10, 64)
		return err
	})
	return f
}

// float32Var declares a flag for a float32 that has its default already.
func float32Var(f *flag.FlagSet, p *float32, name, usage string) {
	f.Func(name, fmt.Sprintf("%s (default %v)", usage, *p), func(v string) error {
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
	f.Visit(func(set *flag.Flag) { s.thinkSet = s.thinkSet || set.Name == "think" })
	for _, arg := range f.Args() {
		if name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "="); strings.HasPrefix(arg, "-") && f.Lookup(name) != nil {
			return nil, fmt.Errorf("%s comes after the question; flags go before it", arg)
		}
	}
	s.prompt = strings.Join(f.Args(), " ")
	if f.NArg() > 0 && strings.TrimSpace(s.prompt) == "" {
		return nil, errors.New("the question is empty")
	}
	if s.maxTokens < 0 {
		return nil, fmt.Errorf("-n %d: want 1 or more, or 0 for no limit", s.maxTokens)
	}
	if s.kv != "f16" && s.kv != "f32" {
		return nil, fmt.Errorf("-kv %s: want f16 or f32", s.kv)
	}
	return s, nil
}

// usage is what -h prints.
func usage() string {
	var b strings.Builder
	b.WriteString("usage: chat [flags] [question]\n\nWith a question, chat prints the answer. Without, it is a conversation.\n\n")
	s := &settings{}
	f := s.flags()
	f.SetOutput(&b)
	f.PrintDefaults()
	return b.String()
}

// open opens the model, after downloading it if need be.
func (s *settings) open(notes *notes) (*minfer.Model, error) {
	options := []minfer.Option{minfer.WithThreads(s.threads)}
	if s.kv == "f32" {
		options = append(options, minfer.WithKVType(graph.F32))
	}
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
	path, err := download(s.model, notes)
	if err != nil {
		return nil, err
	}
	return minfer.Open(path, options...)
}

// room is how many tokens are kept free for an answer.
func (s *settings) room(info minfer.Info) int {
	context := s.context
	if context == 0 {
		context = min(minfer.DefaultContext, info.ContextLength)
	}
	if s.maxTokens > 0 {
		return min(s.maxTokens, context/4)
	}
	return context / 4
}

func (s *settings) sessionOptions() []minfer.SessionOption {
	if s.context == 0 {
		return nil
	}
	return []minfer.SessionOption{minfer.WithContext(s.context)}
}

func (s *settings) chatOptions() []minfer.ChatOption {
	options := []minfer.ChatOption{minfer.System(s.system)}
	if s.thinkSet {
		variables := json.RawMessage(fmt.Sprintf(`{"enable_thinking": %t}`, s.think))
		options = append(options, minfer.TemplateVariables(variables))
	}
	return options
}
