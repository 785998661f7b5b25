// Package source reads the project's Go files and measures them, for the laws and for the counter.
package source

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the project's module.
const Module = "github.com/sunaba-project/sunaba"

// Columns is the width that comments keep to.
const Columns = 100

// File is one Go file.
type File struct {
	Path string // from the root, with slashes
	Set  *token.FileSet
	AST  *ast.File

	Lines    int // all lines
	Code     int // lines that hold more than blanks and comments
	Wide     int // lines of comment alone that are wider than Columns characters
	contents []byte
}

// Folder is the file's package folder: "shim/runc".
func (f *File) Folder() string { return path.Dir(f.Path) }

// Test says whether only `go test` compiles the file.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Imports are the import paths of the file.
func (f *File) Imports() []string {
	var all []string
	for _, spec := range f.AST.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// Import returns the path of the package that the file knows by name; "" if it knows no such package. Without a name in
// the import itself, a package's name is taken for the last part of its path that is no version.
func (f *File) Import(name string) string {
	for _, spec := range f.AST.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		known := path.Base(p)
		if len(known) > 1 && known[0] == 'v' && strings.Trim(known[1:], "0123456789") == "" {
			known = path.Base(path.Dir(p))
		}
		known = strings.TrimPrefix(known, "go-")
		if spec.Name != nil {
			known = spec.Name.Name
		}
		if known == name {
			return p
		}
	}
	return ""
}

// Read parses every Go file below root, whatever its build constraints are. It leaves out hidden
// folders, "testdata" and "bin".
func Read(root string) ([]*File, error) {
	var files []*File
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && name != root && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(base, ".go") {
			return nil
		}
		f, err := read(root, name)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the project's Go files: %w", err)
	}
	return files, nil
}

func read(root, name string) (*File, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return nil, err
	}
	f := &File{Path: filepath.ToSlash(rel), Set: token.NewFileSet(), contents: data}
	f.AST, err = parser.ParseFile(f.Set, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f.measure()
	return f, nil
}

// measure counts the file's lines. A line of a raw string is code.
func (f *File) measure() {
	code := map[int]bool{}
	set := token.NewFileSet()
	file := set.AddFile(f.Path, -1, len(f.contents))
	var s scanner.Scanner
	s.Init(file, f.contents, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // the scanner adds it at the end of a line
		}
		first := file.Line(pos)
		for n := range 1 + strings.Count(text, "\n") {
			code[first+n] = true
		}
	}
	f.Lines, f.Code = strings.Count(string(f.contents), "\n"), len(code)
	lines := strings.Split(string(f.contents), "\n")
	for _, group := range f.AST.Comments {
		for n := f.Set.Position(group.Pos()).Line; n <= f.Set.Position(group.End()).Line; n++ {
			if !code[n] && len([]rune(lines[n-1])) > Columns {
				f.Wide++
			}
		}
	}
}

// Production returns the files that ship: without tests, examples, what makes packages, and test support. Test support
// is a package that no command reaches by its imports and that a test does import.
func Production(files []*File) []*File {
	support := testSupport(files)
	var kept []*File
	for _, f := range files {
		if !f.Test() && !aside(f) && !slices.Contains(support, f.Folder()) {
			kept = append(kept, f)
		}
	}
	return kept
}

// aside says whether a file lies in a folder that does not ship.
func aside(f *File) bool {
	return strings.HasPrefix(f.Path, "tests/") || strings.HasPrefix(f.Path, "examples/") || strings.HasPrefix(f.Path, "packaging/")
}

// testSupport returns the folders of packages that only tests import.
func testSupport(files []*File) []string {
	imports := map[string][]string{} // of what is no test, by folder
	tested := map[string]bool{}      // folders that a test or test support imports
	for _, f := range files {
		for _, p := range f.Imports() {
			to, own := strings.CutPrefix(p, Module+"/")
			switch {
			case !own:
			case f.Test() || aside(f):
				tested[to] = true
			default:
				imports[f.Folder()] = append(imports[f.Folder()], to)
			}
		}
	}
	reached := map[string]bool{}
	var reach func(string)
	reach = func(folder string) {
		if reached[folder] {
			return
		}
		reached[folder] = true
		for _, to := range imports[folder] {
			reach(to)
		}
	}
	for _, f := range files {
		if strings.HasPrefix(f.Path, "cmd/") && !f.Test() && f.AST.Name.Name == "main" {
			reach(f.Folder())
		}
	}
	var support []string
	for folder := range tested {
		if !reached[folder] {
			support = append(support, folder)
		}
	}
	slices.Sort(support)
	return support
}

// Methods counts the methods of each receiver type, as "folder.Type". A method that several
// build-constrained files declare counts once.
func Methods(files []*File) map[string]int {
	names := map[string]map[string]bool{}
	for _, f := range files {
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || len(fn.Recv.List) == 0 {
				continue
			}
			key := f.Folder() + "." + receiver(fn.Recv.List[0].Type)
			if names[key] == nil {
				names[key] = map[string]bool{}
			}
			names[key][fn.Name.Name] = true
		}
	}
	counts := map[string]int{}
	for key, set := range names {
		counts[key] = len(set)
	}
	return counts
}

// receiver is the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// Size is a number of lines.
type Size struct{ Files, Lines, Code int }

// Sizes adds up the files of each folder.
func Sizes(files []*File) map[string]Size {
	sizes := map[string]Size{}
	for _, f := range files {
		s := sizes[f.Folder()]
		sizes[f.Folder()] = Size{Files: s.Files + 1, Lines: s.Lines + f.Lines, Code: s.Code + f.Code}
	}
	return sizes
}
