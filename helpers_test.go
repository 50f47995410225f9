package minfer_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/internal/testfiles"
)

// storyteller is a small trained model that every clone has: see testdata/README.md.
var storyteller = filepath.Join("testdata", "storyteller-q4_0.gguf")

// eachModel runs a test on the storyteller and, where the shared folder is, on a small
// model of every architecture and kind of tokenizer, and on more of those if asked for. With -short the storyteller has to do.
func eachModel(t *testing.T, f func(t *testing.T, path string), more ...string) {
	t.Run("storyteller", func(t *testing.T) { f(t, storyteller) })
	if testing.Short() {
		return
	}
	for _, name := range append(more, "tiny-qwen2-q4_k_m", "tiny-qwen3-q8_0", "tiny-llama-q6_k", "tiny-llama-spm-q4_k_m") {
		t.Run(name, func(t *testing.T) { f(t, testfiles.Shared(t, "golden", "models", name+".gguf")) })
	}
}

func openStoryteller(t testing.TB, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	return openModel(t, storyteller, opts...)
}

// someTokens returns n token ids of the model that depend on the salt.
func someTokens(m *minfer.Model, n, salt int) []minfer.Token {
	tokens := make([]minfer.Token, n)
	vocab := m.Info().Vocab
	for i := range tokens {
		tokens[i] = minfer.Token((i*7919 + salt*104729 + 13) % vocab)
	}
	return tokens
}

func encode(t testing.TB, m *minfer.Model, text string) []minfer.Token {
	t.Helper()
	tokens, err := m.Tokenizer().Encode(text, minfer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// evalAll returns the logits after every token.
func evalAll(t testing.TB, s *minfer.Session, tokens []minfer.Token) [][]float32 {
	t.Helper()
	rows, err := s.EvalAll(context.Background(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// eval returns a copy of the logits after the last token.
func eval(t testing.TB, s *minfer.Session, tokens ...minfer.Token) []float32 {
	t.Helper()
	row, err := s.Eval(context.Background(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), row...)
}

// sameRow reports the first difference of two rows of logits, which == finds.
func sameRow(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d logits, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("logit %d is %v, want %v", i, got[i], want[i])
		}
	}
	return nil
}

func wantRow(t testing.TB, what string, got, want []float32) {
	t.Helper()
	if err := sameRow(got, want); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func wantRows(t testing.TB, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d rows, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if err := sameRow(got[i], want[i]); err != nil {
			t.Errorf("%s: row %d: %v", what, i, err)
			return
		}
	}
}

// said is all that an answer consisted of.
type said struct {
	text   string
	tokens []minfer.Token
	finish minfer.FinishReason
	pieces []minfer.Piece
}

// read collects an answer.
func read(pieces func(func(minfer.Piece, error) bool)) (said, error) {
	var a said
	var text strings.Builder
	var failure error
	for p, err := range pieces {
		if err != nil {
			failure = err
			continue
		}
		text.WriteString(p.Text)
		if p.Token != minfer.NoToken {
			a.tokens = append(a.tokens, p.Token)
		}
		a.finish = p.Finish
		a.pieces = append(a.pieces, p)
	}
	a.text = text.String()
	return a, failure
}

func mustRead(t testing.TB, pieces func(func(minfer.Piece, error) bool)) said {
	t.Helper()
	a, err := read(pieces)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// chatML is a prompt as the storyteller knows it.
func chatML(text string) string {
	return "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n"
}

func newReader(data []byte) *bytes.Reader { return bytes.NewReader(data) }
