package toolcall_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/minfer/minfer/internal/grammar"
	"github.com/minfer/minfer/internal/toolcall"
)

// outcome is what an answer comes to: text, with malformed calls in braces of their own, and
// complete calls.
type outcome struct {
	text  string
	calls []string
	errs  []error
}

func (o outcome) String() string {
	return fmt.Sprintf("%q %q %v", o.text, o.calls, o.errs)
}

// parse reads an answer in pieces of size bytes.
func parse(t testing.TB, f toolcall.Format, answer string, size int) outcome {
	t.Helper()
	p := toolcall.New(f, []string{"add", "get_time", "get_weather"})
	var events []toolcall.Event
	for i := 0; i < len(answer); i += size {
		events = append(events, p.Push(answer[i:min(i+size, len(answer))])...)
	}
	events = append(events, p.Finish()...)

	var o outcome
	name, arguments, open, index := "", "", false, -1
	for _, e := range events {
		switch e.Kind {
		case toolcall.Text:
			o.text += e.Text
		case toolcall.Begin:
			if open || e.Index != index+1 {
				t.Fatalf("%q: a call %d begins in call %d (open: %t)", answer, e.Index, index, open)
			}
			name, arguments, open, index = e.Text, "", true, e.Index
		case toolcall.Arguments:
			if !open || e.Index != index || e.Text == "" {
				t.Fatalf("%q: arguments %q for call %d in call %d (open: %t)", answer, e.Text, e.Index, index, open)
			}
			arguments += e.Text
		case toolcall.End:
			var object map[string]any
			if err := json.Unmarshal([]byte(arguments), &object); err != nil || !open {
				t.Fatalf("%q: a call ends (open: %t) with arguments %q: %v", answer, open, arguments, err)
			}
			o.calls = append(o.calls, name+arguments)
			open = false
		case toolcall.Malformed:
			if open != (e.Index == index && open) || e.Err == nil {
				t.Fatalf("%q: malformed call %d in call %d (open: %t): %v", answer, e.Index, index, open, e.Err)
			}
			o.text += "⟨" + e.Text + "⟩"
			o.errs = append(o.errs, e.Err)
			open = false
		}
	}
	if open {
		t.Fatalf("%q: a call without an end", answer)
	}
	return o
}

const add = `{"name": "add", "arguments": {"a": 1, "b": 2}}`

var answers = []struct {
	format toolcall.Format
	answer string
	text   string
	calls  []string
	err    error
}{
	{toolcall.Hermes, "Hello.", "Hello.", nil, nil},
	{toolcall.Hermes, "", "", nil, nil},
	{toolcall.Hermes, "<tool_call>\n" + add + "\n</tool_call>", "", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, "I add. \n<tool_call>\n" + add + "\n</tool_call>\nDone.", "I add.\nDone.", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, "<tool_call>" + add + "</tool_call>\n<tool_call>" + `{"name":"get_time","arguments":{}}` + "</tool_call>", "", []string{`add{"a": 1, "b": 2}`, `get_time{}`}, nil},
	{toolcall.Hermes, "<tool_call>\n" + add, "", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, "<tool_call>\n" + add + "\n</tool", "", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, "<tool_call>" + add + "<tool_call>" + add + "</tool_call>", "", []string{`add{"a": 1, "b": 2}`, `add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, `<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>`, "", []string{`add{"a": 1}`}, nil},
	{toolcall.Hermes, `<tool_call>{"name": "get_time"}</tool_call>`, "", []string{`get_time{}`}, nil},
	{toolcall.Hermes, `<tool_call>{"name": "get_time", "arguments": null}</tool_call>`, "", []string{`get_time{}`}, nil},
	{toolcall.Hermes, `<tool_call>{"name": "add", "arguments": "{\"a\": 1}"}</tool_call>`, "", []string{`add{"a": 1}`}, nil},
	{toolcall.Hermes, `<tool_call>{"name": "get_weather", "arguments": {"city": "</tool_call> \"}{ ü 🦊 \\"}}</tool_call>`, "", []string{`get_weather{"city": "</tool_call> \"}{ ü 🦊 \\"}`}, nil},
	{toolcall.Hermes, `<tool_call>{"name": "add", "arguments": {"a": {"name": "x", "arguments": [1, {"b": "]"}]}} , "id": 3}</tool_call>`, "", []string{`add{"a": {"name": "x", "arguments": [1, {"b": "]"}]}}`}, nil},
	{toolcall.Hermes, `<tool_call>{"name": "sing", "arguments": {}}</tool_call>`, `⟨<tool_call>{"name": "sing", "arguments": {}⟩}</tool_call>`, nil, toolcall.ErrUnknown},
	{toolcall.Hermes, "a <tool_call>\n" + add[:20], "a⟨<tool_call>\n" + add[:20] + "⟩", nil, toolcall.ErrCut},
	{toolcall.Hermes, "<tool_call>" + add[:34], "⟨<tool_call>" + add[:34] + "⟩", nil, toolcall.ErrCut},
	{toolcall.Hermes, "<tool_call>", "⟨<tool_call>⟩", nil, toolcall.ErrCut},
	{toolcall.Hermes, "<tool_call>add(1, 2)</tool_call>", "⟨<tool_call>⟩add(1, 2)</tool_call>", nil, toolcall.ErrSyntax},
	{toolcall.Hermes, `<tool_call>{"name": "add", "arguments": {"a" 1}}</tool_call>`, `⟨<tool_call>{"name": "add", "arguments": {"a" 1}}⟩</tool_call>`, nil, toolcall.ErrSyntax},
	{toolcall.Hermes, `<tool_call>{"name": "add", "arguments": {"a": 1]}</tool_call>`, `⟨<tool_call>{"name": "add", "arguments": {"a": 1]⟩}</tool_call>`, nil, toolcall.ErrSyntax},
	{toolcall.Hermes, `<tool_call>{"name": "add", "arguments": [1]}</tool_call>`, `⟨<tool_call>{"name": "add", "arguments": [1]}⟩</tool_call>`, nil, toolcall.ErrArguments},
	{toolcall.Hermes, `<tool_call>{"name": "add", "arguments": "one"}</tool_call>`, `⟨<tool_call>{"name": "add", "arguments": "one"}⟩</tool_call>`, nil, toolcall.ErrArguments},
	{toolcall.Hermes, `<tool_call>{"name": 5, "arguments": {}}</tool_call>`, `⟨<tool_call>{"name": 5, "arguments": {}}⟩</tool_call>`, nil, toolcall.ErrSyntax},
	{toolcall.Hermes, "1 < 2 and <tool> is no <tool_call", "1 < 2 and <tool> is no <tool_call", nil, nil},
	{toolcall.Hermes, "```json\n" + add + "\n```", "", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, add + "\n" + add, "", []string{`add{"a": 1, "b": 2}`, `add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, "[" + add + "]", "", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, add + "\n<tool_call>" + add + "</tool_call>", "", []string{`add{"a": 1, "b": 2}`, `add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, `{"name": "Rita", "animal": "fox"}`, `{"name": "Rita", "animal": "fox"}`, nil, nil},
	{toolcall.Hermes, "```json\n{\"a\": [1]}\n```\n<tool_call>" + add + "</tool_call>", "```json\n{\"a\": [1]}\n```", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.Hermes, "two \n lines \n", "two \n lines \n", nil, nil},

	{toolcall.Llama3, `{"name": "add", "parameters": {"a": 1}}`, "", []string{`add{"a": 1}`}, nil},
	{toolcall.Llama3, `<|python_tag|>{"type": "function", "name": "add", "parameters": {"a": 1}}; {"name": "get_time", "parameters": {}}`, "", []string{`add{"a": 1}`, `get_time{}`}, nil},
	{toolcall.Llama3, "\n" + `{"type": "function", "function": {"name": "add", "parameters": {"a": 1}}}`, "", []string{`add{"a": 1}`}, nil},
	{toolcall.Llama3, `{"name": "Rita", "animal": "fox"}`, `{"name": "Rita", "animal": "fox"}`, nil, nil},
	{toolcall.Llama3, `{"a": 1} is JSON`, `{"a": 1} is JSON`, nil, nil},
	{toolcall.Llama3, `<|python_tag|>print(1)`, `⟨<|python_tag|>⟩print(1)`, nil, toolcall.ErrSyntax},
	{toolcall.Llama3, `Well, {"name": "add", "parameters": {}}`, `Well, {"name": "add", "parameters": {}}`, nil, nil},

	{toolcall.Mistral, `[TOOL_CALLS][` + add + `, {"name": "get_time", "arguments": {}, "id": "abc123xyz"}]`, "", []string{`add{"a": 1, "b": 2}`, `get_time{}`}, nil},
	{toolcall.Mistral, `[TOOL_CALLS] ` + add, "", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.Mistral, `[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]get_time{}`, "", []string{`add{"a": 1}`, `get_time{}`}, nil},
	{toolcall.Mistral, `[TOOL_CALLS]add[CALL_ID]abc123xyz[ARGS]{"a": {"b": 1}}`, "", []string{`add{"a": {"b": 1}}`}, nil},
	{toolcall.Mistral, `[TOOL_CALLS]sing{"a": 1}`, `⟨[TOOL_CALLS]sing{⟩"a": 1}`, nil, toolcall.ErrUnknown},
	{toolcall.Mistral, `[TOOL`, `[TOOL`, nil, nil},

	{toolcall.JSON, add, "", []string{`add{"a": 1, "b": 2}`}, nil},
	{toolcall.JSON, "```json\n[" + add + ",\n" + add + "]\n```", "", []string{`add{"a": 1, "b": 2}`, `add{"a": 1, "b": 2}`}, nil},
	{toolcall.JSON, "```\n" + `{"tool_call": {"name": "add", "arguments": {"a": 1}}}` + "\n```\nSo.", "\nSo.", []string{`add{"a": 1}`}, nil},
	{toolcall.JSON, `[1, 2]`, `[1, 2]`, nil, nil},
	{toolcall.JSON, "```python\nprint()\n```", "```python\nprint()\n```", nil, nil},
	{toolcall.JSON, "```json\n{\"a\": 1}\n```", "```json\n{\"a\": 1}\n```", nil, nil},
	{toolcall.JSON, "``", "``", nil, nil},
	{toolcall.JSON, "It is {\"name\": \"add\"}", "It is {\"name\": \"add\"}", nil, nil},
}

func TestAnswers(t *testing.T) {
	for _, test := range answers {
		for _, size := range []int{1, 2, 3, 7, len(test.answer) + 1} {
			got := parse(t, test.format, test.answer, size)
			if !equalText(got.text, test.text) || fmt.Sprint(got.calls) != fmt.Sprint(test.calls) {
				t.Errorf("%v %q in pieces of %d: %v, want %q %q", test.format, test.answer, size, got, test.text, test.calls)
			}
			if test.err != nil && (len(got.errs) != 1 || !errors.Is(got.errs[0], test.err)) || test.err == nil && len(got.errs) > 0 {
				t.Errorf("%v %q in pieces of %d: errors %v, want %v", test.format, test.answer, size, got.errs, test.err)
			}
		}
	}
}

var unmarked = strings.NewReplacer("⟨", "", "⟩", "")

// equalText compares texts; where exactly a malformed call was given up depends on the pieces.
func equalText(got, want string) bool {
	return unmarked.Replace(got) == unmarked.Replace(want) && strings.Count(got, "⟨") == strings.Count(want, "⟨")
}

func TestArgumentsAreStreamed(t *testing.T) {
	p := toolcall.New(toolcall.Hermes, []string{"get_weather"})
	var got []string
	for _, piece := range []string{"<tool_call>\n{\"name\": \"get", "_weather\", \"arguments\": {\"ci", "ty\": \"Os", "lo \"}", "}\n</tool_call>"} {
		for _, e := range p.Push(piece) {
			got = append(got, fmt.Sprintf("%d:%s", e.Kind, e.Text))
		}
	}
	want := []string{"1:get_weather", `2:{"ci`, `2:ty": "Os`, `2:lo "}`, "3:"}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestTextIsNotHeld(t *testing.T) {
	p := toolcall.New(toolcall.Hermes, []string{"add"})
	for _, piece := range []string{"a", " b", " <", "c <tool", "s> "} {
		events := p.Push(piece)
		if len(events) > 1 {
			t.Errorf("%q: %d events", piece, len(events))
		}
		if piece == " b" && (len(events) != 1 || events[0].Text != " b") {
			t.Errorf("%q is held: %v", piece, events)
		}
	}
}

func TestForcedCalls(t *testing.T) {
	for f, closing := range map[toolcall.Format]string{toolcall.JSON: "}", toolcall.Hermes: "}\n</tool_call>", toolcall.Llama3: "}", toolcall.Mistral: "}]"} {
		named := parse(t, f, f.Opening("add")+`{"a": 1}`+closing, 1)
		if fmt.Sprint(named.calls) != `[add{"a": 1}]` || named.text != "" || named.errs != nil {
			t.Errorf("%v, named: %v", f, named)
		}
		any := parse(t, f, f.Opening("")+`add", "arguments": {"a": 1}`+closing, 1)
		if fmt.Sprint(any.calls) != `[add{"a": 1}]` || any.text != "" || any.errs != nil {
			t.Errorf("%v, any: %v", f, any)
		}
	}
}

// TestHeld follows calls as they are written: what is to be held of them, and that the grammars take
// what the formats write.
func TestHeld(t *testing.T) {
	tools, err := toolcall.ParseTools([]byte(`[{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}},
		{"function": {"name": "say \"hé\""}}]`))
	if err != nil {
		t.Fatal(err)
	}
	calls, err := toolcall.Grammar(t.Context(), tools)
	if err != nil {
		t.Fatal(err)
	}
	vocabulary := grammar.NewVocabulary(1, func(int32) []byte { return []byte("a") }, []int32{0})
	accept := func(g *grammar.Grammar, text string) (ok, complete bool) {
		m := g.Bind(vocabulary).Matcher()
		return m.AcceptText(text) == nil, m.CanEnd()
	}
	for _, c := range []struct {
		format toolcall.Format
		text   string
		held   string // what is held of it, or "-"
		name   string
	}{
		{toolcall.Hermes, "So: ", "-", ""},
		{toolcall.Hermes, "So: <tool_call>", "", ""},
		{toolcall.Hermes, "So: <tool_call>\n{\"na", `{"na`, ""},
		{toolcall.Hermes, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>", "-", ""},
		{toolcall.Hermes, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>", "", ""},
		{toolcall.Hermes, `{"name": "add", `, "-", ""},
		{toolcall.Hermes, `{"name": "add", "arguments": {"`, `{"name": "add", "arguments": {"`, ""},
		{toolcall.JSON, `{"a": `, "-", ""},
		{toolcall.JSON, "```json\n{\"arguments\": {\"a\": 1}, \"name\": \"add\"", `{"arguments": {"a": 1}, "name": "add"`, ""},
		{toolcall.Llama3, `<|python_tag|>`, "", ""},
		{toolcall.Llama3, `{"name": "say \"hé\"", "parameters": {`, `{"name": "say \"hé\"", "parameters": {`, ""},
		{toolcall.Mistral, `[TOOL_CALLS]`, "-", ""},
		{toolcall.Mistral, `[TOOL_CALLS][{"name": "add"`, `{"name": "add"`, ""},
		{toolcall.Mistral, `[TOOL_CALLS]add[ARGS]{"a"`, `{"a"`, "add"},
	} {
		p := toolcall.New(c.format, []string{"add", `say "hé"`})
		p.Push(c.text)
		h, ok := p.Held()
		if ok != (c.held != "-") || ok && (h.Written != c.held || h.Name != c.name) {
			t.Errorf("%v %s: %+v %t", c.format, c.text, h, ok)
		}
		g := calls
		if h.Name != "" {
			if g, err = tools[0].Arguments(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if accepted, _ := accept(g, h.Written); ok && !accepted {
			t.Errorf("%v %s: not accepted", c.format, c.text)
		}
	}
	for text, want := range map[string]bool{
		`{"name": "add", "arguments": {"a": 1}}`:             true,
		"\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n": true,
		`{"name":"add","parameters":{"a":1}}`:                true,
		`{"arguments": {"a": 1}, "name": "add"}`:             true,
		`{"name": "say \"hé\"", "arguments": {"x": [1]}}`:    true,
		`{"name": "add", "arguments": {"a": "x"}}`:           false,
		`{"name": "add", "arguments": {}}`:                   false,
		`{"name": "sub", "arguments": {"a": 1}}`:             false,
		`{"name": "add"}`:                                    false,
	} {
		if ok, complete := accept(calls, text); (ok && complete) != want {
			t.Errorf("%s: %t %t, want %t", text, ok, complete, want)
		}
	}
}

// TestAnswersOfAForm: what a format writes is an answer of calls, and finds its way through the parser.
func TestAnswersOfAForm(t *testing.T) {
	form, err := grammar.Literal(t.Context(), `"yes"`)
	if err != nil {
		t.Fatal(err)
	}
	for f, text := range map[toolcall.Format]string{
		toolcall.Hermes:  "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
		toolcall.Llama3:  `{"name": "add", "parameters": {}}; {"name": "add", "parameters": {}}`,
		toolcall.Mistral: `[TOOL_CALLS][{"name": "add", "arguments": {}}, {"name": "add", "arguments": {}}]`,
		toolcall.JSON:    "{\"name\": \"add\", \"arguments\": {}}\n{\"name\": \"add\", \"arguments\": {}}",
	} {
		g, err := toolcall.Answer(t.Context(), f, form, []toolcall.Tool{{Name: "add"}})
		if err != nil {
			t.Fatal(err)
		}
		masker := g.Bind(grammar.NewVocabulary(1, func(int32) []byte { return []byte("a") }, []int32{0}))
		for _, whole := range []string{text, `"yes"`} {
			m := masker.Matcher()
			if err := m.AcceptText(whole); err != nil || !m.CanEnd() {
				t.Errorf("%v: %s: %v", f, whole, err)
			}
		}
		if err := masker.Matcher().AcceptText("no"); err == nil {
			t.Errorf("%v: takes what is of neither form", f)
		}
		if got := parse(t, f, text, 3); fmt.Sprint(got.calls) != "[add{} add{}]" || got.text != "" {
			t.Errorf("%v: %v", f, got)
		}
	}
}

func TestDetect(t *testing.T) {
	for template, want := range map[string]toolcall.Format{
		`{{- '<tool_call>\n{"name": "' }}`:               toolcall.Hermes,
		`{{- "[TOOL_CALLS] [" }}`:                        toolcall.Mistral,
		`{{- "<|python_tag|>" + tool_call.name }}`:       toolcall.Llama3,
		`<|start_header_id|>ipython<|end_header_id|>`:    toolcall.Llama3,
		`<|im_start|>{{ message.role }}`:                 toolcall.JSON,
		`<|start_header_id|>{{ role }}<|end_header_id|>`: toolcall.JSON,
		"": toolcall.JSON,
	} {
		if got := toolcall.Detect(template); got != want {
			t.Errorf("%q: %v, want %v", template, got, want)
		}
	}
}

func TestDeepArguments(t *testing.T) {
	deep := `{"name": "add", "arguments": ` + strings.Repeat(`{"a": `, 100000)
	o := parse(t, toolcall.Hermes, "<tool_call>"+deep, len(deep))
	if len(o.errs) != 1 || !errors.Is(o.errs[0], toolcall.ErrSyntax) {
		t.Errorf("errors %v", o.errs)
	}
}

func FuzzParser(f *testing.F) {
	for _, test := range answers {
		f.Add(uint8(test.format), test.answer, uint8(3))
	}
	f.Fuzz(func(t *testing.T, format uint8, answer string, size uint8) {
		kind := toolcall.Format(format % 4)
		once := parse(t, kind, answer, len(answer)+1)
		pieces := parse(t, kind, answer, 1+int(size))
		// Whether a malformed call was announced before it was given up depends on the pieces.
		if fmt.Sprint(once.calls) != fmt.Sprint(pieces.calls) || unmarked.Replace(once.text) != unmarked.Replace(pieces.text) {
			t.Errorf("%v %q: %v at once and %v in pieces of %d", kind, answer, once, pieces, 1+int(size))
		}
	})
}

func Example() {
	p := toolcall.New(toolcall.Hermes, []string{"add"})
	for _, piece := range []string{"Let me see.\n<tool", "_call>\n{\"name\": \"add\", \"argu", "ments\": {\"a\": 3", ", \"b\": 4}}\n</tool_call>"} {
		for _, e := range p.Push(piece) {
			fmt.Printf("%d %q\n", e.Kind, e.Text)
		}
	}
	// Output:
	// 0 "Let me see."
	// 1 "add"
	// 2 "{\"a\": 3"
	// 2 ", \"b\": 4}"
	// 3 ""
}
