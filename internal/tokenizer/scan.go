package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A scanner cuts the first piece off s, which is not empty, and returns its length, 1 at
// least. Calling it on the rest over and over takes time linear in the text: a scanner
// looks at no character more than a fixed number of times, except that it may look once
// more at the part it did not take.
//
// The comments give the regular expression that a scanner stands for, in the dialect of
// Hugging Face's tokenizer.json.
type scanner func(s string) int

// isolate makes a scanner out of a matcher, which returns the end of its match at s[i:],
// or i if there is none there. Matches are pieces, and so is each stretch between them
// (Hugging Face's Split with behaviour "isolated"). The matcher must refuse in constant
// time.
func isolate(match func(s string, i int) int) scanner {
	return func(s string) int {
		if end := match(s, 0); end > 0 {
			return end
		}
		_, i := runeAt(s, 0)
		for i < len(s) && match(s, i) == i {
			_, n := runeAt(s, i)
			i += n
		}
		return i
	}
}

// contraction returns the length of an English contraction at the start of s, or 0:
// 's|'t|'re|'ve|'m|'ll|'d, without regard to case if fold is set.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	at := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		c := s[i]
		if fold && 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	switch a, b := at(1), at(2); {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	}
	return 0
}

// whiteSpace matches `\s+(?!\S)|\s+` at the start of s, which is white space: the whole
// run at the end of the text, else all but its last character, so that a single space
// stays with the word that follows. With lines set it tries `\s*[\r\n]+` first.
func whiteSpace(s string, lines bool) int {
	end, last, newline := 0, 0, 0
	for end < len(s) {
		c, n := classAt(s, end)
		if c&space == 0 {
			break
		}
		if s[end] == '\r' || s[end] == '\n' {
			newline = end + 1
		}
		last = end
		end += n
	}
	switch {
	case lines && newline > 0:
		return newline
	case end == len(s) || last == 0:
		return end
	}
	return last
}

// digits returns the end of the run of at most max numbers (0: no limit) at the start of s.
func digits(s string, max int) int {
	end := 0
	for n := 0; n < max || max == 0; n++ {
		c, size := classAt(s, end)
		if c&number == 0 {
			break
		}
		end += size
	}
	return end
}

// skipAny returns the end of the run of bytes from set that begins at i.
func skipAny(s string, i int, set string) int {
	for i < len(s) && strings.IndexByte(set, s[i]) >= 0 {
		i++
	}
	return i
}

// scanGPT2 stands for
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func scanGPT2(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	start := 0
	if s[0] == ' ' {
		start = 1
	}
	switch c, n := classAt(s, start); {
	case n == 0 || c&space != 0:
		return whiteSpace(s, false)
	case c&letter != 0:
		return skip(s, start, letter)
	case c&number != 0:
		return skip(s, start, number)
	}
	return skipNot(s, start, space|letter|number)
}

// wordRules are the patterns of the family
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
type wordRules struct {
	contractions bool
	digits       int    // longest run of numbers, 0 for any
	word         class  // what words are made of: letter, or letter|mark
	phrases      bool   // a word goes on over marks, and over a single space before a letter
	tail         string // what may follow a run of punctuation
	tailMax      int    // how much of it, 0 for any
}

func (r wordRules) scan(s string) int {
	if r.contractions {
		if n := contraction(s, true); n > 0 {
			return n
		}
	}
	c, n := classAt(s, 0)
	if c&r.word != 0 {
		return r.words(s, 0)
	}
	if c&number != 0 {
		return digits(s, r.digits)
	}
	if s[0] != '\r' && s[0] != '\n' && c&letter == 0 {
		if next, _ := classAt(s, n); next&r.word != 0 {
			return r.words(s, n)
		}
	}
	start := 0
	if s[0] == ' ' {
		start = 1
	}
	if end := skipNot(s, start, space|number|r.word); end > start {
		tail := skipAny(s, end, r.tail)
		if r.tailMax > 0 {
			tail = min(tail, end+r.tailMax)
		}
		return tail
	}
	return whiteSpace(s, true)
}

// words returns the end of \p{L}+ at i, or with phrases that of (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+.
func (r wordRules) words(s string, i int) int {
	i = skip(s, i, r.word)
	if !r.phrases {
		return i
	}
	for {
		i = skip(s, i, letter|mark)
		if i >= len(s) || s[i] != ' ' {
			return i
		}
		if c, _ := classAt(s, i+1); c&letter == 0 {
			return i
		}
		i++
	}
}

// caseRules are the patterns of the family that splits words where the case rises:
//
//	[^\r\n\p{L}\p{N}]?U*W+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?U+W*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//	\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// with U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and W = [\p{Ll}\p{Lm}\p{Lo}\p{M}].
type caseRules struct {
	contractions bool
	digits       int
	tail         string
	apartHan     bool // [\p{Han}]+ comes first, and no word contains Han
}

const (
	riseClass = upper | other | mark // U above
	restClass = lower | other | mark // W above
)

func (r caseRules) class(s string, i int) (class, int) {
	c, n := classAt(s, i)
	if r.apartHan && c&other != 0 {
		if v, _ := runeAt(s, i); unicode.Is(unicode.Han, v) {
			return 0, n
		}
	}
	return c, n
}

func (r caseRules) skip(s string, i int, set class) int {
	for {
		c, n := r.class(s, i)
		if c&set == 0 {
			return i
		}
		i += n
	}
}

func (r caseRules) scan(s string) int {
	if r.apartHan {
		if end := skipHan(s); end > 0 {
			return end
		}
	}
	c, n := classAt(s, 0)
	bare := c&(letter|number) != 0 || s[0] == '\r' || s[0] == '\n' // no character may stand before the word
	end := 0
	if !bare {
		end = r.mixed(s, n)
	}
	if end == 0 {
		end = r.mixed(s, 0)
	}
	if end == 0 && !bare {
		end = r.rising(s, n)
	}
	if end == 0 {
		end = r.rising(s, 0)
	}
	if end > 0 {
		if r.contractions {
			end += contraction(s[end:], true)
		}
		return end
	}
	if c&number != 0 {
		return digits(s, r.digits)
	}
	start := 0
	if s[0] == ' ' {
		start = 1
	}
	if end := skipNot(s, start, space|letter|number); end > start {
		return skipAny(s, end, r.tail)
	}
	return whiteSpace(s, true)
}

// mixed returns the end of U*W+ at i, or 0. U* takes all it can; if no W follows, it
// gives back up to the last character that is in both sets, which is then all that W+ can
// match.
func (r caseRules) mixed(s string, i int) int {
	both := 0
	for {
		c, n := r.class(s, i)
		if c&riseClass == 0 {
			break
		}
		i += n
		if c&restClass != 0 {
			both = i
		}
	}
	if c, _ := r.class(s, i); c&restClass != 0 {
		return r.skip(s, i, restClass)
	}
	return both
}

// rising returns the end of U+W* at i, or 0.
func (r caseRules) rising(s string, i int) int {
	end := r.skip(s, i, riseClass)
	if end == i {
		return 0
	}
	return r.skip(s, end, restClass)
}

// skipHan returns the end of [\p{Han}]+ at the start of s, or 0.
func skipHan(s string) int {
	i := 0
	for {
		v, n := runeAt(s, i)
		if n == 0 || v < 0x2E80 || !unicode.Is(unicode.Han, v) {
			return i
		}
		i += n
	}
}

// matchPunctuated stands for
//
//	[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// whose alternatives do not cover controls and unassigned characters. With single set the
// last lines are [\r\n]|\s+(?!\S)|\s+ and punctuation takes no line end.
func matchPunctuated(single bool) func(s string, i int) int {
	return func(s string, i int) int {
		c, n := classAt(s, i)
		b := s[i]
		if b < utf8.RuneSelf && c&(punct|symbol) != 0 {
			end := i + 1
			for end < len(s) && s[end] < utf8.RuneSelf && ascii[s[end]]&letter != 0 {
				end++
			}
			if end > i+1 {
				return end
			}
		}
		if b != '\r' && b != '\n' && c&(letter|punct|symbol) == 0 {
			if end := skip(s, i+n, letter|mark); end > i+n {
				return end
			}
		}
		if end := skip(s, i, letter|mark); end > i {
			return end
		}
		start := i
		if b == ' ' {
			start++
		}
		if end := skip(s, start, punct|symbol); end > start {
			if single {
				return end
			}
			return skipAny(s, end, "\r\n")
		}
		switch {
		case c&space == 0:
			return i
		case single && (b == '\r' || b == '\n'):
			return i + 1
		}
		return i + whiteSpace(s[i:], !single)
	}
}

// scanLines stands for [^\n]+|[\n]+.
func scanLines(s string) int {
	if s[0] != '\n' {
		if end := strings.IndexByte(s, '\n'); end > 0 {
			return end
		}
		return len(s)
	}
	return skipAny(s, 0, "\n")
}

// scanNumber1 and scanNumber3 stand for \p{N} and \p{N}{1,3}, isolated.
func scanNumber1(s string) int { return scanNumbers(s, 1) }
func scanNumber3(s string) int { return scanNumbers(s, 3) }

// scanNumberRun stands for \p{N}+, isolated.
func scanNumberRun(s string) int { return scanNumbers(s, 0) }

func scanNumbers(s string, max int) int {
	if end := digits(s, max); end > 0 {
		return end
	}
	return skipNot(s, 0, number)
}

// scanGroups isolates runs of numbers, and cuts off what must stand before the rest so
// that the rest is in groups of three counted from the right. scanThrees cuts that rest:
// knowing the length of a run at every group of it would take quadratic time.
func scanGroups(s string) int {
	if end := skip(s, 0, number); end > 0 {
		return leadingGroup(s, end)
	}
	return skipNot(s, 0, number)
}

// scanWordEndGroups stands, together with scanThrees, for \d{1,3}(?=(?:\d{3})*\b),
// isolated: as scanGroups, but only decimal digits, and only in runs that no word
// character follows.
func scanWordEndGroups(s string) int {
	end := skipDecimals(s, 0)
	if end > 0 && !wordFollows(s, end) {
		return leadingGroup(s, end)
	}
	for end < len(s) {
		if next := skipDecimals(s, end); next > end {
			if !wordFollows(s, next) {
				return end
			}
			end = next
			continue
		}
		_, n := runeAt(s, end)
		end += n
	}
	return end
}

// leadingGroup returns the end of the one or two characters of the run s[:end] that are
// too many for threes, or end if there are none.
func leadingGroup(s string, end int) int {
	over := utf8.RuneCountInString(s[:end]) % 3
	if over == 0 {
		return end
	}
	return skipRunes(s, over)
}

// scanThrees cuts the runs of whole groups that the scanner before it left; they are the
// pieces that end in a number.
func scanThrees(s string) int {
	if last, _ := utf8.DecodeLastRuneInString(s); !unicode.IsNumber(last) {
		return len(s)
	}
	return skipRunes(s, 3)
}

// scanWordEndThrees is scanThrees for decimal digits: after scanWordEndGroups a piece
// that ends in one is a run of them.
func scanWordEndThrees(s string) int {
	if last, _ := utf8.DecodeLastRuneInString(s); !unicode.IsDigit(last) {
		return len(s)
	}
	return skipRunes(s, 3)
}

// skipRunes returns the end of the first n characters of s.
func skipRunes(s string, n int) int {
	i := 0
	for range n {
		_, size := runeAt(s, i) // 0 at the end
		i += size
	}
	return i
}

func skipDecimals(s string, i int) int {
	for {
		v, n := runeAt(s, i)
		if n == 0 || !unicode.IsDigit(v) {
			return i
		}
		i += n
	}
}

func wordFollows(s string, i int) bool {
	v, n := runeAt(s, i)
	return n > 0 && (unicode.IsLetter(v) || unicode.IsMark(v) || unicode.IsDigit(v) || unicode.In(v, unicode.Nl, unicode.Pc))
}

// scanASCIITriples stands for [0-9][0-9][0-9], isolated.
var scanASCIITriples = isolate(func(s string, i int) int {
	if i+3 > len(s) {
		return i
	}
	for _, c := range []byte(s[i : i+3]) {
		if c < '0' || c > '9' {
			return i
		}
	}
	return i + 3
})

// scanMarks stands for [\p{P}ASCII]+, isolated, where ASCII are the symbols that some
// patterns count as punctuation.
func scanMarks(symbols string) scanner {
	in := func(s string, i int) (bool, int) {
		c, n := classAt(s, i)
		return c&punct != 0 || n == 1 && strings.IndexByte(symbols, s[i]) >= 0, n
	}
	return func(s string) int {
		want, i := in(s, 0)
		for i < len(s) {
			got, n := in(s, i)
			if got != want {
				break
			}
			i += n
		}
		return i
	}
}

// scanBreak stands for [\r\n], isolated.
func scanBreak(s string) int {
	if s[0] == '\r' || s[0] == '\n' {
		return 1
	}
	if end := strings.IndexAny(s, "\r\n"); end > 0 {
		return end
	}
	return len(s)
}

// scanTrailingSpace stands for \s+$, isolated.
func scanTrailingSpace(s string) int {
	if end := len(strings.TrimRightFunc(s, unicode.IsSpace)); end > 0 {
		return end
	}
	return len(s)
}

// scanSpaced stands for \s?SET+, isolated.
func scanSpaced(in func(rune) bool) scanner {
	return isolate(func(s string, i int) int {
		start := i
		if v, n := runeAt(s, i); !in(v) && unicode.IsSpace(v) {
			start += n
		}
		if end := skipFunc(s, start, in); end > start {
			return end
		}
		return i
	})
}

// scanSet stands for SET+, isolated.
func scanSet(in func(rune) bool) scanner {
	return isolate(func(s string, i int) int { return skipFunc(s, i, in) })
}

func skipFunc(s string, i int, in func(rune) bool) int {
	for i < len(s) {
		v, n := runeAt(s, i)
		if !in(v) {
			break
		}
		i += n
	}
	return i
}

// scanClause stands for ` ?[^(\s|.,!?…。，、।۔،)]+`, isolated.
var scanClause = isolate(func(s string, i int) int {
	start := i
	if s[i] == ' ' {
		start++
	}
	end := skipFunc(s, start, func(v rune) bool {
		return !unicode.IsSpace(v) && !strings.ContainsRune("(|.,!?…。，、।۔،)", v)
	})
	if end == start {
		return i
	}
	return end
})

// scanCascade cuts a piece that is a run of white space without line ends into lengths of
// 512, 256, 128 .. 4, 2 and 1 characters, the longest first. It follows whiteSpace, whose
// pieces are such a run if their first and last characters are white space and the last
// ends no line.
func scanCascade(s string) int {
	last, n := utf8.DecodeLastRuneInString(s)
	first, _ := runeAt(s, 0)
	if !unicode.IsSpace(first) || !unicode.IsSpace(last) || n == 1 && (last == '\r' || last == '\n') {
		return len(s)
	}
	ends := make([]int, 0, 16) // ends[k] is where the first 1<<k characters end
	i := 0
	for count := 1; count <= 512 && i < len(s); count++ {
		_, n := runeAt(s, i)
		i += n
		if count&(count-1) == 0 {
			ends = append(ends, i)
		}
	}
	return ends[len(ends)-1]
}
