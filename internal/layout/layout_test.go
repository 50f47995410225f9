package layout

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/exp/slices"
)

const module = "github.com/minfer/minfer"

// mayImport lists, for each package of the library, the packages of the library that it
// may import; tests are held to it as well, but for those in testHelpers. A name that
// ends with a slash stands for all packages below it. The root package may import all.
//
// The direction is root > sched > alloc > fusion > backend > graph; arch and gguf stand
// beside it.
var mayImport = map[string][]string{
	"graph":   {},
	"backend": {"graph"},
	"fusion":  {"graph", "backend"},
	"alloc":   {"graph", "backend"},
	"sched":   {"graph", "backend", "alloc"},

	"sched/trace": {"graph", "sched", "internal/quant"},

	"gguf":  {"internal/mmap"},
	"arch":  {"graph", "gguf"},
	"arch/": {"arch", "graph", "gguf"},

	"backend/cpu":         {"graph", "backend", "internal/kernels", "internal/quant", "internal/mmap", "internal/vocabulary"},
	"backend/null":        {"graph", "backend"},
	"backend/backendtest": {"graph", "backend", "internal/kernels", "internal/quant"},

	"internal/chattemplate": {},
	"internal/grammar":      {},
	"internal/fetch":        {"gguf"},
	"internal/graphtest":    {"graph"},
	"internal/kernels":      {"internal/mmap", "internal/quant"},
	"internal/kvcells":      {},
	"internal/layout":       {},
	"internal/mmap":         {},
	"internal/perfettotest": {"internal/testfiles"},
	"internal/quant":        {},
	"internal/reasoning":    {"internal/stop"},
	"internal/toolcall":     {"internal/chattemplate", "internal/grammar"},
	"internal/sampling":     {"internal/stop"},
	"internal/stop":         {},
	"internal/testfiles":    {},
	"internal/tokenizer":    {},
	"internal/vocabulary":   {"graph", "backend", "internal/kernels", "internal/quant"},
}

// testHelpers lists the packages that only tests may import, from wherever they are.
var testHelpers = []string{"internal/graphtest", "internal/perfettotest", "internal/testfiles", "backend/backendtest", "backend/null"}

// topLevel lists the entries of the repository besides Go files of the root package,
// its documents and names that begin with a dot.
var topLevel = []string{
	"graph", "alloc", "sched", "fusion", "backend", "arch", "gguf", "internal", "examples",
	"docs", "testdata", "go.mod", "go.sum", "go.work", "go.work.sum", "LICENSE",
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		known := slices.Contains(topLevel, name) || strings.HasPrefix(name, ".") ||
			!e.IsDir() && (strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".md"))
		if !known {
			t.Errorf("%s has no place at the top of the repository", name)
		}
	}
}

func TestImports(t *testing.T) {
	eachPackage(t, func(dir string, files []string) {
		if base := path.Base(dir); base == "util" || base == "utils" || base == "common" || base == "helpers" {
			t.Errorf("%s: the name says nothing about what is in the package", dir)
		}
		if dir == "." {
			return
		}
		allowed, ok := rule(dir)
		if !ok {
			t.Errorf("%s is not in the table of what may import what", dir)
			return
		}
		for _, file := range files {
			for _, imported := range imports(t, filepath.Join(root(t), file)) {
				if imported == dir || slices.Contains(allowed, imported) {
					continue
				}
				if strings.HasSuffix(file, "_test.go") && mayBeTested(dir, imported) {
					continue
				}
				if strings.HasPrefix(path.Base(file), "example_") && imported == "." {
					continue // an example shows the use of a package from where it is used
				}
				t.Errorf("%s imports %s, which does not lie below it", file, imported)
			}
		}
	})
}

// mayBeTested reports whether a test of a package may import another: helpers of tests,
// and, to check parts against each other, what is not above the package.
func mayBeTested(dir, imported string) bool {
	if slices.Contains(testHelpers, imported) {
		return true
	}
	above := []string{".", "sched"}
	return !slices.Contains(above, imported) || dir == "sched"
}

// rule finds what a package may import: its own entry or that of the folder above.
func rule(dir string) ([]string, bool) {
	if allowed, ok := mayImport[dir]; ok {
		return allowed, true
	}
	allowed, ok := mayImport[path.Dir(dir)+"/"]
	return allowed, ok
}

// imports lists the packages of the library that a file imports, by their folders.
func imports(t *testing.T, file string) []string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if name == module {
			list = append(list, ".")
		} else if dir, ok := strings.CutPrefix(name, module+"/"); ok {
			list = append(list, dir)
		}
	}
	return list
}

// eachPackage calls f with the folder of every package of the root module and its Go
// files, all relative to the root.
func eachPackage(t *testing.T, f func(dir string, files []string)) {
	top := root(t)
	packages := make(map[string][]string)
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != top {
			_, nested := os.Stat(filepath.Join(p, "go.mod"))
			if nested == nil || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
				return fs.SkipDir
			}
		}
		if strings.HasSuffix(name, ".go") {
			rel, err := filepath.Rel(top, p)
			if err != nil {
				return err
			}
			rel = filepath.ToSlash(rel)
			packages[path.Dir(rel)] = append(packages[path.Dir(rel)], rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 10 {
		t.Fatalf("found only %d packages below %s", len(packages), top)
	}
	for dir, files := range packages {
		f(dir, files)
	}
}

// root is the top of the repository.
func root(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Skip("the source tree is not here, only the compiled test")
	}
	return dir
}

// TestFaultsAreTested looks for the tests that docs/faults.md names.
func TestFaultsAreTested(t *testing.T) {
	root := filepath.Join("..", "..")
	table, err := os.ReadFile(filepath.Join(root, "docs", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(table), -1)
	for _, name := range named {
		folder := name[1]
		if folder == "minfer" {
			folder = "."
		}
		if _, read := sources[folder]; !read {
			files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				sources[folder] += string(source)
			}
		}
		if !strings.Contains(sources[folder], "func "+name[2]+"(") {
			t.Errorf("%s has no %s", name[1], name[2])
		}
	}
	for i := range 30 {
		if !strings.Contains(string(table), fmt.Sprintf("| B%02d ", i+1)) {
			t.Errorf("B%02d is missing", i+1)
		}
	}
	if len(named) < 60 {
		t.Errorf("only %d tests are named", len(named))
	}
}

// TestRaceDetectorSeesGoroutines: of the packages that start goroutines, each is run with the race detector by .ci/run; where
// only tests start some, those tests may be all that is.
func TestRaceDetectorSeesGoroutines(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root(t), ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	whole, some := make(map[string]bool), make(map[string]bool)
	for _, line := range regexp.MustCompile(`(?m)^go test -race .*$`).FindAllString(string(script), -1) {
		for _, word := range strings.Fields(line) {
			if dir, ok := strings.CutPrefix(word, "./"); ok || word == "." {
				some[path.Clean(dir)] = true
				whole[path.Clean(dir)] = whole[path.Clean(dir)] || !strings.Contains(line, " -run ")
			}
		}
	}
	starts := regexp.MustCompile(`(?m)^\s*go (func|[\w.]+)\(|\.Go\(`)
	eachPackage(t, func(dir string, files []string) {
		for _, file := range files {
			source, err := os.ReadFile(filepath.Join(root(t), file))
			if err != nil {
				t.Fatal(err)
			}
			if starts.Match(source) && !whole[dir] && !(some[dir] && strings.HasSuffix(file, "_test.go")) {
				t.Errorf("%s starts goroutines, and .ci/run does not run %s with the race detector", file, dir)
			}
		}
	})
	if len(some) < 8 {
		t.Errorf(".ci/run has the race detector run no more than %v", some)
	}
}
