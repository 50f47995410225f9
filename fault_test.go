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
// return errors, the program lives, and other models go on.
func TestFileCutShort(t *testing.T) {
	other := openStoryteller(t)
	for name, opts := range map[string][]minfer.Option{
		"in place": {minfer.WithWeightsInPlace(), minfer.WithThreads(2)},
		"copied":   {minfer.WithThreads(2)}, // where the device copies weights; in plain Go it does not
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, readFile(t, storyteller), 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := minfer.Open(path, opts...)
			if err != nil {
				t.Fatal(err)
			}
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			eval(t, s, 1, 2, 3)
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
			_, err = s.Eval(t.Context(), []minfer.Token{900, 901})
			faulted := err != nil
			if name == "in place" && err == nil {
				t.Error("weights that are gone gave logits")
			}
			var panicked *minfer.PanicError
			if errors.As(err, &panicked) {
				t.Errorf("the fault came out as a panic of the library: %v", err)
			}
			if err := s.Save(discard{}); err == nil && name == "in place" {
				t.Error("a model whose file is gone was identified")
			}
			m.Info()
			// Closing may report the device's failure again, and frees what there is.
			for _, closing := range []func() error{s.Close, m.Close} {
				if err := closing(); err != nil && !faulted {
					t.Error(err)
				}
			}
		})
	}
	eval(t, newSession(t, other), 1, 2, 3)
}
