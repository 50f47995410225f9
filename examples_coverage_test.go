package minfer_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestEverythingHasAnExample holds that every exported function and method of the package is shown
// in a runnable example: one with an output. The strings and unwrapping of errors explain themselves.
func TestEverythingHasAnExample(t *testing.T) {
	packages, err := parser.ParseDir(token.NewFileSet(), ".", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, f := range packages["minfer_test"].Files {
		hasOutput := map[*ast.FuncDecl]bool{}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") {
				hasOutput[f] = true
			}
		}
		for d := range hasOutput {
			runnable := false
			for _, c := range f.Comments {
				text := strings.ToLower(c.Text())
				runnable = runnable || d.Body.Pos() < c.Pos() && c.Pos() < d.Body.End() && (strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:"))
			}
			if !runnable {
				continue
			}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					shown[s.Sel.Name] = true
				}
				return true
			})
		}
	}
	obvious := map[string]bool{"Error": true, "Unwrap": true, "Is": true, "String": true}
	for name, f := range packages["minfer"].Files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, d := range f.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || obvious[f.Name.Name] || f.Recv != nil && !exportedReceiver(f) {
				continue
			}
			if !shown[f.Name.Name] {
				t.Errorf("%s: %s is in no runnable example", name, f.Name.Name)
			}
		}
	}
}

func exportedReceiver(f *ast.FuncDecl) bool {
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	name, ok := t.(*ast.Ident)
	return ok && name.IsExported()
}
