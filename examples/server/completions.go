package main

import (
	"net/http"
	"strings"
)

type completion struct {
	head
	Choices []completionChoice `json:"choices"`
	Usage   any                `json:"usage,omitempty"` // a nil *usage is null
}

type completionChoice struct {
	Text     string              `json:"text"`
	Index    int                 `json:"index"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
}

type completionLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"` // null for the first token of a text
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"`
}

// completions goes on with texts.
func (s *server) completions(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	q, err := s.readCompletion(r.Context(), body)
	if err != nil {
		return err
	}
	j := &job{params: q.params, prompts: q.prompts, options: constraint(q.format)}
	if q.stream {
		return s.streamCompletion(w, r, j, q)
	}
	return s.wholeCompletion(w, r, j, q)
}

// textChoice is the state of a choice.
type textChoice struct {
	held   heldProbs
	offset int // length of the text of the tokens so far
}

// probs returns the log-probabilities that can be given out with a piece, or nil.
func (c *textChoice) probs(p piece) *completionLogprobs {
	ready := p.prompt
	if ready == nil {
		ready = c.held.push(p)
	}
	if len(ready) == 0 {
		return nil
	}
	out := &completionLogprobs{}
	for _, t := range ready {
		out.Tokens = append(out.Tokens, printable(t.text))
		out.Offsets = append(out.Offsets, c.offset)
		c.offset += len(t.text)
		if t.first {
			out.Logprobs, out.Top = append(out.Logprobs, nil), append(out.Top, nil)
			continue
		}
		logprob := finite(t.logprob)
		out.Logprobs = append(out.Logprobs, &logprob)
		top := map[string]float64{}
		for _, r := range t.top {
			top[printable(r.text)] = finite(r.logprob)
		}
		out.Top = append(out.Top, top)
	}
	return out
}

func (l *completionLogprobs) add(more *completionLogprobs) {
	if more != nil {
		l.Tokens = append(l.Tokens, more.Tokens...)
		l.Logprobs = append(l.Logprobs, more.Logprobs...)
		l.Top = append(l.Top, more.Top...)
		l.Offsets = append(l.Offsets, more.Offsets...)
	}
}

// echoed is what a choice begins with: the prompt, if that was asked for.
func (q *completionRequest) echoed(choice int) string {
	if !q.echo {
		return ""
	}
	return q.texts[choice/q.choices]
}

func (s *server) wholeCompletion(w http.ResponseWriter, r *http.Request, j *job, q *completionRequest) error {
	out := completion{head: s.newHead("cmpl-", "text_completion")}
	n := len(q.prompts) * q.choices
	texts := make([]strings.Builder, n)
	states := make([]textChoice, n)
	for i := range n {
		c := completionChoice{Index: i}
		if q.logprobs {
			c.Logprobs = &completionLogprobs{[]string{}, []*float64{}, []map[string]float64{}, []int{}}
		}
		texts[i].WriteString(q.echoed(i))
		out.Choices = append(out.Choices, c)
	}
	j.begin = func() error { return nil }
	j.emit = func(i int, p piece) error {
		texts[i].WriteString(p.text)
		if q.logprobs {
			out.Choices[i].Logprobs.add(states[i].probs(p))
		}
		reason := finishReason(p.finish)
		out.Choices[i].Finish = &reason
		return nil
	}
	c, err := s.generate(r.Context(), j)
	if err != nil {
		return err
	}
	for i := range n {
		out.Choices[i].Text = texts[i].String()
	}
	out.Usage = newUsage(c, 0)
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *server) streamCompletion(w http.ResponseWriter, r *http.Request, j *job, q *completionRequest) error {
	out := newStream(w)
	chunk := completion{head: s.newHead("cmpl-", "text_completion")}
	if q.includeUsage {
		chunk.Usage = (*usage)(nil)
	}
	send := func(c completionChoice) error {
		chunk.Choices = []completionChoice{c}
		return out.send(chunk)
	}
	n := len(q.prompts) * q.choices
	states := make([]textChoice, n)
	j.begin = func() error {
		if !q.echo || q.score { // the text comes with its log-probabilities
			return out.begin()
		}
		for i := range n {
			if err := send(completionChoice{Index: i, Text: q.echoed(i)}); err != nil {
				return err
			}
		}
		return nil
	}
	j.emit = func(i int, p piece) error {
		c := completionChoice{Index: i, Text: p.text, Logprobs: states[i].probs(p)}
		if p.prompt != nil {
			c.Text = q.echoed(i)
		}
		if p.finish != 0 {
			reason := finishReason(p.finish)
			c.Finish = &reason
		}
		if c.Text == "" && c.Finish == nil && c.Logprobs == nil {
			return nil
		}
		return send(c)
	}
	c, err := s.generate(r.Context(), j)
	if err == nil && q.includeUsage {
		chunk.Choices, chunk.Usage = []completionChoice{}, newUsage(c, 0)
		err = out.send(chunk)
	}
	return out.finish(err)
}
