package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goTool runs the go command in a folder of the repository.
func goTool(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestNothingReachesHosts checks that neither importing the library nor this package without its
// tag brings anything of CUDA into a build.
func TestNothingReachesHosts(t *testing.T) {
	for dir, pkg := range map[string]string{filepath.Join("..", ".."): ".", ".": "."} {
		for _, dep := range strings.Fields(goTool(t, dir, []string{"CGO_ENABLED=1"}, "list", "-deps", pkg)) {
			if strings.HasPrefix(dep, "gorgonia.org/") || strings.Contains(dep, "backend/cuda/") {
				t.Errorf("%s, without the tag, depends on %s", pkg, dep)
			}
		}
	}
	deps := goTool(t, ".", []string{"CGO_ENABLED=1"}, "list", "-deps", "-tags", "cuda", ".")
	if !strings.Contains(deps, "gorgonia.org/cu") {
		t.Error("with the tag, it does not depend on gorgonia.org/cu")
	}
}

// program asks for the device, and prints what comes of it.
const program = `package main

import (
	"fmt"

	"github.com/minfer/minfer/backend"
	_ "github.com/minfer/minfer/backend/cuda"
)

func main() {
	_, err := backend.Open("cuda", backend.Config{})
	fmt.Println("started;", err)
}
`

// TestWithoutDriver builds a program with and without the tag, and runs it where there is no driver.
func TestWithoutDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs")
	}
	dir, err := filepath.Abs("include")
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(main, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	for tags, want := range map[string]string{"none": "build with -tags cuda", "cuda": "no NVIDIA driver"} {
		bin := filepath.Join(t.TempDir(), "program")
		goTool(t, ".", []string{"CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -I" + dir}, "build", "-tags", tags, "-o", bin, main)
		c := exec.CommandContext(t.Context(), bin)
		c.Env = append(os.Environ(), "MINFER_LIBCUDA=libcuda-that-is-not-there.so")
		out, err := c.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "started;") || !strings.Contains(string(out), want) {
			t.Errorf("tags %q: %v: %q, want it to start and to say %q", tags, err, out, want)
		}
	}
}
