package chattemplate

func (s *dataStmt) exec(r *run) error { return r.out.add(s.text) }

func (s *printStmt) exec(r *run) error {
	v, err := r.eval(s.value)
	if err != nil {
		return err
	}
	t, err := toText(r, v)
	if err != nil {
		return err
	}
	return r.out.add(t)
}

func (s *ifStmt) exec(r *run) error {
	for i, test := range s.tests {
		v, err := r.eval(test)
		if err != nil {
			return err
		}
		if truth(v) {
			return r.exec(s.bodies[i])
		}
	}
	if len(s.bodies) > len(s.tests) {
		return r.exec(s.bodies[len(s.tests)])
	}
	return nil
}

func (s *forStmt) exec(r *run) error {
	items, err := r.eval(s.iter)
	if err != nil {
		return err
	}
	return s.over(r, r.scope, items, 0)
}

// loopCost is the weight of an iteration: a scope is made for each.
const loopCost = 4 * 64

// over runs the loop over items, with outer as the enclosing scope; depth
// counts the recursions.
func (s *forStmt) over(r *run, outer *scope, items any, depth int) error {
	next, err := iterate(r, items)
	if err != nil {
		return err
	}
	saved := r.scope
	defer func() { r.scope = saved }()
	l := &loop{r: r, depth: depth, source: items, next: next}
	if s.filter != nil {
		l.source, l.next = nil, s.filtered(r, outer, next)
	}
	if s.recursive {
		l.recurse = func(items any) (*text, error) {
			return r.capture(func() error { return s.over(r, outer, items, depth+1) })
		}
	}
	for {
		r.scope = outer
		item, ok, err := l.advance()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := r.work(loopCost); err != nil {
			return err
		}
		r.scope = &scope{parent: outer, names: make([]string, 0, 4), values: make([]any, 0, 4)}
		r.scope.set("loop", l)
		if err := s.target.assign(r, item); err != nil {
			return err
		}
		switch err := r.exec(s.body); err {
		case nil, errContinue:
		case errBreak:
			return nil
		default:
			return err
		}
	}
	if l.index > 0 {
		return nil
	}
	return r.within(outer, nil, s.otherwise)
}

// filtered skips the items that the loop's if rejects.
func (s *forStmt) filtered(r *run, outer *scope, next iterator) iterator {
	return func() (any, bool, error) {
		saved := r.scope
		defer func() { r.scope = saved }()
		for {
			item, ok, err := next()
			if err != nil || !ok {
				return nil, false, err
			}
			r.scope = &scope{parent: outer}
			if err := s.target.assign(r, item); err != nil {
				return nil, false, err
			}
			keep, err := r.eval(s.filter)
			if err != nil {
				return nil, false, err
			}
			if truth(keep) {
				return item, true, nil
			}
		}
	}
}

func (*breakStmt) exec(*run) error    { return errBreak }
func (*continueStmt) exec(*run) error { return errContinue }

func (s *setStmt) exec(r *run) error {
	v, err := r.eval(s.value)
	if err != nil {
		return err
	}
	return s.target.assign(r, v)
}

// assign stores v in the current scope, or in a namespace.
func (t *target) assign(r *run, v any) error {
	switch {
	case t.tuple:
		return t.unpack(r, v)
	case t.attr == "":
		r.scope.set(t.name, v)
		return nil
	}
	object, ok := r.scope.lookup(t.name)
	if !ok {
		return r.locate(undefinedf("'%s' is undefined", clip(t.name)).fail(), t.pos)
	}
	ns, ok := object.(*namespace)
	if !ok {
		return r.locate(typeErrorf("cannot assign attribute on non-namespace object"), t.pos)
	}
	return ns.attrs.set(r, literal(t.attr), v)
}

func (t *target) unpack(r *run, v any) error {
	next, err := iterate(r, v)
	if err != nil {
		return typeErrorf("cannot unpack non-iterable %s object", typeName(v))
	}
	for i := range t.items {
		item, ok, err := next()
		if err != nil {
			return err
		}
		if !ok {
			return valueErrorf("not enough values to unpack (expected %d, got %d)", len(t.items), i)
		}
		if err := t.items[i].assign(r, item); err != nil {
			return err
		}
	}
	if _, more, err := next(); err != nil || more {
		if err == nil {
			err = valueErrorf("too many values to unpack (expected %d)", len(t.items))
		}
		return err
	}
	return nil
}

func (s *setBlockStmt) exec(r *run) error {
	var v any
	v, err := r.capture(func() error { return r.within(r.scope, nil, s.body) })
	if err != nil {
		return err
	}
	if v, err = applyFilters(r, s.filter, v); err != nil {
		return err
	}
	return s.target.assign(r, v)
}

// applyFilters runs a chain of filters over v, the text of a block.
func applyFilters(r *run, e expr, v any) (any, error) {
	if e == nil {
		return v, nil
	}
	saved := r.scope
	defer func() { r.scope = saved }()
	r.scope = &scope{parent: saved}
	r.scope.set(blockText, v)
	return r.eval(e)
}

// blockText is the name, impossible in a source, under which filter blocks
// find their text.
const blockText = "{% %}"

func (s *withStmt) exec(r *run) error {
	values, err := r.evalAll(s.values) // in the outer scope, all of them
	if err != nil {
		return err
	}
	return r.within(r.scope, func(*scope) error {
		for i := range values {
			if err := s.targets[i].assign(r, values[i]); err != nil {
				return err
			}
		}
		return nil
	}, s.body)
}

func (s *scopeStmt) exec(r *run) error { return r.within(r.scope, nil, s.body) }

func (s *filterStmt) exec(r *run) error {
	v, err := r.capture(func() error { return r.within(r.scope, nil, s.body) })
	if err != nil {
		return err
	}
	filtered, err := applyFilters(r, s.filter, v)
	if err != nil {
		return err
	}
	t, err := toText(r, filtered)
	if err != nil {
		return err
	}
	return r.out.add(t)
}

func (s *macroStmt) exec(r *run) error {
	r.scope.set(s.name, &macro{s.fn, r.scope})
	return r.alloc(4 * valueSize)
}

func (s *callStmt) exec(r *run) error {
	v, err := s.call.call(r, &macro{s.caller, r.scope})
	if err != nil {
		return err
	}
	t, err := toText(r, v)
	if err != nil {
		return err
	}
	return r.out.add(t)
}
