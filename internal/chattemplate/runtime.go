package chattemplate

import "golang.org/x/exp/slices"

// args are the arguments of one call.
type args struct {
	pos   []any
	names []string
	named []any
}

// absent stands for an optional argument that was not given.
type absentType struct{}

var absent any = absentType{}

// bind sorts the arguments into the parameters; the first required of them
// must be there.
func (a *args) bind(fn string, required int, params ...string) ([]any, error) {
	if len(a.pos) > len(params) {
		return nil, typeErrorf("%s() takes at most %d arguments (%d given)", fn, len(params), len(a.pos))
	}
	out := make([]any, len(params))
	for i := range out {
		out[i] = absent
	}
	copy(out, a.pos)
	for i, name := range a.names {
		at := slices.Index(params, name)
		if at < 0 {
			return nil, typeErrorf("%s() got an unexpected keyword argument '%s'", fn, clip(name))
		}
		if out[at] != absent {
			return nil, typeErrorf("%s() got multiple values for argument '%s'", fn, name)
		}
		out[at] = a.named[i]
	}
	for i := range required {
		if out[i] == absent {
			return nil, typeErrorf("%s() misses the argument '%s'", fn, params[i])
		}
	}
	return out, nil
}

// call is callee(a).
func call(r *run, callee any, a *args) (any, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	switch f := callee.(type) {
	case *function:
		return f.call(r, a)
	case *macro:
		return f.call(r, a)
	case *loop:
		return f.call(a)
	case *joiner:
		return f.call()
	case *undefined:
		return nil, f.fail()
	}
	return nil, typeErrorf("'%s' object is not callable", typeName(callee))
}

func isCallable(v any) bool {
	switch v := v.(type) {
	case *function, *macro, *joiner:
		return true
	case *loop:
		return true
	case *undefined:
		return v != nil // jinja's Undefined has a __call__, which fails
	}
	return false
}

// macro is a macro with the scope it was defined in, or a call block's body.
type macro struct {
	def   *macroDef
	scope *scope
}

func (m *macro) call(r *run, a *args) (any, error) {
	saved := r.scope
	defer func() { r.scope = saved }()
	s := &scope{parent: m.scope}
	r.scope = s
	if err := m.bind(r, a); err != nil {
		return nil, err
	}
	return r.capture(func() error { return r.exec(m.def.body) })
}

// bind sets the parameters in the current scope, defaults evaluated there.
func (m *macro) bind(r *run, a *args) error {
	def := m.def
	if len(a.pos) > len(def.params) && !def.usesArgs {
		return typeErrorf("macro '%s' takes not more than %d argument(s)", def.name, len(def.params))
	}
	named, err := m.sortNamed(r, a)
	if err != nil {
		return err
	}
	firstDefault := len(def.params) - len(def.defaults)
	for i, name := range def.params {
		v, given := named[name]
		switch {
		case i < len(a.pos):
			v = a.pos[i]
		case given:
		case i >= firstDefault:
			if v, err = r.eval(def.defaults[i-firstDefault]); err != nil {
				return err
			}
		default:
			v = undefinedf("parameter '%s' was not provided", clip(name))
		}
		r.scope.set(name, v)
	}
	if def.usesArgs {
		r.scope.set("varargs", &tuple{items: a.pos[min(len(def.params), len(a.pos)):]})
	}
	return nil
}

// sortNamed returns the named arguments that are parameters, and sets caller
// and kwargs.
func (m *macro) sortNamed(r *run, a *args) (map[string]any, error) {
	def := m.def
	named := make(map[string]any, len(a.names))
	rest := newDict(0)
	if def.usesCaller {
		r.scope.set("caller", undefinedf("No caller defined"))
	}
	for i, name := range a.names {
		if err := r.work(8 * len(def.params)); err != nil {
			return nil, err
		}
		at := slices.Index(def.params, name)
		switch {
		case at >= 0 && at < len(a.pos):
			return nil, typeErrorf("macro '%s' got multiple values for argument '%s'", def.name, clip(name))
		case at >= 0:
			named[name] = a.named[i]
		case name == "caller" && def.usesCaller:
			r.scope.set("caller", a.named[i])
		case def.usesKwargs:
			if err := rest.set(r, literal(name), a.named[i]); err != nil {
				return nil, err
			}
		default:
			return nil, typeErrorf("macro '%s' takes no keyword argument '%s'", def.name, clip(name))
		}
	}
	if def.usesKwargs {
		r.scope.set("kwargs", rest)
	}
	return named, nil
}

// loop is the variable of that name in a for loop. It reads ahead only as far
// as it is asked to.
type loop struct {
	r        *run
	source   any // what is iterated, nil where filtered: tells the length
	next     iterator
	ahead    []any
	index    int // from 1
	depth    int
	current  any
	previous any
	recurse  func(items any) (*text, error)
	changed  []any
	total    int
	known    bool
}

func (l *loop) advance() (any, bool, error) {
	item, ok, err := l.peek()
	if err != nil || !ok {
		return nil, false, err
	}
	l.ahead = l.ahead[1:]
	l.previous, l.current = l.current, item
	l.index++
	return item, true, nil
}

// peek is the item after the current one.
func (l *loop) peek() (any, bool, error) {
	if len(l.ahead) > 0 {
		return l.ahead[0], true, nil
	}
	item, ok, err := l.next()
	if err != nil || !ok {
		return nil, false, err
	}
	l.ahead = append(l.ahead, item)
	return item, true, nil
}

func (l *loop) length() (int, error) {
	if l.known {
		return l.total, nil
	}
	n, ok := 0, false
	if _, isLoop := l.source.(*loop); !isLoop {
		n, ok = length(l.source)
	}
	for !ok {
		item, more, err := l.next()
		if err != nil {
			return 0, err
		}
		if !more {
			n = l.index + len(l.ahead)
			break
		}
		l.ahead = append(l.ahead, item)
		if err := l.r.alloc(valueSize); err != nil {
			return 0, err
		}
	}
	l.total, l.known = n, true
	return n, nil
}

// iterator is for a loop that is itself iterated: it yields (item, loop).
func (l *loop) iterator() iterator {
	return func() (any, bool, error) {
		item, ok, err := l.advance()
		if err != nil || !ok {
			return nil, false, err
		}
		return &tuple{items: []any{item, l}}, true, nil
	}
}

func (l *loop) call(a *args) (any, error) {
	v, err := a.bind("loop", 1, "iterable")
	if err != nil {
		return nil, err
	}
	if l.recurse == nil {
		return nil, typeErrorf("the loop must have the 'recursive' marker to be called")
	}
	return l.recurse(v[0])
}

// attr is loop.name; false where there is no such attribute.
func (l *loop) attr(name string) (any, bool, error) {
	switch name {
	case "index":
		return int64(l.index), true, nil
	case "index0":
		return int64(l.index - 1), true, nil
	case "depth":
		return int64(l.depth + 1), true, nil
	case "depth0":
		return int64(l.depth), true, nil
	case "first":
		return l.index == 1, true, nil
	case "last":
		_, more, err := l.peek()
		return !more, true, err
	case "length", "revindex", "revindex0":
		n, err := l.length()
		switch name {
		case "revindex":
			n -= l.index - 1
		case "revindex0":
			n -= l.index
		}
		return int64(n), true, err
	case "previtem":
		if l.index <= 1 {
			return undefinedf("there is no previous item"), true, nil
		}
		return l.previous, true, nil
	case "nextitem":
		item, more, err := l.peek()
		if !more {
			return undefinedf("there is no next item"), true, err
		}
		return item, true, nil
	case "cycle":
		return &function{"cycle", l.cycle}, true, nil
	case "changed":
		return &function{"changed", l.hasChanged}, true, nil
	}
	return nil, false, nil
}

func (l *loop) cycle(_ *run, a *args) (any, error) {
	if len(a.pos) == 0 {
		return nil, typeErrorf("no items for cycling given")
	}
	return a.pos[(l.index-1)%len(a.pos)], nil
}

func (l *loop) hasChanged(r *run, a *args) (any, error) {
	if l.changed != nil {
		if same, err := equalItems(r, l.changed, a.pos); same || err != nil {
			return false, err
		}
	}
	l.changed = append([]any{}, a.pos...)
	return true, nil
}

// cycler is the global of that name.
type cycler struct {
	items []any
	at    int
}

func (c *cycler) attr(name string) (any, bool) {
	switch name {
	case "current":
		return c.items[c.at], true
	case "next":
		return &function{"next", func(*run, *args) (any, error) {
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v, nil
		}}, true
	case "reset":
		return &function{"reset", func(*run, *args) (any, error) {
			c.at = 0
			return nil, nil
		}}, true
	}
	return nil, false
}

// joiner returns nothing on its first call and the separator on later ones.
type joiner struct {
	sep  any
	used bool
}

func (j *joiner) call() (any, error) {
	if !j.used {
		j.used = true
		return emptyText, nil
	}
	return j.sep, nil
}
