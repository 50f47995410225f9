package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/exp/slices"
)

// A vocabulary of testdata: the first tokens of a real one, with texts and their ids by
// two other implementations.
type testVocabulary struct {
	Config
	Vectors []testVector
}

type testVector struct {
	Text       string
	IDs        []int32 `json:"ids"`
	Special    []int32 `json:"ids_special"`
	BOSSpecial []int32 `json:"ids_bos_special"`
}

var vocabularyCache sync.Map

func readVocabulary(t testing.TB, name string) testVocabulary {
	if v, ok := vocabularyCache.Load(name); ok {
		return v.(testVocabulary)
	}
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Model, Pre     string
		Tokens, Merges []string
		Types          []Type
		Scores         []float32
		IDs            struct{ BOS, EOS, Padding, Unknown *int32 }
		AddBOS         *bool `json:"add_bos"`
		Vectors        []testVector
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	c := Config{Model: v.Model, Pre: v.Pre, Tokens: v.Tokens, Merges: v.Merges, Types: v.Types, Scores: v.Scores, AddBOS: v.AddBOS, IDs: map[Role]int32{}}
	for role, id := range map[Role]*int32{RoleBOS: v.IDs.BOS, RoleEOS: v.IDs.EOS, RolePAD: v.IDs.Padding, RoleUNK: v.IDs.Unknown} {
		if id != nil {
			c.IDs[role] = *id
		}
	}
	out := testVocabulary{c, v.Vectors}
	vocabularyCache.Store(name, out)
	return out
}

func mustNew(t testing.TB, c Config) *Tokenizer {
	t.Helper()
	tok, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// qwen3 and llamaSPM are small tokenizers of the two kinds.
func qwen3(t testing.TB) *Tokenizer    { return mustNew(t, readVocabulary(t, "qwen3").Config) }
func llamaSPM(t testing.TB) *Tokenizer { return mustNew(t, readVocabulary(t, "llama-spm").Config) }

// smallTokenizers are those that give every text back byte for byte, the NFC of qwen3 aside.
func smallTokenizers(t testing.TB) map[string]*Tokenizer {
	c := readVocabulary(t, "qwen3").Config
	plain := c
	plain.Pre = "gpt-2"
	return map[string]*Tokenizer{"qwen2": mustNew(t, c), "gpt-2": mustNew(t, plain), "llama": llamaSPM(t)}
}

func mustEncode(t testing.TB, tok *Tokenizer, text string, o EncodeOptions) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, o)
	if err != nil {
		t.Fatalf("Encode(%.60q): %v", text, err)
	}
	return ids
}

func mustID(t testing.TB, tok *Tokenizer, text string) int32 {
	t.Helper()
	id, ok := tok.ID(text)
	if !ok {
		t.Fatalf("no token %q", text)
	}
	return id
}

func countIn(ids []int32, set ...int32) int {
	n := 0
	for _, id := range ids {
		if slices.Contains(set, id) {
			n++
		}
	}
	return n
}
