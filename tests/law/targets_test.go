package law

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of docs/development.md has every target of the Makefile.
func TestTargetsAreDocumented(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	targets := regexp.MustCompile(`(?m)^\.PHONY:((?:.*\\\n)*.*)$`).FindStringSubmatch(read("Makefile"))
	_, table, _ := strings.Cut(read("docs/development.md"), "\n| `make …` | does |\n")
	table, _, found := strings.Cut(table, "\n## ")
	if targets == nil || !found {
		t.Fatal("the Makefile names no targets, or docs/development.md has no table of them")
	}
	for name := range strings.FieldsSeq(strings.ReplaceAll(targets[1], "\\", " ")) {
		if !strings.Contains(table, "`"+name+"`") && !strings.Contains(table, "`"+name+" ") {
			t.Errorf("target %s is not in docs/development.md", name)
		}
	}
}
