package gguf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/minfer/minfer/internal/testfiles"
	"golang.org/x/exp/maps"
	"golang.org/x/exp/slices"
)

// Facts about the models, found with the format's reference reader in Python:
// the number of keys, and of tensors of each type.
func TestRealModels(t *testing.T) {
	dir := testfiles.Shared(t)
	cases := []struct {
		path string
		arch string
		keys int
		want map[string]int
	}{
		{"models/storyteller-q8_0.gguf", "qwen3", 28, map[string]int{"F32": 17, "Q8_0": 29}},
		{"models/storyteller-f16.gguf", "qwen3", 28, map[string]int{"F16": 29, "F32": 17}},
		{"models/storyteller-q4_0.gguf", "qwen3", 29, map[string]int{"F32": 17, "Q4_0": 28, "Q6_K": 1}},
		{"models/storyteller-q4_k_m.gguf", "qwen3", 29, map[string]int{"F32": 17, "Q4_K": 24, "Q6_K": 5}},
		{"golden/models/tiny-qwen2-q4_k_m.gguf", "qwen2", 23, map[string]int{"F32": 11, "Q4_K": 12, "Q6_K": 3}},
		{"golden/models/tiny-qwen2-iq4_xs.gguf", "qwen2", 23, map[string]int{"F32": 11, "IQ4_XS": 14, "Q6_K": 1}},
		{"golden/models/tiny-qwen2-q2_k.gguf", "qwen2", 23, map[string]int{"F32": 11, "Q2_K": 8, "Q3_K": 6, "Q6_K": 1}},
		{"golden/models/tiny-qwen2-q5_1.gguf", "qwen2", 23, map[string]int{"F32": 11, "Q5_1": 14, "Q6_K": 1}},
		{"golden/models/tiny-qwen3-bf16.gguf", "qwen3", 25, map[string]int{"BF16": 15, "F32": 9}},
		{"golden/models/tiny-qwen3-iq4_nl.gguf", "qwen3", 25, map[string]int{"F32": 9, "IQ4_NL": 14, "Q6_K": 1}},
		{"golden/models/tiny-qwen3-q3_k_m.gguf", "qwen3", 25, map[string]int{"F32": 9, "Q3_K": 8, "Q4_K": 4, "Q5_K": 2, "Q6_K": 1}},
		{"golden/models/tiny-llama-q6_k.gguf", "llama", 23, map[string]int{"F32": 7, "Q6_K": 23}},
		{"golden/models/tiny-llama-spm-q4_k_m.gguf", "llama", 27, map[string]int{"F32": 6, "Q4_K": 12, "Q6_K": 3}},
	}
	for _, c := range cases {
		f := openBoth(t, filepath.Join(dir, filepath.FromSlash(c.path)))
		if arch, err := f.Architecture(); arch != c.arch || err != nil {
			t.Errorf("%s: architecture %q, %v", c.path, arch, err)
		}
		if got := len(f.Keys()); got != c.keys {
			t.Errorf("%s: %d keys, want %d", c.path, got, c.keys)
		}
		if got := typeCounts(f); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.path, got, c.want)
		}
	}
}

// Real vocabularies, in versions 2 and 3, from files without tensors.
func TestRealVocabularies(t *testing.T) {
	cases := []struct {
		name    string
		version uint32
		tokens  int
	}{
		{"aquila", 2, 100008}, {"baichuan", 3, 64000}, {"gpt-2", 3, 50257}, {"qwen2", 3, 151936}, {"gemma-4", 3, 262144},
	}
	for _, c := range cases {
		path := testfiles.Oracle(t, "headers", "models", "ggml-vocab-"+c.name+".gguf")
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := f.Strings("tokenizer.ggml.tokens")
		if err != nil || len(tokens) != c.tokens || f.Version() != c.version {
			t.Errorf("%s: version %d with %d tokens, %v", c.name, f.Version(), len(tokens), err)
		}
		f.Close()
	}
}

// typeCounts counts the tensors of each type.
func typeCounts(f *File) map[string]int {
	counts := map[string]int{}
	for _, w := range f.Tensors() {
		counts[w.Type.String()]++
	}
	return counts
}

// Every shared model opens both ways, is whole, fills its file to the last
// tensor, and has the vocabulary it says.
func TestAllSharedModels(t *testing.T) {
	dir := testfiles.Shared(t)
	paths, _ := filepath.Glob(filepath.Join(dir, "golden", "models", "*.gguf"))
	more, _ := filepath.Glob(filepath.Join(dir, "models", "*.gguf"))
	paths = append(paths, more...)
	if len(paths) < 30 {
		t.Fatalf("only %d models found", len(paths))
	}
	for _, path := range paths {
		f := openBoth(t, path)
		if err := f.Check(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		var end uint64
		for _, w := range f.Tensors() {
			end = max(end, w.Offset+w.Size)
		}
		align := uint64(f.Alignment())
		if size := uint64(f.Size()); (end+align-1)/align*align != size && end != size {
			t.Errorf("%s: data ends at %d of %d", path, end, size)
		}
		arch, err := f.Architecture()
		if err != nil || !strings.Contains(path, arch) && arch != "qwen3" {
			t.Errorf("%s: architecture %q, %v", path, arch, err)
		}
		tokens, err := f.Strings("tokenizer.ggml.tokens")
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		embd, ok := f.Tensor("token_embd.weight")
		width, err := f.Int(arch + ".embedding_length")
		if want := [4]int{width, len(tokens), 1, 1}; !ok || err != nil || embd.Shape() != want {
			t.Errorf("%s: token_embd is %v, want %v, %v", path, embd, want, err)
		}
	}
}

// openBoth opens a file mapped and read, checks that both see the same, and
// returns the mapped one.
func openBoth(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	g, err := Open(path, WithoutMmap())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if !slices.Equal(f.Keys(), g.Keys()) || !cmp.Equal(f.Tensors(), g.Tensors()) {
		t.Errorf("%s: mapped and read differ", path)
	}
	for _, key := range f.Keys() {
		a, _ := f.Value(key)
		b, _ := g.Value(key)
		if !cmp.Equal(a, b) {
			t.Errorf("%s: key %s differs", path, key)
		}
	}
	return f
}

// Writing a real model again gives the same bytes: our writer lays files out as
// llama.cpp does.
func TestRewriteRealModel(t *testing.T) {
	path := testfiles.Shared(t, "models", "storyteller-q4_k_m.gguf")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewBytes(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := rewrite(t, f); !slices.Equal(got, want) {
		t.Errorf("%d bytes became %d others", len(want), len(got))
	}
	if kinds := maps.Keys(typeCounts(f)); !slices.Contains(kinds, "Q4_K") {
		t.Errorf("types are %v", kinds)
	}
}

func BenchmarkOpen(b *testing.B) {
	w := NewWriter()
	tokens := make([]string, 150_000)
	for i := range tokens {
		tokens[i] = "token" + strings.Repeat("x", i%9)
	}
	w.SetStrings("tokenizer.ggml.tokens", tokens)
	w.SetStrings("tokenizer.ggml.merges", tokens)
	w.SetInt32s("tokenizer.ggml.token_type", make([]int32, len(tokens)))
	for i := range 300 {
		w.AddTensor(strings.Repeat("t", 20)+string(rune('a'+i)), TypeI8, []uint64{64}, make([]byte, 64))
	}
	path := filepath.Join(b.TempDir(), "model.gguf")
	out, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.WriteTo(out); err != nil {
		b.Fatal(err)
	}
	out.Close()
	for _, c := range []struct {
		name string
		opts []Option
	}{{"mapped", nil}, {"read", []Option{WithoutMmap()}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := Open(path, c.opts...)
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
		})
	}
}
