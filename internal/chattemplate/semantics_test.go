package chattemplate

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestSemantics compares with jinja2 3.1.6 on CPython 3.11: operators, filters,
// tests, methods, slices, formats, white space, on values of every type.
// testdata/semantics.json pairs each template with its text, null where it fails.
func TestSemantics(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "semantics.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vars    json.RawMessage `json:"vars"`
		Results [][2]*string    `json:"results"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	vars := jsonObject(t, file.Vars)
	for _, pair := range file.Results {
		source, want := *pair[0], pair[1]
		tmpl, err := Parse(source)
		var out Output
		if err == nil {
			out, err = tmpl.RenderSpans(context.Background(), vars)
		}
		checkSpans(t, out)
		switch {
		case want == nil && err == nil:
			t.Errorf("%q: got %q, want an error", source, out.Text)
		case want != nil && err != nil:
			t.Errorf("%q: %v", source, err)
		case want != nil && out.Text != *want:
			t.Errorf("%q:\n got %q\nwant %q", source, out.Text, *want)
		}
	}
}
