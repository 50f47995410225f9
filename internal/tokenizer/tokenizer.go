package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"golang.org/x/exp/maps"
	"golang.org/x/exp/slices"
)

// None is the id of a token that the vocabulary does not have.
const None int32 = -1

// Type is the kind of a token, with the numbers that GGUF gives them.
type Type int32

// Token types. What they mean for encoding and decoding is told in the package comment.
const (
	Undefined   Type = 0
	Normal      Type = 1
	Unknown     Type = 2
	Control     Type = 3
	UserDefined Type = 4
	Unused      Type = 5
	Byte        Type = 6
)

// String names the type in lower case.
func (t Type) String() string {
	names := [...]string{"undefined", "normal", "unknown", "control", "user-defined", "unused", "byte"}
	if t < 0 || int(t) >= len(names) {
		return fmt.Sprintf("type(%d)", int32(t))
	}
	return names[t]
}

// A Role is a purpose that a vocabulary may give to one of its tokens.
type Role int

// The roles, in the order in which they are listed.
const (
	RoleBOS       Role = iota // begin of sequence
	RoleEOS                   // end of sequence
	RoleEOT                   // end of turn
	RoleEOM                   // end of message (a tool call follows)
	RoleUNK                   // stands for text that cannot be expressed
	RoleSEP                   // separator
	RolePAD                   // padding
	RoleMask                  // masked position
	RoleFIMPrefix             // fill in the middle: before the gap
	RoleFIMSuffix             // after the gap
	RoleFIMMiddle             // the gap
	RoleFIMPad
	RoleFIMRepo
	RoleFIMSep
	numRoles
)

// A Config is everything that defines a tokenizer. FromMetadata fills one from a GGUF file.
// The slices are kept, not copied, and must not be changed afterwards.
type Config struct {
	Model  string    // "gpt2" (byte-level BPE), "llama" (SentencePiece BPE) or "gemma4" (BPE over characters)
	Pre    string    // name of the pre-tokenizer; byte-level BPE only
	Name   string    // the model's own name (general.name); a few models hang stripping rules on it
	Tokens []string  // text by id
	Scores []float32 // by id; needed by "llama" only
	Types  []Type    // by id; nil means all Normal
	Merges []string  // "left right", best first; needed by the BPE models
	IDs    map[Role]int32

	// What nil leaves to the defaults of the model and pre-tokenizer.
	AddBOS, AddEOS, AddSpacePrefix *bool
}

// kind is the algorithm behind a model name.
type kind int

const (
	kindByteBPE kind = iota // merges by rank over bytes
	kindCharBPE             // merges by rank over characters, spaces written as U+2581, bytes as a fallback
	kindSPM                 // merges by score over characters, spaces written as U+2581, bytes as a fallback
)

var models = map[string]kind{"gpt2": kindByteBPE, "gemma4": kindCharBPE, "llama": kindSPM}

// KnownModels lists the tokenizer models that New accepts, sorted.
func KnownModels() []string { return sortedKeys(models) }

// KnownPreTokenizers lists the pre-tokenizer names that New accepts, sorted.
func KnownPreTokenizers() []string { return sortedKeys(preTokenizers) }

func sortedKeys[V any](m map[string]V) []string {
	keys := maps.Keys(m)
	slices.Sort(keys)
	return keys
}

// A Tokenizer turns text into token ids and back. It never changes after New and is safe for
// concurrent use.
type Tokenizer struct {
	model  string
	pre    string
	kind   kind
	tokens []string
	types  []Type
	scores []float32
	roles  [numRoles]int32
	eog    []int32 // sorted

	addBOS, addEOS bool
	spacePrefix    bool

	scanners     []scanner
	ignoreMerges bool // a piece that is a token is that token, whatever the merges say
	nfc          bool

	index   textIndex
	symbols symbolTable
	special specialTrie
	rstrip  []bool // by id, nil when no token strips
	lstrip  []bool

	cache   pieceCache
	scratch sync.Pool
}

// New builds a tokenizer. It fails with an *UnsupportedModelError, an *UnknownPreError or
// a *ConfigError.
func New(c Config) (*Tokenizer, error) {
	k, ok := models[c.Model]
	if !ok {
		return nil, &UnsupportedModelError{Model: c.Model, Known: KnownModels()}
	}
	t := &Tokenizer{model: c.Model, pre: c.Pre, kind: k, tokens: c.Tokens, scores: c.Scores}
	t.scratch.New = func() any { return new(encoder) }
	if err := t.setVocabulary(c); err != nil {
		return nil, err
	}
	if err := t.setPre(c); err != nil {
		return nil, err
	}
	if err := t.setRoles(c); err != nil {
		return nil, err
	}
	t.setEndOfGeneration()
	if err := t.setAffixes(c); err != nil {
		return nil, err
	}
	if err := t.buildSymbols(c); err != nil {
		return nil, err
	}
	t.buildSpecial(c)
	return t, nil
}

func (t *Tokenizer) setVocabulary(c Config) error {
	n := len(c.Tokens)
	switch {
	case n == 0:
		return &ConfigError{"tokens", "the vocabulary is empty"}
	case n > math.MaxInt32/2:
		return &ConfigError{"tokens", fmt.Sprintf("%d tokens are more than ids can count", n)}
	case c.Types != nil && len(c.Types) != n:
		return &ConfigError{"token types", fmt.Sprintf("%d types for %d tokens", len(c.Types), n)}
	case t.kind == kindSPM && len(c.Scores) != n:
		return &ConfigError{"scores", fmt.Sprintf("%d scores for %d tokens; this model merges by score", len(c.Scores), n)}
	case t.kind != kindSPM && len(c.Merges) == 0:
		return &ConfigError{"merges", "there are none; this model merges by rank"}
	}
	// A copy: setEndOfGeneration corrects types.
	t.types = make([]Type, n)
	if c.Types == nil {
		for i := range t.types {
			t.types[i] = Normal
		}
	} else {
		copy(t.types, c.Types)
	}
	t.index = newTextIndex(c.Tokens)
	return nil
}

func (t *Tokenizer) setPre(c Config) error {
	switch t.kind {
	case kindSPM:
		t.addBOS, t.spacePrefix = true, true
		t.scanners = []scanner{t.spaceCuts(c.Tokens)}
		return nil
	case kindCharBPE:
		t.addBOS = true
		t.scanners = []scanner{scanLines}
		return nil
	}
	p, ok := preTokenizers[c.Pre]
	if !ok {
		return &UnknownPreError{Pre: c.Pre, Known: KnownPreTokenizers()}
	}
	t.scanners, t.ignoreMerges, t.addBOS, t.nfc = p.scanners, p.ignoreMerges, p.addBOS, p.nfc
	return nil
}

func (t *Tokenizer) setRoles(c Config) error {
	for r := range t.roles {
		t.roles[r] = None
	}
	for r, id := range c.IDs {
		if r < 0 || r >= numRoles {
			return &ConfigError{"ids", fmt.Sprintf("role %d does not exist", r)}
		}
		if id < 0 || int(id) >= len(t.tokens) {
			return &ConfigError{roleKeys[r], fmt.Sprintf("id %d lies outside the vocabulary of %d tokens", id, len(t.tokens))}
		}
		t.roles[r] = id
	}
	if t.kind == kindSPM {
		// SentencePiece's own numbering, which old files rely on.
		t.defaultRole(RoleUNK, 0, Unknown)
		t.defaultRole(RoleBOS, 1, Control)
		t.defaultRole(RoleEOS, 2, Control)
	}
	return nil
}

func (t *Tokenizer) defaultRole(r Role, id int32, want Type) {
	if t.roles[r] == None && int(id) < len(t.tokens) && t.types[id] == want {
		t.roles[r] = id
	}
}

func (t *Tokenizer) setAffixes(c Config) error {
	if c.AddBOS != nil {
		t.addBOS = *c.AddBOS
	}
	if t.kind == kindCharBPE {
		t.addBOS = true // files of this family exist that wrongly say false
	}
	if c.AddEOS != nil {
		t.addEOS = *c.AddEOS
	}
	if c.AddSpacePrefix != nil && t.kind == kindSPM {
		t.spacePrefix = *c.AddSpacePrefix
	}
	if t.addBOS && t.BOS() == None {
		return &ConfigError{"bos_token_id", "missing, although sequences are to begin with it"}
	}
	if t.addEOS && t.EOS() == None {
		return &ConfigError{"eos_token_id", "missing, although sequences are to end with it"}
	}
	return nil
}

// Model is the name of the tokenizer model, as in tokenizer.ggml.model.
func (t *Tokenizer) Model() string { return t.model }

// Pre is the name of the pre-tokenizer, as in tokenizer.ggml.pre; models without one ignore it.
func (t *Tokenizer) Pre() string { return t.pre }

// VocabSize is the number of tokens; ids run from 0 to VocabSize-1.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// Token is the vocabulary's text for id, as stored: byte-level BPE spells bytes as printable
// characters there, SentencePiece a space as U+2581. It is "" for an id outside the vocabulary.
// TokenBytes gives what the token stands for.
func (t *Tokenizer) Token(id int32) string {
	if !t.valid(id) {
		return ""
	}
	return t.tokens[id]
}

// ID finds the token whose stored text is text, and says whether there is one. Of several
// with the same text it is the first.
func (t *Tokenizer) ID(text string) (int32, bool) {
	id := t.index.find(t.tokens, text)
	return id, id != None
}

// Type is the type of token id, after corrections: tokens that end a turn count as
// Control even where a file calls them normal. It is Undefined for an id outside the
// vocabulary.
func (t *Tokenizer) Type(id int32) Type {
	if !t.valid(id) {
		return Undefined
	}
	return t.types[id]
}

// Score is the token's score, or 0 for vocabularies without scores.
func (t *Tokenizer) Score(id int32) float32 {
	if !t.valid(id) || int(id) >= len(t.scores) {
		return 0
	}
	return t.scores[id]
}

func (t *Tokenizer) valid(id int32) bool { return id >= 0 && int(id) < len(t.tokens) }

// Special is the token with role r, or None.
func (t *Tokenizer) Special(r Role) int32 {
	if r < 0 || r >= numRoles {
		return None
	}
	return t.roles[r]
}

// BOS is the begin-of-sequence token, or None.
func (t *Tokenizer) BOS() int32 { return t.roles[RoleBOS] }

// EOS is the end-of-sequence token, or None.
func (t *Tokenizer) EOS() int32 { return t.roles[RoleEOS] }

// EOT is the end-of-turn token, or None.
func (t *Tokenizer) EOT() int32 { return t.roles[RoleEOT] }

// PAD is the padding token, or None.
func (t *Tokenizer) PAD() int32 { return t.roles[RolePAD] }

// UNK is the unknown token, or None.
func (t *Tokenizer) UNK() int32 { return t.roles[RoleUNK] }

// AddBOS says whether sequences of this model begin with BOS.
func (t *Tokenizer) AddBOS() bool { return t.addBOS }

// AddEOS says whether sequences of this model end with EOS (embedding models do, mostly).
func (t *Tokenizer) AddEOS() bool { return t.addEOS }

// AddSpacePrefix says whether text is encoded as if a space stood before it.
func (t *Tokenizer) AddSpacePrefix() bool { return t.spacePrefix }

// EndOfGeneration lists, in ascending order, all tokens after which a model has nothing
// more to say.
func (t *Tokenizer) EndOfGeneration() []int32 { return slices.Clone(t.eog) }

// IsEndOfGeneration says whether id is one of EndOfGeneration.
func (t *Tokenizer) IsEndOfGeneration(id int32) bool {
	_, found := slices.BinarySearch(t.eog, id)
	return found
}

// Texts by which roles are recognised where a file does not name the token, the most
// specific first. They are the spellings of the model families themselves.
var roleTexts = map[Role][]string{
	RoleEOT: {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|endoftext|>", "<|end_of_text|>",
		"<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"},
	RoleEOM:       {"<|eom_id|>"},
	RoleFIMPrefix: {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"},
	RoleFIMSuffix: {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"},
	RoleFIMMiddle: {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"},
	RoleFIMPad:    {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
	RoleFIMRepo:   {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
	RoleFIMSep:    {"<|file_sep|>"},
}

var endTexts = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
	"<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
	"<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["}

// setEndOfGeneration completes the roles by text and collects the tokens that end a
// generation. Files name one EOS at most, while chat models end a turn with another
// token.
func (t *Tokenizer) setEndOfGeneration() {
	for r, texts := range roleTexts {
		for _, text := range texts {
			if t.roles[r] != None {
				break
			}
			if id, ok := t.ID(text); ok {
				t.roles[r] = id
				t.types[id] = Control
			}
		}
	}
	set := map[int32]bool{}
	for _, r := range []Role{RoleEOS, RoleEOT, RoleEOM, RoleFIMPad, RoleFIMRepo, RoleFIMSep} {
		if id := t.roles[r]; id != None {
			set[id] = true
		}
	}
	for _, text := range endTexts {
		if id, ok := t.ID(text); ok {
			set[id] = true
			t.types[id] = Control
		}
	}
	// These mark channels inside a reply and are part of its text.
	for _, text := range []string{"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"} {
		if id, ok := t.ID(text); ok {
			t.types[id] = UserDefined
		}
	}
	has := func(text string) bool { id, ok := t.ID(text); return ok && set[id] }
	if calls := has("<|call|>") || has("<|calls|>"); calls && (has("<|return|>") || has("<|flush|>")) && has("<|end|>") {
		id, _ := t.ID("<|end|>") // ends a message here, not the reply
		delete(set, id)
		t.types[id] = UserDefined
	}
	if has("<|tool_response>") && has("</s>") {
		id, _ := t.ID("</s>") // an HTML tag here
		delete(set, id)
		t.types[id] = Normal
	}
	t.eog = maps.Keys(set)
	slices.Sort(t.eog)
}

// buildSpecial collects the tokens that are matched in text before anything else.
func (t *Tokenizer) buildSpecial(c Config) {
	for id, typ := range t.types {
		text := t.tokens[id]
		if text == "" || (typ != Control && typ != UserDefined && typ != Unknown) {
			continue
		}
		level := matchAlways
		switch {
		case typ != UserDefined:
			level = matchParsed
		case strings.ContainsAny(text, "<>[]{}|｜"):
			level = matchTrusted
		}
		t.special.insert(text, int32(id), level)
	}
	t.special.seal()
	t.setStripping(c)
}

// setStripping marks the tokens that swallow white space beside them. GGUF does not carry
// this attribute; it goes by the names of the few models that have it.
func (t *Tokenizer) setStripping(c Config) {
	name := strings.ToLower(c.Name)
	switch {
	case strings.HasPrefix(c.Pre, "jina-v2-"):
		t.strip(&t.lstrip, "<mask>")
	case strings.Contains(name, "modern-bert"):
		t.strip(&t.lstrip, "[MASK]")
	case strings.Contains(name, "phi-3"), strings.Contains(name, "phi3"):
		for id, typ := range t.types {
			if typ == Control || typ == UserDefined || typ == Unknown {
				switch t.tokens[id] {
				case "<unk>", "<s>", "<|endoftext|>":
				default:
					t.strip(&t.rstrip, t.tokens[id])
				}
			}
		}
	}
}

func (t *Tokenizer) strip(set *[]bool, text string) {
	id, ok := t.ID(text)
	if !ok {
		return
	}
	if *set == nil {
		*set = make([]bool, len(t.tokens))
	}
	(*set)[id] = true
}
