package fetch

import (
	"errors"
	"io/fs"
	"strings"
	"time"
)

// The kinds of failures, for errors.Is. gguf.ErrNotGGUF and errors of contexts and files
// occur as well.
var (
	// ErrReference: text that is no reference.
	ErrReference = errors.New("invalid reference")
	// ErrNotCached: neither a local file nor a model in the cache.
	ErrNotCached = errors.New("no such file or cached model")
	// ErrAmbiguous: a short name that several models in the cache have.
	ErrAmbiguous = errors.New("several cached models have this name")
	// ErrNotFound: the server has no such repository, revision, file or model.
	ErrNotFound = errors.New("not found on the server")
	// ErrUnauthorized: the server refuses access.
	ErrUnauthorized = errors.New("access refused")
	// ErrRedirect: redirects that lead nowhere, in circles, or away from encryption.
	ErrRedirect = errors.New("bad redirect")
	// ErrTLS: the server's certificate or protocol cannot be trusted.
	ErrTLS = errors.New("no secure connection")
	// ErrUnavailable: the server could not be reached, or the connection broke, in
	// several attempts.
	ErrUnavailable = errors.New("server unavailable")
	// ErrAnswer: the server answered something that makes no sense here.
	ErrAnswer = errors.New("unexpected answer")
	// ErrSize: the file is not as long as the server said it would be.
	ErrSize = errors.New("wrong size")
	// ErrDigest: the file is not what its publisher's digest says.
	ErrDigest = errors.New("wrong digest")
	// ErrDiskFull: there is no room for the file.
	ErrDiskFull = errors.New("disk full")
	// ErrStorage: the cache's folder cannot be used.
	ErrStorage = errors.New("cache not usable")
)

// Error tells what was fetched, what failed, and what would be right.
type Error struct {
	Ref    string // without secrets
	File   string // which file of the model, or ""
	Status int    // of the server's answer, if that is what failed, or 0
	Kind   error  // one of the sentinels, or nil
	Detail string
	Err    error // the cause, or nil

	retry bool          // it may pass
	after time.Duration // the server asks to wait this long
}

// Error returns all that is known.
func (e *Error) Error() string {
	parts := []string{"fetch"}
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	add(e.Ref)
	add(e.File)
	if e.Kind != nil {
		add(e.Kind.Error())
	}
	add(e.Detail)
	if e.Err != nil && e.Err != fs.ErrNotExist { // which the kind says already
		add(e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	var list []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

// SettingError names a setting and what is wrong with it.
type SettingError struct {
	Setting string
	Reason  string
}

// Error returns the setting and the reason.
func (e *SettingError) Error() string { return "fetch: " + e.Setting + ": " + e.Reason }

// named adds to an error what it lacks.
func named(err error, ref, file string) error {
	e, ok := err.(*Error)
	if !ok {
		return &Error{Ref: ref, File: file, Err: err}
	}
	if e.Ref == "" {
		e.Ref = ref
	}
	if e.File == "" {
		e.File = file
	}
	return e
}

// storage is the error of an operation on the cache's files.
func storage(err error) *Error {
	if isDiskFull(err) {
		return &Error{Kind: ErrDiskFull, Detail: "free some space and fetch again, which resumes, or choose another folder with MINFER_CACHE", Err: err}
	}
	return &Error{Kind: ErrStorage, Err: err}
}
