package grammar

import (
	"slices"
	"unicode/utf8"
)

// runeRange is the characters from lo to hi, both included.
type runeRange struct{ lo, hi rune }

// runeSet is a set of Unicode scalar values: ranges in ascending order, which neither
// overlap nor touch, without surrogates.
type runeSet []runeRange

const (
	surrogateMin = 0xD800
	surrogateMax = 0xDFFF
)

var anyRune = runeSet{{0, surrogateMin - 1}, {surrogateMax + 1, utf8.MaxRune}}

// newRuneSet makes a set of ranges in any order.
func newRuneSet(ranges ...runeRange) runeSet {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b runeRange) int { return int(a.lo - b.lo) })
	var set runeSet
	for _, r := range ranges {
		if n := len(set); n > 0 && r.lo <= set[n-1].hi+1 {
			set[n-1].hi = max(set[n-1].hi, r.hi)
		} else {
			set = append(set, r)
		}
	}
	return set.intersect(anyRune)
}

func oneRune(r rune) runeSet { return newRuneSet(runeRange{r, r}) }

func (s runeSet) intersect(t runeSet) runeSet {
	var out runeSet
	for i, j := 0, 0; i < len(s) && j < len(t); {
		lo, hi := max(s[i].lo, t[j].lo), min(s[i].hi, t[j].hi)
		if lo <= hi {
			out = append(out, runeRange{lo, hi})
		}
		if s[i].hi < t[j].hi {
			i++
		} else {
			j++
		}
	}
	return out
}

func (s runeSet) negate() runeSet {
	var out runeSet
	next := rune(0)
	for _, r := range s {
		if next < r.lo {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= utf8.MaxRune {
		out = append(out, runeRange{next, utf8.MaxRune})
	}
	return out.intersect(anyRune)
}

func (s runeSet) minus(t runeSet) runeSet { return s.intersect(t.negate()) }

func (s runeSet) contains(r rune) bool {
	i, found := slices.BinarySearchFunc(s, r, func(e runeRange, r rune) int {
		switch {
		case e.hi < r:
			return -1
		case e.lo > r:
			return 1
		}
		return 0
	})
	return found && i < len(s)
}

// key is equal for equal sets only.
func (s runeSet) key() string {
	b := make([]byte, 0, 8*len(s))
	for _, r := range s {
		b = append(b, byte(r.lo), byte(r.lo>>8), byte(r.lo>>16), byte(r.hi), byte(r.hi>>8), byte(r.hi>>16))
	}
	return string(b)
}

// byteRange is the bytes from lo to hi, both included.
type byteRange struct{ lo, hi byte }

// utf8Sequences spells a set as sequences of byte ranges: a text is the encoding of a
// character of the set exactly if it matches one of them, and it never matches two.
func (s runeSet) utf8Sequences() [][]byteRange {
	var out [][]byteRange
	for _, r := range s {
		out = appendUTF8(out, r.lo, r.hi)
	}
	return out
}

// appendUTF8 cuts a range where the length of the encoding changes, and then where its
// continuation bytes do not run through all their values.
func appendUTF8(out [][]byteRange, lo, hi rune) [][]byteRange {
	for _, last := range [...]rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= last && last < hi {
			return appendUTF8(appendUTF8(out, lo, last), last+1, hi)
		}
	}
	if hi > 0x7F {
		for bits := 6; bits < 6*utf8.RuneLen(hi); bits += 6 {
			low := rune(1)<<bits - 1
			if lo&^low == hi&^low {
				break
			}
			if lo&low != 0 {
				return appendUTF8(appendUTF8(out, lo, lo|low), lo|low+1, hi)
			}
			if hi&low != low {
				return appendUTF8(appendUTF8(out, lo, hi&^low-1), hi&^low, hi)
			}
		}
	}
	var a, b [utf8.UTFMax]byte
	n := utf8.EncodeRune(a[:], lo)
	utf8.EncodeRune(b[:], hi)
	sequence := make([]byteRange, n)
	for i := range sequence {
		sequence[i] = byteRange{a[i], b[i]}
	}
	return append(out, sequence)
}
