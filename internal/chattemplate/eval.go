package chattemplate

import (
	"errors"
	"math/big"
)

var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

func (e *constExpr) eval(*run) (any, error) { return e.value, nil }

func (e *nameExpr) eval(r *run) (any, error) {
	if v, ok := r.scope.lookup(e.name); ok {
		return v, nil
	}
	if v, ok := globals[e.name]; ok {
		return v, nil
	}
	return undefinedf("'%s' is undefined", clip(e.name)), nil
}

func (e *tupleExpr) eval(r *run) (any, error) {
	items, err := r.evalAll(e.items)
	return &tuple{items: items}, err
}

func (e *listExpr) eval(r *run) (any, error) {
	items, err := r.evalAll(e.items)
	return &list{items}, err
}

func (e *dictExpr) eval(r *run) (any, error) {
	d := newDict(len(e.keys))
	for i := range e.keys {
		k, err := r.eval(e.keys[i])
		if err != nil {
			return nil, err
		}
		v, err := r.eval(e.values[i])
		if err != nil {
			return nil, err
		}
		if err := d.set(r, k, v); err != nil {
			return nil, err
		}
	}
	return d, r.alloc(valueSize)
}

func (e *attrExpr) eval(r *run) (any, error) {
	object, err := r.eval(e.object)
	if err != nil {
		return nil, err
	}
	return getAttr(r, object, e.name)
}

func (e *itemExpr) eval(r *run) (any, error) {
	object, err := r.eval(e.object)
	if err != nil {
		return nil, err
	}
	index, err := r.eval(e.index)
	if err != nil {
		return nil, err
	}
	return getItem(r, object, index)
}

func (e *sliceExpr) eval(r *run) (any, error) {
	object, err := r.eval(e.object)
	if err != nil {
		return nil, err
	}
	var bounds [3]any
	for i, b := range []expr{e.start, e.stop, e.step} {
		if b == nil {
			continue
		}
		if bounds[i], err = r.eval(b); err != nil {
			return nil, err
		}
	}
	return getSlice(r, object, bounds)
}

func (e *unaryExpr) eval(r *run) (any, error) {
	v, err := r.eval(e.operand)
	if err != nil {
		return nil, err
	}
	if e.op == "not" {
		return !truth(v), nil
	}
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case float64:
		if e.op == "-" {
			return -v, nil
		}
		return v, nil
	}
	if !isInt(v) {
		return nil, typeErrorf("bad operand type for unary %s: '%s'", e.op, typeName(v))
	}
	return arithmetic(e.op, int64(0), v)
}

func (e *binaryExpr) eval(r *run) (any, error) {
	a, err := r.eval(e.left)
	if err != nil {
		return nil, err
	}
	b, err := r.eval(e.right)
	if err != nil {
		return nil, err
	}
	return binary(r, e.op, a, b)
}

// arithmeticCost weighs an operation: those on big integers take microseconds.
func arithmeticCost(op string, a, b any) int {
	_, bigA := a.(*big.Int)
	_, bigB := b.(*big.Int)
	if bigA || bigB || op == "**" {
		return 64 * 100
	}
	return 64
}

func binary(r *run, op string, a, b any) (any, error) {
	if isNumber(a) && isNumber(b) {
		if err := r.work(arithmeticCost(op, a, b)); err != nil {
			return nil, err
		}
		return arithmetic(op, a, b)
	}
	if u, ok := a.(*undefined); ok {
		return nil, u.fail()
	}
	if t, ok := a.(*text); ok && op == "%" {
		return printf(r, t, b)
	}
	if u, ok := b.(*undefined); ok {
		return nil, u.fail()
	}
	switch op {
	case "+":
		return add(r, a, b)
	case "*":
		if n, ok := smallInt(a); ok {
			return repeat(r, b, n)
		}
		if n, ok := smallInt(b); ok {
			return repeat(r, a, n)
		}
	}
	return nil, typeErrorf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

func add(r *run, a, b any) (any, error) {
	switch x := a.(type) {
	case *text:
		if y, ok := b.(*text); ok {
			return concat(r, x, y)
		}
		return nil, typeErrorf("can only concatenate str (not \"%s\") to str", typeName(b))
	case *list:
		if y, ok := b.(*list); ok {
			return newList(r, append(x.items[:len(x.items):len(x.items)], y.items...))
		}
	case *tuple:
		if y, ok := b.(*tuple); ok {
			items := append(x.items[:len(x.items):len(x.items)], y.items...)
			return &tuple{items: items}, r.alloc(valueSize * len(items))
		}
	}
	return nil, typeErrorf("unsupported operand type(s) for +: '%s' and '%s'", typeName(a), typeName(b))
}

// repeat is v * n.
func repeat(r *run, v any, n int64) (any, error) {
	n = max(n, 0)
	charge := func(size int) error { // before anything is made
		if size > 0 && n > r.memLeft()/int64(size) {
			return limitError("memory bytes", r.maxMem)
		}
		return r.alloc(size * int(n))
	}
	switch v := v.(type) {
	case *text:
		if err := charge(len(v.s) + len(v.marks)*16); err != nil {
			return nil, err
		}
		if len(v.s) == 0 {
			return v, nil
		}
		b := builder{r: r}
		b.grow(len(v.s) * int(n))
		for range n {
			if err := b.add(v); err != nil {
				return nil, err
			}
		}
		t := b.text()
		t.safe = v.safe
		return t, nil
	case *list:
		if err := charge(len(v.items) * valueSize); err != nil {
			return nil, err
		}
		return &list{repeatItems(v.items, n)}, nil
	case *tuple:
		if err := charge(len(v.items) * valueSize); err != nil {
			return nil, err
		}
		return &tuple{items: repeatItems(v.items, n)}, nil
	}
	return nil, typeErrorf("can't multiply sequence by non-int of type '%s'", typeName(v))
}

func repeatItems(items []any, n int64) []any {
	if len(items) == 0 {
		return nil
	}
	out := make([]any, 0, len(items)*int(n))
	for range n {
		out = append(out, items...)
	}
	return out
}

func (e *logicExpr) eval(r *run) (any, error) {
	v, err := r.eval(e.left)
	if err != nil || truth(v) == e.or {
		return v, err
	}
	return r.eval(e.right)
}

func (e *concatExpr) eval(r *run) (any, error) {
	b := builder{r: r}
	for _, part := range e.parts {
		v, err := r.eval(part)
		if err != nil {
			return nil, err
		}
		t, err := toText(r, v)
		if err != nil {
			return nil, err
		}
		if err := b.add(t); err != nil {
			return nil, err
		}
	}
	return b.text(), nil
}

func (e *compareExpr) eval(r *run) (any, error) {
	left, err := r.eval(e.first)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		right, err := r.eval(e.rest[i])
		if err != nil {
			return nil, err
		}
		ok, err := compareOp(r, op, left, right)
		if err != nil || !ok {
			return false, err
		}
		left = right
	}
	return true, nil
}

func compareOp(r *run, op string, a, b any) (bool, error) {
	switch op {
	case "==", "!=":
		same, err := equal(r, a, b)
		return same == (op == "=="), err
	case "in", "not in":
		in, err := contains(r, b, a)
		return in == (op == "in"), err
	}
	if isNaN(a) && isNumber(b) || isNaN(b) && isNumber(a) {
		return false, nil
	}
	c, err := compare(r, a, b, op)
	switch op {
	case "<":
		return c < 0, err
	case "<=":
		return c <= 0, err
	case ">":
		return c > 0, err
	}
	return c >= 0, err
}

func isNaN(v any) bool {
	f, ok := v.(float64)
	return ok && f != f
}

func (e *condExpr) eval(r *run) (any, error) {
	test, err := r.eval(e.test)
	switch {
	case err != nil:
		return nil, err
	case truth(test):
		return r.eval(e.yes)
	case e.no == nil:
		return undefinedf("the inline if-expression evaluated to false and no else section was defined"), nil
	}
	return r.eval(e.no)
}

// args evaluates call arguments.
func (r *run) args(c *callArgs) (*args, error) {
	a := &args{}
	var err error
	if len(c.pos) > 0 {
		if a.pos, err = r.evalAll(c.pos); err != nil {
			return nil, err
		}
	}
	if len(c.named) > 0 {
		a.names = c.names[:len(c.names):len(c.names)]
		if a.named, err = r.evalAll(c.named); err != nil {
			return nil, err
		}
	}
	if c.star != nil {
		v, err := r.eval(c.star)
		if err != nil {
			return nil, err
		}
		more, err := collect(r, v)
		if err != nil {
			return nil, err
		}
		if err := r.alloc(valueSize * len(more)); err != nil {
			return nil, err
		}
		a.pos = append(a.pos, more...)
	}
	if c.starStar == nil {
		return a, nil
	}
	return a, r.starStarArgs(c.starStar, a)
}

func (r *run) starStarArgs(e expr, a *args) error {
	v, err := r.eval(e)
	if err != nil {
		return err
	}
	d, ok := v.(*dict)
	if !ok {
		return typeErrorf("argument after ** must be a mapping, not %s", typeName(v))
	}
	if err := r.alloc(2 * valueSize * len(d.entries)); err != nil {
		return err
	}
	for _, entry := range d.entries {
		name, ok := entry.key.(*text)
		if !ok {
			return typeErrorf("keywords must be strings, not %s", typeName(entry.key))
		}
		a.names, a.named = append(a.names, name.s), append(a.named, entry.value)
	}
	return nil
}

func (e *callExpr) eval(r *run) (any, error) { return e.call(r, nil) }

// call evaluates callee and arguments; caller is a call block's body or nil.
func (e *callExpr) call(r *run, caller *macro) (any, error) {
	var callee any
	var err error
	if attr, ok := e.callee.(*attrExpr); ok {
		var object any
		if object, err = r.eval(attr.object); err != nil {
			return nil, err
		}
		if m := findMethod(object, attr.name); m != nil && caller == nil {
			a, err := r.args(&e.args)
			if err != nil {
				return nil, err
			}
			return m(r, object, a)
		}
		callee, err = getAttr(r, object, attr.name)
	} else {
		callee, err = r.eval(e.callee)
	}
	if err != nil {
		return nil, err
	}
	a, err := r.args(&e.args)
	if err != nil {
		return nil, err
	}
	if caller != nil {
		a.names, a.named = append(a.names, "caller"), append(a.named, caller)
	}
	return call(r, callee, a)
}

func (e *filterExpr) eval(r *run) (any, error) {
	v, err := r.eval(e.operand)
	if err != nil {
		return nil, err
	}
	if e.fn == nil {
		return nil, failf(ErrType, "no filter named '%s'", clip(e.name))
	}
	a, err := r.args(&e.args)
	if err != nil {
		return nil, err
	}
	return e.fn(r, v, a)
}

func (e *testExpr) eval(r *run) (any, error) {
	v, err := r.eval(e.operand)
	if err != nil {
		return nil, err
	}
	if e.fn == nil {
		return nil, failf(ErrType, "no test named '%s'", clip(e.name))
	}
	a, err := r.args(&e.args)
	if err != nil {
		return nil, err
	}
	return e.fn(r, v, a)
}
