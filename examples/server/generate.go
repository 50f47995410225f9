package main

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	// begin is called when a slot has been found and work begins.
	begin func() error
	// emit is given what is generated, by one goroutine at a time. The choices come mixed. An
	// error ends the job; errEnough ends only the choice.
	emit func(choice int, p piece) error
}

// piece is a piece of an answer.
type piece struct {
	text   string
	token  minfer.Token // minfer.NoToken for a piece without one
	probs  *tokenProbs  // if asked for
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
	if err := j.begin(); err != nil {
		return counts{}, err
	}
	r := &running{server: s, job: j, tasks: make(chan int, len(j.prompts)*j.choices)}
	r.ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	for i := range cap(r.tasks) {
		r.tasks <- i
	}
	close(r.tasks)
	if cap(r.tasks) > 1 {
		// All choices of the first prompt share what is evaluated of it.
		if err := r.evaluate(first, 0); err != nil {
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

// evaluate makes the slot hold a prompt, and counts it once.
func (r *running) evaluate(slot *slot, prompt int) error {
	tokens := r.job.prompts[prompt]
	begun := time.Now()
	kept, err := slot.session.SetTokens(r.ctx, tokens)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = make(map[int]bool)
	}
	if !r.seen[prompt] {
		r.seen[prompt] = true
		r.counts.prompt += len(tokens)
		r.counts.cached += kept
		r.server.metrics.promptTime.observe(time.Since(begun))
	}
	return nil
}

// choice generates one choice.
func (r *running) choice(slot *slot, choice int) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	j := r.job
	if err := r.evaluate(slot, choice/j.choices); err != nil {
		return err
	}
	top, err := r.logits(slot)
	if err != nil {
		return err
	}
	begun := time.Now()
	defer func() { r.server.metrics.answerTime.observe(time.Since(begun)) }()
	for p, err := range slot.session.GenerateTokens(r.ctx, nil, r.options(choice)...) {
		if err != nil {
			return err
		}
		out := piece{text: p.Text, token: p.Token, finish: p.Finish}
		if j.logprobs && p.Token != minfer.NoToken {
			out.probs = r.server.probs(p, top, j.topLogprobs)
		}
		if err := r.emit(choice, out); errors.Is(err, errEnough) {
			return nil
		} else if err != nil || p.Finish != minfer.NotFinished {
			return err
		}
		if top, err = r.logits(slot); err != nil {
			return err
		}
	}
	return nil
}

// logits returns what the next token of the slot is chosen from, or nil if nobody needs it.
// The library computes them once, whether they are asked for here or not.
func (r *running) logits(slot *slot) ([]float32, error) {
	if r.job.topLogprobs == 0 {
		return nil, nil
	}
	return slot.session.Eval(r.ctx, nil)
}

func (r *running) options(choice int) []minfer.GenerateOption {
	j := r.job
	sampling := j.sampling.Clone()
	sampling.Seed += uint64(choice)
	sampling.LogProbs = j.logprobs
	options := []minfer.GenerateOption{minfer.WithSampling(sampling), minfer.MaxTokens(j.maxTokens), minfer.Stop(j.stops...)}
	return append(options, j.options...)
}

// emit passes a piece on. It returns an error, too, when the choice is to end.
func (r *running) emit(choice int, p piece) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
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
}

type ranked struct {
	token   minfer.Token
	text    string
	logprob float64
}

// probs describes a token that was chosen from logits, which may be nil if no other tokens
// are asked for.
func (s *server) probs(p minfer.Piece, logits []float32, top int) *tokenProbs {
	out := &tokenProbs{text: s.tokenText(p.Token), logprob: float64(p.LogProb)}
	if logits == nil {
		return out
	}
	best := math.Inf(-1)
	for _, x := range logits {
		best = max(best, float64(x))
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - best)
	}
	mass := best + math.Log(sum)
	for id, x := range logits {
		out.top = insert(out.top, top, ranked{token: minfer.Token(id), logprob: float64(x) - mass})
	}
	for i := range out.top {
		out.top[i].text = s.tokenText(out.top[i].token)
	}
	return out
}

// insert puts r into a list of the n likeliest, the first of equals first.
func insert(list []ranked, n int, r ranked) []ranked {
	if len(list) == n && r.logprob <= list[n-1].logprob {
		return list
	}
	if len(list) < n {
		list = append(list, r)
	}
	i := len(list) - 1
	for ; i > 0 && list[i-1].logprob < r.logprob; i-- {
		list[i] = list[i-1]
	}
	list[i] = r
	return list
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
