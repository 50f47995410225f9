package main

import (
	"errors"
	"path/filepath"
	"strings"
)

// errExit ends the conversation.
var errExit = errors.New("exit")

const help = `/regen        give the last answer again, differently
/clear        forget the conversation, but for the system message
/system TEXT  set the system message; without TEXT show it; with - remove it
/history      show the conversation
/thoughts     show what the model thought before its last answer
/fold         show thoughts as they come, or only that there are some
/stats        tokens, speed and memory
/save         keep the conversation in the file of -session now
/exit         leave; so do Ctrl+D, and Ctrl+C twice
Alt+Enter begins a new line; a line that ends with \ goes on in the next one. Ctrl+C stops an
answer.`

// command runs a command, or returns the answer that the line asks for, if any.
func (c *conversation) command(text string) (turn, error) {
	name, argument, _ := strings.Cut(strings.TrimSpace(text), " ")
	argument = strings.TrimSpace(argument)
	switch {
	case name == "":
		return nil, nil
	case name == "/regen":
		return c.regenerate(), nil
	case name == "/clear":
		c.chat.Clear()
		c.notes.say("[the conversation is forgotten]")
	case name == "/system":
		c.system(argument)
	case name == "/history":
		c.history()
	case name == "/thoughts":
		c.notes.say("%s", c.lastThoughts())
	case name == "/fold":
		c.thoughts.folded = !c.thoughts.folded
		c.notes.say("%s", map[bool]string{true: "[thoughts are folded]", false: "[thoughts are shown]"}[c.thoughts.folded])
	case name == "/save":
		return nil, c.saveNow()
	case name == "/stats":
		c.notes.say("%s", c.stats())
	case name == "/help":
		c.notes.say("%s", help)
	case name == "/exit":
		return nil, errExit
	case isCommand(name):
		c.notes.say("[%s is no command; /help lists them]", name)
	default:
		return c.say(text), nil
	}
	return nil, nil
}

// isCommand tells a mistyped command from text such as "/etc/hosts".
func isCommand(word string) bool {
	rest, slash := strings.CutPrefix(word, "/")
	return slash && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz") == ""
}

func (c *conversation) regenerate() turn {
	for _, m := range c.chat.Messages() {
		if m.Role == "user" {
			return c.chat.Regenerate
		}
	}
	c.notes.say("[there is no answer yet]")
	return nil
}

func (c *conversation) history() {
	for _, m := range c.chat.Messages() {
		c.notes.say("%s: %s", m.Role, harmless(strings.TrimSpace(m.Content)))
	}
}

func (c *conversation) lastThoughts() string {
	if text := harmless(strings.TrimSpace(c.thoughts.text.String())); text != "" {
		return text
	}
	return "[there are no thoughts]"
}

// saveNow keeps the conversation before its end.
func (c *conversation) saveNow() error {
	switch {
	case c.settings.session == "":
		c.notes.say("[there is no file to save to; -session FILE names one]")
	case c.answers == 0:
		c.notes.say("[there is nothing new]")
	default:
		if err := c.save(); err != nil {
			return err
		}
		c.notes.say("[saved]")
	}
	return nil
}

func (c *conversation) system(text string) {
	switch text {
	case "":
		if messages := c.chat.Messages(); len(messages) > 0 && messages[0].Role == "system" {
			c.notes.say("[system message: %s]", messages[0].Content)
		} else {
			c.notes.say("[there is no system message]")
		}
	case "-":
		c.chat.SetSystem("")
		c.notes.say("[the system message is removed]")
	default:
		c.chat.SetSystem(text)
		c.notes.say("[the system message is set]")
	}
}

// name is what the model calls itself, or else its file.
func (c *conversation) name() string {
	if name := c.model.Info().Name; name != "" {
		return harmless(name)
	}
	return filepath.Base(c.settings.model)
}

// contextUsed is how many tokens the conversation takes. The session may still hold the
// tokens of one that was cleared, in case the next begins alike.
func (c *conversation) contextUsed() int {
	for _, m := range c.chat.Messages() {
		if m.Role != "system" {
			return c.session.Len()
		}
	}
	return 0
}

func (c *conversation) stats() string {
	var b strings.Builder
	info, cache, s := c.model.Info(), c.session.Cache().Stats(), c.settings.sampling
	row(&b, "model", "%s, %s, %s weights, %s, on %s", c.name(), info.Architecture, count(info.Parameters), size(info.Bytes), strings.Join(info.Devices, ", "))
	row(&b, "context", "%d of %d tokens", c.contextUsed(), c.session.Context())
	if c.answers > 0 {
		row(&b, "last", "%s", speed(c.session.Usage()))
		row(&b, "all", "%s", speed(c.total))
		row(&b, "answers", "%d", c.answers)
	}
	row(&b, "memory", "%s besides the weights", size(uint64(cache.Bytes)))
	row(&b, "graphs", "%d built, %d runs of one that was there", cache.Built, cache.Reused)
	row(&b, "sampling", "temperature %v, top-k %d, top-p %v, min-p %v, seed %d", s.Temperature, s.TopK, s.TopP, s.MinP, s.Seed)
	return strings.TrimSuffix(b.String(), "\n")
}
