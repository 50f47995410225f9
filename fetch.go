package minfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/minfer/minfer/internal/fetch"
)

// Errors of Fetch, for errors.Is. Details are in a *FetchError.
var (
	// ErrFetchReference: the text is no reference to a model.
	ErrFetchReference = fetch.ErrReference
	// ErrNotCached: there is neither such a file nor a cached model of that name.
	ErrNotCached = fetch.ErrNotCached
	// ErrAmbiguousName: several models in the cache have the short name.
	ErrAmbiguousName = fetch.ErrAmbiguous
	// ErrFetchNotFound: the server has no such repository, revision, file or model.
	ErrFetchNotFound = fetch.ErrNotFound
	// ErrFetchUnauthorized: the server refuses access; the error says how to get it.
	ErrFetchUnauthorized = fetch.ErrUnauthorized
	// ErrFetchUnavailable: the server could not be reached, or broke off, several times.
	ErrFetchUnavailable = fetch.ErrUnavailable
	// ErrFetchRedirect: redirects that lead nowhere, in circles, or away from encryption.
	ErrFetchRedirect = fetch.ErrRedirect
	// ErrFetchTLS: the server cannot prove that it is the one that was asked for.
	ErrFetchTLS = fetch.ErrTLS
	// ErrFetchAnswer: the server answered something that makes no sense here.
	ErrFetchAnswer = fetch.ErrAnswer
	// ErrFetchSize: the file is not as long as the server said it would be.
	ErrFetchSize = fetch.ErrSize
	// ErrFetchDigest: the file is not the one whose digest its publisher gives.
	ErrFetchDigest = fetch.ErrDigest
	// ErrDiskFull: there is no room for the model.
	ErrDiskFull = fetch.ErrDiskFull
	// ErrFetchStorage: the cache's folder cannot be used.
	ErrFetchStorage = fetch.ErrStorage
)

// FetchError tells which model and file could not be had, what failed, and what would be
// right: fields Ref, File, Status (of an HTTP answer), Kind (one of the errors above, or
// nil), Detail and Err (the cause, or nil). No field holds a secret.
type FetchError = fetch.Error

// FetchProgress tells how far a download has come.
type FetchProgress struct {
	File        string // base name of the file that is coming
	Index       int    // of the file, from 0
	Files       int    // of the model
	Done, Total int64  // bytes of the file; Total is -1 if the server does not say
}

// FetchOption changes how Fetch and CachedModels work.
type FetchOption func(*fetch.Config)

// WithCacheDir sets the folder that models are kept in. The default is the environment
// variable MINFER_CACHE or, if that is not set, minfer in the user's cache folder
// (os.UserCacheDir).
func WithCacheDir(dir string) FetchOption { return func(c *fetch.Config) { c.CacheDir = dir } }

// WithFetchProgress has f called, from the goroutine that calls Fetch, when a file begins
// and whenever more of it has come. It is not called for what is in the cache already.
func WithFetchProgress(f func(FetchProgress)) FetchOption {
	return func(c *fetch.Config) {
		c.Progress = nil
		if f != nil {
			c.Progress = func(p fetch.Progress) { f(FetchProgress(p)) }
		}
	}
}

// WithHTTPClient has requests made by a client of one's own, for its transport and cookies.
// Redirects are followed by Fetch. A Timeout of the client would bound whole files; bound
// Fetch by its context instead.
func WithHTTPClient(client *http.Client) FetchOption {
	return func(c *fetch.Config) { c.Client = client }
}

// WithHuggingFaceBase sets the address that hf: references are asked of. The default is
// the environment variable HF_ENDPOINT, or https://huggingface.co.
func WithHuggingFaceBase(address string) FetchOption {
	return func(c *fetch.Config) { c.HuggingFaceBase = address }
}

// WithHuggingFaceToken sets the access token for hf: references; it is sent to the Hugging
// Face address alone. The default is the environment variable HF_TOKEN.
func WithHuggingFaceToken(token string) FetchOption {
	return func(c *fetch.Config) { c.Token = token }
}

// WithOllamaBase sets the address that ollama: references are asked of. The default is the
// environment variable MINFER_OLLAMA_BASE, or https://registry.ollama.ai.
func WithOllamaBase(address string) FetchOption {
	return func(c *fetch.Config) { c.OllamaBase = address }
}

// WithRefresh asks the server whether it has another version of a model that is in the
// cache, and takes that. Without it a model in the cache is used as it is, and no network
// is needed.
func WithRefresh() FetchOption { return func(c *fetch.Config) { c.Refresh = true } }

// Fetch returns the path of a model file for Open, after downloading the model if it is
// not in the cache. The reference is one of
//
//	hf:OWNER/REPO:FILE.gguf             a file on Hugging Face, of the branch main
//	hf:OWNER/REPO:FILE.gguf@REVISION    of another branch, a tag or a commit
//	ollama:NAME:TAG                     the weights of a model of the Ollama registry
//	https://HOST/PATH/FILE.gguf         a file anywhere; #sha256=HEX has it verified
//	NAME                                a path, which is returned as it is, or the name
//	                                    of a cached model: its file's name without .gguf
//	                                    (and without the number of a part), or NAME:TAG
//
// Any file of a split model (NAME-00001-of-0000N.gguf) brings all of them, and the path
// is the first's. Sizes and digests are verified as files come, and the result is opened
// once; only then do files get their names in the cache. A download that was cut, by a
// cancelled context too, resumes in the next call. Concurrent calls for the same model
// download it once. Failures that may pass are tried again.
//
// The error is a *FetchError, or an *OptionError for an option or environment variable
// that makes no sense. It wraps one of the errors above, ErrNotGGUF, or the context's.
func Fetch(ctx context.Context, ref string, opts ...FetchOption) (path string, err error) {
	defer recovered(&err, "fetching a model")
	path, err = fetch.Get(orBackground(ctx), ref, fetchConfig(opts))
	return path, fetchError(err)
}

// CachedModel is a model in the cache of Fetch.
type CachedModel struct {
	Name   string // short name, which Fetch takes
	Path   string // of the (first) file, for Open
	Size   int64  // bytes of all its files
	Source string // reference that it came by, without secrets
	Time   time.Time
}

// CachedModels lists the models in the cache, by name. Of the options only WithCacheDir
// matters. To remove a model, delete its files.
func CachedModels(opts ...FetchOption) ([]CachedModel, error) {
	models, err := fetch.Cached(fetchConfig(opts))
	if err != nil {
		return nil, fetchError(err)
	}
	list := make([]CachedModel, len(models))
	for i, m := range models {
		list[i] = CachedModel{Name: m.Name, Path: m.Path, Size: m.Size, Source: m.Source, Time: m.Time}
	}
	return list, nil
}

func fetchConfig(opts []FetchOption) fetch.Config {
	var c fetch.Config
	apply(&c, opts)
	return c
}

func fetchError(err error) error {
	var setting *fetch.SettingError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &setting):
		return &OptionError{Option: setting.Setting, Reason: setting.Reason, Err: err}
	}
	return fmt.Errorf("minfer: %w", err)
}
