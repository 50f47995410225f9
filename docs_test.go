package minfer_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// fence is a block of code in a document, with the block of its output if one follows.
type fence struct {
	code, output string
}

var fencePattern = regexp.MustCompile("(?ms)^```(go|text)\n(.*?)^```$")

func readFences(t *testing.T, path string) []fence {
	var list []fence
	for _, block := range fencePattern.FindAllStringSubmatch(string(readFile(t, path)), -1) {
		if block[1] == "go" {
			list = append(list, fence{code: block[2]})
		} else if len(list) > 0 {
			list[len(list)-1].output = block[2]
		}
	}
	return list
}

// goRun runs a program from the root of the repository.
func goRun(t *testing.T, program, stdin string) string {
	t.Helper()
	if runtime.GOOS == "js" {
		t.Skip("no processes")
	}
	path := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), "go", "run", path)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	return stdout.String()
}

// TestGuide compiles and runs the code of the guide, all of it in one program.
func TestGuide(t *testing.T) {
	var functions, calls strings.Builder
	var want []string
	for _, name := range []string{"README", "chat", "custom-model", "embedding", "reproducibility", "server", "tools"} {
		path := filepath.Join("docs", name+".md")
		for i, f := range readFences(t, path) {
			if f.output == "" {
				t.Errorf("%s: the code %d has no output to compare with", path, i)
			}
			n := len(want)
			if path != filepath.Join("docs", "README.md") {
				fmt.Fprintf(&functions, "func part%d(ctx context.Context, m *minfer.Model, s *minfer.Session, chat *minfer.Chat) error {\n_, _, _, _ = ctx, m, s, chat\n{\n%s\n}\nreturn nil\n}\n", n, f.code)
			} else {
				fmt.Fprintf(&functions, "func part%d(context.Context, *minfer.Model, *minfer.Session, *minfer.Chat) error {\n%s\nreturn nil\n}\n", n, f.code)
			}
			fmt.Fprintf(&calls, "try(%d, m, part%d)\n", n, n)
			want = append(want, f.output)
		}
	}
	program := `package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/graph"
)

var _, _, _, _, _ = errors.New, slices.Max[[]int], strings.Cut, sync.Once{}, graph.Params{}
var _ bytes.Buffer

` + functions.String() + `
func try(n int, m *minfer.Model, part func(context.Context, *minfer.Model, *minfer.Session, *minfer.Chat) error) {
	s, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Printf("=== %d\n", n)
	if err := part(context.Background(), m, s, s.Chat()); err != nil {
		log.Fatalf("part %d: %v", n, err)
	}
}

func main() {
	m, err := minfer.Open("testdata/storyteller-q4_0.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
` + calls.String() + "}\n"
	parts := strings.Split(goRun(t, program, ""), "=== ")[1:]
	if len(parts) != len(want) {
		t.Fatalf("%d parts, want %d", len(parts), len(want))
	}
	for i, part := range parts {
		_, got, _ := strings.Cut(part, "\n")
		if got != want[i] {
			t.Errorf("part %d prints\n%s\nwant\n%s", i, got, want[i])
		}
	}
}

// TestReadme compiles and runs the programs of the README, on the model that every clone has.
func TestReadme(t *testing.T) {
	fences := readFences(t, "README.md")
	if len(fences) != 2 {
		t.Fatalf("%d programs, want 2", len(fences))
	}
	model := regexp.MustCompile(`minfer\.Open\("[^"]*"`)
	for i, f := range fences {
		if lines := strings.Count(f.code, "\n"); lines > 40 {
			t.Errorf("program %d has %d lines, want 40 at most", i, lines)
		}
		program := model.ReplaceAllString(f.code, `minfer.Open("testdata/storyteller-q4_0.gguf"`)
		got := goRun(t, program, "What is the weather in Lisbon?\nWhat is 3 + 4?\n")
		if i == 1 {
			if want := "> In Lisbon it is sunny and 21 degrees.\n> 3 plus 4 is "; !strings.HasPrefix(got, want) {
				t.Errorf("the chatbot says\n%s", got)
			}
		} else if strings.TrimSpace(got) == "" {
			t.Error("the first program says nothing")
		}
	}
}
