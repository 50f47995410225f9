package grammar

import "context"

// A Grammar is a set of texts: those that it matches from their first to their last
// byte. It is immutable and safe for concurrent use.
type Grammar struct {
	rules   ruleSet
	program *program
}

// newGrammar compiles rules.
func newGrammar(ctx context.Context, rules ruleSet) (*Grammar, error) {
	p, err := compile(ctx, rules)
	if err != nil {
		return nil, err
	}
	if _, err := newCache(p); err != nil {
		return nil, err
	}
	return &Grammar{rules, p}, nil
}

// Literal matches one text.
func Literal(ctx context.Context, text string) (*Grammar, error) {
	return newGrammar(ctx, ruleSet{[]string{"literal"}, []expr{literal(text)}})
}

// Concat matches a text of the first grammar, followed by one of the second, and so on.
func Concat(ctx context.Context, parts ...*Grammar) (*Grammar, error) {
	return combine(ctx, "concatenation", parts, func(refs []expr) expr { return sequence(refs) })
}

// Choice matches the texts of any of the grammars.
func Choice(ctx context.Context, parts ...*Grammar) (*Grammar, error) {
	return combine(ctx, "choice", parts, func(refs []expr) expr { return choice(refs) })
}

// Repeat matches between min and max texts of a grammar one after the other; a negative
// max is no limit.
func Repeat(ctx context.Context, g *Grammar, min, max int) (*Grammar, error) {
	if max < 0 {
		max = unbounded
	}
	if min > maxRepeat || max > maxRepeat {
		return nil, &LimitError{"repetitions", maxRepeat}
	}
	if min < 0 || max != unbounded && max < min {
		return nil, ErrEmpty
	}
	return combine(ctx, "repetition", []*Grammar{g}, func(refs []expr) expr { return repeat{refs[0], min, max} })
}

func combine(ctx context.Context, name string, parts []*Grammar, join func([]expr) expr) (*Grammar, error) {
	var rules ruleSet
	rules.add(name, nil)
	var refs []expr
	for _, part := range parts {
		first := len(rules.bodies)
		if first+len(part.rules.bodies) > maxRules {
			return nil, &LimitError{"rules", maxRules}
		}
		refs = append(refs, ref(first))
		for i, body := range part.rules.bodies {
			rules.add(part.rules.names[i], shift(body, first))
		}
	}
	rules.bodies[0] = join(refs)
	return newGrammar(ctx, rules)
}

// shift returns x with all references moved on by n.
func shift(x expr, n int) expr {
	all := func(list []expr) []expr {
		out := make([]expr, len(list))
		for i, part := range list {
			out[i] = shift(part, n)
		}
		return out
	}
	switch x := x.(type) {
	case sequence:
		return sequence(all(x))
	case choice:
		return choice(all(x))
	case repeat:
		return repeat{shift(x.x, n), x.min, x.max}
	case *network:
		moved := &network{final: x.final}
		for _, e := range x.edges {
			moved.edge(e.from, e.to, shift(e.label, n))
		}
		return moved
	case ref:
		return x + ref(n)
	}
	return x
}
