package chattemplate

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is one conversion of printf or of str.format.
type spec struct {
	fill      rune
	align     byte // '<', '>', '^', '=' or 0
	sign      byte // '+', ' ', '-' or 0
	alternate bool
	width     int
	grouping  byte // ',' or '_' or 0
	precision int  // -1: none
	zero      bool // fill and align come from a leading 0
	verb      byte // 0: none
}

// maxPrecision bounds the digits after the point; no float has more.
const maxPrecision = 1100

// printf is Python's text % args.
func printf(r *run, format *text, v any) (any, error) {
	p := &printfState{r: r, format: format, b: builder{r: r}}
	switch v := v.(type) {
	case *tuple:
		p.args = v.items
	case *dict:
		p.mapping = v
		p.args = []any{v}
	default:
		p.args = []any{v}
	}
	if err := r.work(len(format.s)); err != nil {
		return nil, err
	}
	if err := p.run(); err != nil {
		return nil, err
	}
	_, isDict := v.(*dict)
	_, isList := v.(*list)
	if p.used < len(p.args) && !isDict && !isList && !isUndefined(v) {
		return nil, typeErrorf("not all arguments converted during string formatting")
	}
	out := p.b.text()
	out.safe = format.safe
	return out, nil
}

type printfState struct {
	r       *run
	format  *text
	b       builder
	args    []any
	mapping *dict
	used    int
}

func (p *printfState) run() error {
	s := p.format.s
	for i := 0; i < len(s); {
		n := strings.IndexByte(s[i:], '%')
		if n < 0 {
			n = len(s) - i
		}
		if err := p.r.work(64 + 16*len(p.format.marks)); err != nil {
			return err
		}
		if err := p.b.add(p.format.slice(i, i+n)); err != nil {
			return err
		}
		if i += n; i == len(s) {
			return nil
		}
		next, err := p.conversion(i + 1)
		if err != nil {
			return err
		}
		i = next
	}
	return nil
}

func (p *printfState) arg() (any, error) {
	if p.used >= len(p.args) {
		return nil, typeErrorf("not enough arguments for format string")
	}
	p.used++
	return p.args[p.used-1], nil
}

// conversion formats the directive after the % at i-1 and returns its end.
func (p *printfState) conversion(i int) (int, error) {
	s := p.format.s
	c := spec{fill: ' ', precision: -1, align: '>'}
	var value any
	named := false
	if i < len(s) && s[i] == '(' {
		n := strings.IndexByte(s[i:], ')')
		if n < 0 {
			return 0, valueErrorf("incomplete format key")
		}
		if p.mapping == nil {
			return 0, typeErrorf("format requires a mapping")
		}
		v, ok := p.mapping.getString(s[i+1 : i+n])
		if !ok {
			return 0, valueErrorf("no key '%s' for the format", clip(s[i+1:i+n]))
		}
		value, named = v, true
		i += n + 1
	}
flags:
	for ; i < len(s); i++ {
		switch s[i] {
		case '-':
			c.align = '<'
		case '+':
			c.sign = '+'
		case ' ':
			if c.sign == 0 {
				c.sign = ' '
			}
		case '#':
			c.alternate = true
		case '0':
			if c.align != '<' {
				c.fill, c.align = '0', '='
			}
		default:
			break flags
		}
	}
	var err error
	if i, c.width, err = p.number(i, 0); err != nil {
		return 0, err
	}
	if c.width < 0 {
		c.align, c.width = '<', -c.width
	}
	if i < len(s) && s[i] == '.' {
		if i, c.precision, err = p.number(i+1, 0); err != nil {
			return 0, err
		}
	}
	for i < len(s) && strings.IndexByte("hlL", s[i]) >= 0 {
		i++
	}
	if i >= len(s) {
		return 0, valueErrorf("incomplete format")
	}
	c.verb = s[i]
	if c.verb == '%' {
		return i + 1, p.b.add(p.format.slice(i, i+1))
	}
	if !named {
		if value, err = p.arg(); err != nil {
			return 0, err
		}
	}
	t, err := c.printf(p.r, value)
	if err != nil {
		return 0, err
	}
	return i + 1, p.b.add(t)
}

// number reads a width or precision, digits or * for an argument.
func (p *printfState) number(i, missing int) (int, int, error) {
	s := p.format.s
	if i < len(s) && s[i] == '*' {
		v, err := p.arg()
		if err != nil {
			return 0, 0, err
		}
		n, ok := v.(int64)
		if !ok || n > math.MaxInt32 || n < -math.MaxInt32 {
			return 0, 0, typeErrorf("* wants a small int")
		}
		return i + 1, int(n), nil
	}
	end := i
	for isDigitAt(s, end) {
		end++
	}
	if end == i {
		return i, missing, nil
	}
	n, err := strconv.Atoi(s[i:end])
	if err != nil || n > math.MaxInt32 {
		return 0, 0, valueErrorf("width too big")
	}
	return end, n, nil
}

func (c spec) printf(r *run, v any) (*text, error) {
	switch c.verb {
	case 's', 'r', 'a':
		t, err := c.display(r, v)
		if err != nil {
			return nil, err
		}
		if c.fill == '0' {
			c.fill, c.align = ' ', '>'
		}
		return c.padText(r, t)
	case 'c':
		t, ok := v.(*text)
		if i, isNum := smallInt(v); isNum {
			t, ok = literal(string(rune(i))), 0 <= i && i <= utf8.MaxRune
		}
		if !ok || runeLen(t.s) != 1 {
			return nil, typeErrorf("%%c requires int or char")
		}
		c.precision = -1
		return c.padText(r, t)
	case 'd', 'i', 'u':
		c.verb = 'd'
		if f, ok := v.(float64); ok {
			v, _ = floatToInt(f)
		}
		if !isInt(v) {
			return nil, typeErrorf("%%d format: a real number is required, not %s", typeName(v))
		}
	case 'x', 'X', 'o':
		if !isInt(v) {
			return nil, typeErrorf("%%%c format: an integer is required, not %s", c.verb, typeName(v))
		}
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if t, ok := v.(*text); ok {
			return nil, typeErrorf("must be real number, not %s", typeName(t))
		}
	default:
		return nil, valueErrorf("unsupported format character '%c'", c.verb)
	}
	return c.formatNumber(r, v)
}

// display is the argument as %s or %r shows it.
func (c spec) display(r *run, v any) (*text, error) {
	if c.verb == 's' {
		return toText(r, v)
	}
	return repr(r, v)
}

// padText cuts to the precision and pads to the width.
func (c spec) padText(r *run, t *text) (*text, error) {
	if err := r.work(len(t.s)); err != nil {
		return nil, err
	}
	if c.precision >= 0 && runeLen(t.s) > c.precision {
		t = t.sliceRunes(0, c.precision)
	}
	if runeLen(t.s) >= c.width {
		return t, nil
	}
	side := map[byte]int{'<': 0, '>': 1, '^': 2, '=': 1}[c.align]
	if c.align == '^' { // format rounds the other way than str.center
		left := (c.width - runeLen(t.s)) / 2
		out, err := justify(r, t, int64(runeLen(t.s)+left), literal(string(c.fill)), 1)
		if err != nil {
			return nil, err
		}
		t, side = out.(*text), 0
	}
	out, err := justify(r, t, int64(c.width), literal(string(c.fill)), side)
	if err != nil {
		return nil, err
	}
	return out.(*text), nil
}

// formatNumber formats an int or a float.
func (c spec) formatNumber(r *run, v any) (*text, error) {
	if c.precision > maxPrecision {
		return nil, limitError("digits of precision", maxPrecision)
	}
	negative, digits, err := c.digits(v)
	if err != nil {
		return nil, err
	}
	if err := r.alloc(4 * len(digits)); err != nil {
		return nil, err
	}
	sign := ""
	switch {
	case negative:
		sign = "-"
	case c.sign == '+' || c.sign == ' ':
		sign = string(c.sign)
	}
	if c.alternate {
		switch c.verb {
		case 'x', 'o', 'b':
			sign += "0" + string(c.verb)
		case 'X':
			sign += "0X"
		}
	}
	if c.align == '=' {
		if err := r.alloc(2 * max(c.width, 0)); err != nil {
			return nil, err
		}
		digits = c.zeroPad(sign, digits)
	}
	c.precision = -1
	return c.padText(r, literal(sign+c.group(digits)))
}

// zeroPad puts the fill between sign and digits. With grouping the zeros are
// grouped too, so fewer of them fill the width.
func (c spec) zeroPad(sign, digits string) string {
	size := func() int { return len(sign) + runeLen(c.group(digits)) }
	if missing := c.width - size(); missing > 0 && c.grouping == 0 {
		return strings.Repeat(string(c.fill), missing) + digits
	} else if missing > 0 {
		digits = strings.Repeat(string(c.fill), missing-missing/4) + digits
		for size() > c.width {
			digits = digits[1:]
		}
		for size() < c.width {
			digits = string(c.fill) + digits
		}
	}
	return digits
}

// group inserts the thousands separators before the point or exponent.
func (c spec) group(digits string) string {
	if c.grouping == 0 {
		return digits
	}
	every := 3
	if strings.IndexByte("xXob", c.verb) >= 0 && c.verb != 0 {
		every = 4
	}
	whole := digits
	if i := strings.IndexAny(digits, ".e%"); i >= 0 && c.verb != 'x' && c.verb != 'X' {
		whole = digits[:i]
	}
	var b strings.Builder
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%every == 0 {
			b.WriteByte(c.grouping)
		}
		b.WriteByte(whole[i])
	}
	return b.String() + digits[len(whole):]
}

// digits is |v| as the verb shows it.
func (c spec) digits(v any) (negative bool, digits string, err error) {
	if n, ok := bigInt(v); ok {
		base := map[byte]int{0: 10, 'd': 10, 'n': 10, 'x': 16, 'X': 16, 'o': 8, 'b': 2}[c.verb]
		if base != 0 {
			digits = new(big.Int).Abs(n).Text(base)
			if c.verb == 'X' {
				digits = strings.ToUpper(digits)
			}
			return n.Sign() < 0, digits, nil
		}
	}
	f, ok := toFloat(v)
	if !ok {
		return false, "", typeErrorf("a number is needed for format '%c', not %s", c.verb, typeName(v))
	}
	return math.Signbit(f) && f == f, c.floatDigits(math.Abs(f)), nil
}

func (c spec) floatDigits(f float64) string {
	percent := ""
	if c.verb == '%' {
		f, percent = f*100, "%"
	}
	upper := 'A' <= c.verb && c.verb <= 'Z'
	s := ""
	precision := c.precision
	if precision < 0 {
		precision = 6
	}
	switch {
	case math.IsInf(f, 0) || f != f:
		s = floatRepr(f)
	case c.verb == 'e' || c.verb == 'E':
		s = strconv.FormatFloat(f, 'e', precision, 64)
	case c.verb == 'f' || c.verb == 'F' || c.verb == '%':
		s = strconv.FormatFloat(f, 'f', precision, 64)
	case c.verb == 0 && c.precision < 0:
		s = floatRepr(f)
	default:
		s = general(f, max(precision, 1), c.alternate)
		if c.verb == 0 && !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
	}
	if upper {
		s = strings.ToUpper(s)
	}
	return s + percent
}

// general is C's %g.
func general(f float64, precision int, keepZeros bool) string {
	exponent := 0
	if f != 0 {
		s := strconv.FormatFloat(f, 'e', precision-1, 64)
		exponent, _ = strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	}
	if exponent < -4 || exponent >= precision {
		s := strconv.FormatFloat(f, 'e', precision-1, 64)
		i := strings.IndexByte(s, 'e')
		return trimZeros(s[:i], keepZeros) + s[i:]
	}
	return trimZeros(strconv.FormatFloat(f, 'f', max(precision-1-exponent, 0), 64), keepZeros)
}

func trimZeros(s string, keep bool) string {
	if keep || !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func formatMethod(r *run, object any, a *args) (any, error) {
	named := newDict(len(a.names))
	for i, name := range a.names {
		if err := named.set(r, literal(name), a.named[i]); err != nil {
			return nil, err
		}
	}
	return formatBraces(r, object.(*text), a.pos, named)
}

// formatBraces is str.format.
func formatBraces(r *run, format *text, pos []any, named *dict) (any, error) {
	if err := r.work(len(format.s)); err != nil {
		return nil, err
	}
	f := &braces{r: r, pos: pos, named: named}
	out, err := f.expand(format, 0)
	if err != nil {
		return nil, err
	}
	out.safe = format.safe
	return out, nil
}

type braces struct {
	r      *run
	pos    []any
	named  *dict
	auto   int
	manual bool
}

// expand replaces the fields of format; a field's own format may hold fields,
// once.
func (f *braces) expand(format *text, level int) (*text, error) {
	if level > 1 {
		return nil, valueErrorf("Max string recursion exceeded")
	}
	b := builder{r: f.r}
	s := format.s
	for i := 0; i < len(s); {
		if err := f.r.work(64 + 16*len(format.marks)); err != nil {
			return nil, err
		}
		n := strings.IndexAny(s[i:], "{}")
		if n < 0 {
			if err := b.add(format.slice(i, len(s))); err != nil {
				return nil, err
			}
			break
		}
		doubled := i+n+1 < len(s) && s[i+n+1] == s[i+n]
		if doubled {
			n++
		}
		if err := b.add(format.slice(i, i+n)); err != nil {
			return nil, err
		}
		i += n
		if doubled {
			i++
			continue
		}
		if s[i] == '}' {
			return nil, valueErrorf("Single '}' encountered in format string")
		}
		end := matchingBrace(s, i)
		if end < 0 {
			return nil, valueErrorf("expected '}' before end of string")
		}
		t, err := f.field(format.slice(i+1, end), level)
		if err != nil {
			return nil, err
		}
		if format.safe {
			if t, err = t.escapeHTML(f.r); err != nil {
				return nil, err
			}
		}
		if err := b.add(t); err != nil {
			return nil, err
		}
		i = end + 1
	}
	return b.text(), nil
}

func matchingBrace(s string, open int) int {
	depth := 0
	for i := open; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats what stands between the braces: name!conversion:format.
func (f *braces) field(field *text, level int) (*text, error) {
	name, conversion, format := field.s, byte(0), emptyText
	if i := strings.IndexAny(name, "!:"); i >= 0 {
		rest := name[i:]
		if rest[0] == '!' {
			if len(rest) < 2 || len(rest) > 2 && rest[2] != ':' {
				return nil, valueErrorf("bad conversion in a format field")
			}
			conversion = rest[1]
			rest = rest[2:]
		}
		if rest != "" {
			format = field.slice(len(name)-len(rest)+1, len(name))
		}
		name = name[:i]
	}
	v, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	switch conversion {
	case 0:
	case 's':
		v, err = toText(f.r, v)
	case 'r', 'a':
		v, err = repr(f.r, v)
	default:
		err = valueErrorf("unknown conversion '%c'", conversion)
	}
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(format.s, "{}") {
		if format, err = f.expand(format, level+1); err != nil {
			return nil, err
		}
	}
	return formatValue(f.r, v, format.s)
}

// lookup resolves 0.attr[key], name.attr or an automatic number.
func (f *braces) lookup(path string) (any, error) {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	v, err := f.first(path[:end])
	if err != nil {
		return nil, err
	}
	for rest := path[end:]; rest != ""; {
		if err := f.r.step(); err != nil {
			return nil, err
		}
		if rest[0] == '[' {
			n := strings.IndexByte(rest, ']')
			if n < 0 {
				return nil, valueErrorf("missing ']' in a format field")
			}
			var key any = literal(rest[1:n])
			if i, ok := decimal(rest[1:n]); ok {
				key = i
			}
			v, err = getItem(f.r, v, key)
			rest = rest[n+1:]
		} else {
			n := strings.IndexAny(rest[1:], ".[") + 1
			if n == 0 {
				n = len(rest)
			}
			v, err = getAttr(f.r, v, rest[1:n])
			rest = rest[n:]
		}
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

func decimal(s string) (int64, bool) {
	for i := range len(s) {
		if !isDigitAt(s, i) {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func (f *braces) first(name string) (any, error) {
	i, isIndex := decimal(name)
	if name == "" {
		if f.manual {
			return nil, valueErrorf("cannot switch from manual field specification to automatic field numbering")
		}
		i, isIndex = int64(f.auto), true
		f.auto++
	} else if isIndex {
		if f.auto > 0 {
			return nil, valueErrorf("cannot switch from automatic field numbering to manual field specification")
		}
		f.manual = true
	}
	if isIndex {
		if i >= int64(len(f.pos)) {
			return nil, valueErrorf("Replacement index %d out of range for positional args tuple", i)
		}
		return f.pos[i], nil
	}
	v, ok := f.named.getString(name)
	if !ok {
		return nil, valueErrorf("no argument '%s' for the format", clip(name))
	}
	return v, nil
}

// formatValue is format(v, spec).
func formatValue(r *run, v any, format string) (*text, error) {
	if format == "" {
		return toText(r, v)
	}
	c, err := parseSpec(format)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *text:
		if c.verb != 0 && c.verb != 's' || c.align == '=' && !c.zero || c.sign != 0 || c.grouping != 0 || c.alternate {
			return nil, valueErrorf("format specifier '%s' is not for a str", clip(format))
		}
		if c.align == 0 || c.zero {
			c.align = '<'
		}
		return c.padText(r, v)
	case int64, *big.Int, float64, bool:
		return c.formatAny(r, v)
	}
	return nil, typeErrorf("unsupported format string passed to %s", typeName(v))
}

func (c spec) formatAny(r *run, v any) (*text, error) {
	if c.align == 0 {
		c.align = '>'
	}
	_, isFloat := v.(float64)
	switch c.verb {
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
	case 0, 'd', 'x', 'X', 'o', 'b', 'n':
		if isFloat && c.verb == 'n' {
			c.verb = 'g'
		}
		if isFloat && (c.verb == 0 || c.verb == 'g') {
			break
		}
		if isFloat {
			return nil, valueErrorf("Unknown format code '%c' for object of type 'float'", c.verb)
		}
		if c.precision >= 0 {
			return nil, valueErrorf("Precision not allowed in integer format specifier")
		}
	case 'c':
		i, _ := smallInt(v)
		if isFloat || i < 0 || i > utf8.MaxRune {
			return nil, valueErrorf("%%c arg not in range(0x110000)")
		}
		return c.padText(r, literal(string(rune(i))))
	default:
		return nil, valueErrorf("Unknown format code '%c'", c.verb)
	}
	return c.formatNumber(r, v)
}

// parseSpec reads [[fill]align][sign][#][0][width][grouping][.precision][type].
func parseSpec(s string) (spec, error) {
	c := spec{fill: ' ', precision: -1}
	isAlign := func(i int) bool { return i < len(s) && strings.IndexByte("<>^=", s[i]) >= 0 }
	first, n := utf8.DecodeRuneInString(s)
	i := 0
	if isAlign(n) {
		c.fill, c.align = first, s[n]
		i = n + 1
	} else if isAlign(0) {
		c.align = s[0]
		i = 1
	}
	at := func(set string) bool { return i < len(s) && strings.IndexByte(set, s[i]) >= 0 }
	if at("+- ") {
		c.sign = s[i]
		i++
	}
	if at("#") {
		c.alternate = true
		i++
	}
	if at("0") {
		if c.align == 0 {
			c.fill, c.align, c.zero = '0', '=', true
		}
		i++
	}
	var ok bool
	if i, c.width, ok = digitsAt(s, i); !ok {
		c.width = 0
	}
	if at(",_") {
		c.grouping = s[i]
		i++
	}
	if at(".") {
		if i, c.precision, ok = digitsAt(s, i+1); !ok {
			return c, valueErrorf("Format specifier missing precision")
		}
	}
	if i < len(s) {
		c.verb = s[i]
		i++
	}
	if i != len(s) {
		return c, valueErrorf("Invalid format specifier '%s'", clip(s))
	}
	return c, nil
}

// digitsAt reads a number, saturating.
func digitsAt(s string, i int) (end, n int, ok bool) {
	for end = i; isDigitAt(s, end); end++ {
		if n < 1<<27 {
			n = n*10 + int(s[end]-'0')
		}
	}
	return end, n, end > i
}
