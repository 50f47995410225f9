package chattemplate

import (
	"math"
	"math/big"
	"strings"

	"golang.org/x/exp/slices"
)

// method is a method of a built-in type, called with its object.
type method func(r *run, object any, a *args) (any, error)

// findMethod returns object.name if that is a method, else nil.
func findMethod(object any, name string) method {
	switch object.(type) {
	case *text:
		return textMethods[name]
	case *list, *tuple:
		return sequenceMethods[name]
	case *dict:
		return dictMethods[name]
	case float64:
		return floatMethods[name]
	case int64, *big.Int, bool:
		return intMethods[name]
	}
	return nil
}

// mutators are the methods that the immutable sandbox withholds.
func isMutator(object any, name string) bool {
	switch object.(type) {
	case *list:
		switch name {
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return true
		}
	case *dict:
		switch name {
		case "clear", "pop", "popitem", "setdefault", "update":
			return true
		}
	}
	return false
}

// unsafeAttr is what the sandbox hands out for an attribute it withholds:
// undefined, and an error once it is used.
func unsafeAttr(object any, name string) *undefined {
	return &undefined{"access to attribute '" + clip(name) + "' of '" + typeName(object) + "' object is unsafe", ErrSecurity}
}

func isDunder(name string) bool {
	return len(name) > 4 && strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__")
}

// getAttr is object.name: an attribute, else the item under that name.
func getAttr(r *run, object any, name string) (any, error) {
	if u, ok := object.(*undefined); ok {
		return nil, u.fail()
	}
	if v, ok, err := ownAttr(r, object, name); ok || err != nil {
		return v, err
	}
	if d, ok := object.(*dict); ok {
		if v, ok := d.getString(name); ok {
			return v, nil
		}
	}
	return noAttr(object, name), nil
}

func noAttr(object any, name string) *undefined {
	if object == nil {
		return undefinedf("'None' has no attribute '%s'", clip(name))
	}
	return undefinedf("'%s object' has no attribute '%s'", typeName(object), clip(name))
}

// ownAttr is the attribute of the object itself, not an item.
func ownAttr(r *run, object any, name string) (any, bool, error) {
	if err := r.work(len(name)); err != nil {
		return nil, false, err
	}
	if isDunder(name) {
		return nil, false, unsafeAttr(object, name).fail()
	}
	if m := findMethod(object, name); m != nil {
		return &function{name, func(r *run, a *args) (any, error) { return m(r, object, a) }}, true, r.alloc(4 * valueSize)
	}
	switch object := object.(type) {
	case *namespace:
		v, ok := object.attrs.getString(name)
		return v, ok, nil
	case *loop:
		return object.attr(name)
	case *cycler:
		v, ok := object.attr(name)
		return v, ok, nil
	case *joiner:
		switch name {
		case "sep":
			return object.sep, true, nil
		case "used":
			return object.used, true, nil
		}
	case *macro:
		v, ok := object.attr(name)
		return v, ok, nil
	case *tuple:
		if i := slices.Index(object.fields, name); i >= 0 {
			return object.items[i], true, nil
		}
	case *rangeValue:
		switch name {
		case "start":
			return object.start, true, nil
		case "stop":
			return object.stop, true, nil
		case "step":
			return object.step, true, nil
		}
	}
	if isMutator(object, name) {
		return unsafeAttr(object, name), true, nil
	}
	return nil, false, nil
}

func (m *macro) attr(name string) (any, bool) {
	switch name {
	case "name":
		return literal(m.def.name), true
	case "arguments":
		t := &tuple{}
		for _, p := range m.def.params {
			t.items = append(t.items, literal(p))
		}
		return t, true
	case "catch_kwargs":
		return m.def.usesKwargs, true
	case "catch_varargs":
		return m.def.usesArgs, true
	case "caller":
		return m.def.usesCaller, true
	}
	return nil, false
}

// getItem is object[key]: an item, else the attribute of that name.
func getItem(r *run, object, key any) (any, error) {
	switch o := object.(type) {
	case *undefined:
		return nil, o.fail()
	case *dict:
		switch key.(type) {
		case *list, *dict, *dictView: // unhashable: no such item
		default:
			if v, ok, err := o.get(r, key); ok || err != nil {
				return v, err
			}
		}
	case *list, *tuple, *text, *rangeValue:
		if i, ok := smallInt(key); ok {
			return itemAt(r, object, i)
		}
	}
	name, ok := key.(*text)
	if !ok {
		return undefinedf("'%s object' has no such element", typeName(object)), nil
	}
	if v, ok, err := ownAttr(r, object, name.s); ok || err != nil {
		return v, err
	}
	return noAttr(object, name.s), nil
}

// itemAt is the item at index i of a sequence, counted from the end where
// negative.
func itemAt(r *run, object any, i int64) (any, error) {
	if t, ok := object.(*text); ok {
		if err := r.work(len(t.s)); err != nil {
			return nil, err
		}
	}
	n, _ := length(object)
	at := i
	if at < 0 {
		at += int64(n)
	}
	if at < 0 || at >= int64(n) {
		return undefinedf("'%s object' has no element %d", typeName(object), i), nil
	}
	switch o := object.(type) {
	case *list:
		return o.items[at], nil
	case *tuple:
		return o.items[at], nil
	case *rangeValue:
		return o.start + at*o.step, nil
	}
	return object.(*text).sliceRunes(int(at), int(at)+1), nil
}

// getSlice is object[start:stop:step].
func getSlice(r *run, object any, bounds [3]any) (any, error) {
	if u, ok := object.(*undefined); ok {
		return nil, u.fail()
	}
	switch o := object.(type) {
	case *list, *tuple, *rangeValue:
	case *text:
		if err := r.work(len(o.s)); err != nil {
			return nil, err
		}
	default:
		return nil, typeErrorf("'%s' object is not subscriptable", typeName(object))
	}
	for _, b := range bounds {
		if b != nil && !isInt(b) {
			return nil, typeErrorf("slice indices must be integers or None")
		}
	}
	n, _ := length(object)
	start, count, step, err := sliceBounds(n, bounds)
	if err != nil {
		return nil, err
	}
	switch o := object.(type) {
	case *text:
		return o.strided(r, start, count, step)
	case *list:
		items, err := stridedItems(r, o.items, start, count, step)
		return &list{items}, err
	case *tuple:
		items, err := stridedItems(r, o.items, start, count, step)
		return &tuple{items: items}, err
	}
	o := object.(*rangeValue)
	first := o.start + int64(start)*o.step
	return &rangeValue{first, first + int64(count*step)*o.step, int64(step) * o.step}, nil
}

// sliceBounds resolves a slice over n items to the first index, the number of
// items and the stride between them.
func sliceBounds(n int, bounds [3]any) (start, count, step int, err error) {
	stride := int64(1)
	if bounds[2] != nil {
		stride, _ = smallInt(bounds[2])
	}
	if stride == 0 {
		return 0, 0, 0, valueErrorf("slice step cannot be zero")
	}
	stride = min(max(stride, -int64(n)-1), int64(n)+1) // a larger one takes the same items
	low, high := int64(0), int64(n)
	if stride < 0 {
		low, high = -1, int64(n)-1
	}
	clamp := func(b any, missing int64) int64 {
		if b == nil {
			return missing
		}
		i, _ := smallInt(b)
		if i < 0 {
			i = max(i, math.MinInt64+int64(n)) + int64(n)
		}
		return min(max(i, low), high)
	}
	if stride > 0 {
		first, end := clamp(bounds[0], low), clamp(bounds[1], high)
		return int(first), int(max(0, (end-first+stride-1)/stride)), int(stride), nil
	}
	first, end := clamp(bounds[0], high), clamp(bounds[1], low)
	return int(first), int(max(0, (first-end-stride-1)/-stride)), int(stride), nil
}

func stridedItems(r *run, items []any, start, count, step int) ([]any, error) {
	if err := r.alloc(valueSize * (count + 1)); err != nil {
		return nil, err
	}
	if step == 1 {
		return items[min(start, len(items)) : start+count : start+count], nil
	}
	out := make([]any, count)
	for i := range out {
		out[i] = items[start+i*step]
	}
	return out, nil
}

func (t *text) strided(r *run, start, count, step int) (*text, error) {
	if count == 0 {
		return t.slice(0, 0), nil
	}
	if step == 1 {
		out := t.sliceRunes(start, start+count)
		return out, r.alloc(16 * len(out.marks))
	}
	if err := r.alloc(8 * len(t.s)); err != nil {
		return nil, err
	}
	offsets := make([]int, 0, len(t.s)+1)
	for i := range t.s {
		offsets = append(offsets, i)
	}
	offsets = append(offsets, len(t.s))
	b := builder{r: r}
	for i := range count {
		at := start + i*step
		if err := b.add(t.slice(offsets[at], offsets[at+1])); err != nil {
			return nil, err
		}
	}
	out := b.text()
	out.safe = t.safe
	return out, nil
}
