package minfer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/internal/testfiles"
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

// TestThoughtsLeaveHistory has the template of Qwen3, which strips the thoughts of earlier answers.
// Each turn evaluates the last answer without its thoughts and the new message, and nothing of what
// came before.
func TestThoughtsLeaveHistory(t *testing.T) {
	path := testfiles.Oracle(t, "headers", "models", "templates", "Qwen-Qwen3-0.6B.jinja")
	m := openStoryteller(t, minfer.WithChatTemplate(string(readFile(t, path))))
	chat := newSession(t, m).Chat(minfer.System("You are kind, and you know stories about animals."))
	count := func(text string) int { return len(encode(t, m, text)) }
	const thoughts = "<think>\nHm, what do I know of the sky?\n</think>\n\n"
	before := 0
	for i, answer := range []string{"Blue.", "The sky is blue.", "Blue, I think.", "It is blue.", "Blue!"} {
		const question = "What colour is the sky?"
		a := mustRead(t, chat.Say(t.Context(), question, hold(thoughts+answer)))
		u := chat.Session().Usage()
		if i > 0 {
			last := chat.Messages()[2*i].Content
			_, said, _ := strings.Cut(last, "</think>\n\n")
			want := count(said + "<|im_end|>\n<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n")
			if u.Prompt > want || u.Cached != before {
				t.Errorf("turn %d: %d tokens evaluated and %d kept, want at most %d and %d", i, u.Prompt, u.Cached, want, before)
			}
		}
		before = u.Cached + u.Prompt // up to where the thoughts begin
		tokens := chat.Session().Tokens()
		b := mustRead(t, newSession(t, m).GenerateTokens(t.Context(), tokens[:len(tokens)-len(a.tokens)], hold(thoughts+answer)))
		if diff := cmp.Diff(b.tokens, a.tokens); diff != "" {
			t.Errorf("turn %d: the answer differs from a fresh session's (-want +got):\n%s", i, diff)
		}
	}
}
