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

// What a tool refuses, and arguments that are not its, go back to the model.
func TestToolErrors(t *testing.T) {
	m := openStoryteller(t)
	refusal := errors.New("no dice")
	for name, c := range map[string]struct {
		tool minfer.Tool
		want string
	}{
		"refusal": {minfer.NewTool("roll_dice", "Roll a die.", func(context.Context, sides) (int, error) { return 0, refusal }), "error: no dice"},
		"unknown": {minfer.NewTool("roll_dice", "Roll a die.", func(context.Context, struct{}) (int, error) { return 1, nil }),
			`error: arguments of roll_dice: json: unknown field "sides"`},
		"missing": {minfer.NewTool("roll_dice", "Roll a die.", func(context.Context, struct {
			Sides *int `json:"sides"`
			Dice  int  `json:"dice"`
		}) (int, error) {
			return 1, nil
		}), `error: arguments of roll_dice: "dice" is missing`},
	} {
		chat := newSession(t, m).Chat(minfer.WithTools(c.tool))
		var result minfer.ToolCallDelta
		for p, err := range chat.Say(context.Background(), "Roll a die with 6 sides.", minfer.Temperature(0), minfer.MaxTokens(40)) {
			if err != nil {
				t.Fatal(err)
			}
			if p.ToolCall != nil && p.ToolCall.Done {
				result = *p.ToolCall
			}
		}
		if result.Result != c.want || result.Err == nil || (name == "refusal") != errors.Is(result.Err, refusal) {
			t.Errorf("%s: %+v", name, result)
		}
		if messages := chat.Messages(); len(messages) < 4 || messages[2].Role != "tool" || messages[2].Content != c.want {
			t.Errorf("%s: %q", name, messages)
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
