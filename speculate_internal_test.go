package minfer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// partly guesses what it knows to come, with some of the tokens changed.
type partly struct {
	answer []Token // to the prompt of so many tokens
	prompt int
	wrong  float64 // share of guesses that are wrong
	vocab  int
	rand   *rand.Rand
}

func (p *partly) propose(_ context.Context, dst, tokens []Token, n int) ([]Token, error) {
	for at := len(tokens) - p.prompt; at < len(p.answer) && n > 0; at, n = at+1, n-1 {
		t := p.answer[at]
		if p.rand.Float64() < p.wrong {
			t = Token(p.rand.IntN(p.vocab + 10)) // some that the model does not have
		}
		dst = append(dst, t)
	}
	return dst, nil
}

func (*partly) learn(_, _ int) {}

func speculating(n int, p proposer) GenerateOption {
	return func(c *generateConfig) {
		c.speculate = func(*Session) (*speculation, error) { return newSpeculation("test", n, p) }
	}
}

func openInternal(t testing.TB, opts ...Option) *Model {
	t.Helper()
	m, err := Open(filepath.Join("testdata", "storyteller-q4_0.gguf"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func internalSession(t testing.TB, m *Model, opts ...SessionOption) *Session {
	t.Helper()
	s, err := m.NewSession(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// pieces reads an answer, calling f, if there is one, for every piece.
func pieces(t testing.TB, s *Session, prompt string, opts []GenerateOption, f func(Piece)) (all []Piece) {
	t.Helper()
	for p, err := range s.Generate(context.Background(), prompt, append(opts, ParseSpecial())...) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		if f != nil {
			f(p)
		}
	}
	return all
}

// Whatever is guessed, the answer is the one without guesses: tokens, texts, log-probabilities,
// and the session afterwards.
func TestSpeculationIsExact(t *testing.T) {
	m := openInternal(t)
	prompt := "<|im_start|>user\nTell me a story about a brave fox.<|im_end|>\n<|im_start|>assistant\n"
	mirostat := DefaultSampling()
	mirostat.Mirostat.Enabled = true
	dry := DefaultSampling()
	dry.DRY.Multiplier, dry.XTC.Probability, dry.Penalties.Repeat = 0.8, 0.5, 1.3
	for name, opts := range map[string][]GenerateOption{
		"greedy":    {Temperature(0), MaxTokens(90)},
		"seed":      {Temperature(1.2), Seed(7), MaxTokens(70), LogProbs(), TopLogProbs(3)},
		"mirostat":  {WithSampling(mirostat), Seed(3), MaxTokens(50)},
		"penalties": {WithSampling(dry), Seed(4), MaxTokens(50)},
		"stop":      {Temperature(0), Stop(" fox was", "the end")},
		"context":   {Temperature(0), PastEnd()},
		"grammar":   {Temperature(1), Seed(2), WithRegexp(`[a-z ]{30,40}\.`)},
		"one":       {Temperature(0), MaxTokens(1)},
	} {
		t.Run(name, func(t *testing.T) {
			plain := internalSession(t, m, WithContext(140))
			want := pieces(t, plain, prompt, opts, nil)
			after, err := plain.Eval(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var answer []Token
			for _, p := range want {
				answer = append(answer, p.Token)
			}
			promptTokens := plain.usage.Cached + plain.usage.Prompt
			for _, wrong := range []float64{0, 0.3, 1} {
				for _, depth := range []int{1, 16} {
					s := internalSession(t, m, WithContext(140), WithBatch(11))
					p := &partly{answer, promptTokens, wrong, m.info.Vocab, rand.New(rand.NewPCG(1, uint64(depth)))}
					got := pieces(t, s, prompt, append(opts[:len(opts):len(opts)], speculating(depth, p)), nil)
					what := fmt.Sprintf("%v wrong, depth %d", wrong, depth)
					if !reflect.DeepEqual(got, want) {
						t.Fatalf("%s: %v\nwant %v", what, got, want)
					}
					if s.cells.Len() > len(s.tokens) || !reflect.DeepEqual(s.tokens, plain.tokens) {
						t.Errorf("%s: session has %d cells for %d tokens, want %d", what, s.cells.Len(), len(s.tokens), len(plain.tokens))
					}
					logits, err := s.Eval(context.Background(), nil)
					if err != nil || !reflect.DeepEqual(logits, after) {
						t.Errorf("%s: logits afterwards differ, %v", what, err)
					}
					u := s.Usage()
					if u.Accepted > u.Drafted || u.Accepted > u.Generated || wrong == 0 && name == "greedy" && 3*u.Accepted < u.Generated {
						t.Errorf("%s: %+v", what, u)
					}
				}
			}
		})
	}
}

// What the loop's body does with the session in between changes nothing.
func TestSpeculationAndOtherUses(t *testing.T) {
	m := openInternal(t)
	prompt := "<|im_start|>user\nCount to 12.<|im_end|>\n<|im_start|>assistant\n"
	opts := []GenerateOption{Temperature(0), MaxTokens(24)}
	plain := internalSession(t, m)
	want := pieces(t, plain, prompt, opts, nil)
	var answer []Token
	for _, p := range want {
		answer = append(answer, p.Token)
	}
	ctx := context.Background()
	for name, use := range map[string]func(s *Session) error{
		"usage": func(s *Session) error { s.Usage(); s.Tokens(); s.Len(); return nil },
		"eval":  func(s *Session) error { _, err := s.Eval(ctx, nil); return err },
		"rewind": func(s *Session) error {
			return s.Rewind(s.Len())
		},
		"save": func(s *Session) error {
			var file strings.Builder
			if err := s.Save(&file); err != nil {
				return err
			}
			back, err := m.Restore(strings.NewReader(file.String()))
			if err != nil {
				return err
			}
			defer back.Close()
			return sameLogits(ctx, back, s.Tokens())
		},
		"fork": func(s *Session) error {
			f, err := s.Fork()
			if err != nil {
				return err
			}
			defer f.Close()
			if err := sameLogits(ctx, f, s.Tokens()); err != nil {
				return err
			}
			_, err = f.Eval(ctx, []Token{5, 6, 7})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := internalSession(t, m)
			p := &partly{answer, plain.usage.Prompt, 0.3, m.info.Vocab, rand.New(rand.NewPCG(1, 2))}
			got := pieces(t, s, prompt, append(opts[:len(opts):len(opts)], speculating(8, p)), func(Piece) {
				if err := use(s); err != nil {
					t.Fatal(err)
				}
			})
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%v\nwant %v", got, want)
			}
		})
	}
}

// sameLogits compares a session with a new one of the same tokens.
func sameLogits(ctx context.Context, s *Session, tokens []Token) error {
	other, err := s.model.NewSession()
	if err != nil {
		return err
	}
	defer other.Close()
	want, err := other.Eval(ctx, tokens)
	if err != nil {
		return err
	}
	got, err := s.Eval(ctx, nil)
	if err == nil && (!reflect.DeepEqual(got, want) || !reflect.DeepEqual(s.tokens, tokens)) {
		err = fmt.Errorf("logits after %d tokens differ", len(tokens))
	}
	return err
}

// An answer that its reader gives up leaves a session that goes on like any other.
func TestSpeculationGivenUp(t *testing.T) {
	m := openInternal(t)
	prompt := "<|im_start|>user\nCount to 12.<|im_end|>\n<|im_start|>assistant\n"
	want := pieces(t, internalSession(t, m), prompt, []GenerateOption{Temperature(0), MaxTokens(20)}, nil)
	var answer []Token
	for _, p := range want {
		answer = append(answer, p.Token)
	}
	for stop := 1; stop < 12; stop++ {
		s := internalSession(t, m)
		p := &partly{answer, len(mustEncode(t, m, prompt)), 0, m.info.Vocab, rand.New(rand.NewPCG(1, 2))}
		n := 0
		for _, err := range s.Generate(context.Background(), prompt, Temperature(0), ParseSpecial(), speculating(8, p)) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == stop {
				break
			}
		}
		if s.Len() != p.prompt+stop {
			t.Fatalf("%d tokens, want %d", s.Len(), p.prompt+stop)
		}
		// Without a prompt and with other tokens than those that were guessed.
		for _, err := range s.Generate(context.Background(), "", Temperature(3), Seed(9), TopK(0), TopP(1), MinP(0), MaxTokens(4)) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := sameLogits(context.Background(), s, s.Tokens()); err != nil {
			t.Errorf("given up after %d: %v", stop, err)
		}
	}
}

func mustEncode(t testing.TB, m *Model, text string) []Token {
	t.Helper()
	tokens, err := m.tokenizer.Encode(text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func TestLookup(t *testing.T) {
	for _, tt := range []struct {
		need, n int
		tokens  string
		want    string
	}{
		{2, 4, "abcdef--ab", "cdef"},
		{2, 4, "abX..abY..ab", "Y..a"},       // the latest of equals
		{2, 4, "xabcP..yabcQ..xabc", "P..y"}, // the longest
		{2, 5, "--ababab", "ababa"},          // a match that reaches to the end
		{2, 3, "aaaa", "aaa"},
		{3, 4, "abcdef--ab", ""},
		{2, 4, "abcdefgh", ""},
		{2, 4, "a", ""},
		{2, 4, "", ""},
		{1, 2, "ab-a", "b-"},
		{1, 2, "aa", "aa"},
	} {
		var tokens []Token
		for _, c := range tt.tokens {
			tokens = append(tokens, c)
		}
		got, err := (&lookup{need: tt.need}).propose(context.Background(), nil, tokens, tt.n)
		if err != nil || string(got) != tt.want {
			t.Errorf("%q, %d of %d: %q, want %q", tt.tokens, tt.n, tt.need, string(got), tt.want)
		}
	}
}
