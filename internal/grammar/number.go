package grammar

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number as its digits: whole without leading zeros, at least "0"; part
// without trailing zeros.
type decimal struct {
	negative    bool
	whole, part string
}

// maxDigits bounds the digits of numbers in schemas, exponents written out.
const maxDigits = 400

var errDigits = errors.New("the number has too many digits")

// parseDecimal reads a number of JSON exactly.
func parseDecimal(text string) (decimal, error) {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(text[i+1:]); err != nil || exponent < -maxDigits || exponent > maxDigits {
			return d, errDigits
		}
		text = text[:i]
	}
	whole, part, _ := strings.Cut(text, ".")
	if len(whole)+len(part) > maxDigits {
		return d, errDigits
	}
	if exponent > 0 {
		part += strings.Repeat("0", max(0, exponent-len(part)))
		whole, part = whole+part[:exponent], part[exponent:]
	} else {
		whole = strings.Repeat("0", max(0, -exponent-len(whole))) + whole
		whole, part = whole[:len(whole)+exponent], whole[len(whole)+exponent:]+part
	}
	d.whole = strings.TrimLeft(whole, "0")
	if d.whole == "" {
		d.whole = "0"
	}
	d.part = strings.TrimRight(part, "0")
	if d.zero() {
		d.negative = false
	}
	return d, nil
}

func (d decimal) zero() bool { return d.whole == "0" && d.part == "" }

func (d decimal) rat() *big.Rat {
	text := d.whole + "." + d.part
	if d.part == "" {
		text = d.whole
	}
	if d.negative {
		text = "-" + text
	}
	r, _ := new(big.Rat).SetString(text)
	return r
}

// limit is a bound of a number.
type limit struct {
	decimal
	open bool // the bound itself is out
}

// numbers says which numbers are wanted.
type numbers struct {
	low, high *limit // nil for none
	integer   bool
	modulus   int // for integers: only multiples of it, if above 1
	places    int // for others: digits after the point, at most; 0 for the usual
}

// Digits that a number has if nothing says otherwise.
const (
	wholeDigits = 16
	partDigits  = 16
)

// lower raises the low limit, upper lowers the high one.
func (n *numbers) lower(l limit) {
	if n.low != nil {
		if c := l.rat().Cmp(n.low.rat()); c < 0 || c == 0 && !l.open {
			return
		}
	}
	n.low = &l
}

func (n *numbers) upper(l limit) {
	if n.high != nil {
		if c := l.rat().Cmp(n.high.rat()); c > 0 || c == 0 && !l.open {
			return
		}
	}
	n.high = &l
}

// expr matches the wanted numbers, written without an exponent. It also returns how many
// nodes that takes.
func (n numbers) expr() (x expr, nodes int, err error) {
	if n.low == nil && n.high == nil && n.modulus <= 1 {
		if n.integer {
			return jsonInteger, 0, nil
		}
		if n.places == 0 {
			return jsonNumber, 0, nil
		}
	}
	low, high := n.low, n.high
	if n.integer {
		low, high = wholeLimit(low, 1), wholeLimit(high, -1)
	}
	if low != nil && high != nil {
		if c := low.rat().Cmp(high.rat()); c > 0 || c == 0 && (low.open || high.open) {
			return choice{}, 0, nil
		}
	}
	var list choice
	zero := &limit{decimal: decimal{whole: "0"}}
	if high == nil || !high.negative {
		from := low
		if low == nil || low.negative {
			from = zero
		}
		m := n.magnitudes(from, high)
		list = append(list, &m.network)
		nodes, err = len(m.final), m.err
	}
	if low == nil || low.negative {
		from := &limit{zero.decimal, true} // there is no need for -0
		if high != nil && high.negative {
			from = &limit{high.decimal, high.open}
		}
		if n.integer {
			from = wholeLimit(&limit{decimal{false, from.whole, from.part}, from.open}, 1)
		}
		m := n.magnitudes(from, low)
		list = append(list, sequence{literal("-"), &m.network})
		nodes, err = nodes+len(m.final), errors.Join(err, m.err)
	}
	return list, nodes, err
}

// wholeLimit moves a limit to the next integer that is in, upwards for 1 and downwards
// for -1.
func wholeLimit(l *limit, direction int) *limit {
	if l == nil {
		return nil
	}
	value := l.rat()
	floor := new(big.Int).Div(value.Num(), value.Denom()) // Euclidean: down, as denominators are positive
	exact := value.IsInt()
	one := big.NewInt(1)
	switch {
	case direction > 0 && (!exact || l.open):
		floor.Add(floor, one)
	case direction < 0 && exact && l.open:
		floor.Sub(floor, one)
	}
	return &limit{decimal: decimal{floor.Sign() < 0, new(big.Int).Abs(floor).String(), ""}}
}

// magnitudes matches the numbers from low to high (nil for no bound), signs ignored.
func (n numbers) magnitudes(low, high *limit) *magnitudeNetwork {
	m := &magnitudeNetwork{numbers: n, low: *low, nodes: make(map[digitState]int)}
	longest := max(wholeDigits, len(low.whole))
	if high != nil {
		m.high, m.bounded = *high, true
		longest = len(high.whole)
	}
	if m.places == 0 { // one more digit than a limit has gets past it
		m.places = max(partDigits, len(m.low.part)+1, len(m.high.part)+1)
	}
	start := m.node(false)
	for length := len(low.whole); length <= longest; length++ {
		s := digitState{
			length: length,
			low:    length == len(low.whole),
			high:   m.bounded && length == len(high.whole),
		}
		m.edge(start, m.at(s), nil)
	}
	return m
}

// magnitudeNetwork reads digits from the left and knows whether they equal those of a
// limit so far; once they differ, the limit is kept or not kept for good.
type magnitudeNetwork struct {
	network
	numbers
	low, high limit // of which the signs are ignored
	bounded   bool  // there is a high limit
	nodes     map[digitState]int
	err       error
}

type digitState struct {
	length    int // digits before the point, or 0 after the last of them
	place     int // digits read of these, or after the point
	low, high bool
	point     bool
	rest      int // of what was read, by the modulus
}

func (m *magnitudeNetwork) at(s digitState) int {
	n, ok := m.nodes[s]
	if !ok {
		n = m.node(m.ends(s))
		m.nodes[s] = n
		if len(m.final) > maxAutomaton {
			m.err = &LimitError{"states of a number", maxAutomaton}
			return n
		}
		m.expand(n, s)
	}
	return n
}

// ends reports whether a number may end.
func (m *magnitudeNetwork) ends(s digitState) bool {
	if s.length > 0 || s.point && s.place == 0 || s.rest != 0 {
		return false
	}
	left := func(l limit) string { // digits of the limit that were not compared
		if s.place >= len(l.part) {
			return ""
		}
		return l.part[s.place:]
	}
	if s.low && (left(m.low) != "" || m.low.open) {
		return false
	}
	return !s.high || left(m.high) != "" || !m.high.open
}

func (m *magnitudeNetwork) expand(n int, s digitState) {
	digitOf := func(text string) byte {
		if s.place < len(text) {
			return text[s.place]
		}
		return '0'
	}
	first, last := byte('0'), byte('9')
	switch {
	case s.length > 0:
		if s.place == 0 && s.length > 1 {
			first = '1'
		}
		m.digits(n, s, first, last, digitOf(m.low.whole), digitOf(m.high.whole))
	case s.point:
		if s.place < m.places {
			m.digits(n, s, first, last, digitOf(m.low.part), digitOf(m.high.part))
		}
	case !m.integer:
		m.edge(n, m.at(digitState{point: true, low: s.low, high: s.high}), literal("."))
	}
}

// digits adds the edges of a digit: those that stay beside a limit, and the others.
func (m *magnitudeNetwork) digits(n int, s digitState, first, last, low, high byte) {
	for d := first; d <= last; d++ {
		if s.low && d < low || s.high && d > high {
			continue
		}
		next := s
		next.place++
		next.low = s.low && d == low
		next.high = s.high && d == high
		if m.modulus > 1 {
			next.rest = (s.rest*10 + int(d-'0')) % m.modulus
		}
		if s.length > 0 && next.place == s.length {
			next.length, next.place = 0, 0
		}
		if next.length > 0 && !next.low && !next.high {
			next.length, next.place = next.length-next.place+1, 1 // only what is left matters
		}
		m.edge(n, m.at(next), literal(string(rune(d))))
	}
}
