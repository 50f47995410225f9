package fetch

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
)

func TestReferences(t *testing.T) {
	for _, test := range []struct{ text, canonical, dir, file, name string }{
		{"hf:Qwen/Qwen3-0.6B-GGUF:q8_0.gguf", "", "hf/Qwen/Qwen3-0.6B-GGUF/main", "q8_0.gguf", "q8_0"},
		{"hf:a/b:sub/dir/c d.gguf", "", "hf/a/b/main/sub/dir", "c d.gguf", "c d"},
		{"hf:a/b:c.gguf@v1.0", "", "hf/a/b/v1.0", "c.gguf", "c"},
		{"hf:a/b@v1.0:c.gguf", "hf:a/b:c.gguf@v1.0", "hf/a/b/v1.0", "c.gguf", "c"},
		{"hf:a/b:c.gguf@main", "hf:a/b:c.gguf", "hf/a/b/main", "c.gguf", "c"},
		{"hf:a/b:c@2.gguf@refs/pr/1", "", "hf/a/b/refs%2Fpr%2F1", "c@2.gguf", "c@2"},
		{"hf:a/b:c-00002-of-00003.gguf", "hf:a/b:c-00001-of-00003.gguf", "hf/a/b/main", "c-00001-of-00003.gguf", "c"},
		{"ollama:qwen3:0.6b", "", "ollama/library/qwen3", "0.6b.gguf", "qwen3:0.6b"},
		{"ollama:qwen3", "ollama:qwen3:latest", "ollama/library/qwen3", "latest.gguf", "qwen3:latest"},
		{"ollama:me/mine:1", "", "ollama/me/mine", "1.gguf", "me/mine:1"},
		{"ollama:library/qwen3:4b", "ollama:qwen3:4b", "ollama/library/qwen3", "4b.gguf", "qwen3:4b"},
		{"https://h/a/b%20c.gguf", "", "", "b c.gguf", "b c"},
		{"https://h/b.gguf#sha256=" + strings.Repeat("aB", 32), "https://h/b.gguf", "", "b.gguf", "b"},
		{"http://127.0.0.1:80/b.gguf", "", "", "b.gguf", "b"},
		{"http://h/b.gguf#sha256=" + strings.Repeat("ab", 32), "http://h/b.gguf", "", "b.gguf", "b"},
	} {
		r, err := parse(test.text)
		if err != nil {
			t.Error(err)
			continue
		}
		if test.canonical == "" {
			test.canonical = test.text
		}
		if test.dir == "" {
			test.dir = "url/" + r.key()
		}
		if r.canonical() != test.canonical || r.dir() != test.dir || r.file != test.file || r.shortName() != test.name {
			t.Errorf("%s: %s, %s, %s, %s; want %+v", test.text, r.canonical(), r.dir(), r.file, r.shortName(), test)
		}
	}
}

func TestWrongReferences(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "it is empty",
		"hf:":                      "want hf:OWNER/REPO:FILE.gguf",
		"hf:a/b":                   "want hf:OWNER/REPO:FILE.gguf",
		"hf:a:b.gguf":              "want OWNER/REPO",
		"hf:a/b/c:d.gguf":          `repository "b/c" has a character`,
		"hf:../b:d.gguf":           `owner ".." has to begin`,
		"hf:a/..:d.gguf":           `repository ".." has to begin`,
		"hf:a/b:../d.gguf":         "begins with a dot",
		"hf:a/b:x/../../d.gguf":    "begins with a dot",
		"hf:a/b:/etc/d.gguf":       "is empty",
		"hf:a/b:x//d.gguf":         "is empty",
		`hf:a/b:x\d.gguf`:          "not allowed",
		"hf:a/b:C:d.gguf":          "not allowed",
		"hf:a/b:d\x00.gguf":        "not allowed",
		"hf:a/b:d\xff.gguf":        "UTF-8",
		"hf:a/b:NUL.gguf":          "device on Windows",
		"hf:a/com1:d.gguf":         "device on Windows",
		"hf:a/b:LPT¹ .x/d.gguf":    "device on Windows",
		"hf:a/b:x./d.gguf":         "ends with a dot",
		"hf:a/b:x /d.gguf":         "ends with a dot or a space",
		"hf:a/b:model.safetensors": "want NAME.gguf",
		"hf:a/b:.gguf":             "begins with a dot",
		"hf:a/b:d.gguf@":           `revision "" has to begin`,
		"hf:a/b:d.gguf@..":         `revision ".." has to begin`,
		"hf:a/b:d.gguf@a/../b":     `revision ".." has to begin`,
		"hf:a/b:d.gguf@a%2e":       "has a character",
		"hf:a/b@x:d.gguf@y":        "two revisions",
		"hf:a/b:" + strings.Repeat("x/", 9) + "d.gguf": "folders deep",
		"hf:a/b:" + strings.Repeat("x", 300) + ".gguf": "at most 200",
		"hf:a/b:d-00001-of-02000.gguf":                 "at most 1000",
		"hf:a/b:" + strings.Repeat("x", 5000):          "at most 4096",
		"ollama:":                                      `name "" has to begin`,
		"ollama:a:":                                    `tag "" has to begin`,
		"ollama:a:b:c":                                 "has a character",
		"ollama:a/b/c:d":                               "has a character",
		"ollama:../a:b":                                `namespace ".." has to begin`,
		"ollama:a:../b":                                "has a character",
		"ollama:a:-b":                                  "has to begin",
		"ftp://h/a.gguf":                               "no downloading by ftp",
		"file:///a.gguf":                               "no downloading by file",
		"https:///a.gguf":                              "names no host",
		"https:a.gguf":                                 "names no host",
		"https://h/":                                   "it names no file",
		"https://h":                                    "it names no file",
		"https://h/a/..":                               "begins with a dot",
		"https://h/a%2e%5cb.gguf":                      "not allowed",
		"https://h/a.gguf?file=b.bin#x":                "want sha256= and 64",
		"https://h/a.gguf#sha256=12":                   "want sha256= and 64",
		"http://h/a.gguf":                              "use https, or add #sha256=",
		"https://h/%zz.gguf":                           "it is no address",
		"https://h/a-00001-of-00002.gguf#sha256=" + strings.Repeat("ab", 32): "one digest cannot hold for the 2 files",
	} {
		_, err := parse(text)
		fails(t, err, ErrReference, want)
	}
	_, err := parse("http://user:hush@h/a.gguf?token=hush")
	fails(t, err, ErrReference, "http://h/a.gguf")
}

func TestKeysDiffer(t *testing.T) {
	seen := make(map[string]string)
	for _, text := range []string{"hf:a/b:c.gguf", "hf:a/b:c.gguf@v1", "hf:a/b:v1/c.gguf", "hf:A/b:c.gguf", "ollama:a/b:c", "ollama:a:c", "https://h/c.gguf", "https://h/c.gguf?x"} {
		r, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		place := path.Join(r.dir(), r.file)
		if other, ok := seen[r.key()]; ok {
			t.Errorf("%s and %s have one key", text, other)
		}
		if other, ok := seen[place]; ok {
			t.Errorf("%s and %s have one place", text, other)
		}
		seen[r.key()], seen[place] = text, text
	}
}

// FuzzParse holds every reference that is accepted to stay inside the cache, and to mean
// the same when its canonical form is parsed.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"hf:a/b:c.gguf", "hf:a/b@v1:d/c.gguf", "hf:a/b:c-00002-of-00003.gguf@refs/pr/1", "ollama:a/b:c", "ollama:a",
		"https://u:p@h:1/a%2Fb.gguf?q#sha256=" + strings.Repeat("0f", 32), "http://localhost/a-00001-of-00009.gguf", "name:tag", `C:\x.gguf`, "../x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parse(text)
		if err != nil || r.kind == localKind {
			return
		}
		for _, file := range r.files() {
			place := path.Join(r.dir(), file)
			if !filepath.IsLocal(filepath.FromSlash(place)) {
				t.Fatalf("%q leads to %q", text, place)
			}
			if path.Dir(place) != r.dir() || strings.ContainsAny(place, "\\\x00") || !strings.HasSuffix(place, ".gguf") {
				t.Fatalf("%q leads to %q", text, place)
			}
		}
		if top, _, _ := strings.Cut(r.dir(), "/"); top != "hf" && top != "ollama" && top != "url" {
			t.Fatalf("%q lies in %q", text, r.dir())
		}
		again, err := parse(r.canonical())
		if r.kind == webKind && r.digest != "" && r.address.Scheme == "http" {
			return // it is accepted only with the digest
		}
		if err != nil || again.canonical() != r.canonical() || again.key() != r.key() || again.dir() != r.dir() || again.file != r.file {
			t.Fatalf("%q is %q, which is %+v, %v", text, r.canonical(), again, err)
		}
	})
}
