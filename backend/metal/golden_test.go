//go:build cgo && (darwin || metalemu)

package metal

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/internal/testfiles"
)

// goldens are small models, one for each format of weights and each of the architectures several times.
var goldens = []string{
	"tiny-llama-f16", "tiny-llama-q8_0", "tiny-llama-q6_k", "tiny-llama-spm-q4_k_m",
	"tiny-qwen2-q2_k", "tiny-qwen2-q3_k_m", "tiny-qwen2-q4_0", "tiny-qwen2-q5_1", "tiny-qwen2-iq4_xs",
	"tiny-qwen3-bf16", "tiny-qwen3-q4_1", "tiny-qwen3-q5_0", "tiny-qwen3-q5_k_m", "tiny-qwen3-iq4_nl",
}

// TestLogitsAgainstExact holds models on the device to the bar of the CPU: their logits may be no further from the exact ones than
// 1.05 times what llama.cpp's are.
func TestLogitsAgainstExact(t *testing.T) {
	tokens := goldenTokens(t)
	for _, name := range goldens {
		t.Run(name, func(t *testing.T) {
			m := openGolden(t, name, minfer.WithBackends("metal"))
			got := evalAll(t, m, tokens)
			exact := readFloats(t, testfiles.Shared(t, "golden", "logits", name+".exact.f32"))
			theirs := distance(readFloats(t, testfiles.Shared(t, "golden", "logits", name+".llamacpp.f32")), exact)
			ours := distance(got, exact)
			t.Logf("distance from exact: %.5f, llama.cpp's %.5f", ours, theirs)
			if !(ours <= 1.05*theirs) {
				t.Errorf("distance from exact is %.5f, want at most 1.05 times llama.cpp's %.5f", ours, theirs)
			}
		})
	}
}

func goldenTokens(t testing.TB) []minfer.Token {
	t.Helper()
	b, err := os.ReadFile(testfiles.Shared(t, "golden", "logits", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Tokens []minfer.Token }
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	return index.Tokens
}

func openGolden(t testing.TB, name string, opts ...minfer.Option) *minfer.Model {
	t.Helper()
	m, err := minfer.Open(testfiles.Shared(t, "golden", "models", name+".gguf"), opts...)
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

func evalAll(t testing.TB, m *minfer.Model, tokens []minfer.Token, opts ...minfer.SessionOption) []float32 {
	t.Helper()
	s, err := m.NewSession(append([]minfer.SessionOption{minfer.WithContext(64)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.EvalAll(context.Background(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	var flat []float32
	for _, r := range rows {
		flat = append(flat, r...)
	}
	return flat
}

func readFloats(t testing.TB, path string) []float32 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
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

// TestBitsAreTheSame: whatever the chunks, a model's logits on the device have the same bits, with other kernels for each.
func TestBitsAreTheSame(t *testing.T) {
	tokens := goldenTokens(t)
	for _, name := range []string{"tiny-qwen3-q4_1", "tiny-qwen2-q3_k_m", "tiny-llama-f16"} {
		t.Run(name, func(t *testing.T) {
			m := openGolden(t, name, minfer.WithBackends("metal"))
			want := evalAll(t, m, tokens)
			for _, batch := range []int{1, 5, 9} {
				got := evalAll(t, m, tokens, minfer.WithBatch(batch))
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("in chunks of %d, logit %d is %v, want %v", batch, i, got[i], want[i])
					}
				}
			}
		})
	}
}

// TestGenerates: the text of a trained model is the CPU's.
func TestGenerates(t *testing.T) {
	story := func(device string) string {
		m, err := minfer.Open("../../testdata/storyteller-q4_0.gguf", minfer.WithBackends(device))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s, err := m.NewSession(minfer.WithContext(128))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var text strings.Builder
		for piece, err := range s.Generate(context.Background(), "Once upon a time", minfer.MaxTokens(16), minfer.Temperature(0)) {
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString(piece.Text)
		}
		return text.String()
	}
	if got, want := story("metal"), story("cpu"); got != want || got == "" {
		t.Errorf("the story goes %q, on the CPU %q", got, want)
	}
}
