package law

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/law/source"
)

const module = source.Module

// pkg is what `go list` says of one package.
type pkg struct {
	ImportPath, Name, Dir   string
	Imports                 []string
	TestImports             []string
	XTestImports            []string
	GoFiles, IgnoredGoFiles []string
	TestGoFiles             []string
}

// rel is the package's folder within the project: "shim/runc".
func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// goList runs `go list -json` in the project's root and decodes what it prints.
func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Name,Dir,Imports,TestImports,XTestImports,GoFiles,IgnoredGoFiles,TestGoFiles"}, args...)...)
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %q: %v\n%s", args, err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("decode the answer of go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// listed is what project has listed.
var listed []pkg

// project lists every package of the project, once for all tests.
func project(t *testing.T) []pkg {
	t.Helper()
	if len(listed) == 0 {
		listed = goList(t, "./...")
	}
	if len(listed) == 0 {
		t.Fatal("go list ./... found no package")
	}
	return listed
}

// root is the folder of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("find the project's root: %v", err)
	}
	return dir
}

// eachFile parses every Go file of the project, build-constrained ones included, and calls fn with
// its path from the root.
func eachFile(t *testing.T, fn func(path string, set *token.FileSet, file *ast.File)) {
	t.Helper()
	for _, f := range sources(t) {
		fn(f.Path, f.Set, f.AST)
	}
}

// read reads every Go file of the project, once for all tests: none of them changes it.
var read = sync.OnceValues(func() ([]*source.File, error) { return source.Read("../..") })

// sources are every Go file of the project.
func sources(t *testing.T) []*source.File {
	t.Helper()
	files, err := read()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// below says whether path is one of folders or lies in one.
func below(path string, folders ...string) bool {
	for _, f := range folders {
		if path == f || strings.HasPrefix(path, f+"/") {
			return true
		}
	}
	return false
}

// What tests build is what a release builds.
func TestTagsAreTheMakefiles(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if line := "\nTAGS    := " + binaries.Tags + "\n"; !strings.Contains(string(data), line) {
		t.Errorf("the Makefile has no line %q: tests/binaries builds other binaries than make does", strings.TrimSpace(line))
	}
}
