package grammar

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Schema compiles a JSON schema (drafts 4 to 2020-12, and what OpenAPI 3 adds). Every
// text that matches is a JSON document that satisfies the schema; not every such document
// matches, as a model needs one way only to write what it means:
//
//   - Properties come in the order in which they are declared. Undeclared ones come last,
//     and only if additionalProperties is given, or if no property is declared.
//   - Where keywords apply to some types only and no type is given, the value has one of
//     those types.
//   - Strings under a pattern, a format or in an enum escape only what must be escaped.
//   - Numbers have at most 16 digits before the point and 16 behind it, unless limits
//     have more; under limits they have no exponent.
//   - Space is at most one blank or one line break with indentation.
//
// Supported are type (and lists, and nullable), enum, const, anyOf, oneOf (of
// alternatives that visibly exclude each other), allOf, $ref within the document, $defs;
// properties, required, additionalProperties, propertyNames (as a string's pattern,
// format, length), minProperties, maxProperties; items, prefixItems, additionalItems,
// minItems, maxItems; minLength, maxLength, pattern (without look-around and word
// boundaries), format (see formats); minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf (integers up to 1000, and powers of ten). Annotations and
// keys that begin with x- are passed over. All else is a *SchemaError with a pointer to
// it. Other errors are ErrEmpty, *LimitError or the context's.
func Schema(ctx context.Context, source []byte) (*Grammar, error) {
	document, err := parseDocument(source)
	if err != nil {
		return nil, err
	}
	s := &schemaCompiler{ctx: ctx, document: document, known: make(map[string]ref)}
	s.set.add("root", nil)
	s.json = addJSON(&s.set)
	s.set.bodies[0] = s.rule([]located{{document, ""}})
	for len(s.pending) > 0 && s.err == nil {
		next := s.pending[0]
		s.pending = s.pending[1:]
		s.set.bodies[next.rule] = s.conjunction(next.parts)
	}
	if s.err != nil {
		return nil, s.err
	}
	g, err := newGrammar(ctx, s.set)
	var cycle *LeftRecursionError
	if errors.As(err, &cycle) {
		return nil, &SchemaError{Pointer: cycle.Rules[0], Reason: "the schema refers to itself with nothing in between", Err: err}
	}
	return g, err
}

// located is a schema and where it stands.
type located struct {
	*value
	pointer string
}

func (l located) at(keyword string) located {
	return located{l.get(keyword), join(l.pointer, keyword)}
}

func (l located) index(i int) located {
	return located{l.members[i], join(l.pointer, strconv.Itoa(i))}
}

// schemaCompiler turns schemas into rules. What a value has to satisfy is always a list
// of schemas, of which all apply: references, allOf and anyOf put schemas beside one
// another. Each list becomes one rule, however often it occurs, so recursive schemas
// become recursive rules.
type schemaCompiler struct {
	ctx      context.Context
	document *value
	set      ruleSet
	json     jsonRules
	known    map[string]ref // rules by the pointers of their schemas
	pending  []pendingRule
	visits   int
	nodes    int // of the automata made so far
	err      error
}

type pendingRule struct {
	rule  ref
	parts []located
}

// maxVisits bounds how many schemas are looked at, those that anyOf multiplies included.
const maxVisits = 1 << 18

func (s *schemaCompiler) fail(at, format string, args ...any) expr {
	if s.err == nil {
		s.err = &SchemaError{Pointer: at, Reason: fmt.Sprintf(format, args...)}
	}
	return choice{}
}

func (s *schemaCompiler) unsupported(at, format string, args ...any) expr {
	if s.err == nil {
		s.err = &SchemaError{Pointer: at, Reason: fmt.Sprintf(format, args...), Unsupported: true}
	}
	return choice{}
}

func (s *schemaCompiler) limit(what string, limit int) {
	if s.err == nil {
		s.err = &LimitError{what, limit}
	}
}

// rule returns the rule of the values that satisfy all schemas of a list.
func (s *schemaCompiler) rule(parts []located) expr {
	if len(parts) == 0 {
		return s.json.value
	}
	var names []string
	key := ""
	for _, p := range parts {
		names = append(names, p.pointer)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		key += strconv.Quote(name)
	}
	if r, ok := s.known[key]; ok {
		return r
	}
	if len(s.set.bodies) >= maxRules {
		s.limit("rules", maxRules)
		return choice{}
	}
	r := s.set.add(parts[0].pointer, nil)
	s.known[key] = r
	s.pending = append(s.pending, pendingRule{r, parts})
	return r
}

// conjunction returns what satisfies all schemas of a list.
func (s *schemaCompiler) conjunction(parts []located) expr {
	if len(parts) == 1 && parts[0].kind == 'o' && s.onlyRef(parts[0]) {
		if target := s.resolve(parts[0].at("$ref")); target.value != nil {
			return s.rule([]located{target})
		}
		return choice{}
	}
	f := s.flatten(parts)
	if s.err != nil || f.never {
		return choice{}
	}
	return s.alternatives(f)
}

// onlyRef reports whether a schema is a reference and nothing else.
func (s *schemaCompiler) onlyRef(l located) bool {
	if l.get("$ref") == nil {
		return false
	}
	for _, key := range l.keys {
		if key != "$ref" && !annotation(key) {
			return false
		}
	}
	return true
}

// flat is a list of schemas without booleans, references and allOf: these are resolved.
type flat struct {
	parts []located
	skip  map[string]bool // pointers of anyOf and oneOf that were chosen from already
	never bool
}

func (s *schemaCompiler) flatten(parts []located) flat {
	f := flat{skip: map[string]bool{}}
	done := map[string]bool{}
	for _, p := range parts {
		s.flattenInto(&f, p, done, map[string]bool{})
	}
	return f
}

func (s *schemaCompiler) visit(n int) {
	if s.visits += n; s.visits > maxVisits {
		s.limit("schemas", maxVisits)
	}
}

func (s *schemaCompiler) flattenInto(f *flat, l located, done, within map[string]bool) {
	s.visit(1)
	if err := s.ctx.Err(); err != nil && s.err == nil {
		s.err = err
	}
	if s.err != nil {
		return
	}
	switch l.kind {
	case 'b':
		f.never = f.never || !l.truth
		return
	case 'o':
	default:
		s.fail(l.pointer, "a schema should be an object or a boolean")
		return
	}
	if within[l.pointer] {
		s.fail(l.pointer, "the schema refers to itself with nothing in between")
		return
	}
	if done[l.pointer] {
		return
	}
	done[l.pointer] = true
	within[l.pointer] = true
	defer delete(within, l.pointer)
	s.check(l)
	if l.get("$ref") != nil {
		if target := s.resolve(l.at("$ref")); target.value != nil {
			s.flattenInto(f, target, done, within)
		}
	}
	if all := l.at("allOf"); all.value != nil {
		if all.kind != 'a' || len(all.members) == 0 {
			s.fail(all.pointer, "this should be a list of schemas")
			return
		}
		for i := range all.members {
			s.flattenInto(f, all.index(i), done, within)
		}
	}
	f.parts = append(f.parts, l)
}

// resolve finds what a reference refers to.
func (s *schemaCompiler) resolve(l located) located {
	if l.kind != 's' {
		s.fail(l.pointer, "a reference should be a string")
		return located{}
	}
	path, ok := strings.CutPrefix(l.text, "#")
	if !ok || path != "" && path[0] != '/' {
		s.unsupported(l.pointer, "references are supported within the document only, as #/$defs/name, not %q", l.text)
		return located{}
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		s.fail(l.pointer, "%q is not a JSON pointer", l.text)
		return located{}
	}
	at := located{s.document, ""}
	if path == "" {
		return at
	}
	for step := range strings.SplitSeq(path[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		next := located{at.get(step), join(at.pointer, step)}
		if i, err := strconv.Atoi(step); err == nil && at.kind == 'a' && 0 <= i && i < len(at.members) {
			next = at.index(i)
		}
		if next.value == nil {
			s.fail(l.pointer, "there is nothing at %q", l.text)
			return located{}
		}
		at = next
	}
	return at
}

// alternatives chooses from the first anyOf or oneOf of a list, if there is one.
func (s *schemaCompiler) alternatives(f flat) expr {
	for _, p := range f.parts {
		for _, keyword := range [...]string{"anyOf", "oneOf"} {
			list := p.at(keyword)
			if list.value == nil || f.skip[list.pointer] {
				continue
			}
			if list.kind != 'a' || len(list.members) == 0 {
				return s.fail(list.pointer, "this should be a list of schemas")
			}
			if keyword == "oneOf" {
				s.checkDisjoint(f, list)
			}
			return s.choose(f, list)
		}
	}
	return s.simple(f.parts)
}

func (s *schemaCompiler) choose(f flat, list located) expr {
	alone := len(f.parts) == 1 && !s.constrains(f.parts[0], list.pointer)
	rank := make(map[string]int)
	for i, p := range f.parts {
		rank[p.pointer] = i - len(f.parts)
	}
	var out choice
	for i := range list.members {
		if s.visit(len(f.parts)); s.err != nil {
			break
		}
		option := list.index(i)
		if alone {
			out = append(out, s.rule([]located{option}))
			continue
		}
		g := s.flatten([]located{option})
		g.skip[list.pointer] = true
		for pointer := range f.skip {
			g.skip[pointer] = true
		}
		// The list's own schema comes first: its properties do, too.
		g.parts = slices.DeleteFunc(g.parts, func(l located) bool { return rank[l.pointer] < 0 })
		g.parts = append(slices.Clone(f.parts), g.parts...)
		if !g.never && s.err == nil {
			out = append(out, s.alternatives(g))
		}
	}
	return out
}

// constrains reports whether a schema says anything besides one of its keywords.
func (s *schemaCompiler) constrains(l located, besides string) bool {
	for _, key := range l.keys {
		if !annotation(key) && join(l.pointer, key) != besides {
			return true
		}
	}
	return false
}

// all lists what the schemas say under a keyword.
func all(parts []located, keyword string) []located {
	var out []located
	for _, p := range parts {
		if v := p.at(keyword); v.value != nil {
			out = append(out, v)
		}
	}
	return out
}

// simple returns what satisfies schemas that have no more choices.
func (s *schemaCompiler) simple(parts []located) expr {
	types := s.types(parts)
	if enums := append(all(parts, "enum"), all(parts, "const")...); len(enums) > 0 {
		return s.enumeration(parts, types, enums)
	}
	if types == allTypes && !slices.ContainsFunc(parts, s.restricts) {
		return s.json.value
	}
	var out choice
	for _, t := range [...]struct {
		bit  typeSet
		expr func([]located) expr
	}{
		{typeObject, s.object},
		{typeArray, s.array},
		{typeString, s.text},
		{typeNumber, func(p []located) expr { return s.number(p, false) }},
		{typeInteger, func(p []located) expr { return s.number(p, true) }},
		{typeBoolean, func([]located) expr { return choice{literal("true"), literal("false")} }},
		{typeNull, func([]located) expr { return literal("null") }},
	} {
		if types&t.bit != 0 && s.err == nil {
			out = append(out, t.expr(parts))
		}
	}
	return out
}

// restricts reports whether a schema has a keyword for values of some type.
func (s *schemaCompiler) restricts(l located) bool {
	return s.inferred([]located{l}) != 0
}

// types is the types that all schemas allow. An integer is a number, too; so a set with
// both means what it means with numbers only.
func (s *schemaCompiler) types(parts []located) typeSet {
	types := allTypes
	given := false
	for _, p := range parts {
		v := p.at("type")
		if v.value == nil {
			continue
		}
		given = true
		var own typeSet
		names := []located{v}
		if v.kind == 'a' {
			names = nil
			for i := range v.members {
				names = append(names, v.index(i))
			}
		}
		for _, name := range names {
			t, ok := typeNames[name.text]
			if !ok || name.kind != 's' {
				s.fail(name.pointer, "this is not a type; object, array, string, number, integer, boolean, null are")
				return 0
			}
			own |= t
		}
		if n := p.get("nullable"); n != nil && n.kind == 'b' && n.truth {
			own |= typeNull
		}
		types &= own.expand()
	}
	if !given {
		if inferred := s.inferred(parts); inferred != 0 {
			types = inferred
		}
	}
	if types&typeNumber != 0 {
		types &^= typeInteger
	}
	return types
}

// inferred is the types that the keywords are meant for.
func (s *schemaCompiler) inferred(parts []located) typeSet {
	var types typeSet
	for _, p := range parts {
		for _, key := range p.keys {
			types |= keywordTypes(p, key)
		}
	}
	return types
}

// enumeration matches the listed values that satisfy the schemas.
func (s *schemaCompiler) enumeration(parts []located, types typeSet, enums []located) expr {
	counts := make(map[string]int)
	texts := make(map[string]string)
	var order []string
	for _, e := range enums {
		list := []*value{e.value}
		if strings.HasSuffix(e.pointer, "/enum") {
			if e.kind != 'a' || len(e.members) == 0 {
				return s.fail(e.pointer, "this should be a list of values")
			}
			list = e.members
		}
		seen := make(map[string]bool)
		for _, v := range list {
			k := v.canonical()
			if seen[k] {
				continue
			}
			seen[k] = true
			if _, ok := texts[k]; !ok {
				texts[k] = v.json()
				order = append(order, k)
				if s.typeOf(v)&types.expand() == 0 {
					counts[k] = -len(enums)
				}
			}
			counts[k]++
		}
	}
	for _, p := range parts {
		for _, key := range p.keys {
			if keywordTypes(p, key)&types.expand() != 0 {
				return s.unsupported(join(p.pointer, key), "%q beside enum or const is not supported; list only the values that satisfy it", key)
			}
		}
	}
	var out []string
	for _, k := range order {
		if counts[k] == len(enums) {
			out = append(out, texts[k])
		}
	}
	if len(out) == 0 {
		return choice{}
	}
	return words(out)
}

func (s *schemaCompiler) typeOf(v *value) typeSet {
	switch v.kind {
	case 'o':
		return typeObject
	case 'a':
		return typeArray
	case 's':
		return typeString
	case 'b':
		return typeBoolean
	case 'z':
		return typeNull
	}
	if v.integral() {
		return typeInteger | typeNumber
	}
	return typeNumber
}

// count reads a number that counts something, if the keyword is there; the strictest one
// of several. It returns -1 if there is none.
func (s *schemaCompiler) count(parts []located, keyword string, strictest func(a, b int) int) int {
	n := -1
	for _, v := range all(parts, keyword) {
		d, err := parseDecimal(v.text)
		if v.kind != 'n' || err != nil || d.negative || d.part != "" {
			s.fail(v.pointer, "this should be a count: an integer, 0 or more")
			return 0
		}
		k, err := strconv.Atoi(d.whole)
		if err != nil || k > maxRepeat {
			if keyword[:3] == "max" { // beyond what can be generated
				continue
			}
			s.limit("repetitions", maxRepeat)
			return 0
		}
		if n < 0 {
			n = k
		}
		n = strictest(n, k)
	}
	return n
}

func larger(a, b int) int  { return max(a, b) }
func smaller(a, b int) int { return min(a, b) }
