// Package testfiles finds what tests compare with: the reference files that are too
// large to be part of the module: the shared folder (golden results, models) and the folder
// of the oracle, llama.cpp (headers, vocabularies and chat templates of many models).
//
// A test that needs a file which is not there is skipped and says so, unless
// MINFER_REQUIRE_SHARED=1 demands that all be there, as continuous integration does. Programs that are
// no part of Go (Node.js and its packages, a browser) are handled alike, with
// MINFER_REQUIRE_CLIENTS=1.
package testfiles

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Shared returns the path of a file in the shared folder: $MINFER_SHARED or, by default,
// the folder named shared beside the repository.
func Shared(t testing.TB, elem ...string) string {
	t.Helper()
	return find(t, "MINFER_SHARED", sharedRoot(), elem)
}

func sharedRoot() string {
	if root := os.Getenv("MINFER_SHARED"); root != "" {
		return root
	}
	return filepath.Join(repository(), "..", "shared")
}

// Oracle returns the path of a file in the oracle's folder: $ORACLE_DIR or, by default,
// minfer-oracle in the user's cache.
func Oracle(t testing.TB, elem ...string) string {
	t.Helper()
	root := os.Getenv("ORACLE_DIR")
	if root == "" {
		root = filepath.Join(cache(), "minfer-oracle")
	}
	return find(t, "ORACLE_DIR", root, elem)
}

// Model returns the path of a trained model: one that lies in the shared folder, or one that
// was fetched to $MINFER_MODELS or, by default, minfer-models in the user's cache.
func Model(t testing.TB, name string) string {
	t.Helper()
	if path := filepath.Join(sharedRoot(), "models", name); exists(path) {
		return path
	}
	root := os.Getenv("MINFER_MODELS")
	if root == "" {
		root = filepath.Join(cache(), "minfer-models")
	}
	return find(t, "MINFER_MODELS", root, []string{name})
}

func find(t testing.TB, variable, root string, elem []string) string {
	t.Helper()
	path := filepath.Join(append([]string{root}, elem...)...)
	if exists(path) {
		return path
	}
	if os.Getenv("MINFER_REQUIRE_SHARED") == "1" {
		t.Fatalf("%s is missing, and MINFER_REQUIRE_SHARED=1 demands it (set %s)", path, variable)
	}
	t.Skipf("needs %s, which is not here (set %s)", path, variable)
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cache is the folder ~/.cache, on every system.
func cache() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ".cache"
	}
	return filepath.Join(home, ".cache")
}

// repository is the root of the source tree.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
