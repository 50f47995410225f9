//go:build linux || darwin

package minfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/minfer/minfer"
)

// TestFileCutShort cuts a mapped file short while the model is open. The calls that meet it
// return errors, the program lives, other models go on, and closing works.
func TestFileCutShort(t *testing.T) {
	other := openStoryteller(t)
	want := eval(t, newSession(t, other), 1, 2, 3)
	for name, c := range map[string]struct {
		size    int64 // of what is left
		inPlace bool
		opts    []minfer.Option
	}{
		"in place":            {4096, true, []minfer.Option{minfer.WithWeightsInPlace(), minfer.WithThreads(2)}},
		"in place, one":       {4096, true, []minfer.Option{minfer.WithWeightsInPlace(), minfer.WithThreads(1)}},
		"in place, all of it": {0, true, []minfer.Option{minfer.WithWeightsInPlace(), minfer.WithThreads(2)}},
		"copied":              {4096, false, []minfer.Option{minfer.WithThreads(2)}}, // where the device copies weights; in plain Go it does not
		"copied, all of it":   {0, false, []minfer.Option{minfer.WithThreads(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, readFile(t, storyteller), 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := minfer.Open(path, c.opts...)
			if err != nil {
				t.Fatal(err)
			}
			cache := newCache(t, m, 64)
			s, err := m.NewSession(minfer.WithCache(cache))
			if err != nil {
				t.Fatal(err)
			}
			private := newSession(t, m)
			eval(t, s, 1, 2, 3)
			eval(t, private, 1, 2, 3)
			if err := os.Truncate(path, c.size); err != nil {
				t.Fatal(err)
			}
			_, first := s.Eval(t.Context(), []minfer.Token{900, 901})
			if c.inPlace {
				wantError(t, first, minfer.ErrFault)
				_, again := private.Eval(t.Context(), []minfer.Token{1})
				wantError(t, again, first)
			} else if first != nil {
				wantError(t, first, minfer.ErrFault)
			}
			if err := s.Save(discard{}); c.inPlace {
				wantError(t, err, minfer.ErrFault)
			}
			var panicked *minfer.PanicError
			if errors.As(first, &panicked) {
				t.Errorf("the fault came out as a panic of the library: %v", first)
			}
			// What follows may work or not, and comes back.
			_, err = m.Embed(t.Context(), []string{"Hello"})
			if err != nil {
				wantError(t, err, minfer.ErrFault)
			}
			_, err = read(private.Chat().Say(t.Context(), "Hello", minfer.MaxTokens(2)))
			if err != nil {
				wantError(t, err, minfer.ErrFault)
			}
			m.Info()
			m.Memory()
			for _, closing := range []func() error{s.Close, private.Close, cache.Close, m.Close} {
				if err := closing(); err != nil {
					t.Errorf("closing: %v", err)
				}
			}
			if _, err := minfer.Open(path); err == nil {
				t.Error("what is left of the file opens")
			}
		})
	}
	wantRow(t, "another model", eval(t, newSession(t, other), 1, 2, 3), want)
}

// TestFileCutWhileOpening cuts a file short at different moments of opening it.
func TestFileCutWhileOpening(t *testing.T) {
	data := readFile(t, storyteller)
	for _, size := range []int64{0, 4096, int64(len(data) / 2)} {
		for _, at := range []int64{0, 1, int64(len(data) / 3)} {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			cut := false
			m, err := minfer.Open(path, minfer.WithProgress(func(p minfer.Progress) {
				if p.Done >= at && !cut {
					cut = true
					if err := os.Truncate(path, size); err != nil {
						t.Error(err)
					}
				}
			}))
			if err != nil {
				wantError(t, err, minfer.ErrFault)
				continue
			}
			// All weights had been read by then, or are read where they lie.
			s := newSession(t, m)
			if _, err := s.Eval(t.Context(), []minfer.Token{1, 2, 3}); err != nil {
				wantError(t, err, minfer.ErrFault)
			}
		}
	}
}
