package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/internal/testfiles"
	"github.com/minfer/minfer/internal/tokenizer"
	"golang.org/x/text/unicode/norm"
)

func openTokenizer(t testing.TB, path string) *tokenizer.Tokenizer {
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := tokenizer.FromMetadata(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func encode(t testing.TB, tok *tokenizer.Tokenizer, text string, o tokenizer.EncodeOptions) []int32 {
	ids, err := tok.Encode(text, o)
	if err != nil {
		t.Fatalf("Encode(%.60q): %v", text, err)
	}
	return ids
}

// The vectors of the small models, by two implementations that agree.
func TestGoldenVectors(t *testing.T) {
	for _, name := range []string{"tiny-llama", "tiny-llama-spm", "tiny-qwen3"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(testfiles.Shared(t, "golden", "tokenizer", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var cases []struct {
				Text       string
				IDs        []int32
				Special    []int32 `json:"ids_special"`
				BOSSpecial []int32 `json:"ids_bos_special"`
			}
			if err := json.Unmarshal(data, &cases); err != nil {
				t.Fatal(err)
			}
			tok := openTokenizer(t, testfiles.Shared(t, "golden", "models", name+"-f16.gguf"))
			for _, c := range cases {
				if tok.Pre() == "qwen2" && !norm.NFC.IsNormalString(c.Text) {
					continue // llama.cpp leaves the text as it is; Hugging Face, whom we follow, does not
				}
				for _, v := range []struct {
					o    tokenizer.EncodeOptions
					want []int32
				}{
					{tokenizer.EncodeOptions{}, c.IDs},
					{tokenizer.EncodeOptions{ParseSpecial: true}, c.Special},
					{tokenizer.EncodeOptions{ParseSpecial: true, AddSpecial: true}, c.BOSSpecial},
				} {
					if diff := cmp.Diff(v.want, encode(t, tok, c.Text, v.o), cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("%q %+v (-want +got):\n%s", c.Text, v.o, diff)
					}
				}
			}
		})
	}
}

// Real vocabularies of many families, with texts and the reference's ids.
func TestReferenceVocabularies(t *testing.T) {
	vocabularies := []string{"command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe",
		"llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"}
	for _, name := range vocabularies {
		t.Run(name, func(t *testing.T) {
			path := testfiles.Oracle(t, "headers", "models", "ggml-vocab-"+name+".gguf")
			texts, ids := referenceVectors(t, path)
			tok := openTokenizer(t, path)
			for i, text := range texts {
				if name == "qwen35" && !norm.NFC.IsNormalString(text) {
					text = norm.NFC.String(text) // see above; these ids are llama.cpp's
					if got := encode(t, tok, text, tokenizer.EncodeOptions{}); tok.Decode(got, tokenizer.DecodeOptions{}) != text {
						t.Errorf("%q: %v", text, got)
					}
					continue
				}
				got := encode(t, tok, text, tokenizer.EncodeOptions{})
				if fmt.Sprint(got) == fmt.Sprint(ids[i]) {
					if !strings.Contains(text, "▁") && tok.Decode(got, tokenizer.DecodeOptions{}) != text {
						t.Errorf("%q decodes to %q", text, tok.Decode(got, tokenizer.DecodeOptions{}))
					}
					continue
				}
				t.Errorf("%q\n got %v\nwant %v", text, got, ids[i])
			}
		})
	}
}

func referenceVectors(t *testing.T, path string) (texts []string, ids [][]int32) {
	in, err := os.ReadFile(path + ".inp")
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	texts = strings.Split(string(in), "\n__ggml_vocab_test__\n")
	lines := strings.Split(string(out), "\n")
	if len(texts) == 0 || len(lines) < len(texts) {
		t.Fatalf("%d texts, %d lines of ids", len(texts), len(lines))
	}
	for i := range texts {
		row := []int32{}
		for _, field := range strings.Fields(lines[i]) {
			id, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, int32(id))
		}
		ids = append(ids, row)
	}
	return texts, ids
}

// Prompts of real models, encoded by llama.cpp.
func TestRealPrompts(t *testing.T) {
	for _, name := range []string{"smollm2-135m-instruct-q4_1", "qwen2.5-coder-0.5b-instruct-q4_k_m", "storyteller-q8_0"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(testfiles.Shared(t, "golden", "real", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var golden struct {
				Prompts []struct {
					Text           string
					Tokens, Greedy []int32
				}
			}
			if err := json.Unmarshal(data, &golden); err != nil || len(golden.Prompts) == 0 {
				t.Fatal(err, len(golden.Prompts))
			}
			tok := openTokenizer(t, testfiles.Model(t, name+".gguf"))
			for _, p := range golden.Prompts {
				got := encode(t, tok, p.Text, tokenizer.EncodeOptions{ParseSpecial: true, AddSpecial: true})
				if diff := cmp.Diff(p.Tokens, got); diff != "" {
					t.Errorf("%q (-want +got):\n%s", p.Text, diff)
				}
				if text := tok.Decode(got, tokenizer.DecodeOptions{Special: true}); text != p.Text {
					t.Errorf("%q comes back as %q", p.Text, text)
				}
			}
		})
	}
}

// What opening a vocabulary costs, once its metadata are read.
func BenchmarkNewReal(b *testing.B) {
	for _, name := range []string{"qwen2", "llama-bpe", "llama-spm"} {
		b.Run(name, func(b *testing.B) {
			f, err := gguf.Open(testfiles.Oracle(b, "headers", "models", "ggml-vocab-"+name+".gguf"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			c, err := tokenizer.ConfigFromMetadata(f)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tokenizer.New(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
