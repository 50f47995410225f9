package chattemplate

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenPrintBegin // {{
	tokenPrintEnd
	tokenBlockBegin // {%
	tokenBlockEnd
	tokenName
	tokenString
	tokenInt
	tokenFloat
	tokenOp
)

// token is a lexeme: text is the data, the name, the number as written, the
// operator, or the decoded string.
type token struct {
	kind tokenKind
	pos  int
	text string
}

func (t token) describe() string {
	switch t.kind {
	case tokenEOF:
		return "the end of the template"
	case tokenData:
		return "text"
	case tokenPrintEnd:
		return "'}}'"
	case tokenBlockEnd:
		return "'%}'"
	case tokenString:
		return "a string"
	}
	return "'" + clip(t.text) + "'"
}

// lexer cuts the source into tokens, one per call of next, in one pass. It
// applies trim_blocks and lstrip_blocks, which transformers always sets.
type lexer struct {
	src      string
	pos      int
	inTag    tokenKind // tokenPrintBegin or tokenBlockBegin inside a tag
	atLine   bool      // the last tag ended with a line break (or nothing came yet)
	brackets []byte    // closing brackets awaited
	queued   token     // the tag that ended the last data
	hasQueue bool
}

func newLexer(src string) *lexer { return &lexer{src: src, atLine: true} }

func (l *lexer) errorAt(pos int, message string) error {
	line, column := lineColumn(l.src, pos)
	return &SyntaxError{Line: line, Column: column, Message: message}
}

func lineColumn(src string, pos int) (line, column int) {
	before := src[:min(pos, len(src))]
	return 1 + strings.Count(before, "\n"), len(before) - strings.LastIndexByte(before, '\n')
}

func (l *lexer) next() (token, error) {
	if l.hasQueue {
		l.hasQueue = false
		return l.queued, nil
	}
	if l.inTag != 0 {
		return l.nextInTag()
	}
	return l.nextOutside()
}

// nextOutside returns the data up to the next print or block tag, skipping
// comments, or that tag where there is no data.
func (l *lexer) nextOutside() (token, error) {
	for l.pos < len(l.src) {
		start := l.pos
		open := findTag(l.src, start)
		if open < 0 {
			l.pos = len(l.src)
			return token{tokenData, start, l.src[start:]}, nil
		}
		kind := l.src[open+1]
		after := open + 2
		var sign byte
		if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
			sign = l.src[after]
			after++
		}
		data := l.stripBefore(l.src[start:open], kind, sign)
		l.atLine = false
		raw, err := l.openTag(open, after, kind)
		if err != nil {
			return token{}, err
		}
		if raw.text != "" {
			if data == "" {
				return raw, nil
			}
			l.queued, l.hasQueue = raw, true
		}
		if data != "" {
			return token{tokenData, start, data}, nil
		}
		if l.hasQueue {
			l.hasQueue = false
			return l.queued, nil
		}
	}
	return token{tokenEOF, l.pos, ""}, nil
}

// openTag moves past the opening of a tag, past a whole comment, or past a
// whole raw block, whose contents it returns.
func (l *lexer) openTag(open, after int, kind byte) (raw token, err error) {
	switch kind {
	case '#':
		return token{}, l.skipComment(open, after)
	case '{':
		l.pos, l.inTag = after, tokenPrintBegin
		l.queued, l.hasQueue = token{tokenPrintBegin, open, "{{"}, true
		return token{}, nil
	}
	if end := matchWord(l.src, after, "raw"); end >= 0 {
		if body := matchRawBegin(l.src, end); body >= 0 {
			return l.rawBlock(open, body)
		}
	}
	l.pos, l.inTag = after, tokenBlockBegin
	l.queued, l.hasQueue = token{tokenBlockBegin, open, "{%"}, true
	return token{}, nil
}

func findTag(src string, from int) int {
	for i := from; ; i++ {
		n := strings.IndexByte(src[i:], '{')
		if n < 0 || i+n+1 >= len(src) {
			return -1
		}
		i += n
		switch src[i+1] {
		case '{', '%', '#':
			return i
		}
	}
}

// stripBefore removes white space in front of a tag: all of it for '-', the
// indentation of a block or comment that stands first on its line otherwise.
func (l *lexer) stripBefore(data string, kind, sign byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(data, isSpace)
	}
	if sign == '+' || kind == '{' {
		return data
	}
	line := strings.LastIndexByte(data, '\n') + 1
	if line == 0 && !l.atLine {
		return data
	}
	if strings.TrimLeftFunc(data[line:], isSpace) == "" {
		return data[:line]
	}
	return data
}

func (l *lexer) skipComment(open, after int) error {
	n := strings.Index(l.src[after:], "#}")
	if n < 0 {
		return l.errorAt(open, "comment without its end '#}'")
	}
	var sign byte
	if n > 0 {
		sign = l.src[after+n-1]
	}
	l.closeTag(after+n+2, sign, true)
	return nil
}

// closeTag moves to end, the position after a tag, and past the white space
// that the tag swallows.
func (l *lexer) closeTag(end int, sign byte, trimLine bool) {
	l.pos = end
	switch {
	case sign == '-':
		l.pos = skipSpace(l.src, end)
	case sign != '+' && trimLine && end < len(l.src) && l.src[end] == '\n':
		l.pos++
	}
	l.atLine = l.src[l.pos-1] == '\n'
}

func skipSpace(src string, i int) int {
	return len(src) - len(strings.TrimLeftFunc(src[i:], isSpace))
}

// matchWord returns the position after spaces, word and spaces, or -1.
func matchWord(src string, i int, word string) int {
	i = skipSpace(src, i)
	if !strings.HasPrefix(src[i:], word) {
		return -1
	}
	return skipSpace(src, i+len(word))
}

// matchRawBegin returns where the body of a raw block begins, given the end of
// its word; a line break after {% raw %} is not trimmed.
func matchRawBegin(src string, i int) int {
	if strings.HasPrefix(src[i:], "-%}") {
		return skipSpace(src, i+3)
	}
	if strings.HasPrefix(src[i:], "%}") {
		return i + 2
	}
	return -1
}

func (l *lexer) rawBlock(open, body int) (token, error) {
	for i := body; ; {
		n := strings.Index(l.src[i:], "{%")
		if n < 0 {
			return token{}, l.errorAt(open, "raw block without its endraw")
		}
		i += n
		after := i + 2
		var sign byte
		if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
			sign = l.src[after]
			after++
		}
		end := matchWord(l.src, after, "endraw")
		var endSign byte
		if end >= 0 && end < len(l.src) && (l.src[end] == '-' || l.src[end] == '+') {
			endSign = l.src[end]
			end++
		}
		if end < 0 || !strings.HasPrefix(l.src[end:], "%}") {
			i += 2
			continue
		}
		l.atLine = l.src[body-1] == '\n'
		data := l.stripBefore(l.src[body:i], '%', sign)
		l.closeTag(end+2, endSign, true)
		return token{tokenData, body, data}, nil
	}
}

func (l *lexer) nextInTag() (token, error) {
	l.pos = skipSpace(l.src, l.pos)
	if l.pos >= len(l.src) {
		return token{tokenEOF, l.pos, ""}, nil
	}
	if len(l.brackets) == 0 {
		if t, ok := l.endOfTag(); ok {
			return t, nil
		}
	}
	switch c := l.src[l.pos]; {
	case c == '"' || c == '\'':
		return l.quoted(c)
	case '0' <= c && c <= '9':
		return l.number(), nil
	case c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf:
		return l.name()
	}
	return l.operator()
}

func (l *lexer) endOfTag() (token, bool) {
	kind, mark := tokenPrintEnd, "}}"
	if l.inTag == tokenBlockBegin {
		kind, mark = tokenBlockEnd, "%}"
	}
	rest := l.src[l.pos:]
	var sign byte
	if rest[0] == '-' || rest[0] == '+' && kind == tokenBlockEnd {
		sign = rest[0]
		rest = rest[1:]
	}
	if !strings.HasPrefix(rest, mark) {
		return token{}, false
	}
	t := token{kind, l.pos, mark}
	l.inTag = 0
	l.closeTag(len(l.src)-len(rest)+2, sign, kind == tokenBlockEnd)
	return t, true
}

// maxName bounds the length of names, which are looked up again and again.
const maxName = 1000

func (l *lexer) name() (token, error) {
	start := l.pos
	for i, c := range l.src[start:] {
		if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c) && !unicode.IsMark(c)) {
			break
		}
		l.pos = start + i + utf8.RuneLen(c)
	}
	if l.pos == start {
		return token{}, l.errorAt(start, "unexpected character "+clip(l.src[start:]))
	}
	if l.pos-start > maxName {
		return token{}, l.errorAt(start, "no name is that long")
	}
	return token{tokenName, start, l.src[start:l.pos]}, nil
}

// digits skips digits of the given set, single underscores between them allowed.
func (l *lexer) digits(i int, set string) int {
	for i < len(l.src) {
		switch {
		case strings.IndexByte(set, l.src[i]) >= 0:
			i++
		case l.src[i] == '_' && i+1 < len(l.src) && strings.IndexByte(set, l.src[i+1]) >= 0:
			i += 2
		default:
			return i
		}
	}
	return i
}

const decimalDigits = "0123456789"

func (l *lexer) number() token {
	start := l.pos
	if l.src[start] == '0' && start+2 < len(l.src) {
		set := map[byte]string{'x': "0123456789abcdefABCDEF", 'o': "01234567", 'b': "01"}[l.src[start+1]|0x20]
		if end := l.digits(start+2, set); set != "" && end > start+2 {
			l.pos = end
			return token{tokenInt, start, l.src[start:end]}
		}
	}
	end := l.digits(start, decimalDigits)
	kind := tokenInt
	if afterDot := start > 0 && l.src[start-1] == '.'; !afterDot {
		if f := l.digits(end+1, decimalDigits); end < len(l.src) && l.src[end] == '.' && isDigitAt(l.src, end+1) {
			end, kind = f, tokenFloat
		}
		if e := l.exponent(end); e > end {
			end, kind = e, tokenFloat
		}
	}
	l.pos = end
	return token{kind, start, l.src[start:end]}
}

func isDigitAt(s string, i int) bool { return i < len(s) && '0' <= s[i] && s[i] <= '9' }

func (l *lexer) exponent(i int) int {
	if i >= len(l.src) || l.src[i]|0x20 != 'e' {
		return i
	}
	j := i + 1
	if j < len(l.src) && (l.src[j] == '+' || l.src[j] == '-') {
		j++
	}
	if !isDigitAt(l.src, j) {
		return i
	}
	return l.digits(j, decimalDigits)
}

// operators, longest first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

func (l *lexer) operator() (token, error) {
	rest := l.src[l.pos:]
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		t := token{tokenOp, l.pos, op}
		switch op {
		case "(":
			l.brackets = append(l.brackets, ')')
		case "[":
			l.brackets = append(l.brackets, ']')
		case "{":
			l.brackets = append(l.brackets, '}')
		case ")", "]", "}":
			n := len(l.brackets)
			if n == 0 {
				return token{}, l.errorAt(l.pos, "unexpected '"+op+"'")
			}
			if want := l.brackets[n-1]; want != op[0] {
				return token{}, l.errorAt(l.pos, "unexpected '"+op+"', expected '"+string(want)+"'")
			}
			l.brackets = l.brackets[:n-1]
		}
		l.pos += len(op)
		return t, nil
	}
	return token{}, l.errorAt(l.pos, "unexpected character "+clip(rest))
}

// quoted reads a string with Python's escapes.
func (l *lexer) quoted(quote byte) (token, error) {
	start := l.pos
	i := start + 1
	escaped := false
	for ; i < len(l.src) && l.src[i] != quote; i++ {
		if l.src[i] == '\\' {
			escaped = true
			i++
		}
	}
	if i >= len(l.src) {
		return token{}, l.errorAt(start, "string without its closing quote")
	}
	body := l.src[start+1 : i]
	l.pos = i + 1
	if escaped {
		var at int
		if body, at = unescape(body); at >= 0 {
			return token{}, l.errorAt(start+1+at, "bad escape in a string")
		}
	}
	return token{tokenString, start, body}, nil
}

var simpleEscapes = map[byte]string{'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}

// unescape returns the decoded string, or where it cannot be decoded (else -1).
// An unknown escape stands for itself. Surrogate halves, which Python keeps and
// cannot print, become U+FFFD.
func unescape(s string) (string, int) {
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1] // the lexer never ends a string after a backslash
		if e, ok := simpleEscapes[c]; ok {
			b.WriteString(e)
			i += 2
			continue
		}
		base, digits, exact := rune(16), 0, true
		switch {
		case c == 'x':
			digits = 2
		case c == 'u':
			digits = 4
		case c == 'U':
			digits = 8
		case c == 'N':
			return "", i
		case '0' <= c && c <= '7':
			base, digits, exact = 8, 3, false
			i-- // octal digits follow the backslash itself
		default:
			b.WriteByte('\\')
			i++
			continue
		}
		value, n := rune(0), 0
		for ; n < digits && i+2+n < len(s); n++ {
			d := digitValue(s[i+2+n])
			if d < 0 || d >= base || value > unicode.MaxRune {
				break
			}
			value = value*base + d
		}
		if exact && n < digits || value > unicode.MaxRune {
			return "", i
		}
		b.WriteRune(value)
		i += 2 + n
	}
	return b.String(), -1
}

func digitValue(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	}
	return -1
}

// clip shortens text for an error message.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
