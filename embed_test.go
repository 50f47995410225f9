package minfer_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/minfer/minfer"
)

func embed(t testing.TB, m *minfer.Model, texts []string, opts ...minfer.EmbedOption) [][]float32 {
	t.Helper()
	vectors, err := m.Embed(context.Background(), texts, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if len(vectors) != len(texts) {
		t.Fatalf("%d vectors for %d texts", len(vectors), len(texts))
	}
	return vectors
}

var embeddedTexts = []string{
	"A fox.", "The fox lived in a forest.", "One, two, three.", "a",
	strings.Repeat("The brave fox went home. ", 40), // more than is evaluated at once
	"What is 3 + 4?",
}

// The vector of a text is the same bits whatever it is evaluated with, and how.
func TestEmbedBits(t *testing.T) {
	eachModel(t, func(t *testing.T, path string) {
		m, threads, generic := openModel(t, path), openModel(t, path, minfer.WithThreads(3)), openModel(t, path, minfer.WithInstructions("generic"))
		var texts []string
		for _, text := range embeddedTexts {
			if len(encode(t, m, text)) <= m.Info().ContextLength {
				texts = append(texts, text)
			}
		}
		for _, pooling := range []minfer.Pooling{minfer.PoolLast, minfer.PoolMean, minfer.PoolFirst} {
			want := embed(t, m, texts, minfer.WithPooling(pooling))
			for i, text := range texts {
				wantRow(t, fmt.Sprintf("%v: text %d alone", pooling, i), embed(t, m, []string{text}, minfer.WithPooling(pooling))[0], want[i])
			}
			wantRows(t, fmt.Sprint(pooling), embed(t, threads, texts, minfer.WithPooling(pooling)), want)
			wantRows(t, fmt.Sprint(pooling), embed(t, generic, texts[:2], minfer.WithPooling(pooling)), want[:2])
		}
	})
}

// Whole texts attend in both directions where the file says so: what comes later changes the
// first token's vector then, and only then.
func TestEmbedFullAttention(t *testing.T) {
	for _, causal := range []bool{true, false} {
		m := smallModel{vocab: 257, keys: map[string]any{"llama.attention.causal": causal, "llama.pooling_type": uint32(2)}}.open(t)
		v := embed(t, m, []string{"abc", "abd", "abc"})
		if same := sameRow(v[0], v[1]) == nil; same != causal {
			t.Errorf("causal %v: equal first tokens %v", causal, same)
		}
		wantRow(t, "again", v[2], v[0])
		wantRow(t, "alone", embed(t, m, []string{"abc"})[0], v[0])
	}
}

// The file says how to pool.
func TestEmbedPooling(t *testing.T) {
	for kind, want := range map[uint32]minfer.Pooling{0: minfer.PoolLast, 1: minfer.PoolMean, 2: minfer.PoolFirst, 3: minfer.PoolLast} {
		m := smallModel{vocab: 257, keys: map[string]any{"llama.pooling_type": kind}}.open(t)
		texts := []string{"some text", "b"}
		wantRows(t, fmt.Sprint(kind), embed(t, m, texts), embed(t, m, texts, minfer.WithPooling(want)))
	}
	m := smallModel{vocab: 257, keys: map[string]any{"llama.pooling_type": uint32(4)}}.open(t)
	if _, err := m.Embed(context.Background(), []string{"a"}); !errors.Is(err, minfer.ErrNoEmbedding) {
		t.Errorf("rank: %v", err)
	}
	m = smallModel{vocab: 257, keys: map[string]any{"llama.pooling_type": uint32(9)}}.open(t)
	if _, err := m.Embed(context.Background(), []string{"a"}); !errors.Is(err, minfer.ErrInvalidModel) {
		t.Errorf("unknown: %v", err)
	}
}

func TestEmbedRefuses(t *testing.T) {
	m := openStoryteller(t)
	long := make([]minfer.Token, m.Info().ContextLength+1)
	for name, c := range map[string]struct {
		texts [][]minfer.Token
		want  error
	}{
		"no tokens": {[][]minfer.Token{{1}, {}}, minfer.ErrNoTokens},
		"long":      {[][]minfer.Token{long}, minfer.ErrContextFull},
		"token":     {[][]minfer.Token{{1, 1536}}, minfer.ErrToken},
	} {
		if _, err := m.EmbedTokens(context.Background(), c.texts); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Embed(context.Background(), []string{"a"}, minfer.WithPooling(9)); !errors.Is(err, minfer.ErrOption) {
		t.Errorf("pooling: %v", err)
	}
	if v, err := m.Embed(context.Background(), nil); err != nil || len(v) != 0 {
		t.Errorf("nothing: %v, %v", v, err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Embed(cancelled, []string{"a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	m.Close()
	if _, err := m.Embed(context.Background(), []string{"a"}); !errors.Is(err, minfer.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Embeddings may be asked for while answers are generated, by several goroutines.
func TestEmbedConcurrently(t *testing.T) {
	m := openStoryteller(t)
	want := embed(t, m, embeddedTexts[:4])
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got, err := m.Embed(context.Background(), embeddedTexts[:4])
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("vectors differ, %v", err)
			}
		}()
	}
	mustRead(t, newSession(t, m).Generate(context.Background(), "Once", minfer.MaxTokens(20)))
	wg.Wait()
}

// With a real model, texts of one meaning are nearer than others.
func TestEmbedMeaning(t *testing.T) {
	if raceEnabled {
		t.Skip("nothing here is concurrent")
	}
	m := openModel(t, fetchedModel("smollm2-135m-instruct-q4_1.gguf")(t))
	v := embed(t, m, []string{
		"The cat sleeps on the sofa.", "A kitten is napping on the couch.",
		"def add(a, b):\n    return a + b", "func add(a, b int) int {\n\treturn a + b\n}",
		"Interest rates rose by half a percent.", "The central bank raised its rates by 0.5%.",
	}, minfer.WithPooling(minfer.PoolMean))
	for i := range v {
		nearest, best := -1, -2.0
		for j := range v {
			if c := dot(v[i], v[j]); i != j && c > best {
				nearest, best = j, c
			}
		}
		if nearest != i^1 {
			t.Errorf("text %d is nearest to %d (%.3f), want %d (%.3f)", i, nearest, best, i^1, dot(v[i], v[i^1]))
		}
	}
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
