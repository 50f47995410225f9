package fetch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minfer/minfer/gguf"
)

var ctx = context.Background()

func TestHuggingFace(t *testing.T) {
	w := newWorld(t)
	want := model(t, 600<<10, 0, 1)
	w.files["tiny.gguf"], w.files["quants/tiny Q8 é.gguf"] = want, want
	for _, test := range []struct{ ref, path string }{
		{"hf:someone/model:tiny.gguf", "hf/someone/model/main/tiny.gguf"},
		{"hf:moved/model:tiny.gguf", "hf/moved/model/main/tiny.gguf"},
		{"hf:someone/model:tiny.gguf@v1", "hf/someone/model/v1/tiny.gguf"},
		{"hf:someone/model@" + commit + ":quants/tiny Q8 é.gguf", "hf/someone/model/" + commit + "/quants/tiny Q8 é.gguf"},
	} {
		c := w.config(t)
		var last Progress
		calls := 0
		c.Progress = func(p Progress) {
			if p.Done < last.Done || p.Total != int64(len(want)) || p.Index != 0 || p.Files != 1 {
				t.Errorf("progress %+v after %+v", p, last)
			}
			last = p
			calls++
		}
		path, err := Get(ctx, test.ref, c)
		if err != nil || path != filepath.Join(c.CacheDir, filepath.FromSlash(test.path)) {
			t.Errorf("%s: %s, %v", test.ref, path, err)
			continue
		}
		holds(t, c, path, want)
		if last.Done != int64(len(want)) || calls < 3 || last.File != filepath.Base(path) {
			t.Errorf("%s: last progress %+v of %d", test.ref, last, calls)
		}
		if w.auth["hub HEAD"] != "Bearer hf_secret" || w.auth["hub GET"] != "Bearer hf_secret" || w.auth["content"] != "" {
			t.Errorf("the token went to %v", w.auth)
		}
		w.seen()
		if again, err := Get(ctx, test.ref, c); again != path || err != nil || len(w.seen()) > 0 {
			t.Errorf("cached: %s, %v", again, err)
		}
	}
}

func TestHuggingFaceGitFiles(t *testing.T) {
	w := newWorld(t)
	w.inGit = true
	want := model(t, 5000, 0, 1)
	w.files["tiny.gguf"] = want
	c := w.config(t)
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, path, want)
	rec, err := readRecord(path + recordSuffix)
	if err != nil || !strings.HasPrefix(rec.Files[0].Digest, "gitsha1:") {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestHuggingFaceRefusals(t *testing.T) {
	w := newWorld(t)
	w.files["tiny.gguf"] = model(t, 100, 0, 1)
	c := w.config(t)
	get := func(ref string) error { _, err := Get(ctx, ref, c); return err }
	fails(t, get("hf:someone/other:tiny.gguf"), ErrNotFound, "there is no repository "+w.URL+"/someone/other")
	fails(t, get("hf:someone/model:tiny.gguf@v9"), ErrNotFound, `has no revision "v9"`)
	fails(t, get("hf:someone/model:none.gguf"), ErrNotFound, "has no file none.gguf at revision main")
	w.gated = true
	fails(t, get("hf:someone/model:tiny.gguf"), ErrUnauthorized, "the access token in HF_TOKEN may not read")
	t.Setenv(EnvToken, "")
	c.Token = ""
	err := get("hf:someone/model:tiny.gguf")
	fails(t, err, ErrUnauthorized, "accept its terms at "+w.URL+"/someone/model and set HF_TOKEN")
	var e *Error
	if errors.As(err, &e); e.Status != http.StatusUnauthorized || e.Ref != "hf:someone/model:tiny.gguf" || e.File != "tiny.gguf" {
		t.Errorf("%+v", e)
	}
	empty(t, c)
}

func TestServerWithoutDigests(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	_, err := Get(ctx, "hf:someone/model:tiny.gguf", Config{CacheDir: t.TempDir(), HuggingFaceBase: s.URL, Client: s.Client()})
	fails(t, err, ErrAnswer, "gives no digest")
}

func TestEnvironment(t *testing.T) {
	w := newWorld(t)
	w.files["tiny.gguf"] = model(t, 100, 0, 1)
	cache := t.TempDir()
	t.Setenv(EnvCache, cache)
	t.Setenv(EnvBase, w.URL+"/")
	t.Setenv(EnvToken, " hf_other\n")
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", Config{})
	if err != nil || !strings.HasPrefix(path, cache) || w.auth["hub HEAD"] != "Bearer hf_other" {
		t.Errorf("%s, %v, %v", path, err, w.auth)
	}
	t.Setenv(EnvOllama, w.URL)
	if path, err := Get(ctx, "ollama:tiny:1b", Config{}); err != nil || !strings.HasPrefix(path, cache) {
		t.Errorf("%s, %v", path, err)
	}
	for _, wrong := range []Config{{HuggingFaceBase: "example.com"}, {HuggingFaceBase: "ftp://example.com"}, {OllamaBase: "https://"}, {OllamaBase: "https://x/?a=b"}, {Token: "a b"}} {
		var setting *SettingError
		if _, err := Get(ctx, "ollama:x", wrong); !errors.As(err, &setting) || setting.Setting == "" || setting.Reason == "" {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func TestOllama(t *testing.T) {
	w := newWorld(t)
	want := model(t, 600<<10, 0, 1)
	w.files["tiny.gguf"] = want
	c := w.config(t)
	path, err := Get(ctx, "ollama:tiny:1b", c)
	if err != nil || path != filepath.Join(c.CacheDir, "ollama", "library", "tiny", "1b.gguf") {
		t.Fatal(path, err)
	}
	holds(t, c, path, want)
	for _, name := range []string{"tiny:1b", "ollama:library/tiny:1b"} {
		if again, err := Get(ctx, name, c); again != path || err != nil {
			t.Errorf("%s: %s, %v", name, again, err)
		}
	}
	_, err = Get(ctx, "ollama:tiny", c)
	fails(t, err, ErrNotFound, `no model "tiny" with a tag "latest"`)
	w.digest = strings.Repeat("ab", 32)
	_, err = Get(ctx, "ollama:tiny:1b", w.config(t))
	fails(t, err, ErrDigest, "sha256:"+sum(want)+", want sha256:abab")
}

func TestOllamaManifests(t *testing.T) {
	const modelType, adapter = `"mediaType":"application/vnd.ollama.image.model"`, `"mediaType":"application/vnd.ollama.image.adapter"`
	good := `"digest":"sha256:` + strings.Repeat("0a", 32) + `"`
	for _, test := range []struct{ manifest, want string }{
		{`<html>`, "cannot be read"},
		{`{}`, "0 layers with GGUF weights, want 1"},
		{`{"layers":[{` + modelType + `,` + good + `},{` + modelType + `,` + good + `}]}`, "2 layers with GGUF weights"},
		{`{"layers":[{` + modelType + `,` + good + `},{` + adapter + `}]}`, "adapter"},
		{`{"layers":[{` + modelType + `,"digest":"sha256:../../x","size":4}]}`, `gives "sha256:../../x" as a digest`},
		{`{"layers":[{` + modelType + `,` + good + `,"size":-4}]}`, "-4 as a size"},
		{`{"layers":[` + strings.Repeat(" ", maxManifest) + `]}`, "more than 1048576 bytes"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(test.manifest)) }))
		c := Config{CacheDir: t.TempDir(), OllamaBase: s.URL, Client: s.Client()}
		_, err := Get(ctx, "ollama:x", c)
		fails(t, err, ErrAnswer, test.want)
		empty(t, c)
		s.Close()
	}
}

func TestWeb(t *testing.T) {
	w := newWorld(t)
	want := model(t, 600<<10, 0, 1)
	w.files["a/tiny.gguf"] = want
	for _, chunked := range []bool{false, true} {
		w.chunked = chunked
		for _, suffix := range []string{"", "?token=hush", "#sha256=" + strings.ToUpper(sum(want))} {
			c := w.config(t)
			path, err := Get(ctx, w.URL+"/a/tiny.gguf"+suffix, c)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, c, path, want)
			models, err := Cached(c)
			if err != nil || len(models) != 1 || models[0].Source != w.URL+"/a/tiny.gguf" || models[0].Name != "tiny" {
				t.Errorf("%v, %v", models, err)
			}
			// A digest that the cached file does not have is not ignored.
			_, err = Get(ctx, w.URL+"/a/tiny.gguf"+"#sha256="+strings.Repeat("12", 32), c)
			fails(t, err, ErrDigest, "want sha256:1212")
		}
	}
	if w.auth["content"] != "" && w.auth["content"] != "Bearer hf_secret" {
		t.Errorf("authorization %q", w.auth["content"])
	}
	_, err := Get(ctx, w.URL+"/a/none.gguf?token=hush", w.config(t))
	fails(t, err, ErrNotFound, "answers 404 Not Found for "+w.URL+"/a/none.gguf")
}

func TestSplit(t *testing.T) {
	w := newWorld(t)
	var parts [][]byte
	for i := range 3 {
		parts = append(parts, model(t, 300<<10, i, 3))
		name := partName("big", i+1, 3)
		w.files["sub/"+name] = parts[i]
	}
	for _, ref := range []string{"hf:someone/model:sub/" + partName("big", 2, 3), w.URL + "/sub/" + partName("big", 3, 3) + "?x=y"} {
		c := w.config(t)
		w.cuts = []int{len(parts[0]), 100 << 10}
		var seen []Progress
		c.Progress = func(p Progress) {
			if p.Done == p.Total {
				seen = append(seen, p)
			}
		}
		first, err := Get(ctx, ref, c)
		if err != nil || filepath.Base(first) != partName("big", 1, 3) {
			t.Fatal(first, err)
		}
		for i := range parts {
			holds(t, c, filepath.Join(filepath.Dir(first), partName("big", i+1, 3)), parts[i])
			if seen[i].Index != i || seen[i].Files != 3 || seen[i].File != partName("big", i+1, 3) {
				t.Errorf("progress %+v", seen[i])
			}
		}
		if again, err := Get(ctx, "big", c); again != first || err != nil {
			t.Errorf("by its short name: %s, %v", again, err)
		}
		models, _ := Cached(c)
		if len(models) != 1 || models[0].Size != int64(len(parts[0])+len(parts[1])+len(parts[2])) {
			t.Errorf("cached: %+v", models)
		}
		// Of a model that lost a part, nothing is in the cache.
		os.Remove(filepath.Join(filepath.Dir(first), partName("big", 2, 3)))
		if models, _ := Cached(c); len(models) != 0 {
			t.Errorf("a part is missing, but the cache lists %v", models)
		}
		if again, err := Get(ctx, ref, c); again != first || err != nil {
			t.Errorf("after losing a part: %s, %v", again, err)
		}
	}
	// A part that is missing keeps all from being there, and those that came are not lost.
	delete(w.files, "sub/"+partName("big", 3, 3))
	c := w.config(t)
	_, err := Get(ctx, w.URL+"/sub/"+partName("big", 1, 3), c)
	fails(t, err, ErrNotFound, partName("big", 3, 3))
	empty(t, c, int64(len(parts[0])), int64(len(parts[1])))
	w.files["sub/"+partName("big", 3, 3)] = parts[2]
	w.seen()
	first, err := Get(ctx, w.URL+"/sub/"+partName("big", 1, 3), c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, first, parts[0])
	size := strconv.Itoa(len(parts[0]))
	if got := w.seen(); !reflect.DeepEqual(got, []string{"content bytes=" + size + "-", "content bytes=" + size + "-", "content"}) {
		t.Errorf("asked for %v", got)
	}
}

func TestSplitPartsThatDoNotFit(t *testing.T) {
	w := newWorld(t)
	w.files[partName("big", 1, 2)] = model(t, 100, 0, 2)
	w.files[partName("big", 2, 2)] = model(t, 100, 0, 2)
	c := w.config(t)
	_, err := Get(ctx, "hf:someone/model:"+partName("big", 1, 2), c)
	fails(t, err, gguf.ErrSplit, "no model that can be opened")
	empty(t, c)
}

// TestResume cuts downloads and looks at what is asked for next.
func TestResume(t *testing.T) {
	want := model(t, 900<<10, 0, 1)
	const cut = 500 << 10
	for _, test := range []struct {
		name string
		ref  string
		set  func(*world)
		next string // request after the cut
	}{
		{"hub", "hf:someone/model:tiny.gguf", nil, "content bytes=512000-"},
		{"ollama", "ollama:tiny:1b", nil, "content bytes=512000-"},
		{"digest and no tag", "hf:someone/model:tiny.gguf", func(w *world) { w.noTag = true }, "content bytes=512000-"},
		{"date", "/tiny.gguf", nil, "content bytes=512000-"},
		{"tag", "/tiny.gguf", func(w *world) { w.tag = `"v1"` }, "content bytes=512000-"},
		{"weak tag", "/tiny.gguf", func(w *world) { w.tag = `W/"v1"` }, "content"},
		{"no tag", "/tiny.gguf", func(w *world) { w.noTag = true }, "content"},
		{"no range", "/tiny.gguf", func(w *world) { w.noRange = true }, "content bytes=512000-"},
		{"no range on the hub", "hf:someone/model:tiny.gguf", func(w *world) { w.noRange = true }, "content bytes=512000-"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, across := range []bool{false, true} { // calls
				w := newWorld(t)
				if test.set != nil {
					test.set(w)
				}
				w.files["tiny.gguf"] = want
				ref := test.ref
				if ref[0] == '/' {
					ref = w.URL + ref
				}
				c := w.config(t)
				w.cuts = []int{cut}
				if across {
					c.pause = func(context.Context, time.Duration) error { return context.Canceled }
					_, err := Get(ctx, ref, c)
					fails(t, err, context.Canceled, "stopped while waiting to try again")
					if test.next == "content" {
						empty(t, c) // it cannot be resumed, so it is not kept
					} else {
						fails(t, err, context.Canceled, "512000 bytes are kept")
						empty(t, c, cut)
					}
				}
				path, err := Get(ctx, ref, c)
				if err != nil {
					t.Fatal(err)
				}
				holds(t, c, path, want)
				var content []string
				for _, r := range w.seen() {
					if strings.HasPrefix(r, "content") {
						content = append(content, r)
					}
				}
				if !reflect.DeepEqual(content, []string{"content", test.next}) {
					t.Errorf("across calls %t: asked for %q, want %q second", across, content, test.next)
				}
			}
		})
	}
}

// TestResumeChanged has the file change between two calls.
func TestResumeChanged(t *testing.T) {
	old, want := model(t, 900<<10, 0, 1), model(t, 900<<10, 1, 1)
	for _, ref := range []string{"hf:someone/model:tiny.gguf", "/tiny.gguf"} {
		w := newWorld(t)
		if ref[0] == '/' {
			ref = w.URL + ref
		}
		c := w.config(t)
		w.files["tiny.gguf"], w.tag, w.cuts = old, `"old"`, []int{500 << 10}
		c.pause = func(context.Context, time.Duration) error { return context.Canceled }
		if _, err := Get(ctx, ref, c); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		w.files["tiny.gguf"], w.tag = want, `"new"`
		path, err := Get(ctx, ref, c)
		if err != nil {
			t.Fatal(err)
		}
		holds(t, c, path, want)
	}
}

// TestResumeDamaged has what an earlier call left be damaged.
func TestResumeDamaged(t *testing.T) {
	w := newWorld(t)
	want := model(t, 900<<10, 0, 1)
	w.files["tiny.gguf"], w.cuts = want, []int{500 << 10}
	c := w.config(t)
	c.pause = func(context.Context, time.Duration) error { return context.Canceled }
	if _, err := Get(ctx, "hf:someone/model:tiny.gguf", c); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	parts, _ := filepath.Glob(filepath.Join(c.CacheDir, "partial", "*", "*.part"))
	if len(parts) != 1 {
		t.Fatal(parts)
	}
	data, _ := os.ReadFile(parts[0])
	data[1000] ^= 1
	if err := os.WriteFile(parts[0], data, 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, path, want)
}

// TestRangesThatLie has servers answer a range with another.
func TestRangesThatLie(t *testing.T) {
	want := model(t, 900<<10, 0, 1)
	for _, header := range []string{"", "bytes 0-9/10", "bytes 512000-512009/512010", "bytes 1-921727/921728", "nonsense", "bytes 512000-"} {
		w := newWorld(t)
		w.files["tiny.gguf"] = want
		lies := 0
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				lies++
				rw.Header().Set("Content-Range", header)
				rw.WriteHeader(http.StatusPartialContent)
				rw.Write(want[:10])
				return
			}
			w.content(rw, r)
		}))
		w.cuts = []int{500 << 10}
		c := w.config(t)
		path, err := Get(ctx, s.URL+"/tiny.gguf", c)
		if err != nil || lies != 1 {
			t.Errorf("%q: %v, %d ranges", header, err, lies)
		} else {
			holds(t, c, path, want)
		}
		s.Close()
	}
}

func TestWrongDigest(t *testing.T) {
	w := newWorld(t)
	want := model(t, 300<<10, 0, 1)
	w.files["tiny.gguf"], w.digest = want, strings.Repeat("ab", 32)
	c := w.config(t)
	for _, ref := range []string{"hf:someone/model:tiny.gguf", w.URL + "/tiny.gguf#sha256=" + w.digest} {
		_, err := Get(ctx, ref, c)
		fails(t, err, ErrDigest, "sha256:"+sum(want)+", want sha256:"+w.digest)
		empty(t, c)
	}
	if n := w.downloads.Load(); n != 2 {
		t.Errorf("%d downloads", n)
	}
}

func TestWrongSize(t *testing.T) {
	w := newWorld(t)
	want := model(t, 300<<10, 0, 1)
	for _, chunked := range []bool{false, true} {
		for _, served := range [][]byte{want[:len(want)-4], append(bytes.Clone(want), 0)} {
			w.chunked = chunked
			w.files["tiny.gguf"] = served
			s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("X-Linked-Etag", strconv.Quote(sum(want)))
				rw.Header().Set("X-Linked-Size", strconv.Itoa(len(want)))
				rw.Header().Set("Location", w.URL+"/tiny.gguf")
				rw.WriteHeader(http.StatusFound)
			}))
			c := w.config(t)
			c.HuggingFaceBase = s.URL
			_, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
			if chunked && len(served) < len(want) {
				fails(t, err, ErrUnavailable, "after 307")
			} else {
				fails(t, err, ErrSize, "")
				empty(t, c)
			}
			s.Close()
		}
	}
}

// TestNoModels has servers send something else.
func TestNoModels(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ content, path, want string }{
		{"\n<!DOCTYPE html><html>Sign in", "/tiny.gguf", "it is a web page, perhaps of a login"},
		{"<html>", "/blob/tiny.gguf", "/resolve/ in place of /blob/"},
		{"version https://git-lfs.github.com/spec/v1\noid", "/tiny.gguf", "Git LFS pointer"},
		{"", "/tiny.gguf", "it is empty"},
		{"GG", "/tiny.gguf", `it begins with "GG"`},
		{strings.Repeat("x", 1<<20), "/tiny.gguf", `it begins with "xxxxxxxxxxxxxxxx"`},
	} {
		w.files[test.path[1:]] = []byte(test.content)
		c := w.config(t)
		_, err := Get(ctx, w.URL+test.path, c)
		fails(t, err, gguf.ErrNotGGUF, test.want)
		empty(t, c)
	}
	good := model(t, 4000, 0, 1)
	w.files["cut.gguf"] = good[:len(good)-1]
	c := w.config(t)
	_, err := Get(ctx, "hf:someone/model:cut.gguf", c)
	var format *gguf.FormatError
	if fails(t, err, err, "no model that can be opened"); !errors.As(err, &format) {
		t.Error(err)
	}
	empty(t, c)
}

func TestRetries(t *testing.T) {
	w := newWorld(t)
	want := model(t, 100<<10, 0, 1)
	w.files["tiny.gguf"] = want
	c := w.config(t)
	var pauses []time.Duration
	c.pause = func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }
	w.failures = []int{503, 429, 500, 408}
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, path, want)
	for i, p := range pauses {
		if low, high := max(time.Second, firstPause<<i/2), max(time.Second, firstPause<<i); p < low || p > high {
			t.Errorf("pause %d is %v, want %v to %v", i, p, low, high)
		}
	}
	if len(pauses) != 4 {
		t.Errorf("%d pauses", len(pauses))
	}

	w.failures = []int{503, 503, 503, 503, 503, 503}
	c.CacheDir = t.TempDir()
	_, err = Get(ctx, "hf:someone/model:tiny.gguf", c)
	fails(t, err, ErrUnavailable, "answers 503 Service Unavailable, after 5 attempts")
	if len(w.failures) != 1 {
		t.Errorf("%d failures are left", len(w.failures))
	}
	w.failures = []int{501}
	_, err = Get(ctx, "hf:someone/model:tiny.gguf", c)
	fails(t, err, ErrAnswer, "501")
	empty(t, c)
}

// TestManyCuts has a connection break more often than attempts are made in vain.
func TestManyCuts(t *testing.T) {
	w := newWorld(t)
	want := model(t, 9<<20, 0, 1)
	w.files["tiny.gguf"] = want
	for range 8 {
		w.cuts = append(w.cuts, 1<<20)
	}
	c := w.config(t)
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, path, want)
	w.cuts = []int{100, 0, 0, 0, 0, 0}
	c = w.config(t)
	_, err = Get(ctx, "hf:someone/model:tiny.gguf", c)
	fails(t, err, ErrUnavailable, "100 bytes are kept, fetch again to resume")
	empty(t, c, 100)
}

func TestRetryAfter(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	_, err := Get(ctx, "ollama:x", Config{CacheDir: t.TempDir(), OllamaBase: s.URL, Client: s.Client()})
	fails(t, err, ErrUnavailable, "asks to wait for 1h0m0s")
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	if d := retryAfter(date); d < 50*time.Minute || d > time.Hour {
		t.Errorf("%s is in %v", date, d)
	}
	for _, v := range []string{"", "-1", "soon", time.Unix(0, 0).UTC().Format(http.TimeFormat)} {
		if d := retryAfter(v); d != 0 {
			t.Errorf("%q is %v", v, d)
		}
	}
}

func TestStalls(t *testing.T) {
	w := newWorld(t)
	want := model(t, 300<<10, 0, 1)
	w.files["tiny.gguf"], w.stalls = want, 2
	c := w.config(t)
	c.stall = 200 * time.Millisecond
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, path, want)

	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	c.OllamaBase, c.stall = silent.URL, 20*time.Millisecond
	_, err = Get(ctx, "ollama:x", c)
	fails(t, err, ErrUnavailable, "nothing came for too long")
}

func TestRedirects(t *testing.T) {
	w := newWorld(t)
	c := w.config(t)
	_, err := Get(ctx, w.URL+"/loop/x.gguf", c)
	fails(t, err, ErrRedirect, "more than 10 redirects from "+w.URL+"/loop/x.gguf")
	_, err = Get(ctx, w.URL+"/nowhere/x.gguf", c)
	fails(t, err, ErrRedirect, "redirects to no address")
	for _, location := range []string{"file:///etc/passwd", "https:///x", "http://plain.example/x?signature=hush"} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Location", location)
			rw.WriteHeader(http.StatusFound)
		}))
		c.Client = s.Client()
		_, err := Get(ctx, s.URL+"/x.gguf", c)
		fails(t, err, ErrRedirect, "redirects ")
		s.Close()
	}
	empty(t, c)
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	c := Config{CacheDir: t.TempDir()}
	_, err := Get(ctx, s.URL+"/x.gguf", c)
	fails(t, err, ErrTLS, "a certificate that cannot be verified")
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	_, err = Get(ctx, strings.Replace(plain.URL, "http", "https", 1)+"/x.gguf", c)
	fails(t, err, ErrTLS, "does not speak https")
}

func TestNobodyListens(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	c := Config{CacheDir: t.TempDir(), pause: func(context.Context, time.Duration) error { return nil }}
	_, err := Get(ctx, s.URL+"/x.gguf", c)
	fails(t, err, ErrUnavailable, "after 5 attempts")
}

func TestCancel(t *testing.T) {
	before := runtime.NumGoroutine()
	func() {
		w := newWorld(t)
		want := model(t, 900<<10, 0, 1)
		w.files["tiny.gguf"] = want
		w.hold = make(chan struct{})
		c := w.config(t)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c.Progress = func(p Progress) {
			if p.Done > 0 {
				cancel()
			}
		}
		_, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
		fails(t, err, context.Canceled, "bytes are kept, fetch again to resume")
		parts, _ := filepath.Glob(filepath.Join(c.CacheDir, "partial", "*", "*.part"))
		if len(parts) != 1 {
			t.Fatalf("kept: %v", parts)
		}
		info, err := os.Stat(parts[0])
		if err != nil || info.Size() == 0 {
			t.Fatal(info, err)
		}
		empty(t, c, info.Size())
		if _, err := Get(ctx, "hf:someone/model:tiny.gguf", c); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that is over: %v", err)
		}
		close(w.hold)
		w.seen()
		path, err := Get(context.Background(), "hf:someone/model:tiny.gguf", c)
		if err != nil {
			t.Fatal(err)
		}
		holds(t, c, path, want)
		if got, want := w.seen()[2], "content bytes="+strconv.FormatInt(info.Size(), 10)+"-"; got != want {
			t.Errorf("asked for %q, want %q", got, want)
		}
		w.Client().CloseIdleConnections()
		w.Close()
		w.storage.Close()
	}()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 500 {
			buffer := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buffer[:runtime.Stack(buffer, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestConcurrent(t *testing.T) {
	w := newWorld(t)
	want := model(t, 900<<10, 0, 1)
	w.files["tiny.gguf"] = want
	c := w.config(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	all.Wait()
	if n := w.downloads.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// TestLock holds the lock of a file as another process would.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks", "x.lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	held, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := tryLock(path); err != nil || second != nil {
		if runtime.GOOS == "js" {
			t.Skip("there are no file locks here")
		}
		t.Fatalf("locked twice: %v, %v", second, err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = lock(short, path)
	fails(t, err, context.DeadlineExceeded, "waiting for another download")
	got := make(chan error)
	go func() {
		unlock, err := lock(ctx, path)
		if err == nil {
			unlock()
		}
		got <- err
	}()
	held.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if len(locked.paths) != 0 {
		t.Errorf("locks remain: %v", locked.paths)
	}
}

// smallDisk takes only so many bytes.
type smallDisk struct {
	*os.File
	left *int
}

func (s smallDisk) Write(b []byte) (int, error) {
	n, err := s.File.Write(b[:min(len(b), *s.left)])
	*s.left -= n
	if err == nil && n < len(b) {
		err = &os.PathError{Op: "write", Path: s.Name(), Err: syscall.ENOSPC}
	}
	return n, err
}

func TestDiskFull(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the error has another number")
	}
	w := newWorld(t)
	want := model(t, 900<<10, 0, 1)
	w.files["tiny.gguf"] = want
	c := w.config(t)
	left := 300<<10 + 7
	c.open = func(path string) (partFile, error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		return smallDisk{f, &left}, err
	}
	for _, kept := range []int64{300<<10 + 7, 400<<10 + 7} {
		_, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
		fails(t, err, ErrDiskFull, "free some space")
		fails(t, err, syscall.ENOSPC, strconv.FormatInt(kept, 10)+" bytes are kept")
		empty(t, c, kept)
		left = 100 << 10
	}
	left = 1 << 30
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, path, want)
}

// faultyFile fails at one operation, counted over all files that share the count.
type faultyFile struct {
	*os.File
	count *int
}

func (f faultyFile) fault(op string) error {
	*f.count--
	if *f.count == 0 {
		return &os.PathError{Op: op, Path: f.Name(), Err: syscall.EIO}
	}
	return nil
}

func (f faultyFile) Write(b []byte) (int, error) {
	if err := f.fault("write"); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f faultyFile) Seek(offset int64, whence int) (int64, error) {
	if err := f.fault("seek"); err != nil {
		return 0, err
	}
	return f.File.Seek(offset, whence)
}

func (f faultyFile) Truncate(size int64) error {
	if err := f.fault("truncate"); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f faultyFile) Sync() error {
	if err := f.fault("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f faultyFile) Close() error { return errors.Join(f.fault("close"), f.File.Close()) }

// TestEveryOperationFails has the disk fail at each operation on an unfinished file in turn.
func TestEveryOperationFails(t *testing.T) {
	w := newWorld(t)
	want := model(t, 900<<10, 0, 1)
	w.files["tiny.gguf"] = want
	for at := 1; ; at++ {
		c := w.config(t)
		count := at
		c.open = func(path string) (partFile, error) {
			f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
			return faultyFile{f, &count}, err
		}
		path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
		if err == nil {
			if count <= 0 || at < 8 {
				t.Errorf("no error at operation %d", at)
			}
			holds(t, c, path, want)
			return
		}
		fails(t, err, ErrStorage, "tiny.gguf.part")
		fails(t, err, syscall.EIO, "hf:someone/model:tiny.gguf")
		if models, err := Cached(c); err != nil || len(models) > 0 {
			t.Errorf("operation %d: the cache holds %v, %v", at, models, err)
		}
		c.open = nil
		if path, err = Get(ctx, "hf:someone/model:tiny.gguf", c); err != nil {
			t.Fatal(err)
		}
		holds(t, c, path, want)
	}
}

// TestNoPlace has folders lie where files are to be moved. Nothing that came is taken for the model,
// and once there is place it goes on.
func TestNoPlace(t *testing.T) {
	w := newWorld(t)
	parts := [][]byte{model(t, 100<<10, 0, 2), model(t, 100<<10, 1, 2)}
	ref := w.URL + "/" + partName("big", 1, 2)
	for i, part := range parts {
		w.files[partName("big", i+1, 2)] = part
	}
	r, err := parse(ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", recordSuffix} {
		for i := range parts {
			if i > 0 && suffix != "" {
				break // there is one record
			}
			c := w.config(t)
			at := filepath.Join(c.CacheDir, filepath.FromSlash(r.dir()), partName("big", i+1, 2)+suffix)
			if err := os.MkdirAll(filepath.Join(at, "taken"), 0o755); err != nil {
				t.Fatal(err)
			}
			_, err := Get(ctx, ref, c)
			fails(t, err, ErrStorage, filepath.Base(at))
			if models, err := Cached(c); err != nil || len(models) > 0 {
				t.Errorf("%s: the cache holds %v, %v", at, models, err)
			}
			os.RemoveAll(at)
			path, err := Get(ctx, ref, c)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, c, path, parts[0])
			holds(t, c, filepath.Join(filepath.Dir(path), partName("big", 2, 2)), parts[1])
		}
	}
}

func TestCacheThatCannotBeUsed(t *testing.T) {
	w := newWorld(t)
	w.files["tiny.gguf"] = model(t, 100, 0, 1)
	c := w.config(t)
	c.CacheDir = filepath.Join(c.CacheDir, "file")
	if err := os.WriteFile(c.CacheDir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	fails(t, err, ErrStorage, "file")
}

func TestRefresh(t *testing.T) {
	w := newWorld(t)
	old, want := model(t, 100<<10, 0, 1), model(t, 100<<10, 1, 1)
	c := w.config(t)
	c.Refresh = true
	for i, step := range []struct {
		file      []byte
		downloads int32
	}{{old, 1}, {old, 1}, {want, 2}, {want, 2}} {
		w.files["tiny.gguf"] = step.file
		path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
		if err != nil {
			t.Fatal(err)
		}
		holds(t, c, path, step.file)
		if n := w.downloads.Load(); n != step.downloads {
			t.Errorf("step %d: %d downloads, want %d", i, n, step.downloads)
		}
	}
}

func TestNames(t *testing.T) {
	w := newWorld(t)
	w.files["tiny.gguf"], w.files["quants/tiny.gguf"], w.files["Other-Q8_0.gguf"] = model(t, 100, 0, 1), model(t, 100, 0, 1), model(t, 100, 0, 1)
	c := w.config(t)
	before := time.Now().Add(-time.Minute)
	paths := make(map[string]string)
	for _, ref := range []string{"hf:someone/model:tiny.gguf", "hf:someone/model:quants/tiny.gguf", "hf:someone/model:Other-Q8_0.gguf", "ollama:tiny:1b"} {
		path, err := Get(ctx, ref, c)
		if err != nil {
			t.Fatal(err)
		}
		paths[ref] = path
	}
	for name, ref := range map[string]string{"Other-Q8_0": "hf:someone/model:Other-Q8_0.gguf", "Other-Q8_0.gguf": "hf:someone/model:Other-Q8_0.gguf", "tiny:1b": "ollama:tiny:1b"} {
		if path, err := Get(ctx, name, c); path != paths[ref] || err != nil {
			t.Errorf("%s: %s, %v", name, path, err)
		}
	}
	_, err := Get(ctx, "tiny", c)
	fails(t, err, ErrAmbiguous, "use one of hf:someone/model:quants/tiny.gguf, hf:someone/model:tiny.gguf")
	for _, name := range []string{"none", "1b", "tiny:2b", "model", "./tiny", "/none/tiny.gguf", "a\x00b", "..", "quants/tiny", strings.Repeat("x", 300)} {
		if _, err := Get(ctx, name, c); name == ".." {
			fails(t, err, err, "this is a folder")
		} else {
			fails(t, err, ErrNotCached, "no such file or cached model")
			fails(t, err, fs.ErrNotExist, "")
		}
	}
	models, err := Cached(c)
	if err != nil || len(models) != 4 {
		t.Fatal(models, err)
	}
	var names []string
	for _, m := range models {
		names = append(names, m.Name)
		if info, err := os.Stat(m.Path); err != nil || info.Size() != m.Size || m.Time.Before(before) || m.Path != paths[m.Source] {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if want := []string{"Other-Q8_0", "tiny", "tiny", "tiny:1b"}; !reflect.DeepEqual(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}

	local := filepath.Join(t.TempDir(), "local.gguf")
	if err := os.WriteFile(local, []byte("anything"), 0o644); err != nil {
		t.Fatal(err)
	}
	if path, err := Get(ctx, local, Config{}); path != local || err != nil {
		t.Errorf("%s, %v", path, err)
	}
}

// TestRecords has records be damaged; such a model is not in the cache.
func TestRecords(t *testing.T) {
	w := newWorld(t)
	w.files["tiny.gguf"] = model(t, 100, 0, 1)
	c := w.config(t)
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path + recordSuffix)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", "null", "[]", `{"Version":1}`, strings.Repeat(" ", maxRecord) + string(good),
		strings.Replace(string(good), `"Version": 1`, `"Version": 2`, 1),
		strings.Replace(string(good), `"tiny.gguf",`, `"../tiny.gguf",`, 1),
		strings.Replace(string(good), `"Size": `, `"Size": 1`, 1),
	} {
		if err := os.WriteFile(path+recordSuffix, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if models, err := Cached(c); len(models) != 0 || err != nil {
			t.Errorf("%.60q: %v, %v", bad, models, err)
		}
	}
	if again, err := Get(ctx, "hf:someone/model:tiny.gguf", c); again != path || err != nil {
		t.Errorf("%s, %v", again, err)
	}
	if models, err := Cached(c); len(models) != 1 || err != nil {
		t.Errorf("%v, %v", models, err)
	}
}

// TestWholeFileLeft has a call end while it moves files.
func TestWholeFileLeft(t *testing.T) {
	w := newWorld(t)
	want := model(t, 100<<10, 0, 1)
	w.files["tiny.gguf"], w.cuts = want, []int{50 << 10}
	c := w.config(t)
	c.pause = func(context.Context, time.Duration) error { return context.Canceled }
	if _, err := Get(ctx, "hf:someone/model:tiny.gguf", c); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	parts, _ := filepath.Glob(filepath.Join(c.CacheDir, "partial", "*", "*.part"))
	if len(parts) != 1 {
		t.Fatal(parts)
	}
	os.Remove(parts[0])
	if err := os.WriteFile(strings.TrimSuffix(parts[0], ".part"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	w.seen()
	path, err := Get(ctx, "hf:someone/model:tiny.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, path, want)
	if got := w.seen(); !reflect.DeepEqual(got, []string{"hub HEAD"}) {
		t.Errorf("asked for %v", got)
	}
}

// Environment variables that make the test's own program one of several that fetch.
const (
	envHelperURL   = "FETCH_TEST_URL"
	envHelperCache = "FETCH_TEST_CACHE"
)

// TestProcesses has several processes fetch one model; it is downloaded once.
func TestProcesses(t *testing.T) {
	if address := os.Getenv(envHelperURL); address != "" {
		if _, err := Get(ctx, "hf:someone/model:tiny.gguf", Config{CacheDir: os.Getenv(envHelperCache), HuggingFaceBase: address}); err != nil {
			t.Error(err)
		}
		return
	}
	if runtime.GOOS == "js" {
		t.Skip("there are no processes here")
	}
	w := newWorld(t)
	want := model(t, 2<<20, 0, 1)
	// Requests from other processes are not ordered after this by what the race detector
	// sees; the lock that the server takes for every request is.
	w.mu.Lock()
	w.files["tiny.gguf"] = want
	w.mu.Unlock()
	c := w.config(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
			cmd.Env = append(os.Environ(), envHelperURL+"="+w.URL, envHelperCache+"="+c.CacheDir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	path, err := Get(ctx, "tiny", c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, c, path, want)
	if n := w.downloads.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}
