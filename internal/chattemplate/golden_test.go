package chattemplate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/minfer/minfer/internal/testfiles"
)

func jsonObject(t testing.TB, data []byte) *Object {
	t.Helper()
	v, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := v.(*Object)
	if !ok {
		t.Fatalf("decoded a %T", v)
	}
	return o
}

// goldenClock is the time of the golden renderings.
func goldenClock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// TestGoldenTemplates renders 70 templates in wide use over 12 conversations;
// each text must equal transformers', and each of its failures must fail.
func TestGoldenTemplates(t *testing.T) {
	templates := testfiles.Oracle(t, "headers", "models", "templates")
	data, err := os.ReadFile(testfiles.Shared(t, "golden", "templates", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		BOS     string                     `json:"bos_token"`
		EOS     string                     `json:"eos_token"`
		Cases   map[string]json.RawMessage `json:"cases"`
		Results map[string]map[string]struct {
			Text  *string `json:"text"`
			Error string  `json:"error"`
		} `json:"results"`
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	texts, failures := 0, 0
	for name, cases := range golden.Results {
		source, err := os.ReadFile(filepath.Join(templates, name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := Parse(string(source), WithClock(goldenClock))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for caseName, want := range cases {
			vars := jsonObject(t, golden.Cases[caseName])
			vars.Set("bos_token", Trusted(golden.BOS))
			vars.Set("eos_token", Trusted(golden.EOS))
			out, err := tmpl.RenderSpans(context.Background(), vars)
			switch {
			case want.Text == nil:
				failures++
				var re *RenderError
				if !errors.As(err, &re) || errors.Is(err, ErrLimit) {
					t.Errorf("%s, %s: error %v, want one like %q", name, caseName, err, want.Error)
				}
			case err != nil:
				t.Errorf("%s, %s: %v", name, caseName, err)
			case out.Text != *want.Text:
				t.Errorf("%s, %s: got %s", name, caseName, firstDifference(out.Text, *want.Text))
			default:
				texts++
				checkSpans(t, out)
			}
		}
	}
	if texts != 775 || failures != 65 {
		t.Errorf("%d texts equal and %d failures, want 775 and 65", texts, failures)
	}
}

// firstDifference quotes both texts around where they part.
func firstDifference(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	cut := func(s string) string { return s[max(0, i-60):min(len(s), i+100)] }
	q := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	return q(cut(got)) + "\nwant " + q(cut(want))
}

func checkSpans(t testing.TB, out Output) {
	t.Helper()
	end := 0
	for i, s := range out.Untrusted {
		if s.Start < end || i > 0 && s.Start == end || s.End <= s.Start || s.End > len(out.Text) {
			t.Fatalf("span %d of %v is out of order in a text of %d bytes", i, out.Untrusted, len(out.Text))
		}
		end = s.End
	}
}
