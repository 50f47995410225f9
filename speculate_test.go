package minfer_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/minfer/minfer"
)

// copying is a prompt whose answer repeats parts of it.
func copying() string {
	return chatML("Repeat: key fox Rome tree key fox Rome tree")
}

func TestPromptLookup(t *testing.T) {
	m := openStoryteller(t)
	for _, temperature := range []float32{0, 1} {
		opts := []minfer.GenerateOption{minfer.Temperature(temperature), minfer.MaxTokens(60), minfer.ParseSpecial(), minfer.PastEnd()}
		want := mustRead(t, newSession(t, m).Generate(context.Background(), copying(), opts...))
		for _, n := range []int{1, 2, 10, 64} {
			s := newSession(t, m)
			got := mustRead(t, s.Generate(context.Background(), copying(), append(opts, minfer.WithPromptLookup(n))...))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d: %v, want %v", n, got, want)
			}
			if u := s.Usage(); u.Drafted == 0 || u.Accepted == 0 || u.Accepted > u.Drafted {
				t.Errorf("%d: %+v", n, u)
			}
		}
	}
}

// A model that guesses for itself is always right.
func TestDraft(t *testing.T) {
	m := openStoryteller(t)
	other := openStoryteller(t)
	s, draft := newSession(t, m), newSession(t, other)
	plain := newSession(t, m).Chat()
	chat := s.Chat()
	for _, text := range []string{"Tell me a story about a brave fox.", "Where did she live?", "The facts as JSON."} {
		want := mustRead(t, plain.Say(context.Background(), text, minfer.Temperature(0)))
		got := mustRead(t, chat.Say(context.Background(), text, minfer.Temperature(0), minfer.WithDraft(draft, 16)))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got.text, want.text)
		}
		// Of the last guesses, those after the end are not used.
		if u := s.Usage(); u.Accepted*2 < u.Generated || u.Drafted-u.Accepted > 16 {
			t.Errorf("%q: %+v", text, u)
		}
	}
	if draft.Len() == 0 || draft.Len() > s.Len()+16 {
		t.Errorf("the draft has %d tokens, the answer %d", draft.Len(), s.Len())
	}
}

// A draft with less room than the answer goes on to the end of it.
func TestDraftWithLittleContext(t *testing.T) {
	m := openStoryteller(t)
	opts := []minfer.GenerateOption{minfer.Temperature(0), minfer.MaxTokens(60), minfer.ParseSpecial()}
	prompt := chatML("Tell me a story about a brave fox.")
	want := mustRead(t, newSession(t, m).Generate(context.Background(), prompt, opts...))
	for _, room := range []int{1, 10, len(encode(t, m, prompt)) + 7} {
		s, draft := newSession(t, m), newSession(t, m, minfer.WithContext(room))
		got := mustRead(t, s.Generate(context.Background(), prompt, append(opts, minfer.WithDraft(draft, 4))...))
		if !reflect.DeepEqual(got, want) || draft.Len() > room {
			t.Errorf("%d: %q, want %q", room, got.text, want.text)
		}
	}
}

// With few cells left, guesses are left out before an answer fails.
func TestSpeculationInAFullCache(t *testing.T) {
	m := openStoryteller(t)
	run := func(opts ...minfer.GenerateOption) (said, error) {
		cache, err := m.NewGraphCache(48)
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		s := newSession(t, m, minfer.WithCache(cache))
		return read(s.Generate(context.Background(), copying(), append(opts, minfer.Temperature(0), minfer.ParseSpecial(), minfer.PastEnd())...))
	}
	want, wantErr := run()
	got, err := run(minfer.WithPromptLookup(16))
	if !errors.Is(wantErr, minfer.ErrCacheFull) || !errors.Is(err, minfer.ErrCacheFull) || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v\nwant %v, %v", got, err, want, wantErr)
	}
}

func TestSpeculationRefused(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	_, err := read(s.Generate(context.Background(), "a", minfer.WithDraft(newSession(t, smallModel{vocab: 257}.open(t)), 4)))
	var e *minfer.VocabularyError
	if !errors.As(err, &e) || !errors.Is(err, minfer.ErrVocabulary) || !strings.Contains(err.Error(), "token") {
		t.Errorf("other vocabulary: %v", err)
	}
	for _, o := range []minfer.GenerateOption{
		minfer.WithPromptLookup(0), minfer.WithPromptLookup(65), minfer.WithDraft(nil, 4), minfer.WithDraft(s, 4),
		minfer.WithDraft(newSession(t, m), 0), minfer.TopLogProbs(-1),
	} {
		if _, err := read(s.Generate(context.Background(), "a", o)); !errors.Is(err, minfer.ErrOption) {
			t.Errorf("%v", err)
		}
	}
	closed := newSession(t, m)
	closed.Close()
	if _, err := read(s.Generate(context.Background(), "a", minfer.WithDraft(closed, 4))); !errors.Is(err, minfer.ErrClosed) {
		t.Errorf("closed draft: %v", err)
	}
}

// A model that guesses for another of the same family: the answer is still that of the other.
func TestDraftOfAnotherModel(t *testing.T) {
	m := openModel(t, sharedModel("storyteller-q8_0.gguf")(t))
	draft := newSession(t, openStoryteller(t))
	for _, temperature := range []float32{0, 0.7} {
		opts := []minfer.GenerateOption{minfer.Temperature(temperature), minfer.MaxTokens(80), minfer.ParseSpecial()}
		prompt := chatML("Tell me a story about a brave fox.")
		want := mustRead(t, newSession(t, m).Generate(context.Background(), prompt, opts...))
		s := newSession(t, m)
		got := mustRead(t, s.Generate(context.Background(), prompt, append(opts, minfer.WithDraft(draft, 8))...))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q, want %q", got.text, want.text)
		}
		if u := s.Usage(); u.Accepted == 0 || u.Accepted >= u.Drafted {
			t.Errorf("%+v", u)
		}
	}
}

// BenchmarkCopying changes a name in a piece of code, token by token and with prompt lookup.
func BenchmarkCopying(b *testing.B) {
	m := openModel(b, fetchedModel("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")(b))
	prompt := chatML("Repeat this code exactly, but rename the variable total to sum:\n```go\n" +
		"func Sum(values []int) int {\n\ttotal := 0\n\tfor _, v := range values {\n\t\ttotal += v\n\t}\n\treturn total\n}\n\n" +
		"func Max(values []int) int {\n\tbest := values[0]\n\tfor _, v := range values {\n\t\tif v > best {\n\t\t\tbest = v\n\t\t}\n\t}\n\treturn best\n}\n```")
	for name, o := range map[string]minfer.GenerateOption{"plain": nil, "lookup": minfer.WithPromptLookup(10)} {
		b.Run(name, func(b *testing.B) {
			s := newSession(b, m)
			var total minfer.Usage
			for range b.N {
				if err := s.Rewind(0); err != nil {
					b.Fatal(err)
				}
				mustRead(b, s.Generate(context.Background(), prompt, o, minfer.Temperature(0), minfer.MaxTokens(200), minfer.ParseSpecial()))
				u := s.Usage()
				total.Generated += u.Generated
				total.GenerateTime += u.GenerateTime
				total.Drafted += u.Drafted
				total.Accepted += u.Accepted
			}
			b.ReportMetric(float64(total.Generated)/total.GenerateTime.Seconds(), "tokens/s")
			if total.Drafted > 0 {
				b.ReportMetric(100*float64(total.Accepted)/float64(total.Drafted), "%accepted")
			}
		})
	}
}

// Guesses of several sessions are checked in common passes, and change no answer.
func TestSpeculationInBatches(t *testing.T) {
	m := openStoryteller(t)
	cache, err := m.NewGraphCache(1024, minfer.WithBatching(true))
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	prompts := []string{"Count to 12.", "Tell me a story about a brave fox.", "Repeat: key fox Rome", "Yes please"}
	var wg sync.WaitGroup
	for i, text := range prompts {
		opts := []minfer.GenerateOption{minfer.Temperature(0.5), minfer.Seed(uint64(i)), minfer.MaxTokens(60), minfer.ParseSpecial(), minfer.PastEnd()}
		want := mustRead(t, newSession(t, m).Generate(context.Background(), chatML(text), opts...))
		s, draft := newSession(t, m, minfer.WithCache(cache)), newSession(t, m, minfer.WithCache(cache))
		speculate := minfer.WithPromptLookup(8)
		if i%2 == 1 {
			speculate = minfer.WithDraft(draft, 8)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			got, err := read(s.Generate(context.Background(), chatML(text), append(opts, speculate)...))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %q, %v, want %q", text, got.text, err, want.text)
			}
			if u := s.Usage(); u.Drafted == 0 {
				t.Errorf("%q: %+v", text, u)
			}
		}()
	}
	wg.Wait()
}
