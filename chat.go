package minfer

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/internal/chattemplate"
	"github.com/minfer/minfer/internal/tokenizer"
)

// Message is a turn of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant", "tool", or what the model's template knows
	Content string
	// Fields are further members for the template, such as tool_calls: a JSON object, or
	// nil. A member named role or content replaces the one above.
	Fields json.RawMessage
}

// Prompt is a conversation as the model reads it.
type Prompt struct {
	Text   string
	Tokens []Token
	// Untrusted are the parts of Text that came from messages and tools. Special tokens
	// are not recognised in them, whatever they contain.
	Untrusted []Range
}

// Range is the bytes from Start to End-1 of a text.
type Range = tokenizer.Span

// ChatOption changes how a conversation is rendered.
type ChatOption func(*chatConfig)

type chatConfig struct {
	system     string
	tools      json.RawMessage
	offered    []Tool // that a Chat calls
	toolRounds int
	variables  json.RawMessage
	room       int // tokens kept free for an answer; 0 if nothing is dropped
	onDropped  func([]Message)
}

// System puts a system message at the beginning.
func System(text string) ChatOption { return func(c *chatConfig) { c.system = text } }

// Tools offers tools to the model: a JSON array as the template wants it, in most cases of
// objects {"type": "function", "function": {"name", "description", "parameters"}}. Calls come as the
// text that the model writes; WithTools has them made. A template that knows nothing of tools is
// helped out by words in the system message.
func Tools(definitions json.RawMessage) ChatOption {
	return func(c *chatConfig) { c.tools = definitions }
}

// TemplateVariables gives further variables to the template, such as enable_thinking: a
// JSON object.
func TemplateVariables(object json.RawMessage) ChatOption {
	return func(c *chatConfig) { c.variables = object }
}

// RenderChat renders a conversation by the model's template, up to where the answer
// begins, and encodes it. Messages are encoded as plain text: only what the template
// itself writes can become special tokens.
func (m *Model) RenderChat(ctx context.Context, messages []Message, opts ...ChatOption) (*Prompt, error) {
	if m.none() {
		return nil, ErrClosed
	}
	ctx = orBackground(ctx)
	c := chatConfig{}
	apply(&c, opts)
	if c.system != "" {
		messages = append([]Message{{Role: "system", Content: c.system}}, messages...)
	}
	if err := c.defineTools(); err != nil {
		return nil, err
	}
	p, err := m.renderChat(ctx, messages, &c)
	if err != nil {
		return nil, err
	}
	p.Tokens, err = m.encodePrompt(ctx, p, 0)
	return p, err
}

func (m *Model) renderChat(ctx context.Context, messages []Message, c *chatConfig) (*Prompt, error) {
	t, err := m.template()
	if err != nil {
		return nil, err
	}
	if c.tools != nil && !m.knowsTools() {
		messages = explainTools(messages, c.tools)
	}
	vars, err := m.chatVariables(messages, c)
	if err != nil {
		return nil, err
	}
	out, err := t.RenderSpans(ctx, vars)
	if err != nil {
		return nil, fmt.Errorf("minfer: chat template: %w", err)
	}
	p := &Prompt{Text: out.Text}
	for _, s := range out.Untrusted {
		p.Untrusted = append(p.Untrusted, Range(s))
	}
	return p, nil
}

func (m *Model) chatVariables(messages []Message, c *chatConfig) (*chattemplate.Object, error) {
	list := make([]any, len(messages))
	for i, message := range messages {
		o, err := message.object()
		if err != nil {
			return nil, fmt.Errorf("minfer: message %d: %w", i, err)
		}
		list[i] = o
	}
	vars := chattemplate.NewObject(
		"messages", list,
		"add_generation_prompt", true,
		"bos_token", m.specialText(m.tokenizer.BOS()),
		"eos_token", m.specialText(m.tokenizer.EOS()),
	)
	if c.tools != nil {
		tools, err := chattemplate.Decode(c.tools)
		if err != nil {
			return nil, &OptionError{Option: "Tools", Reason: err.Error(), Err: err}
		}
		vars.Set("tools", tools)
	}
	if c.variables != nil {
		if err := merge(vars, c.variables); err != nil {
			return nil, &OptionError{Option: "TemplateVariables", Reason: err.Error(), Err: err}
		}
	}
	return vars, nil
}

// specialText is the text of a special token as the template gets it.
func (m *Model) specialText(t Token) chattemplate.Trusted {
	return chattemplate.Trusted(m.tokenizer.TokenBytes(t))
}

func (m *Message) object() (*chattemplate.Object, error) {
	o := chattemplate.NewObject("role", m.Role, "content", m.Content)
	if m.Fields == nil {
		return o, nil
	}
	return o, merge(o, m.Fields)
}

// merge sets the members of a JSON object.
func merge(o *chattemplate.Object, object json.RawMessage) error {
	v, err := chattemplate.Decode(object)
	if err != nil {
		return err
	}
	members, ok := v.(*chattemplate.Object)
	if !ok {
		return fmt.Errorf("want a JSON object")
	}
	for key, value := range members.All() {
		o.Set(key, value)
	}
	return nil
}

// encodePrompt encodes the text from byte from on. At the very beginning the model's first
// token is added, unless the template wrote it.
func (m *Model) encodePrompt(ctx context.Context, p *Prompt, from int) ([]Token, error) {
	var untrusted []Range
	for _, r := range p.Untrusted {
		if r.End > from {
			untrusted = append(untrusted, Range{Start: max(r.Start, from) - from, End: r.End - from})
		}
	}
	return m.tokenizer.AppendEncode(ctx, nil, p.Text[from:], untrusted, tokenizer.EncodeOptions{
		AddSpecial:   from == 0,
		ParseSpecial: true,
	})
}

// DropOldest has a conversation that outgrows the session's context go on without its oldest turns:
// when fewer than room tokens would be left for an answer, turns go, a message of the user with all
// that answers it, until half of the context is free. The system message stays, and so does the
// turn that is to be answered. What is left has to be evaluated anew, which is why more goes than
// just has to.
//
// The turns leave Chat.Messages too. F, unless it is nil, is told which they are, from the
// goroutine that generates, before the prompt is evaluated. Without this option, and where the last
// turn alone does not fit, the answer ends with a *ContextError at once.
func DropOldest(room int, f func(dropped []Message)) ChatOption {
	return func(c *chatConfig) { c.room, c.onDropped = max(room, 1), f }
}

// Chat is a conversation on a session. Each turn costs the evaluation of what is new: the
// session's keys and values are kept for as far as the conversation still begins alike. A
// Chat is no safer for concurrent use than its session.
type Chat struct {
	session  *Session
	config   chatConfig
	messages []Message
	history  history
}

// history is the tokens of the turns so far as they came about. An answer's own tokens
// are what the model has seen, and encoding its text need not give them again.
type history struct {
	text      string
	untrusted []Range // the parts of text that messages made up
	tokens    []Token
	ends      []turnEnd
}

// turnEnd is where a turn ends, in the text, its untrusted parts and the tokens.
type turnEnd struct {
	text, untrusted, tokens int
}

// match returns the ends of the turns that a prompt goes on from: the prompt begins with the same
// text, and the same parts of it are not to be trusted.
func (h *history) match(p *Prompt) []turnEnd {
	for kept := len(h.ends); kept > 0; kept-- {
		e := h.ends[kept-1]
		if strings.HasPrefix(p.Text, h.text[:e.text]) && len(p.Untrusted) >= e.untrusted &&
			slices.Equal(p.Untrusted[:e.untrusted], h.untrusted[:e.untrusted]) {
			return h.ends[:kept]
		}
	}
	return nil
}

// add notes a turn that went on from those that match returned.
func (h *history) add(before []turnEnd, p *Prompt, answer string, tokens []Token) {
	if len(tokens) == 0 {
		return // the session was taken away in the meantime
	}
	h.text, h.untrusted, h.tokens = p.Text+answer, p.Untrusted, tokens
	h.ends = append(slices.Clip(before), turnEnd{len(h.text), len(h.untrusted), len(tokens)})
}

// Chat begins a conversation. The session's tokens are replaced at the first turn, but
// for what they have in common with it.
func (s *Session) Chat(opts ...ChatOption) *Chat {
	c := &Chat{session: s}
	apply(&c.config, opts)
	c.Clear()
	return c
}

// orNone returns the chat, or for none one without a session, in which everything fails.
func (c *Chat) orNone() *Chat {
	if c == nil {
		return &Chat{}
	}
	return c
}

// Messages returns a copy of the conversation, the system message included.
func (c *Chat) Messages() []Message { return slices.Clone(c.orNone().messages) }

// SetMessages replaces the conversation. What it has in common with the one before is
// not evaluated again.
func (c *Chat) SetMessages(messages []Message) { c.orNone().messages = slices.Clone(messages) }

// Clear forgets the conversation, but for the system message given at the beginning.
func (c *Chat) Clear() {
	c = c.orNone()
	c.messages = nil
	if c.config.system != "" {
		c.messages = []Message{{Role: "system", Content: c.config.system}}
	}
}

// SetSystem replaces the system message, or removes it if text is empty. All that follows
// it has to be evaluated again in the next turn.
func (c *Chat) SetSystem(text string) {
	c = c.orNone()
	had := len(c.messages) > 0 && c.messages[0].Role == "system"
	c.config.system = text
	switch {
	case had && text != "":
		c.messages[0].Content = text
	case had:
		c.messages = c.messages[1:]
	case text != "":
		c.messages = append([]Message{{Role: "system", Content: text}}, c.messages...)
	}
}

// Session returns the session that the conversation runs on.
func (c *Chat) Session() *Session { return c.orNone().session }

// Say appends a message of the user and streams the answer, which becomes part of the
// conversation as far as it was read. If the chat has tools, it may come in several turns: see
// WithTools. If there is an error before the first piece, the
// message is taken back.
func (c *Chat) Say(ctx context.Context, text string, opts ...GenerateOption) iter.Seq2[Piece, error] {
	c = c.orNone()
	return func(yield func(Piece, error) bool) {
		before := c.messages
		c.messages = append(slices.Clip(before), Message{Role: "user", Content: text})
		c.reply(ctx, opts, yield, before)
	}
}

// Regenerate takes the last answer back, if there is one, and streams another.
func (c *Chat) Regenerate(ctx context.Context, opts ...GenerateOption) iter.Seq2[Piece, error] {
	c = c.orNone()
	return func(yield func(Piece, error) bool) {
		before := c.messages
		if last := len(before) - 1; last >= 0 && before[last].Role == "assistant" {
			c.messages = before[:last]
		}
		c.reply(ctx, opts, yield, before)
	}
}

// Reply streams an answer to the conversation as it stands, which is how to go on after
// messages that did not come from Say.
func (c *Chat) Reply(ctx context.Context, opts ...GenerateOption) iter.Seq2[Piece, error] {
	c = c.orNone()
	return func(yield func(Piece, error) bool) { c.reply(ctx, opts, yield, c.messages) }
}

// reply streams answers until one calls no tools. If there is an error before the first piece, the
// conversation is what it was before.
func (c *Chat) reply(ctx context.Context, opts []GenerateOption, yield func(Piece, error) bool, before []Message) {
	ctx = orBackground(ctx)
	heard := false
	note := func(p Piece, err error) bool {
		if heard = heard || err == nil; !heard {
			c.messages = before
		}
		return yield(p, err)
	}
	limit := c.config.toolRounds
	if limit == 0 {
		limit = DefaultToolRounds
	}
	calls, usage := 0, Usage{}
	for round := 0; ; round++ {
		t := &turn{chat: c, messages: c.messages, yield: note, first: calls, usage: usage}
		c.session.generate(ctx, opts, t.note, func(g *generateConfig) ([]Token, error) { return t.begin(ctx, g) })
		calls += len(t.begun)
		usage = c.session.Usage()
		switch {
		case !t.calling:
			return
		case round == limit:
			note(Piece{Token: NoToken}, ErrToolRounds)
			return
		case !t.callTools(ctx):
			return
		}
	}
}

// encode returns the tokens of a prompt. Those of the turns of before, which it goes on from, are as
// they came about.
func (c *Chat) encode(ctx context.Context, p *Prompt, before []turnEnd) ([]Token, error) {
	var end turnEnd
	if n := len(before); n > 0 {
		end = before[n-1]
	}
	rest, err := c.session.model.encodePrompt(ctx, p, end.text)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(c.history.tokens[:end.tokens]), rest...), nil
}

// continueWith returns the tokens that have to be appended to the session's to make them the
// prompt. It takes back what the prompt does not begin with.
func (c *Chat) continueWith(prompt []Token) ([]Token, error) {
	s := c.session
	if err := s.checkSequence(prompt); err != nil {
		return nil, err
	}
	common := commonPrefix(s.tokens, prompt)
	return prompt[common:], s.rewind(common)
}

// oldestTurn returns where the oldest turn of a conversation begins and ends, or zeros if there is
// none before the one to be answered.
func oldestTurn(messages []Message) (from, to int) {
	for from < len(messages) && messages[from].Role == "system" {
		from++
	}
	for to = from + 1; to < len(messages); to++ {
		if messages[to].Role == "user" {
			return from, to
		}
	}
	return 0, 0
}
