package fetch

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minfer/minfer/gguf"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// world is Hugging Face, its storage, an Ollama registry and a plain web server in one, with
// faults to choose.
type world struct {
	*httptest.Server
	storage *httptest.Server // another host
	files   map[string][]byte

	mu       sync.Mutex
	cuts     []int // bodies end after so many bytes, one each
	failures []int // statuses of the next answers for content
	requests []string
	auth     map[string]string // by kind of request

	digest    string // instead of the right one
	noRange   bool
	noTag     bool
	tag       string
	inGit     bool
	gated     bool
	chunked   bool
	stalls    int           // so many bodies stall in the middle
	hold      chan struct{} // bodies wait for it in the middle, if not nil
	downloads atomic.Int32
}

func newWorld(t *testing.T) *world {
	w := &world{files: make(map[string][]byte), auth: make(map[string]string)}
	w.storage = httptest.NewServer(http.HandlerFunc(w.content))
	w.Server = httptest.NewServer(http.HandlerFunc(w.route))
	t.Cleanup(func() {
		w.Server.Close()
		w.storage.Close()
	})
	return w
}

// config is for fetching from the world, without pauses.
func (w *world) config(t *testing.T) Config {
	return Config{
		CacheDir: t.TempDir(), HuggingFaceBase: w.URL, OllamaBase: w.URL, Token: "hf_secret", Client: w.Client(),
		pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
}

func (w *world) note(kind string, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, strings.TrimSpace(kind+" "+r.Header.Get("Range")))
	w.auth[kind] = r.Header.Get("Authorization")
}

// seen returns what was asked since the last call.
func (w *world) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.requests
	w.requests = nil
	return list
}

func (w *world) route(rw http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/moved/"):
		http.Redirect(rw, r, strings.Replace(r.URL.Path, "/moved/", "/someone/", 1), http.StatusTemporaryRedirect)
	case strings.Contains(path, "/resolve/"):
		w.hub(rw, r)
	case strings.HasPrefix(path, "/v2/"):
		w.registry(rw, r)
	case path == "/loop/x.gguf":
		http.Redirect(rw, r, "/loop/x.gguf?signature=hush", http.StatusFound)
	case path == "/nowhere/x.gguf":
		rw.WriteHeader(http.StatusFound)
	default:
		w.content(rw, r)
	}
}

func (w *world) hub(rw http.ResponseWriter, r *http.Request) {
	w.note("hub "+r.Method, r)
	repo, rest, _ := strings.Cut(r.URL.Path, "/resolve/")
	revision, name, _ := strings.Cut(rest, "/")
	file, ok := w.files[name]
	status, code := 0, ""
	switch {
	case w.gated && r.Header.Get("Authorization") == "":
		status, code = http.StatusUnauthorized, "GatedRepo"
	case w.gated:
		status, code = http.StatusForbidden, "GatedRepo"
	case repo != "/someone/model":
		status, code = http.StatusNotFound, "RepoNotFound"
	case revision != "main" && revision != "v1" && revision != "refs" && revision != commit:
		status, code = http.StatusNotFound, "RevisionNotFound"
	case !ok:
		status, code = http.StatusNotFound, "EntryNotFound"
	}
	if status != 0 {
		rw.Header().Set("X-Error-Code", code)
		rw.WriteHeader(status)
		return
	}
	rw.Header().Set("X-Repo-Commit", commit)
	if w.inGit {
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", len(file))
		h.Write(file)
		rw.Header().Set("ETag", strconv.Quote(hex.EncodeToString(h.Sum(nil))))
		http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(file))
		return
	}
	digest := w.digest
	if digest == "" {
		digest = sum(file)
	}
	rw.Header().Set("X-Linked-Etag", strconv.Quote(digest))
	rw.Header().Set("X-Linked-Size", strconv.Itoa(len(file)))
	rw.Header().Set("Location", w.storage.URL+"/"+(&url.URL{Path: name}).EscapedPath()+"?signature=hush")
	rw.WriteHeader(http.StatusFound)
}

func (w *world) registry(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v2/library/tiny/manifests/1b" {
		w.note("manifest", r)
		if r.Header.Get("Accept") != manifestType {
			rw.WriteHeader(http.StatusNotAcceptable)
			return
		}
		file := w.files["tiny.gguf"]
		digest := w.digest
		if digest == "" {
			digest = sum(file)
		}
		fmt.Fprintf(rw, `{"schemaVersion":2,"config":{"digest":"sha256:%064d","size":9},"layers":[
			{"mediaType":"application/vnd.ollama.image.license","digest":"sha256:%064d","size":7},
			{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:%s","size":%d}]}`, 1, 2, digest, len(file))
		return
	}
	if strings.HasPrefix(r.URL.Path, "/v2/library/tiny/blobs/sha256:") {
		http.Redirect(rw, r, w.storage.URL+"/tiny.gguf?signature=hush", http.StatusTemporaryRedirect)
		return
	}
	rw.WriteHeader(http.StatusNotFound)
}

// content serves a file with the chosen faults.
func (w *world) content(rw http.ResponseWriter, r *http.Request) {
	w.note("content", r)
	file, ok := w.files[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	w.mu.Lock()
	status, cut, stall := 0, -1, false
	if len(w.failures) > 0 {
		status, w.failures = w.failures[0], w.failures[1:]
	} else if len(w.cuts) > 0 {
		cut, w.cuts = w.cuts[0], w.cuts[1:]
	} else if w.stalls > 0 {
		stall = true
		w.stalls--
	}
	w.mu.Unlock()
	if status != 0 {
		rw.Header().Set("Retry-After", "1")
		rw.WriteHeader(status)
		return
	}
	w.downloads.Add(1)
	if w.noRange {
		r.Header.Del("Range")
	}
	if w.tag != "" {
		rw.Header().Set("ETag", w.tag)
	}
	var out http.ResponseWriter = rw
	if cut >= 0 || stall || w.hold != nil {
		if cut < 0 {
			cut = len(file) / 2
		}
		out = &shortWriter{ResponseWriter: rw, left: cut, end: func() {
			rw.(http.Flusher).Flush()
			if w.hold != nil {
				select {
				case <-w.hold:
				case <-r.Context().Done():
				}
				return
			}
			if stall {
				<-r.Context().Done()
			}
			panic(http.ErrAbortHandler)
		}}
	}
	if w.chunked {
		out.WriteHeader(http.StatusOK)
		rw.(http.Flusher).Flush()
		io.Copy(onlyWriter{out}, bytes.NewReader(file))
		return
	}
	var modified time.Time
	if !w.noTag && w.tag == "" {
		modified = time.Unix(1e9, 0)
	}
	http.ServeContent(onlyResponse{out}, r, "", modified, bytes.NewReader(file))
}

// shortWriter calls end once, after so many bytes.
type shortWriter struct {
	http.ResponseWriter
	left int
	end  func()
}

func (s *shortWriter) Write(b []byte) (int, error) {
	if s.end == nil || len(b) <= s.left {
		s.left -= len(b)
		return s.ResponseWriter.Write(b)
	}
	n, err := s.ResponseWriter.Write(b[:s.left])
	if err != nil {
		return n, err
	}
	end := s.end
	s.end = nil
	end()
	m, err := s.ResponseWriter.Write(b[n:])
	return n + m, err
}

// onlyResponse and onlyWriter hide shortcuts around Write.
type (
	onlyResponse struct{ http.ResponseWriter }
	onlyWriter   struct{ io.Writer }
)

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// model is a valid file of about size bytes.
func model(t testing.TB, size int, part, parts int) []byte {
	t.Helper()
	w := gguf.NewWriter()
	w.SetString("general.architecture", "qwen3")
	if parts > 1 {
		w.SetUint16("split.no", uint16(part))
		w.SetUint16("split.count", uint16(parts))
	}
	data := make([]byte, size/4*4)
	for i := range data {
		data[i] = byte(i*7 + i>>8 + part)
	}
	if err := w.AddTensor(fmt.Sprintf("weights.%d", part), gguf.TypeF32, []uint64{uint64(size / 4)}, data); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// holds checks that a path has content and that nothing unfinished is left.
func holds(t *testing.T, c Config, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, %v, want %d", path, len(got), err, len(want))
	}
	if left, _ := filepath.Glob(filepath.Join(c.CacheDir, "partial", "*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// empty checks that the cache holds no model, whole or half, but perhaps parts of given sizes.
func empty(t *testing.T, c Config, parts ...int64) {
	t.Helper()
	models, err := Cached(c)
	if err != nil || len(models) > 0 {
		t.Errorf("the cache holds %v, %v", models, err)
	}
	var sizes []int64
	filepath.WalkDir(c.CacheDir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			t.Error(err)
			return nil
		}
		if strings.HasSuffix(path, ".gguf") {
			t.Errorf("%s lies there", path)
		}
		if info, err := d.Info(); err == nil && strings.HasSuffix(path, ".part") {
			sizes = append(sizes, info.Size())
		}
		return nil
	})
	if fmt.Sprint(sizes) != fmt.Sprint(parts) {
		t.Errorf("unfinished files of %v bytes, want %v", sizes, parts)
	}
}

// fails checks an error's kind and message.
func fails(t *testing.T, err, kind error, text string) {
	t.Helper()
	var e *Error
	if err == nil || !errors.Is(err, kind) || !errors.As(err, &e) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "hf_secret") {
		t.Errorf("error %v, want %v with %q", err, kind, text)
	}
}
