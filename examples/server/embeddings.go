package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/http"

	"github.com/minfer/minfer"
)

// maxInputs bounds the texts of a request.
const maxInputs = 2048

type embeddingList struct {
	Object string      `json:"object"`
	Data   []embedding `json:"data"`
	Model  string      `json:"model"`
	Usage  struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	} `json:"usage"`
}

type embedding struct {
	Object string `json:"object"`
	Index  int    `json:"index"`
	Vector any    `json:"embedding"` // numbers, or the text of their bytes in base64
}

// embeddings answers with a vector for each text.
func (s *server) embeddings(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	o := body.object()
	s.checkModel(o.get("model"))
	o.get("dimensions").refuse("vectors have as many as the model has")
	format := "float"
	if f := o.get("encoding_format"); f.exists() {
		if format = f.text(); format != "float" && format != "base64" {
			f.fail("%q is neither float nor base64", format)
		}
	}
	inputs, err := s.readInputs(r.Context(), o.get("input"))
	if err != nil {
		return err
	}
	vectors, tokens, err := s.embed(r.Context(), inputs)
	if err != nil {
		return err
	}
	out := embeddingList{Object: "list", Model: s.modelID}
	out.Usage.Prompt, out.Usage.Total = tokens, tokens
	for i, v := range vectors {
		e := embedding{Object: "embedding", Index: i, Vector: v}
		if format == "base64" {
			e.Vector = littleEndian(v)
		}
		out.Data = append(out.Data, e)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// littleEndian is a vector as clients ask for it to save room; JSON makes it base64.
func littleEndian(vector []float32) []byte {
	b := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// readInputs reads a text, or tokens, or an array of either.
func (s *server) readInputs(ctx context.Context, v value) ([][]minfer.Token, error) {
	q := &completionRequest{}
	s.readPrompts(ctx, q, v, maxInputs)
	return q.prompts, *v.err
}

// embed returns the vectors of the inputs, and how many tokens they have.
func (s *server) embed(ctx context.Context, inputs [][]minfer.Token) (vectors [][]float32, tokens int, err error) {
	vectors, err = s.model.EmbedTokens(ctx, inputs)
	if errors.Is(err, minfer.ErrNoEmbedding) {
		return nil, 0, newError(http.StatusBadRequest, unsupported, "%v", err)
	}
	for _, input := range inputs {
		tokens += len(input)
	}
	return vectors, tokens, err
}
