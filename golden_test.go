package minfer_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/internal/testfiles"
)

// TestLogitsAgainstExact holds every small model in every quantisation to the bar: its
// logits may be no further from the exact ones than 1.05 times what llama.cpp's are.
func TestLogitsAgainstExact(t *testing.T) {
	var index struct {
		Tokens []minfer.Token
		Cases  []struct {
			Model  string
			NVocab int `json:"n_vocab"`
		}
	}
	readJSON(t, testfiles.Shared(t, "golden", "logits", "index.json"), &index)
	run, closer := 0, 0
	for _, c := range index.Cases {
		t.Run(c.Model, func(t *testing.T) {
			m := openModel(t, testfiles.Shared(t, "golden", "models", c.Model))
			rows, err := newSession(t, m).EvalAll(context.Background(), index.Tokens)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimSuffix(c.Model, ".gguf")
			exact := readFloats(t, testfiles.Shared(t, "golden", "logits", name+".exact.f32"))
			theirs := distance(readFloats(t, testfiles.Shared(t, "golden", "logits", name+".llamacpp.f32")), exact)
			ours := distance(flatten(rows), exact)
			t.Logf("distance from exact: %.5f, llama.cpp's %.5f", ours, theirs)
			if !(ours <= 1.05*theirs) {
				t.Errorf("distance from exact is %.5f, want at most 1.05 times llama.cpp's %.5f", ours, theirs)
			}
			run++
			if ours < theirs {
				closer++
			}
		})
	}
	if !t.Failed() && closer*2 < run {
		t.Errorf("closer to exact than llama.cpp on %d of %d files, want most", closer, run)
	}
}

// TestRoundedFloats: rounding F16 weights while opening costs what a Q8_0 file costs, and gives
// the same bits with every instruction set.
func TestRoundedFloats(t *testing.T) {
	var index struct{ Tokens []minfer.Token }
	readJSON(t, testfiles.Shared(t, "golden", "logits", "index.json"), &index)
	exact := readFloats(t, testfiles.Shared(t, "golden", "logits", "tiny-qwen3-f16.exact.f32"))
	logits := func(opts ...minfer.Option) []float32 {
		m := openModel(t, testfiles.Shared(t, "golden", "models", "tiny-qwen3-f16.gguf"), opts...)
		rows, err := newSession(t, m).EvalAll(context.Background(), index.Tokens)
		if err != nil {
			t.Fatal(err)
		}
		return flatten(rows)
	}
	plain := distance(logits(), exact)
	rounded := logits(minfer.WithRoundedFloats())
	if d := distance(rounded, exact); d < 4*plain || d > 0.04 {
		t.Errorf("distance from exact is %.5f rounded and %.5f plain", d, plain)
	}
	if diff := cmp.Diff(rounded, logits(minfer.WithRoundedFloats(), minfer.WithInstructions("generic"), minfer.WithThreads(1))); diff != "" {
		t.Error("plain Go gives other logits")
	}
}

// distance is the root mean square of the difference over that of the exact values.
func distance(got, exact []float32) float64 {
	if len(got) != len(exact) {
		return math.Inf(1)
	}
	var diff, norm float64
	for i := range exact {
		d := float64(got[i]) - float64(exact[i])
		diff += d * d
		norm += float64(exact[i]) * float64(exact[i])
	}
	return math.Sqrt(diff / norm)
}

// realPrompt is an entry of golden/real: see its README.
type realPrompt struct {
	Name       string
	Text       string
	Messages   []json.RawMessage
	Tools      json.RawMessage
	Tokens     []minfer.Token
	Greedy     []minfer.Token
	GreedyText string         `json:"greedy_text"`
	Argmax     []minfer.Token `json:"exact_argmax"`
	Gap        []float64      `json:"exact_gap"`
}

// TestRealModels follows the recorded continuations of trained models: prompts are
// rendered and encoded alike, and wherever the exact logits leave no doubt the largest
// logit is the right one.
func TestRealModels(t *testing.T) {
	for _, c := range []struct {
		name string
		gap  float64
		path func(testing.TB) string
	}{
		{"storyteller-q8_0", 0.1, sharedModel("storyteller-q8_0.gguf")},
		{"storyteller-q4_0", 0.1, sharedModel("storyteller-q4_0.gguf")},
		{"storyteller-q4_k_m", 0.1, sharedModel("storyteller-q4_k_m.gguf")},
		{"smollm2-135m-instruct-q4_1", 0.25, fetchedModel("smollm2-135m-instruct-q4_1.gguf")},
		{"qwen2.5-coder-0.5b-instruct-q4_k_m", 0.25, fetchedModel("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var golden struct{ Prompts []realPrompt }
			readJSON(t, testfiles.Shared(t, "golden", "real", c.name+".json"), &golden)
			m := openModel(t, c.path(t))
			for _, p := range golden.Prompts {
				t.Run(p.Name, func(t *testing.T) {
					t.Run("prompt", func(t *testing.T) { checkPrompt(t, m, p) })
					checkContinuation(t, m, p, c.gap)
				})
			}
		})
	}
}

func sharedModel(name string) func(testing.TB) string {
	return func(t testing.TB) string { return testfiles.Shared(t, "models", name) }
}

func fetchedModel(name string) func(testing.TB) string {
	return func(t testing.TB) string { return testfiles.Model(t, name) }
}

func checkPrompt(t *testing.T, m *minfer.Model, p realPrompt) {
	if p.Messages == nil {
		tokens, err := m.Tokenizer().Encode(p.Text, minfer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p.Tokens, tokens); diff != "" {
			t.Errorf("tokens differ (-want +got):\n%s", diff)
		}
		return
	}
	var messages []minfer.Message
	for _, fields := range p.Messages {
		messages = append(messages, minfer.Message{Fields: fields})
	}
	got, err := m.RenderChat(context.Background(), messages, minfer.Tools(p.Tools))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Text, got.Text); diff != "" {
		t.Errorf("rendered text differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(p.Tokens, got.Tokens); diff != "" {
		t.Errorf("tokens differ (-want +got):\n%s", diff)
	}
}

func checkContinuation(t *testing.T, m *minfer.Model, p realPrompt, gap float64) {
	s := newSession(t, m)
	if len(p.Tokens) > 1 {
		if _, err := s.Eval(context.Background(), p.Tokens[:len(p.Tokens)-1]); err != nil {
			t.Fatal(err)
		}
	}
	// The logits after the prompt's last token choose greedy[0], and so on.
	feed := append(append([]minfer.Token(nil), p.Tokens[len(p.Tokens)-1]), p.Greedy...)[:len(p.Argmax)]
	rows, err := s.EvalAll(context.Background(), feed)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if best := argmax(row); p.Gap[i] >= gap && best != p.Argmax[i] {
			t.Errorf("step %d: largest logit is %d, want %d (gap %.3f)", i, best, p.Argmax[i], p.Gap[i])
		}
	}
}

func argmax(row []float32) minfer.Token {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return minfer.Token(best)
}

func flatten(rows [][]float32) []float32 {
	var all []float32
	for _, r := range rows {
		all = append(all, r...)
	}
	return all
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", filepath.Base(path), err)
	}
}

func readFloats(t testing.TB, path string) []float32 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values
}

func openModel(t testing.TB, path string, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	m, err := minfer.Open(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func newSession(t testing.TB, m *minfer.Model, opts ...minfer.SessionOption) *minfer.Session {
	t.Helper()
	s, err := m.NewSession(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
