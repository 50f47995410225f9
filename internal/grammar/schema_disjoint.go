package grammar

import "slices"

// checkDisjoint refuses a oneOf unless its alternatives visibly exclude each other: a
// value must not satisfy two of them, which a grammar cannot look for.
func (s *schemaCompiler) checkDisjoint(f flat, list located) {
	options := make([]flat, len(list.members))
	for i := range list.members {
		options[i] = s.flatten([]located{list.index(i)})
		for _, p := range f.parts {
			if join(p.pointer, "oneOf") == list.pointer {
				p = p.without("oneOf")
			}
			options[i].parts = append(options[i].parts, p)
		}
	}
	for i := range options {
		for j := range i {
			if s.err != nil {
				return
			}
			if !s.disjoint(options[i], options[j], 0) {
				s.unsupported(list.index(i).pointer,
					"a value could satisfy this alternative and alternative %d of oneOf; use anyOf, or tell them apart by a required property with a const", j)
				return
			}
		}
	}
}

// without returns a schema without one of its keywords.
func (l located) without(keyword string) located {
	v := &value{kind: 'o', index: make(map[string]int)}
	for i, key := range l.keys {
		if key != keyword {
			v.index[key] = len(v.keys)
			v.keys = append(v.keys, key)
			v.members = append(v.members, l.members[i])
		}
	}
	return located{v, l.pointer}
}

// disjoint reports whether it can be seen that no value satisfies both.
func (s *schemaCompiler) disjoint(a, b flat, depth int) bool {
	if a.never || b.never {
		return true
	}
	if depth > 4 || len(a.parts)*len(b.parts) == 0 {
		return false
	}
	ta, tb := s.valueTypes(a.parts), s.valueTypes(b.parts)
	if ta&tb == 0 {
		return true
	}
	if va, vb := s.listed(a.parts), s.listed(b.parts); va != nil && vb != nil {
		for v := range va {
			if vb[v] {
				return false
			}
		}
		return true
	}
	if ta&tb != typeObject {
		return false
	}
	pa, pb := s.properties(a.parts), s.properties(b.parts)
	return s.excludes(a, b, pa, pb, depth) && s.excludes(b, a, pb, pa, depth)
}

// excludes reports whether it can be seen that no object that is generated for a
// satisfies b.
func (s *schemaCompiler) excludes(a, b flat, pa, pb properties, depth int) bool {
	for name := range pb.required {
		i, declared := pa.index[name]
		if !declared && !pa.rest || pa.never[name] {
			return true
		}
		if !declared || !pa.required[name] {
			continue
		}
		j := pb.index[name]
		if s.disjoint(s.flatten(pa.values[i]), s.flatten(pb.values[j]), depth+1) {
			return true
		}
	}
	for name := range pa.required {
		forbidden := pb.never[name]
		if _, declared := pb.index[name]; !declared {
			forbidden = slices.ContainsFunc(all(b.parts, "additionalProperties"), located.isFalse)
		}
		if forbidden {
			return true
		}
	}
	return false
}

// isFalse reports whether a schema is false, which nothing satisfies.
func (l located) isFalse() bool { return l.kind == 'b' && !l.truth }

// valueTypes is the types of the values that satisfy schemas; integers count as numbers.
func (s *schemaCompiler) valueTypes(parts []located) typeSet {
	var types typeSet
	given := false
	for _, p := range parts {
		given = given || p.get("type") != nil
	}
	if types = allTypes; given {
		types = s.types(parts)
	}
	if listed := append(all(parts, "enum"), all(parts, "const")...); len(listed) > 0 {
		var own typeSet
		for _, l := range listed {
			values := []*value{l.value}
			if l.kind == 'a' && len(all(parts, "enum")) > 0 {
				values = l.members
			}
			for _, v := range values {
				own |= s.typeOf(v)
			}
		}
		types = types.expand() & own
	}
	if types&typeInteger != 0 {
		types = types&^typeInteger | typeNumber
	}
	return types
}

// listed lists the values that an enum or const allows, or nil.
func (s *schemaCompiler) listed(parts []located) map[string]bool {
	out := make(map[string]bool)
	if c := all(parts, "const"); len(c) > 0 {
		out[c[0].canonical()] = true
		return out
	}
	if e := all(parts, "enum"); len(e) > 0 {
		for _, v := range e[0].members {
			out[v.canonical()] = true
		}
		return out
	}
	return nil
}
