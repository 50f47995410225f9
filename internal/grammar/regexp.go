package grammar

import (
	"context"
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Regexp compiles a regular expression in Go's syntax (RE2's). The whole text must match
// it, as if it stood within ^(?: and )$. Word boundaries and (?m) are not supported.
//
// Errors are *SyntaxError, ErrEmpty, *LimitError or the context's.
func Regexp(ctx context.Context, pattern string) (*Grammar, error) {
	f, err := regexpAutomaton(pattern, false)
	if err != nil {
		return nil, err
	}
	var rules ruleSet
	rules.add("regular expression", f.expr(false))
	return newGrammar(ctx, rules)
}

const (
	maxPattern      = 1 << 14 // bytes of a regular expression
	maxInstructions = 1 << 15 // after its repetitions are written out
)

// regexpAutomaton makes an automaton of a regular expression. With search, it matches
// texts in which the expression matches somewhere.
func regexpAutomaton(pattern string, search bool) (*fsa, error) {
	if len(pattern) > maxPattern {
		return nil, &LimitError{"bytes of a regular expression", maxPattern}
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, regexpError(pattern, err)
	}
	size := 0
	if err := checkRegexp(pattern, re, &size); err != nil {
		return nil, err
	}
	if size > maxInstructions {
		return nil, &LimitError{"instructions of a regular expression", maxInstructions}
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, regexpError(pattern, err)
	}
	b := &regexpBuilder{prog: prog, search: search, nodes: make(map[regexpKey]int)}
	return b.build()
}

func regexpError(pattern string, err error) error {
	e := &SyntaxError{Language: "regular expression", Line: 1, Column: 1, Reason: err.Error()}
	var parse *syntax.Error
	if errors.As(err, &parse) {
		if at := strings.Index(pattern, parse.Expr); at > 0 {
			e.Column = at + 1
		}
		e.Reason = fmt.Sprintf("%s: %q", parse.Code, excerpt(parse.Expr))
		switch parse.Code {
		case syntax.ErrLarge, syntax.ErrNestingDepth, syntax.ErrInvalidRepeatSize:
			return &LimitError{"instructions of a regular expression", maxInstructions}
		case syntax.ErrInvalidPerlOp:
			e.Unsupported = true
		case syntax.ErrInvalidNamedCapture:
			e.Unsupported = strings.HasPrefix(parse.Expr, "(?<=") || strings.HasPrefix(parse.Expr, "(?<!")
		}
	}
	return e
}

// excerpt is as much of a text as an error should repeat.
func excerpt(text string) string {
	if len(text) > 80 {
		return strings.ToValidUTF8(text[:80], "") + "..."
	}
	return text
}

// checkRegexp looks for what is not supported and adds up how many instructions the
// expression will have, before these are made.
func checkRegexp(pattern string, re *syntax.Regexp, size *int) error {
	own := 0
	for _, sub := range re.Sub {
		if err := checkRegexp(pattern, sub, &own); err != nil {
			return err
		}
	}
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return &SyntaxError{
			Language: "regular expression", Line: 1, Column: 1, Unsupported: true,
			Reason: fmt.Sprintf("%q has a word or line boundary, which is not supported", excerpt(pattern)),
		}
	case syntax.OpLiteral:
		own += len(re.Rune)
	case syntax.OpRepeat:
		own *= max(re.Min+1, re.Max, 1)
	}
	*size = min(*size+own+2, 2*maxInstructions)
	return nil
}

// regexpBuilder makes the nodes of an automaton out of the places in a program. Nodes at
// the beginning of the text, where ^ holds, are told from others.
type regexpBuilder struct {
	prog   *syntax.Prog
	search bool
	f      fsa
	nodes  map[regexpKey]int
	todo   []regexpKey
	steps  int
	suffix int // with search: the node after a match, or 0 if it is not yet there
}

type regexpKey struct {
	pc      uint32
	atStart bool
	looking bool // with search: the match need not begin here
}

func (b *regexpBuilder) node(k regexpKey) int {
	n, ok := b.nodes[k]
	if !ok {
		n = b.f.node(false)
		b.nodes[k] = n
		b.todo = append(b.todo, k)
	}
	return n
}

func (b *regexpBuilder) build() (*fsa, error) {
	b.node(regexpKey{uint32(b.prog.Start), true, b.search})
	for len(b.todo) > 0 {
		if len(b.f.final) > maxAutomaton || b.steps > maxNodes {
			return nil, &LimitError{"states of a regular expression", maxAutomaton}
		}
		k := b.todo[len(b.todo)-1]
		b.todo = b.todo[:len(b.todo)-1]
		b.expand(k)
	}
	b.f.work = b.steps / 16
	return &b.f, nil
}

// expand adds the edges out of a node: it walks the instructions that consume nothing.
func (b *regexpBuilder) expand(k regexpKey) {
	n := b.nodes[k]
	if k.looking {
		b.f.edge(n, b.node(regexpKey{uint32(b.prog.Start), false, true}), anyRune)
	}
	type place struct {
		pc    uint32
		ended bool // $ was met
	}
	seen := map[place]bool{}
	todo := []place{{k.pc, false}}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		b.steps++
		switch inst := &b.prog.Inst[at.pc]; inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			todo = append(todo, place{inst.Out, at.ended}, place{inst.Arg, at.ended})
		case syntax.InstCapture, syntax.InstNop:
			todo = append(todo, place{inst.Out, at.ended})
		case syntax.InstEmptyWidth:
			switch syntax.EmptyOp(inst.Arg) {
			case syntax.EmptyBeginText:
				if k.atStart {
					todo = append(todo, place{inst.Out, at.ended})
				}
			case syntax.EmptyEndText:
				todo = append(todo, place{inst.Out, true})
			}
		case syntax.InstMatch:
			b.f.final[n] = true
			if b.search && !at.ended {
				b.f.edge(n, b.rest(), anyRune)
			}
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if !at.ended {
				b.f.edge(n, b.node(regexpKey{pc: inst.Out}), instructionSet(inst))
			}
		}
	}
}

// rest is the node for what may follow a match.
func (b *regexpBuilder) rest() int {
	if b.suffix == 0 {
		b.suffix = b.f.node(true)
		b.f.edge(b.suffix, b.suffix, anyRune)
	}
	return b.suffix
}

func instructionSet(inst *syntax.Inst) runeSet {
	switch {
	case inst.Op == syntax.InstRuneAny:
		return anyRune
	case inst.Op == syntax.InstRuneAnyNotNL:
		return oneRune('\n').negate()
	case len(inst.Rune) == 1:
		ranges := []runeRange{{inst.Rune[0], inst.Rune[0]}}
		if syntax.Flags(inst.Arg)&syntax.FoldCase != 0 {
			for r := unicode.SimpleFold(inst.Rune[0]); r != inst.Rune[0]; r = unicode.SimpleFold(r) {
				ranges = append(ranges, runeRange{r, r})
			}
		}
		return newRuneSet(ranges...)
	}
	var ranges []runeRange
	for i := 0; i+1 < len(inst.Rune); i += 2 {
		ranges = append(ranges, runeRange{inst.Rune[i], inst.Rune[i+1]})
	}
	return newRuneSet(ranges...)
}

// ecmaSpace is \s of ECMA-262, whose expressions JSON schemas have.
var ecmaSpace = newRuneSet(
	runeRange{'\t', '\r'}, runeRange{' ', ' '}, runeRange{0xA0, 0xA0}, runeRange{0x1680, 0x1680},
	runeRange{0x2000, 0x200A}, runeRange{0x2028, 0x2029}, runeRange{0x202F, 0x202F},
	runeRange{0x205F, 0x205F}, runeRange{0x3000, 0x3000}, runeRange{0xFEFF, 0xFEFF},
)

var ecmaDot = newRuneSet(runeRange{'\n', '\n'}, runeRange{'\r', '\r'}, runeRange{0x2028, 0x2029}).negate()

// fromECMA writes an expression of ECMA-262 (with its u flag) in Go's syntax, where the
// two differ.
func fromECMA(pattern string) (string, error) {
	var out strings.Builder
	unsupported := func(at int, what string) error {
		return &SyntaxError{Language: "regular expression", Line: 1, Column: at + 1, Reason: what, Unsupported: true}
	}
	inClass := false
	for i := 0; i < len(pattern); {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			text, n, err := ecmaEscape(pattern[i:], inClass)
			if err != "" {
				return "", unsupported(i, err)
			}
			out.WriteString(text)
			i += n
			continue
		case c == '[' && !inClass:
			inClass = true
		case c == '[':
			out.WriteByte('\\') // Go has classes with names within classes
		case c == ']':
			inClass = false
		case c == '.' && !inClass:
			out.WriteString("[" + goRanges(ecmaDot) + "]")
			i++
			continue
		case c == '(' && !inClass && strings.HasPrefix(pattern[i:], "(?"):
			rest := pattern[i+2:]
			named := strings.HasPrefix(rest, "<") && !strings.HasPrefix(rest, "<=") && !strings.HasPrefix(rest, "<!")
			if !strings.HasPrefix(rest, ":") && !named {
				return "", unsupported(i, "groups that look ahead or back are not supported")
			}
		}
		out.WriteByte(c)
		i++
	}
	return out.String(), nil
}

// ecmaEscape writes the escape that s begins with in Go's syntax, and says how long it
// was.
func ecmaEscape(s string, inClass bool) (text string, n int, problem string) {
	class := func(set runeSet) (string, int, string) {
		if inClass {
			return goRanges(set), 2, ""
		}
		return "[" + goRanges(set) + "]", 2, ""
	}
	switch c := s[1]; {
	case c == 's':
		return class(ecmaSpace)
	case c == 'S':
		return class(ecmaSpace.negate())
	case c == 'u':
		r, n := ecmaUnicode(s)
		if n == 0 {
			return "", 0, `\u should have four digits, or digits in braces`
		}
		return fmt.Sprintf(`\x{%x}`, r), n, ""
	case c == '0':
		return `\x00`, 2, ""
	case strings.IndexByte("dDwWtnrvfxpP", c) >= 0:
		return s[:2], 2, ""
	case c == 'b' || c == 'B':
		return "", 0, "word boundaries are not supported"
	case c < utf8.RuneSelf && !('a' <= c|0x20 && c|0x20 <= 'z') && !('0' <= c && c <= '9'):
		return s[:2], 2, ""
	}
	return "", 0, fmt.Sprintf("the escape %q is not supported", s[:2])
}

// ecmaUnicode reads \uNNNN, also as a pair of surrogates, or \u{N...}.
func ecmaUnicode(s string) (rune, int) {
	hex := func(s string) rune {
		var r rune
		for i := range len(s) {
			d := strings.IndexByte("0123456789abcdef", s[i]|0x20)
			if d < 0 || s[i] < '0' || len(s) > 6 {
				return -1
			}
			r = r<<4 | rune(d)
		}
		return r
	}
	if strings.HasPrefix(s, `\u{`) {
		end := strings.IndexByte(s, '}')
		if end < 4 || hex(s[3:end]) < 0 {
			return 0, 0
		}
		return hex(s[3:end]), end + 1
	}
	if len(s) < 6 || hex(s[2:6]) < 0 {
		return 0, 0
	}
	r := hex(s[2:6])
	if utf16.IsSurrogate(r) && len(s) >= 12 && s[6:8] == `\u` {
		if pair := utf16.DecodeRune(r, hex(s[8:12])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

// goRanges writes a set as it stands within the brackets of a class.
func goRanges(set runeSet) string {
	var out strings.Builder
	for _, r := range set {
		fmt.Fprintf(&out, `\x{%x}-\x{%x}`, r.lo, r.hi)
	}
	return out.String()
}
