package law

import (
	"flag"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/law/source"
)

// dialect are wordings that readers of the field search for in vain, or read twice. Each has a plain
// word: start, remove, failed to, does not exist, unowned, retry, except. Only wordings that are
// hardly ever the right ones are listed.
var dialect = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	`(?:goes|go|went|going|gone) on`, `(?:is|are|was|were|has|have|had)(?: just| long)? gone`, `goes without`,
	`begins?`, `began`, `begun`, `beginning`,
	`there (?:is|are|was|were) none`, `(?:is|was) none`, `to be had`, `could not be`,
	`(?:is|are) tried again`, `under way`, `at hand`,
	`nobody's`, `nothing's`, `(?:is|are) no matter`, `(?:became|becomes?|comes?|came) of`,
	`what there is`, `but for`, `hopeless`, `stillborn`, `bur(?:y|ied|ies)`, `lent`, `lends?`,
}, "|") + `)\b`)

// list is a flag of this test: `go test ./tests/law -run TestDialect -list` prints every hit.
var list = flag.Bool("list", false, "print what the law about the project's language counts")

// hit is one place that the law about the language counts.
type hit struct{ where, word, text string }

// hits are those in comments and strings of Go files that are no tests, and in documents.
func hits(t *testing.T, files []*source.File) []hit {
	t.Helper()
	var all []hit
	look := func(where, text string) {
		text = strings.Join(strings.Fields(text), " ")
		for _, at := range dialect.FindAllStringIndex(text, -1) {
			all = append(all, hit{where, text[at[0]:at[1]], text[max(0, at[0]-50):min(len(text), at[1]+50)]})
		}
	}
	for _, f := range files {
		if f.Test() {
			continue
		}
		for _, group := range f.AST.Comments {
			look(f.Set.Position(group.Pos()).String(), group.Text())
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				look(f.Set.Position(l.Pos()).String(), l.Value)
			}
			return true
		})
	}
	for _, name := range documents(t) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		look(name, string(data))
	}
	return all
}

// documents are the project's texts in Markdown.
func documents(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root(t), func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "node_modules" || d.Name() != "." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestDialect shows where the law finds what ratchet.json lets only fall.
func TestDialect(t *testing.T) {
	if !*list {
		return
	}
	all := hits(t, sources(t))
	slices.SortStableFunc(all, func(a, b hit) int { return strings.Compare(a.where, b.where) })
	for _, h := range all {
		t.Logf("%s: %q: %s", h.where, h.word, h.text)
	}
	t.Logf("%d hits", len(all))
}

// The law sees a wording that is wrapped, and not a part of a word.
func TestDialectIsSeen(t *testing.T) {
	for text, want := range map[string]int{
		"it goes\n on, and is gone": 2, "there is none": 1, "ongoing onset": 0, "The server begins": 1, "beginnings": 0, "silent": 0,
	} {
		if got := len(dialect.FindAllString(strings.Join(strings.Fields(text), " "), -1)); got != want {
			t.Errorf("%q has %d hits, want %d", text, got, want)
		}
	}
}
