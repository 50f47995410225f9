package minfer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/minfer/minfer/gguf"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/tokenizer"
)

// Pooling says how the activations of a text's tokens become one vector.
type Pooling uint8

const (
	// PoolDefault is what the model file asks for by its key pooling_type, and PoolLast if it
	// asks for nothing.
	PoolDefault Pooling = iota
	// PoolMean is the mean of all tokens.
	PoolMean
	// PoolFirst is the first token, the [CLS] of encoders.
	PoolFirst
	// PoolLast is the last token, the only one of a decoder that has seen the whole text.
	PoolLast
)

// String returns "default", "mean", "first" or "last".
func (p Pooling) String() string {
	switch p {
	case PoolDefault:
		return "default"
	case PoolMean:
		return "mean"
	case PoolFirst:
		return "first"
	case PoolLast:
		return "last"
	}
	return fmt.Sprintf("unknown(%d)", uint8(p))
}

// ErrNoEmbedding: the model gives no vector for a text, only scores of pairs for example.
var ErrNoEmbedding = errors.New("minfer: the model has no embeddings")

// EmbedOption changes how texts become vectors.
type EmbedOption func(*embedConfig)

type embedConfig struct {
	pooling Pooling
	raw     bool
}

// WithPooling replaces the pooling that the model file asks for.
func WithPooling(p Pooling) EmbedOption { return func(c *embedConfig) { c.pooling = p } }

// WithoutNormalization leaves vectors at the length that they have.
func WithoutNormalization() EmbedOption { return func(c *embedConfig) { c.raw = true } }

// Embed returns a vector of Info.Embedding numbers for each text. It is made from the model's
// activations after the last norm, pooled as the file or an option says, and of length 1, so
// that the product of two vectors is the cosine of the angle between them. A vector of zeros
// stays one.
//
// Texts are encoded with the tokens that the model wants at their ends, and never with special
// ones inside. Several are evaluated at a time; the vector of a text does not depend on the
// others. It is safe for concurrent use. A text without tokens is ErrNoTokens, one of more tokens
// than the model was trained for a *ContextError.
func (m *Model) Embed(ctx context.Context, texts []string, opts ...EmbedOption) ([][]float32, error) {
	if m.none() {
		return nil, ErrClosed
	}
	ctx = orBackground(ctx)
	tokens := make([][]Token, len(texts))
	for i, text := range texts {
		var err error
		if tokens[i], err = m.tokenizer.EncodeContext(ctx, text, tokenizer.EncodeOptions{AddSpecial: true}); err != nil {
			return nil, fmt.Errorf("minfer: text %d: %w", i, err)
		}
	}
	return m.EmbedTokens(ctx, tokens, opts...)
}

// EmbedTokens is Embed for texts that are tokens, to which none is added.
func (m *Model) EmbedTokens(ctx context.Context, texts [][]Token, opts ...EmbedOption) (vectors [][]float32, err error) {
	defer recovered(&err, "embedding texts")
	if m.none() {
		return nil, ErrClosed
	}
	ctx = orBackground(ctx)
	c := embedConfig{}
	apply(&c, opts)
	e, err := m.newEmbedder(&c)
	if err != nil {
		return nil, err
	}
	if err := e.check(texts); err != nil {
		return nil, err
	}
	if len(texts) == 0 {
		return nil, nil
	}
	groups := e.groups(texts)
	e.open(groups)
	defer func() { err = errors.Join(err, e.cache.Close()) }()
	for _, group := range groups {
		v, err := e.group(ctx, group)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, v...)
	}
	return vectors, nil
}

// embedder evaluates texts for their activations, in a cache of its own.
type embedder struct {
	model   *Model
	config  *embedConfig
	pooling Pooling
	full    bool // tokens attend to those after them too
	batch   int  // tokens evaluated at once
	cache   *GraphCache
}

// The values of GGUF's pooling_type.
const (
	poolingNone = iota
	poolingMean
	poolingCLS
	poolingLast
	poolingRank
)

func (m *Model) newEmbedder(c *embedConfig) (*embedder, error) {
	e := &embedder{model: m, config: c, pooling: c.pooling, batch: defaultBatch}
	if c.pooling > PoolLast {
		return nil, optionErrorf("WithPooling", "%v, want PoolMean, PoolFirst or PoolLast", c.pooling)
	}
	prefix := m.info.Architecture + "."
	if e.pooling == PoolDefault {
		kind, err := optional(m.file.Int(prefix + "pooling_type"))
		if err != nil {
			return nil, err
		}
		switch kind {
		case poolingMean:
			e.pooling = PoolMean
		case poolingCLS:
			e.pooling = PoolFirst
		case poolingNone, poolingLast:
			e.pooling = PoolLast
		case poolingRank:
			return nil, fmt.Errorf("%w: it scores pairs of texts (pooling_type %d)", ErrNoEmbedding, kind)
		default:
			return nil, fmt.Errorf("minfer: %spooling_type is %d, want %d to %d: %w", prefix, kind, poolingNone, poolingRank, ErrInvalidModel)
		}
	}
	if m.file.Has(prefix + "attention.causal") {
		causal, err := m.file.Bool(prefix + "attention.causal")
		if err != nil {
			return nil, fmt.Errorf("minfer: %w", err)
		}
		e.full = !causal
	}
	return e, nil
}

// optional is a value of the file, or 0 if that has none.
func optional(n int, err error) (int, error) {
	if errors.Is(err, gguf.ErrMissingKey) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("minfer: %w", err)
	}
	return n, nil
}

func (e *embedder) check(texts [][]Token) error {
	s := Session{model: e.model, context: e.model.hyper.ContextLength}
	for i, tokens := range texts {
		err := s.checkSequence(tokens)
		if len(tokens) == 0 {
			err = ErrNoTokens
		}
		if err != nil {
			return fmt.Errorf("minfer: text %d: %w", i, err)
		}
	}
	return nil
}

// groups divides the texts into those that are evaluated together. A longer text than
// fits is alone.
func (e *embedder) groups(texts [][]Token) (groups [][][]Token) {
	size := 0
	for _, tokens := range texts {
		if len(groups) == 0 || size+len(tokens) > e.batch {
			groups, size = append(groups, nil), 0
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], tokens)
		size += len(tokens)
	}
	return groups
}

// open makes the cache, with room for the largest group.
func (e *embedder) open(groups [][][]Token) {
	cells := 0
	for _, group := range groups {
		sum := 0
		for _, tokens := range group {
			sum += wholeBlocks(len(tokens))
		}
		cells = max(cells, sum)
	}
	e.cache = e.model.newCache(cells, cells)
	e.cache.batching = false
	e.cache.result = graph.Hidden
	if e.full {
		e.cache.mode = graph.Full
	}
}

// group returns the vectors of texts that are evaluated together.
func (e *embedder) group(ctx context.Context, texts [][]Token) ([][]float32, error) {
	if len(texts) == 1 {
		v, err := e.alone(ctx, texts[0])
		return [][]float32{v}, err
	}
	jobs := make([]*job, len(texts))
	for i, tokens := range texts {
		jobs[i] = e.job(tokens)
	}
	defer e.free(jobs)
	if err := e.run(ctx, jobs); err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(texts))
	for i, j := range jobs {
		sum := make([]float64, e.model.hyper.Embedding)
		e.pool(sum, j.logits)
		vectors[i] = e.finish(sum, len(texts[i]))
	}
	return vectors, nil
}

// alone returns the vector of a text of any length, part by part: what tokens attend to lies in
// the cache. Where they attend to what follows as well, there can be but one part.
func (e *embedder) alone(ctx context.Context, tokens []Token) ([]float32, error) {
	j := e.job(tokens)
	defer e.free([]*job{j})
	sum := make([]float64, e.model.hyper.Embedding)
	part := e.batch
	if e.full {
		part = len(tokens)
	}
	for from := 0; from < len(tokens); from += part {
		to := min(from+part, len(tokens))
		j.tokens = tokens[from:to]
		e.want(j)
		if err := e.run(ctx, []*job{j}); err != nil {
			return nil, err
		}
		switch {
		case e.pooling == PoolMean, e.pooling == PoolLast && to == len(tokens), e.pooling == PoolFirst && from == 0:
			e.pool(sum, j.logits)
		}
		if e.pooling == PoolFirst && !e.full {
			break // nothing that follows changes it
		}
	}
	return e.finish(sum, len(tokens)), nil
}

func (e *embedder) job(tokens []Token) *job {
	j := &job{cells: e.cache.pool.New(), tokens: tokens, closed: func() bool { return false }}
	e.want(j)
	return j
}

// want has a job return the rows that the pooling needs: the last one, or all.
func (e *embedder) want(j *job) {
	j.outputs = 1
	if e.pooling == PoolMean || e.pooling == PoolFirst {
		j.outputs = len(j.tokens)
	}
	for len(j.logits) < j.outputs {
		j.logits = append(j.logits, make([]float32, e.model.hyper.Embedding))
	}
	j.logits = j.logits[:j.outputs]
}

// run evaluates jobs in one pass.
func (e *embedder) run(ctx context.Context, jobs []*job) error {
	if err := e.model.engine.enter(ctx); err != nil {
		return err
	}
	defer e.model.engine.leave()
	c := e.cache
	c.batch.jobs = append(c.batch.jobs[:0], jobs...)
	c.run.Context = ctx
	defer func() { c.run.Context = nil }()
	c.runBatch()
	for _, j := range jobs {
		if j.err != nil {
			return j.err
		}
	}
	return nil
}

// free gives the cells of jobs back.
func (e *embedder) free(jobs []*job) {
	if e.model.engine.enterToFree() {
		defer e.model.engine.leave()
		for _, j := range jobs {
			j.cells.Truncate(0)
		}
	}
}

// pool adds rows to sum. Sums are of float64 in the order of the tokens, however those were
// evaluated, so that they have the same bits.
func (e *embedder) pool(sum []float64, rows [][]float32) {
	switch e.pooling {
	case PoolFirst:
		rows = rows[:1]
	case PoolLast:
		rows = rows[len(rows)-1:]
	}
	for _, row := range rows {
		for i, x := range row {
			sum[i] += float64(x)
		}
	}
}

// finish makes a vector of a sum over the tokens of a text.
func (e *embedder) finish(sum []float64, tokens int) []float32 {
	scale := 1.0
	if e.pooling == PoolMean {
		scale = float64(tokens)
	}
	if !e.config.raw {
		var squares float64
		for _, x := range sum {
			squares += float64(float64(x/scale) * float64(x/scale))
		}
		if squares > 0 {
			scale *= math.Sqrt(squares)
		}
	}
	vector := make([]float32, len(sum))
	for i, x := range sum {
		vector[i] = float32(x / scale)
	}
	return vector
}
