package emu

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed strict
var strictHeaders embed.FS

// sharedArray is an array in threadgroup memory, which plain C++ wants to be static.
var sharedArray = regexp.MustCompile(`(?m)^( +)threadgroup +(\w+ +\w+\[)`)

// Check has clang compile a source as C++ with Metal's address spaces and vectors, and returns what it finds wrong, with lines
// of the source. It knows what the host's compiler cannot: that memory of one kind is not memory of another, that constants
// are not written, and which functions and types Metal has not.
func Check(source string) error {
	dir, err := os.MkdirTemp("", "metal")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, strictHeaders); err != nil {
		return err
	}
	text := instance.ReplaceAllString(source, "template decltype($2$3) $2$3;")
	text = attributes.ReplaceAllString(text, "")
	text = sharedArray.ReplaceAllString(text, "${1}static threadgroup ${2}")
	cmd := exec.Command("clang-14", "-x", "c++", "-std=c++14", "--target=spir64-unknown-unknown", "-fsyntax-only", "-nostdinc", "-fsigned-char",
		"-I", filepath.Join(dir, "strict"), "-Wall", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-unused-const-variable",
		"-Wno-c++17-extensions", "-ferror-limit=0", "-")
	cmd.Stdin = strings.NewReader("#line 1 \"kernels.metal\"\n" + text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
