package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/storyteller"
)

// TestDownload chats with models from a server in place of Hugging Face, and with them
// again by their names when the server is gone.
func TestDownload(t *testing.T) {
	digest := sha256.Sum256(storyteller.Model)
	mux := http.NewServeMux()
	mux.HandleFunc("/some/one/resolve/main/story.gguf", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Linked-Etag", fmt.Sprintf("%q", hex.EncodeToString(digest[:])))
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(storyteller.Model)))
		http.Redirect(w, r, "/storage", http.StatusFound)
	})
	mux.HandleFunc("/storage", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(storyteller.Model))
	})
	hub := httptest.NewServer(mux)
	defer hub.Close()
	t.Setenv("HF_ENDPOINT", hub.URL)
	t.Setenv("MINFER_CACHE", t.TempDir())

	const question, answer = "What is 3 + 4?", "3 plus 4 is 7.\n"
	stdout, stderr, code := chat(t, "", "-m", "hf:some/one:story.gguf", "-temp", "0", question)
	want := "downloading story.gguf: 0% of 2.8 MiB\ndownloaded story.gguf: 2.8 MiB\n"
	if stdout != answer || code != 0 || !strings.HasPrefix(stderr, want) {
		t.Errorf("code %d: %q\n%s", code, stdout, stderr)
	}
	_, stderr, code = chat(t, "", "-m", "hf:some/one:other.gguf", question)
	if code != 1 || !strings.Contains(stderr, "chat: fetch: hf:some/one:other.gguf: other.gguf: not found on the server") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("code %d: %s", code, stderr)
	}
	hub.Close()
	stdout, stderr, code = chat(t, "", "-m", "story", "-temp", "0", question)
	if stdout != answer || code != 0 || strings.Contains(stderr, "download") {
		t.Errorf("by its name: code %d: %q\n%s", code, stdout, stderr)
	}
}

func TestDownloadLine(t *testing.T) {
	var out bytes.Buffer
	p := &downloadProgress{notes: &notes{w: &out}, live: true}
	p.show(minfer.FetchProgress{File: "a.gguf", Files: 2, Total: 4 << 20})
	p.began = p.began.Add(-2 * time.Second)
	p.painted = p.painted.Add(-time.Second)
	p.show(minfer.FetchProgress{File: "a.gguf", Files: 2, Done: 1 << 20, Total: 4 << 20})
	p.show(minfer.FetchProgress{File: "a.gguf", Files: 2, Done: 2 << 20, Total: 4 << 20}) // too soon
	p.show(minfer.FetchProgress{File: "a.gguf", Files: 2, Done: 4 << 20, Total: 4 << 20})
	p.show(minfer.FetchProgress{File: "b.gguf", Index: 1, Files: 2, Done: 0, Total: -1})
	p.end()
	p.end()
	got := strings.ReplaceAll(out.String(), "\r\x1b[K", "|")
	first, rest, _ := strings.Cut(got, ", ")
	_, rest, _ = strings.Cut(rest, " left")
	if first != "|downloading a.gguf (1 of 2): 0% of 4.0 MiB|downloading a.gguf (1 of 2): 25% of 4.0 MiB" ||
		rest != "|downloaded a.gguf (1 of 2): 4.0 MiB\n|downloading b.gguf (2 of 2): 0.0 KiB\n" {
		t.Errorf("%q", got)
	}
}
