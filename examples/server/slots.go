package main

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/minfer/minfer"
)

// slot is a session that answers one request at a time. What it holds of the last one is
// kept, for the next request that begins alike.
type slot struct {
	session *minfer.Session
	tokens  []minfer.Token // what the session holds while the slot is idle
	used    uint64         // when it was last in use, in counts of releases
}

// pool hands slots to requests. Requests that find none wait in line.
type pool struct {
	model   *minfer.Model
	options []minfer.SessionOption
	limit   int // requests that may wait

	mu      sync.Mutex
	slots   int
	idle    []*slot
	waiting []chan *slot // a closed one tells that the pool has closed
	clock   uint64
	closed  bool
}

func newPool(model *minfer.Model, slots, limit int, options ...minfer.SessionOption) (*pool, error) {
	p := &pool{model: model, options: options, limit: limit, slots: slots}
	for range slots {
		session, err := model.NewSession(options...)
		if err != nil {
			return nil, err
		}
		p.idle = append(p.idle, &slot{session: session})
	}
	return p, nil
}

var (
	errBusy     = newError(http.StatusTooManyRequests, overloaded, "too many requests are waiting; try again later").code("rate_limit_exceeded")
	errShutdown = newError(http.StatusServiceUnavailable, overloaded, "the server is shutting down")
)

// acquire returns a slot for a prompt, one that holds as much of it as possible. It has to be
// given back with release.
func (p *pool) acquire(ctx context.Context, prompt []minfer.Token) (*slot, error) {
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, errShutdown
	case len(p.idle) > 0:
		chosen, donor := p.choose(prompt)
		p.mu.Unlock()
		if donor != nil {
			err := p.copySlot(chosen, donor)
			p.handOn(donor)
			if err != nil {
				p.handOn(chosen)
				return nil, err
			}
		}
		return chosen, nil
	case len(p.waiting) >= p.limit:
		p.mu.Unlock()
		return nil, errBusy
	}
	turn := make(chan *slot, 1)
	p.waiting = append(p.waiting, turn)
	p.mu.Unlock()
	select {
	case s, ok := <-turn:
		if !ok {
			return nil, errShutdown
		}
		return s, nil
	case <-ctx.Done():
		p.leave(turn)
		return nil, ctx.Err()
	}
}

// leave takes a request out of the line. If it was just given a slot, that goes to the next.
func (p *pool) leave(turn chan *slot) {
	p.mu.Lock()
	for i, w := range p.waiting {
		if w == turn {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			p.mu.Unlock()
			return
		}
	}
	p.mu.Unlock()
	if s, ok := <-turn; ok {
		p.handOn(s)
	}
}

// choose takes the slot for a prompt from the idle ones. If the slot that begins most like the
// prompt holds much else, which would be lost, it is taken too, as the donor: the prompt gets
// a copy, in the slot that was out of use the longest.
func (p *pool) choose(prompt []minfer.Token) (chosen, donor *slot) {
	best, common := 0, -1
	oldest := 0
	for i, s := range p.idle {
		n := commonPrefix(s.tokens, prompt)
		if n > common || n == common && s.used < p.idle[best].used {
			best, common = i, n
		}
		if s.used < p.idle[oldest].used {
			oldest = i
		}
	}
	alike := p.idle[best]
	if common*2 >= len(alike.tokens) || oldest == best {
		p.take(alike)
		return alike, nil
	}
	chosen = p.idle[oldest]
	p.take(chosen)
	if common <= commonPrefix(chosen.tokens, prompt) {
		return chosen, nil
	}
	p.take(alike)
	return chosen, alike
}

func (p *pool) take(s *slot) {
	for i := range p.idle {
		if p.idle[i] == s {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return
		}
	}
}

func commonPrefix(a, b []minfer.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// more takes up to n further slots, those that were out of use the longest, without waiting.
func (p *pool) more(n int) []*slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	var taken []*slot
	for len(taken) < n && len(p.idle) > 0 && !p.closed {
		oldest := p.idle[0]
		for _, s := range p.idle {
			if s.used < oldest.used {
				oldest = s
			}
		}
		p.take(oldest)
		taken = append(taken, oldest)
	}
	return taken
}

// copySlot makes the slot's session a copy of another's, with which it shares memory. Both
// slots belong to the caller.
func (p *pool) copySlot(to, from *slot) error {
	fork, err := from.session.Fork()
	if err != nil {
		return err
	}
	err = to.session.Close()
	to.session, to.tokens = fork, from.tokens
	return err
}

// release gives a slot back.
func (p *pool) release(s *slot) {
	s.tokens = s.session.Tokens()
	p.handOn(s)
}

// handOn gives a slot to the request that waits the longest, or puts it with the idle ones.
func (p *pool) handOn(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock++
	s.used = p.clock
	if len(p.waiting) > 0 {
		p.waiting[0] <- s
		p.waiting = p.waiting[1:]
		return
	}
	p.idle = append(p.idle, s)
}

// drain turns away the requests that wait and those that come. Those that have slots go on.
func (p *pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, turn := range p.waiting {
		close(turn)
	}
	p.waiting = nil
}

// close closes the sessions of the idle slots, which are all once no request is under way.
func (p *pool) close() error {
	p.drain()
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.idle {
		errs = append(errs, s.session.Close())
	}
	return errors.Join(errs...)
}

// counts returns how many slots are in use and how many requests wait.
func (p *pool) counts() (busy, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots - len(p.idle), len(p.waiting)
}
