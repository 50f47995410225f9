package grammar

import (
	"errors"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// formats are the formats of strings that can be held to, as regular expressions.
var formats = map[string]string{
	"date":          fullDate,
	"time":          fullTime,
	"date-time":     fullDate + `T` + fullTime,
	"duration":      `P(?:\d{1,4}W|` + durationDate + `(?:T` + durationTime + `)?|T` + durationTime + `)`,
	"uuid":          `[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`,
	"email":         `[A-Za-z0-9_+-]{1,32}(?:\.[A-Za-z0-9_+-]{1,16}){0,2}@(?:` + label + `\.){1,3}[a-z]{2,12}`,
	"hostname":      label + `(?:\.` + label + `){0,4}`,
	"ipv4":          octet + `(?:\.` + octet + `){3}`,
	"ipv6":          ipv6,
	"uri":           `[a-z][a-z0-9+.-]{1,15}://` + uriChar + `{1,255}`,
	"uri-reference": `(?:[a-z][a-z0-9+.-]{1,15}://|/)?` + uriChar + `{1,255}`,
}

const (
	year       = `\d{4}`
	leapYear   = `(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	fullDate   = `(?:` + year + `-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))|` + leapYear + `-02-29)`
	hourMinute = `(?:[01]\d|2[0-3]):[0-5]\d`
	fullTime   = hourMinute + `:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-]` + hourMinute + `)`

	durationDate = `(?:\d{1,4}Y(?:\d{1,4}M(?:\d{1,4}D)?)?|\d{1,4}M(?:\d{1,4}D)?|\d{1,4}D)`
	durationTime = `(?:\d{1,4}H(?:\d{1,4}M(?:\d{1,4}S)?)?|\d{1,4}M(?:\d{1,4}S)?|\d{1,4}S)`

	label   = `[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?`
	octet   = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv6    = `(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}:[0-9a-f]{1,4}|::(?:[0-9a-f]{1,4}:){0,5}[0-9a-f]{1,4}|::)`
	uriChar = `(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})`
)

// numberFormats are the formats of numbers, with the integers' ranges.
var numberFormats = map[string]struct{ low, high string }{
	"int32":  {"-2147483648", "2147483647"},
	"int64":  {"-9223372036854775808", "9223372036854775807"},
	"uint32": {"0", "4294967295"},
	"uint64": {"0", "18446744073709551615"},
	"float":  {},
	"double": {},
}

// text matches strings.
func (s *schemaCompiler) text(parts []located) expr {
	low := max(0, s.count(parts, "minLength", larger))
	high := s.count(parts, "maxLength", smaller)
	if high >= 0 && high < low {
		return choice{}
	}
	if len(all(parts, "pattern")) == 0 && !hasFormat(parts) {
		switch {
		case low == 0 && high < 0:
			return s.json.text
		case high < 0:
			high = unbounded
		}
		return sequence{literal(`"`), repeat{jsonChar, low, high}, literal(`"`)}
	}
	f := s.textAutomaton(parts)
	if f == nil || s.err != nil {
		return choice{}
	}
	return sequence{literal(`"`), f.expr(true), literal(`"`)}
}

func hasFormat(parts []located) bool {
	return slices.ContainsFunc(all(parts, "format"), func(l located) bool {
		_, number := numberFormats[l.text]
		return !number
	})
}

// textAutomaton matches the contents of the strings that satisfy the schemas; nil stands
// for all.
func (s *schemaCompiler) textAutomaton(parts []located) *fsa {
	var f *fsa
	for _, p := range all(parts, "format") {
		if _, number := numberFormats[p.text]; number && p.kind == 's' {
			continue
		}
		pattern, ok := formats[p.text]
		if !ok {
			s.unsupported(p.pointer, "the format %q is not supported; %s are", p.text,
				strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
			return nil
		}
		f = s.both(f, s.pattern(p, `^(?:`+pattern+`)$`))
	}
	for _, p := range all(parts, "pattern") {
		if p.kind != 's' {
			s.fail(p.pointer, "this should be a regular expression")
			return nil
		}
		pattern, err := fromECMA(p.text)
		if err != nil {
			s.patternError(p, err)
			return nil
		}
		f = s.both(f, s.pattern(p, pattern))
	}
	low, high := max(0, s.count(parts, "minLength", larger)), s.count(parts, "maxLength", smaller)
	if s.err == nil && (low > 0 || high >= 0) {
		if high < 0 {
			high = unbounded
		} else if high < low {
			return &fsa{final: []bool{false}, edges: [][]fsaEdge{nil}}
		}
		g, err := lengths(low, high)
		if err != nil {
			s.err = err
			return nil
		}
		s.charge(len(g.final))
		f = s.both(f, g)
	}
	return f
}

func (s *schemaCompiler) pattern(l located, pattern string) *fsa {
	f, err := regexpAutomaton(pattern, true)
	if err != nil {
		s.patternError(l, err)
	}
	if f != nil {
		s.charge(len(f.final) + f.work)
	}
	return f
}

func (s *schemaCompiler) patternError(l located, err error) {
	if s.err != nil {
		return
	}
	if errors.Is(err, ErrLimit) {
		s.err = err
		return
	}
	s.err = &SchemaError{Pointer: l.pointer, Reason: err.Error(), Unsupported: errors.Is(err, ErrUnsupported), Err: err}
}

// number matches numbers, or integers only.
func (s *schemaCompiler) number(parts []located, integer bool) expr {
	n := numbers{integer: integer}
	for _, p := range parts {
		s.limits(&n, p)
	}
	for _, f := range all(parts, "format") {
		if r, ok := numberFormats[f.text]; ok && f.kind == 's' && r.low != "" {
			n.integer = true
			low, _ := parseDecimal(r.low)
			high, _ := parseDecimal(r.high)
			n.lower(limit{decimal: low})
			n.upper(limit{decimal: high})
		}
	}
	for _, m := range all(parts, "multipleOf") {
		s.multiple(&n, m)
	}
	if s.err != nil {
		return choice{}
	}
	x, nodes, err := n.expr()
	if s.charge(nodes); err != nil && s.err == nil {
		s.err = err
	}
	return x
}

// limits reads the four keywords for limits. In draft 4 the exclusive ones are booleans,
// which say what the others mean.
func (s *schemaCompiler) limits(n *numbers, p located) {
	for _, side := range [...]struct {
		inclusive, exclusive string
		apply                func(limit)
	}{
		{"minimum", "exclusiveMinimum", n.lower},
		{"maximum", "exclusiveMaximum", n.upper},
	} {
		open := false
		if v := p.at(side.exclusive); v.value != nil {
			if v.kind == 'b' {
				open = v.truth
			} else if d, ok := s.decimal(v); ok {
				side.apply(limit{d, true})
			}
		}
		if v := p.at(side.inclusive); v.value != nil {
			if d, ok := s.decimal(v); ok {
				side.apply(limit{d, open})
			}
		}
	}
}

func (s *schemaCompiler) decimal(l located) (decimal, bool) {
	if l.kind != 'n' {
		s.fail(l.pointer, "this should be a number")
		return decimal{}, false
	}
	d, err := parseDecimal(l.text)
	if err != nil {
		s.unsupported(l.pointer, "%v: at most %d are supported", err, maxDigits)
		return d, false
	}
	return d, true
}

// maxModulus bounds multipleOf: there is a node for each remainder and digit.
const maxModulus = 1000

func (s *schemaCompiler) multiple(n *numbers, l located) {
	d, ok := s.decimal(l)
	if !ok {
		return
	}
	if d.negative || d.zero() {
		s.fail(l.pointer, "this should be a number above 0")
		return
	}
	if d.part != "" { // a power of ten
		if d.whole == "0" && strings.Trim(d.part, "0") == "1" {
			if n.places == 0 || len(d.part) < n.places {
				n.places = len(d.part)
			}
			return
		}
		if !n.integer {
			s.unsupported(l.pointer, "only integers and powers of ten are supported here")
			return
		}
	}
	// An integer that is a multiple of a/b, in lowest terms, is one of a.
	modulus := d.rat().Num()
	if n.modulus > 1 {
		a := big.NewInt(int64(n.modulus))
		gcd := new(big.Int).GCD(nil, nil, a, modulus)
		modulus = new(big.Int).Div(new(big.Int).Mul(a, modulus), gcd)
	}
	if !modulus.IsInt64() || modulus.Int64() > maxModulus {
		s.unsupported(l.pointer, "multiples of more than %d are not supported", maxModulus)
		return
	}
	n.integer = true
	n.modulus = int(modulus.Int64())
}
