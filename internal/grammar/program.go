package grammar

// A program is a compiled grammar: a pushdown automaton over bytes. It never changes.
//
// Each rule is a nondeterministic finite automaton whose edges are labelled with bytes
// or with a call of another rule. Edges without a label are gone: where one of them
// could be followed, an entry lists all that is reached.
type program struct {
	class   [256]uint8 // bytes that no edge tells apart have the same class
	classes int

	nodes   []span // of edges, for each node with byte edges
	edges   []byteEdge
	entries []entry
	members []int32 // nodes, which entries list
	calls   []callEdge
	start   []int32 // the entry of each rule, -1 if it has none; callers first, see sortRules
	root    int32   // the rule that the grammar begins with
	slack   int32   // see setSlack
}

// span is a part of a slice.
type span struct{ lo, hi int32 }

// byteEdge leads to an entry with any byte of the classes lo to hi.
type byteEdge struct {
	lo, hi uint8
	to     int32
}

// callEdge goes through a rule and leads to the entry ret.
type callEdge struct {
	rule, ret int32
}

// entry is what can be reached without consuming anything.
type entry struct {
	members span
	calls   span
	accepts bool  // the end of the rule is reached
	need    int32 // how many more frames it takes, at least, to get to the end of the rule
}

// leads reports whether anything can follow within the rule.
func (e *entry) leads() bool { return e.members.lo < e.members.hi || e.calls.lo < e.calls.hi }

// setSlack sets slack such that a step from a state with frames of depth d never looks at
// anything deeper than d+slack: it enters as many rules as call each other first thing,
// and asks for what it takes to get to the end.
func (p *program) setSlack() {
	need := int32(0)
	for i := range p.entries {
		need = max(need, p.entries[i].need)
	}
	chain := make([]int32, len(p.start))
	longest := int32(0)
	for rule := len(p.start) - 1; rule >= 0; rule-- { // callees first
		if p.start[rule] < 0 {
			continue
		}
		calls := p.entries[p.start[rule]].calls
		for _, call := range p.calls[calls.lo:calls.hi] {
			chain[rule] = max(chain[rule], chain[call.rule]+1)
		}
		longest = max(longest, chain[rule])
	}
	p.slack = need + longest + 4
}

// The limits on what a grammar may cost. Grammars come with requests; the limits are
// such that no grammar takes more than some ten megabytes and a fraction of a second
// to compile, and that those which people write stay far below.
const (
	maxSource  = 1 << 20 // bytes of a grammar, schema or expression
	maxNesting = 128     // levels of parentheses, of schemas within schemas
	maxRules   = 1 << 14
	maxNodes   = 1 << 18
	maxMembers = 1 << 21 // of all entries together
	maxRepeat  = 1 << 16 // the bounds of a repetition
	maxCompile = 1 << 24 // steps of the compiler, a second or less

	// maxDepth is how deep calls may nest while a text is matched. Texts that need
	// more do not match. (Calls at the end of a rule do not nest.)
	maxDepth = 1000
)
