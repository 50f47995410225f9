package minfer_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/minfer/minfer"
)

type colour string

func (colour) JSONSchema() json.RawMessage { return json.RawMessage(`{"enum": ["red", "green"]}`) }

type notASchema int

func (notASchema) JSONSchema() json.RawMessage { return json.RawMessage(`[1]`) }

type tree struct {
	Value    int8    `json:"value"`
	Children []tree  `json:"children,omitempty"`
	Parent   *branch `json:"parent"`
}

type branch struct {
	Trees map[string]tree `json:"trees"`
}

type named struct {
	Name string `json:"name" description:"what it is <called>" minLength:"1" maxLength:"12"`
}

type everything struct {
	named
	On      bool            `json:"on"`
	Small   uint8           `json:"small"`
	Large   uint64          `json:"large"`
	Ratio   float32         `json:"ratio" minimum:"0" maximum:"1"`
	Kind    string          `json:"kind" enum:"a,b"`
	Levels  []int           `json:"levels" enum:"1,2" maxItems:"2"`
	Pair    [2]colour       `json:"pair"`
	When    time.Time       `json:"when"`
	Maybe   *named          `json:"maybe"`
	Count   map[colour]int  `json:"count,omitempty"`
	Any     json.RawMessage `json:"any,omitempty"`
	Code    string          `json:",omitzero" pattern:"^[a-z]{2}$"`
	Skipped chan int        `json:"-"`
	hidden  int
}

func TestSchemaOf(t *testing.T) {
	for _, c := range []struct {
		schema func() (json.RawMessage, error)
		want   string
	}{
		{minfer.SchemaOf[everything], `{"type":"object","properties":{` +
			`"name":{"type":"string","description":"what it is <called>","minLength":1,"maxLength":12},"on":{"type":"boolean"},` +
			`"small":{"type":"integer","minimum":0,"maximum":255},"large":{"type":"integer","minimum":0},` +
			`"ratio":{"type":"number","minimum":0,"maximum":1},"kind":{"type":"string","enum":["a","b"]},` +
			`"levels":{"type":"array","items":{"enum":[1,2]},"maxItems":2},` +
			`"pair":{"type":"array","items":{"enum":["red","green"]},"minItems":2,"maxItems":2},` +
			`"when":{"type":"string","format":"date-time"},` +
			`"maybe":{"type":"object","properties":{"name":{"type":"string","description":"what it is <called>","minLength":1,"maxLength":12}},"required":["name"]},` +
			`"count":{"type":"object","additionalProperties":{"type":"integer"}},"any":{},"Code":{"type":"string","pattern":"^[a-z]{2}$"}},` +
			`"required":["name","on","small","large","ratio","kind","levels","pair","when"]}`},
		{minfer.SchemaOf[*[]bool], `{"type":"array","items":{"type":"boolean"}}`},
		{minfer.SchemaOf[json.Number], `{"type":"number"}`},
		{minfer.SchemaOf[struct{}], `{"type":"object","properties":{}}`},
		{minfer.SchemaOf[tree], `{"$ref":"#/$defs/type1","$defs":{"type1":{"type":"object","properties":{` +
			`"value":{"type":"integer","minimum":-128,"maximum":127},"children":{"type":"array","items":{"$ref":"#/$defs/type1"}},` +
			`"parent":{"type":"object","properties":{"trees":{"type":"object","additionalProperties":{"$ref":"#/$defs/type1"}}},"required":["trees"]}},"required":["value"]}}}`},
	} {
		got, err := c.schema()
		if err != nil || string(got) != c.want {
			t.Errorf("%v\n%s\nwant\n%s", err, got, c.want)
		}
	}
}

func TestTypesWithoutASchema(t *testing.T) {
	type embedded struct{ *named }
	type deep struct {
		List []map[string]struct{ Value func() }
	}
	for path, schema := range map[string]func() (json.RawMessage, error){
		"deep.List[]{}.Value": minfer.SchemaOf[deep],
		"error":               minfer.SchemaOf[error],
		"value":               minfer.SchemaOf[[]byte],
		"value.A":             minfer.SchemaOf[struct{ A any }],
		"value.B":             minfer.SchemaOf[struct{ B map[int]string }],
		"value.C": minfer.SchemaOf[struct {
			C int `json:",string"`
		}],
		"value.D":        minfer.SchemaOf[struct{ D complex64 }],
		"embedded.named": minfer.SchemaOf[embedded],
		"notASchema":     minfer.SchemaOf[notASchema],
		"value.F": minfer.SchemaOf[struct {
			F int `enum:"1,x"`
		}],
		"value.G": minfer.SchemaOf[struct {
			G int `minimum:"low"`
		}],
		"value.H": minfer.SchemaOf[struct {
			named
			H int `json:"name"`
		}],
		"Location":  minfer.SchemaOf[time.Location],
		"Regexp[]":  minfer.SchemaOf[[]reflect.Method],
		"value[].I": minfer.SchemaOf[[]struct{ I uintptr }],
	} {
		_, err := schema()
		var e *minfer.TypeError
		if path == "Location" {
			if err != nil {
				t.Error(err) // it has no exported fields, so it is empty
			}
			continue
		}
		if !errors.Is(err, minfer.ErrType) || !errors.As(err, &e) || path != "Regexp[]" && e.Path != path {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Whatever a model says under the schema of a type is decoded into it.
func TestGenerateAnything(t *testing.T) {
	type numbers struct {
		A int8    `json:"a"`
		B uint16  `json:"b"`
		C int64   `json:"c"`
		D uint64  `json:"d"`
		E float32 `json:"e"`
		F float64 `json:"f"`
	}
	m := openStoryteller(t)
	complete := 0
	for seed := range uint64(8) {
		opts := []minfer.GenerateOption{minfer.Seed(seed), minfer.Temperature(3), minfer.TopK(0), minfer.TopP(1), minfer.MaxTokens(300)}
		n, err := minfer.Generate[numbers](context.Background(), newSession(t, m), "Go.", opts...)
		if errors.Is(err, minfer.ErrIncomplete) {
			continue
		}
		if err != nil || math.IsInf(n.F, 0) {
			t.Errorf("seed %d: %+v %v", seed, n, err)
		}
		complete++
		e, err := minfer.Generate[everything](context.Background(), newSession(t, m), "Go.", opts...)
		if errors.Is(err, minfer.ErrIncomplete) {
			continue
		}
		if err != nil || e.Name == "" || e.Kind != "a" && e.Kind != "b" || e.Ratio < 0 || e.Ratio > 1 {
			t.Errorf("seed %d: %+v %v", seed, e, err)
		}
	}
	if complete == 0 {
		t.Error("no answer was complete")
	}
}

type storyFacts struct {
	Name   string `json:"name"`
	Animal string `json:"animal"`
	Place  string `json:"place"`
	Found  string `json:"found"`
	Helper string `json:"helper"`
}

func TestGenerate(t *testing.T) {
	m := openStoryteller(t)
	chat := newSession(t, m).Chat()
	story := mustRead(t, chat.Say(context.Background(), "Tell me a story about a brave fox.", minfer.Temperature(0)))
	f, err := minfer.Generate[storyFacts](context.Background(), chat, "The facts as JSON.", minfer.Temperature(0))
	if err != nil {
		t.Fatal(err)
	}
	if f.Animal != "fox" || !strings.Contains(story.text, f.Name) || !strings.Contains(story.text, f.Helper) {
		t.Errorf("%+v\n%s", f, story.text)
	}
	var e *minfer.IncompleteError
	_, err = minfer.Generate[storyFacts](context.Background(), chat, "The facts as JSON.", minfer.MaxTokens(4))
	if !errors.Is(err, minfer.ErrIncomplete) || !errors.As(err, &e) || e.Finish != minfer.FinishedLength || e.Text == "" {
		t.Errorf("%v", err)
	}
	before := len(chat.Messages())
	if _, err = minfer.Generate[func()](context.Background(), chat, "Hello"); !errors.Is(err, minfer.ErrType) || len(chat.Messages()) != before {
		t.Errorf("%v", err)
	}
}
