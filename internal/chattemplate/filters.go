package chattemplate

import (
	"html"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/exp/slices"
)

// filterFunc is a filter: v is the value on its left.
type filterFunc func(r *run, v any, a *args) (any, error)

// filters are jinja's, with transformers' tojson.
var filters map[string]filterFunc

// bound is a filter or a method that has its arguments sorted into its parameters, the
// first required of which must be there; absent stands for those not given.
func bound[T any](f func(r *run, receiver T, p []any) (any, error), name string, required int, params ...string) func(*run, any, *args) (any, error) {
	return func(r *run, v any, a *args) (any, error) {
		p, err := a.bind(name, required, params...)
		if err != nil {
			return nil, err
		}
		receiver, _ := v.(T)
		return f(r, receiver, p)
	}
}

// onText makes a filter of v as a str.
func onText(f func(r *run, t *text, p []any) (any, error)) func(*run, any, []any) (any, error) {
	return func(r *run, v any, p []any) (any, error) {
		t, err := toText(r, v)
		if err != nil {
			return nil, err
		}
		return f(r, t, p)
	}
}

func init() { // a literal would make an initialization cycle through "map"
	filters = map[string]filterFunc{
		"abs":            bound(filterAbs, "abs", 0),
		"attr":           bound(filterAttr, "attr", 1, "name"),
		"batch":          bound(filterBatch, "batch", 1, "linecount", "fill_with"),
		"capitalize":     textFilter("capitalize"),
		"center":         bound(onText(filterCenter), "center", 0, "width"),
		"count":          bound(filterLength, "length", 0),
		"d":              bound(filterDefault, "default", 0, "default_value", "boolean"),
		"default":        bound(filterDefault, "default", 0, "default_value", "boolean"),
		"dictsort":       bound(filterDictSort, "dictsort", 0, "case_sensitive", "by", "reverse"),
		"e":              bound(onText(filterEscape), "escape", 0),
		"escape":         bound(onText(filterEscape), "escape", 0),
		"filesizeformat": bound(filterFileSize, "filesizeformat", 0, "binary"),
		"first":          bound(filterFirst, "first", 0),
		"float":          bound(filterFloat, "float", 0, "default"),
		"forceescape":    bound(onText(filterForceEscape), "escape", 0),
		"format":         filterFormat,
		"groupby":        bound(filterGroupBy, "groupby", 1, "attribute", "default", "case_sensitive"),
		"indent":         bound(filterIndent, "indent", 0, "width", "first", "blank"),
		"int":            bound(filterInt, "int", 0, "default", "base"),
		"items":          bound(filterItems, "items", 0),
		"join":           bound(filterJoin, "join", 0, "d", "attribute"),
		"last":           bound(filterLast, "last", 0),
		"length":         bound(filterLength, "length", 0),
		"list":           bound(filterList, "list", 0),
		"lower":          textFilter("lower"),
		"map":            filterMap,
		"max":            extreme("max", 1),
		"min":            extreme("min", -1),
		"reject":         selecting(false, false),
		"rejectattr":     selecting(false, true),
		"replace":        bound(filterReplace, "replace", 2, "old", "new", "count"),
		"reverse":        bound(filterReverse, "reverse", 0),
		"round":          bound(filterRound, "round", 0, "precision", "method"),
		"safe":           bound(onText(filterSafe), "safe", 0),
		"select":         selecting(true, false),
		"selectattr":     selecting(true, true),
		"slice":          bound(filterSlice, "slice", 1, "slices", "fill_with"),
		"sort":           bound(filterSort, "sort", 0, "reverse", "case_sensitive", "attribute"),
		"string":         bound(filterString, "string", 0),
		"striptags":      bound(onText(filterStripTags), "striptags", 0),
		"sum":            bound(filterSum, "sum", 0, "attribute", "start"),
		"title":          bound(onText(filterTitle), "title", 0),
		"tojson":         bound(filterToJSON, "tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys"),
		"trim":           textFilter("strip"),
		"truncate":       bound(filterTruncate, "truncate", 0, "length", "killwords", "end", "leeway"),
		"unique":         bound(filterUnique, "unique", 0, "case_sensitive", "attribute"),
		"upper":          textFilter("upper"),
		"urlencode":      bound(filterURLEncode, "urlencode", 0),
		"wordcount":      bound(onText(filterWordCount), "wordcount", 0),
		"wordwrap":       bound(filterWordWrap, "wordwrap", 0, "width", "break_long_words", "wrapstring", "break_on_hyphens"),
		"xmlattr":        bound(filterXMLAttr, "xmlattr", 0, "autospace"),
	}
}

// textFilter is str(v).name().
func textFilter(name string) filterFunc {
	return func(r *run, v any, a *args) (any, error) {
		t, err := toText(r, v)
		if err != nil {
			return nil, err
		}
		return textMethods[name](r, t, a)
	}
}

func filterAbs(_ *run, v any, _ []any) (any, error) {
	switch v := v.(type) {
	case float64:
		return math.Abs(v), nil
	case *undefined:
		return nil, typeErrorf("bad operand type for abs(): 'Undefined'")
	}
	c, ok := compareNumbers(v, int64(0))
	if !ok {
		return nil, typeErrorf("bad operand type for abs(): '%s'", typeName(v))
	}
	if c < 0 {
		return arithmetic("-", int64(0), v)
	}
	return arithmetic("+", int64(0), v)
}

// filterAttr is an attribute, never an item.
func filterAttr(r *run, v any, p []any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	name, err := toText(r, p[0])
	if err != nil {
		return nil, err
	}
	if found, ok, err := ownAttr(r, v, name.s); ok || err != nil {
		return found, err
	}
	return noAttr(v, name.s), nil
}

// lazy makes a generator. Generators over generators recurse, so each level
// counts.
func lazy(r *run, next iterator) *generator {
	return &generator{func() (any, bool, error) {
		if err := r.enter(); err != nil {
			return nil, false, err
		}
		defer r.leave()
		return next()
	}}
}

// deferred is a generator whose making waits until it is first asked, as does
// the body of a Python generator: so do its errors.
func deferred(r *run, open func() (iterator, error)) *generator {
	var next iterator
	return lazy(r, func() (any, bool, error) {
		if next == nil {
			var err error
			if next, err = open(); err != nil {
				return nil, false, err
			}
		}
		return next()
	})
}

// overTrue is deferred over v, or nothing at all where v counts as false:
// map and select do not look at their arguments then.
func overTrue(r *run, v any, open func(items iterator) (iterator, error)) (any, error) {
	return deferred(r, func() (iterator, error) {
		if !truth(v) {
			return overSlice(nil), nil
		}
		items, err := iterate(r, v)
		if err != nil {
			return nil, err
		}
		return open(items)
	}), nil
}

func filterBatch(r *run, v any, p []any) (any, error) {
	size, err := intArg("batch", p[0], 0)
	if err != nil {
		return nil, err
	}
	items, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	if size < 1 {
		return nil, valueErrorf("batch() needs a positive count")
	}
	at := 0
	return lazy(r, func() (any, bool, error) {
		if at >= len(items) {
			return nil, false, nil
		}
		end := int(min(int64(at)+size, int64(len(items))))
		row := items[at:end:end]
		missing := size - int64(len(row))
		at = end
		if missing > 0 && p[1] != absent && p[1] != nil {
			fill, err := repeat(r, &list{[]any{p[1]}}, missing)
			if err != nil {
				return nil, false, err
			}
			row = append(row, fill.(*list).items...)
		}
		return &list{row}, true, r.alloc(valueSize)
	}), nil
}

func filterCenter(r *run, t *text, p []any) (any, error) {
	width, err := intArg("center", p[0], 80)
	if err != nil {
		return nil, err
	}
	return justify(r, t, width, literal(" "), 2)
}

func filterLength(r *run, v any, _ []any) (any, error) {
	if t, ok := v.(*text); ok {
		if err := r.work(len(t.s)); err != nil {
			return nil, err
		}
	}
	n, ok := length(v)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", typeName(v))
	}
	return int64(n), nil
}

func filterDefault(_ *run, v any, p []any) (any, error) {
	boolean := p[1] != absent && truth(p[1])
	if isUndefined(v) || boolean && !truth(v) {
		if p[0] == absent {
			return emptyText, nil
		}
		return p[0], nil
	}
	return v, nil
}

func filterEscape(r *run, t *text, _ []any) (any, error) {
	return t.escapeHTML(r)
}

func filterForceEscape(r *run, t *text, _ []any) (any, error) {
	return t.plain().escapeHTML(r)
}

func filterSafe(r *run, t *text, _ []any) (any, error) {
	return t.markup(), nil
}

func filterString(r *run, v any, _ []any) (any, error) {
	return toText(r, v)
}

func filterFileSize(_ *run, v any, p []any) (any, error) {
	size, ok := toFloat(v)
	if t, isText := v.(*text); isText {
		size, ok = parseFloat(t.s)
	}
	if !ok {
		return nil, typeErrorf("filesizeformat takes a number, not %s", typeName(v))
	}
	base, prefixes := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if p[0] != absent && truth(p[0]) {
		base, prefixes = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	if size == 1 {
		return literal("1 Byte"), nil
	}
	if size < base {
		return literal(strconv.FormatFloat(math.Trunc(size), 'f', 0, 64) + " Bytes"), nil
	}
	unit, last := base*base, len(prefixes)-1
	at := 0
	for ; at < last && size >= unit; at++ {
		unit *= base
	}
	return literal(strconv.FormatFloat(base*size/unit, 'f', 1, 64) + " " + prefixes[at]), nil
}

func filterFirst(r *run, v any, _ []any) (any, error) {
	next, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	item, ok, err := next()
	if err != nil || ok {
		return item, err
	}
	return undefinedf("No first item, sequence was empty."), nil
}

func filterLast(r *run, v any, _ []any) (any, error) {
	if t, ok := v.(*text); ok {
		_, n := utf8.DecodeLastRuneInString(t.s)
		if n > 0 {
			return t.slice(len(t.s)-n, len(t.s)).plain(), nil
		}
	}
	if _, ok := v.(*generator); ok {
		return nil, typeErrorf("'generator' object is not reversible")
	}
	items, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return undefinedf("No last item, sequence was empty."), nil
	}
	return items[len(items)-1], nil
}

func filterList(r *run, v any, _ []any) (any, error) {
	items, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	return newList(r, items)
}

func filterInt(r *run, v any, p []any) (any, error) {
	base, err := intArg("int", p[1], 10)
	if err != nil {
		return nil, err
	}
	missing := p[0]
	if missing == absent {
		missing = int64(0)
	}
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case float64:
		if i, ok := floatToInt(v); ok {
			return i, nil
		}
		if math.IsInf(v, 0) {
			return nil, valueErrorf("cannot convert float infinity to integer")
		}
		return missing, nil
	case *text:
		if err := r.work(min(len(v.s), maxIntDigits) * 64); err != nil {
			return nil, err
		}
		if possible := base == 0 || base >= 2 && base <= 36; possible {
			if i, ok := parseInt(v.s, int(base)); ok {
				return i, nil
			}
		}
		if f, ok := parseFloat(v.s); ok {
			if i, ok := floatToInt(f); ok {
				return i, nil
			}
		}
		return missing, nil
	}
	if isInt(v) {
		return arithmetic("+", v, int64(0))
	}
	return missing, nil
}

func filterFloat(r *run, v any, p []any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if t, ok := v.(*text); ok {
		if err := r.work(len(t.s)); err != nil {
			return nil, err
		}
		if f, ok := parseFloat(t.s); ok {
			return f, nil
		}
	}
	if f, ok := toFloat(v); ok {
		return f, nil
	}
	if p[0] == absent {
		return 0.0, nil
	}
	return p[0], nil
}

func filterFormat(r *run, v any, a *args) (any, error) {
	t, err := toText(r, v)
	if err != nil {
		return nil, err
	}
	if len(a.names) == 0 {
		return printf(r, t, &tuple{items: a.pos})
	}
	if len(a.pos) > 0 {
		return nil, typeErrorf("can't handle positional and keyword arguments at the same time")
	}
	d := newDict(len(a.names))
	for i, name := range a.names {
		if err := d.set(r, literal(name), a.named[i]); err != nil {
			return nil, err
		}
	}
	return printf(r, t, d)
}

// getter reads a dotted attribute path, as map(attribute=...) and sort use.
type getter struct {
	path     []any
	fallback any // for undefined; nil for none
	fold     bool
}

func newGetter(attribute any) (*getter, error) {
	switch a := attribute.(type) {
	case nil, absentType:
		return &getter{}, nil
	case int64:
		return &getter{path: []any{a}}, nil
	case *text:
		if len(a.s) > maxName {
			return nil, valueErrorf("no attribute path is that long")
		}
		g := &getter{}
		for _, part := range strings.Split(a.s, ".") {
			if i, ok := decimal(part); ok && part != "" {
				g.path = append(g.path, i)
			} else {
				g.path = append(g.path, literal(part))
			}
		}
		return g, nil
	}
	return nil, typeErrorf("an attribute is a str or an int, not %s", typeName(attribute))
}

func (g *getter) get(r *run, v any) (any, error) {
	for _, part := range g.path {
		if err := r.step(); err != nil {
			return nil, err
		}
		var err error
		if v, err = getItem(r, v, part); err != nil {
			return nil, err
		}
		if g.fallback != nil && isUndefined(v) {
			v = g.fallback
		}
	}
	if t, ok := v.(*text); ok && g.fold {
		return t.mapPieces(r, strings.ToLower)
	}
	return v, nil
}

// all reads the path of every item.
func (g *getter) all(r *run, items []any) ([]any, error) {
	if err := r.alloc(valueSize * len(items)); err != nil {
		return nil, err
	}
	out := make([]any, len(items))
	for i, item := range items {
		var err error
		if out[i], err = g.get(r, item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// foldingGetter is for the filters with case_sensitive and attribute.
func foldingGetter(caseSensitive, attribute any) (*getter, error) {
	g, err := newGetter(attribute)
	if err != nil {
		return nil, err
	}
	g.fold = caseSensitive == absent || !truth(caseSensitive)
	return g, nil
}

// sortBy returns the order of items by their keys, stable.
func sortBy(r *run, keys [][]any, reverse bool) ([]int, error) {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	if err := r.alloc(valueSize * len(keys)); err != nil {
		return nil, err
	}
	var failure error
	slices.SortStableFunc(order, func(i, j int) (c int) {
		if failure != nil {
			return 0
		}
		if reverse {
			i, j = j, i
		}
		c, failure = compareItems(r, keys[i], keys[j], "<")
		return c
	})
	return order, failure
}

func filterSort(r *run, v any, p []any) (any, error) {
	attributes := []any{p[2]}
	if t, ok := p[2].(*text); ok && len(t.s) <= maxName {
		attributes = nil
		for _, part := range strings.Split(t.s, ",") {
			attributes = append(attributes, literal(part))
		}
	}
	items, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	keys := make([][]any, len(items))
	for _, attribute := range attributes {
		g, err := foldingGetter(p[1], attribute)
		if err != nil {
			return nil, err
		}
		values, err := g.all(r, items)
		if err != nil {
			return nil, err
		}
		for i, k := range values {
			keys[i] = append(keys[i], k)
		}
	}
	return sortedList(r, items, keys, p[0] != absent && truth(p[0]))
}

func sortedList(r *run, items []any, keys [][]any, reverse bool) (any, error) {
	order, err := sortBy(r, keys, reverse)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(items))
	for i, at := range order {
		out[i] = items[at]
	}
	return newList(r, out)
}

func singleKeys(values []any) [][]any {
	keys := make([][]any, len(values))
	for i := range values {
		keys[i] = values[i : i+1]
	}
	return keys
}

func filterDictSort(r *run, v any, p []any) (any, error) {
	d, ok := v.(*dict)
	if !ok {
		return nil, noAttr(v, "items").fail()
	}
	byValue := false
	if p[1] != absent {
		by, _ := p[1].(*text)
		if by == nil || by.s != "key" && by.s != "value" {
			return nil, valueErrorf("You can only sort by either \"key\" or \"value\"")
		}
		byValue = by.s == "value"
	}
	g, err := foldingGetter(p[0], absent)
	if err != nil {
		return nil, err
	}
	pairs, keys := make([]any, len(d.entries)), make([]any, len(d.entries))
	for i, e := range d.entries {
		pairs[i], keys[i] = &tuple{items: []any{e.key, e.value}}, e.key
		if byValue {
			keys[i] = e.value
		}
	}
	if err := r.alloc(4 * valueSize * len(pairs)); err != nil {
		return nil, err
	}
	if keys, err = g.all(r, keys); err != nil {
		return nil, err
	}
	return sortedList(r, pairs, singleKeys(keys), p[2] != absent && truth(p[2]))
}

// sortedEntries orders a dict's entries by key, for json's sort_keys.
func sortedEntries(r *run, entries []entry) ([]entry, error) {
	keys := make([]any, len(entries))
	for i, e := range entries {
		keys[i] = e.key
	}
	order, err := sortBy(r, singleKeys(keys), false)
	if err != nil {
		return nil, err
	}
	out := make([]entry, len(entries))
	for i, at := range order {
		out[i] = entries[at]
	}
	return out, r.alloc(2 * valueSize * len(entries))
}

// extreme is min (-1) or max (1).
func extreme(name string, sign int) filterFunc {
	return bound(func(r *run, v any, p []any) (any, error) {
		g, err := foldingGetter(p[0], p[1])
		if err != nil {
			return nil, err
		}
		items, err := collect(r, v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return undefinedf("No aggregated item, sequence was empty."), nil
		}
		keys, err := g.all(r, items)
		if err != nil {
			return nil, err
		}
		best := 0
		for i := 1; i < len(keys); i++ {
			c, err := compare(r, keys[i], keys[best], "<")
			if err != nil {
				return nil, err
			}
			if c*sign > 0 {
				best = i
			}
		}
		return items[best], nil
	}, name, 0, "case_sensitive", "attribute")
}

func filterUnique(r *run, v any, p []any) (any, error) {
	g, err := foldingGetter(p[0], p[1])
	if err != nil {
		return nil, err
	}
	seen := newDict(0)
	items := deferred(r, func() (iterator, error) { return iterate(r, v) })
	return lazy(r, func() (any, bool, error) {
		for {
			item, ok, err := items.next()
			if err != nil || !ok {
				return nil, false, err
			}
			key, err := g.get(r, item)
			if err != nil {
				return nil, false, err
			}
			_, dup, err := seen.get(r, key)
			if err != nil {
				return nil, false, err
			}
			if !dup {
				return item, true, seen.set(r, key, nil)
			}
			if err := r.step(); err != nil {
				return nil, false, err
			}
		}
	}), nil
}

func filterGroupBy(r *run, v any, p []any) (any, error) {
	g, err := foldingGetter(p[2], p[0])
	if err != nil {
		return nil, err
	}
	exact, _ := newGetter(p[0])
	if p[1] != absent && p[1] != nil {
		g.fallback, exact.fallback = p[1], p[1]
	}
	items, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	keys, err := g.all(r, items)
	if err != nil {
		return nil, err
	}
	order, err := sortBy(r, singleKeys(keys), false)
	if err != nil {
		return nil, err
	}
	var groups []any
	for i := 0; i < len(order); {
		members := []any{}
		first := keys[order[i]]
		for ; i < len(order); i++ {
			same, err := equal(r, first, keys[order[i]])
			if err != nil {
				return nil, err
			}
			if !same {
				break
			}
			members = append(members, items[order[i]])
		}
		grouper, err := exact.get(r, members[0])
		if err != nil {
			return nil, err
		}
		group, err := newList(r, members)
		if err != nil {
			return nil, err
		}
		groups = append(groups, &tuple{items: []any{grouper, group}, fields: []string{"grouper", "list"}})
	}
	return newList(r, groups)
}

func filterIndent(r *run, v any, p []any) (any, error) {
	t, ok := v.(*text)
	if !ok {
		if u, undef := v.(*undefined); undef {
			return nil, u.fail()
		}
		return nil, typeErrorf("indent takes a str, not %s", typeName(v))
	}
	indention, err := indentText(r, p[0])
	if err != nil {
		return nil, err
	}
	if t.safe {
		indention = indention.markup()
	}
	if err := r.alloc(lineCost(t)); err != nil {
		return nil, err
	}
	lines := t.slice(0, len(t.s)).splitLines(false)
	if t.s == "" || lineEnd(t.s, len(t.s)-1) > 0 {
		lines = append(lines, t.slice(len(t.s), len(t.s))) // jinja adds a line break first
	}
	if n := len(t.s); n > 0 && t.s[n-1] == '\r' {
		lines = lines[:len(lines)-1] // which that break completes
	}
	blank := p[2] != absent && truth(p[2])
	b := builder{r: r}
	for i, line := range lines {
		if i > 0 {
			if err := b.addString("\n"); err != nil {
				return nil, err
			}
		}
		if i > 0 && (blank || line.s != "") || i == 0 && p[1] != absent && truth(p[1]) {
			if err := b.add(indention); err != nil {
				return nil, err
			}
		}
		if err := b.add(line); err != nil {
			return nil, err
		}
	}
	out := b.text()
	out.safe = t.safe
	return out, nil
}

// indentText is width spaces, or the string given as width.
func indentText(r *run, width any) (*text, error) {
	if t, ok := width.(*text); ok {
		return t, nil
	}
	n, err := intArg("indent", width, 4)
	if err != nil {
		return nil, err
	}
	spaces, err := repeat(r, literal(" "), n)
	if err != nil {
		return nil, err
	}
	return spaces.(*text), nil
}

func filterItems(r *run, v any, _ []any) (any, error) {
	if isUndefined(v) {
		return lazy(r, overSlice(nil)), nil
	}
	d, ok := v.(*dict)
	if !ok { // a generator: the error comes when it is asked
		return lazy(r, func() (any, bool, error) {
			return nil, false, typeErrorf("Can only get item pairs from a mapping.")
		}), nil
	}
	return lazy(r, (&dictView{d, "items"}).iterator()), nil
}

func filterJoin(r *run, v any, p []any) (any, error) {
	g, err := newGetter(p[1])
	if err != nil {
		return nil, err
	}
	sep := emptyText
	if p[0] != absent {
		if sep, err = toText(r, p[0]); err != nil {
			return nil, err
		}
	}
	next, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	b := builder{r: r}
	for first := true; ; first = false {
		item, ok, err := next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return b.text(), nil
		}
		if item, err = g.get(r, item); err != nil {
			return nil, err
		}
		t, err := toText(r, item)
		if err != nil {
			return nil, err
		}
		if !first {
			if err := b.add(sep); err != nil {
				return nil, err
			}
		}
		if err := b.add(t); err != nil {
			return nil, err
		}
		if err := r.step(); err != nil {
			return nil, err
		}
	}
}

func filterMap(r *run, v any, a *args) (any, error) {
	return overTrue(r, v, func(items iterator) (iterator, error) {
		f, err := mapping(r, a)
		if err != nil {
			return nil, err
		}
		return func() (any, bool, error) {
			item, ok, err := items()
			if err != nil || !ok {
				return nil, false, err
			}
			out, err := f(item)
			return out, err == nil, err
		}, nil
	})
}

// mapping is what map does to each item: read an attribute or apply a filter.
func mapping(r *run, a *args) (func(any) (any, error), error) {
	if len(a.pos) == 0 && slices.Contains(a.names, "attribute") {
		p, err := a.bind("map", 0, "attribute", "default")
		if err != nil {
			return nil, err
		}
		g, err := newGetter(p[0])
		if err != nil {
			return nil, err
		}
		if p[1] != absent {
			g.fallback = p[1]
		}
		return func(item any) (any, error) { return g.get(r, item) }, nil
	}
	if len(a.pos) == 0 {
		return nil, typeErrorf("map requires a filter argument")
	}
	name, _ := a.pos[0].(*text)
	if name == nil || len(name.s) > maxName || filters[name.s] == nil {
		return nil, typeErrorf("map() wants the name of a filter")
	}
	rest := &args{a.pos[1:], a.names, a.named}
	return func(item any) (any, error) { return filters[name.s](r, item, rest) }, nil
}

// selecting makes select, reject and their attribute forms.
func selecting(keep, byAttribute bool) filterFunc {
	return func(r *run, v any, a *args) (any, error) {
		return overTrue(r, v, func(items iterator) (iterator, error) {
			test, err := selection(r, a, byAttribute)
			if err != nil {
				return nil, err
			}
			return func() (any, bool, error) {
				for {
					item, ok, err := items()
					if err != nil || !ok {
						return nil, false, err
					}
					if ok, err = test(item); err != nil || ok == keep {
						return item, err == nil, err
					}
					if err := r.step(); err != nil {
						return nil, false, err
					}
				}
			}, nil
		})
	}
}

// selection is the test that select applies to each item, or to its attribute.
func selection(r *run, a *args, byAttribute bool) (func(any) (bool, error), error) {
	pos := a.pos
	g := &getter{}
	if byAttribute {
		if len(pos) == 0 {
			return nil, typeErrorf("Missing parameter for attribute name")
		}
		var err error
		if g, err = newGetter(pos[0]); err != nil {
			return nil, err
		}
		pos = pos[1:]
	}
	test := func(_ *run, v any, _ *args) (bool, error) { return truth(v), nil }
	rest := &args{names: a.names, named: a.named}
	if len(pos) > 0 {
		name, _ := pos[0].(*text)
		if name == nil || len(name.s) > maxName || tests[name.s] == nil {
			return nil, typeErrorf("select() wants the name of a test")
		}
		test, rest.pos = tests[name.s], pos[1:]
	}
	return func(item any) (bool, error) {
		value, err := g.get(r, item)
		if err != nil {
			return false, err
		}
		return test(r, value, rest)
	}, nil
}

func filterReplace(r *run, v any, p []any) (any, error) {
	var texts [3]*text
	for i, x := range []any{v, p[0], p[1]} {
		var err error
		if texts[i], err = toText(r, x); err != nil {
			return nil, err
		}
	}
	limit := int64(-1)
	if p[2] != absent && p[2] != nil {
		var err error
		if limit, err = intArg("replace", p[2], -1); err != nil {
			return nil, err
		}
	}
	return replace(r, texts[0].plain(), texts[1].s, texts[2], limit)
}

func filterReverse(r *run, v any, _ []any) (any, error) {
	if t, ok := v.(*text); ok {
		return getSlice(r, t, [3]any{nil, nil, int64(-1)})
	}
	items, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	i := len(items)
	return lazy(r, func() (any, bool, error) {
		if i--; i < 0 {
			return nil, false, nil
		}
		return items[i], true, nil
	}), nil
}

func filterRound(_ *run, v any, p []any) (any, error) {
	precision, err := intArg("round", p[0], 0)
	if err != nil {
		return nil, err
	}
	how := "common"
	if p[1] != absent {
		t, _ := p[1].(*text)
		if t == nil || t.s != "common" && t.s != "ceil" && t.s != "floor" {
			return nil, valueErrorf("method must be common, ceil or floor")
		}
		how = t.s
	}
	if !isNumber(v) {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
		return nil, typeErrorf("type %s doesn't define __round__ method", typeName(v))
	}
	if how == "common" {
		return roundHalfEven(v, precision)
	}
	scale, err := arithmetic("**", int64(10), precision)
	if err != nil {
		return nil, err
	}
	scaled, err := arithmetic("*", v, scale)
	if err != nil {
		return nil, err
	}
	f, _ := toFloat(scaled)
	if how == "ceil" {
		f = math.Ceil(f)
	} else {
		f = math.Floor(f)
	}
	whole, ok := floatToInt(f)
	if !ok {
		return nil, valueErrorf("cannot convert %s to integer", floatRepr(f))
	}
	return arithmetic("/", whole, scale)
}

// roundHalfEven is Python's round.
func roundHalfEven(v any, precision int64) (any, error) {
	f, isFloat := v.(float64)
	if isFloat && (precision > 400 || math.IsInf(f, 0) || f != f) {
		return f, nil
	}
	if isFloat && precision >= 0 {
		spec := spec{verb: 'f', precision: int(precision)}
		rounded, _ := parseFloat(spec.floatDigits(math.Abs(f)))
		return math.Copysign(rounded, f), nil
	}
	if !isFloat && precision >= 0 {
		return arithmetic("+", v, int64(0))
	}
	if precision < -400 && isFloat {
		return math.Copysign(0, f), nil
	}
	return roundToTens(v, -precision)
}

// roundToTens rounds to a multiple of 10**digits.
func roundToTens(v any, digits int64) (any, error) {
	unit, err := arithmetic("**", int64(10), digits)
	if err != nil {
		return nil, err
	}
	quotient, err := arithmetic("//", v, unit)
	if err != nil {
		return nil, err
	}
	rest, err := arithmetic("%", v, unit)
	if err != nil {
		return nil, err
	}
	double, err := arithmetic("*", rest, int64(2))
	if err != nil {
		return nil, err
	}
	c, _ := compareNumbers(double, unit)
	odd, err := arithmetic("%", quotient, int64(2))
	if err != nil {
		return nil, err
	}
	if c > 0 || c == 0 && truth(odd) {
		if quotient, err = arithmetic("+", quotient, int64(1)); err != nil {
			return nil, err
		}
	}
	return arithmetic("*", quotient, unit)
}

func filterSlice(r *run, v any, p []any) (any, error) {
	n, err := intArg("slice", p[0], 0)
	if err != nil {
		return nil, err
	}
	items, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, valueErrorf("integer division or modulo by zero")
	}
	if n < 0 {
		return lazy(r, overSlice(nil)), nil
	}
	size, longer := int64(len(items))/n, int64(len(items))%n
	column, at := int64(0), int64(0)
	return lazy(r, func() (any, bool, error) {
		if column >= n {
			return nil, false, nil
		}
		end := at + size
		if column < longer {
			end++
		}
		part := items[at:end:end]
		if p[1] != absent && p[1] != nil && column >= longer {
			part = append(part, p[1])
		}
		column++
		at = end
		return &list{part}, true, r.alloc(2 * valueSize)
	}), nil
}

func filterStripTags(r *run, t *text, _ []any) (any, error) {
	if err := r.alloc(4 * len(t.s)); err != nil {
		return nil, err
	}
	s := cutBetween(cutBetween(t.s, "<!--", "-->"), "<", ">")
	return t.plain().derive(html.UnescapeString(strings.Join(strings.FieldsFunc(s, isSpace), " "))), nil
}

func cutBetween(s, open, closing string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, open)
		if i < 0 {
			break
		}
		n := strings.Index(s[i:], closing)
		if n < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i+n+len(closing):]
	}
	b.WriteString(s)
	return b.String()
}

func filterSum(r *run, v any, p []any) (any, error) {
	g, err := newGetter(p[0])
	if err != nil {
		return nil, err
	}
	var total any = int64(0)
	if p[1] != absent {
		total = p[1]
	}
	if _, ok := total.(*text); ok {
		return nil, typeErrorf("sum() can't sum strings")
	}
	items, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if item, err = g.get(r, item); err != nil {
			return nil, err
		}
		if total, err = binary(r, "+", total, item); err != nil {
			return nil, err
		}
		if err := r.step(); err != nil {
			return nil, err
		}
	}
	return total, nil
}

var titleWord = regexp.MustCompile(`[-\s({\[<]+`)

func filterTitle(r *run, t *text, _ []any) (any, error) {
	if err := r.alloc(4 * len(t.s)); err != nil {
		return nil, err
	}
	var b strings.Builder
	word := func(s string) {
		_, n := utf8.DecodeRuneInString(s)
		b.WriteString(upper(s[:n]) + strings.ToLower(s[n:]))
	}
	at := 0
	for _, m := range titleWord.FindAllStringIndex(t.s, -1) {
		word(t.s[at:m[0]])
		b.WriteString(t.s[m[0]:m[1]])
		at = m[1]
	}
	word(t.s[at:])
	return t.plain().derive(b.String()), nil
}

// filterToJSON is transformers': json.dumps with ensure_ascii off.
func filterToJSON(r *run, v any, p []any) (any, error) {
	f := &jsonFormat{
		ascii:    p[0] != absent && truth(p[0]),
		sortKeys: p[3] != absent && truth(p[3]),
		itemSep:  literal(", "),
		keySep:   literal(": "),
	}
	if p[1] != absent && p[1] != nil {
		indent, err := indentText(r, p[1])
		if err != nil {
			return nil, err
		}
		f.indent, f.multiline, f.itemSep = indent.s, true, literal(",")
	}
	if p[2] != absent && p[2] != nil {
		if err := f.separators(r, p[2]); err != nil {
			return nil, err
		}
	}
	out := printer{r: r}
	if err := out.json(v, f); err != nil {
		return nil, err
	}
	return out.text(), nil
}

func (f *jsonFormat) separators(r *run, v any) error {
	pair, err := collect(r, v)
	if err != nil {
		return err
	}
	if len(pair) != 2 {
		return valueErrorf("tojson wants two separators, not %d", len(pair))
	}
	if f.itemSep, err = textArg("tojson", pair[0]); err != nil {
		return err
	}
	f.keySep, err = textArg("tojson", pair[1])
	return err
}

func filterTruncate(r *run, v any, p []any) (any, error) {
	size, err := intArg("truncate", p[0], 255)
	if err != nil {
		return nil, err
	}
	end := literal("...")
	if p[2] != absent {
		if end, err = textArg("truncate", p[2]); err != nil {
			return nil, err
		}
	}
	leeway := int64(5)
	if p[3] != nil {
		if leeway, err = intArg("truncate", p[3], 5); err != nil {
			return nil, err
		}
	}
	keep := size - int64(runeLen(end.s))
	if keep < 0 || leeway < 0 {
		return nil, valueErrorf("truncate: length or leeway too small")
	}
	n, ok := length(v)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", typeName(v))
	}
	if int64(n)-leeway <= size {
		return v, nil
	}
	t, err := textArg("truncate", v)
	if err != nil {
		return nil, err
	}
	if err := r.alloc(len(t.s)); err != nil {
		return nil, err
	}
	cut := t.sliceRunes(0, int(min(keep, int64(n))))
	if p[1] == absent || !truth(p[1]) {
		if i := strings.LastIndexByte(cut.s, ' '); i >= 0 {
			cut = cut.slice(0, i)
		}
	}
	return concat(r, cut, end)
}

// filterURLEncode quotes as urllib does: a string for a path, pairs for a query.
func filterURLEncode(r *run, v any, _ []any) (any, error) {
	quote := func(v any, safe string) (*text, error) {
		t, err := toText(r, v)
		if err != nil {
			return nil, err
		}
		if err := r.alloc(3 * len(t.s)); err != nil {
			return nil, err
		}
		s := strings.NewReplacer("+", "%20", "%7E", "~", "%2F", safe).Replace(url.QueryEscape(t.s))
		if safe != "/" {
			s = strings.ReplaceAll(s, "%20", "+")
		}
		return t.plain().derive(s), nil
	}
	if _, isText := v.(*text); isText {
		return quote(v, "/")
	}
	if d, ok := v.(*dict); ok {
		v = &dictView{d, "items"}
	}
	if _, err := iterate(r, v); err != nil {
		return quote(v, "/")
	}
	pairs, err := collect(r, v)
	if err != nil {
		return nil, err
	}
	b := builder{r: r}
	for i, pair := range pairs {
		kv, err := collect(r, pair)
		if err != nil {
			return nil, err
		}
		if len(kv) != 2 {
			return nil, valueErrorf("urlencode wants pairs, not %d items", len(kv))
		}
		if i > 0 {
			if err := b.addString("&"); err != nil {
				return nil, err
			}
		}
		for j, part := range kv {
			t, err := quote(part, "%2F")
			if err != nil {
				return nil, err
			}
			if j > 0 {
				if err := b.addString("="); err != nil {
					return nil, err
				}
			}
			if err := b.add(t); err != nil {
				return nil, err
			}
		}
	}
	return b.text(), nil
}

func filterWordCount(r *run, t *text, _ []any) (any, error) {
	n, inWord := int64(0), false
	for _, c := range t.s {
		word := isWordRune(c)
		n += int64(boolInt(word && !inWord))
		inWord = word
	}
	return n, r.scan(len(t.s))
}

func filterXMLAttr(r *run, v any, p []any) (any, error) {
	d, ok := v.(*dict)
	if !ok {
		return nil, noAttr(v, "items").fail()
	}
	b := builder{r: r}
	for _, e := range d.entries {
		if e.value == nil || isUndefined(e.value) {
			continue
		}
		key, err := textArg("xmlattr", e.key)
		if err != nil {
			return nil, err
		}
		if strings.ContainsAny(key.s, " \t\n\r\f\v/>=") {
			return nil, valueErrorf("Invalid character in attribute name: '%s'", clip(key.s))
		}
		value, err := toText(r, e.value)
		if err != nil {
			return nil, err
		}
		if len(b.buf) > 0 || p[0] == absent || truth(p[0]) {
			if err := b.addString(" "); err != nil {
				return nil, err
			}
		}
		for _, part := range []*text{key.plain(), {s: `="`, safe: true}, value, {s: `"`, safe: true}} {
			if part, err = part.escapeHTML(r); err != nil {
				return nil, err
			}
			if err := b.add(part); err != nil {
				return nil, err
			}
		}
	}
	return b.text(), nil
}
