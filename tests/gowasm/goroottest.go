package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// batchSize is how many programs of GOROOT/test share a module: each brings little, and the runtime
// is the same.
const batchSize = 40

// goTest is a program of GOROOT/test, rewritten into a package with a function Main.
type goTest struct {
	name   string // "fixedbugs/issue123"
	folder string // of its package
	source []byte
	alone  bool // what it does before main is not for others
}

// goTests lists the programs of GOROOT/test that are one file and take no arguments, many to a
// module.
func (s *suite) goTests() ([]*module, error) {
	dir := filepath.Join(s.goroot, "test")
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	deeper, err := filepath.Glob(filepath.Join(dir, "*", "*.go"))
	if err != nil {
		return nil, err
	}
	var batch []goTest
	var all []*module
	batches := 0
	add := func() {
		if len(batch) > 0 {
			batches++
			all = append(all, s.batch(fmt.Sprintf("test/batch%02d", batches), batch))
		}
		batch = nil
	}
	for _, file := range append(files, deeper...) {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, _ := filepath.Rel(dir, strings.TrimSuffix(file, ".go"))
		t, ok := newGoTest(name, source)
		switch {
		case !ok:
		case t.alone:
			all = append(all, s.batch("test/"+t.name, []goTest{t}))
		default:
			if batch = append(batch, t); len(batch) == batchSize {
				add()
			}
		}
	}
	add()
	return all, nil
}

// newGoTest makes a package of a program, or declines with false.
func newGoTest(name string, source []byte) (goTest, bool) {
	head, _, _ := bytes.Cut(source, []byte("\n"))
	if action := strings.TrimSpace(strings.TrimPrefix(string(head), "//")); action != "run" || !bytes.HasPrefix(head, []byte("//")) {
		return goTest{}, false
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
	if err != nil || file.Name.Name != "main" {
		return goTest{}, false
	}
	t := goTest{name: name, folder: "p_" + regexp.MustCompile(`\W`).ReplaceAllString(name, "_")}
	var main *ast.Ident
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		switch {
		case ok && f.Recv == nil && f.Name.Name == "main":
			main = f.Name
		case ok && f.Recv == nil && f.Name.Name == "init":
			t.alone = true
		}
	}
	if main == nil {
		return goTest{}, false
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	t.source = slices.Concat(source[:at(file.Name.Pos())], []byte(t.folder), source[at(file.Name.End()):at(main.Pos())],
		[]byte("Main"), source[at(main.End()):])
	return t, true
}

// batch is a module that is one of several programs, by its argument.
func (s *suite) batch(name string, tests []goTest) *module {
	m := &module{name: name, lasting: true}
	m.build = func(ctx context.Context, out string) error { return s.buildBatch(ctx, out, slices.Clone(tests)) }
	for _, t := range tests {
		p := program{name: t.name, args: []string{"test", t.folder}, dir: "/"}
		if len(tests) == 1 {
			p.name = "" // it is the module
		}
		m.programs = append(m.programs, p)
	}
	return m
}

// buildBatch builds the module with the tests that can be built.
func (s *suite) buildBatch(ctx context.Context, out string, tests []goTest) error {
	dir, err := os.MkdirTemp(filepath.Dir(out), "batch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, t := range tests {
		if err := writeFile(filepath.Join(dir, t.folder, "main.go"), t.source); err != nil {
			return err
		}
	}
	if err := writeFile(filepath.Join(dir, "go.mod"), []byte("module batch\n\ngo 1.26\n")); err != nil {
		return err
	}
	for range 8 {
		if err := writeFile(filepath.Join(dir, "main.go"), batchMain(tests)); err != nil {
			return err
		}
		err = s.golang(ctx, dir, "build", "-trimpath", "-gcflags=-e", "-o", out, ".")
		var refused *buildError
		if err == nil || !errors.As(err, &refused) {
			return err
		}
		before := len(tests)
		tests = slices.DeleteFunc(tests, func(t goTest) bool {
			return regexp.MustCompile(`\b` + t.folder + `\b`).MatchString(refused.text)
		})
		if len(tests) == before || len(tests) == 0 {
			return err
		}
	}
	return err
}

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// missing is what a batch writes for a program that is not in it.
const missing = "this program is not in the batch\n"

// batchMain is the program that runs one of the tests.
func batchMain(tests []goTest) []byte {
	var b bytes.Buffer
	b.WriteString("package main\n\nimport (\n\t\"os\"\n\n")
	for _, t := range tests {
		fmt.Fprintf(&b, "\t%q\n", "batch/"+t.folder)
	}
	b.WriteString(")\n\nfunc main() {\n\tname := os.Args[1]\n\tos.Args = os.Args[:1]\n\tswitch name {\n")
	for _, t := range tests {
		fmt.Fprintf(&b, "\tcase %q:\n\t\t%s.Main()\n", t.folder, t.folder)
	}
	fmt.Fprintf(&b, "\tdefault:\n\t\tos.Stdout.WriteString(%q)\n\t}\n}\n", missing)
	return b.Bytes()
}
