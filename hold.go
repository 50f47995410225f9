package minfer

import (
	"context"
	"encoding/json"

	"github.com/minfer/minfer/internal/grammar"
	"github.com/minfer/minfer/internal/reasoning"
	"github.com/minfer/minfer/internal/toolcall"
)

// HoldToolCalls holds calls of tools to their schemas: once a call begins, be it after text or after
// another call, it names one of the tools, and its arguments are as that tool's parameters say. The
// rest of the answer is free. A Chat with WithTools does so by itself; this is for programs that
// make the calls on their own.
//
// The definitions are those that RenderChat was given with Tools. A schema that cannot be held to is
// an error if the tool's function has "strict": true; otherwise any JSON object will do for it.
// Prompt is the text that the answer follows, which may have begun the model's thoughts; calls are
// not looked for within these. Begun is what the prompt has of the answer itself, such as
// ToolFormat.Opening, which makes the answer a call.
//
// With WithJSON and its like too, an answer is either of that form or nothing but calls.
func HoldToolCalls(definitions json.RawMessage, prompt, begun string) GenerateOption {
	return func(c *generateConfig) { c.held = &heldCalls{definitions, prompt, begun} }
}

// ToolSchemaError says that calls of a strict tool cannot be held to its schema. It is wrapped in the
// OptionError of HoldToolCalls.
type ToolSchemaError = toolcall.SchemaError

// heldCalls is what HoldToolCalls was given.
type heldCalls struct {
	definitions   json.RawMessage
	prompt, begun string
}

// watch looks out for calls in an answer, to hold them to the schemas of their tools.
type watch struct {
	grammars *grammars
	tools    []toolcall.Tool
	source   string // the definitions
	think    *reasoning.Splitter
	parser   *toolcall.Parser
	tried    bool // to hold the call under way
}

func (m *Model) newWatch(h *heldCalls) (*watch, error) {
	tools, err := toolcall.ParseTools(h.definitions)
	if err != nil {
		return nil, &OptionError{Option: "HoldToolCalls", Reason: err.Error(), Err: err}
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	w := &watch{grammars: m.grammars, tools: tools, source: string(h.definitions), parser: toolcall.New(m.ToolFormat(), names)}
	if h.begun == "" && reasoning.Known(m.templateSource) {
		w.think = reasoning.New(h.prompt)
	}
	w.parser.Push(h.begun)
	return w, nil
}

// push takes what is new of the answer.
func (w *watch) push(text string) {
	if w.think != nil {
		_, text = w.think.Push(text)
	}
	w.parser.Push(text)
}

// hold returns a matcher for the rest of the call under way, or nil if there is none, or one that
// is not written as expected: that one is the parser's to judge.
func (w *watch) hold(ctx context.Context) (*grammar.Matcher, error) {
	h, ok := w.parser.Held()
	if !ok || w.tried {
		w.tried = ok
		return nil, nil
	}
	w.tried = true
	m, err := w.grammars.matcher(ctx, &constraint{
		option: "HoldToolCalls", source: h.Name + "\x00" + w.source,
		compile: func(ctx context.Context, _ string) (*grammar.Grammar, error) {
			for _, t := range w.tools {
				if t.Name == h.Name {
					return t.Arguments(ctx)
				}
			}
			return toolcall.Grammar(ctx, w.tools)
		},
	})
	if err != nil || m.AcceptText(h.Written) != nil {
		return nil, err
	}
	return m, nil
}

// orCalls is a constraint to what another one asks for, or to calls of the tools.
func (w *watch) orCalls(c *constraint, f ToolFormat) *constraint {
	return &constraint{
		option: c.option, source: c.source + "\x00" + w.source, marked: true,
		compile: func(ctx context.Context, _ string) (*grammar.Grammar, error) {
			form, err := c.compile(ctx, c.source)
			if err != nil {
				return nil, err
			}
			return toolcall.Answer(ctx, f, form, w.tools)
		},
	}
}
