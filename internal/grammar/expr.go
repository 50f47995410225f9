package grammar

// An expr is a part of a rule before it is compiled. The languages that this package
// reads are all brought to this form. Expressions are immutable once made and may be
// shared between rules.
type expr interface{}

type (
	// literal is its bytes.
	literal string

	// chars is one character of a set, in UTF-8; with json, as it is written within a
	// JSON string, escaped only where it must be.
	chars struct {
		set  runeSet
		json bool
	}

	// sequence is its parts in order; without parts it is the empty text.
	sequence []expr

	// choice is one of its parts; without parts nothing matches.
	choice []expr

	// repeat is between min and max times x; max is unbounded for no limit.
	repeat struct {
		x        expr
		min, max int
	}

	// ref is the rule with that index.
	ref int

	// network is what leads from its node 0 to one that is final. Edges may form
	// cycles, so it can be any finite automaton, with expressions as its letters.
	network struct {
		final []bool // for each node
		edges []networkEdge
	}

	networkEdge struct {
		from, to int
		label    expr // nil for the empty text
	}
)

const unbounded = -1

func (n *network) node(final bool) int {
	n.final = append(n.final, final)
	return len(n.final) - 1
}

func (n *network) edge(from, to int, label expr) {
	n.edges = append(n.edges, networkEdge{from, to, label})
}

func optional(x expr) expr { return repeat{x, 0, 1} }
func star(x expr) expr     { return repeat{x, 0, unbounded} }

// ruleSet is what front ends produce. Rule 0 is the root.
type ruleSet struct {
	names  []string // for messages; need not be unique
	bodies []expr
}

func (r *ruleSet) add(name string, body expr) ref {
	r.names = append(r.names, name)
	r.bodies = append(r.bodies, body)
	return ref(len(r.bodies) - 1)
}

// words is any one of the given texts, which must not be empty in number. It shares
// prefixes, so that many texts cost no more than their letters.
func words(texts []string) expr {
	n := &network{}
	n.node(false)
	type key struct {
		node int
		b    byte
	}
	next := make(map[key]int)
	for _, text := range texts {
		at := 0
		for i := 0; i < len(text); i++ {
			k := key{at, text[i]}
			to, ok := next[k]
			if !ok {
				to = n.node(false)
				next[k] = to
				n.edge(at, to, literal(text[i:i+1]))
			}
			at = to
		}
		n.final[at] = true
	}
	return n
}
