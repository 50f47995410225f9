package toolcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/minfer/minfer/internal/grammar"
)

// Tool is what a call of a tool is held to.
type Tool struct {
	Name       string
	Parameters json.RawMessage // JSON schema of the arguments, or nil
	// Strict says that a schema which cannot be held to is an error. Otherwise any JSON object will
	// do in its place.
	Strict bool
}

// ParseTools reads definitions as chat templates take them: a JSON array of objects {"type":
// "function", "function": {"name", "parameters", "strict"}}. The rest of a definition is passed over.
func ParseTools(definitions json.RawMessage) ([]Tool, error) {
	var list []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
			Strict     bool            `json:"strict"`
		} `json:"function"`
	}
	if err := json.Unmarshal(definitions, &list); err != nil {
		return nil, err
	}
	tools := make([]Tool, len(list))
	for i, d := range list {
		if d.Function.Name == "" {
			return nil, fmt.Errorf("tool %d has no name", i)
		}
		tools[i] = Tool(d.Function)
	}
	return tools, nil
}

// SchemaError says that calls of a strict tool cannot be held to its schema, and why.
type SchemaError struct {
	Tool string
	Err  error
}

// Error returns the tool's name and the reason.
func (e *SchemaError) Error() string { return fmt.Sprintf("tool %s: %v", e.Tool, e.Err) }

// Unwrap returns the reason.
func (e *SchemaError) Unwrap() error { return e.Err }

// Held is a call, or the arguments of one, that a grammar can hold what the model writes to.
type Held struct {
	Name    string // of the tool, if what is held are the arguments alone; or ""
	Written string // what the model has written of it
}

// Held returns the call under way, or false if there is none. JSON without a mark may be anything, so
// it is a call only once it was announced.
func (p *Parser) Held() (h Held, ok bool) {
	switch {
	case p.state == beforeIt && !p.bare && p.format != Mistral:
		return Held{}, true
	case p.state != inCall || p.bare && !p.call.begun:
		return Held{}, false
	case p.call.alone:
		return Held{p.call.name, string(p.call.raw)}, true
	}
	return Held{"", string(p.call.raw)}, true
}

// Grammar matches a call of one of the tools, from the first bracket of its JSON to the last, with a
// line break before it or behind it or without.
func Grammar(ctx context.Context, tools []Tool) (*grammar.Grammar, error) {
	var calls []*grammar.Grammar
	for _, t := range tools {
		call, err := t.call(ctx)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	all, err := grammar.Choice(ctx, calls...)
	if err != nil {
		return nil, err
	}
	return within(ctx, `[ \n]{0,2}`, all, `"\n"?`)
}

// call matches the JSON of a call, its members in either order.
func (t Tool) call(ctx context.Context) (*grammar.Grammar, error) {
	arguments, err := t.Arguments(ctx)
	if err != nil {
		return nil, err
	}
	name := `"\"name\":" s ` + gbnfLiteral(quote(t.Name))
	const key = `"\"" ("arguments" | "parameters") "\":" s`
	first, err := within(ctx, `"{" `+name+`"," s `+key, arguments, `"}"`)
	if err != nil {
		return nil, err
	}
	last, err := within(ctx, `"{" `+key, arguments, `"," s `+name+`"}"`)
	if err != nil {
		return nil, err
	}
	return grammar.Choice(ctx, first, last)
}

// Arguments matches the arguments of a call of the tool.
func (t Tool) Arguments(ctx context.Context) (*grammar.Grammar, error) {
	if t.Parameters == nil || string(t.Parameters) == "null" {
		return grammar.JSON(ctx)
	}
	g, err := grammar.Schema(ctx, t.Parameters)
	if err != nil && !t.Strict && ctx.Err() == nil {
		return grammar.JSON(ctx)
	}
	if err != nil {
		return nil, &SchemaError{t.Name, err}
	}
	return g, nil
}

// within matches a grammar between two parts of GBNF, in which s is a blank or a line break or none.
func within(ctx context.Context, before string, g *grammar.Grammar, after string) (*grammar.Grammar, error) {
	const space = "\ns ::= [ \\n]?"
	head, err := grammar.GBNF(ctx, "root ::= "+before+space)
	tail, err2 := grammar.GBNF(ctx, "root ::= "+after+space)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	return grammar.Concat(ctx, head, g, tail)
}

// gbnfLiteral is a text as a literal of GBNF.
func gbnfLiteral(text string) string { return strconv.QuoteToASCII(text) }

// frame is what stands before, between and behind the calls of an answer.
func (f Format) frame() (before, between, after string) {
	switch f {
	case Hermes:
		return "<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"
	case Mistral:
		return "[TOOL_CALLS][", ", ", "]"
	case Llama3:
		return "", "; ", ""
	}
	return "", "\n", ""
}

// Answer matches an answer of a given form, or calls of tools and nothing else.
func Answer(ctx context.Context, f Format, form *grammar.Grammar, tools []Tool) (*grammar.Grammar, error) {
	var calls []*grammar.Grammar
	for _, t := range tools {
		call, err := t.call(ctx)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	call, err := grammar.Choice(ctx, calls...)
	if err != nil {
		return nil, err
	}
	before, between, after := f.frame()
	further, err := within(ctx, gbnfLiteral(between), call, `""`)
	if err == nil {
		further, err = grammar.Repeat(ctx, further, 0, -1)
	}
	var all *grammar.Grammar
	if err == nil {
		all, err = within(ctx, gbnfLiteral(before), call, `""`)
	}
	if err == nil {
		all, err = grammar.Concat(ctx, all, further)
	}
	if err == nil {
		all, err = within(ctx, `""`, all, gbnfLiteral(after))
	}
	if err != nil {
		return nil, err
	}
	return grammar.Choice(ctx, form, all)
}
