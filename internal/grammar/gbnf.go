package grammar

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"
)

// GBNF compiles a grammar in the notation of llama.cpp. Its rule root is what texts must
// match:
//
//	root  ::= "- " item ("\n- " item){0,9}   # literals, groups, repetitions
//	item  ::= word | [0-9]+ "."? [^\n"\u0000-\u001f]*
//	word  ::= [a-zA-Z]+
//
// A rule ends with its line, unless parentheses are open or the line ends with "|" or
// "::=". Escapes are \xNN, \uNNNN and \UNNNNNNNN, all of them code points, and \t \r \n
// \\ \" \[ \] \-. A dot is any character. Repetitions are * + ? {m} {m,} {m,n}. Terminals
// that name tokens (<...>) are not supported.
//
// Errors are *SyntaxError, *LeftRecursionError, ErrEmpty, *LimitError or the context's.
func GBNF(ctx context.Context, source string) (*Grammar, error) {
	if len(source) > maxSource {
		return nil, &LimitError{"bytes of source", maxSource}
	}
	p := &gbnfParser{source: source, rules: make(map[string]*gbnfRule)}
	p.rule("root", 0) // is rule 0, wherever it stands
	p.parse()
	if p.err != nil {
		return nil, p.err
	}
	return newGrammar(ctx, p.set)
}

type gbnfParser struct {
	source  string
	at      int
	nesting int
	err     error

	set   ruleSet
	rules map[string]*gbnfRule
	names []string // in the order of their first use
}

type gbnfRule struct {
	index   ref
	used    int // where it was first named
	defined bool
}

func (p *gbnfParser) fail(at int, format string, args ...any) {
	if p.err == nil {
		line := 1 + strings.Count(p.source[:at], "\n")
		column := at - strings.LastIndexByte(p.source[:at], '\n')
		p.err = &SyntaxError{Language: "GBNF", Line: line, Column: column, Reason: fmt.Sprintf(format, args...)}
	}
}

// peek returns the next byte, or 0 at the end. (A byte 0 is no part of the notation.)
func (p *gbnfParser) peek() byte {
	if p.at < len(p.source) && p.err == nil {
		return p.source[p.at]
	}
	return 0
}

// space skips blanks and comments, and line ends if these mean nothing here.
func (p *gbnfParser) space(lines bool) {
	for {
		switch c := p.peek(); {
		case c == ' ' || c == '\t':
			p.at++
		case c == '#':
			for c := p.peek(); c != '\n' && c != '\r' && p.at < len(p.source); c = p.peek() {
				p.at++
			}
		case lines && (c == '\n' || c == '\r'):
			p.at++
		default:
			return
		}
	}
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-'
}

func (p *gbnfParser) name() string {
	from := p.at
	for isNameByte(p.peek()) {
		p.at++
	}
	if p.at == from {
		p.fail(p.at, "a rule's name (letters, digits, dashes) should be here")
	}
	return p.source[from:p.at]
}

func (p *gbnfParser) rule(name string, used int) *gbnfRule {
	r := p.rules[name]
	if r == nil {
		r = &gbnfRule{index: p.set.add(name, nil), used: used}
		p.rules[name] = r
		p.names = append(p.names, name)
	}
	return r
}

func (p *gbnfParser) parse() {
	p.space(true)
	for p.err == nil && p.at < len(p.source) {
		p.definition()
	}
	for _, name := range p.names {
		if r := p.rules[name]; !r.defined {
			if name == "root" {
				p.fail(0, "there is no rule named root")
			}
			p.fail(r.used, "the rule %q is not defined", name)
		}
	}
}

func (p *gbnfParser) definition() {
	from := p.at
	r := p.rule(p.name(), from)
	if r.defined {
		p.fail(from, "the rule %q is defined a second time", p.set.names[r.index])
	}
	r.defined = true
	p.space(false)
	if !strings.HasPrefix(p.source[p.at:], "::=") {
		p.fail(p.at, `"::=" should be here`)
		return
	}
	p.at += len("::=")
	p.space(true)
	p.set.bodies[r.index] = p.alternatives(false)
	switch p.peek() {
	case '\n', '\r':
		p.space(true)
	default:
		if p.at < len(p.source) {
			p.fail(p.at, "the rule should go on or its line end here")
		}
	}
}

func (p *gbnfParser) alternatives(nested bool) expr {
	list := choice{p.sequence(nested)}
	for p.peek() == '|' {
		p.at++
		p.space(true)
		list = append(list, p.sequence(nested))
	}
	if len(list) == 1 {
		return list[0]
	}
	return list
}

func (p *gbnfParser) sequence(nested bool) expr {
	list := sequence{}
	for p.err == nil {
		from := p.at
		var x expr
		switch c := p.peek(); {
		case c == '"':
			x = p.literal()
		case c == '[':
			x = p.class()
		case c == '(':
			x = p.group()
		case c == '.':
			p.at++
			x = chars{set: anyRune}
		case c == '<' || c == '!':
			p.fail(from, "terminals that name tokens are not supported")
			if e, ok := p.err.(*SyntaxError); ok {
				e.Unsupported = true
			}
			return list
		case isNameByte(c):
			x = p.rule(p.name(), from).index
		case c == '*' || c == '+' || c == '?' || c == '{':
			p.repetition(list, nested)
			continue
		default:
			return list
		}
		list = append(list, x)
		p.space(nested)
	}
	return list
}

// repetition applies an operator to the last part of a sequence.
func (p *gbnfParser) repetition(list sequence, nested bool) {
	from := p.at
	var low, high int
	switch p.source[p.at] {
	case '*':
		low, high = 0, unbounded
	case '+':
		low, high = 1, unbounded
	case '?':
		low, high = 0, 1
	case '{':
		p.at++
		low, high = p.bounds(nested)
		if p.peek() != '}' {
			p.fail(p.at, `"}" should be here`)
		}
	}
	p.at++
	if len(list) == 0 {
		p.fail(from, "there is nothing to repeat")
		return
	}
	list[len(list)-1] = repeat{list[len(list)-1], low, high}
	p.space(nested)
}

func (p *gbnfParser) bounds(nested bool) (low, high int) {
	p.space(nested)
	from := p.at
	low = p.number()
	high = low
	p.space(nested)
	if p.peek() == ',' {
		p.at++
		p.space(nested)
		high = unbounded
		if c := p.peek(); '0' <= c && c <= '9' {
			high = p.number()
		}
		p.space(nested)
	}
	if high != unbounded && high < low {
		p.fail(from, "the bounds {%d,%d} are the wrong way round", low, high)
	}
	return low, high
}

func (p *gbnfParser) number() int {
	from, n := p.at, 0
	for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
		n = n*10 + int(c-'0')
		p.at++
		if n > maxRepeat {
			if p.err == nil {
				p.err = &LimitError{"repetitions", maxRepeat}
			}
			return 0
		}
	}
	if p.at == from {
		p.fail(from, "a number should be here")
	}
	return n
}

func (p *gbnfParser) group() expr {
	from := p.at
	if p.nesting++; p.nesting > maxNesting {
		if p.err == nil {
			p.err = &LimitError{"levels of parentheses", maxNesting}
		}
		return nil
	}
	p.at++
	p.space(true)
	x := p.alternatives(true)
	if p.peek() != ')' {
		p.fail(p.at, "the parenthesis of column %d should be closed here", from-strings.LastIndexByte(p.source[:from], '\n'))
	}
	p.at++
	p.nesting--
	return x
}

func (p *gbnfParser) literal() expr {
	from := p.at
	p.at++
	var text []byte
	for p.peek() != '"' {
		if p.at >= len(p.source) {
			p.fail(from, "the literal is not closed")
		}
		if p.err != nil {
			return nil
		}
		text = utf8.AppendRune(text, p.char())
	}
	p.at++
	return literal(text)
}

func (p *gbnfParser) class() expr {
	from := p.at
	p.at++
	negated := p.peek() == '^'
	if negated {
		p.at++
	}
	var ranges []runeRange
	for p.peek() != ']' {
		if p.at >= len(p.source) {
			p.fail(from, "the class of characters is not closed")
		}
		if p.err != nil {
			return nil
		}
		first := p.at
		r := runeRange{lo: p.char()}
		r.hi = r.lo
		if p.peek() == '-' && !strings.HasPrefix(p.source[p.at:], "-]") {
			p.at++
			if r.hi = p.char(); r.hi < r.lo {
				p.fail(first, "the range is the wrong way round")
			}
		}
		ranges = append(ranges, r)
	}
	p.at++
	if len(ranges) == 0 {
		p.fail(from, "the class of characters is empty")
	}
	set := newRuneSet(ranges...)
	if negated {
		set = set.negate()
	}
	return chars{set: set}
}

// char reads a character, which may be escaped, of a literal or a class.
func (p *gbnfParser) char() rune {
	if p.peek() != '\\' {
		r, n := utf8.DecodeRuneInString(p.source[p.at:])
		if r == utf8.RuneError && n <= 1 {
			p.fail(p.at, "this is not UTF-8")
			return 0
		}
		p.at += n
		return r
	}
	from := p.at
	p.at++
	c := p.peek()
	p.at++
	switch c {
	case 'x':
		return p.hex(from, 2)
	case 'u':
		return p.hex(from, 4)
	case 'U':
		return p.hex(from, 8)
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'n':
		return '\n'
	case '\\', '"', '[', ']', '-':
		return rune(c)
	}
	p.fail(from, `there is no such escape; \x \u \U \t \r \n \\ \" \[ \] \- are known`)
	return 0
}

func (p *gbnfParser) hex(from, digits int) rune {
	var r rune
	for range digits {
		d := strings.IndexByte("0123456789abcdef", p.peek()|0x20)
		if d < 0 || p.peek() == 0 || p.peek() < '0' {
			p.fail(from, "the escape should have %d hexadecimal digits", digits)
			return 0
		}
		r = r<<4 | rune(d)
		p.at++
	}
	if !utf8.ValidRune(r) {
		p.fail(from, "U+%X is not a character", uint32(r))
		return 0
	}
	return r
}
