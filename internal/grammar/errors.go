package grammar

import (
	"errors"
	"fmt"
	"strings"
)

// What errors.Is finds in the errors of this package. All but ErrRejected and
// ErrDeadEnd come from compiling; ErrLimit comes from both.
var (
	// ErrInvalid is a grammar, schema or expression that is not well formed.
	ErrInvalid = errors.New("grammar: invalid")
	// ErrUnsupported is one that is well formed and asks for what cannot be held to.
	ErrUnsupported = errors.New("grammar: unsupported")
	// ErrLimit is one that takes more memory or time than is allowed.
	ErrLimit = errors.New("grammar: too complex")
	// ErrEmpty is one that no text matches.
	ErrEmpty = errors.New("grammar: matches nothing")
	// ErrRejected is a token or text that does not continue what was accepted.
	ErrRejected = errors.New("grammar: rejected")
	// ErrDeadEnd is a place where some text could follow and no token of the
	// vocabulary begins it. Vocabularies with a token for every byte have none.
	ErrDeadEnd = errors.New("grammar: no token can follow")
)

// SyntaxError says where a GBNF grammar or a regular expression is wrong. It is
// ErrInvalid, or ErrUnsupported if Unsupported is set.
type SyntaxError struct {
	Language    string // "GBNF" or "regular expression"
	Line        int    // from 1
	Column      int    // in bytes, from 1
	Reason      string
	Unsupported bool
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("grammar: %s, line %d, column %d: %s", e.Language, e.Line, e.Column, e.Reason)
}

// Is makes errors.Is find ErrInvalid or ErrUnsupported.
func (e *SyntaxError) Is(target error) bool {
	if e.Unsupported {
		return target == ErrUnsupported
	}
	return target == ErrInvalid
}

// LeftRecursionError names rules that call themselves before they have consumed
// anything. It is ErrInvalid.
type LeftRecursionError struct {
	Rules []string // each calls the next, the last one the first
}

func (e *LeftRecursionError) Error() string {
	return fmt.Sprintf("grammar: left recursion: %s -> %s; write a repetition (x*) instead",
		strings.Join(e.Rules, " -> "), e.Rules[0])
}

// Is makes errors.Is find ErrInvalid.
func (e *LeftRecursionError) Is(target error) bool { return target == ErrInvalid }

// SchemaError says which part of a JSON schema is wrong or not supported. It is
// ErrInvalid, or ErrUnsupported if Unsupported is set.
type SchemaError struct {
	Pointer     string // JSON pointer (RFC 6901) to the schema or the keyword
	Reason      string
	Unsupported bool
	Err         error // the cause, or nil
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("grammar: JSON schema at %q: %s", excerpt("#"+e.Pointer), e.Reason)
}

// Is makes errors.Is find ErrInvalid or ErrUnsupported.
func (e *SchemaError) Is(target error) bool {
	if e.Unsupported {
		return target == ErrUnsupported
	}
	return target == ErrInvalid
}

// Unwrap returns the cause.
func (e *SchemaError) Unwrap() error { return e.Err }

// LimitError says what was too large. It is ErrLimit.
type LimitError struct {
	What  string
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("grammar: too complex: more than %d %s", e.Limit, e.What)
}

// Is makes errors.Is find ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// RejectedError says what was not accepted. It is ErrRejected.
type RejectedError struct {
	Token int32  // the token, or -1 if plain text was offered
	Text  string // its bytes
	At    int    // the first byte of Text that cannot follow; len(Text) if all could but for the end
}

func (e *RejectedError) Error() string {
	if e.Token < 0 {
		return fmt.Sprintf("grammar: rejected: %q cannot follow, from its byte %d on", excerpt(e.Text), e.At)
	}
	return fmt.Sprintf("grammar: rejected: token %d (%q) cannot follow, from its byte %d on", e.Token, excerpt(e.Text), e.At)
}

// Is makes errors.Is find ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }
