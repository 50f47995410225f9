package minfer

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/exp/slices"

	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/kvcells"
)

// Session is one sequence of tokens with the keys and values of those evaluated so
// far. It is not safe for concurrent use: a call that meets another one under way returns
// ErrBusy. Close may be called at any time.
//
// Tokens are appended by Eval and Generate, and taken back by Rewind. What the model says
// next is a function of the tokens alone: it does not matter how they came in.
type Session struct {
	model   *Model
	cache   *GraphCache
	private *privateCache // nil on a shared cache
	context int
	batch   int

	use    sync.Mutex
	closed atomic.Bool
	inHost atomic.Bool // a call of the session is in a function of the host

	// Guarded by use.
	tokens  []Token           // the sequence; the first cells.Len() of them are evaluated
	cells   *kvcells.Sequence // guarded by the engine's turn too; more than tokens between steps of a speculation
	logits  []float32         // after the last token, if valid is their number
	valid   int               // number of tokens that logits belong to; 0 if none
	changes uint64            // grows with every change of tokens
	usage   Usage
	job     job
	rows    [1][]float32
	top     top // what the last answer chose from

	onProgress func(done, total int) // told how far evaluate has come; or nil

	free func() error // gives the cells back for good, the first time that it is called

	draftFor atomic.Pointer[Model] // the model whose vocabulary this session's was last found to go with
}

// privateCache is a cache that only a session and its forks use; the last one closes it.
type privateCache struct {
	users atomic.Int32
}

// NewSession makes an empty session.
func (m *Model) NewSession(opts ...SessionOption) (*Session, error) {
	if m.devices().isClosed() {
		return nil, ErrClosed
	}
	c := newSessionConfig(m.hyper)
	apply(&c, opts)
	if err := c.validate(m.hyper); err != nil {
		return nil, err
	}
	s := &Session{model: m, cache: c.cache, context: c.context, batch: c.batch}
	if s.cache == nil {
		s.cache = m.newCache(c.context, c.context)
		s.cache.batching = false
		s.private = &privateCache{}
		s.private.users.Store(1)
	} else if s.cache.none() {
		return nil, ErrClosed
	} else if s.cache.model != m {
		return nil, optionErrorf("WithCache", "the cache belongs to another model")
	} else if s.cache.closed.Load() {
		return nil, ErrClosed
	}
	s.cells = s.cache.pool.New()
	s.init()
	return s, nil
}

func (s *Session) init() {
	s.job.done = make(chan struct{}, 1)
	s.job.closed = s.isClosed
	s.free = sync.OnceValue(s.giveBack)
	s.job.session = lastSession.Add(1)
}

// begin marks the session as in use.
func (s *Session) begin() error {
	if s.isClosed() {
		return ErrClosed
	}
	if !s.use.TryLock() {
		if s.isClosed() {
			return ErrClosed // it was Close that held it
		}
		return ErrBusy
	}
	if s.isClosed() {
		s.use.Unlock()
		return ErrClosed
	}
	return nil
}

// isClosed reports whether the session, or what it needs, has been closed.
func (s *Session) isClosed() bool {
	return s.none() || s.closed.Load() || s.cache.closed.Load() || s.model.engine.closed.Load()
}

// none reports whether there is no session at all: s is nil or a zero value. That is treated as
// a session that is closed.
func (s *Session) none() bool { return s == nil || s.model == nil }

// end marks the session as free. What Close did not wait for it does now.
func (s *Session) end() {
	if s.closed.Load() {
		_ = s.free() // Close returns the error
	}
	s.use.Unlock()
}

// callHost runs a function of the host while the session is in use. It may close the session.
func (s *Session) callHost(f func()) {
	s.inHost.Store(true)
	defer s.inHost.Store(false)
	f()
}

// using runs f with the session in use. Whatever f does, a panic included, the
// session is free again afterwards.
func (s *Session) using(during string, f func() error) (err error) {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	defer recovered(&err, during)
	return f()
}

// Close gives the session's cells back. A call under way ends with ErrClosed first. It is
// safe to call more than once, and from a function that a call of the session calls, such as that of
// OnPromptProgress: it does not wait then, and the cells are given back when that call ends.
func (s *Session) Close() error {
	if s.none() || s.closed.Swap(true) || s.inHost.Load() {
		return nil
	}
	s.use.Lock()
	defer s.use.Unlock()
	return s.free()
}

// giveBack is what free does. The session is in use.
func (s *Session) giveBack() error {
	if s.private != nil && s.private.users.Add(-1) == 0 {
		return s.cache.Close()
	}
	s.truncate(0)
	return nil
}

// Model returns the model that the session belongs to.
func (s *Session) Model() *Model {
	if s.none() {
		return nil
	}
	return s.model
}

// Cache returns the session's cache, for its counters.
func (s *Session) Cache() *GraphCache {
	if s.none() {
		return nil
	}
	return s.cache
}

// Context returns how many tokens the session can hold.
func (s *Session) Context() int {
	if s.none() {
		return 0
	}
	return s.context
}

// Tokens returns a copy of the sequence. It returns nil when the session is in use.
func (s *Session) Tokens() []Token {
	if s.begin() != nil {
		return nil
	}
	defer s.end()
	return slices.Clone(s.tokens)
}

// Len returns the length of the sequence, or 0 when the session is in use.
func (s *Session) Len() int {
	if s.begin() != nil {
		return 0
	}
	defer s.end()
	return len(s.tokens)
}

// Eval appends tokens to the sequence and returns the logits after the last of them, a
// number for each token of the vocabulary (Info.Vocab). With no tokens it returns the
// logits after what the session holds.
//
// The slice belongs to the session and is valid until its next call. On an error,
// cancellation included, the sequence is what it was before.
func (s *Session) Eval(ctx context.Context, tokens []Token) ([]float32, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	return s.eval(orBackground(ctx), tokens)
}

// EvalAll appends tokens to the sequence and returns the logits after each of them.
func (s *Session) EvalAll(ctx context.Context, tokens []Token) ([][]float32, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	if len(tokens) == 0 {
		return nil, ErrNoTokens
	}
	if err := s.check(tokens); err != nil {
		return nil, err
	}
	rows := s.newRows(len(tokens))
	if err := s.extend(orBackground(ctx), tokens, rows); err != nil {
		return nil, err
	}
	s.keepLogits(rows[len(rows)-1])
	vocab := s.model.tokenizer.VocabSize()
	for i := range rows {
		rows[i] = rows[i][:vocab]
	}
	return rows, nil
}

// newRows returns n rows with room for the logits of a token each.
func (s *Session) newRows(n int) [][]float32 {
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = make([]float32, s.model.hyper.Vocab)
	}
	return rows
}

// top are the greatest logits after a token, the greatest first, with the tokens that they belong to.
type top struct {
	row    []float32
	logits []float32
	tokens []Token
}

// of takes n logits and as many tokens from a row. They are valid until the row changes.
func (t *top) of(row []float32, n int) *top {
	t.logits, t.tokens = row[:n], t.tokens[:0]
	for _, id := range row[n : 2*n] {
		t.tokens = append(t.tokens, Token(id))
	}
	return t
}

// evalTop evaluates what of the sequence is not yet, and returns at least n of the greatest logits
// after it, n being a number from topFor other than 0.
func (s *Session) evalTop(ctx context.Context, n int) (*top, error) {
	s.rows[0] = s.topRow()
	n, err := s.wanting(n, func() error { return s.extend(ctx, nil, s.rows[:]) })
	if err != nil {
		return nil, err
	}
	return s.top.of(s.top.row, n), nil
}

// topRow returns the session's room for the greatest logits.
func (s *Session) topRow() []float32 {
	if s.top.row == nil {
		s.top.row = make([]float32, 2*maxTop)
	}
	return s.top.row
}

// wanting has f evaluate for the n greatest logits, and returns how many each row has: n, or more if
// another sequence in the same pass wanted more. With n = 0 rows have all logits.
func (s *Session) wanting(n int, f func() error) (got int, err error) {
	s.job.top = n
	defer func() { s.job.top = 0 }()
	err = f()
	return s.job.top, err
}

// keepLogits notes a copy of the logits after the sequence.
func (s *Session) keepLogits(row []float32) {
	s.logits, s.valid = append(s.logits[:0], row...), len(s.tokens)
}

func (s *Session) eval(ctx context.Context, tokens []Token) ([]float32, error) {
	if len(tokens) == 0 && len(s.tokens) == 0 {
		return nil, ErrNoTokens
	}
	if len(tokens) > 0 || s.valid != len(s.tokens) {
		s.rows[0] = s.logitsRow()
		if err := s.extend(ctx, tokens, s.rows[:]); err != nil {
			return nil, err
		}
		s.valid = len(s.tokens)
	}
	return s.logits[:s.model.tokenizer.VocabSize()], nil
}

// extend appends tokens and evaluates all that are not yet, chunk by chunk. It leaves the
// logits of the last len(rows) tokens in rows. On an error nothing has changed.
func (s *Session) extend(ctx context.Context, tokens []Token, rows [][]float32) error {
	if err := s.check(tokens); err != nil {
		return err
	}
	before, evaluated := len(s.tokens), min(s.cells.Len(), len(s.tokens))
	s.tokens = append(s.tokens, tokens...)
	if len(tokens) > 0 {
		s.changes++
	}
	// The logits of tokens that were evaluated earlier are gone; computing them again
	// gives the same bits.
	from := min(evaluated, len(s.tokens)-len(rows))
	err := s.evaluate(ctx, from, rows)
	if err != nil {
		s.tokens, s.valid = s.tokens[:before], 0
		s.truncate(evaluated)
		return err
	}
	return nil
}

// check says whether tokens can be appended.
func (s *Session) check(tokens []Token) error {
	if len(s.tokens)+len(tokens) > s.context {
		return &ContextError{Have: len(s.tokens), More: len(tokens), Context: s.context}
	}
	return s.checkIDs(tokens)
}

// checkSequence says whether tokens can be the whole sequence.
func (s *Session) checkSequence(tokens []Token) error {
	if len(tokens) > s.context {
		return &ContextError{More: len(tokens), Context: s.context}
	}
	return s.checkIDs(tokens)
}

func (s *Session) checkIDs(tokens []Token) error {
	vocab := s.model.tokenizer.VocabSize()
	for _, t := range tokens {
		if t < 0 || int(t) >= vocab {
			return &TokenError{Token: t, Vocab: vocab}
		}
	}
	return nil
}

// evaluate runs the tokens from position from on. The cells of those are given up first.
func (s *Session) evaluate(ctx context.Context, from int, rows [][]float32) error {
	s.truncate(from)
	first := len(s.tokens) - len(rows) // the first token whose logits are wanted
	start := from
	if err := s.report(0, len(s.tokens)-start); err != nil {
		return err
	}
	for from < len(s.tokens) {
		to := min(from+s.chunk(), len(s.tokens))
		j := &s.job
		j.cells, j.tokens = s.cells, s.tokens[from:to]
		j.logits = rows[max(from, first)-first : max(to, first)-first]
		j.outputs = len(j.logits)
		if j.outputs == 0 {
			// Every graph has an output; one row is the least.
			j.outputs, j.logits = 1, s.spare()
		}
		if err := s.cache.eval(ctx, j); err != nil {
			return err
		}
		from = to
		if err := s.report(from-start, len(s.tokens)-start); err != nil {
			return err
		}
	}
	return nil
}

// politeBatch is how many tokens of a prompt are evaluated at once while others wait for their next.
const politeBatch = 64

// chunk is how many tokens of a prompt are evaluated at once. Beside other answers it is few enough
// that these get on meanwhile.
func (s *Session) chunk() int {
	if s.cache.answers.Load() > 1 {
		return min(s.batch, politeBatch)
	}
	return s.batch
}

func (s *Session) report(done, total int) (err error) {
	if s.onProgress != nil {
		defer recovered(&err, "reporting the progress of a prompt")
		s.callHost(func() { s.onProgress(done, total) })
	}
	return nil
}

// settle gives back the cells of tokens that were evaluated ahead of the sequence.
func (s *Session) settle() { s.truncate(len(s.tokens)) }

// spare is a row for logits that nobody wants.
func (s *Session) spare() [][]float32 {
	if s.job.top > 0 {
		s.rows[0] = s.topRow()
		return s.rows[:]
	}
	s.valid = 0
	s.rows[0] = s.logitsRow()
	return s.rows[:]
}

// logitsRow returns the session's room for all logits. They are copied there once a token, which takes three times as long
// where the place of each small page has to be looked up. So a session that has them all holds 2 MB at least, unless they are
// fewer than 32768.
func (s *Session) logitsRow() []float32 {
	s.logits = kernels.GrowLarge(s.logits, s.model.hyper.Vocab)
	return s.logits
}

// truncate gives cells back from position n on. In a closed model there are none.
func (s *Session) truncate(n int) {
	if n < s.cells.Len() && s.model.engine.enterToFree() {
		defer s.model.engine.leave()
		s.cells.Truncate(n)
	}
}

// Rewind shortens the sequence to its first n tokens. What it held of them stays
// evaluated.
func (s *Session) Rewind(n int) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	return s.rewind(n)
}

func (s *Session) rewind(n int) error {
	if n < 0 || n > len(s.tokens) {
		return optionErrorf("Rewind", "%d tokens, want 0 to the %d of the session", n, len(s.tokens))
	}
	s.truncate(n)
	if n == len(s.tokens) {
		return nil
	}
	s.tokens = s.tokens[:n]
	s.valid = 0
	s.changes++
	return nil
}

// SetTokens makes the sequence equal to tokens, keeping what it has in common with
// them from the start, and evaluates the rest. It returns how many tokens were kept
// without being evaluated again; at least the last one is evaluated. If the evaluation
// fails, the sequence is the part in common.
func (s *Session) SetTokens(ctx context.Context, tokens []Token) (kept int, err error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	defer s.end()
	return s.setTokens(orBackground(ctx), tokens)
}

func (s *Session) setTokens(ctx context.Context, tokens []Token) (kept int, err error) {
	if len(tokens) == 0 {
		return 0, ErrNoTokens
	}
	if err := s.checkSequence(tokens); err != nil {
		return 0, err
	}
	common := commonPrefix(s.tokens, tokens)
	kept = min(common, s.cells.Len(), len(tokens)-1)
	if err := s.rewind(min(common, len(tokens)-1)); err != nil {
		return 0, err
	}
	_, err = s.eval(ctx, tokens[len(s.tokens):])
	return kept, err
}

func commonPrefix(a, b []Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Fork returns a session with the same tokens, which shares the keys and values of
// both with this one. From then on they are independent.
func (s *Session) Fork() (*Session, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	s.settle()
	if err := s.model.engine.enter(context.Background()); err != nil {
		return nil, err
	}
	defer s.model.engine.leave()
	if s.cache.closed.Load() {
		return nil, ErrClosed
	}
	f := &Session{
		model: s.model, cache: s.cache, private: s.private, context: s.context, batch: s.batch,
		tokens: slices.Clone(s.tokens), cells: s.cells.Fork(), logits: slices.Clone(s.logits), valid: s.valid,
	}
	if f.private != nil {
		f.private.users.Add(1)
	}
	f.init()
	return f, nil
}
