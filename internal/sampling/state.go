package sampling

import (
	"encoding"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

// The saved state, little-endian: the magic with the version, the generator's
// own encoding with its length, mirostat's mu, the number of tokens and the
// tokens. Settings are not part of it.
const stateMagic = "mfsampl1"

var (
	_ encoding.BinaryAppender    = (*Sampler)(nil)
	_ encoding.BinaryMarshaler   = (*Sampler)(nil)
	_ encoding.BinaryUnmarshaler = (*Sampler)(nil)
)

// AppendBinary appends the state to b: random numbers, mirostat and history,
// but neither settings nor constraint.
func (s *Sampler) AppendBinary(b []byte) ([]byte, error) {
	generator, err := s.rng.MarshalBinary()
	if err != nil {
		return b, fmt.Errorf("sampling: saving the random number generator: %w", err)
	}
	b = append(b, stateMagic...)
	b = append(b, byte(len(generator)))
	b = append(b, generator...)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.mu))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s.history)))
	for _, id := range s.history {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return b, nil
}

// MarshalBinary returns the state as AppendBinary writes it.
func (s *Sampler) MarshalBinary() ([]byte, error) { return s.AppendBinary(nil) }

// UnmarshalBinary replaces the state by a saved one, after which a sampler with
// the settings of the one that was saved chooses what that one would have
// chosen. Errors match ErrState and leave the sampler as it was.
func (s *Sampler) UnmarshalBinary(b []byte) error {
	r := stateReader{rest: b}
	if magic := r.take(len(stateMagic)); r.err == nil && string(magic) != stateMagic {
		return fmt.Errorf("%w: it starts with %q, want %q", ErrState, magic, stateMagic)
	}
	var rng rand.PCG
	if generator := r.take(int(r.uint(1))); r.err == nil {
		if err := rng.UnmarshalBinary(generator); err != nil {
			return fmt.Errorf("%w: random number generator: %v", ErrState, err)
		}
	}
	mu := math.Float64frombits(r.uint(8))
	count := r.uint(8)
	switch {
	case r.err != nil:
		return r.err
	case math.IsNaN(mu) || math.IsInf(mu, 0):
		return fmt.Errorf("%w: mirostat's bound is %v, want a finite number", ErrState, mu)
	case len(r.rest)%4 != 0 || count != uint64(len(r.rest)/4):
		return fmt.Errorf("%w: %d bytes follow, want %d tokens of 4 bytes", ErrState, len(r.rest), count)
	}
	s.Truncate(0)
	s.rng, s.mu = rng, mu
	s.Reserve(int(count))
	for len(r.rest) > 0 {
		s.Accept(int32(uint32(r.uint(4))))
	}
	return nil
}

// stateReader reads little-endian numbers and remembers running out of bytes.
type stateReader struct {
	rest []byte
	err  error
}

func (r *stateReader) take(n int) []byte {
	if r.err == nil && n > len(r.rest) {
		r.err = fmt.Errorf("%w: it ends %d bytes too early", ErrState, n-len(r.rest))
	}
	if r.err != nil {
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *stateReader) uint(bytes int) uint64 {
	var x uint64
	for i, b := range r.take(bytes) {
		x |= uint64(b) << (8 * i)
	}
	return x
}
