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
	err = s.using("scoring tokens", func() error {
		logProbs, err = s.score(orBackground(ctx), tokens)
		return err
	})
	return logProbs, err
}

func (s *Session) score(ctx context.Context, tokens []Token) (_ []float32, err error) {
	if len(tokens) == 0 {
		return nil, ErrNoTokens
	}
	if err := s.check(tokens); err != nil {
		return nil, err
	}
	before := len(s.tokens)
	defer func() {
		if err != nil && len(s.tokens) > before {
			_ = s.rewind(before) // shortening what is longer does not fail
		}
	}()
	logProbs := make([]float32, len(tokens))
	if before > 0 {
		logits, err := s.eval(ctx, nil)
		if err == nil {
			logProbs[0], err = logProb(logits, tokens[0])
		}
		if err != nil {
			return nil, err
		}
	}
	vocab := s.model.tokenizer.VocabSize()
	rows := make([][]float32, min(scoreBatch, len(tokens)))
	for i := range rows {
		rows[i] = make([]float32, s.model.hyper.Vocab)
	}
	for from := 0; from < len(tokens); from += len(rows) {
		rows = rows[:min(len(rows), len(tokens)-from)]
		if err := s.extend(ctx, tokens[from:from+len(rows)], rows); err != nil {
			return nil, err
		}
		for i, row := range rows {
			if at := from + i + 1; at < len(tokens) {
				if logProbs[at], err = logProb(row[:vocab], tokens[at]); err != nil {
					return nil, err
				}
			}
		}
	}
	s.logits, s.valid = append(s.logits[:0], rows[len(rows)-1]...), len(s.tokens)
	return logProbs, nil
}

func logProb(logits []float32, t Token) (float32, error) {
	p, err := sampling.LogProb(logits, t)
	if err != nil {
		return 0, fmt.Errorf("minfer: %w", err)
	}
	return p, nil
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
