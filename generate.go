package minfer

import (
	"context"
	"fmt"
	"iter"
	"time"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/internal/grammar"
	"github.com/minfer/minfer/internal/sampling"
	"github.com/minfer/minfer/internal/stop"
	"github.com/minfer/minfer/internal/tokenizer"
)

// Piece is a token of an answer, as it is streamed.
type Piece struct {
	// Text is what can be shown now: whole characters only, and nothing that may
	// turn out to be part of a stop string. It may be empty.
	Text string
	// Token is the token that was generated, or NoToken for a piece without one.
	Token Token
	// LogProb is the natural logarithm of the token's probability under the model, before
	// any setting of the sampling; 0 unless LogProbs was given.
	LogProb float32
	// Top are the likeliest tokens in the token's place; nil unless TopLogProbs was given.
	Top []TokenProb
	// Finish is why the answer ends with this piece, or NotFinished.
	Finish FinishReason

	// Reasoning says that Text is of the thoughts that some models begin with, not of the answer.
	// It is set by a Chat whose template knows of thoughts.
	Reasoning bool
	// ToolCall is what is new of a call of a tool, or nil; there is no Text then. It comes from
	// a Chat with WithTools.
	ToolCall *ToolCallDelta
}

// TokenProb is a token with the natural logarithm of its probability under the model.
type TokenProb struct {
	Token   Token
	LogProb float32
}

// NoToken is the token of a piece without one: a last one, or one of several that a Chat makes
// of a token.
const NoToken Token = -1

// FinishReason says why an answer ended.
type FinishReason uint8

// The reasons. The last piece of every answer that did not end with an error has one
// other than NotFinished.
const (
	NotFinished     FinishReason = iota
	FinishedTurn                 // the model generated an end-of-turn token
	FinishedStop                 // a stop string was met
	FinishedLength               // MaxTokens were generated
	FinishedContext              // the session's context is full
	FinishedGrammar              // a constrained answer is complete: see WithJSON
)

// String returns "turn", "stop", "length", "context", "grammar" or "".
func (r FinishReason) String() string {
	switch r {
	case FinishedTurn:
		return "turn"
	case FinishedStop:
		return "stop"
	case FinishedLength:
		return "length"
	case FinishedContext:
		return "context"
	case FinishedGrammar:
		return "grammar"
	}
	return ""
}

// Usage is what the last answer of a session took. If it came in several turns, because tools were
// called, that is what all of them took together, and Cached is the first one's.
type Usage struct {
	Cached       int           // tokens of the prompt that were evaluated before
	Prompt       int           // tokens of the prompt that had to be evaluated
	Generated    int           // tokens generated, the end-of-turn token included
	Drafted      int           // tokens that were guessed and checked: see WithPromptLookup
	Accepted     int           // of those, tokens that were generated
	PromptTime   time.Duration // until the first logits
	GenerateTime time.Duration // from there to the last token, without the time that the caller took
}

// and returns the usage of a turn and the next one.
func (u Usage) and(next Usage) Usage {
	if u.Generated == 0 {
		return next
	}
	u.Prompt += next.Prompt
	u.Generated += next.Generated
	u.Drafted += next.Drafted
	u.Accepted += next.Accepted
	u.PromptTime += next.PromptTime
	u.GenerateTime += next.GenerateTime
	return u
}

// Sampling is the settings by which tokens are chosen. See DefaultSampling.
type Sampling = sampling.Params

// The parts of Sampling.
type (
	// Penalties lower the logits of tokens that came before.
	Penalties = sampling.Penalties
	// DRY lowers the logits of tokens that would go on with a repetition.
	DRY = sampling.DRY
	// XTC takes the likeliest tokens out, by chance.
	XTC = sampling.XTC
	// Mirostat steers how surprising the text is.
	Mirostat = sampling.Mirostat
)

// Sampler chooses tokens from logits. It is what Generate uses; Eval's callers can have
// their own.
type Sampler = sampling.Sampler

// DefaultSampling returns the settings that Generate uses unless told otherwise.
func DefaultSampling() Sampling { return sampling.Default() }

// NewSampler makes a sampler for the model's vocabulary.
func (m *Model) NewSampler(p Sampling) (*Sampler, error) {
	if m.none() {
		return nil, ErrClosed
	}
	s, err := sampling.New(p, m.tokenizer.VocabSize(), m.tokenText)
	if err != nil {
		return nil, &OptionError{Option: "sampling", Reason: err.Error(), Err: err}
	}
	return s, nil
}

func (m *Model) tokenText(id Token) string { return string(m.tokenizer.TokenBytes(id)) }

// GenerateOption changes how an answer is generated.
type GenerateOption func(*generateConfig)

type generateConfig struct {
	maxTokens    int
	stops        []string
	sampling     Sampling
	parseSpecial bool
	pastEnd      bool
	constraint   *constraint // or nil
	held         *heldCalls  // or nil
	marks        []string    // special tokens whose text is to be seen
	top          int         // likeliest tokens wanted in every piece
	onPrompt     func(done, total int)
	speculate    func(*Session) (*speculation, error) // or nil
	before       Usage                                // of turns that belong to the answer
}

// MaxTokens ends the answer after n tokens. The default, 0, is when the context is full.
func MaxTokens(n int) GenerateOption { return func(c *generateConfig) { c.maxTokens = n } }

// Stop ends the answer before any of the strings, which are not part of it.
func Stop(strings ...string) GenerateOption {
	return func(c *generateConfig) { c.stops = append(c.stops, strings...) }
}

// WithSampling sets everything about how tokens are chosen. Options after it change
// single settings.
func WithSampling(p Sampling) GenerateOption {
	return func(c *generateConfig) { c.sampling = p.Clone() }
}

// Temperature divides the logits; 0 always takes the likeliest token.
func Temperature(t float32) GenerateOption {
	return func(c *generateConfig) { c.sampling.Temperature = t }
}

// TopK keeps the k likeliest tokens; 0 keeps all.
func TopK(k int) GenerateOption { return func(c *generateConfig) { c.sampling.TopK = k } }

// TopP keeps the likeliest tokens that make up a mass of p.
func TopP(p float32) GenerateOption { return func(c *generateConfig) { c.sampling.TopP = p } }

// MinP keeps tokens at least p times as likely as the best.
func MinP(p float32) GenerateOption { return func(c *generateConfig) { c.sampling.MinP = p } }

// Seed starts the random numbers. Equal seeds give equal answers; the default is 0.
func Seed(n uint64) GenerateOption { return func(c *generateConfig) { c.sampling.Seed = n } }

// LogProbs fills in the log-probability of every token.
func LogProbs() GenerateOption { return func(c *generateConfig) { c.sampling.LogProbs = true } }

// TopLogProbs fills in the n likeliest tokens in the place of every token, the likeliest first,
// with their log-probabilities before any setting of the sampling. Of equals, the lower token
// comes first.
func TopLogProbs(n int) GenerateOption { return func(c *generateConfig) { c.top = n } }

// OnPromptProgress has f called while the prompt is evaluated, from the goroutine that generates:
// with no token done, and after each part with how many of the total are. Tokens that were
// evaluated before count for neither. The session is in use meanwhile.
func OnPromptProgress(f func(done, total int)) GenerateOption {
	return func(c *generateConfig) { c.onPrompt = f }
}

// ParseSpecial lets the text of special tokens in a prompt, such as <|im_start|>, become
// those tokens. Never use it on text from outside.
func ParseSpecial() GenerateOption { return func(c *generateConfig) { c.parseSpecial = true } }

// PastEnd goes on generating after end-of-turn tokens. Constrained answers end with them all the
// same.
func PastEnd() GenerateOption { return func(c *generateConfig) { c.pastEnd = true } }

// Generate appends a prompt to the session and streams what the model says next. On an
// empty session the prompt begins with the token that the model wants at the beginning.
// Nothing is evaluated before the result is ranged over, and each time that it is,
// the prompt is appended again.
//
// The sequence ends with the answer afterwards, with the end-of-turn token if there was
// one and without the tokens of a stop string. A caller that stops reading early leaves
// the session with the tokens that it was given. On an error, which is the last thing
// that is yielded, the session is left with what came before: without the prompt if
// that could not be evaluated, and otherwise with the tokens that were yielded.
//
// The loop's body may use the session, but an answer whose sequence it changes ends
// with ErrBusy.
func (s *Session) Generate(ctx context.Context, prompt string, opts ...GenerateOption) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		s.generate(ctx, opts, yield, func(c *generateConfig) ([]Token, error) {
			return s.model.tokenizer.EncodeContext(orBackground(ctx), prompt, tokenizer.EncodeOptions{
				AddSpecial:   len(s.tokens) == 0,
				ParseSpecial: c.parseSpecial,
			})
		})
	}
}

// GenerateTokens is Generate for a prompt of tokens, to which none is added.
func (s *Session) GenerateTokens(ctx context.Context, prompt []Token, opts ...GenerateOption) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		s.generate(ctx, opts, yield, func(*generateConfig) ([]Token, error) { return prompt, nil })
	}
}

func newGenerateConfig(opts []GenerateOption) (*generateConfig, error) {
	c := &generateConfig{sampling: DefaultSampling()}
	apply(c, opts)
	if c.maxTokens < 0 {
		return nil, optionErrorf("MaxTokens", "%d, want 1 or more, or 0 for no limit", c.maxTokens)
	}
	if c.top < 0 {
		return nil, optionErrorf("TopLogProbs", "%d, want 0 or more", c.top)
	}
	return c, nil
}

// answer is the state of a generation. Its methods start and next run while the session
// is in use; the caller of Generate runs in between.
type answer struct {
	session *Session
	config  *generateConfig
	sampler *Sampler
	decoder *tokenizer.Decoder
	stops   *stop.Matcher
	grammar *grammar.Matcher // nil if the answer is free
	watch   *watch           // nil if no calls are to be held to a form
	call    *grammar.Matcher // of the call under way, or nil
	origin  int              // length of the sequence before the first token
	ends    []int            // for each token, the length of the text so far
	shown   int              // length of the text given out
	changes uint64           // of the session, when it was last seen
	usage   Usage

	speculation *speculation // nil for a token at a time
}

// generate streams an answer to the prompt, which is asked for while the session is in
// use. The session is free whenever it yields and when it returns.
func (s *Session) generate(ctx context.Context, opts []GenerateOption, yield func(Piece, error) bool, prompt func(*generateConfig) ([]Token, error)) {
	if s.none() {
		yield(Piece{Token: NoToken}, ErrClosed)
		return
	}
	ctx = orBackground(ctx)
	s.cache.answers.Add(1)
	defer s.cache.answers.Add(-1)
	a, err := s.newAnswer(ctx, opts)
	if err == nil {
		err = s.using("evaluating a prompt", func() error {
			tokens, err := prompt(a.config)
			if err != nil {
				return err
			}
			return a.start(ctx, tokens)
		})
	}
	for err == nil {
		var p Piece
		err = s.using("generating", func() (err error) {
			p, err = a.next(ctx)
			return err
		})
		if err == nil && (!yield(p, nil) || p.Finish != NotFinished) {
			return
		}
	}
	yield(Piece{Token: NoToken}, err)
}

// newAnswer checks the options.
func (s *Session) newAnswer(ctx context.Context, opts []GenerateOption) (_ *answer, err error) {
	defer recovered(&err, "preparing an answer")
	c, err := newGenerateConfig(opts)
	if err != nil {
		return nil, err
	}
	a := &answer{session: s, config: c}
	if a.sampler, err = s.model.NewSampler(c.sampling); err != nil {
		return nil, err
	}
	if a.stops, err = stop.New(c.stops); err != nil {
		return nil, &OptionError{Option: "Stop", Reason: err.Error(), Err: err}
	}
	if c.constraint != nil {
		if err := a.constrain(ctx); err != nil {
			return nil, err
		}
	}
	if c.speculate != nil {
		if a.speculation, err = c.speculate(s); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// constrain holds the answer to its form, which may leave it the choice to call tools.
func (a *answer) constrain(ctx context.Context) error {
	m, c := a.session.model, a.config.constraint
	if a.config.held != nil {
		w, err := m.newWatch(a.config.held)
		if err != nil {
			return err
		}
		c = w.orCalls(c, m.ToolFormat())
		a.config.marks = append(a.config.marks, m.ToolFormat().Marks()...)
	}
	var err error
	if a.grammar, err = m.grammars.matcher(ctx, c); err != nil {
		return err
	}
	a.sampler.SetConstraint(a.grammar)
	return nil
}

// watchCalls looks out for calls, to hold them to their form.
func (a *answer) watchCalls(ctx context.Context) (err error) {
	m := a.session.model
	if a.watch, err = m.newWatch(a.config.held); err != nil {
		return err
	}
	a.config.marks = append(a.config.marks, m.ToolFormat().Marks()...)
	return a.holdCall(ctx)
}

// holdCall holds the call that is under way, if any, to the form of calls.
func (a *answer) holdCall(ctx context.Context) (err error) {
	if a.call, err = a.watch.hold(ctx); a.call != nil {
		a.sampler.SetConstraint(a.call)
	}
	return err
}

// start evaluates the prompt.
func (a *answer) start(ctx context.Context, prompt []Token) error {
	s := a.session
	if a.config.held != nil && a.grammar == nil {
		if err := a.watchCalls(ctx); err != nil {
			return err
		}
	}
	s.settle()
	s.onProgress = a.config.onPrompt
	defer func() { s.onProgress = nil }()
	a.usage.Cached = s.cells.Len()
	if len(prompt) == 0 && s.valid != len(s.tokens) {
		// The last token is evaluated again, for its logits.
		a.usage.Cached = max(min(a.usage.Cached, len(s.tokens)-1), 0)
	}
	begun := time.Now()
	if _, err := s.eval(ctx, prompt); err != nil {
		return err
	}
	a.usage.PromptTime = time.Since(begun)
	a.usage.Prompt = len(s.tokens) - a.usage.Cached
	a.origin = len(s.tokens)
	a.decoder = s.model.tokenizer.NewDecoder(tokenizer.DecodeOptions{Continuation: true})
	for _, t := range s.tokens {
		a.sampler.Accept(t)
	}
	a.seen()
	return nil
}

// seen notes the state of the sequence and the usage.
func (a *answer) seen() {
	a.changes = a.session.changes
	a.session.usage = a.config.before.and(a.usage)
}

// next evaluates the token before, if that has not been done yet, and chooses another.
func (a *answer) next(ctx context.Context) (Piece, error) {
	s := a.session
	if s.changes != a.changes {
		return Piece{}, fmt.Errorf("minfer: the sequence was changed while an answer was being generated: %w", ErrBusy)
	}
	begun := time.Now()
	defer func() {
		a.usage.GenerateTime += time.Since(begun)
		a.seen()
	}()
	if a.complete() {
		return Piece{Token: NoToken, Finish: FinishedGrammar}, nil // nothing at all was wanted
	}
	if len(s.tokens) >= s.context {
		return Piece{Token: NoToken, Text: a.flush(), Finish: FinishedContext}, nil
	}
	t, logits, err := a.choose(ctx)
	if err != nil {
		return Piece{}, err
	}
	s.model.engine.observers.each(func(o Observer) {
		o.Chose(Choice{Session: s.job.session, Position: len(s.tokens), Token: t.ID, Text: s.model.tokenText(t.ID)})
	})
	p, err := a.take(ctx, t)
	if err == nil && a.config.top > 0 {
		p.Top, err = topLogProbs(logits, a.config.top)
	}
	if err != nil || p.Finish != NotFinished {
		s.settle()
	}
	return p, err
}

// choose chooses the next token. Logits are those after the sequence, or nil if the greatest of them
// were enough: then the others stay on the device.
func (a *answer) choose(ctx context.Context) (t sampling.Token, logits []float32, err error) {
	if n := a.session.model.engine.topFor(a.enough()); n > 0 {
		top, all, err := a.logits(ctx, n)
		if err != nil || all != nil {
			return a.sample(all, err)
		}
		if t, ok := a.sampler.SampleTop(top.logits, top.tokens); ok {
			return t, nil, nil
		}
		// There are NaN or infinities among them, and the error counts them all.
	}
	_, all, err := a.logits(ctx, 0)
	return a.sample(all, err)
}

func (a *answer) sample(logits []float32, err error) (sampling.Token, []float32, error) {
	if err != nil {
		return sampling.Token{}, nil, err
	}
	t, err := a.sampler.Sample(logits)
	return t, logits, err
}

// enough is how many of the greatest logits the next piece takes, or 0 for all.
func (a *answer) enough() int {
	if a.config.top > 0 {
		return 0
	}
	return a.sampler.Enough()
}

// logits returns all logits after the sequence, or with n from topFor, unless all of them are there
// anyway, n or more of the greatest.
func (a *answer) logits(ctx context.Context, n int) (*top, []float32, error) {
	s := a.session
	switch {
	case a.speculation != nil:
		return a.speculation.logits(ctx, a, n)
	case n > 0 && s.valid != len(s.tokens):
		top, err := s.evalTop(ctx, n)
		return top, nil, err
	}
	all, err := s.eval(ctx, nil)
	return nil, all, err
}

func topLogProbs(logits []float32, n int) ([]TokenProb, error) {
	tokens, err := sampling.TopLogProbs(nil, logits, n)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	top := make([]TokenProb, len(tokens))
	for i, t := range tokens {
		top[i] = TokenProb{Token: t.ID, LogProb: t.LogProb}
	}
	return top, nil
}

// take appends a token to the sequence, to be evaluated when its logits are needed.
func (a *answer) take(ctx context.Context, t sampling.Token) (Piece, error) {
	s := a.session
	if a.speculation != nil {
		a.speculation.match(a, t.ID)
	}
	if err := a.advance(t.ID); err != nil {
		return Piece{}, err
	}
	s.tokens = append(s.tokens, t.ID)
	s.changes++
	a.usage.Generated++
	p := Piece{Token: t.ID}
	if a.config.sampling.LogProbs {
		p.LogProb = t.LogProb
	}
	if (!a.config.pastEnd || a.grammar != nil) && s.model.tokenizer.IsEndOfGeneration(t.ID) {
		p.Text, p.Finish = a.flush(), FinishedTurn
		return p, nil
	}
	text := a.decoder.Push(t.ID) + a.mark(t.ID)
	if a.watch != nil {
		a.watch.push(text)
		if a.call == nil && a.decoder.Pending() == 0 {
			if err := a.holdCall(ctx); err != nil {
				return Piece{}, err
			}
		}
	}
	emit, stopped, _ := a.stops.Push(text)
	a.shown += len(emit)
	a.ends = append(a.ends, a.shown+len(a.stops.Held())+a.decoder.Pending())
	p.Text = emit
	switch {
	case stopped:
		p.Finish = FinishedStop
		return p, a.dropStop()
	case a.complete():
		p.Text, p.Finish = p.Text+a.flush(), FinishedGrammar
	case a.usage.Generated == a.config.maxTokens:
		p.Text, p.Finish = p.Text+a.flush(), FinishedLength
	case len(s.tokens) == s.context:
		p.Text, p.Finish = p.Text+a.flush(), FinishedContext
	}
	return p, nil
}

// advance tells what chooses the next token that id was chosen.
func (a *answer) advance(id Token) error {
	for _, m := range []*grammar.Matcher{a.grammar, a.call} {
		if m == nil {
			continue
		}
		if err := m.Accept(id); err != nil {
			return fmt.Errorf("minfer: %w", err)
		}
	}
	if a.call != nil && a.call.CanEnd() {
		a.call = nil
		a.sampler.SetConstraint(nil)
	}
	a.sampler.Accept(id)
	return nil
}

// mark is the text of a token that decoding leaves out and that is to be seen all the same.
func (a *answer) mark(id Token) string {
	t := a.session.model.tokenizer
	if len(a.config.marks) == 0 || t.Type(id) != tokenizer.Control {
		return ""
	}
	if text := string(t.TokenBytes(id)); slices.Contains(a.config.marks, text) {
		return text
	}
	return ""
}

// complete reports whether nothing can follow in a constrained answer.
func (a *answer) complete() bool { return a.grammar != nil && a.grammar.Complete() }

// flush ends the text and returns what was held back of it. What is held back at the
// end may still complete a stop string.
func (a *answer) flush() string {
	emit, stopped, _ := a.stops.Push(a.decoder.Flush())
	if !stopped {
		emit += a.stops.Flush()
	}
	return emit
}

// dropStop takes the tokens back that reach into the stop string.
func (a *answer) dropStop() error {
	keep := 0
	for keep < len(a.ends) && a.ends[keep] <= a.shown {
		keep++
	}
	// The token that completed the stop string always goes: its end was measured after
	// the stop string had been taken out.
	return a.session.rewind(a.origin + min(keep, len(a.ends)-1))
}

// Usage returns what the last answer took. It returns zeros when the session is in use.
func (s *Session) Usage() Usage {
	if s.begin() != nil {
		return Usage{}
	}
	defer s.end()
	return s.usage
}
