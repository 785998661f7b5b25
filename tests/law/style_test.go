package law

import (
	"bytes"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/law/source"
)

// A reader starts at a package's comment; two of them disagree sooner or later.
func TestEveryPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{}
	eachFile(t, func(path string, _ *token.FileSet, file *ast.File) {
		dir := filepath.Dir(path)
		if strings.HasSuffix(file.Name.Name, "_test") {
			return
		}
		if _, seen := comments[dir]; !seen {
			comments[dir] = nil
		}
		if file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != "" {
			comments[dir] = append(comments[dir], filepath.Base(path))
		}
	})
	for dir, files := range comments {
		if len(files) != 1 {
			t.Errorf("%s has %d package comments %v, want exactly one", dir, len(files), files)
		}
	}
}

// A name that says nothing collects everything.
func TestPackageNamesSaySomething(t *testing.T) {
	for _, p := range project(t) {
		switch p.Name {
		case "util", "utils", "common", "helper", "helpers", "misc", "base", "shared":
			t.Errorf("%s: a package called %q has no subject", p.ImportPath, p.Name)
		}
	}
}

// Wiring is plain calls in cmd. An init function or an import for its side effect is wiring that
// nobody can read or leave out.
func TestNothingHappensBeforeMain(t *testing.T) {
	eachFile(t, func(path string, set *token.FileSet, file *ast.File) {
		for _, spec := range file.Imports {
			if spec.Name != nil && spec.Name.Name == "_" && spec.Path.Value != `"embed"` {
				t.Errorf("%s: blank import of %s", set.Position(spec.Pos()), spec.Path.Value)
			}
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: func init", set.Position(fn.Pos()))
			}
		}
	})
}

// A package-level variable that holds a function is a hook that anybody may set at any time, also
// while others call it. What may differ goes into Options, given to New.
func TestNoPackageLevelHooks(t *testing.T) {
	files := sources(t)
	functions := declaredFunctions(files)
	for _, f := range files {
		for _, decl := range f.AST.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				value := spec.(*ast.ValueSpec)
				_, hook := value.Type.(*ast.FuncType)
				for _, v := range value.Values {
					hook = hook || isFunction(t, f, functions, v)
				}
				if hook {
					t.Errorf("%s: package-level variable %s holds a function", f.Set.Position(value.Pos()), value.Names[0].Name)
				}
			}
		}
	}
}

// declaredFunctions are the functions of the project, as "folder.Name".
func declaredFunctions(files []*source.File) map[string]bool {
	functions := map[string]bool{}
	for _, f := range files {
		for _, decl := range f.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				functions[f.Folder()+"."+fn.Name.Name] = true
			}
		}
	}
	return functions
}

// isFunction says whether a variable's first value is a function: a literal, one of the package, or
// one of another package.
func isFunction(t *testing.T, f *source.File, functions map[string]bool, value ast.Expr) bool {
	t.Helper()
	switch v := value.(type) {
	case *ast.FuncLit:
		return true
	case *ast.Ident:
		return functions[f.Folder()+"."+v.Name]
	case *ast.SelectorExpr:
		x, ok := v.X.(*ast.Ident)
		if !ok {
			return false
		}
		path := f.Import(x.Name)
		if own, ok := strings.CutPrefix(path, source.Module+"/"); ok {
			return functions[own+"."+v.Sel.Name]
		}
		return path != "" && isForeignFunction(t, path, v.Sel.Name)
	}
	return false
}

// isForeignFunction asks go doc, which knows the version that go.mod names.
func isForeignFunction(t *testing.T, path, name string) bool {
	t.Helper()
	cmd := exec.Command("go", "doc", "-short", path, name)
	cmd.Dir = root(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("go doc %s %s: %v\n%s", path, name, err, out)
	}
	return bytes.HasPrefix(out, []byte("func "))
}

// forbidden are words that must not stand in what is committed. They are put together from two
// halves so that this file does not trip over itself.
var forbidden = []struct{ word, reason string }{
	{"TO" + "DO", "unfinished work is an issue, not a comment"},
	{"FIX" + "ME", "unfinished work is an issue, not a comment"},
	{"/tmp/" + "sunaba/", "a path of one machine means nothing on another"},
	{"/work/" + "main", "a path of one machine means nothing on another"},
	{"/work/" + "shared", "a path of one machine means nothing on another"},
	{"<<<<" + "<<< ", "a conflict that was committed instead of resolved"},
	{">>>>" + ">>> ", "a conflict that was committed instead of resolved"},
}

func TestForbiddenWords(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for _, path := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root(t), path))
		if err != nil || bytes.IndexByte(data, 0) >= 0 {
			continue // removed in the working tree, or not text
		}
		for n, line := range strings.Split(string(data), "\n") {
			for _, f := range forbidden {
				if strings.Contains(line, f.word) {
					t.Errorf("%s:%d: %q: %s", path, n+1, f.word, f.reason)
				}
			}
		}
	}
}
