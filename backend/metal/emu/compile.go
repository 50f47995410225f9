package emu

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

//go:embed include
var headers embed.FS

// compiling guards the cache against two compilations of one source.
var compiling sync.Mutex

// Compile compiles a source in Metal's language for this machine, with g++, and returns the path of the library. What was
// compiled before is kept in the user's cache directory. The compiler's messages name lines of the source.
func Compile(source string) (string, error) {
	compiling.Lock()
	defer compiling.Unlock()
	text, err := Translate(source)
	if err != nil {
		return "", err
	}
	dir, err := workplace(text)
	if err != nil {
		return "", err
	}
	library := filepath.Join(dir, "kernels.so")
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	if err := os.CopyFS(dir, headers); err != nil && !os.IsExist(err) {
		return "", err
	}
	file := filepath.Join(dir, "kernels.cc")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		return "", err
	}
	made := fmt.Sprintf("%s.%d", library, os.Getpid())
	cmd := exec.Command("g++", "-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-march=native", "-ffp-contract=off", "-fsigned-char", "-fno-strict-aliasing", "-fvisibility=hidden",
		"-Wall", "-Wno-attributes", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-but-set-variable",
		"-I", filepath.Join(dir, "include"), "-o", made, file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return library, os.Rename(made, library)
}

// workplace is a folder for what is compiled from a text.
func workplace(text string) (string, error) {
	sum := sha256.New()
	sum.Write([]byte(text))
	entries, err := headers.ReadDir("include")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		b, err := headers.ReadFile("include/" + e.Name())
		if err != nil {
			return "", err
		}
		sum.Write(b)
	}
	root, err := os.UserCacheDir()
	if err != nil {
		root = os.TempDir()
	}
	dir := filepath.Join(root, "minfer-metalemu", hex.EncodeToString(sum.Sum(nil)[:16]))
	return dir, os.MkdirAll(dir, 0o777)
}
