package minfer

import (
	"errors"
	"fmt"

	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/internal/mmap"
	"github.com/minfer/minfer/internal/sampling"
	"github.com/minfer/minfer/internal/tokenizer"
)

// Errors that callers can test for with errors.Is. Those with details are also a type
// of their own, for errors.As.
var (
	// ErrClosed: the model, session or cache has been closed.
	ErrClosed = errors.New("minfer: closed")
	// ErrBusy: the session is in use by another goroutine.
	ErrBusy = errors.New("minfer: session is in use by another goroutine")
	// ErrContextFull: the tokens do not fit the session's context; a *ContextError.
	ErrContextFull = errors.New("minfer: context is full")
	// ErrCacheFull: a shared cache has no cells left; a *CacheError.
	ErrCacheFull = errors.New("minfer: cache has no free cells")
	// ErrNoTokens: there is nothing to evaluate and nothing was evaluated before.
	ErrNoTokens = errors.New("minfer: no tokens to evaluate")
	// ErrToken: a token id that the model does not have; a *TokenError.
	ErrToken = errors.New("minfer: no such token")
	// ErrOption: an option with a value that makes no sense here; an *OptionError.
	ErrOption = errors.New("minfer: invalid option")
	// ErrNoChatTemplate: the model file carries no chat template and none was given.
	ErrNoChatTemplate = errors.New("minfer: the model has no chat template; give one with WithChatTemplate")
	// ErrSnapshot: a saved session that cannot be restored here; a *SnapshotError.
	ErrSnapshot = errors.New("minfer: saved session cannot be restored")
	// ErrUnsupportedTensor: a tensor of a storage type that no device in play can use;
	// a *TensorError.
	ErrUnsupportedTensor = errors.New("minfer: unsupported tensor type")

	// ErrNotGGUF: the file is no GGUF file.
	ErrNotGGUF = gguf.ErrNotGGUF
	// ErrFault: the file of the model can no longer be read where it is mapped into memory: it was
	// cut short, or its disk failed. If that was noticed while the model was evaluated, it refuses
	// further work with the same error.
	ErrFault = mmap.ErrFault
	// ErrUnknownArchitecture: no definition is registered for the file's architecture.
	ErrUnknownArchitecture = arch.ErrUnknown
	// ErrInvalidModel: the file lacks something that its architecture needs.
	ErrInvalidModel = arch.ErrInvalid
	// ErrUnknownBackend, ErrBackendNotLinked and ErrBackendUnavailable are the three reasons
	// why a device asked for by name cannot be had.
	ErrUnknownBackend     = backend.ErrUnknown
	ErrBackendNotLinked   = backend.ErrNotLinked
	ErrBackendUnavailable = backend.ErrUnavailable
	// ErrUnsupportedTokenizer: the file asks for a tokenizer model or a pre-tokenizer that
	// this library does not have.
	ErrUnsupportedTokenizer = tokenizer.ErrUnsupported
	// ErrNonFiniteLogits: the logits hold NaN or infinity, so no token can be chosen.
	ErrNonFiniteLogits = sampling.ErrNonFinite
)

// ContextError says how many tokens a session holds, how many more were to come, and
// how many fit.
type ContextError struct {
	Have, More, Context int
}

// Error returns the counts.
func (e *ContextError) Error() string {
	return fmt.Sprintf("minfer: context is full: %d tokens and %d more do not fit the %d of the session", e.Have, e.More, e.Context)
}

// Unwrap returns ErrContextFull.
func (e *ContextError) Unwrap() error { return ErrContextFull }

// CacheError says how many cells of a shared cache were needed and are free.
type CacheError struct {
	Needed, Free, Cells int
}

// Error returns the counts.
func (e *CacheError) Error() string {
	return fmt.Sprintf("minfer: cache has no free cells: %d needed, %d of %d free", e.Needed, e.Free, e.Cells)
}

// Unwrap returns ErrCacheFull.
func (e *CacheError) Unwrap() error { return ErrCacheFull }

// TokenError names a token id that the model does not have.
type TokenError struct {
	Token Token
	Vocab int // ids from 0 to Vocab-1 exist
}

// Error returns the id and the range.
func (e *TokenError) Error() string {
	return fmt.Sprintf("minfer: token %d is not one of the %d that the model has", e.Token, e.Vocab)
}

// Unwrap returns ErrToken.
func (e *TokenError) Unwrap() error { return ErrToken }

// OptionError names an option and what is wrong with its value.
type OptionError struct {
	Option string
	Reason string
	Err    error // what found it, or nil
}

// Error returns the option and the reason.
func (e *OptionError) Error() string {
	return fmt.Sprintf("minfer: option %s: %s", e.Option, e.Reason)
}

// Unwrap returns ErrOption and the cause.
func (e *OptionError) Unwrap() []error { return []error{ErrOption, e.Err} }

func optionErrorf(option, format string, args ...any) error {
	return &OptionError{Option: option, Reason: fmt.Sprintf(format, args...)}
}

// TensorError names a tensor and its storage type.
type TensorError struct {
	Tensor string
	Type   string
}

// Error returns the tensor and its type.
func (e *TensorError) Error() string {
	return fmt.Sprintf("minfer: tensor %q is stored as %s, which no device in play supports", e.Tensor, e.Type)
}

// Unwrap returns ErrUnsupportedTensor.
func (e *TensorError) Unwrap() error { return ErrUnsupportedTensor }
