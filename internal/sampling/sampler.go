package sampling

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/minfer/minfer/internal/stop"
	"golang.org/x/exp/slices"
)

// Token is what Sample chose.
type Token struct {
	ID int32
	// LogProb is the natural logarithm of the token's probability under the
	// untouched model distribution (softmax of the logits at temperature 1,
	// before any stage). NaN unless Params.LogProbs is set.
	LogProb float32
}

// Constraint restricts what may come next, a grammar for example. It sees the
// vocabulary before every other stage.
type Constraint interface {
	// Mask sets the logits of forbidden tokens to -Inf and leaves the others
	// alone. logits has one entry per token of the vocabulary and belongs to
	// the sampler: the slice must not be kept.
	Mask(logits []float32) error
}

// MaskFunc is a Constraint that asks about every token.
type MaskFunc func(id int32) bool

// Mask forbids the tokens that f returns false for.
func (f MaskFunc) Mask(logits []float32) error {
	for id := range logits {
		if !f(int32(id)) {
			logits[id] = negInf
		}
	}
	return nil
}

// Sampler chooses tokens for one sequence. It is not safe for concurrent use.
type Sampler struct {
	params Params
	vocab  int
	bias   []biasEntry // LogitBias by ascending id
	text   func(int32) string
	breaks []stop.Pattern // the DRY breakers; nil when DRY is off

	constraint Constraint

	// The state: what Clone copies and MarshalBinary writes.
	rng     rand.PCG
	mu      float64 // mirostat's bound on the surprise, in bits
	history []int32

	// Derived from the history.
	breakState []int  // of each breaker's automaton after the last token
	broken     []bool // a breaker ends in this token of the history

	// Scratch memory, grown when first needed and then kept.
	edited []float32   // logits after constraint, bias and penalties
	cands  []candidate // tokens still in the race, by ascending id
	top    float32     // the logit that weights are relative to
	mass   float64     // the sum of all weights that cands are measured against
	ranked []ranked    // work space of selection
	tally  []int32     // per vocabulary entry; all zero between calls
	match  []int32     // DRY: match lengths
}

type biasEntry struct {
	id    int32
	value float32
}

var negInf = float32(math.Inf(-1))

// New makes a sampler for a vocabulary of that many tokens; logits beyond it
// (padding rows of the output matrix) are never chosen. text gives a token's
// bytes and is asked only when DRY is on and has breakers; it may be nil
// otherwise. Errors match ErrInvalid and list all faults. p is copied.
func New(p Params, vocab int, text func(id int32) string) (*Sampler, error) {
	var f faults
	if err := p.Validate(); err != nil {
		f = err.(*InvalidError).Faults
	}
	f.check(vocab > 0 && vocab <= math.MaxInt32, "vocabulary of %d tokens, want 1 to %d", vocab, math.MaxInt32)
	for _, id := range p.biasedTokens() {
		f.check(int(id) < vocab, "logit bias for token %d, want an id below %d", id, vocab)
	}
	needsText := p.DRY.active() && len(p.DRY.Breakers) > 0
	f.check(!needsText || text != nil, "DRY breakers need the text of tokens, want a text function")
	if err := f.err(); err != nil {
		return nil, err
	}

	s := &Sampler{params: p.Clone(), vocab: vocab, text: text}
	for _, id := range p.biasedTokens() {
		s.bias = append(s.bias, biasEntry{id, p.LogitBias[id]})
	}
	if needsText {
		for _, b := range p.DRY.Breakers {
			s.breaks = append(s.breaks, stop.Compile(b))
		}
		s.breakState = make([]int, len(s.breaks))
	}
	s.Reset()
	return s, nil
}

// Params returns a copy of the settings.
func (s *Sampler) Params() Params { return s.params.Clone() }

// Vocab is the number of tokens that can be chosen.
func (s *Sampler) Vocab() int { return s.vocab }

// SetConstraint installs the constraint of the next calls of Sample; nil
// removes it.
func (s *Sampler) SetConstraint(c Constraint) { s.constraint = c }

// Reset returns the sampler to its state after New: no history, random numbers
// from the seed, mirostat at its start. The constraint stays.
func (s *Sampler) Reset() {
	// The second word is the increment of the reference PCG; any constant does.
	s.rng.Seed(s.params.Seed, 0xda3e39cb94b95bdb)
	s.mu = 2 * float64(s.params.Mirostat.Tau)
	s.Truncate(0)
}

// Reserve makes room for a history of n tokens, so that Accept and Sample do
// not allocate until it is longer.
func (s *Sampler) Reserve(n int) {
	s.history = slices.Grow(s.history, max(0, n-len(s.history)))
	if s.params.DRY.active() {
		s.broken = slices.Grow(s.broken, max(0, n-len(s.broken)))
		s.match = slices.Grow(s.match[:0], n)
	}
}

// Accept appends a token to the history: every prompt token and every token
// generated, in order. All penalties and DRY count both alike. Ids outside the
// vocabulary take up a place in the windows and are otherwise ignored.
func (s *Sampler) Accept(id int32) {
	s.history = append(s.history, id)
	s.noteBreakers(id)
}

// History is the tokens accepted so far; the slice is the sampler's own.
func (s *Sampler) History() []int32 { return s.history }

// Truncate cuts the history back to its first n tokens, for a sequence that is
// rewound; n beyond its ends means the nearer end. Random numbers and mirostat
// go on from where they are.
func (s *Sampler) Truncate(n int) {
	kept := s.history[:min(max(n, 0), len(s.history))]
	s.history, s.broken = s.history[:0], s.broken[:0]
	clear(s.breakState)
	for _, id := range kept {
		s.Accept(id)
	}
}

// Clone returns an independent sampler with the same history and the same
// random numbers to come. The constraint, if any, is shared: install another
// where it has state of its own.
func (s *Sampler) Clone() *Sampler {
	c := *s
	c.history = slices.Clone(s.history)
	c.broken = slices.Clone(s.broken)
	c.breakState = slices.Clone(s.breakState)
	c.edited, c.cands, c.ranked, c.tally, c.match = nil, nil, nil, nil, nil
	return &c
}

// Sample chooses a token from a row of logits, of which the first Vocab entries
// count. The row is not modified, and the token is not accepted: that is the
// caller's next step.
//
// Errors: ErrLength; ErrNonFinite for NaN, +Inf or nothing but -Inf, greedy or
// not; ErrNoCandidate when bans and constraint leave nothing; the constraint's
// own. After an error the state is unchanged.
func (s *Sampler) Sample(logits []float32) (Token, error) {
	if len(logits) < s.vocab {
		return Token{}, &LengthError{Got: len(logits), Want: s.vocab}
	}
	model := logits[:s.vocab]
	best, ok := argmax(model)
	if !ok {
		return Token{}, census(model, "model")
	}
	row := model
	if s.edits() {
		var err error
		if row, err = s.edit(model); err != nil {
			return Token{}, err
		}
		if best, ok = argmax(row); !ok {
			return Token{}, nothingLeft(row)
		}
	}

	token := Token{ID: best, LogProb: unknown}
	switch {
	case s.params.IsGreedy():
	case s.params.Mirostat.Enabled:
		token.ID = s.mirostat(row, best)
	default:
		s.shape(row, best)
		token.ID = s.draw()
	}
	if s.params.LogProbs {
		token.LogProb = logProb(model, token.ID)
	}
	return token, nil
}

// unknown is the log-probability of a token that nobody asked for.
var unknown = float32(math.NaN())

// Enough returns how many of the greatest logits Sample makes do with, or 0 if it looks at all of
// them: 1 when greedy and K when top-k comes first, unless something changes single logits or the
// token's log-probability is wanted.
func (s *Sampler) Enough() int {
	p := &s.params
	switch {
	case s.constraint != nil, len(s.bias) > 0, p.Penalties.active(), p.DRY.active(), p.LogProbs:
		return 0
	case p.IsGreedy():
		return 1
	case p.Mirostat.Enabled, p.TopK >= s.vocab:
		return 0
	}
	return p.TopK
}

// SampleTop is Sample for a row of which only the greatest logits are known, with their ids: at
// least Enough of them, which must not be 0, from among the first Vocab entries. The greatest comes
// first, NaN before all else, and of equal ones that with the lower id. It chooses what Sample
// chooses from the whole row.
//
// Ok is false, and the state unchanged, if Sample has an error for the row, or has to see all of it.
func (s *Sampler) SampleTop(logits []float32, ids []int32) (token Token, ok bool) {
	n := s.Enough()
	if n == 0 || len(logits) == 0 || len(logits) != len(ids) || !(logits[0] > negInf && logits[0] <= math.MaxFloat32) {
		return Token{}, false
	}
	token = Token{ID: ids[0], LogProb: unknown}
	if !s.params.IsGreedy() {
		s.cands = s.cands[:0]
		for i, x := range logits[:min(n, len(logits))] {
			if x > negInf {
				s.cands = append(s.cands, candidate{id: ids[i], x: x})
			}
		}
		sortByID(s.cands)
		s.weigh(logits[0])
		s.truncate(logits[0])
		token.ID = s.draw()
	}
	return token, true
}

// nothingLeft explains why an edited row has no best token. Edits of our own
// never make NaN or +Inf, so those are the constraint's doing.
func nothingLeft(row []float32) error {
	if e := census(row, "constraint"); e.First >= 0 {
		return e
	}
	return ErrNoCandidate
}

// edits reports whether any stage is going to change single logits.
func (s *Sampler) edits() bool {
	return s.constraint != nil || len(s.bias) > 0 || len(s.history) > 0 && (s.params.Penalties.active() || s.params.DRY.active())
}

// edit returns a copy of the row after the stages that change single logits:
// constraint, bias, penalties, DRY.
func (s *Sampler) edit(model []float32) ([]float32, error) {
	s.edited = append(s.edited[:0], model...)
	row := s.edited
	if s.constraint != nil {
		if err := s.constraint.Mask(row); err != nil {
			return nil, fmt.Errorf("sampling: constraint: %w", err)
		}
	}
	for _, b := range s.bias {
		row[b.id] = bounded(float64(row[b.id]) + float64(b.value))
	}
	if s.params.Penalties.active() {
		s.penalize(row)
	}
	if s.params.DRY.active() {
		s.penalizeRepetition(row)
	}
	return row, nil
}

// draw picks a candidate with probability proportional to its weight. It uses
// one random number, whatever the outcome.
func (s *Sampler) draw() int32 {
	var total float64
	for i := range s.cands {
		total += s.cands[i].w
	}
	r := s.uniform() * total
	var sum float64
	last := s.cands[0].id
	for i := range s.cands {
		c := &s.cands[i]
		if c.w == 0 {
			continue
		}
		sum += c.w
		last = c.id
		if r < sum {
			break
		}
	}
	return last
}

// uniform returns a number in [0, 1): the upper 53 bits of the generator's next
// output, times 2 to the power of -53.
func (s *Sampler) uniform() float64 {
	return float64(s.rng.Uint64()>>11) * 0x1p-53
}

// argmax returns the id of the greatest logit, the lowest id among equals. ok is
// false if the row holds NaN or +Inf, or nothing but -Inf.
func argmax(row []float32) (id int32, ok bool) {
	best := negInf
	id = -1
	for i, x := range row {
		if x > best {
			best, id = x, int32(i)
		}
		if x != x {
			return 0, false
		}
	}
	if id < 0 || best > math.MaxFloat32 {
		return 0, false
	}
	return id, true
}

// bounded rounds to float32 without leaving its finite range, so that no
// penalty turns into a ban or into +Inf. -Inf, the ban, stays.
func bounded(x float64) float32 {
	switch {
	case x > math.MaxFloat32:
		return math.MaxFloat32
	case x < -math.MaxFloat32 && !math.IsInf(x, -1):
		return -math.MaxFloat32
	}
	return float32(x)
}
