package minfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/minfer/minfer/internal/reasoning"
	"github.com/minfer/minfer/internal/toolcall"
)

// Tool is a function that a model can call. Make it with NewTool.
type Tool struct {
	name, description string
	parameters        json.RawMessage
	call              func(ctx context.Context, arguments json.RawMessage) (string, error)
	err               error
}

// NewTool makes a tool of a function whose arguments are a struct. The model is told of the name,
// the description and the fields, as SchemaOf describes them. What the function returns goes to
// the model as JSON, or as it is if that is a string.
//
// An error that the function returns goes to the model too, which may try again; so does, in fewer
// words, that it panicked. A struct with
// fields that cannot be described is an error of the first answer of a Chat with the tool.
func NewTool[Args, Result any](name, description string, f func(ctx context.Context, args Args) (Result, error)) Tool {
	t := Tool{name: name, description: description}
	if t.parameters, t.err = SchemaOf[Args](); t.err != nil {
		return t
	}
	required, err := requiredMembers(t.parameters)
	if t.err = err; err != nil {
		return t
	}
	t.call = func(ctx context.Context, arguments json.RawMessage) (string, error) {
		args, err := decodeStrictly[Args](arguments)
		if err == nil {
			err = checkMembers(arguments, required)
		}
		if err != nil {
			return "", fmt.Errorf("arguments of %s: %w", name, err)
		}
		result, err := f(ctx, args)
		if err != nil {
			return "", err
		}
		if text, ok := any(result).(string); ok {
			return text, nil
		}
		text, err := json.Marshal(result)
		return string(text), err
	}
	return t
}

// safely calls the tool. Its panic is a *PanicError.
func (t *Tool) safely(ctx context.Context, arguments json.RawMessage) (result string, err error) {
	defer recovered(&err, "calling the tool "+t.name)
	return t.call(ctx, arguments)
}

// requiredMembers returns the names that an object of the schema must have.
func requiredMembers(schema json.RawMessage) ([]string, error) {
	var s struct {
		Type     string   `json:"type"`
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	if s.Type != "object" {
		return nil, errors.New("the arguments of a tool are a struct")
	}
	return s.Required, nil
}

func checkMembers(object json.RawMessage, names []string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := members[name]; !ok {
			return fmt.Errorf("%q is missing", name)
		}
	}
	return nil
}

// Name returns the tool's name.
func (t Tool) Name() string { return t.name }

// Definition returns what the model is told: {"type": "function", "function": {"name",
// "description", "parameters"}}.
func (t Tool) Definition() json.RawMessage {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	return marshal(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{t.name, t.description, t.parameters}})
}

// marshal writes what always has a JSON form, with < and > as they are.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// WithTools offers tools to the model and calls them. Where the answer to a message calls tools,
// they are called one after the other, their results are added to the conversation, and the
// model goes on, until it answers without a call. All of that comes as one stream of pieces, with
// a ToolCallDelta for what is new of a call. Once the model begins a call, it can only go on to name
// one of the tools, with arguments that are as SchemaOf says.
//
// The arguments are the model's, which may have been talked into them by whoever wrote a message or
// a tool's result: a tool should do nothing that these may not.
//
// A constrained answer (WithJSON and its like) holds to its form, and calls no tools.
func WithTools(tools ...Tool) ChatOption {
	return func(c *chatConfig) { c.offered = append(c.offered, tools...) }
}

// DefaultToolRounds is how often a model may call tools before it has to answer, unless MaxToolRounds
// says otherwise.
const DefaultToolRounds = 8

// MaxToolRounds sets how often the model may call tools before it answers. If it wants to once more,
// the answer ends with ErrToolRounds.
func MaxToolRounds(n int) ChatOption { return func(c *chatConfig) { c.toolRounds = n } }

// ToolCallDelta is what is new of a call of a tool. A call comes as a delta with its name, deltas
// with parts of its arguments while the model writes them, and one that is Done when the tool has
// been called.
//
// A malformed call, which is no JSON or cut off or names no tool, has a delta with Err and with Raw,
// and is not Done. It stays in the conversation as the model wrote it.
type ToolCallDelta struct {
	Index     int    // which call of the answer, from 0; -1 for a malformed one without a name
	ID        string // of the call, as templates know it
	Name      string // the tool's
	Arguments string // a further part of the JSON object of the arguments
	Done      bool   // the tool was called
	Result    string // what the model is told of it
	Err       error  // what the tool returned, or what is wrong with the call
	Raw       string // a malformed call, as it was written
}

// Errors of calls, for errors.Is. All but ErrToolRounds come with a ToolCallDelta.
var (
	// ErrToolRounds: the model called tools again and again: see MaxToolRounds.
	ErrToolRounds = errors.New("minfer: the model keeps calling tools")
	// ErrCallSyntax: a call is not written as calls are.
	ErrCallSyntax = toolcall.ErrSyntax
	// ErrUnknownTool: a call names a tool that was not offered.
	ErrUnknownTool = toolcall.ErrUnknown
	// ErrCallCut: the answer ended within a call.
	ErrCallCut = toolcall.ErrCut
	// ErrCallArguments: the arguments of a call are no JSON object.
	ErrCallArguments = toolcall.ErrArguments
)

// ToolFormat is a way in which models write calls of tools.
type ToolFormat = toolcall.Format

// ToolParser finds the calls in an answer while it is generated, for programs that do without Chat.
type ToolParser = toolcall.Parser

// ToolEvent is something that a ToolParser found.
type ToolEvent = toolcall.Event

// The kinds of a ToolEvent.
const (
	ToolText      = toolcall.Text      // text that is part of no call
	ToolBegin     = toolcall.Begin     // a call begins; Text is the tool's name
	ToolArguments = toolcall.Arguments // Text is a further part of the arguments, which are a JSON object
	ToolEnd       = toolcall.End       // the call is complete, and its arguments are valid JSON
	ToolMalformed = toolcall.Malformed // Text is what was written, Err says what is wrong with it
)

// ToolFormat returns the format that the model's template writes calls in.
func (m *Model) ToolFormat() ToolFormat { return toolcall.Detect(m.ChatTemplate()) }

// NewToolParser returns a parser for an answer, by a model that was offered tools of these names.
// Special tokens among f.Marks() have to be part of the text: decoding leaves them out.
func NewToolParser(f ToolFormat, names []string) *ToolParser { return toolcall.New(f, names) }

// ReasoningSplitter parts the thoughts that some models begin with from the answer, for programs
// that do without Chat.
type ReasoningSplitter = reasoning.Splitter

// NewReasoningSplitter returns a splitter for the answer to a prompt, which may have begun the
// thoughts.
func NewReasoningSplitter(prompt string) *ReasoningSplitter { return reasoning.New(prompt) }

// knowsTools reports whether the template can tell the model of tools.
func (m *Model) knowsTools() bool { return strings.Contains(m.templateSource, "tools") }

// explainTools puts tools, and what was said of them, in plain words, for templates that know
// nothing of them: what Tools offers becomes part of the system message, calls are the text of an
// answer, results come from the user.
func explainTools(messages []Message, tools json.RawMessage) []Message {
	text := "You can call these tools:\n" + string(tools) +
		"\nTo call one, answer with nothing but a JSON object: {\"name\": NAME, \"arguments\": {...}}"
	told := make([]Message, 0, len(messages)+1)
	if len(messages) == 0 || messages[0].Role != "system" {
		told = append(told, Message{Role: "system", Content: text})
	}
	for i, m := range messages {
		calls := m.toolCalls()
		switch {
		case i == 0 && m.Role == "system":
			m.Content += "\n\n" + text
		case m.Role == "tool":
			m = Message{Role: "user", Content: "The tool's result: " + m.Content}
		case len(calls) > 0:
			m = Message{Role: m.Role, Content: strings.TrimSpace(m.Content + "\n" + writeCalls(calls))}
		}
		told = append(told, m)
	}
	return told
}

// toolCall is a call in the fields of a message.
type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
	index    int          // among those of an answer
}

type toolFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// toolCalls returns the calls that a message makes.
func (m *Message) toolCalls() []toolCall {
	var fields struct {
		Calls []toolCall `json:"tool_calls"`
	}
	if m.Fields == nil || json.Unmarshal(m.Fields, &fields) != nil {
		return nil // what else the fields hold is for the template to judge
	}
	return fields.Calls
}

func writeCalls(calls []toolCall) string {
	functions := make([]toolFunction, len(calls))
	for i, c := range calls {
		functions[i] = c.Function
	}
	if len(functions) == 1 {
		return string(marshal(functions[0]))
	}
	return string(marshal(functions))
}
