package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

// ErrConfig matches every *ConfigError: the vocabulary contradicts itself or lacks a part.
var ErrConfig = errors.New("tokenizer: invalid vocabulary")

// ErrUnsupported matches *UnsupportedModelError and *UnknownPreError: the file is fine, but asks
// for a tokenizer that this package does not have.
var ErrUnsupported = errors.New("tokenizer: unsupported tokenizer")

// A ConfigError says which field of a Config (or which metadata key it comes from) is
// wrong and why.
type ConfigError struct {
	Field  string
	Reason string
}

func (e *ConfigError) Error() string { return "tokenizer: " + e.Field + ": " + e.Reason }

// Is makes errors.Is(err, ErrConfig) true.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// An UnsupportedModelError reports a tokenizer.ggml.model that is not implemented.
type UnsupportedModelError struct {
	Model string
	Known []string // the models that are, sorted
}

func (e *UnsupportedModelError) Error() string {
	return fmt.Sprintf("tokenizer: model %q is not supported; supported are %s", e.Model, strings.Join(e.Known, ", "))
}

// Is makes errors.Is(err, ErrUnsupported) true.
func (e *UnsupportedModelError) Is(target error) bool { return target == ErrUnsupported }

// An UnknownPreError reports a tokenizer.ggml.pre that is not implemented, or a
// byte-level BPE vocabulary that names none (Pre is empty then). Guessing a pattern would
// give wrong tokens without a visible fault, so there is no fallback; a caller who knows
// better sets Config.Pre.
type UnknownPreError struct {
	Pre   string
	Known []string // the names that are known, sorted
}

func (e *UnknownPreError) Error() string {
	if e.Pre == "" {
		return "tokenizer: the vocabulary names no pre-tokenizer (tokenizer.ggml.pre); known are " + strings.Join(e.Known, ", ")
	}
	return fmt.Sprintf("tokenizer: pre-tokenizer %q is not known; known are %s", e.Pre, strings.Join(e.Known, ", "))
}

// Is makes errors.Is(err, ErrUnsupported) true.
func (e *UnknownPreError) Is(target error) bool { return target == ErrUnsupported }

// An EncodeError reports a byte that the vocabulary can express neither as itself nor as
// an unknown token.
type EncodeError struct {
	Byte  byte
	Piece string // the piece of text the byte stands in, shortened
}

func (e *EncodeError) Error() string {
	return fmt.Sprintf("tokenizer: the vocabulary has no token for byte 0x%02X (in %q) and no unknown token", e.Byte, e.Piece)
}
