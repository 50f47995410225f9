package cpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

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
	// shareCost is the work below which a chunk is not worth handing out: some
	// microseconds, against the microsecond or so that a handover takes.
	shareCost = 1 << 13
	// chunksPerThread evens out threads that run at different speeds.
	chunksPerThread = 4
	// spins is how often a worker looks for work before it sleeps, tens of
	// microseconds: longer than the small operations between two products take.
	spins = 1 << 12
	// spinsPerYield is how often it looks before it lets another goroutine run.
	spinsPerYield = 1 << 5
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
	spins   int
	scratch []kernels.Scratch // one per thread, the caller's first

	// The job: written before it is opened, read by workers inside it.
	task  task
	items int
	chunk int
	next  atomic.Int64 // the first item that nobody has taken

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
	p := &pool{threads: threads, scratch: make([]kernels.Scratch, threads), left: make(chan struct{}, 1)}
	for i := range p.scratch {
		p.scratch[i].Tier = tier
	}
	p.wake = sync.NewCond(&p.mu)
	// With more threads than processors, one that spins keeps another from working.
	if threads <= runtime.GOMAXPROCS(0) && threads <= runtime.NumCPU() {
		p.spins = spins
	}
	return p
}

// run works off a task of so many items, each of about cost nanoseconds. It returns
// the panic of any thread as an error.
func (p *pool) run(t task, items, cost int) error {
	chunk := chunkOf(items, cost, p.threads)
	if chunk >= items {
		return p.alone(t, items)
	}
	p.start()
	p.task, p.items, p.chunk = t, items, chunk
	p.next.Store(0)
	p.state.Add(stateJob + stateOpen) // it was closed, with nobody inside
	p.rouse((items+chunk-1)/chunk - 1)
	p.work(&p.scratch[0])
	p.finish()
	p.task = nil
	return p.err()
}

// chunkOf returns how many items to hand out at once.
func chunkOf(items, cost, threads int) int {
	if threads == 1 {
		return items
	}
	least := shareCost/max(1, cost) + 1
	return max(least, (items+threads*chunksPerThread-1)/(threads*chunksPerThread))
}

func (p *pool) alone(t task, items int) error {
	p.runAll(t, items)
	return p.err()
}

func (p *pool) runAll(t task, items int) {
	defer p.keepPanic()
	t.run(&p.scratch[0], 0, items)
}

// work takes chunks until there are none left.
func (p *pool) work(s *kernels.Scratch) {
	defer p.keepPanic()
	for {
		hi := int(p.next.Add(int64(p.chunk)))
		lo := hi - p.chunk
		if lo >= p.items {
			return
		}
		p.task.run(s, lo, min(hi, p.items))
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
	state := p.state.Add(^uint64(stateOpen - 1)) // clears the bit, which is set
	for i := 0; state&stateWorkers != 0; i++ {
		if i < p.spins {
			if i%spinsPerYield == spinsPerYield-1 {
				runtime.Gosched()
			}
		} else if p.state.CompareAndSwap(state, state|stateWaiting) {
			<-p.left
			p.state.Add(^uint64(stateWaiting - 1))
			return
		}
		state = p.state.Load()
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
		go p.worker(&p.scratch[i])
	}
}

// worker joins jobs until the pool is closed.
func (p *pool) worker(s *kernels.Scratch) {
	defer p.workers.Done()
	// Weights may be mapped from a file; a fault there shall be an error too.
	debug.SetPanicOnFault(true)
	var done uint64 // the job last seen
	for p.await(done) {
		state, ok := p.enter(done)
		done = state / stateJob
		if !ok {
			continue
		}
		p.work(s)
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
func (p *pool) await(done uint64) bool {
	for i := range p.spins {
		if fresh(p.state.Load(), done) {
			return true
		}
		if i%spinsPerYield == spinsPerYield-1 {
			runtime.Gosched()
		}
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
