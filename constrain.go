package minfer

import (
	"context"
	"encoding/json"
	"sync"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/internal/grammar"
	"github.com/minfer/minfer/internal/tokenizer"
)

// SchemaError says which part of a JSON schema is wrong or cannot be held to. It is wrapped in
// the OptionError of WithJSONSchema.
type SchemaError = grammar.SchemaError

// GrammarError says where a grammar or a regular expression is wrong. It is wrapped in the
// OptionError of WithGrammar or WithRegexp.
type GrammarError = grammar.SyntaxError

// WithJSON has the answer be a JSON object.
//
// This option, WithJSONSchema, WithGrammar and WithRegexp constrain an answer: of the tokens that
// can go on towards a text of the wanted form one is chosen, as the settings of the sampling say,
// and an end-of-turn token is one of them where the text may end. Where it can only end, the
// answer ends with FinishedGrammar. An answer that ends with that or FinishedTurn has the form;
// one that ends for another reason is the beginning of such a text. The last of these options
// is the one that holds.
func WithJSON() GenerateOption {
	return constrained("WithJSON", "", func(ctx context.Context, _ string) (*grammar.Grammar, error) {
		return grammar.JSON(ctx)
	})
}

// WithJSONSchema has the answer be JSON that a schema (JSON Schema 2020-12) describes. Members of
// objects come in the order of the schema. A schema that asks for what cannot be held to is an
// error, with a *SchemaError in it; none is ever held to in part. See WithJSON.
func WithJSONSchema(schema json.RawMessage) GenerateOption {
	return constrained("WithJSONSchema", string(schema), func(ctx context.Context, source string) (*grammar.Grammar, error) {
		return grammar.Schema(ctx, []byte(source))
	})
}

// WithGrammar has the answer match a grammar in GBNF, the notation of llama.cpp, from its rule
// root. A grammar that is wrong is an error, with a *GrammarError in most cases. See WithJSON.
func WithGrammar(gbnf string) GenerateOption {
	return constrained("WithGrammar", gbnf, grammar.GBNF)
}

// WithRegexp has the answer match a regular expression, in the syntax of package regexp, from its
// first to its last byte. See WithJSON.
func WithRegexp(pattern string) GenerateOption {
	return constrained("WithRegexp", pattern, grammar.Regexp)
}

// constraint is the form that an answer has to have, as an option gives it.
type constraint struct {
	option, source string
	compile        func(ctx context.Context, source string) (*grammar.Grammar, error)
	marked         bool // the marks of calls are among the tokens to choose from
}

func constrained(option, source string, compile func(context.Context, string) (*grammar.Grammar, error)) GenerateOption {
	return func(c *generateConfig) { c.constraint = &constraint{option: option, source: source, compile: compile} }
}

// maxGrammars is how many grammars a model keeps compiled, with the masks that were found for
// them, which can come to some 50 MB for each.
const maxGrammars = 8

// grammars are the grammars that a model was asked to hold to lately. It is safe for concurrent
// use.
type grammars struct {
	vocabulary, marked func() *grammar.Vocabulary // made once each

	mu     sync.Mutex
	recent []compiled // the latest last
}

type compiled struct {
	option, source string
	masker         *grammar.Masker
}

// newGrammars has no grammars. The marks are special tokens whose text answers may show.
func newGrammars(t *tokenizer.Tokenizer, marks []string) *grammars {
	vocabulary := func(marks []string) func() *grammar.Vocabulary {
		return sync.OnceValue(func() *grammar.Vocabulary {
			return grammar.NewVocabulary(t.VocabSize(), func(id Token) []byte {
				text := t.TokenBytes(id)
				switch t.Type(id) {
				case tokenizer.Normal, tokenizer.UserDefined, tokenizer.Byte:
					return text
				case tokenizer.Control:
					if slices.Contains(marks, string(text)) {
						return text
					}
				}
				return nil // what decoding leaves out of the text
			}, t.EndOfGeneration())
		})
	}
	return &grammars{vocabulary: vocabulary(nil), marked: vocabulary(marks)}
}

// matcher returns a matcher at the beginning of a text.
func (g *grammars) matcher(ctx context.Context, c *constraint) (*grammar.Matcher, error) {
	if m := g.find(c); m != nil {
		return m.Matcher(), nil
	}
	compiledGrammar, err := c.compile(ctx, c.source)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, &OptionError{Option: c.option, Reason: err.Error(), Err: err}
	}
	vocabulary := g.vocabulary
	if c.marked {
		vocabulary = g.marked
	}
	m := compiledGrammar.Bind(vocabulary())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recent = append(g.recent, compiled{c.option, c.source, m})
	if len(g.recent) > maxGrammars {
		g.recent = slices.Delete(g.recent, 0, 1)
	}
	return m.Matcher(), nil
}

func (g *grammars) find(c *constraint) *grammar.Masker {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.recent, func(r compiled) bool { return r.option == c.option && r.source == c.source })
	if i < 0 {
		return nil
	}
	found := g.recent[i]
	g.recent = append(slices.Delete(g.recent, i, i+1), found)
	return found.masker
}
