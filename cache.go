package minfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/arch"
	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/internal/kvcells"
	"github.com/minfer/minfer/sched"
)

// lastUID is the uid of the graph that was stored last, by any cache.
var lastUID atomic.Uint64

// GraphCache holds what makes a forward pass cheap to repeat: graphs that are ready to
// execute, by their parameters, and the memory they run in, the keys and values of
// sessions above all. Every session has a cache of its own unless it is made on a shared
// one. It is safe for concurrent use.
//
// Sessions on a shared cache take cells from one supply, and those that evaluate at
// the same time can be batched into one forward pass.
type GraphCache struct {
	model  *Model
	closed atomic.Bool
	// Everything down to block is guarded by the engine's turn.
	alloc    *alloc.Allocator
	pool     *kvcells.Pool
	growBy   int // cells that the pool grows by when it is full; 0 if it may not
	programs map[graph.Params]*program
	limit    int // programs kept
	clock    uint64
	stats    CacheStats
	run      runContext
	batch    batch
	result   graph.Result        // what passes give
	mode     graph.AttentionMode // what tokens attend to
	copies   []kvcells.Copy
	block    []byte // host memory through which blocks are copied

	answers  atomic.Int32 // under way
	batching bool
	maxBatch int
	mu       sync.Mutex
	waiting  []*job // guarded by mu
}

// program is a graph that is ready to execute, with when it was last used.
type program struct {
	*sched.Program
	used uint64
}

// CacheStats counts what a cache has done and what it holds.
type CacheStats struct {
	Built     uint64 // graphs built because none with their parameters was there
	Reused    uint64 // executions of a graph that was
	Replays   uint64 // runs that a device launched from a recording
	Graphs    int    // graphs kept
	Cells     int    // rows of the key and value regions
	FreeCells int    // rows that no session holds
	Bytes     int64  // memory of buffers and regions, all devices together
}

// CacheOption changes how a cache is made.
type CacheOption func(*GraphCache)

// defaultGraphs is how many graphs a cache keeps.
const defaultGraphs = 16

// WithBatching decides whether sessions that evaluate at the same time share a forward pass, which
// they do by default: a pass for several tokens takes little longer than one for one. Results do not
// depend on it.
func WithBatching(on bool) CacheOption { return func(c *GraphCache) { c.batching = on } }

// WithGraphs sets how many graphs are kept; of more, the least recently used goes. The
// default is 16.
func WithGraphs(n int) CacheOption { return func(c *GraphCache) { c.limit = n } }

// NewGraphCache makes a cache with room for a number of tokens, to be shared by
// sessions. Sessions that need more together get ErrCacheFull.
func (m *Model) NewGraphCache(cells int, opts ...CacheOption) (*GraphCache, error) {
	if m.devices().isClosed() {
		return nil, ErrClosed
	}
	if cells < 1 || cells > maxCells {
		return nil, optionErrorf("cells", "%d, want 1 to %d", cells, maxCells)
	}
	c := m.newCache(cells, 0)
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
	if c.limit < 1 {
		return nil, optionErrorf("WithGraphs", "%d, want 1 or more", c.limit)
	}
	return c, nil
}

// maxCells bounds the cells of a cache: more than any model has context.
const maxCells = 1 << 26

func (m *Model) newCache(cells, growBy int) *GraphCache {
	cells = wholeBlocks(cells)
	c := &GraphCache{
		model:    m,
		alloc:    alloc.New(m.engine.devices),
		pool:     kvcells.NewPool(cells, backend.KVBlock, graph.MaxRuns),
		growBy:   growBy,
		programs: make(map[graph.Params]*program),
		limit:    defaultGraphs,
		batching: true,
		maxBatch: defaultBatch,
	}
	c.run.engine = m.engine
	return c
}

// Stats returns the cache's counters. It waits for the evaluation under way. After
// Model.Close it returns zeros.
func (c *GraphCache) Stats() CacheStats {
	if c.none() || !c.model.engine.enterToFree() {
		return CacheStats{}
	}
	defer c.model.engine.leave()
	s := c.stats
	s.Graphs, s.Cells, s.FreeCells = len(c.programs), c.pool.Cells(), c.pool.Free()
	for _, p := range c.programs {
		s.Replays += p.Replays()
	}
	a := c.alloc.Stats()
	s.Bytes = a.Staging
	for _, d := range a.Devices {
		s.Bytes += d.Arena + d.KV
	}
	return s
}

// Close frees the cache's memory. Sessions on it return ErrClosed from then on. It is
// safe to call at any time and more than once.
func (c *GraphCache) Close() error {
	if c.none() || c.closed.Swap(true) {
		return nil
	}
	if !c.model.engine.enterToFree() {
		return nil // the model's devices are gone, and the memory with them
	}
	defer c.model.engine.leave()
	for _, p := range c.programs {
		p.Release()
	}
	c.programs = nil
	if err := c.alloc.Close(); c.model.engine.fault == nil {
		return err
	}
	return nil // what devices say after a fault is known
}

// none reports whether there is no cache at all: c is nil or a zero value.
func (c *GraphCache) none() bool { return c == nil || c.model == nil }

// job is the share of one sequence in a forward pass.
type job struct {
	cells   *kvcells.Sequence
	tokens  []Token
	outputs int         // logits of the last so many tokens are wanted
	logits  [][]float32 // where they go, a row each; of a cache for them, the activations
	top     int         // if not 0, rows are so many of the greatest logits, and as many ids
	closed  func() bool // reports that the session has been closed
	before  int         // length of the sequence before
	session uint64      // for observers
	err     error
	done    chan struct{} // receives when another caller has run the job
}

// eval runs a job, alone or in a batch with others. On an error the sequence is as
// long as before.
func (c *GraphCache) eval(ctx context.Context, j *job) error {
	if j.closed() {
		return ErrClosed
	}
	if c.batching {
		return c.join(ctx, j)
	}
	if err := c.model.engine.enter(ctx); err != nil {
		return err
	}
	defer c.model.engine.leave()
	return c.runOne(ctx, j)
}

func (c *GraphCache) runOne(ctx context.Context, j *job) error {
	c.batch.jobs = append(c.batch.jobs[:0], j)
	c.run.Context, c.run.sessionClosed = ctx, j.closed
	c.runBatch()
	c.run.Context, c.run.sessionClosed = nil, nil
	return j.err
}

// join puts the job on the list and waits for a turn at the devices, or for somebody else
// to do the job: whoever gets a turn does all on the list that fit. A job that was taken
// off the list by another gets exactly one message on done, which has to be received.
func (c *GraphCache) join(ctx context.Context, j *job) error {
	c.mu.Lock()
	c.waiting = append(c.waiting, j)
	c.mu.Unlock()
	done, err := c.model.engine.enterUnless(ctx, j.done)
	if done {
		return j.err
	}
	if err != nil {
		if c.withdraw(j) {
			return err
		}
		<-j.done // somebody is doing it already
		return j.err
	}
	defer c.model.engine.leave()
	if !c.collect(j) {
		<-j.done
		return j.err
	}
	if len(c.batch.jobs) == 1 {
		return c.runOne(ctx, j)
	}
	// A batch is one short pass; it does not end for the sake of one caller.
	c.run.Context = context.Background()
	c.runBatch()
	c.run.Context = nil
	for _, other := range c.batch.jobs {
		if other != j {
			other.done <- struct{}{}
		}
	}
	return j.err
}

// withdraw takes the job off the list and reports whether it was there.
func (c *GraphCache) withdraw(j *job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, w := range c.waiting {
		if w == j {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// collect moves j and as many of the other waiting jobs as fit from the list to the
// batch. It reports false, and moves none, if j is not on the list any more.
func (c *GraphCache) collect(j *job) bool {
	if !c.withdraw(j) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batch.jobs = append(c.batch.jobs[:0], j)
	tokens, rest := len(j.tokens), c.waiting[:0]
	for _, w := range c.waiting {
		if tokens += len(w.tokens); tokens > c.maxBatch {
			tokens -= len(w.tokens)
			rest = append(rest, w)
			continue
		}
		c.batch.jobs = append(c.batch.jobs, w)
	}
	clear(c.waiting[len(rest):])
	c.waiting = rest
	return true
}

// batch is the rows of one forward pass. Its slices are reused from pass to pass.
type batch struct {
	jobs                                   []*job
	tokens, positions, cells, tails, spans []int32
	explicit                               bool
	top                                    int // the most that a job wants
}

// runBatch runs the jobs of the batch and leaves the outcome in each. On an error the
// sequences are as long as before.
func (c *GraphCache) runBatch() {
	for _, j := range c.batch.jobs {
		j.before, j.err = j.cells.Len(), nil
	}
	err := c.model.engine.note(c.tryBatch())
	for _, j := range c.batch.jobs {
		if err != nil && j.err == nil {
			j.err = err
		}
		if j.err != nil {
			j.cells.Truncate(j.before)
		}
	}
}

func (c *GraphCache) tryBatch() (err error) {
	defer recovered(&err, "evaluating")
	if c.closed.Load() {
		return ErrClosed
	}
	for _, j := range c.batch.jobs {
		j.err = c.reserve(j)
	}
	c.batch.gather(c.mode == graph.Full)
	if len(c.batch.tokens) == 0 {
		return nil // no job got cells; each has its error
	}
	p, err := c.program(c.params())
	if err != nil {
		return err
	}
	if err := c.batch.write(p); err != nil {
		return err
	}
	if err := c.execute(p); err != nil {
		return err
	}
	return c.batch.read(p)
}

// reserve gives cells to the tokens of a job and makes the copies that this calls for.
func (c *GraphCache) reserve(j *job) error {
	c.copies = c.copies[:0]
	var err error
	for compacted := false; ; {
		c.copies, err = j.cells.Append(len(j.tokens), c.copies)
		if err := c.copyBlocks(); err != nil {
			j.cells.Truncate(0) // what they hold is not what the books say
			return fmt.Errorf("minfer: %w", err)
		}
		scattered := errors.Is(err, kvcells.ErrScattered)
		if !scattered && !errors.Is(err, kvcells.ErrFull) {
			return err
		}
		if scattered && c.growBy == 0 && !compacted {
			if err := c.pool.Compact(c.copyBlock); err != nil {
				return fmt.Errorf("minfer: %w", err)
			}
			compacted = true
			continue
		}
		if c.growBy == 0 {
			return &CacheError{Needed: len(j.tokens), Free: c.pool.Free(), Cells: c.pool.Cells()}
		}
		cells := c.pool.Cells() + wholeBlocks(max(c.growBy, j.cells.Len()+len(j.tokens)))
		if err := c.alloc.GrowKV(cells); err != nil {
			return fmt.Errorf("minfer: %w", err)
		}
		c.pool.Grow(cells)
	}
}

// copyBlocks makes the copies noted in c.copies.
func (c *GraphCache) copyBlocks() error {
	for _, copy := range c.copies {
		if err := c.copyBlock(copy); err != nil {
			return err
		}
	}
	c.copies = c.copies[:0]
	return nil
}

// copyBlock copies a block in every layer.
func (c *GraphCache) copyBlock(copy kvcells.Copy) error {
	for layer := range c.model.hyper.Layers {
		kv, ok := c.alloc.KVPair(layer)
		if !ok {
			continue
		}
		n := alloc.BlockBytes(kv)
		if len(c.block) < 2*n {
			c.block = make([]byte, 2*n)
		}
		k, v := c.block[:n], c.block[n:2*n]
		if err := c.alloc.ReadKV(layer, copy.From, backend.KVBlock, k, v); err != nil {
			return err
		}
		if err := c.alloc.WriteKV(layer, copy.To, backend.KVBlock, k, v); err != nil {
			return err
		}
	}
	return nil
}

// params returns the parameters of the batch's graph.
func (c *GraphCache) params() graph.Params {
	p := c.model.engine.params(len(c.batch.tokens), len(c.batch.tails), c.pool.Cells())
	p.ExplicitSpan, p.Result, p.Mode, p.Top = c.batch.explicit, c.result, c.mode, c.batch.top
	return p
}

// program returns a program with the given parameters, built now or before.
func (c *GraphCache) program(p graph.Params) (*sched.Program, error) {
	c.clock++
	if kept := c.programs[p]; kept != nil {
		c.stats.Reused++
		kept.used = c.clock
		return kept.Program, nil
	}
	begun := time.Now()
	g, err := c.model.engine.build(p)
	if err != nil {
		return nil, err
	}
	g.UID = lastUID.Add(1)
	c.makeRoom()
	ready, err := sched.Prepare(g, c.alloc)
	if err != nil {
		return nil, fmt.Errorf("minfer: %w", err)
	}
	c.stats.Built++
	c.programs[p] = &program{ready, c.clock}
	c.model.engine.logBuilt(g, time.Since(begun))
	return ready, nil
}

// makeRoom drops the least recently used program if there are as many as may be.
func (c *GraphCache) makeRoom() {
	for len(c.programs) >= c.limit {
		var oldest graph.Params
		used := c.clock + 1
		for p, kept := range c.programs {
			if kept.used < used {
				oldest, used = p, kept.used
			}
		}
		c.stats.Replays += c.programs[oldest].Replays()
		c.model.engine.log.Debug("graph dropped", "graph", c.programs[oldest].Graph().UID, "kept", len(c.programs)-1)
		c.programs[oldest].Release()
		delete(c.programs, oldest)
	}
}

// gather lists the rows of all jobs that have cells. Spans are listed where positions do not
// say what tokens attend to.
func (b *batch) gather(spans bool) {
	b.tokens, b.positions, b.cells, b.tails, b.spans = b.tokens[:0], b.positions[:0], b.cells[:0], b.tails[:0], b.spans[:0]
	b.explicit, b.top = spans || len(b.jobs) > 1, 0
	for _, j := range b.jobs {
		if j.err != nil {
			continue
		}
		b.explicit, b.top = b.explicit || !j.cells.Contiguous(), max(b.top, j.top)
		b.tokens = append(b.tokens, j.tokens...)
		for i := range j.tokens {
			b.positions = append(b.positions, int32(j.before+i))
			b.cells = append(b.cells, int32(j.cells.Cell(j.before+i)))
		}
		for i := range j.outputs {
			b.tails = append(b.tails, int32(len(b.tokens)-j.outputs+i))
		}
	}
	if b.explicit {
		b.gatherSpans()
	}
}

func (b *batch) gatherSpans() {
	for _, j := range b.jobs {
		if j.err != nil {
			continue
		}
		runs := j.cells.Runs()
		for range j.tokens {
			for i := range graph.MaxRuns {
				var r kvcells.Run
				if i < len(runs) {
					r = runs[i]
				}
				b.spans = append(b.spans, int32(r.Start), int32(r.Length))
			}
		}
	}
}

func (b *batch) write(p *sched.Program) error {
	err := p.WriteInput(arch.InputTokens, b.tokens)
	if err == nil {
		err = p.WriteInput(arch.InputPositions, b.positions)
	}
	if err == nil {
		err = p.WriteInput(arch.InputCells, b.cells)
	}
	if err == nil && len(b.tails) < len(b.tokens) {
		err = p.WriteInput(arch.InputTail, b.tails)
	}
	if err == nil && b.explicit {
		err = p.WriteInput(arch.InputSpans, b.spans)
	}
	return err
}

// read fetches each job's logits, or the greatest of them.
func (b *batch) read(p *sched.Program) error {
	row := 0
	for _, j := range b.jobs {
		if j.err != nil {
			continue
		}
		output := 0
		if j.top > 0 {
			output, j.top = 1, b.top
		}
		for _, dst := range j.logits {
			if j.top > 0 {
				dst = dst[:2*j.top]
			}
			if err := p.ReadOutput(output, row, dst); err != nil {
				return err
			}
			row++
		}
	}
	return nil
}
