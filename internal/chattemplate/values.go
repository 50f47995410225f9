package chattemplate

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// The values of the language, as Go types:
//
//	None nil          bool bool         int int64, or *big.Int beyond
//	float float64     str *text         list *list
//	tuple *tuple      dict *dict        range *rangeValue
//	generator *generator                dict views *dictView
//	undefined *undefined                namespace() *namespace
//	functions *function, *macro, and the objects of runtime.go
//
// Values never change once made, but for namespaces, generators and the loop
// objects: the sandbox has no mutable lists or dicts.
type (
	list  struct{ items []any }
	tuple struct {
		items  []any
		fields []string // names of the items, for groupby's pairs
	}
	dict struct {
		entries []entry
		index   map[any]int // by hashKey
	}
	entry     struct{ key, value any }
	namespace struct{ attrs *dict }
	dictView  struct {
		of   *dict
		kind string // "keys", "values", "items"
	}
	rangeValue struct{ start, stop, step int64 }
	// generator yields its items once.
	generator struct{ next iterator }
	// undefined is a value that is not there; message says why using it fails.
	undefined struct {
		message string
		cause   error
	}
	// function is a built-in that can be called, a bound method included.
	function struct {
		name string
		call func(r *run, a *args) (any, error)
	}
)

// iterator returns the next item and true, or false at the end.
type iterator func() (any, bool, error)

// valueSize is what one slot of a container is charged: the interface and a
// small value behind it.
const valueSize = 32

func undefinedf(format string, args ...any) *undefined {
	return &undefined{fmt.Sprintf(format, args...), ErrUndefined}
}

// fail is the error of using an undefined value.
func (u *undefined) fail() error { return &RenderError{Message: u.message, Err: u.cause} }

func newDict(capacity int) *dict {
	return &dict{entries: make([]entry, 0, capacity), index: make(map[any]int, capacity)}
}

// set stores under a hashable key, charging the run.
func (d *dict) set(r *run, key, value any) error {
	h, err := hashKey(r, key)
	if err != nil {
		return err
	}
	if i, ok := d.index[h]; ok {
		d.entries[i].value = value
		return nil
	}
	d.index[h] = len(d.entries)
	d.entries = append(d.entries, entry{key, value})
	return r.alloc(4 * valueSize)
}

func (d *dict) get(r *run, key any) (any, bool, error) {
	h, err := hashKey(r, key)
	if err != nil {
		return nil, false, err
	}
	if i, ok := d.index[h]; ok {
		return d.entries[i].value, true, nil
	}
	return nil, false, nil
}

func (d *dict) getString(key string) (any, bool) {
	if i, ok := d.index[key]; ok {
		return d.entries[i].value, true
	}
	return nil, false
}

// hashKey maps equal keys to equal Go map keys, as Python does: 1, 1.0 and
// True are one key.
func hashKey(r *run, v any) (any, error) {
	switch v := v.(type) {
	case *text:
		return v.s, r.work(len(v.s))
	case nil:
		return struct{}{}, nil
	case bool:
		return int64(boolInt(v)), nil
	case int64:
		return v, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), nil
		}
		return v, nil
	case *big.Int:
		return [2]string{"int", v.String()}, r.alloc(v.BitLen())
	case *tuple:
		if err := r.enter(); err != nil {
			return nil, err
		}
		defer r.leave()
		var b strings.Builder
		for _, item := range v.items {
			h, err := hashKey(r, item)
			if err != nil {
				return nil, err
			}
			s := fmt.Sprintf("%T:%v", h, h)
			fmt.Fprintf(&b, "%d:%s", len(s), s)
			if err := r.alloc(len(s)); err != nil {
				return nil, err
			}
		}
		return [2]string{"tuple", b.String()}, nil
	case *list, *dict, *dictView:
		return nil, typeErrorf("unhashable type: '%s'", typeName(v))
	}
	return v, nil // by identity
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// typeName is Python's name of v's type.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case *text:
		if v.safe {
			return "Markup"
		}
		return "str"
	case *list:
		return "list"
	case *tuple:
		return "tuple"
	case *dict:
		return "dict"
	case *dictView:
		return "dict_" + v.kind
	case *rangeValue:
		return "range"
	case *generator:
		return "generator"
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	}
	return "function"
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case *text:
		return v.s != ""
	}
	if n, ok := length(v); ok {
		return n > 0
	}
	return true
}

// length is len(v), false where v has none.
func length(v any) (int, bool) {
	switch v := v.(type) {
	case *text:
		return runeLen(v.s), true
	case *list:
		return len(v.items), true
	case *tuple:
		return len(v.items), true
	case *dict:
		return len(v.entries), true
	case *dictView:
		return len(v.of.entries), true
	case *rangeValue:
		return v.len(), true
	case *undefined:
		return 0, true
	case *loop:
		n, err := v.length()
		return n, err == nil
	}
	return 0, false
}

func (v *rangeValue) len() int {
	switch {
	case v.step > 0 && v.start < v.stop:
		return int((v.stop-v.start-1)/v.step + 1)
	case v.step < 0 && v.start > v.stop:
		return int((v.start-v.stop-1)/-v.step + 1)
	}
	return 0
}

// iterate returns an iterator over v.
func iterate(r *run, v any) (iterator, error) {
	switch v := v.(type) {
	case *list:
		return overSlice(v.items), nil
	case *tuple:
		return overSlice(v.items), nil
	case *dict:
		return (&dictView{v, "keys"}).iterator(), nil
	case *dictView:
		return v.iterator(), nil
	case *text:
		return overRunes(v), nil
	case *rangeValue:
		i, n := -1, v.len()
		return func() (any, bool, error) {
			if i++; i >= n {
				return nil, false, nil
			}
			return v.start + int64(i)*v.step, true, nil
		}, nil
	case *generator:
		return v.next, nil
	case *undefined:
		if v.cause != ErrUndefined {
			return nil, v.fail()
		}
		return overSlice(nil), nil
	case *loop:
		return v.iterator(), nil
	}
	return nil, typeErrorf("'%s' object is not iterable", typeName(v))
}

func overSlice(items []any) iterator {
	i := -1
	return func() (any, bool, error) {
		if i++; i >= len(items) {
			return nil, false, nil
		}
		return items[i], true, nil
	}
}

// overRunes yields one-character texts.
func overRunes(t *text) iterator {
	i := 0
	return func() (any, bool, error) {
		if i >= len(t.s) {
			return nil, false, nil
		}
		_, n := utf8.DecodeRuneInString(t.s[i:])
		c := t.slice(i, i+n).plain()
		i += n
		return c, true, nil
	}
}

func (v *dictView) iterator() iterator {
	i := -1
	return func() (any, bool, error) {
		if i++; i >= len(v.of.entries) {
			return nil, false, nil
		}
		return v.at(i), true, nil
	}
}

func (v *dictView) at(i int) any {
	e := v.of.entries[i]
	switch v.kind {
	case "keys":
		return e.key
	case "values":
		return e.value
	}
	return &tuple{items: []any{e.key, e.value}}
}

// collect is list(v).
func collect(r *run, v any) ([]any, error) {
	switch v := v.(type) {
	case *list:
		return v.items, nil
	case *tuple:
		return v.items, nil
	}
	next, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	var items []any
	for {
		item, ok, err := next()
		if err != nil || !ok {
			return items, err
		}
		items = append(items, item)
		if err := r.alloc(2 * valueSize); err != nil {
			return nil, err
		}
	}
}

// newList charges for a list made of items.
func newList(r *run, items []any) (*list, error) {
	return &list{items}, r.alloc(valueSize * (len(items) + 1))
}

// equal is ==.
func equal(r *run, a, b any) (bool, error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.leave()
	if c, ok := compareNumbers(a, b); ok {
		return c == 0, nil
	}
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case *text:
		b, ok := b.(*text)
		if !ok || len(a.s) != len(b.s) {
			return false, nil
		}
		return a.s == b.s, r.work(len(a.s))
	case *list:
		b, ok := b.(*list)
		if !ok {
			return false, nil
		}
		return equalItems(r, a.items, b.items)
	case *tuple:
		b, ok := b.(*tuple)
		if !ok {
			return false, nil
		}
		return equalItems(r, a.items, b.items)
	case *dict:
		b, ok := b.(*dict)
		if !ok {
			return false, nil
		}
		return equalDicts(r, a, b)
	case *rangeValue:
		b, ok := b.(*rangeValue)
		return ok && *a == *b, nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	}
	if isNumber(a) || isNumber(b) {
		return false, nil // NaN, or a number and something else
	}
	return a == b, nil
}

func equalItems(r *run, a, b []any) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if ok, err := equal(r, a[i], b[i]); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func equalDicts(r *run, a, b *dict) (bool, error) {
	if len(a.entries) != len(b.entries) {
		return false, nil
	}
	for _, e := range a.entries {
		v, ok, err := b.get(r, e.key)
		if !ok || err != nil {
			return false, err
		}
		if ok, err := equal(r, e.value, v); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// compare orders a and b, for <, sort and their like; op is for the message.
func compare(r *run, a, b any, op string) (int, error) {
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.leave()
	if c, ok := compareNumbers(a, b); ok {
		return c, nil
	}
	switch x := a.(type) {
	case *text:
		if y, ok := b.(*text); ok {
			return strings.Compare(x.s, y.s), r.work(min(len(x.s), len(y.s)))
		}
	case *list:
		if y, ok := b.(*list); ok {
			return compareItems(r, x.items, y.items, op)
		}
	case *tuple:
		if y, ok := b.(*tuple); ok {
			return compareItems(r, x.items, y.items, op)
		}
	case *undefined:
		return 0, x.fail()
	}
	if u, ok := b.(*undefined); ok {
		return 0, u.fail()
	}
	return 0, typeErrorf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

func compareItems(r *run, a, b []any, op string) (int, error) {
	for i := range min(len(a), len(b)) {
		if same, err := equal(r, a[i], b[i]); err != nil {
			return 0, err
		} else if !same {
			return compare(r, a[i], b[i], op)
		}
	}
	return len(a) - len(b), nil
}

// contains is item in v.
func contains(r *run, v, item any) (bool, error) {
	switch v := v.(type) {
	case *text:
		part, ok := item.(*text)
		if !ok {
			return false, typeErrorf("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return strings.Contains(v.s, part.s), r.work(len(v.s))
	case *dict:
		_, ok, err := v.get(r, item)
		return ok, err
	}
	next, err := iterate(r, v)
	if err != nil {
		return false, typeErrorf("argument of type '%s' is not iterable", typeName(v))
	}
	for {
		x, more, err := next()
		if err != nil || !more {
			return false, err
		}
		if same, err := equal(r, x, item); same || err != nil {
			return same, err
		}
	}
}
