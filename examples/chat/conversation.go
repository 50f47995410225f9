package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/signal"
	"strings"

	"github.com/minfer/minfer"
)

// conversation is a chat on a session of its own, with what the commands need.
type conversation struct {
	settings *settings
	model    *minfer.Model
	session  *minfer.Session
	chat     *minfer.Chat
	screen   *screen // for answers
	notes    *notes
	status   *status
	thoughts *thoughts
	answers  int          // given so far
	total    minfer.Usage // of all answers
}

func openConversation(s *settings, stdout io.Writer, notes *notes) (*conversation, error) {
	model, err := s.open(notes)
	if err != nil {
		return nil, explain(err)
	}
	status := newStatus(notes)
	c := &conversation{
		settings: s, model: model, screen: newScreen(stdout), notes: notes, status: status,
		thoughts: &thoughts{notes: notes, status: status, folded: s.fold},
	}
	if err := c.begin(); err != nil {
		return nil, errors.Join(c.explain(err), model.Close())
	}
	return c, nil
}

// begin makes the chat, or takes up the saved one.
func (c *conversation) begin() (err error) {
	s := c.settings
	options := s.chatOptions()
	options = append(options, minfer.DropOldest(s.room(c.model.Info()), c.dropped))
	if s.session != "" {
		c.chat, err = c.model.RestoreChatFile(s.session, s.sessionOptions(), options...)
		if err == nil {
			c.session = c.chat.Session()
			if s.system != "" {
				c.chat.SetSystem(s.system)
			}
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", s.session, err)
		}
	}
	if c.session, err = c.model.NewSession(s.sessionOptions()...); err != nil {
		return err
	}
	c.chat = c.session.Chat(options...)
	return nil
}

// save keeps the conversation, if it is to be kept.
func (c *conversation) save() error {
	if c.settings.session == "" || c.answers == 0 {
		return nil
	}
	return c.chat.SaveFile(c.settings.session)
}

// dropped says that the beginning of the conversation is gone.
func (c *conversation) dropped(messages []minfer.Message) {
	c.status.clear()
	turns := 0
	for _, m := range messages {
		if m.Role == "user" {
			turns++
		}
	}
	what := "question and its answer"
	if turns > 1 {
		what = fmt.Sprintf("%d questions and their answers", turns)
	}
	c.notes.say("[the context of %d tokens is full: the oldest %s are forgotten%s]", c.session.Context(), what, c.moreRoom())
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
	return errors.Join(c.explain(err), c.save())
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
		c.notes.say("[stopped after %s, which is -n]", tokens(c.settings.maxTokens))
	case minfer.FinishedContext:
		c.notes.say("[stopped: the context of %d tokens is full%s]", c.session.Context(), c.moreRoom())
	}
	return nil
}

// explain is explain, with the counts of a full context.
func (c *conversation) explain(err error) error {
	var full *minfer.ContextError
	if errors.As(err, &full) {
		return fmt.Errorf("no answer: the message takes %d tokens and the context holds %d%s", full.Have+full.More, full.Context, c.moreRoom())
	}
	return explain(err)
}

// moreRoom says what helps against a full context.
func (c *conversation) moreRoom() string {
	if trained := c.model.Info().ContextLength; trained > c.session.Context() {
		return fmt.Sprintf("; -ctx makes room for up to %d", trained)
	}
	return ""
}

// stream shows the pieces of an answer, and says whether there were any. Thoughts are apart.
func (c *conversation) stream(pieces iter.Seq2[minfer.Piece, error]) (finish minfer.FinishReason, begun bool, err error) {
	c.status.begin()
	c.thoughts.begin()
	defer func() {
		c.status.clear()
		c.thoughts.end()
		err = errors.Join(err, c.screen.end())
	}()
	for piece, err := range pieces {
		if err != nil {
			return finish, begun, err
		}
		begun, finish = true, piece.Finish
		switch {
		case piece.Reasoning && piece.Text != "":
			c.thoughts.add(piece.Text)
		case piece.Text != "":
			c.status.clear()
			c.thoughts.end()
			if err := c.screen.write(piece.Text); err != nil {
				return finish, begun, err
			}
		}
	}
	return finish, begun, nil
}

// generateOptions gives each answer a seed of its own, so that /regen gives another
// answer and the same command line the same conversation.
func (c *conversation) generateOptions() []minfer.GenerateOption {
	sampling := c.settings.sampling
	sampling.Seed += uint64(c.answers)
	return []minfer.GenerateOption{
		minfer.WithSampling(sampling), minfer.MaxTokens(c.settings.maxTokens),
		minfer.OnPromptProgress(func(done, total int) { c.status.show("reading: %d of %s", done, tokens(total)) }),
	}
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
		if err == nil {
			err = c.handle(text, lines.Interactive())
		}
		if errors.Is(err, io.EOF) || errors.Is(err, errExit) {
			return c.save()
		} else if err != nil {
			return errors.Join(err, c.save())
		}
	}
}

func (c *conversation) welcome() {
	if c.settings.model == "" {
		c.notes.say("%s", storytellerWelcome)
	} else {
		info := c.model.Info()
		c.notes.say("%s, %s, %s weights, on %s. /help lists the commands.", c.name(), info.Architecture, count(info.Parameters), strings.Join(info.Devices, ", "))
	}
	questions := 0
	for _, m := range c.chat.Messages() {
		if m.Role == "user" {
			questions++
		}
	}
	if questions > 0 {
		c.notes.say("[goes on with %s: %s so far; /history shows the conversation]", c.settings.session, counted(questions, "question", "questions"))
	}
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
