package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is a set of the character classes that pre-tokenizer patterns speak of. Every
// code point has at most one of them; unassigned ones, controls and formats have none.
type class uint8

const (
	upper  class = 1 << iota // \p{Lu} \p{Lt}
	lower                    // \p{Ll}
	other                    // \p{Lm} \p{Lo}
	mark                     // \p{M}
	number                   // \p{N}
	punct                    // \p{P}
	symbol                   // \p{S}
	space                    // \s, the property White_Space

	letter = upper | lower | other
)

// classTable maps code points to classes by pages of 256; equal pages are stored once, which leaves
// about 60 KB of the 1.1 million entries.
type classTable struct {
	page  [(unicode.MaxRune + 1) >> 8]uint16
	pages [][256]class
}

// classes is built on first use, so that programs that never tokenize do not pay for it.
var classes = sync.OnceValue(func() *classTable {
	flat := make([]class, unicode.MaxRune+1)
	paint := func(c class, tables ...*unicode.RangeTable) {
		for _, t := range tables {
			for _, r := range t.R16 {
				for v := uint32(r.Lo); v <= uint32(r.Hi); v += uint32(r.Stride) {
					flat[v] = c
				}
			}
			for _, r := range t.R32 {
				for v := r.Lo; v <= r.Hi; v += r.Stride {
					flat[v] = c
				}
			}
		}
	}
	paint(upper, unicode.Lu, unicode.Lt)
	paint(lower, unicode.Ll)
	paint(other, unicode.Lm, unicode.Lo)
	paint(mark, unicode.M)
	paint(number, unicode.N)
	paint(punct, unicode.P)
	paint(symbol, unicode.S)
	paint(space, unicode.White_Space)

	t := new(classTable)
	seen := map[[256]class]uint16{}
	for i := range t.page {
		page := [256]class(flat[i<<8:])
		n, ok := seen[page]
		if !ok {
			n = uint16(len(t.pages))
			seen[page] = n
			t.pages = append(t.pages, page)
		}
		t.page[i] = n
	}
	return t
})

// ascii repeats the first 128 entries where they are reached without a pointer.
var ascii = func() (a [utf8.RuneSelf]class) {
	for i := range a {
		switch r := rune(i); {
		case unicode.IsUpper(r):
			a[i] = upper
		case unicode.IsLower(r):
			a[i] = lower
		case unicode.IsDigit(r):
			a[i] = number
		case unicode.IsPunct(r):
			a[i] = punct
		case unicode.IsSymbol(r):
			a[i] = symbol
		case unicode.IsSpace(r):
			a[i] = space
		}
	}
	return a
}()

func (t *classTable) of(r rune) class { return t.pages[t.page[r>>8]][r&0xFF] }

// classAt is the class of the character at s[i] and its length in bytes, which is 0 at
// the end of s. A byte that is not part of well-formed UTF-8 counts as one U+FFFD, a
// symbol.
func classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return classes().of(r), n
}

// runeAt is the character at s[i] and its length in bytes, which is 0 at the end of s.
func runeAt(s string, i int) (rune, int) {
	if i >= len(s) {
		return utf8.RuneError, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRuneInString(s[i:])
}

// skip returns the end of the run of characters of set that begins at i.
func skip(s string, i int, set class) int {
	for i < len(s) {
		c, n := classAt(s, i)
		if c&set == 0 {
			break
		}
		i += n
	}
	return i
}

// skipNot returns the end of the run of characters outside set that begins at i.
func skipNot(s string, i int, set class) int {
	for i < len(s) {
		c, n := classAt(s, i)
		if c&set != 0 {
			break
		}
		i += n
	}
	return i
}
