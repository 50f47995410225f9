package kernels

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// requireASM is the environment variable that forbids skipping the comparison below.
const requireASM = "MINFER_REQUIRE_ASM"

// TestAssemblyIsFresh runs each program of _asm and compares what it prints with the files
// that are checked in. The first line of a file names the command and so the place of the
// output; it is not compared.
func TestAssemblyIsFresh(t *testing.T) {
	programs, err := filepath.Glob("_asm/*/main.go")
	if err != nil || len(programs) == 0 {
		t.Fatalf("no generators: %v", err)
	}
	for _, program := range programs {
		name := filepath.Base(filepath.Dir(program))
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			arch := "amd64"
			if name == "neon" {
				arch = "arm64"
			}
			files := []string{name + "_" + arch + ".s", name + "_" + arch + ".go"}
			cmd := exec.Command("go", "run", "./"+name, "-pkg", "kernels",
				"-out", filepath.Join(dir, files[0]), "-stubs", filepath.Join(dir, files[1]))
			cmd.Dir = "_asm"
			cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=") // for this machine, also if the test is emulated
			if os.Getenv(requireASM) == "" {
				cmd.Env = append(cmd.Env, "GOPROXY=off") // a plain test does not fetch modules
			}
			if text, err := cmd.CombinedOutput(); err != nil {
				if os.Getenv(requireASM) == "" && bytes.Contains(text, []byte("module lookup disabled")) {
					t.Skip("the generator's module is not in the module cache; " + requireASM + "=1 fetches it")
				}
				t.Fatalf("%v: %v\n%s", cmd, err, text)
			}
			for _, file := range files {
				fresh, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				kept, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if afterFirstLine(string(fresh)) != afterFirstLine(string(kept)) {
					t.Errorf("%s is not what _asm/%s generates; run go generate ./internal/kernels", file, name)
				}
			}
		})
	}
}

func afterFirstLine(s string) string {
	_, rest, _ := strings.Cut(s, "\n")
	return rest
}
