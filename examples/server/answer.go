package main

import (
	"crypto/rand"
	"strings"

	"github.com/minfer/minfer"
)

// answer turns the pieces of a choice into what the API has for it: reasoning, text, calls of
// tools.
type answer struct {
	server    *server
	think     *minfer.ReasoningSplitter // nil behind the reasoning
	calls     *minfer.ToolParser        // nil if no tools were offered
	one       bool                      // only one call is wanted
	complete  int                       // calls that are complete
	reasoning int                       // tokens of reasoning
	finish    minfer.FinishReason
}

// delta is a further part of an answer.
type delta struct {
	reasoning string
	content   string
	call      *callDelta
}

// callDelta is a further part of a call.
type callDelta struct {
	index     int
	id, name  string // only at the beginning
	arguments string
	undone    bool // the call turned out to be none, and comes as content
}

// newAnswer prepares for a choice of an answer to a prompt. What the answer was made to begin
// with is taken as if the model had said it.
func (s *server) newAnswer(q *chatRequest, prompt, forced string) *answer {
	a := &answer{server: s, think: minfer.NewReasoningSplitter(prompt), one: !q.parallel || q.choice.name != ""}
	tools := q.offered()
	if len(tools) == 0 {
		return a
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.name)
	}
	a.calls = minfer.NewToolParser(s.format, names)
	if forced != "" {
		a.think = nil
		a.calls.Push(forced) // which ends before anything that there would be an event for
	}
	return a
}

// push takes a piece and returns what is new. A choice that has said enough is cut short.
func (a *answer) push(p piece) (new []delta, enough bool) {
	reasoning, content := "", p.text
	if a.think != nil {
		reasoning, content = a.think.Push(p.text)
	}
	if reasoning != "" || a.think != nil && a.think.Thinking() {
		a.reasoning++
	}
	new = a.add(new, reasoning, content)
	if p.finish != minfer.NotFinished {
		a.finish = p.finish
		return a.end(new), true
	}
	if a.one && a.complete > 0 {
		a.finish = minfer.FinishedTurn
		return new, true
	}
	return new, false
}

func (a *answer) end(new []delta) []delta {
	if a.think != nil {
		reasoning, content := a.think.Finish()
		new = a.add(new, reasoning, content)
	}
	if a.calls != nil {
		new = a.addEvents(new, a.calls.Finish())
	}
	return new
}

func (a *answer) add(new []delta, reasoning, content string) []delta {
	if reasoning != "" {
		new = append(new, delta{reasoning: reasoning})
	}
	if content == "" {
		return new
	}
	if a.calls == nil {
		return append(new, delta{content: content})
	}
	return a.addEvents(new, a.calls.Push(content))
}

func (a *answer) addEvents(new []delta, events []minfer.ToolEvent) []delta {
	for _, e := range events {
		if a.one && a.complete > 0 {
			break
		}
		switch e.Kind {
		case minfer.ToolText:
			new = append(new, delta{content: e.Text})
		case minfer.ToolBegin:
			new = append(new, delta{call: &callDelta{index: e.Index, id: "call_" + randomID(), name: e.Text}})
		case minfer.ToolArguments:
			new = append(new, delta{call: &callDelta{index: e.Index, arguments: e.Text}})
		case minfer.ToolEnd:
			a.complete++
		case minfer.ToolMalformed:
			a.server.log.Warn("malformed tool call, given back as text", "error", e.Err, "text", e.Text)
			a.server.metrics.malformed.Add(1)
			if e.Index >= 0 {
				new = append(new, delta{call: &callDelta{index: e.Index, undone: true}})
			}
			new = append(new, delta{content: e.Text})
		}
	}
	return new
}

// reason is why the answer ended, in the API's words.
func (a *answer) reason() string {
	if reason := finishReason(a.finish); reason != "stop" || a.complete == 0 {
		return reason
	}
	return "tool_calls"
}

func finishReason(r minfer.FinishReason) string {
	if r == minfer.FinishedLength || r == minfer.FinishedContext {
		return "length"
	}
	return "stop"
}

// randomID is the part of an identifier that makes it unique.
func randomID() string { return strings.ToLower(rand.Text()) }
