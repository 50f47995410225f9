package main

import (
	"context"
	"net/http"

	"github.com/minfer/minfer"
)

const maxInputs = 256

// embeddings answers with a vector for each text.
func (s *server) embeddings(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	o := body.object()
	s.checkModel(o.get("model"))
	o.get("dimensions").refuse("vectors have as many as the model has")
	inputs, err := s.readInputs(r.Context(), o.get("input"))
	if err != nil {
		return err
	}
	_, _, err = s.embed(r.Context(), inputs)
	return err
}

// readInputs reads a text, or tokens, or an array of either.
func (s *server) readInputs(ctx context.Context, v value) ([][]minfer.Token, error) {
	q := &completionRequest{}
	s.readPrompts(ctx, q, v)
	if len(q.prompts) > maxInputs {
		v.fail("there are %d texts, want at most %d", len(q.prompts), maxInputs)
	}
	return q.prompts, *v.err
}

// embed returns the vectors of the inputs, and how many tokens were evaluated for them.
func (s *server) embed(context.Context, [][]minfer.Token) (vectors [][]float32, tokens int, err error) {
	return nil, 0, newError(http.StatusNotImplemented, unsupported, "embeddings are not supported yet")
}
