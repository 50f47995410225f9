package minfer_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
)

// TestPenaltiesCountThePrompt generates with penalties after a prompt that is evaluated, one
// that is there already, and one of which a part is. What a sampler has seen is the sequence,
// not the tokens of one call.
//
// Case B21: cached or not, the prompt counts.
func TestPenaltiesCountThePrompt(t *testing.T) {
	m := openStoryteller(t)
	prompt := encode(t, m, chatML(fox))
	for name, set := range map[string]func(*minfer.Sampling){
		"repeat":    func(p *minfer.Sampling) { p.Penalties.LastN, p.Penalties.Repeat = -1, 1.5 },
		"frequency": func(p *minfer.Sampling) { p.Penalties.Frequency = 0.7 },
		"presence":  func(p *minfer.Sampling) { p.Penalties.LastN, p.Penalties.Presence = 1e9, 2 },
	} {
		sampling := minfer.DefaultSampling()
		sampling.Temperature = 0
		set(&sampling)
		opts := []minfer.GenerateOption{minfer.WithSampling(sampling), minfer.MaxTokens(40), minfer.PastEnd()}
		want := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, opts...)).tokens

		plain := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), prompt, greedy(minfer.MaxTokens(40), minfer.PastEnd())...)).tokens
		if slices.Equal(want, plain) {
			t.Fatalf("%s: the penalty changes nothing", name)
		}
		s := newSession(t, m)
		for _, before := range [][]minfer.Token{prompt, prompt, prompt[:7], append(slices.Clone(prompt[:9]), 1, 2, 3)} {
			if _, err := s.SetTokens(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			if _, err := s.SetTokens(t.Context(), prompt); err != nil {
				t.Fatal(err)
			}
			got := mustRead(t, s.GenerateTokens(t.Context(), nil, opts...)).tokens
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: after %d tokens that were there, the answer differs (-want +got):\n%s", name, len(before), diff)
			}
		}
	}
	// A window of the last token sees the prompt's last token first.
	sampling := minfer.DefaultSampling()
	sampling.Temperature, sampling.Penalties.LastN, sampling.Penalties.Presence = 0, 1, 1e6
	s := newSession(t, m)
	row := eval(t, s, prompt...)
	best := minfer.Token(0)
	for i, x := range row {
		if x > row[best] {
			best = minfer.Token(i)
		}
	}
	same := append(slices.Clone(prompt), best)
	row = eval(t, s, best)
	next := minfer.Token(0)
	for i, x := range row {
		if minfer.Token(i) != best && (next == best || x > row[next]) {
			next = minfer.Token(i)
		}
	}
	got := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), same, minfer.WithSampling(sampling), minfer.MaxTokens(1), minfer.PastEnd()))
	if !slices.Equal(got.tokens, []minfer.Token{next}) {
		t.Errorf("generated %v, want %d, the best but for the last token of the prompt", got.tokens, next)
	}
}

// TestSetNoTokens: no tokens leave nothing to evaluate, which is an error, and the session as
// it was. Rewind is what empties one, which then is as new.
func TestSetNoTokens(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	long := someTokens(m, 100, 1)
	eval(t, s, long...)
	_, err := s.SetTokens(t.Context(), nil)
	wantError(t, err, minfer.ErrNoTokens)
	if !slices.Equal(s.Tokens(), long) {
		t.Errorf("after an error the session has %d tokens, want the %d from before", s.Len(), len(long))
	}
	if err := s.Rewind(0); err != nil {
		t.Fatal(err)
	}
	_, err = read(s.GenerateTokens(t.Context(), nil, minfer.MaxTokens(1)))
	wantError(t, err, minfer.ErrNoTokens)
	tokens := someTokens(m, 20, 2)
	wantRows(t, "logits", evalAll(t, s, tokens), evalAll(t, newSession(t, m), tokens))
}
