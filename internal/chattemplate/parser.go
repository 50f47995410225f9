package chattemplate

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Bounds on the source. The largest templates in use have 40 KB and nest a
// dozen levels; maxNodes counts levels of the grammar too, of which they take 20000.
const (
	maxSource      = 1 << 20
	maxNodes       = 1 << 17
	maxSyntaxDepth = 150
)

// parser is a recursive-descent parser over the lexer, one token ahead. The
// grammar and its precedences are jinja's:
// or < and < not < comparison < + - < ~ < * / // % < ** < unary < postfix, filters, tests.
type parser struct {
	lex         *lexer
	tok         token
	nodes       int
	depth       int
	conditional int // inside an if: unknown filters there fail when reached
	loops       int
	macros      []*macroDef
}

func parse(src string) ([]stmt, error) {
	p := &parser{lex: newLexer(src)}
	if err := p.advance(); err != nil {
		return nil, err
	}
	body, err := p.statements()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokenEOF {
		return nil, p.unexpected("")
	}
	return body, nil
}

func (p *parser) advance() (err error) {
	p.tok, err = p.lex.next()
	return err
}

func (p *parser) failf(format string, args ...any) error {
	return p.lex.errorAt(p.tok.pos, fmt.Sprintf(format, args...))
}

func (p *parser) unexpected(wanted string) error {
	if wanted != "" {
		wanted = ", expected " + wanted
	}
	return p.failf("unexpected %s%s", p.tok.describe(), wanted)
}

func (p *parser) isOp(op string) bool     { return p.tok.kind == tokenOp && p.tok.text == op }
func (p *parser) isName(name string) bool { return p.tok.kind == tokenName && p.tok.text == name }

// skipOp and skipName take the token if it is the given one.
func (p *parser) skipOp(op string) (bool, error) {
	if !p.isOp(op) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) skipName(name string) (bool, error) {
	if !p.isName(name) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) expectOp(op string) error {
	if !p.isOp(op) {
		return p.unexpected("'" + op + "'")
	}
	return p.advance()
}

func (p *parser) expectName() (string, error) {
	if p.tok.kind != tokenName {
		return "", p.unexpected("a name")
	}
	name := p.tok.text
	return name, p.advance()
}

func (p *parser) expectKind(kind tokenKind) error {
	if p.tok.kind != kind {
		return p.unexpected(token{kind: kind}.describe())
	}
	return p.advance()
}

// node counts one node of the tree.
func (p *parser) node(pos int) (node, error) {
	if p.nodes++; p.nodes > maxNodes {
		return node{}, p.limit("syntax nodes", maxNodes)
	}
	return node{pos}, nil
}

func (p *parser) enter() error {
	if p.depth++; p.depth > maxSyntaxDepth {
		return p.limit("levels of nested syntax", maxSyntaxDepth)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

func (p *parser) limit(what string, limit int64) error {
	cause := &LimitError{What: what, Limit: limit}
	err := p.failf("%v", cause)
	var se *SyntaxError
	if errors.As(err, &se) {
		se.Err = cause
	}
	return err
}

// statements parses up to a block tag whose name is in ends, leaving that name
// as the current token, or to the end of the source.
func (p *parser) statements(ends ...string) ([]stmt, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var body []stmt
	for {
		at, err := p.node(p.tok.pos)
		if err != nil {
			return nil, err
		}
		switch p.tok.kind {
		case tokenEOF:
			if len(ends) > 0 {
				return nil, p.failf("the template ends where {%% %s %%} is due", strings.Join(ends, " %} or {% "))
			}
			return body, nil
		case tokenData:
			body = append(body, &dataStmt{at, literal(p.tok.text)})
			if err := p.advance(); err != nil {
				return nil, err
			}
			continue
		}
		print := p.tok.kind == tokenPrintBegin
		if err := p.advance(); err != nil {
			return nil, err
		}
		if !print {
			for _, end := range ends {
				if p.isName(end) {
					return body, nil
				}
			}
		}
		s, err := p.tag(at, print)
		if err != nil {
			return nil, err
		}
		body = append(body, s)
	}
}

// tag parses one print or block tag, its end included.
func (p *parser) tag(at node, print bool) (stmt, error) {
	if print {
		v, err := p.tuple(tupleRules{})
		if err != nil {
			return nil, err
		}
		return &printStmt{at, v}, p.expectKind(tokenPrintEnd)
	}
	s, err := p.statement(at)
	if err != nil {
		return nil, err
	}
	return s, p.expectKind(tokenBlockEnd)
}

func (p *parser) statement(at node) (stmt, error) {
	name := p.tok.text
	if p.tok.kind != tokenName {
		return nil, p.unexpected("the name of a tag")
	}
	parse, ok := map[string]func(*parser, node) (stmt, error){
		"if": (*parser).ifTag, "for": (*parser).forTag, "set": (*parser).setTag, "with": (*parser).withTag,
		"macro": (*parser).macroTag, "call": (*parser).callTag, "filter": (*parser).filterTag,
		"block": (*parser).blockTag, "generation": (*parser).generationTag,
		"break": (*parser).loopControl, "continue": (*parser).loopControl,
	}[name]
	if !ok {
		switch name {
		case "include", "extends", "import", "from":
			return nil, p.failf("{%% %s %%} is not supported: a chat template stands alone", name)
		}
		return nil, p.failf("unknown tag '%s'", clip(name))
	}
	if name != "break" && name != "continue" {
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	return parse(p, at)
}

// body parses the statements between the end of a tag and its closing tag's
// name, which is taken as well.
func (p *parser) body(end string) ([]stmt, error) {
	if err := p.expectKind(tokenBlockEnd); err != nil {
		return nil, err
	}
	body, err := p.statements(end)
	if err != nil {
		return nil, err
	}
	return body, p.advance()
}

func (p *parser) ifTag(at node) (stmt, error) {
	s := &ifStmt{node: at}
	p.conditional++
	defer func() { p.conditional-- }()
	for {
		p.conditional-- // the test itself is always evaluated
		test, err := p.tuple(tupleRules{noCond: true})
		p.conditional++
		if err != nil {
			return nil, err
		}
		if err := p.expectKind(tokenBlockEnd); err != nil {
			return nil, err
		}
		body, err := p.statements("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.tests, s.bodies = append(s.tests, test), append(s.bodies, body)
		word := p.tok.text
		if err := p.advance(); err != nil {
			return nil, err
		}
		switch word {
		case "endif":
			return s, nil
		case "else":
			body, err := p.body("endif")
			s.bodies = append(s.bodies, body)
			return s, err
		}
	}
}

func (p *parser) forTag(at node) (stmt, error) {
	s := &forStmt{node: at}
	var err error
	if s.target, err = p.target(false); err != nil {
		return nil, err
	}
	if !p.isName("in") {
		return nil, p.unexpected("'in'")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if s.iter, err = p.tuple(tupleRules{noCond: true, end: "recursive"}); err != nil {
		return nil, err
	}
	if ok, err := p.skipName("if"); err != nil {
		return nil, err
	} else if ok {
		if s.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if s.recursive, err = p.skipName("recursive"); err != nil {
		return nil, err
	}
	if err := p.expectKind(tokenBlockEnd); err != nil {
		return nil, err
	}
	p.loops++
	s.body, err = p.statements("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	otherwise := p.isName("else")
	if err := p.advance(); err != nil {
		return nil, err
	}
	if otherwise {
		s.otherwise, err = p.body("endfor")
	}
	return s, err
}

func (p *parser) loopControl(at node) (stmt, error) {
	if p.loops == 0 {
		return nil, p.failf("'%s' outside of a loop", p.tok.text)
	}
	if p.tok.text == "break" {
		return &breakStmt{at}, p.advance()
	}
	return &continueStmt{at}, p.advance()
}

func (p *parser) setTag(at node) (stmt, error) {
	to, err := p.target(true)
	if err != nil {
		return nil, err
	}
	if ok, err := p.skipOp("="); err != nil {
		return nil, err
	} else if ok {
		v, err := p.tuple(tupleRules{})
		return &setStmt{at, to, v}, err
	}
	s := &setBlockStmt{node: at, target: to}
	if p.isOp("|") {
		if s.filter, err = p.filters(nil); err != nil {
			return nil, err
		}
	}
	s.body, err = p.body("endset")
	return s, err
}

func (p *parser) withTag(at node) (stmt, error) {
	s := &withStmt{node: at}
	for p.tok.kind != tokenBlockEnd {
		if len(s.targets) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		to, err := p.target(false)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, to), append(s.values, v)
	}
	var err error
	s.body, err = p.body("endwith")
	return s, err
}

func (p *parser) macroTag(at node) (stmt, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	def := &macroDef{name: name}
	if err := p.params(def); err != nil {
		return nil, err
	}
	err = p.macroBody(def, "endmacro")
	return &macroStmt{at, name, def}, err
}

// params parses (a, b, c=1).
func (p *parser) params(def *macroDef) error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	for !p.isOp(")") {
		if len(def.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
		if _, err := p.node(p.tok.pos); err != nil {
			return err
		}
		name, err := p.expectName()
		if err != nil {
			return err
		}
		def.params = append(def.params, name)
		hasDefault, err := p.skipOp("=")
		switch {
		case err != nil:
			return err
		case hasDefault:
			v, err := p.expression()
			if err != nil {
				return err
			}
			def.defaults = append(def.defaults, v)
		case len(def.defaults) > 0:
			return p.failf("parameter '%s' without a default follows one with a default", clip(name))
		}
	}
	return p.advance()
}

func (p *parser) macroBody(def *macroDef, end string) error {
	p.macros = append(p.macros, def)
	loops := p.loops
	p.loops = 0
	var err error
	def.body, err = p.body(end)
	p.loops = loops
	p.macros = p.macros[:len(p.macros)-1]
	return err
}

func (p *parser) callTag(at node) (stmt, error) {
	def := &macroDef{name: "caller"}
	if p.isOp("(") {
		if err := p.params(def); err != nil {
			return nil, err
		}
	}
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := e.(*callExpr)
	if !ok {
		return nil, p.failf("a call block needs a call")
	}
	err = p.macroBody(def, "endcall")
	return &callStmt{at, call, def}, err
}

func (p *parser) filterTag(at node) (stmt, error) {
	f, err := p.filter(nil)
	if err != nil {
		return nil, err
	}
	if f, err = p.filters(f); err != nil {
		return nil, err
	}
	body, err := p.body("endfilter")
	return &filterStmt{at, f, body}, err
}

func (p *parser) blockTag(at node) (stmt, error) {
	if _, err := p.expectName(); err != nil {
		return nil, err
	}
	body, err := p.body("endblock")
	if err != nil {
		return nil, err
	}
	if p.tok.kind == tokenName {
		err = p.advance()
	}
	return &scopeStmt{at, body}, err
}

func (p *parser) generationTag(at node) (stmt, error) {
	body, err := p.body("endgeneration")
	return &scopeStmt{at, body}, err
}

// target parses what may be assigned to: names, tuples of them and, in set,
// attributes of a namespace.
func (p *parser) target(attrs bool) (target, error) {
	first, err := p.targetItem(attrs)
	if err != nil || !p.isOp(",") {
		return first, err
	}
	return p.targetTuple(first, attrs)
}

func (p *parser) targetTuple(first target, attrs bool) (target, error) {
	t := target{pos: first.pos, items: []target{first}, tuple: true}
	for p.isOp(",") {
		if err := p.advance(); err != nil {
			return t, err
		}
		if p.tok.kind != tokenName && !p.isOp("(") && !p.isOp("[") || p.isName("in") {
			break
		}
		item, err := p.targetItem(attrs)
		if err != nil {
			return t, err
		}
		t.items = append(t.items, item)
	}
	return t, nil
}

func (p *parser) targetItem(attrs bool) (target, error) {
	if _, err := p.node(p.tok.pos); err != nil {
		return target{}, err
	}
	t := target{pos: p.tok.pos}
	if p.isOp("(") {
		return p.targetParens(attrs)
	}
	switch p.tok.text {
	case "true", "false", "none", "True", "False", "None":
		return t, p.failf("cannot assign to '%s'", p.tok.text)
	}
	var err error
	if t.name, err = p.expectName(); err != nil || !attrs || !p.isOp(".") {
		return t, err
	}
	if err := p.advance(); err != nil {
		return t, err
	}
	t.attr, err = p.expectName()
	return t, err
}

func (p *parser) targetParens(attrs bool) (target, error) {
	if err := p.enter(); err != nil {
		return target{}, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return target{}, err
	}
	t, err := p.target(attrs)
	if err != nil {
		return t, err
	}
	return t, p.expectOp(")")
}

// tupleRules vary where an expression list ends.
type tupleRules struct {
	noCond bool   // no inline if
	parens bool   // may be empty
	end    string // a name that ends it
}

// tuple parses a, b, c into a tuple, or a alone into a.
func (p *parser) tuple(rules tupleRules) (expr, error) {
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		if p.tok.kind == tokenBlockEnd || p.tok.kind == tokenPrintEnd || p.isOp(")") || rules.end != "" && p.isName(rules.end) {
			break
		}
		parse := p.expression
		if rules.noCond {
			parse = p.or
		}
		e, err := parse()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.isOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0], nil
		}
		if !rules.parens {
			return nil, p.unexpected("an expression")
		}
	}
	return &tupleExpr{at, items}, nil
}

// expression parses the inline if and all below it.
func (p *parser) expression() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	yes, err := p.or()
	if err != nil {
		return nil, err
	}
	for p.isName("if") {
		e := &condExpr{node: at, yes: yes}
		if err := p.advance(); err != nil {
			return nil, err
		}
		p.conditional++
		if e.test, err = p.or(); err == nil && p.isName("else") {
			if err = p.advance(); err == nil {
				e.no, err = p.expression()
			}
		}
		p.conditional--
		if err != nil {
			return nil, err
		}
		yes = e
	}
	return yes, nil
}

// leftAssoc parses next (op next)* for operators that match tells.
func (p *parser) leftAssoc(next func() (expr, error), match func() bool, join func(node, string, expr, expr) expr) (expr, error) {
	left, err := next()
	if err != nil {
		return nil, err
	}
	for match() {
		at, err := p.node(p.tok.pos)
		if err != nil {
			return nil, err
		}
		op := p.tok.text
		if err := p.advance(); err != nil {
			return nil, err
		}
		right, err := next()
		if err != nil {
			return nil, err
		}
		left = join(at, op, left, right)
	}
	return left, nil
}

func joinLogic(at node, op string, a, b expr) expr  { return &logicExpr{at, op == "or", a, b} }
func joinBinary(at node, op string, a, b expr) expr { return &binaryExpr{at, op, a, b} }

func (p *parser) or() (expr, error) {
	return p.leftAssoc(p.and, func() bool { return p.isName("or") }, joinLogic)
}

func (p *parser) and() (expr, error) {
	return p.leftAssoc(p.not, func() bool { return p.isName("and") }, joinLogic)
}

func (p *parser) not() (expr, error) {
	if !p.isName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	e, err := p.not()
	return &unaryExpr{at, "not", e}, err
}

// compareOp takes a comparison operator, "" where there is none.
func (p *parser) compareOp() (string, error) {
	switch p.tok.kind {
	case tokenOp:
		switch op := p.tok.text; op {
		case "==", "!=", "<", "<=", ">", ">=":
			return op, p.advance()
		}
	case tokenName:
		if p.tok.text == "in" {
			return "in", p.advance()
		}
		if p.tok.text == "not" {
			if err := p.advance(); err != nil {
				return "", err
			}
			if !p.isName("in") {
				return "", p.unexpected("'in'")
			}
			return "not in", p.advance()
		}
	}
	return "", nil
}

func (p *parser) compare() (expr, error) {
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	e := &compareExpr{node: at, first: first}
	for {
		op, err := p.compareOp()
		if err != nil {
			return nil, err
		}
		if op == "" {
			break
		}
		next, err := p.sum()
		if err != nil {
			return nil, err
		}
		e.ops, e.rest = append(e.ops, op), append(e.rest, next)
	}
	if len(e.ops) == 0 {
		return first, nil
	}
	return e, nil
}

func (p *parser) sum() (expr, error) {
	return p.leftAssoc(p.concat, func() bool { return p.isOp("+") || p.isOp("-") }, joinBinary)
}

func (p *parser) concat() (expr, error) {
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	first, err := p.product()
	if err != nil || !p.isOp("~") {
		return first, err
	}
	e := &concatExpr{at, []expr{first}}
	for p.isOp("~") {
		if err := p.advance(); err != nil {
			return nil, err
		}
		next, err := p.product()
		if err != nil {
			return nil, err
		}
		e.parts = append(e.parts, next)
	}
	return e, nil
}

func (p *parser) product() (expr, error) {
	isProduct := func() bool { return p.isOp("*") || p.isOp("/") || p.isOp("//") || p.isOp("%") }
	return p.leftAssoc(p.power, isProduct, joinBinary)
}

// power associates to the left, unlike Python's: jinja does so.
func (p *parser) power() (expr, error) {
	unary := func() (expr, error) { return p.unary(true) }
	return p.leftAssoc(unary, func() bool { return p.isOp("**") }, joinBinary)
}

func (p *parser) unary(withFilters bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	var e expr
	if p.isOp("-") || p.isOp("+") {
		op := p.tok.text
		if err := p.advance(); err != nil {
			return nil, err
		}
		operand, err := p.unary(false)
		if err != nil {
			return nil, err
		}
		e = &unaryExpr{at, op, operand}
	} else if e, err = p.primary(); err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !withFilters {
		return e, err
	}
	return p.filters(e)
}

func (p *parser) primary() (expr, error) {
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	switch p.tok.kind {
	case tokenName:
		return p.nameOrConst(at)
	case tokenString:
		return p.stringLiteral(at)
	case tokenInt, tokenFloat:
		return p.numberLiteral(at)
	}
	switch {
	case p.isOp("("):
		if err := p.advance(); err != nil {
			return nil, err
		}
		e, err := p.tuple(tupleRules{parens: true})
		if err != nil {
			return nil, err
		}
		return e, p.expectOp(")")
	case p.isOp("["):
		items, err := p.items("]", func() error { return nil })
		return &listExpr{at, items}, err
	case p.isOp("{"):
		return p.dictLiteral(at)
	}
	return nil, p.unexpected("an expression")
}

func (p *parser) nameOrConst(at node) (expr, error) {
	name := p.tok.text
	if err := p.advance(); err != nil {
		return nil, err
	}
	switch name {
	case "true", "True":
		return &constExpr{at, true}, nil
	case "false", "False":
		return &constExpr{at, false}, nil
	case "none", "None":
		return &constExpr{at, nil}, nil
	}
	for _, m := range p.macros {
		switch name {
		case "caller":
			m.usesCaller = true
		case "varargs":
			m.usesArgs = true
		case "kwargs":
			m.usesKwargs = true
		}
	}
	return &nameExpr{at, name}, nil
}

func (p *parser) stringLiteral(at node) (expr, error) {
	var parts []string
	for p.tok.kind == tokenString {
		parts = append(parts, p.tok.text)
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	return &constExpr{at, literal(strings.Join(parts, ""))}, nil
}

func (p *parser) numberLiteral(at node) (expr, error) {
	digits := strings.ReplaceAll(p.tok.text, "_", "")
	if p.tok.kind == tokenFloat {
		f, err := strconv.ParseFloat(digits, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, p.failf("bad number %s", clip(digits))
		}
		return &constExpr{at, f}, p.advance()
	}
	if len(digits) > maxIntDigits {
		return nil, p.limit("digits in an integer", maxIntDigits)
	}
	b, ok := new(big.Int).SetString(digits, 0)
	if trimmed := strings.TrimLeft(digits, "0"); digits[0] == '0' && (trimmed == "" || isDigitAt(trimmed, 0)) {
		b, ok = new(big.Int).SetString(digits, 10) // not Go's octal
	}
	if !ok {
		return nil, p.failf("bad number %s", clip(digits))
	}
	return &constExpr{at, normalInt(b)}, p.advance()
}

// items parses comma-separated expressions up to close, which is taken.
func (p *parser) items(closing string, afterKey func() error) ([]expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	var items []expr
	for !p.isOp(closing) {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.isOp(closing) {
				break
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if err := afterKey(); err != nil {
			return nil, err
		}
	}
	return items, p.advance()
}

func (p *parser) dictLiteral(at node) (expr, error) {
	d := &dictExpr{node: at}
	var err error
	d.keys, err = p.items("}", func() error {
		if err := p.expectOp(":"); err != nil {
			return err
		}
		v, err := p.expression()
		d.values = append(d.values, v)
		return err
	})
	return d, err
}

// postfix parses .name, .0, [index], [a:b:c] and (args).
func (p *parser) postfix(e expr) (expr, error) {
	for {
		at, err := p.node(p.tok.pos)
		if err != nil {
			return nil, err
		}
		switch {
		case p.isOp("."):
			e, err = p.attribute(at, e)
		case p.isOp("["):
			e, err = p.subscript(at, e)
		case p.isOp("("):
			e, err = p.call(at, e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) attribute(at node, e expr) (expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind == tokenName {
		return &attrExpr{at, e, p.tok.text}, p.advance()
	}
	if p.tok.kind == tokenInt {
		index, err := p.numberLiteral(at)
		return &itemExpr{at, e, index}, err
	}
	return nil, p.unexpected("a name or a number")
}

func (p *parser) subscript(at node, e expr) (expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	var items []expr
	for !p.isOp("]") {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		if len(items) == 0 {
			s, err := p.slice(at, e)
			if err != nil {
				return nil, err
			}
			if s, ok := s.(*sliceExpr); ok && s.object == e {
				return s, p.expectOp("]")
			}
			items = append(items, s)
			continue
		}
		item, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	switch len(items) {
	case 0:
		return nil, p.failf("an index is missing between '[' and ']'")
	case 1:
		return &itemExpr{at, e, items[0]}, nil
	}
	return &itemExpr{at, e, &tupleExpr{at, items}}, nil
}

// slice parses a:b:c over object, or an index expression alone.
func (p *parser) slice(at node, object expr) (expr, error) {
	s := &sliceExpr{node: at, object: object}
	if !p.isOp(":") {
		first, err := p.expression()
		if err != nil || !p.isOp(":") {
			return first, err
		}
		s.start = first
	}
	for _, bound := range []*expr{&s.stop, &s.step} {
		if !p.isOp(":") {
			break
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.isOp(":") || p.isOp("]") {
			continue
		}
		var err error
		if *bound, err = p.expression(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (p *parser) call(at node, callee expr) (expr, error) {
	args, err := p.callArgs()
	return &callExpr{at, callee, args}, err
}

func (p *parser) callArgs() (callArgs, error) {
	var a callArgs
	if err := p.expectOp("("); err != nil {
		return a, err
	}
	for first := true; !p.isOp(")"); first = false {
		if !first {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.isOp(")") {
				break
			}
		}
		if err := p.callArg(&a); err != nil {
			return a, err
		}
	}
	return a, p.advance()
}

func (p *parser) callArg(a *callArgs) error {
	for _, star := range []struct {
		op string
		to *expr
	}{{"*", &a.star}, {"**", &a.starStar}} {
		if !p.isOp(star.op) {
			continue
		}
		if *star.to != nil {
			return p.failf("'%s' twice among the arguments", star.op)
		}
		if err := p.advance(); err != nil {
			return err
		}
		var err error
		*star.to, err = p.expression()
		return err
	}
	e, err := p.expression()
	if err != nil {
		return err
	}
	if name, ok := e.(*nameExpr); ok && p.isOp("=") {
		if err := p.advance(); err != nil {
			return err
		}
		v, err := p.expression()
		a.names, a.named = append(a.names, name.name), append(a.named, v)
		return err
	}
	if len(a.names) > 0 || a.star != nil || a.starStar != nil {
		return p.failf("a positional argument follows a named or starred one")
	}
	a.pos = append(a.pos, e)
	return nil
}

// filters parses |filter, is test and calls of their results.
func (p *parser) filters(e expr) (expr, error) {
	for {
		var err error
		switch {
		case p.isOp("|"):
			if err := p.advance(); err != nil {
				return nil, err
			}
			e, err = p.filter(e)
		case p.isName("is"):
			e, err = p.test(e)
		case p.isOp("("):
			at, nodeErr := p.node(p.tok.pos)
			if nodeErr != nil {
				return nil, nodeErr
			}
			e, err = p.call(at, e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) dottedName() (string, error) {
	name, err := p.expectName()
	for err == nil && p.isOp(".") {
		if err = p.advance(); err != nil {
			break
		}
		if len(name) > 200 { // no filter has such a name; keeps this linear
			return "", p.failf("no name is that long")
		}
		var part string
		part, err = p.expectName()
		name += "." + part
	}
	return name, err
}

func (p *parser) filter(operand expr) (expr, error) {
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	if operand == nil {
		operand = &nameExpr{at, blockText}
	}
	e := &filterExpr{node: at, operand: operand}
	if e.name, err = p.dottedName(); err != nil {
		return nil, err
	}
	if e.fn = filters[e.name]; e.fn == nil && p.conditional == 0 {
		return nil, p.lex.errorAt(at.pos, "no filter named '"+clip(e.name)+"'")
	}
	if p.isOp("(") {
		e.args, err = p.callArgs()
	}
	return e, err
}

func (p *parser) test(operand expr) (expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	at, err := p.node(p.tok.pos)
	if err != nil {
		return nil, err
	}
	negated, err := p.skipName("not")
	if err != nil {
		return nil, err
	}
	e := &testExpr{node: at, operand: operand}
	if e.name, err = p.dottedName(); err != nil {
		return nil, err
	}
	if e.fn = tests[e.name]; e.fn == nil && p.conditional == 0 {
		return nil, p.lex.errorAt(at.pos, "no test named '"+clip(e.name)+"'")
	}
	if p.isOp("(") {
		e.args, err = p.callArgs()
	} else if p.isName("is") {
		return nil, p.failf("tests cannot be chained; use parentheses")
	} else if p.startsArgument() {
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
			e.args.pos = []expr{arg}
		}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		return &unaryExpr{at, "not", e}, nil
	}
	return e, nil
}

// startsArgument: may the current token begin a test's argument without parentheses?
func (p *parser) startsArgument() bool {
	switch p.tok.kind {
	case tokenString, tokenInt, tokenFloat:
		return true
	case tokenName:
		return !p.isName("else") && !p.isName("or") && !p.isName("and")
	}
	return p.isOp("[") || p.isOp("{")
}
