package tokenizer

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"golang.org/x/exp/slices"
)

// A symbol is what merging works on: a token, or a text that occurs in the merges without
// being a token. Symbols below the size of the vocabulary are token ids; the others are
// numbered on from there.
type symbolTable struct {
	byteToken  [256]int32 // the token that stands for a byte, or None
	byteSymbol [256]int32 // byte-level BPE: the symbol of a byte

	pairs pairIndex        // BPE: what two symbols merge into
	extra map[string]int32 // BPE: symbols that are not tokens, by text

	rank    []uint32 // SentencePiece: order of merging by token, 0 first
	longest int      // SentencePiece: length of the longest token
}

const noRank = math.MaxUint32

// alphabet is GPT-2's spelling of bytes as printable characters: printable Latin-1 stands
// for itself, the other 68 bytes are numbered from U+0100 on.
var alphabet, alphabetByte = func() (enc [256]rune, dec [0x144]int16) {
	for i := range dec {
		dec[i] = -1
	}
	next := rune(0x100)
	for b := range enc {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r = next
			next++
		}
		enc[b] = r
		dec[r] = int16(b)
	}
	return enc, dec
}()

// appendSpelled appends text in the alphabet.
func appendSpelled(dst []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		dst = utf8.AppendRune(dst, alphabet[text[i]])
	}
	return dst
}

// appendUnspelled appends the bytes that text spells; a text with characters outside the
// alphabet stands for itself.
func appendUnspelled(dst []byte, text string) []byte {
	start := len(dst)
	for _, r := range text {
		if r >= rune(len(alphabetByte)) || alphabetByte[r] < 0 {
			return append(dst[:start], text...)
		}
		dst = append(dst, byte(alphabetByte[r]))
	}
	return dst
}

// plain says whether ordinary text may turn into this token. Control and unknown tokens
// come from the special tokens alone, byte tokens from bytes that nothing else expresses:
// text that looks like one of them must not become one by merging.
func (t *Tokenizer) plain(id int32) bool {
	switch t.types[id] {
	case Control, Unknown, Byte:
		return false
	}
	return true
}

// findPlain is the token with this text that ordinary text may turn into, or None.
func (t *Tokenizer) findPlain(text string) int32 {
	id := t.index.find(t.tokens, text)
	if id != None && !t.plain(id) {
		return None
	}
	return id
}

func (t *Tokenizer) buildSymbols(c Config) error {
	t.setByteTokens()
	if t.kind == kindSPM {
		return t.rankByScore()
	}
	return t.rankByMerges(c.Merges)
}

func (t *Tokenizer) setByteTokens() {
	for b := range 256 {
		if t.kind == kindByteBPE {
			t.symbols.byteToken[b] = t.findPlain(string(alphabet[b]))
			continue
		}
		id := t.index.find(t.tokens, fmt.Sprintf("<0x%02X>", b))
		if id == None && b < utf8.RuneSelf {
			id = t.findPlain(string(rune(b)))
		}
		t.symbols.byteToken[b] = id
	}
}

// rankByScore turns scores into ranks: the highest score is rank 0, equal scores share a rank.
func (t *Tokenizer) rankByScore() error {
	order := make([]int32, len(t.tokens))
	for i := range order {
		order[i] = int32(i)
		if s := t.scores[i]; s != s {
			return &ConfigError{"scores", fmt.Sprintf("that of token %d is not a number", i)}
		}
		t.symbols.longest = max(t.symbols.longest, len(t.tokens[i]))
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(t.scores[b], t.scores[a]) })
	t.symbols.rank = make([]uint32, len(order))
	rank := uint32(0)
	for i, id := range order {
		if i > 0 && t.scores[id] != t.scores[order[i-1]] {
			rank++
		}
		t.symbols.rank[id] = rank
	}
	return nil
}

func (t *Tokenizer) rankByMerges(merges []string) error {
	s := &t.symbols
	s.extra = map[string]int32{}
	s.pairs = newPairIndex(len(merges))
	if len(merges) > math.MaxInt32-len(t.tokens)-256 {
		return &ConfigError{"merges", fmt.Sprintf("%d are more than can be numbered", len(merges))}
	}
	if t.kind == kindByteBPE {
		for b := range 256 {
			s.byteSymbol[b] = t.symbolOf(string(alphabet[b]))
		}
	}
	merged := None
	for rank, m := range merges {
		// The left part may begin with a space where texts are not spelled in the alphabet.
		cut := -1
		if len(m) > 0 {
			cut = 1 + strings.IndexByte(m[1:], ' ')
		}
		if cut <= 0 || cut == len(m)-1 {
			return &ConfigError{"merges", fmt.Sprintf("merge %d, %q, is not two texts with a space between", rank, m)}
		}
		left, right := m[:cut], m[cut+1:]
		merged = t.symbolOfJoined(left, right, merged)
		s.pairs.add(t.symbolOf(left), t.symbolOf(right), uint32(rank), merged)
	}
	return nil
}

// symbolOf is the symbol with this text, a new one if need be.
func (t *Tokenizer) symbolOf(text string) int32 {
	if id := t.findPlain(text); id != None {
		return id
	}
	id, ok := t.symbols.extra[text]
	if !ok {
		id = int32(len(t.tokens) + len(t.symbols.extra))
		t.symbols.extra[text] = id
	}
	return id
}

// symbolOfJoined is symbolOf(left + right), mostly without making that string.
// Vocabularies list tokens in the order of their merges, so the one sought is likely the
// one that the merge before gave, or the next.
func (t *Tokenizer) symbolOfJoined(left, right string, before int32) int32 {
	if t.index.unique {
		for _, id := range [...]int32{before + 1, before} {
			if t.valid(id) && len(t.tokens[id]) == len(left)+len(right) && strings.HasPrefix(t.tokens[id], left) && strings.HasSuffix(t.tokens[id], right) && t.plain(id) {
				return id
			}
		}
	}
	var buf [64]byte
	joined := append(append(buf[:0], left...), right...)
	if id := t.index.findBytes(t.tokens, joined); id != None && t.plain(id) {
		return id
	}
	return t.symbolOf(string(joined))
}

// underline is U+2581, which SentencePiece writes for a space.
const underline = "▁"

// spaceCuts makes a scanner that cuts text before an underline wherever no token reaches
// across, so that words can be merged, and remembered, one by one with the result of
// merging the whole text. A cut is safe if no token has the preceding character directly
// before an underline.
func (t *Tokenizer) spaceCuts(tokens []string) scanner {
	joined := map[rune]bool{'▁': true}
	for id, text := range tokens {
		if !t.plain(int32(id)) {
			continue
		}
		for i := 1; i < len(text); i++ {
			at := strings.Index(text[i:], underline)
			if at < 0 {
				break
			}
			i += at
			before, _ := utf8.DecodeLastRuneInString(text[:i])
			joined[before] = true
		}
	}
	return func(s string) int {
		for i := 1; i < len(s); {
			at := strings.Index(s[i:], underline)
			if at < 0 {
				break
			}
			i += at
			if before, _ := utf8.DecodeLastRuneInString(s[:i]); !joined[before] {
				return i
			}
			i += len(underline)
		}
		return len(s)
	}
}
