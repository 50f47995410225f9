package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// DecodeOptions say how tokens are rendered.
type DecodeOptions struct {
	// Special renders control and unknown tokens as their text; without it they give nothing.
	Special bool
	// Continuation says that the tokens continue a text. Without it they are the
	// beginning of one, and the space that a vocabulary with AddSpacePrefix puts before a
	// text is taken off again.
	Continuation bool
}

// AppendTokenBytes appends the bytes that token id stands for: its text for control,
// unknown and user-defined tokens, nothing for an id outside the vocabulary. They need
// not be whole UTF-8; a character may be spread over several tokens.
func (t *Tokenizer) AppendTokenBytes(dst []byte, id int32) []byte {
	if !t.valid(id) {
		return dst
	}
	text := t.tokens[id]
	switch t.types[id] {
	case Control, Unknown, UserDefined:
		return append(dst, text...)
	case Byte:
		if b, ok := byteText(text); ok {
			return append(dst, b)
		}
	}
	if t.kind == kindByteBPE {
		return appendUnspelled(dst, text)
	}
	for {
		before, after, found := strings.Cut(text, underline)
		dst = append(dst, before...)
		if !found {
			return dst
		}
		dst = append(dst, ' ')
		text = after
	}
}

// TokenBytes returns the bytes that token id stands for. See AppendTokenBytes.
func (t *Tokenizer) TokenBytes(id int32) []byte { return t.AppendTokenBytes(nil, id) }

// byteText reads <0xHH>.
func byteText(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	hi, lo := hexDigit(s[3]), hexDigit(s[4])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}

func hexDigit(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }

// Decode returns exactly the bytes of the tokens. They are valid UTF-8 if whole text was
// encoded; what a model generates need not be, and a Decoder mends that.
func (t *Tokenizer) Decode(ids []int32, o DecodeOptions) string {
	d := rawDecoder{t: t, o: o, begin: !o.Continuation}
	var out []byte
	for _, id := range ids {
		out = d.append(out, id)
	}
	return string(out)
}

// rawDecoder knows what of a token is to be rendered.
type rawDecoder struct {
	t     *Tokenizer
	o     DecodeOptions
	begin bool // no text came yet
}

func (d *rawDecoder) append(dst []byte, id int32) []byte {
	switch d.t.Type(id) {
	case Control, Unknown:
		if d.o.Special {
			dst = d.t.AppendTokenBytes(dst, id)
		}
		return dst
	}
	start := len(dst)
	dst = d.t.AppendTokenBytes(dst, id)
	if d.begin && len(dst) > start {
		d.begin = false
		if d.t.spacePrefix && dst[start] == ' ' && d.t.types[id] != UserDefined {
			dst = append(dst[:start], dst[start+1:]...)
		}
	}
	return dst
}

// A Decoder turns a stream of tokens into text, handing out whole characters only. What
// it returns is always valid UTF-8:
//
//   - the beginning of a character is held back until the rest arrives;
//   - bytes that cannot become a character give U+FFFD as soon as that is certain, one for each maximal part of a character
//     (as in Unicode's section 3.9, and as Rust, and so Hugging Face, does it);
//   - Flush gives one U+FFFD for a beginning whose rest never came.
//
// The zero value is not usable; NewDecoder makes one. It belongs to one goroutine.
type Decoder struct {
	raw rawDecoder
	buf []byte // at most the beginning of one character between calls
}

// NewDecoder returns a Decoder for one text.
func (t *Tokenizer) NewDecoder(o DecodeOptions) *Decoder {
	d := &Decoder{}
	d.raw = rawDecoder{t: t, o: o, begin: !o.Continuation}
	return d
}

// Push adds a token and returns the text that is complete with it, "" if there is none yet.
func (d *Decoder) Push(id int32) string {
	d.buf = d.raw.append(d.buf, id)
	n := completeLen(d.buf)
	text := validString(d.buf[:n])
	d.buf = append(d.buf[:0], d.buf[n:]...)
	return text
}

// Pending is the number of bytes held back, 3 at most.
func (d *Decoder) Pending() int { return len(d.buf) }

// Flush ends the text and returns what was held back of it: "" or U+FFFD. The Decoder is
// then as new, but for a continuation.
func (d *Decoder) Flush() string {
	text := validString(d.buf)
	d.buf = d.buf[:0]
	d.raw.begin = !d.raw.o.Continuation
	return text
}

// completeLen is the length of b without the beginning of a character at its end.
func completeLen(b []byte) int {
	for back := 1; back <= min(3, len(b)); back++ {
		if i := len(b) - back; utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// validString is b with each maximal part of a character that is not one replaced by U+FFFD.
func validString(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = brokenLen(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// brokenLen is the length of the longest beginning of b that also begins a well-formed
// character, 1 at least; b does not begin with a whole one.
func brokenLen(b []byte) int {
	n := 1
	for n < min(3, len(b)) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}
