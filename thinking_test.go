package minfer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/minfer/minfer"
)

// thinker is the storyteller's template with an answer that begins within thoughts.
func thinker(t testing.TB, begin string) *minfer.Model {
	source := openStoryteller(t).ChatTemplate()
	source = strings.Replace(source, `{{- '<|im_start|>assistant\n' }}`, `{{- '<|im_start|>assistant\n`+begin+`' }}{#- <think> #}`, 1)
	return openStoryteller(t, minfer.WithChatTemplate(source))
}

// hold is a constraint by which the storyteller writes what a thinking model would.
func hold(text string) minfer.GenerateOption {
	return minfer.WithGrammar("root ::= " + strings.ReplaceAll(string(mustJSON(text)), `\u003c`, "<"))
}

func TestReasoning(t *testing.T) {
	for _, c := range []struct{ begin, answer, thoughts, text string }{
		{"", "<think>\nHm, the sky.\n</think>\n\nBlue.", "Hm, the sky.", "Blue."},
		{"<think>\\n", "Hm.</think>Blue.", "Hm.", "Blue."},
		{"<think>\\n", "Hm, for ever", "Hm, for ever", ""},
		{"", "No <think>thoughts</think>.", "", "No <think>thoughts</think>."},
	} {
		m := thinker(t, c.begin)
		chat := newSession(t, m).Chat()
		var thoughts, text string
		tokens := 0
		for p, err := range chat.Say(context.Background(), "What colour is the sky?", hold(c.answer)) {
			if err != nil {
				t.Fatal(err)
			}
			if p.Reasoning {
				thoughts += p.Text
			} else {
				text += p.Text
			}
			if p.Token != minfer.NoToken {
				tokens++
			}
		}
		if thoughts != c.thoughts || text != c.text {
			t.Errorf("%q: thoughts %q, text %q", c.answer, thoughts, text)
		}
		if u := chat.Session().Usage(); tokens != u.Generated {
			t.Errorf("%q: %d tokens in pieces, %d generated", c.answer, tokens, u.Generated)
		}
		if said := chat.Messages()[1].Content; said != c.answer {
			t.Errorf("%q is in the conversation as %q", c.answer, said)
		}
	}
}

// A model whose template knows of no thoughts has none.
func TestNoReasoning(t *testing.T) {
	const answer = "<think>Hm.</think>Blue."
	a := mustRead(t, newSession(t, openStoryteller(t)).Chat().Say(context.Background(), "Sky?", hold(answer)))
	if a.text != answer {
		t.Errorf("%q", a.text)
	}
}
