package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"unicode"

	"github.com/minfer/minfer"
)

// conversation is a chat on a session of its own, with what the commands need.
type conversation struct {
	settings *settings
	model    *minfer.Model
	session  *minfer.Session
	chat     *minfer.Chat
	stdout   io.Writer
	terminal bool // the answers go to one
	notes    *notes
	answers  int          // given so far
	total    minfer.Usage // of all answers
}

func openConversation(s *settings, stdout io.Writer, notes *notes) (*conversation, error) {
	model, err := s.open(notes)
	if err != nil {
		return nil, explain(err)
	}
	session, err := model.NewSession(s.sessionOptions()...)
	if err != nil {
		return nil, errors.Join(err, model.Close())
	}
	return &conversation{
		settings: s, model: model, session: session, chat: session.Chat(s.chatOptions()...),
		stdout: stdout, terminal: isTerminal(stdout), notes: notes,
	}, nil
}

// close frees the model and, with it, the session.
func (c *conversation) close() { c.model.Close() }

// ask answers one question.
func (c *conversation) ask(question string) error {
	if c.settings.model == "" {
		c.notes.say("The storyteller answers, a 3 MB model that knows stories; -m MODEL.gguf takes another.")
	}
	err := c.answer(c.say(question))
	if c.answers > 0 {
		c.notes.say("%s", speed(c.session.Usage()))
	}
	return c.explain(err)
}

// turn is an answer that has not begun: a method of the chat that lacks its context and
// options.
type turn func(context.Context, ...minfer.GenerateOption) iter.Seq2[minfer.Piece, error]

func (c *conversation) say(message string) turn {
	return func(ctx context.Context, options ...minfer.GenerateOption) iter.Seq2[minfer.Piece, error] {
		return c.chat.Say(ctx, message, options...)
	}
}

// answer streams an answer until it ends or Ctrl+C stops it; what was said up to then stays
// part of the conversation.
func (c *conversation) answer(begin turn) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	finish, begun, err := c.stream(begin(ctx, c.generateOptions()...))
	if begun {
		c.count(c.session.Usage())
	}
	if err != nil {
		return err
	}
	switch finish {
	case minfer.FinishedLength:
		c.notes.say("[stopped after %d tokens, which is -n]", c.settings.maxTokens)
	case minfer.FinishedContext:
		c.notes.say("[stopped: the context of %d tokens is full%s]", c.session.Context(), c.moreRoom())
	}
	return nil
}

// explain is explain, with the counts of a full context.
func (c *conversation) explain(err error) error {
	var full *minfer.ContextError
	if errors.As(err, &full) {
		return fmt.Errorf("no answer: the conversation takes %d tokens and the context holds %d%s", full.Have+full.More, full.Context, c.moreRoom())
	}
	return explain(err)
}

// moreRoom says what helps against a full context.
func (c *conversation) moreRoom() string {
	var ways []string
	if c.settings.prompt == "" {
		ways = append(ways, "/clear begins anew")
	}
	if trained := c.model.Info().ContextLength; trained > c.session.Context() {
		ways = append(ways, fmt.Sprintf("-ctx makes room for up to %d", trained))
	}
	if len(ways) == 0 {
		return ""
	}
	return "; " + strings.Join(ways, ", ")
}

// stream prints the pieces of an answer, and says whether there were any. Thoughts are notes.
func (c *conversation) stream(pieces iter.Seq2[minfer.Piece, error]) (finish minfer.FinishReason, begun bool, err error) {
	last, thinking := "", false
	defer func() {
		if thinking {
			c.notes.say("")
		}
		if begun && !strings.HasSuffix(last, "\n") {
			_, e := io.WriteString(c.stdout, "\n")
			err = errors.Join(err, e)
		}
	}()
	for piece, err := range pieces {
		if err != nil {
			return finish, begun, err
		}
		begun, finish = true, piece.Finish
		text := piece.Text
		if c.terminal {
			text = harmless(text)
		}
		if text == "" {
			continue
		}
		if piece.Reasoning {
			c.notes.write(text)
			thinking = true
			continue
		}
		if thinking {
			c.notes.say("\n")
			thinking = false
		}
		last = text
		if _, err := io.WriteString(c.stdout, text); err != nil {
			return finish, begun, err
		}
	}
	return finish, begun, nil
}

// harmless is text without the control characters by which a terminal is steered: a model
// may say anything.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// generateOptions gives each answer a seed of its own, so that /regen gives another
// answer and the same command line the same conversation.
func (c *conversation) generateOptions() []minfer.GenerateOption {
	sampling := c.settings.sampling
	sampling.Seed += uint64(c.answers)
	return []minfer.GenerateOption{minfer.WithSampling(sampling), minfer.MaxTokens(c.settings.maxTokens)}
}

func (c *conversation) count(u minfer.Usage) {
	c.answers++
	c.total.Cached += u.Cached
	c.total.Prompt += u.Prompt
	c.total.Generated += u.Generated
	c.total.PromptTime += u.PromptTime
	c.total.GenerateTime += u.GenerateTime
}

// converse reads messages and commands until there are no more.
func (c *conversation) converse(lines lineReader) error {
	defer lines.Close()
	if lines.Interactive() {
		// A Ctrl+C between an answer and the prompt goes here instead of ending the program.
		stray := make(chan os.Signal, 1)
		signal.Notify(stray, os.Interrupt)
		defer signal.Stop(stray)
	}
	c.welcome()
	for {
		text, err := readMessage(lines)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := c.handle(text, lines.Interactive()); errors.Is(err, errExit) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (c *conversation) welcome() {
	if c.settings.model == "" {
		c.notes.say("%s", storytellerWelcome)
		return
	}
	info := c.model.Info()
	c.notes.say("%s, %s, %s weights, on %s. /help lists the commands.", c.name(), info.Architecture, count(info.Parameters), strings.Join(info.Devices, ", "))
}

const storytellerWelcome = `You are talking with the storyteller: a very small model, embedded in this program. It tells
stories about animals and answers questions about them, counts, adds small numbers, and knows
colours, sounds, opposites, days and months. Try:
    Tell me a story about a brave fox.
    Where did he live?
    What is 3 + 4?
For a model that knows more, name the GGUF file of an instruct model of the Qwen2, Qwen3, Llama or
SmolLM2 family, or where on Hugging Face it is to be downloaded from, 500 MB in this case:
    chat -m MODEL.gguf
    chat -m hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:qwen2.5-0.5b-instruct-q4_k_m.gguf
/help lists the commands.
`

// handle does what a line asks for. Only errors that end the conversation are returned.
func (c *conversation) handle(text string, interactive bool) error {
	begin, err := c.command(text)
	if err != nil || begin == nil {
		return err
	}
	before := c.answers
	err = c.answer(begin)
	switch {
	case errors.Is(err, context.Canceled):
		c.notes.say("[stopped]")
	case errors.Is(err, minfer.ErrContextFull):
		c.notes.say("[%v]", c.explain(err))
	case err != nil:
		return c.explain(err)
	}
	if interactive && c.answers > before {
		c.notes.say("%s\n", speed(c.session.Usage()))
	}
	return nil
}

// readMessage reads a line, and more of them while they end with a backslash.
func readMessage(lines lineReader) (string, error) {
	var parts []string
	for {
		prompt := firstPrompt
		if len(parts) > 0 {
			prompt = nextPrompt
		}
		line, err := lines.ReadLine(prompt)
		if errors.Is(err, errInterrupted) {
			parts = nil // Ctrl+C throws away what was written
			continue
		} else if err != nil {
			return "", err
		}
		rest, more := strings.CutSuffix(line, `\`)
		parts = append(parts, rest)
		if !more {
			return strings.Join(parts, "\n"), nil
		}
	}
}
