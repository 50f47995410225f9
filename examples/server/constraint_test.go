package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// answer is the first choice of an answer to a request that was accepted.
func (s *testServer) answer(t testing.TB, body string) chatChoice {
	t.Helper()
	status, text := s.do(t, "POST", "/v1/chat/completions", body)
	var out chatCompletion
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != 200 {
		t.Fatalf("%s: %d %v %s", body, status, err, text)
	}
	return *out.Choices[0]
}

const factsSchema = `{"type": "object", "properties": {"name": {"type": "string"}, "animal": {"enum": ["fox", "owl"]}, "legs": {"type": "integer", "minimum": 2, "maximum": 4}}, "required": ["name", "animal", "legs"], "additionalProperties": false}`

func TestAnswersInJSON(t *testing.T) {
	s := startServer(t)
	for _, question := range []string{"Tell me a story about a brave fox.", "What is 3 + 4?", "The facts as JSON."} {
		ask := `{"messages": [{"role": "user", "content": "` + question + `"}], "max_tokens": 200, `
		c := s.answer(t, ask+`"response_format": {"type": "json_object"}}`)
		var object map[string]any
		if err := json.Unmarshal([]byte(*c.Message.Content), &object); err != nil && c.Finish != "length" {
			t.Errorf("%s: %v: %s (%s)", question, err, *c.Message.Content, c.Finish)
		}
		for _, format := range []string{
			`{"type": "json_schema", "json_schema": {"name": "facts", "strict": true, "schema": ` + factsSchema + `}}`,
			`{"type": "json_object", "schema": ` + factsSchema + `}`,
		} {
			c := s.answer(t, ask+`"response_format": `+format+`}`)
			var facts struct {
				Name   *string
				Animal string
				Legs   int
			}
			if err := json.Unmarshal([]byte(*c.Message.Content), &facts); err != nil && c.Finish == "stop" {
				t.Errorf("%s: %v: %s", question, err, *c.Message.Content)
			} else if c.Finish == "stop" && (facts.Name == nil || facts.Animal != "fox" && facts.Animal != "owl" || facts.Legs < 2 || facts.Legs > 4) {
				t.Errorf("%s: %s", question, *c.Message.Content)
			}
		}
	}
}

// TestSchemasThatCannotBeHeldTo are refused, before anything of an answer is sent.
func TestSchemasThatCannotBeHeldTo(t *testing.T) {
	s := startServer(t)
	for _, schema := range []string{`{"type": "thing"}`, `{"$ref": "#/nowhere"}`, `{"not": {}}`} {
		for _, stream := range []string{"false", "true"} {
			status, body := s.do(t, "POST", "/v1/chat/completions", hello(`"stream": `+stream+`, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": `+schema+`}}`))
			e := apiErrorOf(t, body)
			if status != 400 || e.Param == nil || *e.Param != "response_format.json_schema.schema" {
				t.Errorf("%s: %d %s", schema, status, body)
			}
		}
	}
	status, body := s.do(t, "POST", "/v1/completions", `{"prompt": "Facts:", "max_tokens": 60, "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}}`)
	if status != 200 || !strings.Contains(body, `"text":"\"yes\""`) && !strings.Contains(body, `"text":"\"no\""`) {
		t.Errorf("%d %s", status, body)
	}
}

// TestStrictTools: the arguments of a call that is demanded are as the tool's schema says,
// whatever the model would rather say.
func TestStrictTools(t *testing.T) {
	s := startServer(t)
	const body = `{"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 100, "temperature": 1.5, "seed": 3, "tools": [
		{"type": "function", "function": {"name": "paint", "strict": true, "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}, "coats": {"type": "integer", "minimum": 1, "maximum": 3}}, "required": ["colour", "coats"], "additionalProperties": false}}}],
		"tool_choice": {"type": "function", "function": {"name": "paint"}}}`
	c := s.answer(t, body)
	var arguments struct {
		Colour string
		Coats  int
	}
	if c.Finish != "tool_calls" || len(c.Message.Calls) != 1 || c.Message.Content != nil ||
		json.Unmarshal([]byte(c.Message.Calls[0].Function.Arguments), &arguments) != nil ||
		arguments.Colour != "red" && arguments.Colour != "blue" || arguments.Coats < 1 || arguments.Coats > 3 {
		text, _ := json.Marshal(c)
		t.Errorf("%s", text)
	}
	status, text := s.do(t, "POST", "/v1/chat/completions", strings.Replace(body, `"integer"`, `"thing"`, 1))
	if e := apiErrorOf(t, text); status != 400 || e.Param == nil || *e.Param != "tools[0].function.parameters" {
		t.Errorf("%d %s", status, text)
	}
}

// TestToolsAndForms: with a form and tools, an answer is of the form or calls tools.
func TestToolsAndForms(t *testing.T) {
	s := startServer(t)
	body := func(question, more string) string {
		return `{"messages": [{"role": "user", "content": "` + question + `"}], "max_tokens": 100, "temperature": 0, "tools": [
		{"type": "function", "function": {"name": "add", "description": "Add two numbers.", "strict": true, "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "unit": {"enum": ["m", "km"]}}, "required": ["a", "b", "unit"]}}}],
		"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"animal": {"enum": ["fox", "owl"]}, "name": {"type": "string", "maxLength": 8}}, "required": ["animal", "name"]}}}` + more + "}"
	}
	const question = "What is 120 plus 345?"
	c := s.answer(t, body(question, ""))
	var arguments struct {
		A, B int
		Unit string
	}
	if len(c.Message.Calls) != 1 || c.Message.Content != nil || c.Finish != "tool_calls" ||
		json.Unmarshal([]byte(c.Message.Calls[0].Function.Arguments), &arguments) != nil || arguments.A != 120 || arguments.B != 345 || arguments.Unit != "m" && arguments.Unit != "km" {
		t.Errorf("%+v", c)
	}
	c = s.answer(t, body(`Tell me a story about a brave fox."}, {"role": "assistant", "content": "There once was a brave fox named Rex who lived in a forest."}, {"role": "user", "content": "The facts as JSON.`, ""))
	if c.Message.Content == nil || !strings.HasPrefix(*c.Message.Content, `{"animal":`) || !json.Valid([]byte(*c.Message.Content)) || c.Finish != "stop" {
		t.Errorf("%+v", c)
	}
	if c = s.answer(t, body("What colour is the sky?", `, "tool_choice": "required"`)); len(c.Message.Calls) != 1 || c.Message.Calls[0].Function.Name != "add" {
		t.Errorf("required: %+v", c)
	}
	if c = s.answer(t, body(question, `, "tool_choice": "none"`)); len(c.Message.Calls) != 0 || c.Message.Content == nil {
		t.Errorf("none: %+v", c)
	}
}

// TestToolSchemas: a schema that cannot be held to is refused if the tool is strict, and else any
// object will do.
func TestToolSchemas(t *testing.T) {
	s := startServer(t)
	for strict, want := range map[string]int{"true": 400, "false": 200} {
		status, body := s.do(t, "POST", "/v1/chat/completions", `{"messages": [{"role": "user", "content": "What is 120 plus 345?"}], "max_tokens": 60, "temperature": 0, "tools": [
			{"type": "function", "function": {"name": "sub"}}, {"type": "function", "function": {"name": "add", "strict": `+strict+`, "parameters": {"not": {}}}}]}`)
		if status != want {
			t.Errorf("strict %s: %d %s", strict, status, body)
		}
		if want == 400 {
			if e := apiErrorOf(t, body); e.Param == nil || *e.Param != "tools[1].function.parameters" {
				t.Errorf("%s", body)
			}
		}
	}
}
