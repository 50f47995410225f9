package cpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minfer/minfer/backend"
	"github.com/minfer/minfer/internal/kernels"
	"github.com/minfer/minfer/internal/mmap"
)

// task is work on n items that can be cut anywhere. Tasks are fields of the device
// and not closures, so that handing one out allocates nothing.
type task interface {
	// run works on items lo to hi-1. The scratch memory is the worker's own.
	run(s *kernels.Scratch, lo, hi int)
}

const (
	// shareCost is the work that is not worth handing out: some microseconds, against the microsecond
	// or so that a handover takes.
	shareCost = 1 << 13
	// grainCost is the work below which a job that is handed out is not cut.
	grainCost = 1 << 11
	// smallestCut is the part of a thread's share that is the least it takes at once, unless it streams.
	smallestCut = 16
	// patience is how long a worker looks for work before it sleeps: longer than what the host does between
	// two tokens. Waking it takes 150 microseconds on a virtual machine, half a layer.
	patience = 2 * time.Millisecond
	// spinsPerYield is how often it looks before it lets another goroutine run.
	spinsPerYield = 1 << 5
	// aheadMost is how much of the next weights a thread reads while it looks for work: what takes it some
	// twenty microseconds, and fits in a second-level cache. It looks after each aheadStep.
	aheadMost = 384 << 10
	aheadStep = 4 << 10
)

// The state of the pool is one word: the number of the job, whether it still takes
// workers, whether the caller sleeps until the last of them leaves, and how many are
// inside. A worker enters and leaves by changing the word, so that one which comes
// late finds the job closed and delays nobody.
const (
	stateWorkers = 1<<16 - 1
	stateWaiting = 1 << 16
	stateOpen    = 1 << 17
	stateJob     = 1 << 18
)

// pool runs tasks on goroutines. The caller of run is one of the threads.
type pool struct {
	threads int
	spin    bool              // look for a while before sleeping
	scratch []kernels.Scratch // one per thread, the caller's first

	// The job: written before it is opened, read by workers inside it.
	task   task
	items  int
	grain  int      // items that are not separated
	least  int      // grains to take at once
	shares []share  // one per thread
	ahead  [][]byte // what each thread reads first in the next job, or none

	state    atomic.Uint64
	sleepers atomic.Int32
	left     chan struct{} // the last worker has left, and the caller sleeps

	mu      sync.Mutex // guards closed and failure, and sleeping on wake
	wake    *sync.Cond
	closed  bool
	started bool
	failure error
	workers sync.WaitGroup
}

func newPool(threads int, tier kernels.Tier) *pool {
	p := &pool{threads: threads, scratch: make([]kernels.Scratch, threads), shares: make([]share, threads), left: make(chan struct{}, 1)}
	for i := range p.scratch {
		p.scratch[i].Tier = tier
	}
	p.wake = sync.NewCond(&p.mu)
	// With more threads than processors, one that spins keeps another from working.
	if threads <= runtime.GOMAXPROCS(0) && threads <= runtime.NumCPU() {
		p.spin = true
	}
	return p
}

// run works off a task of so many items, each of about cost nanoseconds. It returns
// the panic of any thread as an error.
func (p *pool) run(t task, items, cost int) error {
	grain, grains := grainsOf(items, cost, p.threads)
	return p.together(t, items, grain, grains, (grains-1)/(p.threads*smallestCut)+1, nil)
}

// stream is run for a task that reads much memory once, so that a thread loses nothing by taking little at a time. Those who wait
// for the end, or for the next job, read ahead meanwhile what is theirs.
func (p *pool) stream(t task, items, cost int, ahead [][]byte) error {
	grain, grains := grainsOf(items, cost, p.threads)
	return p.together(t, items, grain, grains, 1, ahead)
}

func (p *pool) together(t task, items, grain, grains, least int, ahead [][]byte) error {
	if grains == 1 {
		return p.alone(t, items)
	}
	p.start()
	p.task, p.items, p.grain, p.least, p.ahead = t, items, grain, least, ahead
	for i := range p.shares {
		p.shares[i].set(i*grains/p.threads, (i+1)*grains/p.threads)
	}
	p.state.Add(stateJob + stateOpen) // it was closed, with nobody inside
	p.rouse(grains - 1)
	p.work(0)
	p.finish()
	p.task = nil
	return p.err()
}

// grainsOf returns how many items are not to be separated, and how many such grains there are.
func grainsOf(items, cost, threads int) (grain, grains int) {
	cost = max(1, cost)
	if threads == 1 || items <= shareCost/cost {
		return items, 1
	}
	grain = max(grainCost/cost, 1, items>>30) // numbers of grains have 32 bits
	return grain, (items-1)/grain + 1
}

func (p *pool) alone(t task, items int) error {
	p.runAll(t, items)
	return p.err()
}

func (p *pool) runAll(t task, items int) {
	defer p.keepPanic()
	t.run(&p.scratch[0], 0, items)
}

// work works off the share of a thread and then what is left of the others'.
func (p *pool) work(thread int) {
	defer p.keepPanic()
	for i := range p.threads {
		s := &p.shares[(thread+i)%p.threads]
		for {
			lo, hi := s.take(p.least, i == 0)
			if lo == hi {
				break
			}
			p.task.run(&p.scratch[thread], lo*p.grain, min(hi*p.grain, p.items))
		}
	}
}

// share is the grains of a thread that nobody has taken yet. Its owner takes from the front, so that
// it reads weights from end to end and what is fetched ahead of a chunk is what it needs next. Others take from the
// back, and half of it, as the owner does: they seldom meet.
type share struct {
	span atomic.Uint64 // the first in the high half, the end in the low half
	_    [64 - 8]byte  // a line of the cache
}

func (s *share) set(lo, hi int) { s.span.Store(uint64(lo)<<32 | uint64(hi)) }

// take takes half of the share but not less than least, if there are as many; no grains if there are none.
func (s *share) take(least int, owner bool) (lo, hi int) {
	for {
		span := s.span.Load()
		lo, hi = int(span>>32), int(uint32(span))
		n := min(hi-lo, max(least, (hi-lo+1)/2))
		rest := uint64(lo+n)<<32 | uint64(hi)
		if owner {
			hi = lo + n
		} else {
			rest = uint64(lo)<<32 | uint64(hi-n)
			lo = hi - n
		}
		if n == 0 || s.span.CompareAndSwap(span, rest) {
			return lo, hi
		}
	}
}

// keepPanic is deferred: it makes a panic the pool's failure.
func (p *pool) keepPanic() {
	if v := recover(); v != nil {
		p.mu.Lock()
		if p.failure == nil {
			p.failure = failureOf(v)
		}
		p.mu.Unlock()
	}
}

func (p *pool) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// finish closes the job and returns when every worker has left it.
func (p *pool) finish() {
	p.state.Add(^uint64(stateOpen - 1)) // clears the bit, which is set
	var state uint64
	if p.lookFor(func() bool {
		state = p.state.Load()
		return state&stateWorkers == 0
	}, p.aheadOf(0)) {
		return
	}
	for ; state&stateWorkers != 0; state = p.state.Load() {
		if p.state.CompareAndSwap(state, state|stateWaiting) {
			<-p.left
			p.state.Add(^uint64(stateWaiting - 1))
			return
		}
	}
}

// aheadOf is what a thread of the job is to read ahead.
func (p *pool) aheadOf(thread int) []byte {
	if thread >= len(p.ahead) {
		return nil
	}
	return p.ahead[thread]
}

// lookFor looks until there is what is looked for, or patience is at an end, and reads ahead.
func (p *pool) lookFor(found func() bool, ahead []byte) bool {
	if !p.spin {
		return found()
	}
	tier := p.scratch[0].Tier
	for begun := time.Now(); ; {
		for range spinsPerYield {
			if found() {
				return true
			}
		}
		if len(ahead) > 0 {
			n := min(len(ahead), aheadStep)
			tier.ReadMemory(ahead[:n])
			ahead = ahead[n:]
			continue
		}
		if time.Since(begun) > patience {
			return false
		}
		runtime.Gosched()
	}
}

// rouse wakes up to n of the workers that sleep.
func (p *pool) rouse(n int) {
	n = min(n, int(p.sleepers.Load()))
	if n <= 0 {
		return
	}
	p.mu.Lock()
	for range n {
		p.wake.Signal()
	}
	p.mu.Unlock()
}

func (p *pool) start() {
	if p.started {
		return
	}
	p.started = true
	for i := 1; i < p.threads; i++ {
		p.workers.Add(1)
		go p.worker(i)
	}
}

// worker joins jobs until the pool is closed.
func (p *pool) worker(thread int) {
	defer p.workers.Done()
	// Weights may be mapped from a file; a fault there shall be an error too.
	debug.SetPanicOnFault(true)
	var done uint64 // the job last seen
	var ahead []byte
	for p.await(done, ahead) {
		state, ok := p.enter(done)
		done = state / stateJob
		if !ok {
			continue
		}
		p.work(thread)
		ahead = p.aheadOf(thread)
		if state = p.state.Add(^uint64(0)); state&(stateWorkers|stateWaiting) == stateWaiting {
			p.left <- struct{}{}
		}
	}
}

// enter joins the open job unless it is the one last seen.
func (p *pool) enter(done uint64) (state uint64, ok bool) {
	for {
		state = p.state.Load()
		if !fresh(state, done) {
			return state, false
		}
		if p.state.CompareAndSwap(state, state+1) {
			return state, true
		}
	}
}

// fresh reports whether there is an open job other than the one last seen.
func fresh(state, done uint64) bool { return state&stateOpen != 0 && state/stateJob != done }

// await returns true when there may be a job, and false when the pool is closed.
func (p *pool) await(done uint64, ahead []byte) bool {
	if p.lookFor(func() bool { return fresh(p.state.Load(), done) }, ahead) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Counted before the last look: either this look sees a job that opens now, or
	// the job's opener sees the sleeper.
	p.sleepers.Add(1)
	defer p.sleepers.Add(-1)
	for !p.closed && !fresh(p.state.Load(), done) {
		p.wake.Wait()
	}
	return !p.closed
}

// close stops the workers and waits for them. No job may be running.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.wake.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
}

// failureOf is the error for what was recovered: a defect of this module, or memory of a mapped
// file that could not be read.
func failureOf(v any) error {
	if fault := mmap.AsFault(v); fault != nil {
		return fmt.Errorf("cpu: %w\n%s", fault, debug.Stack())
	}
	return fmt.Errorf("cpu: %w", backend.CaughtPanic(v))
}
