package minfer

import (
	"context"
	"fmt"

	"github.com/minfer/minfer/internal/sampling"
	"github.com/minfer/minfer/internal/tokenizer"
)

// scoreBatch is how many rows of logits Score holds at once.
const scoreBatch = 64

// Score appends tokens to the sequence and returns the natural logarithm of the probability of
// each under the model, given those before it. The first token of an empty session has none
// before it and gets 0. A text's perplexity is math.Exp of the mean of the others, negated.
//
// The sequence grows as by Eval, and on an error is what it was before.
func (s *Session) Score(ctx context.Context, tokens []Token) (logProbs []float32, err error) {
	logProbs, _, err = s.ScoreTop(ctx, tokens, 0)
	return logProbs, err
}

// ScoreTop is Score that also returns the n likeliest tokens in the place of each, as TopLogProbs
// gives them for answers. The first token of an empty session has none.
func (s *Session) ScoreTop(ctx context.Context, tokens []Token, n int) (logProbs []float32, top [][]TokenProb, err error) {
	if n < 0 {
		return nil, nil, optionErrorf("ScoreTop", "%d tokens, want 0 or more", n)
	}
	scores := &scores{tokens: tokens, logProbs: make([]float32, len(tokens)), n: n}
	if n > 0 {
		scores.top = make([][]TokenProb, len(tokens))
	}
	if err := s.using("scoring tokens", func() error { return s.score(orBackground(ctx), scores) }); err != nil {
		return nil, nil, err
	}
	return scores.logProbs, scores.top, nil
}

// scores are what is found out about tokens.
type scores struct {
	tokens   []Token
	logProbs []float32
	n        int // likeliest tokens wanted
	top      [][]TokenProb
}

// add notes what the logits before a token say of it.
func (p *scores) add(at int, logits []float32) (err error) {
	if p.logProbs[at], err = sampling.LogProb(logits, p.tokens[at]); err != nil {
		return fmt.Errorf("minfer: %w", err)
	}
	if p.n > 0 {
		p.top[at], err = topLogProbs(logits, p.n)
	}
	return err
}

func (s *Session) score(ctx context.Context, p *scores) (err error) {
	tokens := p.tokens
	if len(tokens) == 0 {
		return ErrNoTokens
	}
	if err := s.check(tokens); err != nil {
		return err
	}
	before := len(s.tokens)
	defer func() {
		if err != nil && len(s.tokens) > before {
			_ = s.rewind(before) // shortening what is longer does not fail
		}
	}()
	if before > 0 {
		logits, err := s.eval(ctx, nil)
		if err == nil {
			err = p.add(0, logits)
		}
		if err != nil {
			return err
		}
	}
	vocab := s.model.tokenizer.VocabSize()
	rows := s.newRows(min(scoreBatch, len(tokens)))
	for from := 0; from < len(tokens); from += len(rows) {
		rows = rows[:min(len(rows), len(tokens)-from)]
		if err := s.extend(ctx, tokens[from:from+len(rows)], rows); err != nil {
			return err
		}
		for i, row := range rows {
			if at := from + i + 1; at < len(tokens) {
				if err := p.add(at, row[:vocab]); err != nil {
					return err
				}
			}
		}
	}
	s.keepLogits(rows[len(rows)-1])
	return nil
}

// CountTokens returns how many tokens a prompt's text takes on an empty session, with those that
// the model wants at its ends. What looks like a special token counts as plain text.
func (m *Model) CountTokens(ctx context.Context, text string) (int, error) {
	if m.none() {
		return 0, ErrClosed
	}
	tokens, err := m.tokenizer.EncodeContext(orBackground(ctx), text, tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil {
		return 0, err
	}
	return len(tokens), nil
}

// CountChatTokens returns how many tokens a conversation takes up to where its next answer
// begins.
func (m *Model) CountChatTokens(ctx context.Context, messages []Message, opts ...ChatOption) (int, error) {
	p, err := m.RenderChat(ctx, messages, opts...)
	if err != nil {
		return 0, err
	}
	return len(p.Tokens), nil
}
