package chattemplate

import (
	"html"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Span is a range of bytes, End exclusive.
type Span struct{ Start, End int }

// text is the string of the template language. It remembers which of its bytes
// came from untrusted values: all of them (tainted), or the sorted disjoint
// marks, or none. Operations that move bytes unchanged move the marks with
// them; an operation that computes new bytes from tainted ones taints them all.
//
// safe is jinja's Markup: joining a safe text to another string escapes that
// other for HTML. Templates use the safe filter without meaning this, and the
// escapes are part of the prompt the model was trained on.
type text struct {
	s       string
	marks   []Span
	tainted bool
	safe    bool
}

var emptyText = &text{}

func literal(s string) *text { return &text{s: s} }

// untrusted reports whether any byte of t is.
func (t *text) untrusted() bool { return t.tainted || len(t.marks) > 0 }

// derive makes a text whose bytes were computed from t's.
func (t *text) derive(s string) *text {
	return &text{s: s, tainted: t.untrusted() && s != "", safe: t.safe}
}

// plain is t without the safe flag.
func (t *text) plain() *text {
	if !t.safe {
		return t
	}
	c := *t
	c.safe = false
	return &c
}

func (t *text) markup() *text {
	if t.safe {
		return t
	}
	c := *t
	c.safe = true
	return &c
}

// slice is the bytes from i to j.
func (t *text) slice(i, j int) *text {
	if i == 0 && j == len(t.s) {
		return t
	}
	if i == j && !t.safe {
		return emptyText
	}
	c := &text{s: t.s[i:j], tainted: t.tainted, safe: t.safe}
	first := sort.Search(len(t.marks), func(k int) bool { return t.marks[k].End > i })
	for _, m := range t.marks[first:] {
		if m.Start >= j {
			break
		}
		c.marks = append(c.marks, Span{max(m.Start, i) - i, min(m.End, j) - i})
	}
	return c
}

// byteOffset returns where the code point number n begins, counting from
// from; len(s) when there are no more than n.
func byteOffset(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

func runeLen(s string) int { return utf8.RuneCountInString(s) }

// sliceRunes is the code points from i to j, which must be ordered and in range.
func (t *text) sliceRunes(i, j int) *text {
	start := byteOffset(t.s, i)
	return t.slice(start, start+byteOffset(t.s[start:], j-i))
}

// mapPieces applies f, which must treat neighbouring bytes independently, to
// each stretch of equal trust, so that the marks stay exact.
func (t *text) mapPieces(r *run, f func(string) string) (*text, error) {
	if err := r.alloc(len(t.s)); err != nil {
		return nil, err
	}
	if err := r.scan(len(t.s)); err != nil {
		return nil, err
	}
	if len(t.marks) == 0 {
		return &text{s: f(t.s), tainted: t.tainted, safe: t.safe}, nil
	}
	b := builder{r: r}
	at := 0
	for _, m := range t.marks {
		if err := b.add(literal(f(t.s[at:m.Start]))); err != nil {
			return nil, err
		}
		if err := b.add(&text{s: f(t.s[m.Start:m.End]), tainted: true}); err != nil {
			return nil, err
		}
		at = m.End
	}
	if err := b.add(literal(f(t.s[at:]))); err != nil {
		return nil, err
	}
	out := b.text()
	out.safe = t.safe
	return out, nil
}

// escapeHTML is markupsafe's escape.
func (t *text) escapeHTML(r *run) (*text, error) {
	if t.safe {
		return t, nil
	}
	if !strings.ContainsAny(t.s, `&<>"'`) {
		return t.markup(), nil
	}
	out, err := t.mapPieces(r, html.EscapeString)
	if err != nil {
		return nil, err
	}
	return out.markup(), nil
}

// concat is a + b with the escaping of safe texts.
func concat(r *run, a, b *text) (*text, error) {
	safe := a.safe || b.safe
	if safe {
		var err error
		if a, err = a.escapeHTML(r); err != nil {
			return nil, err
		}
		if b, err = b.escapeHTML(r); err != nil {
			return nil, err
		}
	}
	out := builder{r: r}
	out.grow(len(a.s) + len(b.s))
	if err := out.add(a); err != nil {
		return nil, err
	}
	if err := out.add(b); err != nil {
		return nil, err
	}
	t := out.text()
	t.safe = safe
	return t, nil
}

// builder joins texts under the run's memory budget.
type builder struct {
	r     *run
	buf   []byte
	marks []Span
	limit int64 // of bytes; 0 for none but the memory's
}

// grow makes room, as long as the room is affordable at all.
func (b *builder) grow(n int) {
	if n > 0 && int64(n) < b.r.memLeft() {
		b.buf = make([]byte, 0, n)
	}
}

func (b *builder) add(t *text) error {
	if err := b.r.alloc(len(t.s)); err != nil {
		return err
	}
	if b.limit > 0 && int64(len(b.buf)+len(t.s)) > b.limit {
		return limitError("output bytes", b.limit)
	}
	at := len(b.buf)
	b.buf = append(b.buf, t.s...)
	if t.tainted {
		b.mark(at, len(b.buf))
	}
	for _, m := range t.marks {
		b.mark(at+m.Start, at+m.End)
	}
	return nil
}

func (b *builder) addString(s string) error {
	if err := b.r.alloc(len(s)); err != nil {
		return err
	}
	b.buf = append(b.buf, s...)
	return nil
}

func (b *builder) mark(start, end int) {
	if start == end {
		return
	}
	if n := len(b.marks); n > 0 && b.marks[n-1].End == start {
		b.marks[n-1].End = end
		return
	}
	b.marks = append(b.marks, Span{start, end})
}

func (b *builder) text() *text {
	t := &text{s: string(b.buf), marks: b.marks}
	if len(t.marks) == 1 && t.marks[0] == (Span{0, len(t.s)}) {
		t.marks, t.tainted = nil, true
	}
	return t
}

// isSpace is Python's str.isspace for one code point.
func isSpace(c rune) bool { return unicode.IsSpace(c) || 0x1c <= c && c <= 0x1f }

// lineEnd returns the length of the line break at s[i:], as str.splitlines
// understands them, or 0.
func lineEnd(s string, i int) int {
	switch c := s[i]; {
	case c == '\r' && i+1 < len(s) && s[i+1] == '\n':
		return 2
	case '\n' <= c && c <= '\r', 0x1c <= c && c <= 0x1e:
		return 1
	case c < utf8.RuneSelf:
		return 0
	}
	c, n := utf8.DecodeRuneInString(s[i:])
	if c == 0x85 || c == 0x2028 || c == 0x2029 {
		return n
	}
	return 0
}

// splitLines cuts t at line breaks, kept only where keep is set.
func (t *text) splitLines(keep bool) []*text {
	var lines []*text
	start := 0
	for i := 0; i < len(t.s); {
		n := lineEnd(t.s, i)
		if n == 0 {
			i++
			continue
		}
		end := i
		if keep {
			end += n
		}
		lines = append(lines, t.slice(start, end))
		i += n
		start = i
	}
	if start < len(t.s) {
		lines = append(lines, t.slice(start, len(t.s)))
	}
	return lines
}

// trimWhere drops leading (left) and trailing (right) code points that cut accepts.
func (t *text) trimWhere(left, right bool, cut func(rune) bool) *text {
	i, j := 0, len(t.s)
	if left {
		i = len(t.s) - len(strings.TrimLeftFunc(t.s, cut))
	}
	if right && i < j {
		j = i + len(strings.TrimRightFunc(t.s[i:], cut))
	}
	return t.slice(i, j)
}
