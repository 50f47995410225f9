package minfer

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/minfer/minfer/internal/sampling"
)

func collect(t *testing.T, s *Session, prompt string, opts ...GenerateOption) (text string, tokens []Token) {
	t.Helper()
	for p, err := range s.Generate(context.Background(), prompt, opts...) {
		if err != nil {
			t.Error(err)
			return text, tokens
		}
		text, tokens = text+p.Text, append(tokens, p.Token)
	}
	return text, tokens
}

// TestTop generates with and without the greatest logits found on the device: the tokens are the
// same with all settings, alone, with guesses, and beside sessions that want other numbers of logits.
func TestTop(t *testing.T) {
	m, err := Open(filepath.Join("testdata", "storyteller-q4_0.gguf"), WithBackends("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !m.engine.top {
		t.Fatal("the CPU does not find the greatest logits")
	}
	settings := map[string]struct {
		opts   []GenerateOption
		enough int
	}{
		"greedy":         {[]GenerateOption{Temperature(0)}, 1},
		"default":        {[]GenerateOption{Seed(3)}, maxTop},
		"top-k":          {[]GenerateOption{TopK(5), TopP(1), MinP(0), Temperature(1.5)}, maxTop},
		"top-k of 64":    {[]GenerateOption{TopK(64), Temperature(2)}, maxTop},
		"top-k of 65":    {[]GenerateOption{TopK(65), Temperature(2)}, 0},
		"no top-k":       {[]GenerateOption{TopK(0), Temperature(1)}, 0},
		"probabilities":  {[]GenerateOption{LogProbs()}, 0},
		"likeliest":      {[]GenerateOption{Temperature(0), TopLogProbs(2)}, 0},
		"prompt lookup":  {[]GenerateOption{Temperature(0), WithPromptLookup(8)}, 1},
		"sampled lookup": {[]GenerateOption{Temperature(0.6), WithPromptLookup(4)}, maxTop},
	}
	const prompt = "One day, a little girl named Lily found a ball. One day, a little"
	generate := func(t *testing.T, s *Session, name string) ([]Token, []float32) {
		opts := append([]GenerateOption{MaxTokens(24), PastEnd()}, settings[name].opts...)
		_, tokens := collect(t, s, prompt, opts...)
		logits, err := s.Eval(context.Background(), nil)
		if err != nil {
			t.Error(err)
		}
		return tokens, append([]float32(nil), logits...)
	}
	want, after := make(map[string][]Token), make(map[string][]float32)
	for name := range settings {
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		m.engine.top = false
		want[name], after[name] = generate(t, s, name)
		m.engine.top = true
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	same := func(t *testing.T, name string, tokens []Token, logits []float32) {
		if fmt.Sprint(tokens) != fmt.Sprint(want[name]) {
			t.Errorf("%s: tokens %v, want %v", name, tokens, want[name])
		}
		if fmt.Sprint(logits) != fmt.Sprint(after[name]) {
			t.Errorf("%s: other logits afterwards", name)
		}
	}
	for name, c := range settings {
		t.Run(name, func(t *testing.T) {
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			tokens, logits := generate(t, s, name)
			same(t, name, tokens, logits)
			found := 0
			for p := range s.cache.programs {
				if p.Top > 0 {
					found = p.Top
				}
			}
			if found != c.enough {
				t.Errorf("the device found %d of the greatest logits, want %d", found, c.enough)
			}
		})
	}
	t.Run("together", func(t *testing.T) {
		cache, err := m.NewGraphCache(4096)
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		var wait sync.WaitGroup
		for name := range settings {
			s, err := m.NewSession(WithCache(cache))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			wait.Go(func() {
				tokens, logits := generate(t, s, name)
				same(t, name, tokens, logits)
			})
		}
		wait.Wait()
	})
	for _, lookup := range []GenerateOption{nil, WithPromptLookup(8)} {
		// A constraint that comes in the middle takes all logits, also where some were evaluated ahead.
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		a, err := s.newAnswer(t.Context(), []GenerateOption{Temperature(0), PastEnd(), lookup})
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Tokenizer().EncodeContext(t.Context(), prompt, EncodeOptions{AddSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.start(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		for i, want := range want["greedy"] {
			switch i % 5 {
			case 2:
				a.sampler.SetConstraint(sampling.MaskFunc(func(Token) bool { return true }))
			case 4:
				a.sampler.SetConstraint(nil)
			}
			got, err := a.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.Token != want {
				t.Fatalf("token %d is %d, want %d", i, got.Token, want)
			}
		}
	}
}
