package generate

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// export opens what the compiler wrote of a package of the standard library.
func export(path string) (io.ReadCloser, error) {
	out, err := exec.Command("go", "list", "-export", "-f", "{{.Export}}", path).Output()
	if err != nil {
		return nil, err
	}
	return os.Open(strings.TrimSpace(string(out)))
}

// TestProgramsAreValid has the programs of many seeds checked as the compiler does.
func TestProgramsAreValid(t *testing.T) {
	set := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(set, "gc", export), GoVersion: "go1.26", Error: func(error) {}}
	for seed := range uint64(8) {
		source := Program(seed)
		if source != Program(seed) {
			t.Fatalf("seed %d: two programs", seed)
		}
		file, err := parser.ParseFile(set, "main.go", source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if _, err := config.Check("main", set, []*ast.File{file}, nil); err != nil {
			at := err.(types.Error)
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Split(source, "\n")[set.Position(at.Pos).Line-1])
		}
	}
}
