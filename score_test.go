package minfer_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/minfer/minfer"
)

// naiveLogProb is the softmax by the book.
func naiveLogProb(row []float32, t minfer.Token) float64 {
	top := math.Inf(-1)
	for _, x := range row {
		top = max(top, float64(x))
	}
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(float64(x) - top)
	}
	return float64(row[t]) - top - math.Log(sum)
}

func TestScore(t *testing.T) {
	m := openStoryteller(t)
	tokens := someTokens(m, 150, 0)
	rows := evalAll(t, newSession(t, m), tokens)
	for _, before := range []int{0, 1, 70} {
		for _, batch := range []int{9, 256} {
			s := newSession(t, m, minfer.WithBatch(batch))
			if before > 0 {
				eval(t, s, tokens[:before]...)
			}
			got, err := s.Score(context.Background(), tokens[before:])
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range got {
				want := 0.0
				if at := before + i; at > 0 {
					want = naiveLogProb(rows[at-1], tokens[at])
				}
				if math.Abs(float64(p)-want) > 1e-4 {
					t.Errorf("after %d, token %d: %v, want %v", before, i, p, want)
				}
			}
			if len(got) != len(tokens)-before || !reflect.DeepEqual(s.Tokens(), tokens) {
				t.Errorf("%d values; the session has %d tokens", len(got), s.Len())
			}
			wantRow(t, "afterwards", eval(t, s), rows[len(rows)-1])
		}
	}
}

func TestScoreFails(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m, minfer.WithContext(100))
	eval(t, s, someTokens(m, 5, 0)...)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx    context.Context
		tokens []minfer.Token
		want   error
	}{
		{context.Background(), nil, minfer.ErrNoTokens},
		{context.Background(), someTokens(m, 96, 0), minfer.ErrContextFull},
		{context.Background(), []minfer.Token{3, -1}, minfer.ErrToken},
		{cancelled, someTokens(m, 90, 0), context.Canceled},
	} {
		if _, err := s.Score(c.ctx, c.tokens); !errors.Is(err, c.want) || s.Len() != 5 {
			t.Errorf("%v, %d tokens; want %v, 5", err, s.Len(), c.want)
		}
	}
}

// The likeliest tokens of every piece are those of the logits, whatever is sampled.
func TestTopLogProbs(t *testing.T) {
	m := openStoryteller(t)
	prompt := encode(t, m, chatML("Count to 12."))
	s := newSession(t, m)
	a := mustRead(t, s.GenerateTokens(context.Background(), prompt, minfer.MaxTokens(12), minfer.TopLogProbs(4), minfer.LogProbs(), minfer.Temperature(1.5), minfer.Seed(3)))
	rows := evalAll(t, newSession(t, m), append(prompt, a.tokens...))[len(prompt)-1:]
	for i, p := range a.pieces {
		if len(p.Top) != 4 {
			t.Fatalf("piece %d has %d", i, len(p.Top))
		}
		last := math.Inf(1)
		for _, top := range p.Top {
			if want := naiveLogProb(rows[i], top.Token); math.Abs(float64(top.LogProb)-want) > 1e-4 || want > last+1e-6 {
				t.Errorf("piece %d: %v, want %v", i, top, want)
			}
			last = float64(top.LogProb)
			if top.Token == p.Token && top.LogProb != p.LogProb {
				t.Errorf("piece %d: %v and %v for the same token", i, top.LogProb, p.LogProb)
			}
		}
		if p.Top[0].Token != argmax(rows[i]) {
			t.Errorf("piece %d: %v first, want %d", i, p.Top[0], argmax(rows[i]))
		}
	}
	b := mustRead(t, newSession(t, m).GenerateTokens(context.Background(), prompt, minfer.MaxTokens(2), minfer.TopLogProbs(10000)))
	if len(b.pieces[0].Top) != m.Info().Vocab {
		t.Errorf("%d of all", len(b.pieces[0].Top))
	}
}

func TestOnPromptProgress(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m, minfer.WithBatch(10))
	tokens := someTokens(m, 35, 0)
	var got [][2]int
	note := minfer.OnPromptProgress(func(done, total int) { got = append(got, [2]int{done, total}) })
	mustRead(t, s.GenerateTokens(context.Background(), tokens, note, minfer.MaxTokens(3), minfer.PastEnd()))
	if want := [][2]int{{0, 35}, {10, 35}, {20, 35}, {30, 35}, {35, 35}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// The last token that was generated has not been evaluated yet.
	got = nil
	mustRead(t, s.GenerateTokens(context.Background(), tokens[:4], note, minfer.MaxTokens(3), minfer.PastEnd()))
	if want := [][2]int{{0, 5}, {5, 5}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	before := s.Len()
	_, err := read(s.GenerateTokens(context.Background(), tokens, minfer.OnPromptProgress(func(done, _ int) {
		if done >= 20 {
			panic("a bug of the caller")
		}
	})))
	var fault *minfer.PanicError
	if !errors.As(err, &fault) || s.Len() != before {
		t.Errorf("%v, %d tokens, want %d", err, s.Len(), before)
	}
	mustRead(t, s.GenerateTokens(context.Background(), tokens, minfer.MaxTokens(3), minfer.PastEnd()))
}

func TestCountTokens(t *testing.T) {
	m := openStoryteller(t)
	ctx := context.Background()
	text := "Tell me a story.<|im_end|>"
	n, err := m.CountTokens(ctx, text)
	tokens, _ := m.Tokenizer().Encode(text, minfer.EncodeOptions{AddSpecial: true})
	if err != nil || n != len(tokens) {
		t.Errorf("%d, %v, want %d", n, err, len(tokens))
	}
	s := newSession(t, m)
	n, err = m.CountChatTokens(ctx, []minfer.Message{{Role: "user", Content: text}}, minfer.System("Be brief."))
	mustRead(t, s.Chat(minfer.System("Be brief.")).Say(ctx, text, minfer.MaxTokens(1)))
	if u := s.Usage(); err != nil || n != u.Prompt {
		t.Errorf("%d, %v, want %d", n, err, u.Prompt)
	}
}
