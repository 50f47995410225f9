// Package arch turns a model file into a definition of its forward pass.
//
// A [Definition] knows its hyperparameters and builds graphs. It is made by a
// constructor that is registered under the name that files carry in
// general.architecture; the packages below this one register theirs when imported, and
// so may a package of any other module.
//
// # Writing one
//
// A constructor reads hyperparameters and weights through a [Reader], which collects
// everything that is missing or wrong and reports it all at once:
//
//	r := arch.NewReader(f)
//	m := &model{Hyperparameters: r.Hyperparameters()}
//	m.embedding = r.Weight("token_embd.weight", m.Embedding, m.Vocab)
//	...
//	return m, r.Err()
//
// Build then lists the operations. What transformers have in common is there as
// blocks: [DeclareInputs], [Attention], [GatedFFN], [Head], and for the form that most
// of them share as a whole, [Decoder]. A definition reads like the figure of the paper:
// see arch/qwen3.
//
// # Rules for Build
//
// The graph must be a function of the parameters alone, so Build may not consult
// anything else that changes. Fused operations may be built only where Params.Fusion
// says so. Weights are referred to by name and must exist in the file.
//
// # Errors and concurrency
//
// A file of an architecture that is not registered is an [*UnknownError], which lists
// those that are; one that lacks what its architecture needs is an [*InvalidError] with
// all faults. Sizes from the file are bounded before anything is made of them. The registry
// and definitions are safe for concurrent use, a Reader is not.
package arch

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
	"golang.org/x/exp/maps"
	"golang.org/x/exp/slices"
)

// Definition is a model architecture with the hyperparameters of one file. It is
// immutable, and so safe for concurrent use.
type Definition interface {
	// Build appends the forward pass to b, for the parameters p. The logits
	// [vocabulary p.Outputs] must be the only output or, if p.Result says so, the
	// activations [embedding p.Outputs] that they are projected from. Head does either.
	Build(b *graph.Builder, p graph.Params) error
	// Hyperparameters returns the numbers that the engine needs to know.
	Hyperparameters() Hyperparameters
}

// Hyperparameters are the sizes of a transformer.
type Hyperparameters struct {
	Layers        int
	Embedding     int // features of the residual stream
	FFN           int // features inside the feed-forward block
	Heads         int // query heads
	KVHeads       int // key and value heads
	HeadDim       int // features of a head
	Vocab         int // rows of logits
	ContextLength int // positions that the model was trained for
	Window        int // positions that attention sees; 0 is all
	NormEps       float32
	// RoPE has everything but the number of heads.
	RoPE graph.RoPE
}

// KVWidth is the number of features of a row of keys or of values.
func (h Hyperparameters) KVWidth() int { return h.KVHeads * h.HeadDim }

// Constructor makes a definition from a model file. It checks the presence and the shape
// of every tensor and says what is missing or wrong, all of it at once.
type Constructor func(f *gguf.File) (Definition, error)

var registry struct {
	sync.RWMutex
	constructors map[string]Constructor
}

// Register makes an architecture known under the name that files carry. It panics if
// the name is empty or taken, or the constructor nil.
func Register(name string, construct Constructor) {
	registry.Lock()
	defer registry.Unlock()
	if name == "" || construct == nil {
		panic("arch: Register: name or constructor is missing")
	}
	if _, taken := registry.constructors[name]; taken {
		panic(fmt.Sprintf("arch: Register: %q is taken", name))
	}
	if registry.constructors == nil {
		registry.constructors = make(map[string]Constructor)
	}
	registry.constructors[name] = construct
}

// Names lists the registered architectures in alphabetical order.
func Names() []string {
	registry.RLock()
	defer registry.RUnlock()
	names := maps.Keys(registry.constructors)
	slices.Sort(names)
	return names
}

// Errors of Open. Both come with details: an *UnknownError or an *InvalidError.
var (
	// ErrUnknown: no constructor is registered for the file's architecture.
	ErrUnknown = errors.New("unknown architecture")
	// ErrInvalid: the file lacks something its architecture needs, or has it wrong.
	ErrInvalid = errors.New("model file does not fit its architecture")
)

// UnknownError names an architecture that is not registered, and those that are.
type UnknownError struct {
	Name  string
	Known []string
}

// Error lists the known architectures.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("arch: unknown architecture %q (known: %s)", e.Name, strings.Join(e.Known, ", "))
}

// Unwrap returns ErrUnknown.
func (e *UnknownError) Unwrap() error { return ErrUnknown }

// Open makes the definition that a model file asks for by general.architecture. It
// returns an *UnknownError, or what the constructor returns.
func Open(f *gguf.File) (Definition, error) {
	name, err := f.Architecture()
	if err != nil {
		return nil, fmt.Errorf("arch: %w", err)
	}
	registry.RLock()
	construct := registry.constructors[name]
	registry.RUnlock()
	if construct == nil {
		return nil, &UnknownError{Name: name, Known: Names()}
	}
	return construct(f)
}
