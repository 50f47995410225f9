package chattemplate

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/exp/slices"
)

// Methods of the built-in types. They follow Python's; those of texts keep
// track of which bytes are untrusted.
var (
	textMethods     map[string]method
	sequenceMethods map[string]method
	dictMethods     map[string]method
	intMethods      map[string]method
	floatMethods    map[string]method
)

func init() { // a literal would make an initialization cycle: methods call methods
	textMethods = map[string]method{
		"strip":        stripMethod("strip", true, true),
		"lstrip":       stripMethod("lstrip", true, false),
		"rstrip":       stripMethod("rstrip", false, true),
		"split":        splitMethod("split", false),
		"rsplit":       splitMethod("rsplit", true),
		"splitlines":   bound(splitLinesMethod, "splitlines", 0, "keepends"),
		"partition":    partitionMethod("partition", false),
		"rpartition":   partitionMethod("rpartition", true),
		"startswith":   affixMethod("startswith", strings.HasPrefix),
		"endswith":     affixMethod("endswith", strings.HasSuffix),
		"removeprefix": removeMethod("removeprefix", true),
		"removesuffix": removeMethod("removesuffix", false),
		"replace":      bound(replaceMethod, "replace", 2, "old", "new", "count"),
		"join":         bound(joinMethod, "join", 1, "iterable"),
		"find":         findMethodOf("find", false, false),
		"rfind":        findMethodOf("rfind", true, false),
		"index":        findMethodOf("index", false, true),
		"rindex":       findMethodOf("rindex", true, true),
		"count":        bound(countMethod, "count", 1, "sub", "start", "end"),
		"lower":        mapMethod("lower", strings.ToLower),
		"upper":        mapMethod("upper", upper),
		"casefold":     mapMethod("casefold", casefold),
		"swapcase":     mapMethod("swapcase", swapCase),
		"capitalize":   deriveMethod("capitalize", capitalize),
		"title":        deriveMethod("title", titleCase),
		"ljust":        justifyMethod("ljust", 0),
		"rjust":        justifyMethod("rjust", 1),
		"center":       justifyMethod("center", 2),
		"zfill":        bound(zfillMethod, "zfill", 1, "width"),
		"format":       formatMethod,
		"isalnum":      allMethod("isalnum", isAlnum),
		"isalpha":      allMethod("isalpha", unicode.IsLetter),
		"isdecimal":    allMethod("isdecimal", func(c rune) bool { return unicode.Is(unicode.Nd, c) }),
		"isdigit":      allMethod("isdigit", isDigit),
		"isnumeric":    allMethod("isnumeric", unicode.IsNumber),
		"isspace":      allMethod("isspace", isSpace),
		"isascii":      predicateMethod("isascii", isASCII),
		"islower":      predicateMethod("islower", isLower),
		"isupper":      predicateMethod("isupper", isUpper),
		"istitle":      predicateMethod("istitle", isTitle),
	}
	same := func(_ *run, object any, _ []any) (any, error) { return object, nil } // nothing ever changes
	sequenceMethods = map[string]method{
		"copy":  bound(same, "copy", 0),
		"count": bound(sequenceCount, "count", 1, "value"),
		"index": bound(sequenceIndex, "index", 1, "value", "start", "stop"),
	}
	dictMethods = map[string]method{
		"copy":   bound(same, "copy", 0),
		"get":    bound(dictGet, "get", 1, "key", "default"),
		"items":  viewMethod("items"),
		"keys":   viewMethod("keys"),
		"values": viewMethod("values"),
	}
	intMethods = map[string]method{"bit_length": bound(func(_ *run, object any, _ []any) (any, error) {
		b, _ := bigInt(object)
		return int64(b.BitLen()), nil
	}, "bit_length", 0)}
	floatMethods = map[string]method{"is_integer": bound(func(_ *run, f float64, _ []any) (any, error) {
		return f == math.Trunc(f) && !math.IsInf(f, 0), nil
	}, "is_integer", 0)}
}

func textArg(fn string, v any) (*text, error) {
	t, ok := v.(*text)
	if !ok {
		return nil, typeErrorf("%s() takes a str, not %s", fn, typeName(v))
	}
	return t, nil
}

// intArg is v as an int, or missing where absent.
func intArg(fn string, v any, missing int64) (int64, error) {
	if v == absent {
		return missing, nil
	}
	i, ok := smallInt(v)
	if !ok {
		return 0, typeErrorf("%s() takes an int, not %s", fn, typeName(v))
	}
	return i, nil
}

func stripMethod(name string, left, right bool) method {
	return bound(func(r *run, t *text, v []any) (any, error) {
		if v[0] == absent || v[0] == nil {
			return trim(r, t, left, right, isSpace)
		}
		chars, err := textArg(name, v[0])
		if err != nil {
			return nil, err
		}
		cut, err := runeSet(r, chars.s)
		if err != nil {
			return nil, err
		}
		return trim(r, t, left, right, cut)
	}, name, 0, "chars")
}

// runeSet tells whether a code point is in s.
func runeSet(r *run, s string) (func(rune) bool, error) {
	const few = 16
	if len(s) <= few {
		return func(c rune) bool { return strings.ContainsRune(s, c) }, nil
	}
	if err := r.alloc(valueSize * len(s)); err != nil {
		return nil, err
	}
	set := make(map[rune]bool)
	for _, c := range s {
		set[c] = true
	}
	return func(c rune) bool { return set[c] }, nil
}

func trim(r *run, t *text, left, right bool, cut func(rune) bool) (any, error) {
	out := t.trimWhere(left, right, cut)
	if err := r.scan(len(t.s) - len(out.s)); err != nil {
		return nil, err
	}
	return out, r.alloc(64 + 16*len(out.marks))
}

// pieces makes a list of texts and charges for it.
func pieces(r *run, parts []*text) (any, error) {
	items := make([]any, len(parts))
	n := 0
	for i, p := range parts {
		items[i] = p
		n += 64 + 16*len(p.marks)
	}
	return &list{items}, r.alloc(n + valueSize)
}

func splitMethod(name string, fromRight bool) method {
	return bound(func(r *run, t *text, v []any) (any, error) {
		limit, err := intArg(name, v[1], -1)
		if err != nil {
			return nil, err
		}
		if limit < 0 {
			limit = math.MaxInt64
		}
		if v[0] == absent || v[0] == nil {
			parts, err := splitSpace(r, t, limit, fromRight)
			if err != nil {
				return nil, err
			}
			return pieces(r, parts)
		}
		sep, err := textArg(name, v[0])
		if err != nil {
			return nil, err
		}
		if sep.s == "" {
			return nil, valueErrorf("empty separator")
		}
		parts, err := splitOn(r, t, sep.s, limit, fromRight)
		if err != nil {
			return nil, err
		}
		return pieces(r, parts)
	}, name, 0, "sep", "maxsplit")
}

func splitOn(r *run, t *text, sep string, limit int64, fromRight bool) ([]*text, error) {
	if err := r.work(len(t.s)); err != nil {
		return nil, err
	}
	var parts []*text
	from, to := 0, len(t.s)
	for int64(len(parts)) < limit {
		var at int
		if fromRight {
			at = strings.LastIndex(t.s[:to], sep)
		} else {
			at = strings.Index(t.s[from:], sep)
		}
		if at < 0 {
			break
		}
		if fromRight {
			parts = append(parts, t.slice(at+len(sep), to))
			to = at
		} else {
			parts = append(parts, t.slice(from, from+at))
			from += at + len(sep)
		}
		if err := r.alloc(valueSize + len(t.marks)); err != nil {
			return nil, err
		}
	}
	parts = append(parts, t.slice(from, to))
	if fromRight {
		slices.Reverse(parts)
	}
	return parts, nil
}

// splitSpace splits at runs of white space, dropping those at the ends.
func splitSpace(r *run, t *text, limit int64, fromRight bool) ([]*text, error) {
	if err := r.scan(len(t.s)); err != nil {
		return nil, err
	}
	var parts []*text
	rest := t.trimWhere(!fromRight, fromRight, isSpace)
	for rest.s != "" {
		at := -1
		if int64(len(parts)) < limit {
			if fromRight {
				at = strings.LastIndexFunc(rest.s, isSpace)
			} else {
				at = strings.IndexFunc(rest.s, isSpace)
			}
		}
		switch {
		case at < 0:
			parts = append(parts, rest)
			rest = emptyText
		case fromRight:
			_, n := utf8.DecodeRuneInString(rest.s[at:])
			parts = append(parts, rest.slice(at+n, len(rest.s)))
			rest = rest.slice(0, at).trimWhere(false, true, isSpace)
		default:
			parts = append(parts, rest.slice(0, at))
			rest = rest.slice(at, len(rest.s)).trimWhere(true, false, isSpace)
		}
		if err := r.alloc(2*valueSize + 16*len(rest.marks)); err != nil {
			return nil, err
		}
	}
	if fromRight {
		slices.Reverse(parts)
	}
	return parts, nil
}

func splitLinesMethod(r *run, t *text, v []any) (any, error) {
	if err := r.alloc(lineCost(t)); err != nil {
		return nil, err
	}
	return pieces(r, t.splitLines(v[0] != absent && truth(v[0])))
}

// lineCost bounds what splitLines allocates.
func lineCost(t *text) int {
	return 8*len(t.s) + strings.Count(t.s, "\n")*(64+len(t.marks))
}

func partitionMethod(name string, fromRight bool) method {
	return bound(func(r *run, t *text, v []any) (any, error) {
		sep, err := textArg(name, v[0])
		if err != nil {
			return nil, err
		}
		if sep.s == "" {
			return nil, valueErrorf("empty separator")
		}
		if err := r.alloc(len(t.s) + 48*len(t.marks)); err != nil {
			return nil, err
		}
		at, empty := strings.Index(t.s, sep.s), t.slice(0, 0)
		if fromRight {
			at = strings.LastIndex(t.s, sep.s)
		}
		if t.safe {
			sep = sep.markup()
		}
		switch {
		case at >= 0:
			return &tuple{items: []any{t.slice(0, at), sep, t.slice(at+len(sep.s), len(t.s))}}, nil
		case fromRight:
			return &tuple{items: []any{empty, empty, t}}, nil
		}
		return &tuple{items: []any{t, empty, empty}}, nil
	}, name, 1, "sep")
}

// window cuts t to the optional code point bounds of find, count, startswith;
// ok is false where the bounds cross. offset is the first code point's index.
func window(r *run, fn string, t *text, start, end any) (s string, offset int, ok bool, err error) {
	if err := r.work(len(t.s)); err != nil {
		return "", 0, false, err
	}
	if start == absent && end == absent {
		return t.s, 0, true, nil
	}
	var bounds [3]any
	for i, b := range []any{start, end} {
		if b == absent || b == nil {
			continue
		}
		if !isInt(b) {
			return "", 0, false, typeErrorf("%s() takes int bounds, not %s", fn, typeName(b))
		}
		bounds[i] = b
	}
	n := runeLen(t.s)
	if i, isSmall := smallInt(bounds[0]); isSmall && i > int64(n) {
		return "", 0, false, nil
	}
	first, count, _, err := sliceBounds(n, bounds)
	if err != nil {
		return "", 0, false, err
	}
	if _, stop, _, _ := sliceBounds(n, [3]any{nil, bounds[1], nil}); stop < first {
		return "", 0, false, nil
	}
	return t.sliceRunes(first, first+count).s, first, true, nil
}

func affixMethod(name string, has func(s, affix string) bool) method {
	return bound(func(r *run, t *text, v []any) (any, error) {
		s, _, ok, err := window(r, name, t, v[1], v[2])
		if err != nil {
			return nil, err
		}
		affixes := []any{v[0]}
		if t, isTuple := v[0].(*tuple); isTuple {
			affixes = t.items
		}
		for _, affix := range affixes {
			t, err := textArg(name, affix)
			if err != nil {
				return nil, err
			}
			if err := r.work(64 + len(t.s)); err != nil {
				return nil, err
			}
			if ok && has(s, t.s) {
				return true, nil
			}
		}
		return false, nil
	}, name, 1, "prefix", "start", "end")
}

func removeMethod(name string, prefix bool) method {
	return bound(func(r *run, t *text, v []any) (any, error) {
		affix, err := textArg(name, v[0])
		if err != nil {
			return nil, err
		}
		if err := r.alloc(64 + 16*len(t.marks)); err != nil {
			return nil, err
		}
		if prefix && strings.HasPrefix(t.s, affix.s) {
			return t.slice(len(affix.s), len(t.s)), nil
		}
		if !prefix && strings.HasSuffix(t.s, affix.s) {
			return t.slice(0, len(t.s)-len(affix.s)), nil
		}
		return t, nil
	}, name, 1, "affix")
}

func replaceMethod(r *run, t *text, v []any) (any, error) {
	from, err := textArg("replace", v[0])
	if err != nil {
		return nil, err
	}
	to, err := textArg("replace", v[1])
	if err != nil {
		return nil, err
	}
	limit, err := intArg("replace", v[2], -1)
	if err != nil {
		return nil, err
	}
	if t.safe {
		if to, err = to.escapeHTML(r); err != nil {
			return nil, err
		}
	}
	return replace(r, t, from.s, to, limit)
}

// replace keeps the trust of what stays and of what comes in.
func replace(r *run, t *text, from string, to *text, limit int64) (*text, error) {
	if limit < 0 {
		limit = math.MaxInt64
	}
	if err := r.work(len(t.s)); err != nil {
		return nil, err
	}
	if from == "" {
		return interleave(r, t, to, limit)
	}
	if !strings.Contains(t.s, from) {
		return t, nil
	}
	b := builder{r: r}
	at := 0
	for ; limit > 0; limit-- {
		n := strings.Index(t.s[at:], from)
		if n < 0 {
			break
		}
		if err := r.work(64 + 16*len(t.marks)); err != nil {
			return nil, err
		}
		if err := b.add(t.slice(at, at+n)); err != nil {
			return nil, err
		}
		if err := b.add(to); err != nil {
			return nil, err
		}
		at += n + len(from)
	}
	if err := b.add(t.slice(at, len(t.s))); err != nil {
		return nil, err
	}
	out := b.text()
	out.safe = t.safe
	return out, nil
}

// interleave puts to before each code point and at the end, limit times.
func interleave(r *run, t *text, to *text, limit int64) (*text, error) {
	b := builder{r: r}
	at := 0
	for ; limit > 0; limit-- {
		if err := b.add(to); err != nil {
			return nil, err
		}
		if at == len(t.s) {
			break
		}
		if err := r.work(64 + 16*len(t.marks)); err != nil {
			return nil, err
		}
		_, n := utf8.DecodeRuneInString(t.s[at:])
		if err := b.add(t.slice(at, at+n)); err != nil {
			return nil, err
		}
		at += n
	}
	if err := b.add(t.slice(at, len(t.s))); err != nil {
		return nil, err
	}
	out := b.text()
	out.safe = t.safe
	return out, nil
}

func joinMethod(r *run, t *text, v []any) (any, error) {
	items, err := collect(r, v[0])
	if err != nil {
		return nil, err
	}
	sep := t
	b := builder{r: r}
	for i, item := range items {
		t, ok := item.(*text)
		if !ok {
			return nil, typeErrorf("sequence item %d: expected str instance, %s found", i, typeName(item))
		}
		if sep.safe {
			if t, err = t.escapeHTML(r); err != nil {
				return nil, err
			}
		}
		if i > 0 {
			if err := b.add(sep); err != nil {
				return nil, err
			}
		}
		if err := b.add(t); err != nil {
			return nil, err
		}
	}
	out := b.text()
	out.safe = sep.safe
	return out, nil
}

func findMethodOf(name string, last, must bool) method {
	return bound(func(r *run, t *text, v []any) (any, error) {
		sub, err := textArg(name, v[0])
		if err != nil {
			return nil, err
		}
		s, offset, ok, err := window(r, name, t, v[1], v[2])
		if err != nil {
			return nil, err
		}
		at := -1
		if ok && last {
			at = strings.LastIndex(s, sub.s)
		} else if ok {
			at = strings.Index(s, sub.s)
		}
		if at >= 0 {
			return int64(offset + runeLen(s[:at])), nil
		}
		if must {
			return nil, valueErrorf("substring not found")
		}
		return int64(-1), nil
	}, name, 1, "sub", "start", "end")
}

func countMethod(r *run, t *text, v []any) (any, error) {
	sub, err := textArg("count", v[0])
	if err != nil {
		return nil, err
	}
	s, _, ok, err := window(r, "count", t, v[1], v[2])
	if err != nil || !ok {
		return int64(0), err
	}
	return int64(strings.Count(s, sub.s)), nil
}

func mapMethod(name string, f func(string) string) method {
	return bound(func(r *run, t *text, _ []any) (any, error) {
		return t.mapPieces(r, f)
	}, name, 0)
}

func deriveMethod(name string, f func(string) string) method {
	return bound(func(r *run, t *text, _ []any) (any, error) {
		if err := r.scan(len(t.s)); err != nil {
			return nil, err
		}
		return t.derive(f(t.s)), r.alloc(len(t.s))
	}, name, 0)
}

// upper differs from Go's where one letter becomes several.
func upper(s string) string {
	if !strings.ContainsRune(s, 'ß') {
		return strings.ToUpper(s)
	}
	return strings.ToUpper(strings.ReplaceAll(s, "ß", "SS"))
}

func casefold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "ß", "ss") }

func swapCase(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsUpper(c) {
			return unicode.ToLower(c)
		}
		return unicode.ToUpper(c)
	}, s)
}

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToTitle(s[:n]) + strings.ToLower(s[n:])
}

func titleCase(s string) string {
	inWord := false
	return strings.Map(func(c rune) rune {
		cased := isCased(c)
		defer func() { inWord = cased }()
		if inWord {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }

// justifyMethod pads on the right (0), on the left (1) or both (2).
func justifyMethod(name string, side int) method {
	return bound(func(r *run, t *text, v []any) (any, error) {
		width, err := intArg(name, v[0], 0)
		if err != nil {
			return nil, err
		}
		fill := literal(" ")
		if v[1] != absent {
			if fill, err = textArg(name, v[1]); err != nil {
				return nil, err
			}
			if runeLen(fill.s) != 1 {
				return nil, typeErrorf("The fill character must be exactly one character long")
			}
		}
		return justify(r, t, width, fill, side)
	}, name, 1, "width", "fillchar")
}

func justify(r *run, t *text, width int64, fill *text, side int) (any, error) {
	pad := max(0, width-int64(runeLen(t.s)))
	left := int64(0)
	switch side {
	case 1:
		left = pad
	case 2: // as CPython rounds
		left = pad/2 + pad&width&1
	}
	parts := [3]*text{1: t}
	for i, n := range []int64{left, 0, pad - left} {
		if i == 1 {
			continue
		}
		padding, err := repeat(r, fill, n)
		if err != nil {
			return nil, err
		}
		parts[i] = padding.(*text)
		if n == 0 {
			parts[i] = emptyText
		}
	}
	b := builder{r: r}
	for _, p := range parts {
		if err := b.add(p); err != nil {
			return nil, err
		}
	}
	out := b.text()
	out.safe = t.safe
	return out, nil
}

func zfillMethod(r *run, t *text, v []any) (any, error) {
	width, err := intArg("zfill", v[0], 0)
	if err != nil {
		return nil, err
	}
	sign := 0
	if t.s != "" && (t.s[0] == '-' || t.s[0] == '+') {
		sign = 1
	}
	zeros, err := repeat(r, literal("0"), width-int64(runeLen(t.s)))
	if err != nil {
		return nil, err
	}
	return t.derive(t.s[:sign] + zeros.(*text).s + t.s[sign:]), r.alloc(len(t.s))
}

// allMethod: is the text not empty and every code point such?
func allMethod(name string, is func(rune) bool) method {
	return predicateMethod(name, func(s string) bool {
		for _, c := range s {
			if !is(c) {
				return false
			}
		}
		return s != ""
	})
}

func predicateMethod(name string, is func(string) bool) method {
	return bound(func(r *run, t *text, _ []any) (any, error) {
		return is(t.s), r.scan(len(t.s))
	}, name, 0)
}

func isAlnum(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }

// isDigit adds superscripts and the like to the decimal digits.
func isDigit(c rune) bool {
	return unicode.Is(unicode.Nd, c) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", c) || 0x2460 <= c && c <= 0x2468
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isLower(s string) bool {
	return strings.IndexFunc(s, unicode.IsLower) >= 0 && strings.IndexFunc(s, unicode.IsUpper) < 0
}

func isUpper(s string) bool {
	return strings.IndexFunc(s, unicode.IsUpper) >= 0 && strings.IndexFunc(s, unicode.IsLower) < 0
}

func isTitle(s string) bool {
	inWord, some := false, false
	for _, c := range s {
		switch {
		case unicode.IsUpper(c) || unicode.IsTitle(c):
			if inWord {
				return false
			}
			inWord, some = true, true
		case unicode.IsLower(c):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return some
}

func sequenceItems(v any) []any {
	if l, ok := v.(*list); ok {
		return l.items
	}
	return v.(*tuple).items
}

func sequenceIndex(r *run, object any, v []any) (any, error) {
	items := sequenceItems(object)
	var bounds [3]any
	for i, b := range v[1:] {
		if b == absent {
			continue
		}
		if !isInt(b) {
			return nil, typeErrorf("index() takes int bounds, not %s", typeName(b))
		}
		bounds[i] = b
	}
	first, count, _, err := sliceBounds(len(items), bounds)
	if err != nil {
		return nil, err
	}
	for i := range count {
		if same, err := equal(r, items[first+i], v[0]); err != nil {
			return nil, err
		} else if same {
			return int64(first + i), nil
		}
	}
	return nil, valueErrorf("the value is not in the %s", typeName(object))
}

func sequenceCount(r *run, object any, v []any) (any, error) {
	n := int64(0)
	for _, item := range sequenceItems(object) {
		same, err := equal(r, item, v[0])
		if err != nil {
			return nil, err
		}
		n += int64(boolInt(same))
	}
	return n, nil
}

func dictGet(r *run, d *dict, v []any) (any, error) {
	found, ok, err := d.get(r, v[0])
	if err != nil || ok {
		return found, err
	}
	if v[1] == absent {
		return nil, nil
	}
	return v[1], nil
}

func viewMethod(kind string) method {
	return bound(func(_ *run, d *dict, _ []any) (any, error) { return &dictView{d, kind}, nil }, kind, 0)
}
