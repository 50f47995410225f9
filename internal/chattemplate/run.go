package chattemplate

import (
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/exp/slices"
)

// run is one rendering: the budgets, where the output goes, and the scope in
// which names are looked up. Everything that loops, recurses or allocates on
// behalf of the template asks the run first.
type run struct {
	ctx       context.Context
	tmpl      *Template
	now       func() time.Time
	steps     int64
	maxSteps  int64
	nextCheck int64
	mem       int64
	maxMem    int64
	maxOut    int64
	depth     int

	out   *builder
	scope *scope
}

// maxDepth bounds every recursion: nested syntax, macros, data. Go's stack
// overflow cannot be recovered from; at this depth a few MB are in use.
const maxDepth = 2000

// checkEvery is the number of steps between looks at the context.
const checkEvery = 1024

// step counts one operation.
func (r *run) step() error { return r.work(64) }

// work counts an operation that touches n bytes; 64 bytes weigh one step. A negative n is
// a product that an int of 32 bits could not hold.
func (r *run) work(n int) error {
	if n < 0 {
		n = math.MaxInt32
	}
	r.steps += int64(n >> 6)
	if r.steps < r.nextCheck {
		return nil
	}
	if r.steps > r.maxSteps {
		return limitError("steps", r.maxSteps)
	}
	r.nextCheck = min(r.steps+checkEvery, r.maxSteps)
	if err := r.ctx.Err(); err != nil {
		return &RenderError{Message: err.Error(), Err: err}
	}
	return nil
}

// scan counts an operation that decodes and looks at each code point of n bytes.
func (r *run) scan(n int) error { return r.work(4 * n) }

// alloc counts n bytes of strings or containers. The count is of all that was
// ever allocated, so it bounds what is live.
func (r *run) alloc(n int) error {
	if n < 0 {
		n = math.MaxInt32 // as in work
	}
	r.mem += int64(n)
	if r.mem > r.maxMem {
		return limitError("memory bytes", r.maxMem)
	}
	return r.work(n)
}

func (r *run) memLeft() int64 { return r.maxMem - r.mem }

// enter begins a level of recursion; leave ends it.
func (r *run) enter() error {
	if r.depth++; r.depth > maxDepth {
		return limitError("levels of nesting", maxDepth)
	}
	return r.step()
}

func (r *run) leave() { r.depth-- }

// locate adds the position to an error that has none yet.
func (r *run) locate(err error, pos int) error {
	var re *RenderError
	if errors.As(err, &re) && re.Line == 0 {
		re.Line, re.Column = lineColumn(r.tmpl.source, pos)
	}
	return err
}

func (r *run) eval(e expr) (any, error) {
	if err := r.enter(); err != nil {
		return nil, r.locate(err, e.position())
	}
	v, err := e.eval(r)
	r.depth--
	if err != nil {
		return nil, r.locate(err, e.position())
	}
	return v, nil
}

// evalAll evaluates in order.
func (r *run) evalAll(es []expr) ([]any, error) {
	if err := r.alloc(valueSize * len(es)); err != nil {
		return nil, err
	}
	out := make([]any, len(es))
	for i, e := range es {
		v, err := r.eval(e)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (r *run) exec(body []stmt) error {
	for _, s := range body {
		if err := r.enter(); err != nil {
			return r.locate(err, s.position())
		}
		err := s.exec(r)
		r.depth--
		if err != nil {
			return r.locate(err, s.position())
		}
	}
	return nil
}

// within runs body in a new scope below parent.
func (r *run) within(parent *scope, prepare func(*scope) error, body []stmt) error {
	saved := r.scope
	r.scope = &scope{parent: parent}
	defer func() { r.scope = saved }()
	if prepare != nil {
		if err := prepare(r.scope); err != nil {
			return err
		}
	}
	return r.exec(body)
}

// capture collects what f writes.
func (r *run) capture(f func() error) (*text, error) {
	saved := r.out
	b := builder{r: r, limit: r.maxOut}
	r.out = &b
	err := f()
	r.out = saved
	if err != nil {
		return nil, err
	}
	return b.text(), nil
}

// scope is one level of names. Most hold one or two, so they are searched
// linearly until a map pays.
type scope struct {
	parent *scope
	names  []string
	values []any
	index  map[string]int
}

const linearScope = 16

func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	return slices.Index(s.names, name)
}

func (s *scope) set(name string, v any) {
	if i := s.find(name); i >= 0 {
		s.values[i] = v
		return
	}
	s.names = append(s.names, name)
	s.values = append(s.values, v)
	switch n := len(s.names); {
	case s.index != nil:
		s.index[name] = n - 1
	case n > linearScope:
		s.index = make(map[string]int, 2*n)
		for i, name := range s.names {
			s.index[name] = i
		}
	}
}

func (s *scope) lookup(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.values[i], true
		}
	}
	return nil, false
}
