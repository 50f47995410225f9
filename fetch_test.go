package minfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/gguf"
)

// tinyFile is a GGUF file without weights.
func tinyFile() []byte {
	w := gguf.NewWriter()
	w.SetString("general.architecture", "qwen3")
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		log.Fatal(err)
	}
	return b.Bytes()
}

// newHub serves one file as Hugging Face does: the headers of a redirect tell its size and
// digest, and the file lies elsewhere.
func newHub(file []byte) *httptest.Server {
	digest := sha256.Sum256(file)
	mux := http.NewServeMux()
	mux.HandleFunc("/someone/tiny/resolve/main/tiny-q8_0.gguf", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Linked-Etag", strconv.Quote(hex.EncodeToString(digest[:])))
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(file)))
		http.Redirect(w, r, "/storage", http.StatusFound)
	})
	mux.HandleFunc("/storage", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
	})
	return httptest.NewServer(mux)
}

func ExampleFetch() {
	cache, err := os.MkdirTemp("", "models")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(cache)
	hub := newHub(tinyFile()) // in place of huggingface.co
	defer hub.Close()

	path, err := minfer.Fetch(context.Background(), "hf:someone/tiny:tiny-q8_0.gguf",
		minfer.WithHuggingFaceBase(hub.URL),
		minfer.WithCacheDir(cache),
		minfer.WithFetchProgress(func(p minfer.FetchProgress) {
			if p.Done == p.Total {
				fmt.Printf("%s: file %d of %d is complete\n", p.File, p.Index+1, p.Files)
			}
		}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(filepath.Base(path))

	// From now on its name will do, and no network is needed.
	again, err := minfer.Fetch(context.Background(), "tiny-q8_0", minfer.WithCacheDir(cache))
	fmt.Println(again == path, err)
	// Output:
	// tiny-q8_0.gguf: file 1 of 1 is complete
	// tiny-q8_0.gguf
	// true <nil>
}

func ExampleCachedModels() {
	cache, err := os.MkdirTemp("", "models")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(cache)
	hub := newHub(tinyFile()) // in place of huggingface.co
	defer hub.Close()
	options := []minfer.FetchOption{minfer.WithHuggingFaceBase(hub.URL), minfer.WithCacheDir(cache)}
	if _, err := minfer.Fetch(context.Background(), "hf:someone/tiny:tiny-q8_0.gguf", options...); err != nil {
		log.Fatal(err)
	}

	models, err := minfer.CachedModels(options...)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range models {
		fmt.Println(m.Name, m.Source)
	}
	// Output:
	// tiny-q8_0 hf:someone/tiny:tiny-q8_0.gguf
}

func TestFetchErrors(t *testing.T) {
	hub := newHub(tinyFile())
	defer hub.Close()
	cache := t.TempDir()
	for _, test := range []struct {
		ref     string
		options []minfer.FetchOption
		want    error
		text    string
	}{
		{"hf:someone/tiny:other.gguf", nil, minfer.ErrFetchNotFound, "has no file other.gguf"},
		{"hf:tiny.gguf", nil, minfer.ErrFetchReference, "want hf:OWNER/REPO:FILE.gguf"},
		{"tiny", nil, minfer.ErrNotCached, "want hf:"},
		{"tiny", nil, fs.ErrNotExist, "want hf:"},
		{"ollama:tiny", []minfer.FetchOption{minfer.WithOllamaBase("tcp://host")}, minfer.ErrOption, `"tcp://host" is no address`},
	} {
		options := append([]minfer.FetchOption{minfer.WithHuggingFaceBase(hub.URL), minfer.WithCacheDir(cache)}, test.options...)
		path, err := minfer.Fetch(context.Background(), test.ref, options...)
		if path != "" || !errors.Is(err, test.want) || !strings.HasPrefix(fmt.Sprint(err), "minfer: ") || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %q, %v, want an error with %q", test.ref, path, err, test.text)
		}
	}
	var detail *minfer.FetchError
	_, err := minfer.Fetch(context.Background(), "hf:someone/tiny:other.gguf", minfer.WithHuggingFaceBase(hub.URL), minfer.WithCacheDir(cache))
	if !errors.As(err, &detail) || detail.Status != http.StatusNotFound || detail.Ref != "hf:someone/tiny:other.gguf" {
		t.Errorf("detail of %v: %+v", err, detail)
	}
	if models, err := minfer.CachedModels(minfer.WithCacheDir(cache)); err != nil || len(models) != 0 {
		t.Errorf("after failures the cache holds %v, %v", models, err)
	}
}
