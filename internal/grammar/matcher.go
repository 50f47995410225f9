package grammar

// A Matcher follows one text. It implements the sampling constraint: Mask before a token
// is chosen, Accept after. It is not safe for concurrent use; clones are independent of
// each other.
type Matcher struct {
	masker *Masker
	cache  *cache
	state  *state // nil for the beginning
	done   bool   // an end-of-generation token was accepted
}

// sync gets the state into the masker's cache.
func (m *Matcher) sync() error {
	c, err := m.masker.current()
	if err != nil {
		return err
	}
	if c == m.cache && m.state != nil {
		return nil
	}
	s := c.begin
	if m.state != nil {
		if s, err = c.adopt(m.state); err != nil {
			return err
		}
	}
	m.cache, m.state = c, s
	return nil
}

// Mask sets the logits of all tokens to -Inf that cannot follow, and leaves the others
// alone. End-of-generation tokens can follow where the text may end, and nothing but
// they can follow one another. logits has one entry for each token; further ones are
// set to -Inf too. The error is ErrDeadEnd if nothing is left, or ErrLimit.
func (m *Matcher) Mask(logits []float32) error {
	mask, err := m.mask()
	if err != nil {
		return err
	}
	if apply(mask, logits, m.masker.vocab.Size()) == 0 {
		return ErrDeadEnd
	}
	return nil
}

func (m *Matcher) mask() ([]uint64, error) {
	if err := m.sync(); err != nil {
		return nil, err
	}
	if m.done {
		mask := m.masker.newMask()
		setBits(mask, m.masker.vocab.ends)
		return mask, nil
	}
	return m.masker.mask(m.cache, m.state)
}

// Accept takes a token into the text. On an error, ErrRejected or ErrLimit, the text is
// as it was.
func (m *Matcher) Accept(id int32) error {
	next, done, err := m.after(id)
	if err == nil {
		m.state, m.done = next, done
	}
	return err
}

// Allows reports whether a token can follow. It is cheaper than a mask for a few tokens.
// The error is ErrLimit.
func (m *Matcher) Allows(id int32) (bool, error) {
	_, _, err := m.after(id)
	if _, ok := err.(*RejectedError); ok {
		return false, nil
	}
	return err == nil, err
}

func (m *Matcher) after(id int32) (*state, bool, error) {
	if err := m.sync(); err != nil {
		return nil, false, err
	}
	v := m.masker.vocab
	if v.isEnd[id] {
		if !m.state.ends {
			return nil, false, &RejectedError{Token: id}
		}
		return m.state, true, nil
	}
	text := v.bytes(id)
	if len(text) == 0 || m.done {
		return nil, false, &RejectedError{Token: id, Text: string(text)}
	}
	next, err := m.follow(text, id)
	return next, false, err
}

// AcceptText takes text into the text, whatever tokens it may be made of. On an error,
// ErrRejected or ErrLimit, the text is as it was.
func (m *Matcher) AcceptText(text string) error {
	if err := m.sync(); err != nil {
		return err
	}
	if m.done && text != "" {
		return &RejectedError{Token: -1, Text: text}
	}
	next, err := m.follow([]byte(text), -1)
	if err == nil {
		m.state = next
	}
	return err
}

// follow returns the state after a text. The work is bounded for each token's length of
// it.
func (m *Matcher) follow(text []byte, id int32) (*state, error) {
	var w work
	s := m.state
	for i, b := range text {
		if i&63 == 0 {
			w = work{}
		}
		next, err := m.cache.advance(s, b, &w)
		if err != nil {
			return nil, err
		}
		if next == dead {
			return nil, &RejectedError{Token: id, Text: string(text), At: i}
		}
		s = next
	}
	return s, nil
}

// CanEnd reports whether the text may end here.
func (m *Matcher) CanEnd() bool {
	return m.sync() == nil && m.state.ends
}

// Complete reports whether the text ends here: nothing can follow but the end.
func (m *Matcher) Complete() bool {
	return m.sync() == nil && (m.done || m.state.ends && len(m.state.items) == 0)
}

// Forced returns the bytes that must come next because nothing else can: no more than
// limit of them. They need not end where a character or a token does.
func (m *Matcher) Forced(limit int) []byte {
	var out []byte
	if m.sync() != nil || m.done {
		return nil
	}
	var w work
	for s := m.state; len(out) < limit && !s.ends; {
		only, next := -1, dead
		for b := range 256 {
			to, err := m.cache.advance(s, byte(b), &w)
			if err != nil {
				return out
			}
			if to == dead {
				continue
			}
			if only >= 0 {
				return out
			}
			only, next = b, to
		}
		if only < 0 {
			return out
		}
		out = append(out, byte(only))
		s = next
	}
	return out
}

// Clone returns a Matcher at the same place of the same text.
func (m *Matcher) Clone() *Matcher {
	clone := *m
	return &clone
}

// Reset goes back to the beginning.
func (m *Matcher) Reset() { *m = Matcher{masker: m.masker} }
