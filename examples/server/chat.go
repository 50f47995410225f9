package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/minfer/minfer"
)

// usage is how many tokens a request took.
type usage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	Total         int `json:"total_tokens"`
	PromptDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func newUsage(c counts, reasoning int) *usage {
	u := &usage{Prompt: c.prompt, Completion: c.generated, Total: c.prompt + c.generated}
	u.PromptDetails.Cached = c.cached
	u.CompletionDetails.Reasoning = reasoning
	return u
}

// head is what all answers begin with.
type head struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
}

func (s *server) newHead(prefix, object string) head {
	return head{prefix + randomID(), object, time.Now().Unix(), s.modelID, "minfer"}
}

type chatCompletion struct {
	head
	Choices []*chatChoice `json:"choices"`
	Usage   *usage        `json:"usage"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  chatMessage   `json:"message"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   string        `json:"finish_reason"`
}

type chatMessage struct {
	Role      string      `json:"role"`
	Content   *string     `json:"content"`
	Refusal   *string     `json:"refusal"`
	Reasoning string      `json:"reasoning_content,omitempty"`
	Calls     []*chatCall `json:"tool_calls,omitempty"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
	index    int
}

type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type chatChunk struct {
	head
	Choices []chunkChoice `json:"choices"`
	Usage   any           `json:"usage,omitempty"` // a nil *usage is null
}

type chunkChoice struct {
	Index    int           `json:"index"`
	Delta    chunkDelta    `json:"delta"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

type chunkDelta struct {
	Role      string      `json:"role,omitempty"`
	Content   *string     `json:"content,omitempty"`
	Reasoning string      `json:"reasoning_content,omitempty"`
	Calls     []chunkCall `json:"tool_calls,omitempty"`
}

type chunkCall struct {
	Index    int          `json:"index"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

type chatLogprobs struct {
	Content []tokenLogprob `json:"content"`
	Refusal []tokenLogprob `json:"refusal"` // always null
}

type tokenLogprob struct {
	Token   string       `json:"token"`
	Logprob float64      `json:"logprob"`
	Bytes   []int        `json:"bytes"`
	Top     []topLogprob `json:"top_logprobs"`
}

type topLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// chat answers in a conversation.
func (s *server) chat(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	q, err := s.readChat(body)
	if err != nil {
		return err
	}
	j, answers, err := s.chatJob(r.Context(), q)
	if err != nil {
		return err
	}
	if q.stream {
		return s.streamChat(w, r, j, q, answers)
	}
	return s.wholeChat(w, r, j, answers)
}

// chatJob turns a request into work, with an answer for each choice.
func (s *server) chatJob(ctx context.Context, q *chatRequest) (*job, []*answer, error) {
	prompt, err := s.render(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	forced, err := s.force(ctx, q, prompt)
	if err != nil {
		return nil, nil, err
	}
	j := &job{params: q.params, prompts: [][]minfer.Token{prompt.Tokens}, tools: q.offered()}
	if !q.choice.required { // a call is not of the form, and an answer need not be a call
		j.options = constraint(q.format)
	}
	if len(j.tools) > 0 {
		j.options = append(j.options, minfer.HoldToolCalls(heldDefinitions(j.tools), prompt.Text, forced))
	}
	var answers []*answer
	for range q.choices {
		answers = append(answers, s.newAnswer(q, prompt.Text, forced))
	}
	return j, answers, nil
}

// heldDefinitions are the tools as calls are held to them.
func heldDefinitions(tools []tool) json.RawMessage {
	type function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters,omitempty"`
		Strict     bool            `json:"strict"`
	}
	type definition struct {
		Function function `json:"function"`
	}
	var list []definition
	for _, t := range tools {
		list = append(list, definition{function{t.name, t.parameters, t.strict}})
	}
	all, _ := json.Marshal(list) // of valid JSON
	return all
}

// render writes the conversation as the model reads it.
func (s *server) render(ctx context.Context, q *chatRequest) (*minfer.Prompt, error) {
	var options []minfer.ChatOption
	if tools := q.offered(); len(tools) > 0 {
		var definitions []json.RawMessage
		for _, t := range tools {
			definitions = append(definitions, t.definition)
		}
		all, _ := json.Marshal(definitions) // of valid JSON
		options = append(options, minfer.Tools(all))
	}
	if q.variables != nil {
		options = append(options, minfer.TemplateVariables(q.variables))
	}
	prompt, err := s.model.RenderChat(ctx, q.messages, options...)
	switch {
	case errors.Is(err, minfer.ErrNoChatTemplate):
		return nil, badField("messages", "the model has no chat template; /v1/completions goes on with a text")
	case err != nil && ctx.Err() == nil:
		// Templates refuse, with reasons of their own, conversations that the model
		// was not trained on.
		return nil, badField("messages", "%v", err)
	}
	return prompt, err
}

// force has the answer begin as a call does, if the request demands a call. An answer of a
// given form, or a call, cannot begin with reasoning, so that is ended.
func (s *server) force(ctx context.Context, q *chatRequest, prompt *minfer.Prompt) (string, error) {
	opening := ""
	switch {
	case q.choice.required:
		opening = s.format.Opening(q.choice.name)
	case q.format.free():
		return "", nil
	}
	before := ""
	if minfer.NewReasoningSplitter(prompt.Text).Thinking() {
		before = "</think>\n\n"
	}
	tokens, err := s.model.Tokenizer().AppendEncode(ctx, nil, before+opening, nil, minfer.EncodeOptions{ParseSpecial: true})
	if err != nil {
		return "", err
	}
	prompt.Text += before + opening
	prompt.Tokens = append(prompt.Tokens, tokens...)
	return opening, nil
}

// wholeChat answers when all is said.
func (s *server) wholeChat(w http.ResponseWriter, r *http.Request, j *job, answers []*answer) error {
	out := chatCompletion{head: s.newHead("chatcmpl-", "chat.completion")}
	contents := make([]strings.Builder, len(answers))
	reasonings := make([]strings.Builder, len(answers))
	held := make([]heldProbs, len(answers))
	for i := range answers {
		out.Choices = append(out.Choices, &chatChoice{Index: i, Message: chatMessage{Role: "assistant"}})
	}
	j.begin = func() error { return nil }
	j.emit = func(i int, p piece) error {
		choice := out.Choices[i]
		if probs := held[i].push(p); j.logprobs {
			choice.addProbs(probs)
		}
		deltas, enough := answers[i].push(p)
		for _, d := range deltas {
			contents[i].WriteString(d.content)
			reasonings[i].WriteString(d.reasoning)
			choice.Message.addCall(d.call)
		}
		if enough {
			return errEnough
		}
		return nil
	}
	c, err := s.generate(r.Context(), j)
	if err != nil {
		return err
	}
	reasoning := 0
	for i, choice := range out.Choices {
		choice.Finish = answers[i].reason()
		choice.Message.Reasoning = reasonings[i].String()
		if text := contents[i].String(); text != "" || len(choice.Message.Calls) == 0 {
			choice.Message.Content = &text
		}
		reasoning += answers[i].reasoning
	}
	out.Usage = newUsage(c, reasoning)
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (c *chatChoice) addProbs(probs []*tokenProbs) {
	if c.Logprobs == nil {
		c.Logprobs = &chatLogprobs{Content: []tokenLogprob{}}
	}
	c.Logprobs.Content = append(c.Logprobs.Content, chatProbs(probs)...)
}

func (m *chatMessage) addCall(d *callDelta) {
	if d == nil {
		return
	}
	if d.name != "" {
		m.Calls = append(m.Calls, &chatCall{ID: d.id, Type: "function", index: d.index, Function: chatFunction{Name: d.name}})
	}
	last := len(m.Calls) - 1
	if d.undone {
		m.Calls = m.Calls[:last]
		return
	}
	m.Calls[last].Function.Arguments += d.arguments
}

// streamChat answers as it is said.
func (s *server) streamChat(w http.ResponseWriter, r *http.Request, j *job, q *chatRequest, answers []*answer) error {
	out := newStream(w)
	chunk := chatChunk{head: s.newHead("chatcmpl-", "chat.completion.chunk")}
	if q.includeUsage {
		chunk.Usage = (*usage)(nil)
	}
	send := func(c chunkChoice) error {
		chunk.Choices = []chunkChoice{c}
		return out.send(chunk)
	}
	j.begin = func() error {
		for i := range answers {
			empty := ""
			if err := send(chunkChoice{Index: i, Delta: chunkDelta{Role: "assistant", Content: &empty}}); err != nil {
				return err
			}
		}
		return nil
	}
	held := make([]heldProbs, len(answers))
	j.emit = func(i int, p piece) error {
		var probs *chatLogprobs
		if ready := held[i].push(p); len(ready) > 0 {
			probs = &chatLogprobs{Content: chatProbs(ready)}
		}
		deltas, enough := answers[i].push(p)
		for _, d := range deltas {
			if d.call != nil && d.call.undone {
				continue // what was sent of it cannot be taken back
			}
			if err := send(chunkChoice{Index: i, Delta: newChunkDelta(d), Logprobs: probs}); err != nil {
				return err
			}
			probs = nil
		}
		if probs != nil {
			if err := send(chunkChoice{Index: i, Logprobs: probs}); err != nil {
				return err
			}
		}
		if !enough {
			return nil
		}
		reason := answers[i].reason()
		if err := send(chunkChoice{Index: i, Finish: &reason}); err != nil {
			return err
		}
		return errEnough
	}
	c, err := s.generate(r.Context(), j)
	if err == nil && q.includeUsage {
		reasoning := 0
		for _, a := range answers {
			reasoning += a.reasoning
		}
		chunk.Choices, chunk.Usage = []chunkChoice{}, newUsage(c, reasoning)
		err = out.send(chunk)
	}
	return out.finish(err)
}

func newChunkDelta(d delta) chunkDelta {
	out := chunkDelta{Reasoning: d.reasoning}
	if d.content != "" {
		out.Content = &d.content
	}
	if c := d.call; c != nil {
		call := chunkCall{Index: c.index, ID: c.id, Function: chatFunction{Name: c.name, Arguments: c.arguments}}
		if c.id != "" {
			call.Type = "function"
		}
		out.Calls = []chunkCall{call}
	}
	return out
}

// heldProbs keeps the log-probabilities of tokens back until their text is given out: those
// of a stop string, which is no part of the answer, never are.
type heldProbs struct{ tokens []*tokenProbs }

func (h *heldProbs) push(p piece) []*tokenProbs {
	if p.probs != nil && p.finish != minfer.FinishedTurn {
		h.tokens = append(h.tokens, p.probs)
	}
	if p.text == "" && (p.finish == minfer.NotFinished || p.finish == minfer.FinishedStop) {
		return nil
	}
	ready := h.tokens
	h.tokens = nil
	return ready
}

func chatProbs(probs []*tokenProbs) []tokenLogprob {
	var out []tokenLogprob
	for _, p := range probs {
		t := tokenLogprob{Token: printable(p.text), Logprob: finite(p.logprob), Bytes: byteValues(p.text), Top: []topLogprob{}}
		for _, r := range p.top {
			t.Top = append(t.Top, topLogprob{printable(r.text), finite(r.logprob), byteValues(r.text)})
		}
		out = append(out, t)
	}
	return out
}
