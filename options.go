package minfer

import (
	"io"
	"log/slog"
	"os"
	"strconv"

	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/graph"
)

// Option changes how a model is opened.
type Option func(*config)

// config is what the options of Open add up to.
type config struct {
	backends     []string
	threads      int
	instructions string
	inPlace      bool
	roundFloats  bool
	deviceLayers *int // nil for as many as fit
	mmap         bool
	kvType       graph.DType
	fusion       graph.Fusion
	chatTemplate string
	graphTrace   io.Writer
	progress     func(Progress)
	log          *slog.Logger
	observe      []func(*Model) (Observer, error) // observers from the start
}

// Environment variables that supply defaults. Options have the last word. Beside these,
// backend.EnvBackends names the devices.
const (
	envThreads    = "MINFER_THREADS"
	envGraphTrace = "MINFER_GRAPH_TRACE"
)

// noFusion maps the environment variables that turn a rewrite off, for comparing runs
// with and without it.
var noFusion = map[string]func(*graph.Fusion) *bool{
	"MINFER_NO_FUSE_SWIGLU":    func(f *graph.Fusion) *bool { return &f.SwiGLU },
	"MINFER_NO_FUSE_QKV":       func(f *graph.Fusion) *bool { return &f.QKV },
	"MINFER_NO_FUSE_QKV_NORM":  func(f *graph.Fusion) *bool { return &f.QKVNorm },
	"MINFER_NO_FUSE_QKV_STORE": func(f *graph.Fusion) *bool { return &f.QKVBiasRopeStore },
	"MINFER_NO_FUSE_FFN":       func(f *graph.Fusion) *bool { return &f.FFN },
	"MINFER_NO_FUSE_FFN_DOWN":  func(f *graph.Fusion) *bool { return &f.FFNDown },
}

var allFusion = graph.Fusion{SwiGLU: true, QKV: true, QKVNorm: true, QKVBiasRopeStore: true, FFN: true, FFNDown: true}

func newConfig(opts []Option) (*config, error) {
	c := &config{mmap: true, kvType: graph.F16, fusion: allFusion, log: slog.New(slog.DiscardHandler)}
	if v := os.Getenv(envThreads); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return nil, &OptionError{Option: envThreads, Reason: strconv.Quote(v) + " is no number", Err: err}
		}
		if err := checkThreads(envThreads, n); err != nil {
			return nil, err
		}
		c.threads = n
	}
	if os.Getenv(envGraphTrace) == "1" {
		c.graphTrace = os.Stderr
	}
	for name, field := range noFusion {
		if os.Getenv(name) == "1" {
			*field(&c.fusion) = false
		}
	}
	apply(c, opts)
	return c, c.validate()
}

// apply has options change a configuration. Nil ones change nothing.
func apply[Config any, Option ~func(*Config)](c *Config, opts []Option) {
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
}

// maxThreads bounds the number of worker threads: far above what helps, and far
// below what would hurt.
const maxThreads = 1024

func checkThreads(option string, n int) error {
	if n < 0 || n > maxThreads {
		return optionErrorf(option, "%d threads, want 1 to %d, or 0 for one per processor", n, maxThreads)
	}
	return nil
}

func (c *config) validate() error {
	if err := checkThreads("WithThreads", c.threads); err != nil {
		return err
	}
	if c.kvType != graph.F16 && c.kvType != graph.F32 {
		return optionErrorf("WithKVType", "%v, want F16 or F32", c.kvType)
	}
	if n := c.deviceLayers; n != nil && *n < 0 {
		return optionErrorf("WithDeviceLayers", "%d layers, want 0 or more", *n)
	}
	return nil
}

// WithBackends chooses the devices by name, the preferred first: "cuda", "cpu" or
// "cuda:1". Every operation runs on the first of them that supports it. The default is
// MINFER_BACKENDS or, if that is not set, every device of this build that the machine
// can run.
func WithBackends(names ...string) Option {
	return func(c *config) { c.backends = append([]string(nil), names...) }
}

// WithThreads sets the number of worker threads of the CPU device. The default, 0, is
// MINFER_THREADS or one per processor that the program may use. Results do not depend on it.
func WithThreads(n int) Option { return func(c *config) { c.threads = n } }

// WithInstructions limits the CPU device to an instruction set: "generic" (plain Go), "avx2",
// "avxvnni", "avx512" or "amx" on amd64, "neon" on arm64. The default, "", is the best that the machine
// has, or MINFER_CPU. Results do not depend on it.
func WithInstructions(name string) Option { return func(c *config) { c.instructions = name } }

// WithWeightsInPlace computes from the weights where they lie, mapped from the file, instead of
// from a copy in the order that vector instructions read. A model then opens at once, processes that open the
// same file share its memory, and it may be larger than memory is. Each product brings the weights
// into order as it goes: prompts are read nearly as fast, generation takes several times as long.
func WithWeightsInPlace() Option { return func(c *config) { c.inPlace = true } }

// WithRoundedFloats computes products with weights that the file stores as F32, F16 or BF16 from
// copies in Q8_0, made while the model is opened. They take about half the memory of F16 and are read in about
// half the time, and prompts several times as fast, for about the error that a Q8_0 file has.
func WithRoundedFloats() Option { return func(c *config) { c.roundFloats = true } }

// WithoutMmap reads the model file into memory instead of mapping it.
func WithoutMmap() Option { return func(c *config) { c.mmap = false } }

// WithKVType sets what the key and value cache holds: F16, the default, or F32, which
// takes twice the memory and keeps the last bits.
func WithKVType(t graph.DType) Option { return func(c *config) { c.kvType = t } }

// WithFusion switches fused operations on and off. All are on by default, where the
// device has them. Results do not depend on them.
func WithFusion(f graph.Fusion) Option { return func(c *config) { c.fusion = f } }

// WithChatTemplate replaces the model's chat template by another, in Jinja.
func WithChatTemplate(source string) Option { return func(c *config) { c.chatTemplate = source } }

// WithGraphTrace writes the splits and operation counts of every graph that is built to
// w. MINFER_GRAPH_TRACE=1 does so to standard error.
func WithGraphTrace(w io.Writer) Option { return func(c *config) { c.graphTrace = w } }

// WithLogger has the model say what it does. At level Info: that it was opened, with what and how
// long it took, and what each device runs. At level Debug: each graph that is built, and each
// one that is dropped to make room. Nothing is logged for a token, and no text that passes
// through ever. The default is silence.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.log = l
	}
}

// Progress tells how far something long has come.
type Progress struct {
	Done, Total int64 // bytes of weights
}

// WithProgress has f called, from the goroutine that opens the model, while weights are
// loaded.
func WithProgress(f func(Progress)) Option { return func(c *config) { c.progress = f } }

// SessionOption changes how a session is made.
type SessionOption func(*sessionConfig)

type sessionConfig struct {
	context int
	batch   int
	cache   *GraphCache
}

func newSessionConfig(h arch.Hyperparameters) sessionConfig {
	return sessionConfig{context: min(DefaultContext, h.ContextLength), batch: defaultBatch}
}

// validate checks the settings. A batch never has more tokens than the context.
func (c *sessionConfig) validate(h arch.Hyperparameters) error {
	if c.context < 1 || c.context > h.ContextLength {
		return optionErrorf("WithContext", "%d tokens, want 1 to the %d that the model was trained for", c.context, h.ContextLength)
	}
	if c.batch < 1 {
		return optionErrorf("WithBatch", "%d tokens, want 1 or more", c.batch)
	}
	c.batch = min(c.batch, c.context)
	return nil
}

// DefaultContext is the context of a session that asks for none, unless the model
// was trained for less.
const DefaultContext = 4096

// defaultBatch is how many tokens of a prompt are evaluated at once. It bounds the memory for
// activations and how long a cancelled prompt keeps running.
const defaultBatch = 256

// WithContext sets how many tokens the session can hold, prompt and answer together. It
// may not exceed what the model was trained for. The memory for keys and values is
// reserved when the first token is evaluated.
func WithContext(tokens int) SessionOption { return func(c *sessionConfig) { c.context = tokens } }

// WithBatch sets how many tokens of a prompt are evaluated at once. Results do not
// depend on it; memory for activations and the latency of a cancellation do.
func WithBatch(tokens int) SessionOption { return func(c *sessionConfig) { c.batch = tokens } }

// WithCache puts the session on a cache that it shares with others, instead of one of
// its own.
func WithCache(cache *GraphCache) SessionOption { return func(c *sessionConfig) { c.cache = cache } }
