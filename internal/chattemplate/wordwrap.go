package chattemplate

import "strings"

// filterWordWrap breaks lines at spaces and after hyphens between letters, as
// Python's textwrap does; words longer than the width are cut unless
// break_long_words is off.
func filterWordWrap(r *run, v any, p []any) (any, error) {
	t, ok := v.(*text)
	if !ok {
		return nil, typeErrorf("wordwrap takes a str, not %s", typeName(v))
	}
	width, err := intArg("wordwrap", p[0], 79)
	if err != nil {
		return nil, err
	}
	if width <= 0 {
		return nil, valueErrorf("invalid width %d (must be > 0)", width)
	}
	separator := literal("\n")
	if p[2] != absent && p[2] != nil {
		if separator, err = textArg("wordwrap", p[2]); err != nil {
			return nil, err
		}
	}
	w := wrapper{
		width:   int(min(width, int64(len(t.s))+1)),
		cut:     p[1] == absent || truth(p[1]),
		hyphens: p[3] == absent || truth(p[3]),
	}
	if err := r.alloc(48 * len(t.s)); err != nil {
		return nil, err
	}
	var lines []string
	for _, paragraph := range t.plain().splitLines(false) {
		wrapped := w.wrap(paragraph.s)
		if len(wrapped) == 0 {
			wrapped = []string{""}
		}
		lines = append(lines, wrapped...)
	}
	b := builder{r: r}
	for i, line := range lines {
		if i > 0 {
			if err := b.add(separator); err != nil {
				return nil, err
			}
		}
		if err := b.add(t.plain().derive(line)); err != nil {
			return nil, err
		}
	}
	return b.text(), nil
}

type wrapper struct {
	width        int
	cut, hyphens bool
}

// wrap fills lines with chunks: words, or parts of words, and the space
// between them. Space at a line's ends is dropped, but for the first line's
// beginning.
func (w wrapper) wrap(s string) []string {
	chunks := w.chunks(s)
	var lines []string
	for len(chunks) > 0 {
		if len(lines) > 0 && strings.TrimSpace(chunks[0]) == "" {
			chunks = chunks[1:]
			continue
		}
		var line []string
		size := 0
		for len(chunks) > 0 && fits(chunks[0], w.width-size) {
			line, size = append(line, chunks[0]), size+runeLen(chunks[0])
			chunks = chunks[1:]
		}
		if len(chunks) > 0 && !fits(chunks[0], w.width) {
			line, chunks = w.longWord(line, size, chunks)
		}
		if n := len(line); n > 0 && strings.TrimSpace(line[n-1]) == "" {
			line = line[:n-1]
		}
		if len(line) > 0 {
			lines = append(lines, strings.Join(line, ""))
		}
	}
	return lines
}

// longWord puts what fits of the first chunk, which is longer than a line, on
// the current one.
func (w wrapper) longWord(line []string, size int, chunks []string) ([]string, []string) {
	if !w.cut {
		if len(line) == 0 {
			return chunks[:1], chunks[1:]
		}
		return line, chunks
	}
	room := w.width - size // may be 0: an empty piece then, which shields a space before it
	word := chunks[0]
	at := byteOffset(word, room)
	if w.hyphens {
		if h := strings.LastIndexByte(word[:at], '-'); h > 0 && strings.Trim(word[:h], "-") != "" {
			at = h + 1
		}
	}
	chunks[0] = word[at:]
	return append(line, word[:at]), chunks
}

// fits reports whether s has at most n code points, looking at no more of them.
func fits(s string, n int) bool { return len(s) <= n || byteOffset(s, n) == len(s) }

// chunks splits s into alternating words and spaces, words further after
// hyphens that join letters.
func (w wrapper) chunks(s string) []string {
	var out []string
	start, inSpace := 0, false
	runes := []rune(s)
	flush := func(end int) {
		if end > start {
			out = append(out, string(runes[start:end]))
		}
		start = end
	}
	isBlank := func(c rune) bool { return strings.ContainsRune("\t\n\v\f\r ", c) }
	isLetter := func(i int) bool { return i >= 0 && i < len(runes) && isWordRune(runes[i]) && !isDigit(runes[i]) }
	for i, c := range runes {
		if blank := isBlank(c); blank != inSpace {
			flush(i)
			inSpace = blank
		}
		if w.hyphens && c == '-' && isLetter(i-1) && isLetter(i-2) && isLetter(i+1) && isLetter(i+2) {
			flush(i + 1)
		}
	}
	flush(len(runes))
	return out
}
