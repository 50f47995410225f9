package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/minfer/minfer"
)

// job is what a request has to have generated: a number of choices for each prompt.
type job struct {
	params
	prompts [][]minfer.Token
	options []minfer.GenerateOption // beside those of params
	tools   []tool                  // that may be called
	// begin is called before the first piece comes, when all that could be refused of the
	// request has been.
	begin func() error
	// emit is given what is generated, by one goroutine at a time. The choices come mixed. An
	// error ends the job; errEnough ends only the choice.
	emit func(choice int, p piece) error
}

// piece is a piece of an answer.
type piece struct {
	text   string
	token  minfer.Token  // minfer.NoToken for a piece without one
	probs  *tokenProbs   // if asked for
	prompt []*tokenProbs // of the prompt's tokens, in a piece of their own, if asked for
	finish minfer.FinishReason
}

// errEnough ends a choice that has said all that is wanted of it.
var errEnough = errors.New("enough")

// counts is what a job took, in tokens.
type counts struct {
	prompt, cached, generated int
}

// generate does a job. It waits for one slot and uses more of them if they are idle.
func (s *server) generate(ctx context.Context, j *job) (counts, error) {
	for _, prompt := range j.prompts {
		if most := s.settings.context; len(prompt) >= most {
			return counts{}, contextExceeded(len(prompt), most)
		}
	}
	queued := time.Now()
	first, err := s.pool.acquire(ctx, j.prompts[0])
	if err != nil {
		return counts{}, err
	}
	slots := []*slot{first}
	defer func() {
		for _, slot := range slots {
			s.pool.release(slot)
		}
	}()
	s.metrics.queueTime.observe(time.Since(queued))
	r := &running{server: s, job: j, tasks: make(chan int, len(j.prompts)*j.choices)}
	r.ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	for i := range cap(r.tasks) {
		r.tasks <- i
	}
	close(r.tasks)
	if cap(r.tasks) > 1 {
		// All choices of the first prompt share what is evaluated of it.
		if err := r.evaluate(first); err != nil {
			return r.counts, err
		}
		more := s.pool.more(cap(r.tasks) - 1)
		slots = append(slots, more...)
		for _, slot := range more {
			if err := s.pool.copySlot(slot, first); err != nil {
				return r.counts, err
			}
		}
	}
	var wait sync.WaitGroup
	for _, slot := range slots {
		wait.Add(1)
		go func() {
			defer wait.Done()
			r.work(slot)
		}()
	}
	wait.Wait()
	s.metrics.count(r.counts)
	return r.counts, r.err
}

// running is a job under way.
type running struct {
	server *server
	job    *job
	ctx    context.Context
	cancel context.CancelFunc
	tasks  chan int // choices that have not begun

	mu     sync.Mutex
	counts counts
	seen   map[int]bool // prompts that are counted
	begun  bool         // the client has been told
	err    error        // the first
}

// work does tasks until there are no more.
func (r *running) work(slot *slot) {
	defer func() {
		if v := recover(); v != nil {
			r.fail(fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	for choice := range r.tasks {
		if err := r.choice(slot, choice); err != nil {
			r.fail(err)
			return
		}
	}
}

func (r *running) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		r.cancel()
	}
}

// evaluate makes the slot hold the first prompt, and counts it.
func (r *running) evaluate(slot *slot) error {
	tokens := r.job.prompts[0]
	begun := time.Now()
	kept, err := slot.session.SetTokens(r.ctx, tokens)
	if err != nil {
		return err
	}
	r.countPrompt(0, len(tokens), kept, time.Since(begun))
	return nil
}

// countPrompt counts a prompt, which is what its first choice took.
func (r *running) countPrompt(prompt, tokens, kept int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = make(map[int]bool)
	}
	if !r.seen[prompt] {
		r.seen[prompt] = true
		r.counts.prompt += tokens
		r.counts.cached += kept
		r.server.metrics.promptTime.observe(took)
	}
}

// choice generates one choice.
func (r *running) choice(slot *slot, choice int) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	j := r.job
	prompt := j.prompts[choice/j.choices]
	if j.score {
		if err := r.score(slot, choice, prompt); err != nil {
			return err
		}
	}
	if j.nothing {
		r.countPrompt(choice/j.choices, len(prompt), 0, 0)
		return r.emit(choice, piece{token: minfer.NoToken, finish: minfer.FinishedLength})
	}
	// The last token is evaluated at least, for what the model makes of it.
	common := min(commonPrefix(slot.session.Tokens(), prompt), len(prompt)-1)
	if err := slot.session.Rewind(common); err != nil {
		return err
	}
	first := true
	begun := time.Now()
	for p, err := range slot.session.GenerateTokens(r.ctx, prompt[common:], r.options(choice)...) {
		if err != nil {
			return j.explain(err)
		}
		if first {
			first = false
			u := slot.session.Usage()
			r.countPrompt(choice/j.choices, len(prompt), u.Cached, u.PromptTime)
		}
		out := piece{text: p.Text, token: p.Token, finish: p.Finish}
		if j.logprobs && p.Token != minfer.NoToken {
			out.probs = r.server.probs(p)
		}
		if err := r.emit(choice, out); errors.Is(err, errEnough) {
			break
		} else if err != nil {
			return err
		}
	}
	r.server.metrics.answerTime.observe(time.Since(begun))
	return nil
}

// score tells of the log-probabilities of the prompt's tokens, for which all of it is evaluated.
func (r *running) score(slot *slot, choice int, prompt []minfer.Token) error {
	if err := slot.session.Rewind(0); err != nil {
		return err
	}
	begun := time.Now()
	logProbs, top, err := slot.session.ScoreTop(r.ctx, prompt, r.job.topLogprobs)
	if err != nil {
		return err
	}
	r.countPrompt(choice/r.job.choices, len(prompt), 0, time.Since(begun))
	probs := make([]*tokenProbs, len(prompt))
	for i, t := range prompt {
		p := minfer.Piece{Token: t, LogProb: logProbs[i]}
		if top != nil {
			p.Top = top[i]
		}
		probs[i] = r.server.probs(p)
	}
	probs[0].first = true
	return r.emit(choice, piece{token: minfer.NoToken, prompt: probs})
}

// explain names the field of the request that a form which cannot be held to came in.
func (j *job) explain(err error) error {
	var calls *minfer.ToolSchemaError
	if errors.As(err, &calls) {
		for _, t := range j.tools {
			if t.name == calls.Tool {
				return badField(t.path, "%v", calls.Err)
			}
		}
	}
	var schema *minfer.SchemaError
	if errors.As(err, &schema) {
		return badField(j.format.path, "%v", schema)
	}
	return err
}

func (r *running) options(choice int) []minfer.GenerateOption {
	j := r.job
	sampling := j.sampling.Clone()
	sampling.Seed += uint64(choice)
	sampling.LogProbs = j.logprobs
	options := []minfer.GenerateOption{minfer.WithSampling(sampling), minfer.MaxTokens(j.maxTokens), minfer.Stop(j.stops...), minfer.TopLogProbs(j.topLogprobs)}
	return append(options, j.options...)
}

// emit passes a piece on. It returns an error, too, when the choice is to end.
func (r *running) emit(choice int, p piece) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if !r.begun {
		r.begun = true
		if err := r.job.begin(); err != nil {
			return err
		}
	}
	if p.token != minfer.NoToken {
		r.counts.generated++
	}
	return r.job.emit(choice, p)
}

// tokenProbs is a token with its log-probability, and the likeliest tokens in its place.
type tokenProbs struct {
	text    string
	logprob float64
	top     []ranked
	first   bool // of a text, so that there is no log-probability
}

type ranked struct {
	text    string
	logprob float64
}

// probs describes the token of a piece.
func (s *server) probs(p minfer.Piece) *tokenProbs {
	out := &tokenProbs{text: s.tokenText(p.Token), logprob: float64(p.LogProb)}
	for _, t := range p.Top {
		out.top = append(out.top, ranked{s.tokenText(t.Token), float64(t.LogProb)})
	}
	return out
}

func (s *server) tokenText(t minfer.Token) string { return string(s.model.Tokenizer().TokenBytes(t)) }

// leastLogprob stands for the log-probability of what is impossible, for which JSON has no number.
const leastLogprob = -9999

func finite(logprob float64) float64 { return max(logprob, leastLogprob) }

// byteValues are the bytes of a token, which need not be a whole character, as numbers.
func byteValues(text string) []int {
	values := make([]int, len(text))
	for i := range len(text) {
		values[i] = int(text[i])
	}
	return values
}

// printable is the text of a token as far as JSON can hold it.
func printable(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	out := make([]rune, 0, len(text))
	for _, r := range text { // which gives the replacement character for what is invalid
		out = append(out, r)
	}
	return string(out)
}
