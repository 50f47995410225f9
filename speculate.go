package minfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Speculation guesses a few tokens ahead and evaluates them all in one pass, which takes less time
// than one pass for each (Leviathan et al., 2023). The answer is the one that comes about
// without it, token for token and at any temperature: every token is sampled from the logits
// that its predecessors give, which are the same bits in a pass of many tokens, and a guess
// only decides which logits are there already. Guesses after the first wrong one are thrown away.

// maxDraft bounds the tokens that are guessed at once.
const maxDraft = 64

// WithPromptLookup guesses that the sequence goes on as it did before: where its last tokens
// occurred earlier, what followed them is guessed to follow again, up to n tokens at a time, 1
// to 64. That pays where answers repeat parts of the prompt, as in summaries and changes to
// code, and costs little elsewhere (Saxena, 2023). How many tokens are guessed follows how
// many of the last guesses were right.
//
// The answer is the same as without this option, to the last token; Usage says how many tokens
// were guessed and how many of them were right. Of this option and WithDraft the last one holds.
func WithPromptLookup(n int) GenerateOption {
	return func(c *generateConfig) {
		c.speculate = func(*Session) (*speculation, error) {
			return newSpeculation("WithPromptLookup", n, &lookup{need: minMatch})
		}
	}
}

// WithDraft has a smaller model, whose session draft is, guess up to n tokens at a time, 1 to 64,
// by taking its likeliest token each time. How many are guessed follows how many of the last
// guesses were right. The models need the same vocabulary, or one that the other's begins with;
// otherwise the answer ends with a *VocabularyError at once.
//
// The answer is the same as without this option, to the last token; Usage says how many tokens
// were guessed and how many of them were right. Draft follows the sequence, and keeps what it has
// in common with the next one. It must not be used meanwhile, nor by two answers at a time. When
// its context is full, answers go on without guesses.
func WithDraft(draft *Session, n int) GenerateOption {
	return func(c *generateConfig) {
		c.speculate = func(s *Session) (*speculation, error) {
			if draft == nil || draft == s {
				return nil, optionErrorf("WithDraft", "want a session beside the one that answers")
			}
			if draft.isClosed() {
				return nil, ErrClosed
			}
			if err := draft.goesWith(s.model); err != nil {
				return nil, err
			}
			return newSpeculation("WithDraft", n, &drafter{session: draft, pastEnd: c.pastEnd})
		}
	}
}

// ErrVocabulary: the model that guesses has other tokens; a *VocabularyError.
var ErrVocabulary = errors.New("minfer: models have different vocabularies")

// VocabularyError names the first token in which the vocabularies of two models differ.
type VocabularyError struct {
	Token       Token
	Have, Draft []byte // the token's bytes in the model that answers and in the one that guesses
}

// Error returns the token and both texts.
func (e *VocabularyError) Error() string {
	return fmt.Sprintf("minfer: the draft model has another vocabulary: token %d is %q there and %q in the model that answers", e.Token, e.Draft, e.Have)
}

// Unwrap returns ErrVocabulary.
func (e *VocabularyError) Unwrap() error { return ErrVocabulary }

// goesWith says whether the session's tokens mean the same to m. Models of a family are often
// padded to different sizes, so only the tokens that both have are compared.
func (s *Session) goesWith(m *Model) error {
	if s.model == m || s.draftFor.Load() == m {
		return nil
	}
	have, draft := m.tokenizer, s.model.tokenizer
	for t := range Token(min(have.VocabSize(), draft.VocabSize())) {
		if a, b := have.TokenBytes(t), draft.TokenBytes(t); !bytes.Equal(a, b) {
			return &VocabularyError{Token: t, Have: bytes.Clone(a), Draft: bytes.Clone(b)}
		}
	}
	s.draftFor.Store(m)
	return nil
}

// proposer guesses how a sequence goes on.
type proposer interface {
	// propose appends up to n tokens to dst that may follow tokens.
	propose(ctx context.Context, dst, tokens []Token, n int) ([]Token, error)
	// learn is told how many of the tokens that were proposed last were right.
	learn(proposed, right int)
}

// speculation is the guesses of an answer.
type speculation struct {
	proposer
	most, depth int // tokens to guess at once, at most and now

	drafted []Token     // the last guess; drafted[:at] have been generated
	at      int         // rows[at] are the logits after the sequence, if held
	rows    [][]float32 // after the sequence as it was, and after each token of drafted
	top     int         // each row has so many of the greatest logits; 0 if all
	held    bool
}

// firstDepth is how many tokens are guessed at once in the beginning.
const firstDepth = 4

func newSpeculation(option string, n int, p proposer) (*speculation, error) {
	if n < 1 || n > maxDraft {
		return nil, optionErrorf(option, "%d tokens, want 1 to %d", n, maxDraft)
	}
	return &speculation{proposer: p, most: n, depth: min(n, firstDepth)}, nil
}

// logits returns the logits after the sequence, as answer.logits: those of the last pass if its
// guesses still hold, or those of a new pass with new guesses.
func (p *speculation) logits(ctx context.Context, a *answer, n int) (*top, []float32, error) {
	s := a.session
	if p.held && p.top > 0 && (n == 0 || n > p.top) {
		p.held = false // more of them are needed than there are
		s.settle()
	}
	if !p.held && s.valid == len(s.tokens) {
		all, err := s.eval(ctx, nil)
		return nil, all, err
	}
	if !p.held {
		if err := p.evaluate(ctx, a, n); err != nil {
			return nil, nil, err
		}
	}
	row := p.rows[p.at]
	if p.top > 0 {
		return s.top.of(row[:2*p.top], p.top), nil, nil
	}
	return nil, row[:s.model.tokenizer.VocabSize()], nil
}

// evaluate makes new guesses, and fills rows.
func (p *speculation) evaluate(ctx context.Context, a *answer, n int) error {
	s := a.session
	if err := p.guess(ctx, a); err != nil {
		return err
	}
	for len(p.rows) <= len(p.drafted) {
		vocab := s.model.hyper.Vocab
		p.rows = append(p.rows, make([]float32, max(vocab, 2*maxTop))[:vocab])
	}
	ahead := func() error { return s.evalAhead(ctx, p.drafted, p.rows[:len(p.drafted)+1]) }
	top, err := s.wanting(n, ahead)
	if errors.Is(err, ErrCacheFull) && len(p.drafted) > 0 {
		// There may still be room for the one token that has to be evaluated.
		p.drafted = p.drafted[:0]
		top, err = s.wanting(n, ahead)
	}
	if err != nil {
		return err
	}
	p.held, p.at, p.top = true, 0, top
	a.usage.Drafted += len(p.drafted)
	return nil
}

// guess fills drafted. The last token of an answer has no use for its logits, so there are
// guesses for all but that.
func (p *speculation) guess(ctx context.Context, a *answer) (err error) {
	s := a.session
	room := s.context - len(s.tokens) - 1
	if most := a.config.maxTokens; most > 0 {
		room = min(room, most-a.usage.Generated-1)
	}
	p.drafted = p.drafted[:0]
	if n := roundDraft(min(p.depth, room)); n > 0 {
		if p.drafted, err = p.propose(ctx, p.drafted, s.tokens, n); err != nil {
			return fmt.Errorf("minfer: guessing tokens: %w", err)
		}
	}
	for i, t := range p.drafted {
		if int(t) >= s.model.tokenizer.VocabSize() {
			p.drafted = p.drafted[:i] // a token that only the draft model has
			break
		}
	}
	return nil
}

// roundDraft rounds down to one of a few numbers, since every number of tokens has a graph of its
// own, of which a cache keeps only so many.
func roundDraft(n int) int {
	for _, size := range [...]int{64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1} {
		if n >= size {
			return size
		}
	}
	return 0
}

// match notes the token that is about to follow the sequence. What was evaluated ahead stays if
// that is what was guessed.
func (p *speculation) match(a *answer, t Token) {
	if !p.held {
		return
	}
	if p.at < len(p.drafted) && p.drafted[p.at] == t {
		p.at++
		a.usage.Accepted++
		return
	}
	p.held = false
	a.session.settle()
	if proposed := len(p.drafted); proposed > 0 {
		if p.at == proposed {
			p.depth = min(2*p.depth, p.most)
		} else {
			p.depth = max(1, min(p.at+1, p.depth))
		}
		p.learn(proposed, p.at)
	}
}

// evalAhead evaluates what of the sequence is not yet, and tokens as if they followed it. It
// leaves the logits after the last token of the sequence and after each of ahead in rows. The
// sequence stays as it is; the cells of ahead are there until settle.
func (s *Session) evalAhead(ctx context.Context, ahead []Token, rows [][]float32) error {
	n, evaluated := len(s.tokens), min(s.cells.Len(), len(s.tokens))
	s.tokens = append(s.tokens, ahead...)
	err := s.evaluate(ctx, min(evaluated, n-1), rows)
	s.tokens = s.tokens[:n]
	if err != nil {
		s.truncate(evaluated)
	}
	return err
}

// Of a repetition, so many tokens have to be there before more of it is guessed.
const (
	minMatch = 2
	maxMatch = 8
)

// lookup guesses from what the sequence itself holds.
type lookup struct {
	need int // tokens that have to match; grows while guesses are wrong
}

// propose takes what followed the longest match of the sequence's end within the sequence, of
// several the latest. A match that reaches to the end goes on into what is proposed.
func (l *lookup) propose(_ context.Context, dst, tokens []Token, n int) ([]Token, error) {
	best, follows := l.need-1, 0
	for end := len(tokens) - 1; end > best && best < maxMatch; end-- {
		length := 0
		for length < maxMatch && length < end && tokens[end-1-length] == tokens[len(tokens)-1-length] {
			length++
		}
		if length > best {
			best, follows = length, end
		}
	}
	if follows == 0 {
		return dst, nil
	}
	from := len(dst)
	for i := range n {
		if at := follows + i; at < len(tokens) {
			dst = append(dst, tokens[at])
		} else {
			dst = append(dst, dst[from+at-len(tokens)])
		}
	}
	return dst, nil
}

func (l *lookup) learn(_, right int) {
	if right == 0 {
		l.need = min(l.need+1, maxMatch)
	} else {
		l.need = minMatch
	}
}

// drafter guesses what another model would say.
type drafter struct {
	session *Session
	pastEnd bool
}

func (d *drafter) propose(ctx context.Context, dst, tokens []Token, n int) ([]Token, error) {
	s := d.session
	n = min(n, s.context-len(tokens)+1) // the last guess is not evaluated
	if n < 1 || s.checkIDs(tokens) != nil {
		return dst, nil
	}
	if _, err := s.SetTokens(ctx, tokens); err != nil {
		return dst, err
	}
	var next []Token
	for {
		logits, err := s.Eval(ctx, next)
		if err != nil {
			return dst, err
		}
		t := likeliest(logits)
		dst = append(dst, t)
		if n--; n == 0 || !d.pastEnd && s.model.tokenizer.IsEndOfGeneration(t) {
			return dst, nil
		}
		next = dst[len(dst)-1:]
	}
}

func (*drafter) learn(_, _ int) {}

// likeliest returns the token of the largest logit, the first of equals. NaN is never it, and
// if all are, it is token 0: a guess need not be a good one.
func likeliest(logits []float32) Token {
	best := 0
	for i, x := range logits {
		if x > logits[best] || logits[best] != logits[best] {
			best = i
		}
	}
	return Token(best)
}
