package minfer_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
)

// Where the fields of a saved session begin.
const (
	atVersion     = 8
	atFingerprint = 12
	atKVType      = 44
	atLayers      = 45
	atWidth       = 49
	atTokens      = 53
	atEvaluated   = 61
	atFirstToken  = 69
)

// saved returns a session of 37 tokens, saved, and the logits after the last.
func saved(t testing.TB, m *minfer.Model) (data []byte, logits []float32) {
	t.Helper()
	s := newSession(t, m)
	logits = eval(t, s, someTokens(m, 37, 0)...)
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), logits
}

// TestSaveAndRestore goes on with a restored session, generating at random: the tokens are
// those that the saved one generates.
func TestSaveAndRestore(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	mustRead(t, s.Generate(t.Context(), chatML(fox), greedy(minfer.MaxTokens(20))...))
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	r, err := m.Restore(iotest.OneByteReader(&b))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if diff := cmp.Diff(s.Tokens(), r.Tokens()); diff != "" {
		t.Errorf("tokens differ (-want +got):\n%s", diff)
	}
	opts := greedy(minfer.Temperature(1), minfer.Seed(3), minfer.MaxTokens(20), minfer.PastEnd())
	want := mustRead(t, s.GenerateTokens(t.Context(), nil, opts...))
	got := mustRead(t, r.GenerateTokens(t.Context(), nil, opts...))
	if diff := cmp.Diff(want.tokens, got.tokens); diff != "" {
		t.Errorf("the continuation differs (-want +got):\n%s", diff)
	}
	wantRow(t, "logits", eval(t, r), eval(t, s))
}

// TestSaveIsDeterministic saves equal sequences that came about differently, beside other
// sessions: the bytes are equal, and so hold nothing of others.
func TestSaveIsDeterministic(t *testing.T) {
	m := openStoryteller(t)
	want, _ := saved(t, m)
	cache := newCache(t, m, 512)
	a, b := newSession(t, m, minfer.WithCache(cache)), newSession(t, m, minfer.WithCache(cache))
	eval(t, a, someTokens(m, 100, 7)...)
	eval(t, b, someTokens(m, 37, 0)[:5]...)
	eval(t, a, someTokens(m, 20, 8)...)
	eval(t, b, someTokens(m, 37, 0)[5:]...)
	eval(t, b, 1, 2, 3)
	rewind(t, b, 37)
	var got bytes.Buffer
	if err := b.Save(&got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("equal sequences are saved differently")
	}
}

func TestSaveLittle(t *testing.T) {
	m := openStoryteller(t)
	for _, n := range []int{0, 1, 15, 16} {
		s := newSession(t, m)
		tokens := someTokens(m, n+1, 0)
		if n > 0 {
			eval(t, s, tokens[:n]...)
		}
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			t.Fatal(err)
		}
		r, err := m.Restore(&b)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		wantRow(t, "restored", eval(t, r, tokens[n]), eval(t, newSession(t, m), tokens...))
	}
}

// refusals are saved sessions that cannot be restored.
func refusals(t testing.TB, data []byte, vocab int) map[string][]byte {
	change := func(f func(b []byte)) []byte {
		b := bytes.Clone(data)
		f(b)
		// The sum is right, so that it is not what refuses it.
		n := len(b) - 4
		binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli)))
		return b
	}
	put32 := func(at int, v uint32) []byte {
		return change(func(b []byte) { binary.LittleEndian.PutUint32(b[at:], v) })
	}
	put64 := func(at int, v uint64) []byte {
		return change(func(b []byte) { binary.LittleEndian.PutUint64(b[at:], v) })
	}
	return map[string][]byte{
		"empty":              nil,
		"another magic":      change(func(b []byte) { b[0] = 'X' }),
		"version 0":          put32(atVersion, 0),
		"version 2":          put32(atVersion, 2),
		"another model":      put32(atFingerprint, 12345),
		"another KV type":    change(func(b []byte) { b[atKVType] = byte(graph.F32) }),
		"no KV type":         change(func(b []byte) { b[atKVType] = 255 }),
		"no layers":          put32(atLayers, 0),
		"absurd layers":      put32(atLayers, 1<<31),
		"another width":      put32(atWidth, 7),
		"absurd tokens":      put64(atTokens, 1<<62),
		"negative tokens":    put64(atTokens, 1<<63),
		"more evaluated":     put64(atEvaluated, 48),
		"absurd evaluated":   put64(atEvaluated, 1<<63),
		"half a block":       put64(atEvaluated, 31),
		"nothing evaluated":  put64(atEvaluated, 0),
		"one block less":     put64(atEvaluated, 16),
		"one token less":     put64(atTokens, 36),
		"one token more":     put64(atTokens, 38),
		"negative token":     put32(atFirstToken, 0xFFFFFFFF),
		"token out of range": put32(atFirstToken, uint32(vocab)),
		"another device":     change(func(b []byte) { b[min(atFirstToken+4*37, len(b)-1)] = 9 }),
		"without the sum":    data[:len(data)-4],
	}
}

func TestRestoreRefuses(t *testing.T) {
	m := openStoryteller(t)
	data, _ := saved(t, m)
	for name, b := range refusals(t, data, m.Info().Vocab) {
		t.Run(name, func(t *testing.T) { wantRefusal(t, m, b) })
	}
	for n := 0; n < len(data); n += 1 + n/7 {
		wantRefusal(t, m, data[:n])
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := bytes.Clone(data)
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		wantRefusal(t, m, b)
	}
	_, err := m.Restore(bytes.NewReader(data), minfer.WithContext(36))
	wantError(t, err, minfer.ErrSnapshot)
	other := openStoryteller(t, minfer.WithKVType(graph.F32))
	wantRefusal(t, other, data)
	cache := newCache(t, m, 16)
	_, err = m.Restore(bytes.NewReader(data), minfer.WithCache(cache))
	wantError(t, err, minfer.ErrCacheFull)
	if got := cache.Stats(); got.FreeCells != 16 {
		t.Errorf("%d cells are free after a failed Restore, want 16", got.FreeCells)
	}
	_, err = m.Restore(bytes.NewReader(data), minfer.WithContext(0))
	wantError(t, err, minfer.ErrOption)
	broken := errors.New("disk on fire")
	_, err = m.Restore(io.MultiReader(bytes.NewReader(data[:500]), iotest.ErrReader(broken)))
	wantError(t, err, minfer.ErrSnapshot)
	wantError(t, err, broken)
}

func wantRefusal(t testing.TB, m *minfer.Model, data []byte) {
	t.Helper()
	s, err := m.Restore(bytes.NewReader(data))
	if err == nil {
		s.Close()
		t.Fatalf("%d bytes were restored", len(data))
	}
	var e *minfer.SnapshotError
	if !errors.Is(err, minfer.ErrSnapshot) || !errors.As(err, &e) || e.Reason == "" {
		t.Errorf("error is %v, want a *SnapshotError", err)
	}
}

// TestRestoreAllocatesLittle counts the memory that absurd counts make Restore take.
func TestRestoreAllocatesLittle(t *testing.T) {
	m := openStoryteller(t)
	data, _ := saved(t, m)
	for name, b := range refusals(t, data[:atFirstToken+8], m.Info().Vocab) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if s, err := m.Restore(bytes.NewReader(b)); err == nil {
			s.Close()
			t.Errorf("%s: no error", name)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated for %d", name, n, len(b))
		}
	}
}

// FuzzRestore restores what may be a damaged session. If it is accepted, it works.
func FuzzRestore(f *testing.F) {
	m := openStoryteller(f)
	data, _ := saved(f, m)
	f.Add(data, false)
	f.Add(data[:200], false)
	for _, b := range refusals(f, data, m.Info().Vocab) {
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, sum bool) {
		if n := len(data) - 4; sum && n > 0 {
			data = bytes.Clone(data)
			binary.LittleEndian.PutUint32(data[n:], crc32.Checksum(data[:n], crc32.MakeTable(crc32.Castagnoli)))
		}
		s, err := m.Restore(bytes.NewReader(data), minfer.WithContext(64))
		if err != nil {
			wantError(t, err, minfer.ErrSnapshot)
			return
		}
		defer s.Close()
		if s.Len() > 64 {
			t.Errorf("%d tokens in a context of 64", s.Len())
		}
		if s.Len() < 64 {
			// Keys and values can be anything, so logits can be too.
			eval(t, s, 1)
		}
	})
}

func TestSaveFile(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	want := eval(t, s, someTokens(m, 20, 0)...)
	dir := t.TempDir()
	path := filepath.Join(dir, "session")
	for range 2 { // the second replaces the first
		if err := s.SaveFile(path); err != nil {
			t.Fatal(err)
		}
	}
	r, err := m.RestoreFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	wantRow(t, "restored", eval(t, r), want)

	before := readFile(t, path)
	closed, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	wantError(t, closed.SaveFile(path), minfer.ErrClosed)
	if !bytes.Equal(before, readFile(t, path)) {
		t.Error("a failed SaveFile changed the file")
	}
	if err := s.SaveFile(filepath.Join(dir, "missing", "session")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want os.ErrNotExist", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveFile(filepath.Join(dir, "folder")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("%v are left, want the file and the folder", entries)
	}
	if _, err := m.RestoreFile(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want os.ErrNotExist", err)
	}
}

// TestSaveToFullDisk fails after every so many bytes.
func TestSaveToFullDisk(t *testing.T) {
	m := openStoryteller(t)
	s := newSession(t, m)
	want := eval(t, s, someTokens(m, 37, 0)...)
	full := errors.New("disk is full")
	for n := 0; n < 60000; n += 7001 {
		wantError(t, s.Save(&limited{left: n, err: full}), full)
	}
	wantRow(t, "afterwards", eval(t, s), want)
}

type limited struct {
	left int
	err  error
}

func (w *limited) Write(p []byte) (int, error) {
	if len(p) > w.left {
		n := w.left
		w.left = 0
		return n, w.err
	}
	w.left -= len(p)
	return len(p), nil
}
