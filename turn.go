package minfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/internal/reasoning"
	"github.com/minfer/minfer/internal/toolcall"
)

// turn is one answer in a conversation while it is generated. It parts what the model says into
// thoughts, text and calls of tools.
type turn struct {
	chat     *Chat
	messages []Message // before the answer
	yield    func(Piece, error) bool
	first    int   // number of the first call among those of the answer's turns
	usage    Usage // of the answer's turns before

	prompt  *Prompt
	goesOn  []turnEnd           // ends of the turns that the prompt goes on from
	think   *reasoning.Splitter // nil if the template knows of no thoughts
	parser  *toolcall.Parser    // nil if no tools are on offer
	raw     strings.Builder     // all of the answer, as the model wrote it
	text    strings.Builder     // without thoughts and calls
	thought strings.Builder
	calls   []toolCall // that are complete
	begun   []toolCall // one for each number that the parser gave out
	before  int        // calls in the conversation so far
	calling bool       // the turn is over and its calls are to be made
}

// defineTools puts the tools on offer into the form that templates take.
func (c *chatConfig) defineTools() error {
	if len(c.offered) == 0 {
		return nil
	}
	seen := map[string]bool{}
	var definitions []json.RawMessage
	for _, t := range c.offered {
		if t.err != nil {
			return &OptionError{Option: "WithTools", Reason: fmt.Sprintf("tool %q: %v", t.name, t.err), Err: t.err}
		}
		if t.call == nil || t.name == "" || seen[t.name] {
			return optionErrorf("WithTools", "tool %q: want tools made by NewTool, each with a name of its own", t.name)
		}
		seen[t.name] = true
		definitions = append(definitions, t.Definition())
	}
	if c.tools != nil {
		var more []json.RawMessage
		if err := json.Unmarshal(c.tools, &more); err != nil {
			return &OptionError{Option: "Tools", Reason: err.Error(), Err: err}
		}
		definitions = append(more, definitions...)
	}
	c.tools = marshal(definitions)
	return nil
}

// begin renders the conversation and returns the tokens to append.
func (t *turn) begin(ctx context.Context, g *generateConfig) ([]Token, error) {
	c, m := t.chat, t.chat.session.model
	config := c.config
	if err := config.defineTools(); err != nil {
		return nil, err
	}
	tokens, err := t.render(ctx, &config)
	if err != nil {
		return nil, err
	}
	g.before = t.usage
	if reasoning.Known(m.templateSource) {
		t.think = reasoning.New(t.prompt.Text)
		g.marks = append(g.marks, reasoning.Open, reasoning.Close)
	}
	if len(config.offered) > 0 && g.constraint == nil {
		for i := range t.messages {
			t.before += len(t.messages[i].toolCalls())
		}
		names := make([]string, len(config.offered))
		for i, tool := range config.offered {
			names[i] = tool.name
		}
		t.parser = toolcall.New(m.ToolFormat(), names)
		g.held = &heldCalls{definitions: config.tools, prompt: t.prompt.Text}
	}
	return c.continueWith(tokens)
}

// render makes the prompt and returns its tokens. If they leave too little room, and the chat is to
// do without its oldest turns then, these go.
func (t *turn) render(ctx context.Context, config *chatConfig) (tokens []Token, err error) {
	c := t.chat
	most, kept := c.session.context-config.room, t.messages
	for {
		if t.prompt, err = c.session.model.renderChat(ctx, kept, config); err != nil {
			return nil, err
		}
		t.goesOn = c.history.match(t.prompt)
		if tokens, err = c.encode(ctx, t.prompt, t.goesOn); err != nil {
			return nil, err
		}
		from, to := oldestTurn(kept)
		if config.room == 0 || len(tokens) <= most || to == 0 {
			break
		}
		most = min(most, c.session.context/2)
		kept = append(slices.Clone(kept[:from]), kept[to:]...)
	}
	if dropped := len(t.messages) - len(kept); dropped > 0 && len(tokens) <= c.session.context {
		from, _ := oldestTurn(t.messages)
		gone := t.messages[from : from+dropped]
		t.messages, c.messages = kept, kept
		if config.onDropped != nil {
			config.onDropped(slices.Clone(gone))
		}
	}
	return tokens, nil
}

// note takes a piece of the answer into the conversation and yields what it comes to.
func (t *turn) note(p Piece, err error) bool {
	if err != nil {
		return t.yield(p, err)
	}
	c := t.chat
	t.raw.WriteString(p.Text)
	c.messages = append(t.messages[:len(t.messages):len(t.messages)], Message{Role: "assistant", Content: t.raw.String()})
	switch p.Finish {
	case FinishedTurn:
		end := c.session.model.tokenizer.TokenBytes(p.Token)
		c.history.add(t.goesOn, t.prompt, t.raw.String()+string(end), c.session.Tokens())
	case FinishedGrammar:
		c.history.add(t.goesOn, t.prompt, t.raw.String(), c.session.Tokens())
	}
	for _, p := range t.part(p) {
		if !t.yield(p, nil) {
			return false
		}
	}
	return true
}

// part makes pieces of thoughts, text and calls of a piece. The last of them has what else the
// piece has.
func (t *turn) part(p Piece) []Piece {
	if t.think == nil && t.parser == nil {
		return []Piece{p}
	}
	pieces := t.hear(nil, p.Text, p.Finish != NotFinished)
	if len(t.calls) > 0 && p.Finish == FinishedTurn {
		t.calling = true
		p.Finish = NotFinished // more turns follow
	}
	if len(pieces) == 0 {
		pieces = append(pieces, Piece{Reasoning: t.think != nil && t.think.Thinking()})
	}
	last := &pieces[len(pieces)-1]
	p.Text, p.Reasoning, p.ToolCall = last.Text, last.Reasoning, last.ToolCall
	*last = p
	return pieces
}

// hear appends what is new of the answer, and at its end what was held back of it.
func (t *turn) hear(pieces []Piece, text string, finish bool) []Piece {
	thoughts, answer := "", text
	if t.think != nil {
		thoughts, answer = t.think.Push(text)
		if finish {
			more, rest := t.think.Finish()
			thoughts, answer = thoughts+more, answer+rest
		}
	}
	if thoughts != "" {
		t.thought.WriteString(thoughts)
		pieces = append(pieces, Piece{Token: NoToken, Text: thoughts, Reasoning: true})
	}
	if t.parser == nil {
		if answer != "" {
			pieces = append(pieces, Piece{Token: NoToken, Text: answer})
		}
		return pieces
	}
	events := t.parser.Push(answer)
	if finish {
		events = append(events, t.parser.Finish()...)
	}
	for _, e := range events {
		pieces = append(pieces, t.event(e))
	}
	return pieces
}

// event makes a piece of what the parser found.
func (t *turn) event(e toolcall.Event) Piece {
	p := Piece{Token: NoToken}
	if e.Kind == toolcall.Text {
		t.text.WriteString(e.Text)
		p.Text = e.Text
		return p
	}
	d := &ToolCallDelta{Index: -1}
	p.ToolCall = d
	if e.Kind == toolcall.Begin {
		// Some templates want an identifier of nine letters and digits.
		id := fmt.Sprintf("call%05d", t.before+e.Index+1)
		t.begun = append(t.begun, toolCall{ID: id, Type: "function", Function: toolFunction{Name: e.Text}, index: t.first + e.Index})
	}
	if e.Index >= 0 {
		call := &t.begun[e.Index]
		*d = call.delta()
		switch e.Kind {
		case toolcall.Arguments:
			d.Arguments = e.Text
			call.Function.Arguments = append(call.Function.Arguments, e.Text...)
		case toolcall.End:
			t.calls = append(t.calls, *call)
		}
	}
	if e.Kind == toolcall.Malformed {
		d.Err, d.Raw = e.Err, e.Text
	}
	return p
}

// callTools makes the calls of the turn and adds their results to the conversation. It reports
// whether the model is to go on.
func (t *turn) callTools(ctx context.Context) bool {
	c := t.chat
	fields := struct {
		Calls   []toolCall `json:"tool_calls"`
		Thought string     `json:"reasoning_content,omitempty"`
	}{t.calls, t.thought.String()}
	// The loop's body may have taken the answer away.
	c.messages = append(slices.Clip(t.messages), Message{Role: "assistant", Content: t.text.String(), Fields: marshal(fields)})
	for _, call := range t.calls {
		d := call.delta()
		d.Done = true
		d.Result, d.Err = c.callTool(ctx, call)
		if err := ctx.Err(); err != nil {
			t.yield(Piece{Token: NoToken}, err)
			return false
		}
		c.messages = append(c.messages, Message{Role: "tool", Content: d.Result, Fields: marshal(struct {
			ID   string `json:"tool_call_id"`
			Name string `json:"name"`
		}{call.ID, call.Function.Name})})
		if !t.yield(Piece{Token: NoToken, ToolCall: &d}, nil) {
			return false
		}
	}
	return true
}

// delta is what every delta of the call has.
func (c *toolCall) delta() ToolCallDelta {
	return ToolCallDelta{Index: c.index, ID: c.ID, Name: c.Function.Name}
}

// callTool returns what the model is told of a call, and the error of the tool.
func (c *Chat) callTool(ctx context.Context, call toolCall) (string, error) {
	i := slices.IndexFunc(c.config.offered, func(t Tool) bool { return t.name == call.Function.Name })
	result, err := c.config.offered[i].safely(ctx, call.Function.Arguments)
	var panicked *PanicError
	switch {
	case errors.As(err, &panicked):
		return "error: the tool failed", err // the stack is not for the model
	case err != nil:
		return "error: " + err.Error(), err
	}
	return result, nil
}
