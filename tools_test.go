package minfer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/internal/testfiles"
)

type place struct {
	City string `json:"city"`
}

type weather struct {
	Weather string `json:"weather"`
	Degrees int    `json:"degrees"`
}

type sum struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sides struct {
	Sides int `json:"sides"`
}

// theTools are what the storyteller knows.
func theTools() []minfer.Tool {
	return []minfer.Tool{
		minfer.NewTool("get_weather", "Get the current weather in a city.", func(_ context.Context, p place) (weather, error) {
			return weather{"sunny", len(p.City)}, nil
		}),
		minfer.NewTool("roll_dice", "Roll a die.", func(_ context.Context, s sides) (int, error) { return s.Sides, nil }),
		minfer.NewTool("add", "Add two numbers.", func(_ context.Context, s sum) (int, error) { return s.A + s.B, nil }),
		minfer.NewTool("get_time", "Get the current time.", func(context.Context, struct{}) (string, error) { return "12:34", nil }),
	}
}

// hear collects an answer, its calls written out.
func hear(pieces func(func(minfer.Piece, error) bool)) (text, calls string, finish minfer.FinishReason, err error) {
	for p, e := range pieces {
		if e != nil {
			err = e
			continue
		}
		text += p.Text
		finish = p.Finish
		if d := p.ToolCall; d != nil {
			if d.Done {
				calls += fmt.Sprintf(" -> %s;", d.Result)
			} else if d.Arguments == "" && d.Err == nil && !strings.HasSuffix(calls, "}") {
				calls += fmt.Sprintf("%d %s ", d.Index, d.Name)
			} else {
				calls += d.Arguments
			}
			if p.Text != "" {
				err = errors.New("a piece of a call with text")
			}
		}
	}
	return text, calls, finish, err
}

func TestTools(t *testing.T) {
	m := openModel(t, "testdata/storyteller-q4_0.gguf", minfer.WithChatTemplate(openStoryteller(t).ChatTemplate()))
	for _, c := range []struct{ question, text, calls string }{
		{"What is the weather in Lisbon?", "In Lisbon it is sunny and 6 degrees.", `0 get_weather {"city": "Lisbon"} -> {"weather":"sunny","degrees":6};`},
		{"What is 120 plus 345?", "120 plus 345 is 465.", `0 add {"a": 120, "b": 345} -> 465;`},
		{"Roll a die with 6 sides.", "You rolled 6.", `0 roll_dice {"sides": 6} -> 6;`},
		{"What time is it?", "It is 12:34.", `0 get_time {} -> 12:34;`},
	} {
		s := newSession(t, m)
		chat := s.Chat(minfer.WithTools(theTools()...))
		text, calls, finish, err := hear(chat.Say(context.Background(), c.question, minfer.Temperature(0)))
		if err != nil || text != c.text || calls != c.calls || finish != minfer.FinishedTurn {
			t.Errorf("%s: %q %q %v %v", c.question, text, calls, finish, err)
		}
		// Both turns count; a turn evaluates the last token of the one before.
		if u := s.Usage(); u.Cached != 0 || u.Prompt+u.Generated != s.Len()+1 || u.Generated < 15 {
			t.Errorf("%s: usage %+v of %d tokens", c.question, u, s.Len())
		}
		var roles []string
		for _, m := range chat.Messages() {
			roles = append(roles, m.Role)
		}
		if fmt.Sprint(roles) != "[user assistant tool assistant]" {
			t.Errorf("%s: %v", c.question, chat.Messages())
		}
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// An answer that is constrained is no call, whatever it looks like, and calls that are cut off are
// reported and not made.
func TestCallsThatAreNotMade(t *testing.T) {
	m := openStoryteller(t)
	made := 0
	add := minfer.NewTool("add", "Add two numbers.", func(_ context.Context, s sum) (int, error) {
		made++
		return s.A + s.B, nil
	})
	chat := newSession(t, m).Chat(minfer.WithTools(add))
	const call = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>"
	if text, _, finish, err := hear(chat.Say(context.Background(), "What is 120 plus 345?", hold(call))); text != call || finish != minfer.FinishedGrammar || err != nil {
		t.Errorf("%q %v %v", text, finish, err)
	}
	chat.Clear()
	var problem *minfer.ToolCallDelta
	for p, err := range chat.Say(context.Background(), "What is 120 plus 345?", minfer.MaxTokens(20), minfer.Temperature(0)) {
		if err != nil {
			t.Fatal(err)
		}
		if p.ToolCall != nil && p.ToolCall.Err != nil {
			problem = p.ToolCall
		}
		if p.Finish != minfer.NotFinished && p.Finish != minfer.FinishedLength {
			t.Errorf("ended by %v", p.Finish)
		}
	}
	if problem == nil || !errors.Is(problem.Err, minfer.ErrCallCut) || problem.Done || problem.Raw != chat.Messages()[1].Content || made != 0 {
		t.Errorf("%+v, %d calls made, %q", problem, made, chat.Messages())
	}
}

// What a tool refuses goes back to the model.
func TestToolErrors(t *testing.T) {
	m := openStoryteller(t)
	refusal := errors.New("no dice")
	tool := minfer.NewTool("roll_dice", "Roll a die.", func(context.Context, sides) (int, error) { return 0, refusal })
	chat := newSession(t, m).Chat(minfer.WithTools(tool))
	var result minfer.ToolCallDelta
	for p, err := range chat.Say(context.Background(), "Roll a die with 6 sides.", minfer.Temperature(0), minfer.MaxTokens(40)) {
		if err != nil {
			t.Fatal(err)
		}
		if p.ToolCall != nil && p.ToolCall.Done {
			result = *p.ToolCall
		}
	}
	const want = "error: no dice"
	if result.Result != want || !errors.Is(result.Err, refusal) {
		t.Errorf("%+v", result)
	}
	if messages := chat.Messages(); len(messages) < 4 || messages[2].Role != "tool" || messages[2].Content != want {
		t.Errorf("%q", messages)
	}
}

// TestCallsAreHeld offers the storyteller tools that take other arguments than those it knows. What
// it writes is what the tool wants all the same, whatever the temperature.
func TestCallsAreHeld(t *testing.T) {
	m := openStoryteller(t)
	type dice struct {
		Colour string `json:"colour" enum:"red,blue"`
		Count  int    `json:"count"`
	}
	for name, tool := range map[string]func(*json.RawMessage) minfer.Tool{
		"none": func(got *json.RawMessage) minfer.Tool {
			return minfer.NewTool("roll_dice", "Roll a die.", func(_ context.Context, a struct{}) (int, error) { *got = mustJSON(a); return 4, nil })
		},
		"others": func(got *json.RawMessage) minfer.Tool {
			return minfer.NewTool("roll_dice", "Roll a die.", func(_ context.Context, a dice) (int, error) { *got = mustJSON(a); return 4, nil })
		},
	} {
		for seed := range uint64(8) {
			var got json.RawMessage
			chat := newSession(t, m).Chat(minfer.WithTools(tool(&got)), minfer.MaxToolRounds(1))
			hot := []minfer.GenerateOption{minfer.Temperature(1.5), minfer.Seed(seed), minfer.MaxTokens(200), minfer.Stop("{ ")}
			if seed == 0 {
				hot = []minfer.GenerateOption{minfer.Temperature(0), minfer.MaxTokens(200), minfer.WithPromptLookup(8)}
			}
			called := false
			for p, err := range chat.Say(context.Background(), "Roll a die with 6 sides.", hot...) {
				if err != nil {
					if errors.Is(err, minfer.ErrToolRounds) {
						break
					}
					t.Fatal(err)
				}
				if d := p.ToolCall; d != nil && d.Err != nil && !errors.Is(d.Err, minfer.ErrCallCut) {
					t.Errorf("%s, seed %d: %v: %s", name, seed, d.Err, d.Raw)
				}
				called = called || p.ToolCall != nil && p.ToolCall.Done
			}
			if called != (got != nil) || seed == 0 && !called {
				t.Errorf("%s, seed %d: called %t with %s", name, seed, called, got)
			}
			if name == "others" && got != nil && !strings.Contains(string(got), `"red"`) && !strings.Contains(string(got), `"blue"`) {
				t.Errorf("seed %d: %s", seed, got)
			}
		}
	}
}

// TestHoldToolCalls does without Chat: calls after text, calls that the prompt begins, tools that are
// not strict, and answers that are of a form or calls.
func TestHoldToolCalls(t *testing.T) {
	m := openStoryteller(t)
	definitions := func(strict bool, parameters string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`[{"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": %s, "strict": %t}}]`, parameters, strict))
	}
	const numbers = `{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"enum": ["x", "y"]}}, "required": ["a", "b", "c"]}`
	ask := func(question, begun string, tools json.RawMessage, opts ...minfer.GenerateOption) (string, error) {
		p, err := m.RenderChat(t.Context(), []minfer.Message{{Role: "user", Content: question}}, minfer.WithTools(theTools()[2]))
		if err != nil {
			t.Fatal(err)
		}
		tokens := append(p.Tokens, encode(t, m, begun)...)
		a, err := read(newSession(t, m).GenerateTokens(t.Context(), tokens, append(short(minfer.MaxTokens(80), minfer.HoldToolCalls(tools, p.Text, begun)), opts...)...))
		return begun + a.text, err
	}
	const call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 120, \"b\": 345, \"c\": \"y\"}}"
	for _, c := range []struct {
		name, question, begun string
		tools                 json.RawMessage
		opts                  []minfer.GenerateOption
		want                  string
	}{
		{"free", "What colour is the sky?", "", definitions(false, numbers), nil, "The sky is blue."},
		{"called", "What is 120 plus 345?", "", definitions(true, numbers), nil, call},
		{"begun", "What is 120 plus 345?", m.ToolFormat().Opening("add"), definitions(true, numbers), nil, call},
		{"begun, without a name", "What is 120 plus 345?", m.ToolFormat().Opening(""), definitions(true, numbers), nil, call},
		{"unsupported", "What is 120 plus 345?", "", definitions(false, `{"not": {}}`), nil, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 120, \"b\": 345}}\n</tool_call>"},
		{"a form or calls", "What is 120 plus 345?", "", definitions(true, numbers), []minfer.GenerateOption{minfer.WithJSON()}, call + "\n</tool_call>"},
		{"a form and no calls", "What colour is the sky?", "", definitions(true, numbers), []minfer.GenerateOption{minfer.WithRegexp("[A-Z]{3} sky")}, "ATE sky"},
	} {
		if got, err := ask(c.question, c.begun, c.tools, c.opts...); got != c.want || err != nil {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, got, c.want)
		}
	}
	for name, tools := range map[string]json.RawMessage{
		"no JSON": json.RawMessage(`[`), "no name": json.RawMessage(`[{}]`), "strict, unsupported": definitions(true, `{"not": {}}`),
	} {
		if _, err := ask("What is 120 plus 345?", "", tools); !errors.Is(err, minfer.ErrOption) {
			t.Errorf("%s: %v", name, err)
		}
		var schema *minfer.SchemaError
		if _, err := ask("What is 120 plus 345?", "", tools, minfer.WithJSON()); !errors.Is(err, minfer.ErrOption) || errors.As(err, &schema) != strings.HasPrefix(name, "strict") {
			t.Errorf("%s, with a form: %v", name, err)
		}
	}
}

// A model that never stops calling tools, or whose caller stops, leaves a conversation that says what was done.
func TestToolRounds(t *testing.T) {
	m := openStoryteller(t)
	// The template hides results, so the model asks again and again.
	deaf := openStoryteller(t, minfer.WithChatTemplate(strings.Replace(m.ChatTemplate(),
		"{%- for message in messages %}", "{%- for message in messages if message.role != 'tool' and not message.tool_calls %}", 1)))
	calls := 0
	tool := minfer.NewTool("add", "Add two numbers.", func(_ context.Context, s sum) (int, error) {
		calls++
		return s.A + s.B, nil
	})
	chat := newSession(t, deaf).Chat(minfer.WithTools(tool), minfer.MaxToolRounds(2))
	_, _, _, err := hear(chat.Say(context.Background(), "What is 120 plus 345?", minfer.Temperature(0)))
	if !errors.Is(err, minfer.ErrToolRounds) || calls != 2 {
		t.Errorf("%d calls: %v", calls, err)
	}
	var ids []string
	for _, m := range chat.Messages() {
		if m.Role == "tool" {
			ids = append(ids, string(m.Fields))
		}
	}
	if want := `[{"tool_call_id":"call00001","name":"add"} {"tool_call_id":"call00002","name":"add"}]`; fmt.Sprint(ids) != want {
		t.Errorf("%v, want %s", ids, want)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancelling := minfer.NewTool("add", "Add two numbers.", func(ctx context.Context, _ sum) (int, error) {
		cancel()
		return 0, ctx.Err()
	})
	chat = newSession(t, m).Chat(minfer.WithTools(cancelling))
	if _, _, _, err := hear(chat.Say(ctx, "What is 120 plus 345?", minfer.Temperature(0))); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled by a tool: %v", err)
	}
}

func TestToolsThatAreNone(t *testing.T) {
	m := openStoryteller(t)
	good := minfer.NewTool("a", "", func(context.Context, struct{}) (int, error) { return 0, nil })
	for name, tools := range map[string][]minfer.Tool{
		"zero":      {{}},
		"twice":     {good, good},
		"no name":   {minfer.NewTool("", "", func(context.Context, struct{}) (int, error) { return 0, nil })},
		"no struct": {minfer.NewTool("b", "", func(context.Context, int) (int, error) { return 0, nil })},
		"channel":   {minfer.NewTool("b", "", func(context.Context, struct{ C chan int }) (int, error) { return 0, nil })},
	} {
		chat := newSession(t, m).Chat(minfer.WithTools(tools...))
		_, _, _, err := hear(chat.Say(context.Background(), "Hello"))
		if !errors.Is(err, minfer.ErrOption) || len(chat.Messages()) != 0 {
			t.Errorf("%s: %v", name, err)
		}
		if name == "channel" && !errors.Is(err, minfer.ErrType) {
			t.Error(err)
		}
	}
}

// A template that knows nothing of tools is helped out by words, and a format that it does not write
// by the generic one.
func TestToolsWithoutATemplate(t *testing.T) {
	plain := `{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
`
	m := openStoryteller(t, minfer.WithChatTemplate(plain))
	tool := theTools()[2]
	fields := `{"tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}]}`
	p, err := m.RenderChat(context.Background(), []minfer.Message{
		{Role: "user", Content: "1 + 2?"}, {Role: "assistant", Fields: []byte(fields)}, {Role: "tool", Content: "3"},
	}, minfer.System("Be brief."), minfer.WithTools(tool))
	if err != nil {
		t.Fatal(err)
	}
	want := "<|im_start|>system\nBe brief.\n\nYou can call these tools:\n[" + string(tool.Definition()) + "]\n" +
		"To call one, answer with nothing but a JSON object: {\"name\": NAME, \"arguments\": {...}}<|im_end|>\n" +
		"<|im_start|>user\n1 + 2?<|im_end|>\n<|im_start|>assistant\n{\"name\":\"add\",\"arguments\":{\"a\":1,\"b\":2}}<|im_end|>\n" +
		"<|im_start|>user\nThe tool's result: 3<|im_end|>\n<|im_start|>assistant"
	if p.Text != want {
		t.Errorf("%s\nwant\n%s", p.Text, want)
	}
}

// What a chat makes of calls and results is what the templates of models want.
func TestToolsInRealTemplates(t *testing.T) {
	m := openStoryteller(t)
	chat := newSession(t, m).Chat(minfer.System("Be brief."), minfer.WithTools(theTools()...))
	if _, _, _, err := hear(chat.Say(context.Background(), "What is 120 plus 345?", minfer.Temperature(0))); err != nil {
		t.Fatal(err)
	}
	for name, format := range map[string]string{
		"Qwen-Qwen2.5-7B-Instruct": "hermes", "Qwen3.5-4B": "hermes", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
		"meta-llama-Llama-3.1-8B-Instruct": "llama3", "meta-llama-Llama-3.3-70B-Instruct": "llama3", "meta-llama-Llama-3.2-3B-Instruct": "llama3",
		"mistralai-Mistral-Nemo-Instruct-2407": "mistral", "HuggingFaceTB-SmolLM3-3B": "json", "google-gemma-2-2b-it": "json",
	} {
		path := testfiles.Oracle(t, "headers", "models", "templates", name+".jinja")
		m := openStoryteller(t, minfer.WithChatTemplate(string(readFile(t, path))))
		p, err := m.RenderChat(context.Background(), chat.Messages()[1:], minfer.WithTools(theTools()...))
		if name == "google-gemma-2-2b-it" {
			// It refuses system messages, by which it would have to be told of tools.
			if err == nil || !strings.Contains(err.Error(), "System role") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := m.ToolFormat().String(); got != format {
			t.Errorf("%s: format %s, want %s", name, got, format)
		}
		_, after, _ := strings.Cut(p.Text, "What is 120 plus 345?")
		for _, part := range []string{"add", "345", "465"} {
			if !strings.Contains(after, part) {
				t.Errorf("%s: no %q in\n%s", name, part, p.Text)
			}
		}
	}
}
