package minfer

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// TestArgumentsAreChecked: calls that are written in a way that could not be held to the schema are
// checked before the tool is called.
func TestArgumentsAreChecked(t *testing.T) {
	called := 0
	tool := NewTool("f", "", func(_ context.Context, a struct {
		A int  `json:"a"`
		B *int `json:"b"`
	}) (int, error) {
		called++
		return a.A, nil
	})
	for arguments, want := range map[string]string{
		`{"a": 1, "c": 2}`: `arguments of f: json: unknown field "c"`,
		`{"b": 1}`:         `arguments of f: "a" is missing`,
		`{"a": "x"}`:       "arguments of f: json: cannot unmarshal string",
		`{"a": 1`:          "arguments of f: unexpected EOF",
	} {
		if _, err := tool.call(t.Context(), json.RawMessage(arguments)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", arguments, err, want)
		}
	}
	if called != 0 {
		t.Errorf("called %d times", called)
	}
	if result, err := tool.call(t.Context(), json.RawMessage(`{"a": 1}`)); err != nil || result != "1" {
		t.Errorf("%q, %v", result, err)
	}
}
