package testfiles

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program returns the path of the first of some programs that is installed. Where none is, the test is
// skipped, or fails if MINFER_REQUIRE_CLIENTS=1 demands all programs that tests try this one with.
func Program(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	lacking(t, fmt.Sprintf("none of %q is installed", names))
	return ""
}

// Chromium is Program for a browser.
func Chromium(t testing.TB) string {
	t.Helper()
	return Program(t, "chromium", "chromium-browser", "google-chrome")
}

// NPM returns a folder whose node_modules has a package of the npm registry, fetched into the user's
// cache if it is not there yet. Where it cannot be had, the test ends as with Program.
func NPM(t testing.TB, name, version string) string {
	t.Helper()
	npm := Program(t, "npm")
	folder := filepath.Join(cache(), "minfer", "npm", name+"@"+version)
	if exists(folder) {
		return folder
	}
	// Other tests may be at it: each fetches into a folder of its own, and the first to be done has its
	// folder renamed.
	parent := filepath.Dir(folder)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := os.MkdirTemp(parent, "fetched-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(own)
	c := exec.CommandContext(t.Context(), npm, "install", "--prefix", own, "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", name+"@"+version)
	c.Dir = own
	if out, err := c.CombinedOutput(); err != nil {
		lacking(t, fmt.Sprintf("npm cannot fetch %s@%s: %v\n%s", name, version, err, out))
	}
	if err := os.Rename(own, folder); err != nil && !exists(folder) {
		t.Fatal(err)
	}
	return folder
}

func lacking(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("MINFER_REQUIRE_CLIENTS") == "1" {
		t.Fatalf("%s, and MINFER_REQUIRE_CLIENTS=1 demands it", what)
	}
	t.Skip(what)
}
