package minfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/arch"
	_ "github.com/minfer/minfer/arch/llama"
	_ "github.com/minfer/minfer/arch/qwen2"
	_ "github.com/minfer/minfer/arch/qwen3"
	_ "github.com/minfer/minfer/backend/cpu"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/chattemplate"
	"github.com/minfer/minfer/internal/tokenizer"
	"github.com/minfer/minfer/internal/toolcall"
)

// Token is the number of a token in the model's vocabulary.
type Token = int32

// Tokenizer turns text into tokens and back. It is safe for concurrent use.
type Tokenizer = tokenizer.Tokenizer

// EncodeOptions say what the tokens of a text are to contain besides the text.
type EncodeOptions = tokenizer.EncodeOptions

// DecodeOptions say how tokens are rendered.
type DecodeOptions = tokenizer.DecodeOptions

// Model is an open model: weights on their devices, the tokenizer, the definition of the
// forward pass. It is safe for concurrent use. Sessions are made from it.
type Model struct {
	file      *gguf.File
	def       arch.Definition
	hyper     arch.Hyperparameters
	tokenizer *tokenizer.Tokenizer
	grammars  *grammars
	engine    *engine
	info      Info

	templateSource string
	template       func() (*chattemplate.Template, error) // parsed once
	fingerprint    func() ([sha256.Size]byte, error)      // computed once

	closers   []io.Closer // of what Close ends: traces
	closeOnce sync.Once
	closeErr  error
}

// Open opens a GGUF model file, or the first part of a split one. The file is mapped
// into memory and has to stay as it is until Close.
//
// It returns an error that wraps ErrNotGGUF, ErrUnknownArchitecture, ErrInvalidModel,
// ErrUnsupportedTensor, one of the reasons why a device cannot be had, or ErrOption.
func Open(path string, opts ...Option) (*Model, error) {
	return open(opts, func(c *config) (*gguf.File, error) {
		if !c.mmap {
			return gguf.Open(path, gguf.WithoutMmap())
		}
		return gguf.Open(path)
	})
}

// OpenReader opens a model of size bytes from r. The weights are read into memory.
func OpenReader(r io.ReaderAt, size int64, opts ...Option) (*Model, error) {
	return open(opts, func(*config) (*gguf.File, error) { return gguf.NewReader(r, size) })
}

// OpenBytes opens a model that lies in memory, such as one embedded in the program. The
// bytes are used where they are and must not be changed until Close.
func OpenBytes(b []byte, opts ...Option) (*Model, error) {
	return open(opts, func(*config) (*gguf.File, error) { return gguf.NewBytes(b) })
}

func open(opts []Option, openFile func(*config) (*gguf.File, error)) (_ *Model, err error) {
	defer recovered(&err, "opening the file")
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	f, err := openFile(c)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	m, err := newModel(f, c)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := m.logOpened(time.Since(begun)); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func newModel(f *gguf.File, c *config) (_ *Model, err error) {
	defer recovered(&err, "opening the model")
	def, err := arch.Open(f)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	m := &Model{file: f, def: def, hyper: def.Hyperparameters()}
	m.fingerprint = sync.OnceValues(func() ([sha256.Size]byte, error) { return fingerprint(f) })
	if err := m.findTemplate(c); err != nil {
		return nil, err
	}
	if err := m.load(c); err != nil {
		return nil, err
	}
	m.info = m.readInfo()
	if err := m.startObservers(c); err != nil {
		return nil, errors.Join(err, m.engine.close())
	}
	return m, nil
}

// load opens the devices and loads the weights, and beside that reads the vocabulary. An error
// of either ends both; that of the vocabulary counts.
func (m *Model) load(c *config) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	vocabulary := make(chan error, 1)
	go func() {
		err := m.readVocabulary()
		if err != nil {
			cancel()
		}
		vocabulary <- err
	}()
	var err error
	m.engine, err = newEngine(ctx, m.file, m.def, c)
	failed := <-vocabulary
	if failed == nil && err == nil {
		m.engine.vocab = m.tokenizer.VocabSize()
	}
	if failed != nil {
		if err == nil {
			err = m.engine.close()
		}
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return errors.Join(failed, err)
	}
	return err
}

func (m *Model) readVocabulary() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recovered(&err, "reading the vocabulary")
	if m.tokenizer, err = NewTokenizer(m.file); err != nil {
		return err
	}
	if n := m.tokenizer.VocabSize(); n > m.hyper.Vocab {
		return fmt.Errorf("minfer: the tokenizer has %d tokens and the model only %d logits: %w", n, m.hyper.Vocab, ErrInvalidModel)
	}
	// By the source: to users, and so to ToolFormat, there is no model before load has ended.
	m.grammars = newGrammars(m.tokenizer, toolcall.Detect(m.templateSource).Marks())
	return nil
}

// findTemplate notes the chat template, to be parsed when it is first used.
func (m *Model) findTemplate(c *config) error {
	m.templateSource = c.chatTemplate
	if m.templateSource == "" {
		source, err := m.file.String("tokenizer.chat_template")
		if err != nil && !errors.Is(err, gguf.ErrMissingKey) {
			return fmt.Errorf("minfer: %w", err)
		}
		m.templateSource = source
	}
	m.template = sync.OnceValues(func() (*chattemplate.Template, error) {
		if m.templateSource == "" {
			return nil, ErrNoChatTemplate
		}
		t, err := chattemplate.Parse(m.templateSource)
		if err != nil {
			return nil, fmt.Errorf("minfer: chat template: %w", err)
		}
		return t, nil
	})
	return nil
}

// Close waits for what is being evaluated to stop at its next operation, then frees the
// weights, the devices and the file. Sessions of the model return ErrClosed from then
// on. It is safe to call at any time and more than once.
func (m *Model) Close() error {
	if m.none() {
		return nil
	}
	m.closeOnce.Do(func() {
		m.closeErr = errors.Join(m.engine.close(), m.file.Close())
		for _, c := range m.closers {
			m.closeErr = errors.Join(m.closeErr, c.Close())
		}
	})
	return m.closeErr
}

// none reports whether there is no model at all: m is nil or a zero value. That is treated as a
// model that is closed.
func (m *Model) none() bool { return m == nil || m.engine == nil }

// devices returns the engine, or nil, which is a closed one.
func (m *Model) devices() *engine {
	if m == nil {
		return nil
	}
	return m.engine
}

// NewTokenizer makes the tokenizer that a file describes, without opening the model: to
// count tokens, or to look into files whose weights cannot be used here.
//
// An error that wraps ErrUnsupportedTokenizer says that the file asks for a tokenizer that
// this library does not have.
func NewTokenizer(f *gguf.File) (*Tokenizer, error) {
	t, err := tokenizer.FromMetadata(f)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	return t, nil
}

// Tokenizer returns the model's tokenizer.
func (m *Model) Tokenizer() *Tokenizer {
	if m.none() {
		return nil
	}
	return m.tokenizer
}

// ChatTemplate returns the source of the chat template, or "" if there is none.
func (m *Model) ChatTemplate() string {
	if m.none() {
		return ""
	}
	return m.templateSource
}

// Info is what a model says about itself.
type Info struct {
	Name          string // as the file's author wrote it; may be empty
	Architecture  string // such as "qwen3"
	Parameters    uint64 // weights, all tensors together
	Bytes         uint64 // size of all tensors
	Vocab         int    // tokens
	ContextLength int    // tokens that the model was trained for
	Embedding     int    // features of an activation
	Layers        int
	Devices       []string // in the order of preference
}

// Info returns what the model says about itself, also after Close.
func (m *Model) Info() Info {
	if m.none() {
		return Info{}
	}
	info := m.info
	info.Devices = slices.Clone(info.Devices)
	return info
}

func (m *Model) readInfo() Info {
	info := Info{
		Vocab:         m.tokenizer.VocabSize(),
		ContextLength: m.hyper.ContextLength,
		Embedding:     m.hyper.Embedding,
		Layers:        m.hyper.Layers,
		Devices:       m.engine.deviceNames(),
	}
	// A file may lack a name, and always has an architecture by now.
	info.Name, _ = m.file.String("general.name")
	info.Architecture, _ = m.file.Architecture()
	for _, t := range m.file.Tensors() {
		info.Parameters += t.Elements()
		info.Bytes += t.Size
	}
	return info
}

// Graph returns the graph of a forward pass as it would run: assigned to devices and
// with the rewrites applied. Cells of p are rounded up to what a cache would have; zero
// fields of p are filled in with what a session would use. Of p, Tokens, Outputs, Cells,
// ExplicitSpan, Mode, Result and Top are looked at.
func (m *Model) Graph(p graph.Params) (*graph.Graph, error) {
	if p.Tokens > maxCells || p.Cells > maxCells {
		return nil, optionErrorf("Graph", "%d tokens and %d cells, want at most %d", p.Tokens, p.Cells, maxCells)
	}
	if err := m.devices().enter(context.Background()); err != nil {
		return nil, err
	}
	defer m.engine.leave()
	full := m.engine.params(max(p.Tokens, 1), max(p.Outputs, 1), p.Cells)
	full.ExplicitSpan, full.Mode, full.Result, full.Top = p.ExplicitSpan, p.Mode, p.Result, p.Top
	return m.engine.build(full)
}
