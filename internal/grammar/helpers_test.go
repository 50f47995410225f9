package grammar

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/internal/testfiles"
	"github.com/minfer/minfer/internal/tokenizer"
)

var background = context.Background()

// end is the end-of-generation token of toy vocabularies.
const end = 256

// toyVocabulary has a token for every byte, an end, and some longer tokens, which begin
// and end within characters and within the parts of JSON.
func toyVocabulary() *Vocabulary {
	tokens := make([][]byte, 257)
	for i := range 256 {
		tokens[i] = []byte{byte(i)}
	}
	for _, text := range []string{
		"ab", "abc", "ba", "\xc3\xa9", "\xa9\"", "a\xc3", "\xf0\x9f", "\x98\x80", "\": ", "\":", "\",", "{\"", "\"}", "\"}]", "}}",
		"],[", "[[", "true", "tru", "null", "null,", "1,", "12", "0.5", "-1", "e+", "\n  ", ", \"", "\\n", "\\\"", "\\u00", "name", "a\"", "", "-0", "00",
	} {
		tokens = append(tokens, []byte(text))
	}
	return NewVocabulary(len(tokens), func(id int32) []byte { return tokens[id] }, []int32{end})
}

func mustGBNF(t testing.TB, source string) *Grammar {
	t.Helper()
	g, err := GBNF(background, source)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return g
}

func mustSchema(t testing.TB, source string) *Grammar {
	t.Helper()
	g, err := Schema(background, []byte(source))
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return g
}

var toy = toyVocabulary()

// matches reports whether a grammar matches a whole text.
func matches(t testing.TB, g *Grammar, text string) bool {
	t.Helper()
	m := g.Bind(toy).Matcher()
	if err := m.AcceptText(text); err != nil {
		if _, ok := err.(*RejectedError); !ok {
			t.Fatalf("%q: %v", text, err)
		}
		return false
	}
	return m.CanEnd()
}

// walk generates a text by choosing from the masks at random. After some tokens it
// prefers those that end things. It returns nil if it found no end.
func walk(t testing.TB, m *Masker, r *rand.Rand, tokens int) []byte {
	t.Helper()
	matcher := m.Matcher()
	v := m.vocab
	logits := make([]float32, v.Size())
	var out []byte
	for n := range 20 * tokens {
		for i := range logits {
			logits[i] = 0
		}
		if err := matcher.Mask(logits); err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		var allowed []int32
		ends := false
		for id, x := range logits {
			if x == 0 {
				if v.isEnd[int32(id)] {
					ends = true
				} else {
					allowed = append(allowed, int32(id))
				}
			}
		}
		if ends != matcher.CanEnd() {
			t.Fatalf("after %q: the mask says %v about the end, CanEnd %v", out, ends, !ends)
		}
		if matcher.Complete() != (ends && len(allowed) == 0) {
			t.Fatalf("after %q: Complete says %v", out, matcher.Complete())
		}
		if ends && (len(allowed) == 0 || r.IntN(4) == 0 || n > tokens) {
			if err := matcher.Accept(v.ends[0]); err != nil {
				t.Fatal(err)
			}
			return append(out, []byte{}...)
		}
		id := allowed[r.IntN(len(allowed))]
		if n > tokens || r.IntN(3) == 0 {
			var likely []int32
			for _, id := range allowed {
				if text := string(v.bytes(id)); len(text) == 1 && strings.Contains("\"}]b1", text) {
					likely = append(likely, id)
				}
			}
			if len(likely) > 0 {
				id = likely[r.IntN(len(likely))]
			}
		}
		if err := matcher.Accept(id); err != nil {
			t.Fatalf("after %q: the mask allows %q, Accept says %v", out, v.bytes(id), err)
		}
		out = append(out, v.bytes(id)...)
	}
	return nil
}

// realVocabulary is that of Qwen2.5, as the library will use it.
func realVocabulary(t testing.TB) *Vocabulary {
	t.Helper()
	f, err := gguf.Open(testfiles.Model(t, "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := tokenizer.FromMetadata(f)
	if err != nil {
		t.Fatal(err)
	}
	return NewVocabulary(tok.VocabSize(), func(id int32) []byte {
		if k := tok.Type(id); k != tokenizer.Normal && k != tokenizer.UserDefined && k != tokenizer.Byte {
			return nil
		}
		return tok.TokenBytes(id)
	}, tok.EndOfGeneration())
}
