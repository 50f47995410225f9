// Package stop finds stop strings in streamed text.
//
// A model produces text in pieces whose borders know nothing of the caller's
// stop strings: "beta gamma" may arrive as " be", "ta gam", "ma". A Matcher
// takes the pieces as they come and hands back what is safe to show. Text that
// may still turn out to be the beginning of a stop string is held back; the
// moment it can no longer be one, it is released.
//
// # Which match wins
//
// The match that is complete first wins, because at that byte generation ends:
// with the stops "a" and "ab" the text "xab" stops at "a". When several become
// complete at the same byte, the longest wins (it removes the most), and of
// equal strings the one listed first. The text before the match is emitted, the
// match itself and everything after it never are. All of this depends on the
// text alone: cutting it into other pieces changes neither the joined output
// nor the winner.
//
// # Bytes and characters
//
// Matching works on bytes. Where the pieces hold whole UTF-8 characters and the
// stop strings are valid UTF-8, every emitted string holds whole characters as
// well: held text starts where a stop string starts, which is the first byte of
// a character.
//
// # Cost
//
// Each stop string has a Knuth-Morris-Pratt automaton (Pattern), so a byte of
// text costs amortised constant time per stop string, and what is held is
// shorter than the longest stop string. Push allocates only when it has to join
// held text with new text. A Matcher belongs to one stream; it is not safe for
// concurrent use.
//
// # Errors
//
// New refuses empty strings (they would match everywhere), more than MaxStops
// of them, and strings longer than MaxLength bytes: ErrInvalid.
package stop
