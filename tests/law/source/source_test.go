package source

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// write makes a project of files.
func write(t *testing.T, files map[string]string) []*File {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestLines(t *testing.T) {
	wide := strings.Repeat("x", 120)
	files := write(t, map[string]string{"a/a.go": "// Package a.\npackage a\n\n/* two\n" + wide + " */\n\nvar s = `one\n\nthree` // " + wide + "\n\n// " + wide + "\nvar t int\n"})
	f := files[0]
	if f.Lines != 12 || f.Code != 5 || f.Wide != 2 {
		t.Errorf("%d lines, %d of code, %d wide; want 12, 5, 2", f.Lines, f.Code, f.Wide)
	}
}

func TestProductionIsWhatShips(t *testing.T) {
	imports := func(name, path string) string {
		return "package " + name + "\n\nimport \"" + Module + "/" + path + "\"\n"
	}
	files := write(t, map[string]string{
		"cmd/c/main.go":        imports("main", "a"),
		"a/a.go":               imports("a", "b"),
		"a/a_test.go":          imports("a", "suite"),
		"b/b.go":               "package b\n",
		"suite/s.go":           imports("suite", "b"),
		"fresh/f.go":           "package fresh\n",
		"tests/t/t.go":         imports("t", "a"),
		"examples/e/e.go":      "package main\n",
		"packaging/p/p.go":     "package main\n",
		"a/testdata/x.go":      "package x\n",
		".hidden/x.go":         "package x\n",
		"tests/tools/bin/x.go": "package x\n",
	})
	var got []string
	for _, f := range Production(files) {
		got = append(got, f.Path)
	}
	if want := []string{"a/a.go", "b/b.go", "cmd/c/main.go", "fresh/f.go"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q ship, want %q", got, want)
	}
}

func TestMethods(t *testing.T) {
	files := write(t, map[string]string{
		"a/a.go":       "package a\n\ntype A[T any] struct{}\n\nfunc (a *A[T]) M() {}\nfunc (A[T]) N() {}\nfunc F() {}\n",
		"a/a_linux.go": "package a\n\nfunc (a *A[T]) M() {}\n",
	})
	if got, want := Methods(files), map[string]int{"a.A": 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
