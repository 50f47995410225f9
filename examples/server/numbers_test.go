package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// story asks for a story and returns its text.
func (s *testServer) story(t *testing.T, fields string) string {
	t.Helper()
	status, body := s.do(t, "POST", "/v1/chat/completions",
		`{"messages": [{"role": "user", "content": "Tell me a story about a brave fox."}], "max_tokens": 30`+fields+"}")
	if !utf8.ValidString(body) {
		t.Errorf("%s: the answer is no UTF-8: %q", fields, body)
	}
	var out chatCompletion
	if err := json.Unmarshal([]byte(body), &out); err != nil || status != 200 {
		t.Fatalf("%s: status %d, %v: %s", fields, status, err, body)
	}
	return *out.Choices[0].Message.Content
}

// TestTemperatureZeroIsNotAbsent: a temperature of 0 is a wish for the likeliest token, and
// its absence is a wish for the default.
func TestTemperatureZeroIsNotAbsent(t *testing.T) {
	s := startServer(t, "-temp", "1.5")
	told := map[string]map[string]bool{}
	for _, temperature := range []string{"", "null", "0", "0.0", "-0", "1e-9", "1e-40", "1e-45", "1e-300"} {
		told[temperature] = map[string]bool{}
		for seed := range 6 {
			fields := fmt.Sprintf(`, "seed": %d`, seed)
			if temperature != "" {
				fields += `, "temperature": ` + temperature
			}
			told[temperature][s.story(t, fields)] = true
		}
	}
	greedy := ""
	for text := range told["0"] {
		greedy = text
	}
	for temperature, texts := range told {
		if temperature == "" || temperature == "null" {
			if len(texts) < 2 {
				t.Errorf("temperature %q: six seeds told one story", temperature)
			}
		} else if len(texts) != 1 || !texts[greedy] {
			t.Errorf("temperature %s: %v, want only %q", temperature, texts, greedy)
		}
	}
}

// TestBrokenCharactersAreSentWhole forces bytes that are no text: what is sent is UTF-8 and
// JSON none the less, whole or in pieces.
func TestBrokenCharactersAreSentWhole(t *testing.T) {
	s := startServer(t)
	half, single := -1, -1
	for id := range int32(s.model.Info().Vocab) {
		switch b := s.model.Tokenizer().TokenBytes(id); {
		case string(b) == "\xff":
			single = int(id)
		case string(b) == "\xe6":
			half = int(id)
		}
	}
	if half < 0 || single < 0 {
		t.Fatal("the storyteller has no tokens of these bytes")
	}
	for _, id := range []int{half, single} {
		fields := fmt.Sprintf(`, "max_tokens": 4, "logit_bias": {"%d": 100}`, id)
		const want = "\ufffd\ufffd\ufffd\ufffd"
		if got := s.story(t, fields); got != want {
			t.Errorf("token %d: %q, want %q", id, got, want)
		}
		_, body := s.do(t, "POST", "/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hello"}], "stream": true`+fields+"}")
		text := ""
		for _, line := range strings.Split(body, "\n") {
			data, ok := strings.CutPrefix(line, "data: {")
			if !ok {
				continue
			}
			var chunk struct {
				Choices []struct{ Delta struct{ Content string } }
			}
			if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil || !utf8.ValidString(data) {
				t.Fatalf("token %d: %v: %q", id, err, data)
			}
			for _, c := range chunk.Choices {
				text += c.Delta.Content
			}
		}
		if text != want {
			t.Errorf("token %d in pieces: %q, want %q", id, text, want)
		}
	}
}

// TestEchoedLogprobs: a text comes back with the log-probabilities of its tokens, which are those of
// answers that say it, and need not be gone on with.
func TestEchoedLogprobs(t *testing.T) {
	s := startServer(t)
	type choice struct {
		Text     string
		Logprobs completionLogprobs
		Finish   string `json:"finish_reason"`
	}
	ask := func(fields string) (choices []choice, u usage) {
		t.Helper()
		status, body := s.do(t, "POST", "/v1/completions", `{"temperature": 0, "logprobs": 2, `+fields+"}")
		var out struct {
			Choices []choice
			Usage   usage
		}
		if err := json.Unmarshal([]byte(body), &out); err != nil || status != 200 {
			t.Fatalf("%d %v: %s", status, err, body)
		}
		return out.Choices, out.Usage
	}
	const prompt = "Once upon a time"
	said, _ := ask(`"prompt": "` + prompt + `", "max_tokens": 4`)
	whole := prompt + said[0].Text
	echoed, u := ask(`"prompt": "` + whole + `", "max_tokens": 0, "echo": true`)
	got := echoed[0]
	n := len(got.Logprobs.Tokens)
	if got.Text != whole || got.Finish != "length" || strings.Join(got.Logprobs.Tokens, "") != whole || u.Prompt != n || u.Completion != 0 {
		t.Errorf("%+v, %+v", got, u)
	}
	if got.Logprobs.Logprobs[0] != nil || got.Logprobs.Top[0] != nil || len(got.Logprobs.Logprobs) != n || len(got.Logprobs.Top) != n {
		t.Errorf("%+v", got.Logprobs)
	}
	for i, want := range said[0].Logprobs.Logprobs {
		at := n - len(said[0].Logprobs.Logprobs) + i
		if p := got.Logprobs.Logprobs[at]; p == nil || *p != *want || len(got.Logprobs.Top[at]) != 2 || len(whole[:got.Logprobs.Offsets[at]]) < len(prompt) {
			t.Errorf("token %d: %v, want %v", at, p, *want)
		}
	}
	more, _ := ask(`"prompt": ["` + prompt + `", "Hello"], "max_tokens": 4, "echo": true, "n": 2`)
	if len(more) != 4 || more[0].Text != whole || more[1].Text != whole || len(more[1].Logprobs.Tokens) != n || *more[1].Logprobs.Logprobs[n-1] != *got.Logprobs.Logprobs[n-1] {
		t.Errorf("%+v", more)
	}
	_, body := s.do(t, "POST", "/v1/completions", `{"temperature": 0, "logprobs": 0, "echo": true, "max_tokens": 2, "stream": true, "prompt": "`+prompt+`"}`)
	var text strings.Builder
	tokens := 0
	for _, line := range strings.Split(body, "\n") {
		data, ok := strings.CutPrefix(line, "data: {")
		var out struct{ Choices []choice }
		if ok && json.Unmarshal([]byte("{"+data), &out) == nil && len(out.Choices) == 1 {
			text.WriteString(out.Choices[0].Text)
			tokens += len(out.Choices[0].Logprobs.Tokens)
		}
	}
	if !strings.HasPrefix(whole, text.String()) || len(text.String()) <= len(prompt) || tokens <= 2 {
		t.Errorf("streamed: %q, %d tokens", text.String(), tokens)
	}
}
