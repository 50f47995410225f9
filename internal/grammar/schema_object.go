package grammar

import (
	"slices"
)

// properties is what a list of schemas says about objects.
type properties struct {
	names    []string // declared ones in order, then required ones that are not declared
	index    map[string]int
	values   [][]located
	required map[string]bool
	never    map[string]bool // must not be there

	rest  bool      // others may follow
	other []located // what these have to satisfy
	keys  *fsa      // how their names may look, or nil
}

// object matches objects: the declared properties in order, each there or, if it is not
// required, not; then others.
func (s *schemaCompiler) object(parts []located) expr {
	p := s.properties(parts)
	s.propertyNames(parts, &p)
	low := s.count(parts, "minProperties", larger)
	high := s.count(parts, "maxProperties", smaller)
	if s.err != nil {
		return choice{}
	}
	for name := range p.required {
		if p.never[name] {
			return choice{}
		}
	}
	if p.rest && len(p.names) == 0 && len(p.other) == 0 && p.keys == nil && low <= 0 && high < 0 {
		return s.json.object
	}
	if p.rest && low > max(1, len(p.required)) {
		return s.unsupported(all(parts, "minProperties")[0].pointer,
			"names that are not declared could be the same, so more than one cannot be asked for")
	}
	return s.members(p, low, high)
}

func (s *schemaCompiler) properties(parts []located) properties {
	p := properties{index: map[string]int{}, required: map[string]bool{}, never: map[string]bool{}}
	declare := func(name string) {
		if _, ok := p.index[name]; !ok {
			p.index[name] = len(p.names)
			p.names = append(p.names, name)
		}
	}
	for _, list := range all(parts, "properties") {
		if list.kind != 'o' {
			s.fail(list.pointer, "this should be an object of schemas")
			return p
		}
		for _, name := range list.keys {
			declare(name)
		}
	}
	declared := len(all(parts, "properties")) > 0
	for _, list := range all(parts, "required") {
		if list.kind != 'a' {
			s.fail(list.pointer, "this should be a list of names")
			return p
		}
		for i, name := range list.members {
			if name.kind != 's' {
				s.fail(list.index(i).pointer, "this should be a name")
			}
			p.required[name.text] = true
			declare(name.text)
		}
	}
	closed := len(all(parts, "unevaluatedProperties")) > 0
	p.rest = len(p.names) == 0 && !declared && !closed || len(all(parts, "additionalProperties")) > 0
	for _, part := range parts {
		if other := part.at("additionalProperties"); other.value != nil {
			p.other = append(p.other, other)
			p.rest = p.rest && !other.isFalse()
		}
	}
	for _, name := range p.names {
		p.values = append(p.values, s.propertyValue(parts, name, &p))
	}
	p.other = slices.DeleteFunc(p.other, func(l located) bool { return l.kind == 'b' })
	return p
}

// propertyValue lists what the value of a property has to satisfy.
func (s *schemaCompiler) propertyValue(parts []located, name string, p *properties) []located {
	var out []located
	for _, part := range parts {
		v := part.at("properties")
		if v.value != nil && v.get(name) != nil {
			out = append(out, v.at(name))
		} else if other := part.at("additionalProperties"); other.value != nil {
			out = append(out, other)
		}
	}
	for _, v := range out {
		if v.isFalse() {
			p.never[name] = true
		}
	}
	return out
}

// propertyNames applies the keyword of that name.
func (s *schemaCompiler) propertyNames(parts []located, p *properties) {
	for _, names := range all(parts, "propertyNames") {
		f := s.flatten([]located{names})
		if s.err != nil {
			return
		}
		for _, part := range f.parts {
			for _, key := range part.keys {
				switch key {
				case "type", "minLength", "maxLength", "pattern", "format":
				default:
					if !annotation(key) {
						s.unsupported(join(part.pointer, key), "%q is not supported for names of properties", key)
						return
					}
				}
			}
		}
		own := s.textAutomaton(f.parts)
		if f.never || s.types(f.parts)&typeString == 0 {
			own = &fsa{final: []bool{false}, edges: [][]fsaEdge{nil}}
		}
		if own == nil {
			continue
		}
		for _, name := range p.names {
			p.never[name] = p.never[name] || !own.matches(name)
		}
		p.keys = s.both(p.keys, own)
	}
}

// members matches the members of an object and its braces, with a count between low and
// high (negative for no bounds). Its network has a node for each property that may come
// next and each number of members before it, as far as that matters.
func (s *schemaCompiler) members(p properties, low, high int) expr {
	top := max(1, low)
	if high >= 0 {
		top = max(top, high)
	}
	if (len(p.names)+1)*(top+1) > maxAutomaton {
		s.limit("combinations of members", maxAutomaton)
	}
	if s.charge((len(p.names) + 1) * (top + 1)); s.err != nil {
		return choice{}
	}
	n := &network{}
	node := func(i, count int) int { return i*(top+1) + count }
	for i := 0; i <= len(p.names); i++ {
		for count := 0; count <= top; count++ {
			n.node(i == len(p.names) && count >= low)
		}
	}
	take := func(i, count, to int, member expr) {
		if high >= 0 && count >= high {
			return
		}
		if count > 0 {
			member = sequence{literal(","), s.json.blank, member}
		}
		n.edge(node(i, count), node(to, min(count+1, top)), member)
	}
	for i, name := range p.names {
		var member expr
		if !p.never[name] {
			member = s.set.add("member", s.member(literal(quote(name)), s.rule(p.values[i])))
		}
		for count := 0; count <= min(i, top); count++ {
			if !p.required[name] {
				n.edge(node(i, count), node(i+1, count), nil)
			}
			if member != nil {
				take(i, count, i+1, member)
			}
		}
	}
	if p.rest {
		member := s.set.add("member", s.member(s.otherKey(p), s.rule(p.other)))
		for count := 0; count <= top; count++ {
			take(len(p.names), count, len(p.names), member)
		}
	}
	return sequence{literal("{"), s.json.blank, n, literal("}")}
}

func (s *schemaCompiler) member(key, value expr) expr {
	return sequence{key, s.json.blank, literal(":"), s.json.blank, value, s.json.blank}
}

// otherKey matches names that are not declared.
func (s *schemaCompiler) otherKey(p properties) expr {
	keys := p.keys
	if len(p.names) > 0 {
		keys = s.both(keys, otherThan(p.names))
	}
	if keys == nil {
		return s.json.text
	}
	return sequence{literal(`"`), keys.expr(true), literal(`"`)}
}

// charge counts nodes before they are compiled: there can be many automata, each of them
// small enough.
func (s *schemaCompiler) charge(nodes int) {
	if s.nodes += nodes; s.nodes > maxNodes {
		s.limit("states", maxNodes)
	}
}

// both intersects automata; nil stands for all texts.
func (s *schemaCompiler) both(f, g *fsa) *fsa {
	if f == nil {
		return g
	}
	if g == nil {
		return f
	}
	out, err := f.intersect(g)
	if err != nil && s.err == nil {
		s.err = err
	}
	if out != nil {
		s.charge(len(out.final) + out.work)
	}
	return out
}

// array matches arrays: prefixItems first, and then any number of items.
func (s *schemaCompiler) array(parts []located) expr {
	low := max(0, s.count(parts, "minItems", larger))
	high := s.count(parts, "maxItems", smaller)
	for _, u := range all(parts, "uniqueItems") {
		if u.kind == 'b' && u.truth && (high < 0 || high > 1) {
			return s.unsupported(u.pointer, "what was in an array before cannot be remembered, unless maxItems is 1")
		}
	}
	first, rest, open := s.items(parts)
	if s.err != nil {
		return choice{}
	}
	if len(first) == 0 && open && len(rest) == 0 && low == 0 && high < 0 {
		return s.json.array
	}
	if !open && (high < 0 || high > len(first)) {
		high = len(first)
	}
	if high >= 0 && high < low {
		return choice{}
	}

	n := &network{}
	at := n.node(low == 0)
	item := func(i int, parts []located) expr {
		x := sequence{s.rule(parts), s.json.blank}
		if i > 0 {
			x = append(sequence{literal(","), s.json.blank}, x...)
		}
		return x
	}
	count := 0
	for ; count < len(first) && (high < 0 || count < high); count++ {
		next := n.node(count+1 >= low)
		n.edge(at, next, item(count, first[count]))
		at = next
	}
	if high != count && open {
		// The first of the others is told apart if there is no comma before it.
		if count == 0 {
			next := n.node(low <= 1)
			n.edge(at, next, item(0, rest))
			at, count = next, 1
		}
		more := repeat{item(1, rest), max(0, low-count), unbounded}
		if high >= 0 {
			more.max = high - count
		}
		n.edge(at, n.node(true), more)
	}
	return sequence{literal("["), s.json.blank, n, literal("]")}
}

// items lists what the first items have to satisfy, and what the others; open is false
// if there must not be others.
func (s *schemaCompiler) items(parts []located) (first [][]located, rest []located, open bool) {
	type list struct {
		first []located
		rest  located
	}
	var lists []list
	open = len(all(parts, "unevaluatedItems")) == 0
	given := false
	for _, p := range parts {
		var l list
		prefix, items := p.at("prefixItems"), p.at("items")
		if items.value != nil && items.kind == 'a' { // as in drafts before 2020-12
			prefix, items = items, p.at("additionalItems")
		}
		if prefix.value != nil {
			if prefix.kind != 'a' {
				s.fail(prefix.pointer, "this should be a list of schemas")
				return nil, nil, false
			}
			for i := range prefix.members {
				l.first = append(l.first, prefix.index(i))
			}
			// More than the listed items are valid unless items says otherwise, and
			// hardly ever meant.
			open = open && items.value != nil
		}
		l.rest = items
		given = given || items.value != nil
		if items.value != nil && items.isFalse() {
			open = false
		}
		lists = append(lists, l)
	}
	longest := 0
	for _, l := range lists {
		longest = max(longest, len(l.first))
	}
	low := s.count(parts, "minItems", larger)
	if !open && !given && low > longest { // what was left out above is asked for
		open = len(all(parts, "unevaluatedItems")) == 0
	}
	at := func(i int) []located {
		var out []located
		for _, l := range lists {
			if i < len(l.first) {
				out = append(out, l.first[i])
			} else if l.rest.value != nil {
				out = append(out, l.rest)
			}
		}
		return out
	}
	for i := range longest {
		first = append(first, at(i))
	}
	rest = slices.DeleteFunc(at(longest), func(l located) bool { return l.kind == 'b' && l.truth })
	return first, rest, open
}
