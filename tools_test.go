package minfer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/minfer/minfer"
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
		if u := s.Usage(); u.Cached < u.Prompt {
			t.Errorf("%s: of the second turn's prompt %d tokens were cached and %d not", c.question, u.Cached, u.Prompt)
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
