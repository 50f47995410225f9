package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/minfer/minfer/gguf"
)

// Environment variables that supply defaults.
const (
	EnvCache  = "MINFER_CACHE"       // the cache's folder
	EnvBase   = "HF_ENDPOINT"        // address of Hugging Face
	EnvToken  = "HF_TOKEN"           // access token for Hugging Face
	EnvOllama = "MINFER_OLLAMA_BASE" // address of the Ollama registry
)

// The addresses that references stand for.
const (
	DefaultHuggingFaceBase = "https://huggingface.co"
	DefaultOllamaBase      = "https://registry.ollama.ai"
)

// Config says where things are. Its zero value is what most programs want.
type Config struct {
	CacheDir        string // else MINFER_CACHE, or minfer in the user's cache folder
	HuggingFaceBase string // else HF_ENDPOINT, or DefaultHuggingFaceBase
	OllamaBase      string // else MINFER_OLLAMA_BASE, or DefaultOllamaBase
	Token           string // else HF_TOKEN
	Client          *http.Client
	Refresh         bool // ask the server whether a cached model changed
	Progress        func(Progress)

	open  func(path string) (partFile, error)        // of unfinished files
	pause func(context.Context, time.Duration) error // before another attempt
	stall time.Duration
}

// Progress tells how far a download has come.
type Progress struct {
	File        string // base name of the file that is coming
	Index       int    // of the file, from 0
	Files       int    // of the model
	Done, Total int64  // bytes of the file; Total is -1 if the server does not say
}

// partFile is what a download is written to.
type partFile interface {
	io.ReadWriteSeeker
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// fetcher is a checked Config.
type fetcher struct {
	Config
	cache    string
	hub      *url.URL
	registry *url.URL
	client   *http.Client
}

// Get returns the path of a model, its first part if it is split, after downloading what is
// not in the cache. A path of a file that exists is returned as it is.
func Get(ctx context.Context, text string, c Config) (string, error) {
	r, err := parse(text)
	if err != nil {
		return "", err
	}
	if r.kind == localKind {
		path, err := local(text, c)
		if err != nil {
			return "", named(err, shown(text), "")
		}
		return path, nil
	}
	f, err := newFetcher(c)
	if err != nil {
		return "", err
	}
	path, err := f.get(ctx, r)
	if err != nil {
		return "", named(err, r.String(), "")
	}
	return path, nil
}

// shown is a user's text for a message.
func shown(text string) string {
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

func newFetcher(c Config) (*fetcher, error) {
	f := &fetcher{Config: c}
	var err error
	if f.cache, err = cacheDir(c); err != nil {
		return nil, err
	}
	if f.hub, err = base("the address of Hugging Face", c.HuggingFaceBase, os.Getenv(EnvBase), DefaultHuggingFaceBase); err != nil {
		return nil, err
	}
	if f.registry, err = base("the address of the Ollama registry", c.OllamaBase, os.Getenv(EnvOllama), DefaultOllamaBase); err != nil {
		return nil, err
	}
	if f.Token == "" {
		f.Token = os.Getenv(EnvToken)
	}
	f.Token = strings.TrimSpace(f.Token)
	if strings.ContainsFunc(f.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, &SettingError{Setting: EnvToken, Reason: "the access token has characters that no token has"}
	}
	client := http.DefaultClient
	if c.Client != nil {
		client = c.Client
	}
	// Redirects are followed here, where their headers can be seen and the token kept back.
	copied := *client
	copied.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	f.client = &copied
	if f.open == nil {
		f.open = func(path string) (partFile, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) }
	}
	if f.pause == nil {
		f.pause = sleep
	}
	if f.stall == 0 {
		f.stall = time.Minute
	}
	return f, nil
}

// cacheDir is the folder of the cache, which need not exist yet.
func cacheDir(c Config) (string, error) {
	dir := c.CacheDir
	if dir == "" {
		dir = os.Getenv(EnvCache)
	}
	if dir == "" {
		users, err := os.UserCacheDir()
		if err != nil {
			return "", &SettingError{Setting: EnvCache, Reason: "set it to a folder for models: " + err.Error()}
		}
		dir = filepath.Join(users, "minfer")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", &SettingError{Setting: EnvCache, Reason: err.Error()}
	}
	return dir, nil
}

// base is the first of the given addresses that is not empty.
func base(what string, addresses ...string) (*url.URL, error) {
	for _, a := range addresses {
		if a == "" {
			continue
		}
		u, err := url.Parse(strings.TrimRight(a, "/"))
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, &SettingError{Setting: what, Reason: fmt.Sprintf("%q is no address, want https://HOST", redact(a))}
		}
		return u, nil
	}
	return nil, &SettingError{Setting: what, Reason: "none is given"}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// local finds a path or a short name.
func local(text string, c Config) (string, error) {
	info, err := os.Stat(text)
	if err == nil && info.IsDir() {
		return "", &Error{Detail: "this is a folder, want a GGUF file"}
	}
	if err == nil {
		return text, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", &Error{Err: err}
	}
	if isPath(text) {
		return "", &Error{Kind: ErrNotCached, Err: fs.ErrNotExist}
	}
	models, err := Cached(c)
	if err != nil {
		return "", &Error{Kind: ErrNotCached, Err: err}
	}
	var matches []Model
	for _, m := range models {
		if m.isCalled(text) {
			matches = append(matches, m)
		}
	}
	switch len(matches) {
	case 1:
		return matches[0].Path, nil
	case 0:
		return "", &Error{Kind: ErrNotCached, Detail: forms, Err: fs.ErrNotExist}
	}
	var refs []string
	for _, m := range matches {
		refs = append(refs, m.Source)
	}
	return "", &Error{Kind: ErrAmbiguous, Detail: "use one of " + strings.Join(refs, ", ")}
}

// isPath tells what can only be meant as a path. The names of Ollama models may have one
// slash and a tag in them.
func isPath(text string) bool {
	return filepath.IsAbs(text) || strings.HasPrefix(text, ".") || strings.Contains(text, `\`) || strings.Count(text, "/") > 1
}

// get returns the path of a model in the cache, after bringing it there.
func (f *fetcher) get(ctx context.Context, r *reference) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", &Error{Err: err}
	}
	if m, ok := f.find(r); ok && !f.Refresh {
		return m.Path, nil
	}
	unlock, err := lock(ctx, filepath.Join(f.cache, "locks", r.key()+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	m, ok := f.find(r)
	if ok && !f.Refresh {
		return m.Path, nil // somebody else brought it meanwhile
	}
	remotes, err := f.resolve(ctx, r)
	if err != nil {
		return "", err
	}
	if ok && m.isCurrent(remotes) {
		return m.Path, nil
	}
	return f.bring(ctx, r, remotes)
}

// bring downloads the files of a model and installs them.
func (f *fetcher) bring(ctx context.Context, r *reference, remotes []remote) (string, error) {
	partial := filepath.Join(f.cache, "partial", r.key())
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return "", storage(err)
	}
	files := make([]recordFile, len(remotes))
	for i, remote := range remotes {
		d := &download{fetcher: f, remote: remote, index: i, files: len(remotes), path: filepath.Join(partial, remote.name+".part")}
		if err := d.run(ctx); err != nil {
			os.Remove(partial) // if nothing is in it
			return "", named(err, "", remote.name)
		}
		files[i] = recordFile{Name: remote.name, Size: d.size, Digest: d.digest.String()}
	}
	return f.install(r, partial, files)
}

// install checks a complete download and moves it to its place. Whatever it stops at, the
// model is either in the cache as a whole or not there.
func (f *fetcher) install(r *reference, partial string, files []recordFile) (string, error) {
	for _, file := range files {
		path := filepath.Join(partial, file.Name)
		if err := os.Rename(path+".part", path); err != nil {
			return "", storage(err)
		}
	}
	if err := check(filepath.Join(partial, files[0].Name)); err != nil {
		os.RemoveAll(partial)
		return "", &Error{Detail: "the download is complete, but it is no model that can be opened", Err: err}
	}
	dir := filepath.Join(f.cache, filepath.FromSlash(r.dir()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", storage(err)
	}
	path := filepath.Join(dir, files[0].Name)
	// An older version's record must not vouch for files of both.
	if err := os.Remove(path + recordSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", storage(err)
	}
	for _, file := range files {
		if err := os.Rename(filepath.Join(partial, file.Name), filepath.Join(dir, file.Name)); err != nil {
			return "", storage(err)
		}
	}
	m := record{Version: recordVersion, Key: r.key(), Name: r.shortName(), Source: r.String(), Files: files, Time: time.Now().UTC()}
	if err := m.write(path + recordSuffix); err != nil {
		return "", storage(err)
	}
	os.RemoveAll(partial)
	return path, nil
}

// check opens a model with all its parts.
func check(path string) error {
	m, err := gguf.Open(path)
	if err != nil {
		return err
	}
	return m.Close()
}
