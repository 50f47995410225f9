package chattemplate

import (
	"math/big"
	"strings"
	"unicode"
)

// testFunc is a test: the right side of "is".
type testFunc func(r *run, v any, a *args) (bool, error)

// tests are jinja's.
var tests map[string]testFunc

func init() { // a literal would make an initialization cycle through "test"
	tests = map[string]testFunc{
		"boolean":     kind(func(v any) bool { _, ok := v.(bool); return ok }),
		"callable":    kind(isCallable),
		"defined":     kind(func(v any) bool { return !isUndefined(v) }),
		"undefined":   kind(isUndefined),
		"none":        kind(func(v any) bool { return v == nil }),
		"true":        kind(func(v any) bool { return v == true }),
		"false":       kind(func(v any) bool { return v == false }),
		"integer":     kind(func(v any) bool { _, isBool := v.(bool); return isInt(v) && !isBool }),
		"float":       kind(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":      kind(isNumber),
		"string":      kind(func(v any) bool { _, ok := v.(*text); return ok }),
		"mapping":     kind(func(v any) bool { _, ok := v.(*dict); return ok }),
		"sequence":    kind(isSequence),
		"iterable":    testIterable,
		"escaped":     kind(func(v any) bool { t, ok := v.(*text); return ok && t.safe }),
		"lower":       testCase(isLower),
		"upper":       testCase(isUpper),
		"even":        testRemainder(0),
		"odd":         testRemainder(1),
		"divisibleby": testDivisible,
		"sameas":      testSame,
		"in":          testIn,
		"filter":      named(func(name string) bool { return filters[name] != nil }),
		"test":        named(func(name string) bool { return tests[name] != nil }),
	}
	for op, names := range map[string]string{
		"==": "eq equalto ==", "!=": "ne !=", "<": "lt lessthan <", "<=": "le <=", ">": "gt greaterthan >", ">=": "ge >=",
	} {
		for _, name := range strings.Fields(names) {
			tests[name] = testCompare(name, op)
		}
	}
}

func isUndefined(v any) bool { _, ok := v.(*undefined); return ok }

func isSequence(v any) bool {
	switch v.(type) {
	case *text, *list, *tuple, *dict, *rangeValue, *undefined:
		return true
	}
	return false
}

func kind(is func(any) bool) testFunc {
	return func(_ *run, v any, a *args) (bool, error) {
		_, err := a.bind("test", 0)
		return err == nil && is(v), err
	}
}

func testIterable(r *run, v any, a *args) (bool, error) {
	if _, err := a.bind("iterable", 0); err != nil {
		return false, err
	}
	_, err := iterate(r, v)
	return err == nil, nil
}

func testCase(is func(string) bool) testFunc {
	return func(r *run, v any, a *args) (bool, error) {
		t, err := toText(r, v)
		if err != nil {
			return false, err
		}
		return is(t.s), r.scan(len(t.s))
	}
}

func testRemainder(want int64) testFunc {
	return func(_ *run, v any, a *args) (bool, error) {
		return hasRemainder(v, int64(2), want)
	}
}

func hasRemainder(v, by any, want int64) (bool, error) {
	for _, n := range []any{v, by} {
		if u, ok := n.(*undefined); ok {
			return false, u.fail()
		}
		if !isNumber(n) {
			return false, typeErrorf("a number is needed, not %s", typeName(n))
		}
	}
	rest, err := arithmetic("%", v, by)
	if err != nil {
		return false, err
	}
	c, ok := compareNumbers(rest, want)
	return ok && c == 0, nil
}

func testDivisible(_ *run, v any, a *args) (bool, error) {
	p, err := a.bind("divisibleby", 1, "num")
	if err != nil {
		return false, err
	}
	return hasRemainder(v, p[0], 0)
}

// testSame is identity; equal scalars count as the same object.
func testSame(r *run, v any, a *args) (bool, error) {
	p, err := a.bind("sameas", 1, "other")
	if err != nil {
		return false, err
	}
	if typeName(v) != typeName(p[0]) {
		return false, nil
	}
	switch v.(type) {
	case *text, *big.Int:
		return equal(r, v, p[0])
	}
	return v == p[0], nil
}

func testIn(r *run, v any, a *args) (bool, error) {
	p, err := a.bind("in", 1, "seq")
	if err != nil {
		return false, err
	}
	return contains(r, p[0], v)
}

func testCompare(name, op string) testFunc {
	return func(r *run, v any, a *args) (bool, error) {
		p, err := a.bind(name, 1, "other")
		if err != nil {
			return false, err
		}
		return compareOp(r, op, v, p[0])
	}
}

func named(known func(string) bool) testFunc {
	return func(_ *run, v any, a *args) (bool, error) {
		t, ok := v.(*text)
		return ok && len(t.s) <= maxName && known(t.s), nil
	}
}

// isWordRune is Python's \w.
func isWordRune(c rune) bool { return c == '_' || isAlnum(c) || unicode.IsMark(c) }
