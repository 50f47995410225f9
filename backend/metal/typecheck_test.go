//go:build !cgo || !(darwin || metalemu)

package metal

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDarwinTypes checks the types of the package as it is built on a Mac, tests included. No compiler for a Mac is needed:
// what lies behind cgo is taken to have any type.
func TestDarwinTypes(t *testing.T) {
	packages := listDarwin(t)
	c := checker{token.NewFileSet(), make(map[string]*types.Package)}
	if faults := c.check(packages, nil); len(faults) > 0 {
		t.Fatalf("on a Mac:\n%v", errors.Join(faults...))
	}
	for _, mistake := range []struct{ file, old, new, want string }{
		{"gpu.go", "errors.New(\"this machine", "errors.Knew(\"this machine", "undefined: errors.Knew"},
		{"gpu.go", "&pipeline{state, int(threads)}", "&pipeline{state, int(threads), 0}", "too many values"},
		{"commands.go", "c.failure(labels, taken(failure))", "c.failure(taken(failure))", "not enough arguments"},
		{"device_test.go", "return openDevice(t)", "return openDevice()", "not enough arguments"},
	} {
		text, err := os.ReadFile(mistake.file)
		if err != nil {
			t.Fatal(err)
		}
		spoilt := strings.Replace(string(text), mistake.old, mistake.new, 1)
		if spoilt == string(text) {
			t.Errorf("%s has no %q", mistake.file, mistake.old)
			continue
		}
		faults := errors.Join(c.check(packages, map[string]string{mistake.file: spoilt})...)
		if faults == nil || !strings.Contains(faults.Error(), mistake.want) {
			t.Errorf("with %s, the check says %v, want %q", mistake.new, faults, mistake.want)
		}
	}
}

// listed is a package as "go list" describes it.
type listed struct {
	ImportPath, Dir   string
	GoFiles, CgoFiles []string
	ImportMap         map[string]string
	ForTest           string
	DepOnly           bool
	Error             *struct{ Err string }
}

// listDarwin lists the package as it is on a Mac, what it depends on first.
func listDarwin(t *testing.T) []*listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,CgoFiles,ImportMap,DepOnly,ForTest,Error", ".")
	cmd.Env = append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []*listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := new(listed)
		if err := d.Decode(p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath != "unsafe" && !strings.HasSuffix(p.ImportPath, ".test") {
			packages = append(packages, p)
		}
	}
}

// known imports packages that are checked already.
type known struct {
	packages map[string]*types.Package
	from     *listed
}

func (k known) Import(path string) (*types.Package, error) {
	if mapped, ok := k.from.ImportMap[path]; ok {
		path = mapped
	}
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := k.packages[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is not loaded", path)
}

// checker checks types. What the package depends on it checks once, as that takes most of the time.
type checker struct {
	files *token.FileSet
	done  map[string]*types.Package
}

// check returns what is wrong in the package, with some of its files replaced.
func (c *checker) check(packages []*listed, replaced map[string]string) (faults []error) {
	for _, p := range packages {
		ours := !p.DepOnly || p.ForTest != ""
		if !ours && c.done[p.ImportPath] != nil {
			continue
		}
		report := func(err error) {
			if ours {
				faults = append(faults, err)
			}
		}
		if p.Error != nil {
			report(fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err))
		}
		var parsed []*ast.File
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			var text any
			if r, ok := replaced[name]; ok && ours {
				text = r
			}
			f, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), text, parser.SkipObjectResolution)
			if err != nil {
				report(err)
			}
			if f != nil {
				parsed = append(parsed, f)
			}
		}
		conf := types.Config{
			Importer:         known{c.done, p},
			FakeImportC:      true,
			IgnoreFuncBodies: !ours,
			Sizes:            types.SizesFor("gc", "arm64"),
			Error:            report,
		}
		// The error is one of those reported.
		c.done[p.ImportPath], _ = conf.Check(p.ImportPath, c.files, parsed, nil)
	}
	return faults
}

// TestBridge checks the Objective-C against what is declared of Metal, on machines that have what that takes (emu/env).
func TestBridge(t *testing.T) {
	check := func(text string) (string, error) {
		file := filepath.Join(t.TempDir(), "bridge.m")
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("./emu/toolchain/cc", "-Wall", "-Werror", "-fsyntax-only", "-I.", file).CombinedOutput()
		return string(out), err
	}
	_, clang := exec.LookPath("clang-14")
	if _, gnustep := os.Stat("/usr/include/GNUstep"); clang != nil || gnustep != nil {
		if os.Getenv("MINFER_REQUIRE_METALEMU") != "" {
			t.Fatal("clang-14 or GNUstep is missing")
		}
		t.Skip("needs clang-14 and GNUstep")
	}
	text, err := os.ReadFile("bridge.m")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := check(string(text)); err != nil {
		t.Fatal(out)
	}
	for _, mistake := range []struct{ old, new, want string }{
		{"newCommandQueue]", "newComandQueue]", "not found"},
		{"options:options error:&error", "options:error error:&error", "incompatible pointer types"},
		{"newBufferWithLength:size options:MTLResourceStorageModeShared]", "newBufferWithLength:size]", "not found"},
		{"[c status] == ", "[c state] == ", "not found"},
		{"text([[c error] localizedDescription])", "text([c error])", "incompatible pointer types"},
	} {
		spoilt := strings.Replace(string(text), mistake.old, mistake.new, 1)
		if spoilt == string(text) {
			t.Errorf("bridge.m has no %q", mistake.old)
			continue
		}
		if out, err := check(spoilt); err == nil || !strings.Contains(out, mistake.want) {
			t.Errorf("with %s, the compiler says %v %s, want %q", mistake.new, err, out, mistake.want)
		}
	}
}
