package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReasoningIsApart has the storyteller begin its answer with a mark by way of the template.
func TestReasoningIsApart(t *testing.T) {
	template := filepath.Join(t.TempDir(), "think.jinja")
	source := `{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
<think>
`
	if err := os.WriteFile(template, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "-template", template)
	status, body := s.do(t, "POST", "/v1/chat/completions", `{"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 6}`)
	var out chatCompletion
	if err := json.Unmarshal([]byte(body), &out); err != nil || status != 200 {
		t.Fatalf("%d %v %s", status, err, body)
	}
	m := out.Choices[0].Message
	if m.Reasoning == "" || m.Content == nil || *m.Content != "" || out.Usage.CompletionDetails.Reasoning == 0 {
		t.Errorf("%s", body)
	}
	_, body = s.do(t, "POST", "/v1/chat/completions", `{"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 6, "stream": true}`)
	if !strings.Contains(body, `"reasoning_content":"`) || strings.Contains(body, `"content":"3`) {
		t.Errorf("%s", body)
	}
}

// TestToolsWithoutATemplateForThem: a template that knows nothing of tools is given words.
func TestToolsWithoutATemplateForThem(t *testing.T) {
	template := filepath.Join(t.TempDir(), "plain.jinja")
	source := `{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
`
	if err := os.WriteFile(template, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "-template", template)
	v, err := parseBody([]byte(hello(`"tools": [{"type": "function", "function": {"name": "f"}}]`)))
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.readChat(v)
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := s.render(t.Context(), q)
	if err != nil || !strings.HasPrefix(prompt.Text, "<|im_start|>system\nYou can call these tools:\n[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]") {
		t.Errorf("%v: %s", err, prompt.Text)
	}
}

// TestMalformedCalls: what a model wrote in place of a call is in the answer, and in the log.
func TestMalformedCalls(t *testing.T) {
	s := startServer(t)
	// The storyteller calls the only tool it sees, here under a name that the parser lacks.
	const body = `{"messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "tools": [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]`
	status, answer := s.do(t, "POST", "/v1/chat/completions", body+`, "max_tokens": 12}`)
	var out chatCompletion
	if err := json.Unmarshal([]byte(answer), &out); err != nil || status != 200 {
		t.Fatalf("%d %v: %s", status, err, answer)
	}
	c := out.Choices[0]
	if c.Finish != "length" || len(c.Message.Calls) != 0 || c.Message.Content == nil || !strings.HasPrefix(*c.Message.Content, "<tool_call>") {
		t.Errorf("%s", answer)
	}
	if !strings.Contains(s.logged.String(), "malformed tool call") || s.metrics.malformed.Load() != 1 {
		t.Errorf("logged %s, counted %d", s.logged, s.metrics.malformed.Load())
	}
}
