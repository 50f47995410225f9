package minfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/minfer/minfer"
)

// TestCacheCounters follows what a cache builds and reuses, and that keys and values
// outlive the change from prompts to single tokens and back.
func TestCacheCounters(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m, minfer.WithContext(64))
	tokens := someTokens(m, 64, 0)
	want := evalAll(t, newSession(t, m), tokens)
	at := 0
	for i, c := range []struct {
		tokens        int
		built, reused uint64
		graphs        int
	}{
		{5, 1, 0, 1}, {1, 2, 0, 2}, {1, 2, 1, 2}, {1, 2, 2, 2}, {5, 2, 3, 2}, {1, 2, 4, 2}, {6, 3, 4, 3}, {5, 3, 5, 3}, {1, 3, 6, 3},
	} {
		row := eval(t, s, tokens[at:at+c.tokens]...)
		at += c.tokens
		wantRow(t, fmt.Sprint("step ", i), row, want[at-1])
		got := s.Cache().Stats()
		wantStats := minfer.CacheStats{Built: c.built, Reused: c.reused, Graphs: c.graphs, Cells: 64, FreeCells: 64 - (at+15)/16*16}
		if diff := cmp.Diff(wantStats, got, cmpopts.IgnoreFields(minfer.CacheStats{}, "Bytes")); diff != "" {
			t.Errorf("step %d: counters differ (-want +got):\n%s", i, diff)
		}
		if got.Bytes <= 0 {
			t.Errorf("step %d: %d bytes", i, got.Bytes)
		}
	}
}

// TestCacheKeepsTheUsedGraphs has more shapes than the cache keeps graphs.
func TestCacheKeepsTheUsedGraphs(t *testing.T) {
	m := openStoryteller(t)
	cache := newCache(t, m, 1024, minfer.WithGraphs(2))
	s := newSession(t, m, minfer.WithCache(cache))
	tokens := someTokens(m, 200, 0)
	want := evalAll(t, newSession(t, m), tokens)
	at := 0
	for _, n := range []int{3, 1, 4, 1, 5, 1, 6, 1, 3, 1} {
		row := eval(t, s, tokens[at:at+n]...)
		at += n
		wantRow(t, fmt.Sprint("at ", at), row, want[at-1])
	}
	// One token stays, each of the prompts pushes the one before out.
	got := cache.Stats()
	if got.Built != 6 || got.Reused != 4 || got.Graphs != 2 {
		t.Errorf("%d built, %d reused, %d kept, want 6, 4, 2", got.Built, got.Reused, got.Graphs)
	}
}

func TestCacheFull(t *testing.T) {
	m := openStoryteller(t)
	cache := newCache(t, m, 33) // rounded up to 48
	a, b := newSession(t, m, minfer.WithCache(cache)), newSession(t, m, minfer.WithCache(cache))
	tokens := someTokens(m, 64, 0)
	want := evalAll(t, newSession(t, m), tokens)
	eval(t, a, tokens[:20]...)
	eval(t, b, tokens[:10]...)
	_, err := b.Eval(t.Context(), tokens[10:17])
	wantError(t, err, minfer.ErrCacheFull)
	var full *minfer.CacheError
	if !errors.As(err, &full) || *full != (minfer.CacheError{Needed: 7, Free: 0, Cells: 48}) {
		t.Errorf("error is %#v, want one with 7 needed, 0 of 48 free", err)
	}
	if b.Len() != 10 {
		t.Errorf("the session has %d tokens, want 10", b.Len())
	}
	wantRow(t, "within the last block", eval(t, b, tokens[10:16]...), want[15])
	wantRow(t, "the other session", eval(t, a, tokens[20:32]...), want[31])
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	wantRow(t, "with room again", eval(t, b, tokens[16:48]...), want[47])
	// A generation ends with the error and keeps its tokens.
	answer, err := read(b.GenerateTokens(t.Context(), nil, minfer.PastEnd()))
	wantError(t, err, minfer.ErrCacheFull)
	if len(answer.tokens) != 1 || b.Len() != 49 {
		t.Errorf("%d tokens, %d in the session, want 1 and 49", len(answer.tokens), b.Len())
	}
}

func TestNewGraphCacheRefuses(t *testing.T) {
	m := openStoryteller(t)
	for _, cells := range []int{0, -1, math.MinInt, 1<<26 + 1, math.MaxInt} {
		if _, err := m.NewGraphCache(cells); !errors.Is(err, minfer.ErrOption) {
			t.Errorf("%d cells: error is %v, want ErrOption", cells, err)
		}
	}
	if _, err := m.NewGraphCache(16, minfer.WithGraphs(0)); !errors.Is(err, minfer.ErrOption) {
		t.Errorf("no graphs: error is %v, want ErrOption", err)
	}
}

func TestCloseCache(t *testing.T) {
	m := openStoryteller(t)
	cache := newCache(t, m, 64)
	s := newSession(t, m, minfer.WithCache(cache))
	eval(t, s, 1, 2, 3)
	for range 2 {
		if err := cache.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := cache.Stats(); got.Bytes != 0 || got.Graphs != 0 {
		t.Errorf("%d bytes and %d graphs after Close, want none", got.Bytes, got.Graphs)
	}
	wantAllClosed(t, m, s)
	_, err := m.NewSession(minfer.WithCache(cache))
	wantError(t, err, minfer.ErrClosed)
	wantRow(t, "another session", eval(t, newSession(t, m), 1), eval(t, newSession(t, m), 1))
}

// wantAllClosed calls everything that a closed session has.
func wantAllClosed(t *testing.T, m *minfer.Model, s *minfer.Session) {
	t.Helper()
	ctx := context.Background()
	for name, f := range map[string]func() error{
		"Eval":           func() error { _, err := s.Eval(ctx, []minfer.Token{1}); return err },
		"EvalAll":        func() error { _, err := s.EvalAll(ctx, []minfer.Token{1}); return err },
		"SetTokens":      func() error { _, err := s.SetTokens(ctx, []minfer.Token{1}); return err },
		"Rewind":         func() error { return s.Rewind(0) },
		"Fork":           func() error { _, err := s.Fork(); return err },
		"Save":           func() error { return s.Save(discard{}) },
		"SaveFile":       func() error { return s.SaveFile(t.TempDir() + "/s") },
		"Generate":       func() error { _, err := read(s.Generate(ctx, "Hello")); return err },
		"GenerateTokens": func() error { _, err := read(s.GenerateTokens(ctx, nil)); return err },
		"Say":            func() error { _, err := read(s.Chat().Say(ctx, "Hello")); return err },
		"Regenerate":     func() error { _, err := read(s.Chat().Regenerate(ctx)); return err },
	} {
		if err := f(); !errors.Is(err, minfer.ErrClosed) {
			t.Errorf("%s: error is %v, want ErrClosed", name, err)
		}
	}
	if s.Tokens() != nil || s.Len() != 0 || s.Usage() != (minfer.Usage{}) {
		t.Error("a closed session has tokens or usage")
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// TestBatchingUnderAttack has sessions on one cache evaluate, be cancelled, run out of
// cells, rewind, fork and close all at the same time. Whatever succeeds is right, and in the
// end all cells are back.
func TestBatchingUnderAttack(t *testing.T) {
	t.Run("short", func(t *testing.T) { underAttack(t, openStoryteller(t), 48, 20, 16) })
	t.Run("long", func(t *testing.T) { underAttack(t, openBytes(t, manyHeads.bytes(t)), 320, 200, 256) }) // as prompts from 128 tokens on are computed
}

// underAttack has eight sessions evaluate so many tokens each, at most some at once and some in a pass.
func underAttack(t *testing.T, m *minfer.Model, length, most, batch int) {
	tokens := make([][]minfer.Token, 8)
	want := make([][][]float32, len(tokens))
	for i := range tokens {
		tokens[i] = someTokens(m, length, i)
		want[i] = evalAll(t, newSession(t, m), tokens[i])
	}
	for _, batching := range []bool{true, false} {
		cache := newCache(t, m, len(tokens)*length*5/6, minfer.WithBatching(batching)) // too few for all
		var group sync.WaitGroup
		for i := range tokens {
			group.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 0))
				for range 4 {
					if err := attack(m, cache, rng, tokens[i], want[i], most, batch); err != nil {
						t.Errorf("session %d: %v", i, err)
					}
				}
			})
		}
		group.Wait()
		if got := cache.Stats(); got.FreeCells != got.Cells {
			t.Errorf("%d of %d cells are free at the end", got.FreeCells, got.Cells)
		}
	}
}

func attack(m *minfer.Model, cache *minfer.GraphCache, rng *rand.Rand, tokens []minfer.Token, want [][]float32, most, batch int) error {
	s, err := m.NewSession(minfer.WithCache(cache), minfer.WithBatch(batch))
	if err != nil {
		return err
	}
	defer func() { s.Close() }() // whichever it is by then
	at := 0
	for range 12 {
		switch rng.IntN(6) {
		case 0:
			at = rng.IntN(at + 1)
			if err := s.Rewind(at); err != nil {
				return err
			}
		case 1:
			f, err := s.Fork()
			if err != nil {
				return err
			}
			s.Close()
			s = f
		default:
			n := min(1+rng.IntN(most), len(tokens)-at)
			if n == 0 {
				continue
			}
			var ctx context.Context = context.Background()
			if rng.IntN(3) == 0 {
				ctx = &countdown{Context: ctx, left: rng.IntN(100)}
			}
			row, err := s.Eval(ctx, tokens[at:at+n])
			if errors.Is(err, context.Canceled) || errors.Is(err, minfer.ErrCacheFull) {
				if got := s.Len(); got != at {
					return fmt.Errorf("%d tokens after %w, want %d", got, err, at)
				}
				continue
			}
			if err != nil {
				return err
			}
			at += n
			if err := sameRow(row, want[at-1]); err != nil {
				return fmt.Errorf("after %d tokens: %w", at, err)
			}
		}
	}
	return nil
}

// TestScatteredCells has a cache whose free cells lie one block here and one there, between those
// of other sessions. A session gets them all, and everyone's keys and values are what they were.
func TestScatteredCells(t *testing.T) {
	const blocks, block = 24, 16
	m := openStoryteller(t)
	for _, batching := range []bool{true, false} {
		cache := newCache(t, m, blocks*block, minfer.WithBatching(batching))
		tokens := someTokens(m, blocks*block, 3)
		want := evalAll(t, newSession(t, m), tokens)
		sessions := make([]*minfer.Session, blocks)
		for i := range sessions {
			sessions[i] = newSession(t, m, minfer.WithCache(cache))
			eval(t, sessions[i], tokens[:block-1]...)
		}
		for i := 1; i < blocks; i += 2 {
			if err := sessions[i].Close(); err != nil {
				t.Fatal(err)
			}
		}
		for at := block - 1; at+block < blocks*block/2; at += block {
			wantRow(t, fmt.Sprint("at ", at), eval(t, sessions[0], tokens[at:at+block]...), want[at+block-1])
		}
		if free := cache.Stats().FreeCells; free > block {
			t.Errorf("%d cells are free at the end", free)
		}
		for i := 2; i < blocks; i += 2 {
			wantRow(t, fmt.Sprint("session ", i), eval(t, sessions[i], tokens[block-1]), want[block-1])
		}
		var snapshot bytes.Buffer
		if err := sessions[0].Save(&snapshot); err != nil {
			t.Fatal(err)
		}
		restored, err := m.Restore(&snapshot)
		if err != nil {
			t.Fatal(err)
		}
		defer restored.Close()
		wantRow(t, "restored", eval(t, restored), want[restored.Len()-1])
	}
}
