// Package toolcall finds the calls of tools in what a model says.
//
// # Formats
//
// Models are trained to write calls in different ways, and the chat template that comes
// with a model tells which, since it writes earlier calls of a conversation in the same way:
//
//	Hermes   <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>      Qwen 2.5, Qwen 3, Hermes
//	Llama3   {"name": "add", "parameters": {"a": 1}}                            Llama 3.1 to 3.3
//	Mistral  [TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]               Mistral, and [TOOL_CALLS]add[ARGS]{"a": 1}
//	JSON     {"name": "add", "arguments": {"a": 1}}, alone, listed or fenced    any model that was told to
//
// Models of the Hermes kind leave their marks out at times, so JSON that an answer begins with is
// tried there too. JSON without a mark that turns out to be no call is text like any other.
//
// # Streaming
//
// A Parser is given the text as it is generated and gives events back: text that belongs to no
// call, the beginning of a call, pieces of its arguments (of their JSON text, as the model wrote
// it), its end. Text that may turn out to be the beginning of a call is held until that is
// decided; nothing else is.
//
// # Malformed calls
//
// A call that is no JSON, is cut off, lacks a name or names a tool that was not offered is an
// event of its own, with the text as it was written and the reason, so that nothing that a model
// said is lost. Since arguments are passed on while they are written, such an event can come
// after the beginning of the call that it is about.
//
// A Parser is for one answer and for one goroutine.
package toolcall

import (
	"errors"
	"fmt"
	"strings"
)

// Format is a way of writing calls.
type Format uint8

// The formats. JSON is what is left when a template has none of the others' marks.
const (
	JSON Format = iota
	Hermes
	Llama3
	Mistral
)

// String returns the format's name in lower case.
func (f Format) String() string {
	names := [...]string{"json", "hermes", "llama3", "mistral"}
	if int(f) >= len(names) {
		return fmt.Sprintf("unknown(%d)", int(f))
	}
	return names[f]
}

// Detect returns the format that a chat template, in Jinja, writes calls in.
func Detect(template string) Format {
	switch {
	case strings.Contains(template, "<tool_call>"):
		return Hermes
	case strings.Contains(template, "[TOOL_CALLS]"):
		return Mistral
	case strings.Contains(template, "<|python_tag|>"),
		strings.Contains(template, "<|start_header_id|>") && strings.Contains(template, "ipython"):
		return Llama3
	}
	return JSON
}

// opener is what a call begins with, or "" if that is the call itself.
func (f Format) opener() string {
	return [...]string{"", "<tool_call>", "<|python_tag|>", "[TOOL_CALLS]"}[f]
}

func (f Format) closer() string {
	if f == Hermes {
		return "</tool_call>"
	}
	return ""
}

// Marks are the texts of special tokens that the format needs to see. A decoder that leaves
// special tokens out of the text must not leave these out.
func (f Format) Marks() []string {
	switch f {
	case Hermes:
		return []string{"<tool_call>", "</tool_call>"}
	case Llama3:
		return []string{"<|python_tag|>"}
	case Mistral:
		return []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}
	}
	return nil
}

// Opening is the beginning of a call of the tool, up to its arguments, or of any tool if name
// is "". An answer that is made to begin with it is a call. It ends where tokens do in what
// models write themselves.
func (f Format) Opening(name string) string {
	arguments := "arguments"
	before := ""
	switch f {
	case Hermes:
		before = "<tool_call>\n"
	case Llama3:
		arguments = "parameters"
	case Mistral:
		before = "[TOOL_CALLS]["
	}
	if name == "" {
		return before + `{"name": "`
	}
	return fmt.Sprintf(`%s{"name": %s, "%s":`, before, quote(name), arguments)
}

// Kind says what an Event is.
type Kind uint8

// The kinds of events.
const (
	Text      Kind = iota // text that is part of no call
	Begin                 // a call begins; Text is the tool's name
	Arguments             // Text is a further part of the arguments, which are a JSON object
	End                   // the call is complete, and its arguments are valid JSON
	Malformed             // Text is what was written, Err says what is wrong with it
)

// Event is something that a Parser found.
type Event struct {
	Kind Kind
	// Index is the number of the call that the event is about, from 0; a Malformed call
	// that did not get as far as Begin has none, which is -1. Numbers are not used twice.
	Index int
	Text  string
	Err   error // of Malformed
}

// Errors that Malformed events carry, wrapped.
var (
	ErrSyntax    = errors.New("toolcall: not a call in JSON")
	ErrUnknown   = errors.New("toolcall: no such tool")
	ErrCut       = errors.New("toolcall: the call is cut off")
	ErrArguments = errors.New("toolcall: the arguments are no JSON object")
)

type state uint8

const (
	atStart  state = iota // nothing but white space so far
	inText                // outside of calls
	beforeIt              // between a mark and a call
	inName                // in the bare name of a call (Mistral)
	inCall                // in the JSON of a call
	afterIt               // between calls, or before the closing mark
)

// Parser finds the calls in an answer. Make it with New.
type Parser struct {
	format Format
	names  map[string]bool
	state  state
	buf    string // what has not been consumed
	raw    string // what was consumed of the call under way, marks included
	bare   bool   // no mark came before the call
	list   bool   // the call is in a JSON array
	fenced bool   // the call is in a fenced block
	call   call
	calls  int // numbers given out
	events []Event
}

// New returns a parser for an answer, by a model that was offered tools of these names.
func New(f Format, names []string) *Parser {
	if f > Mistral {
		f = JSON
	}
	p := &Parser{format: f, names: make(map[string]bool, len(names))}
	for _, n := range names {
		p.names[n] = true
	}
	return p
}

// Push takes the next piece of the answer and returns what can be said now.
func (p *Parser) Push(text string) []Event {
	p.buf += text
	for p.step() {
	}
	return p.take()
}

// Finish ends the answer and returns what was held.
func (p *Parser) Finish() []Event {
	switch p.state {
	case beforeIt, inName, inCall:
		p.raw += p.buf
		p.fail(ErrCut)
	case afterIt:
		// A closing mark may be missing at the very end.
		if rest := strings.TrimSpace(p.buf); rest != "" && !strings.HasPrefix(p.format.closer(), rest) && !strings.HasPrefix("```", rest) {
			p.emitText(p.buf)
		}
	default:
		p.emitText(p.buf)
	}
	p.buf, p.state = "", inText
	return p.take()
}

func (p *Parser) take() []Event {
	events := p.events
	p.events = nil
	return events
}

// emitText gives text out, joined to the text before.
func (p *Parser) emitText(text string) {
	if text == "" {
		return
	}
	if last := len(p.events) - 1; last >= 0 && p.events[last].Kind == Text {
		p.events[last].Text += text
		return
	}
	p.events = append(p.events, Event{Kind: Text, Index: -1, Text: text})
}

// step consumes some of the buffer, and reports false when it needs more of the answer.
func (p *Parser) step() bool {
	switch p.state {
	case atStart:
		return p.stepStart()
	case inText:
		return p.stepText()
	case beforeIt:
		return p.stepBefore()
	case inName:
		return p.stepName()
	case inCall:
		return p.stepCall()
	}
	return p.stepAfter()
}

const spaces = " \t\r\n"

// stepStart decides whether the answer begins with a call that has no mark.
func (p *Parser) stepStart() bool {
	rest := strings.TrimLeft(p.buf, spaces)
	if rest == "" {
		return false
	}
	if p.format == Mistral {
		p.state = inText
		return true
	}
	// Models of the Hermes kind forget their marks: Qwen2.5-Coder most of the time.
	loose := p.format == JSON || p.format == Hermes
	if loose && len(rest) < len("```json\n") && (strings.HasPrefix("```json", rest) || strings.HasPrefix("```", rest)) {
		return false
	}
	start := len(p.buf) - len(rest)
	if loose {
		for _, fence := range []string{"```json\n", "```\n"} {
			if strings.HasPrefix(rest, fence) {
				p.fenced = true
				start += len(fence)
			}
		}
	}
	if !p.fenced && rest[0] != '{' && (rest[0] != '[' || !loose) {
		p.state = inText
		return true
	}
	p.bare = true
	p.consume(start)
	p.state = beforeIt
	return true
}

// consume moves n bytes of the buffer to what belongs to a call.
func (p *Parser) consume(n int) {
	p.raw += p.buf[:n]
	p.buf = p.buf[n:]
}

// stepText looks for the mark of a call. White space before a mark is not part of the text.
func (p *Parser) stepText() bool {
	mark := p.format.opener()
	if mark == "" {
		p.emitText(p.buf)
		p.buf = ""
		return false
	}
	if i := strings.Index(p.buf, mark); i >= 0 {
		p.emitText(strings.TrimRight(p.buf[:i], spaces))
		p.buf = p.buf[i:]
		p.raw, p.bare, p.list, p.fenced = "", false, false, false
		p.consume(len(mark))
		p.state = beforeIt
		return true
	}
	keep := len(strings.TrimRight(p.buf[:len(p.buf)-overlap(p.buf, mark)], spaces))
	p.emitText(p.buf[:keep])
	p.buf = p.buf[keep:]
	return false
}

// overlap is the length of the longest end of text that mark begins with.
func overlap(text, mark string) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}

// stepBefore is between a mark, or a comma, and a call.
func (p *Parser) stepBefore() bool {
	p.consume(len(p.buf) - len(strings.TrimLeft(p.buf, spaces)))
	if p.buf == "" {
		return false
	}
	switch c := p.buf[0]; {
	case c == '{':
		p.call = call{}
		p.state = inCall
	case c == '[' && !p.list && (p.format == Mistral || p.bare && p.format != Llama3):
		p.list = true
		p.consume(1)
	case p.format == Mistral && !p.list && isName(c):
		p.call = call{}
		p.state = inName
	default:
		p.fail(fmt.Errorf("%w: it begins with %q", ErrSyntax, c))
	}
	return true
}

func isName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}

// stepName reads the name of a call that is written before its arguments, with or without
// marks between the two.
func (p *Parser) stepName() bool {
	i := strings.IndexByte(p.buf, '{')
	if i < 0 {
		return false
	}
	name := p.buf[:i]
	if j := strings.IndexByte(name, '['); j >= 0 {
		name = name[:j]
	}
	p.consume(i)
	p.call = call{name: strings.TrimSpace(name), named: true, alone: true}
	if !p.names[p.call.name] {
		p.fail(fmt.Errorf("%w: %q", ErrUnknown, p.call.name))
		return true
	}
	p.state = inCall
	return true
}

// stepCall reads the JSON of a call.
func (p *Parser) stepCall() bool {
	for i := range len(p.buf) {
		done, err := p.call.feed(p.buf[i])
		// A call is announced, or refused, at the byte that decides it, so that what follows does
		// not depend on the pieces that the answer comes in.
		if err == nil && (done || i == len(p.buf)-1 || !p.call.begun && p.call.ready()) {
			err = p.report(done)
		}
		if err != nil {
			p.consume(i + 1)
			p.fail(err)
			return true
		}
		if done {
			p.consume(i + 1)
			p.events = append(p.events, Event{Kind: End, Index: p.calls - 1})
			p.raw = ""
			p.state = afterIt
			return true
		}
	}
	p.consume(len(p.buf))
	return false
}

// report gives out what is new of the call under way.
func (p *Parser) report(done bool) error {
	if done {
		if err := p.call.finish(); err != nil {
			return err
		}
	}
	c := &p.call
	if !c.begun {
		if !c.ready() {
			return nil
		}
		if !p.names[c.name] {
			return fmt.Errorf("%w: %q", ErrUnknown, c.name)
		}
		c.begun = true
		p.events = append(p.events, Event{Kind: Begin, Index: p.calls, Text: c.name})
		p.calls++
	}
	if delta := c.delta(); delta != "" {
		if last := len(p.events) - 1; last >= 0 && p.events[last].Kind == Arguments {
			p.events[last].Text += delta
		} else {
			p.events = append(p.events, Event{Kind: Arguments, Index: p.calls - 1, Text: delta})
		}
	}
	return nil
}

// fail gives the call under way back as it was written. JSON that bears no mark of a call and
// never became one is what the model had to say.
func (p *Parser) fail(err error) {
	begun := p.state == inCall && p.call.begun
	switch {
	case begun:
		p.events = append(p.events, Event{Kind: Malformed, Index: p.calls - 1, Text: p.raw, Err: err})
	case p.bare:
		p.emitText(p.raw)
	default:
		p.events = append(p.events, Event{Kind: Malformed, Index: -1, Text: p.raw, Err: err})
	}
	p.raw, p.call = "", call{}
	p.state = inText
}

// stepAfter is behind a call: more of them may follow, or a closing mark.
func (p *Parser) stepAfter() bool {
	rest := strings.TrimLeft(p.buf, spaces)
	if rest == "" {
		return false
	}
	skip := func(n int, next state) bool {
		p.buf = rest[n:]
		p.state = next
		return true
	}
	if p.list {
		switch rest[0] {
		case ',':
			p.raw = ","
			return skip(1, beforeIt)
		case ']':
			p.list = false
			return skip(1, afterIt)
		}
	}
	if p.format == Llama3 && rest[0] == ';' {
		return skip(1, afterIt)
	}
	if rest[0] == '{' && (p.format == Llama3 || p.bare) {
		p.bare = true
		return skip(0, beforeIt)
	}
	for _, mark := range p.closers() {
		if strings.HasPrefix(rest, mark) {
			p.fenced = false
			return skip(len(mark), inText)
		}
		if strings.HasPrefix(mark, rest) {
			return false
		}
	}
	p.state = inText // the closing mark is missing
	return true
}

func (p *Parser) closers() []string {
	if p.fenced {
		return []string{"```"}
	}
	if c := p.format.closer(); c != "" && !p.bare {
		return []string{c}
	}
	return nil
}
