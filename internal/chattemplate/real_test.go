package chattemplate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/internal/testfiles"
)

// TestRealModels renders the recorded conversations with the templates inside
// the model files.
func TestRealModels(t *testing.T) {
	records, err := filepath.Glob(filepath.Join(testfiles.Shared(t, "golden", "real"), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		name := strings.TrimSuffix(filepath.Base(record), ".json")
		t.Run(name, func(t *testing.T) {
			f, err := gguf.Open(testfiles.Model(t, name+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			source, err := f.String("tokenizer.chat_template")
			if err != nil {
				t.Fatal(err)
			}
			tmpl, err := Parse(source)
			if err != nil {
				t.Fatal(err)
			}
			checkRecord(t, tmpl, record)
		})
	}
}

func checkRecord(t *testing.T, tmpl *Template, record string) {
	data, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Prompts []struct {
			Name, Text      string
			Messages, Tools json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Prompts {
		if p.Messages == nil {
			continue // a plain text
		}
		vars := NewObject("add_generation_prompt", true)
		for key, raw := range map[string]json.RawMessage{"messages": p.Messages, "tools": p.Tools} {
			if raw == nil {
				continue
			}
			v, err := Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			vars.Set(key, v)
		}
		out, err := tmpl.RenderSpans(context.Background(), vars)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		checkSpans(t, out)
		if out.Text != p.Text {
			t.Errorf("%s: got %s", p.Name, firstDifference(out.Text, p.Text))
		}
	}
}

func ExampleTemplate_RenderSpans() {
	tmpl, err := Parse("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}")
	if err != nil {
		fmt.Println(err)
		return
	}
	vars := NewObject("messages", []any{NewObject("role", "user", "content", "Hi <|end|>")})
	out, err := tmpl.RenderSpans(context.Background(), vars)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out.Text)
	for _, s := range out.Untrusted {
		fmt.Println("untrusted:", out.Text[s.Start:s.End])
	}
	// Output:
	// <|user|>Hi <|end|><|end|>
	// untrusted: Hi <|end|>
}
