package tokenizer

import (
	"unicode/utf8"

	"golang.org/x/exp/slices"
	"golang.org/x/text/unicode/norm"
)

// Package norm breaks runs of more than this many non-starters by inserting U+034F, as
// Unicode's stream-safe format wants. Plain normal form C, which models were trained on,
// does not.
const streamSafeRun = 30

// composed returns text in normal form C. Bytes that are not part of well-formed UTF-8
// stay as they are.
func composed(text string) string {
	if isASCII(text) || norm.NFC.IsNormalString(text) {
		return text
	}
	if longestMarkRun(text) < streamSafeRun {
		return norm.NFC.String(text)
	}
	return composeAll(text)
}

// longestMarkRun counts the most non-starters in a row that decomposing text could give.
func longestMarkRun(text string) int {
	longest, run := 0, 0
	for i := 0; i < len(text); {
		p := norm.NFD.PropertiesString(text[i:])
		n := max(p.Size(), 1)
		switch d := p.Decomposition(); {
		case d != nil:
			// A letter with marks, or a mark made of several.
			if norm.NFD.Properties(d).CCC() == 0 {
				run = 0
			}
			run += utf8.RuneCount(d)
		case p.CCC() == 0:
			run = 0
		default:
			run++
		}
		longest = max(longest, run)
		i += n
	}
	return longest
}

// composeAll is normal form C by the book (Unicode, section 3.11): decompose, order the
// marks, compose.
func composeAll(text string) string {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		// A cluster: up to the next starter that nothing before it can compose with.
		end := i + max(norm.NFC.PropertiesString(text[i:]).Size(), 1)
		for end < len(text) {
			p := norm.NFC.PropertiesString(text[end:])
			if p.Size() == 0 || p.BoundaryBefore() {
				break
			}
			end += p.Size()
		}
		out = appendComposed(out, text[i:end])
		i = end
	}
	return string(out)
}

func appendComposed(out []byte, cluster string) []byte {
	if !utf8.ValidString(cluster) || isASCII(cluster) {
		return append(out, cluster...)
	}
	type char struct {
		r   rune
		ccc uint8
	}
	var chars []char
	for _, r := range cluster {
		s := string(r)
		d := norm.NFD.String(s) // one character never comes near the stream-safe limit
		for _, r := range d {
			chars = append(chars, char{r, norm.NFD.PropertiesString(string(r)).CCC()})
		}
	}
	for i := 0; i < len(chars); {
		end := i
		for end < len(chars) && chars[end].ccc != 0 {
			end++
		}
		slices.SortStableFunc(chars[i:end], func(a, b char) int { return int(a.ccc) - int(b.ccc) })
		i = end + 1
	}
	starter := -1
	kept := chars[:0]
	for _, c := range chars {
		if starter >= 0 {
			last := kept[len(kept)-1]
			adjacent := len(kept)-1 == starter
			if adjacent || last.ccc != 0 && last.ccc < c.ccc {
				if r, ok := composePair(kept[starter].r, c.r); ok {
					kept[starter].r = r
					continue
				}
			}
		}
		kept = append(kept, c)
		if c.ccc == 0 {
			starter = len(kept) - 1
		}
	}
	for _, c := range kept {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

// composePair returns the character that a and b compose to, if there is one.
func composePair(a, b rune) (rune, bool) {
	pair := utf8.AppendRune(utf8.AppendRune(nil, a), b)
	s := norm.NFC.Bytes(pair)
	r, n := utf8.DecodeRune(s)
	return r, n == len(s)
}
