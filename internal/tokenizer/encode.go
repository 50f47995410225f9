package tokenizer

import (
	"context"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EncodeOptions say what the tokens of a text are to contain besides the text.
type EncodeOptions struct {
	// AddSpecial adds BOS and EOS as the model wants them (AddBOS, AddEOS). A sequence
	// that begins with a parsed BOS, or ends with a parsed EOS, gets no second one.
	AddSpecial bool
	// ParseSpecial turns the texts of control tokens, such as <|im_end|>, into those
	// tokens. Never set it for text from outside without marking that as untrusted.
	ParseSpecial bool
}

// A Span is the part [Start, End) of a text, in bytes.
type Span struct{ Start, End int }

// A Segment is a part of a text. Special tokens are never recognised in, or reaching
// into, one that is not trusted.
type Segment struct {
	Text    string
	Trusted bool
}

// Encode returns the tokens of text. The error is a *EncodeError for a vocabulary that
// cannot express the text, else nil.
func (t *Tokenizer) Encode(text string, o EncodeOptions) ([]int32, error) {
	return t.AppendEncode(context.Background(), nil, text, nil, o)
}

// EncodeContext is Encode that ends with ctx.Err() soon after ctx is done.
func (t *Tokenizer) EncodeContext(ctx context.Context, text string, o EncodeOptions) ([]int32, error) {
	return t.AppendEncode(ctx, nil, text, nil, o)
}

// EncodeSegments encodes the text that the segments make up together. Pieces and merges
// run across their borders: a chat template may end in the middle of a word that the
// user's text goes on with.
func (t *Tokenizer) EncodeSegments(ctx context.Context, segments []Segment, o EncodeOptions) ([]int32, error) {
	var text strings.Builder
	var untrusted []Span
	for _, s := range segments {
		start := text.Len()
		text.WriteString(s.Text)
		if !s.Trusted {
			untrusted = append(untrusted, Span{start, text.Len()})
		}
	}
	return t.AppendEncode(ctx, nil, text.String(), untrusted, o)
}

// AppendEncode appends the tokens of text to dst. In the untrusted spans of text, which
// must be in ascending order and must not overlap, special tokens are plain text. On an
// error dst is returned as it was.
func (t *Tokenizer) AppendEncode(ctx context.Context, dst []int32, text string, untrusted []Span, o EncodeOptions) ([]int32, error) {
	spans, err := checkSpans(text, untrusted)
	if err != nil {
		return dst, err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if err := ctx.Err(); err != nil {
		return dst, err
	}
	e := t.scratch.Get().(*encoder)
	e.t, e.ctx, e.done = t, ctx, 0
	defer func() {
		e.ctx = nil
		t.scratch.Put(e)
	}()
	out, err := e.encode(dst, text, spans, o)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// checkSpans returns the spans that are not empty.
func checkSpans(text string, spans []Span) ([]Span, error) {
	at, kept := 0, spans[:0:0]
	for _, s := range spans {
		if s.Start < at || s.End < s.Start || s.End > len(text) {
			return nil, fmt.Errorf("tokenizer: untrusted span [%d, %d) of a text of %d bytes; spans must be in order and within it", s.Start, s.End, len(text))
		}
		at = s.End
		if s.Start < s.End {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

func (e *encoder) encode(dst []int32, text string, untrusted []Span, o EncodeOptions) ([]int32, error) {
	t := e.t
	first := len(dst)
	addBOS, addEOS := o.AddSpecial && t.addBOS, o.AddSpecial && t.addEOS
	if addBOS {
		dst = append(dst, t.BOS())
	}
	afterSpecial, lastSpecial := true, None // SentencePiece puts its space after special tokens too
	for at := 0; at < len(text); {
		for len(untrusted) > 0 && untrusted[0].End <= at {
			untrusted = untrusted[1:]
		}
		id, start, end := t.special.next(text, at, o.ParseSpecial, untrusted)
		stop := start
		if id != None && t.lstrip != nil && t.lstrip[id] {
			stop = at + len(strings.TrimRightFunc(text[at:start], unicode.IsSpace))
		}
		if stop > at {
			var err error
			if dst, err = e.appendText(dst, text[at:stop], afterSpecial); err != nil {
				return dst, err
			}
			afterSpecial, lastSpecial = false, None
		}
		at = end
		if id == None {
			break
		}
		if !(addBOS && id == t.BOS() && len(dst) == first+1 && lastSpecial == None) {
			dst = append(dst, id)
		}
		afterSpecial, lastSpecial = true, id
		if t.rstrip != nil && t.rstrip[id] {
			at = len(text) - len(strings.TrimLeftFunc(text[at:], unicode.IsSpace))
		}
	}
	if addEOS && (lastSpecial == None || lastSpecial != t.EOS()) {
		dst = append(dst, t.EOS())
	}
	return dst, nil
}

// appendText appends the tokens of a stretch of text without special tokens.
func (e *encoder) appendText(dst []int32, text string, afterSpecial bool) ([]int32, error) {
	t := e.t
	switch {
	case t.nfc:
		text = composed(text)
	case t.kind == kindSPM && t.spacePrefix && afterSpecial:
		text = underline + strings.ReplaceAll(text, " ", underline)
	case t.kind != kindByteBPE:
		text = strings.ReplaceAll(text, " ", underline)
	}
	if len(text) > math.MaxInt32 {
		return dst, fmt.Errorf("tokenizer: %d bytes without a special token; the limit is %d", len(text), math.MaxInt32)
	}
	return e.appendPieces(dst, text, t.scanners)
}

// appendPieces cuts text by the first scanner, its pieces by the next, and appends the
// tokens of what the last one leaves.
func (e *encoder) appendPieces(dst []int32, text string, scanners []scanner) ([]int32, error) {
	var err error
	for len(text) > 0 {
		n := scanners[0](text)
		if len(scanners) == 1 {
			dst, err = e.appendPiece(dst, text[:n])
		} else {
			dst, err = e.appendPieces(dst, text[:n], scanners[1:])
		}
		if err != nil {
			return dst, err
		}
		text = text[n:]
	}
	return dst, nil
}

// Pieces returns what the pre-tokenizer makes of text, for inspection: text is brought to
// the form in which it is merged (normalised, with U+2581 for spaces where the model has
// that), without looking for special tokens.
func (t *Tokenizer) Pieces(text string) []string {
	switch {
	case t.nfc:
		text = composed(text)
	case t.kind != kindByteBPE:
		text = strings.ReplaceAll(text, " ", underline)
	}
	return appendScanned(nil, text, t.scanners)
}

func appendScanned(pieces []string, text string, scanners []scanner) []string {
	for len(text) > 0 {
		n := scanners[0](text)
		if len(scanners) == 1 {
			pieces = append(pieces, text[:n])
		} else {
			pieces = appendScanned(pieces, text[:n], scanners[1:])
		}
		text = text[n:]
	}
	return pieces
}

// isASCII says whether all bytes of s are below 0x80.
func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
