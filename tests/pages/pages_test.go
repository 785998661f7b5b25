package pages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const page = "# Page\n\n```sh\necho one  two\necho three >&2\n```\n\n```text\none…\n…\n```\n\nMore:\n\n```sh\nfalse | true\n```\n"

func TestRead(t *testing.T) {
	blocks, err := Read(page)
	if err != nil || len(blocks) != 2 || blocks[0].Line != 4 || blocks[0].Script != "echo one  two\necho three >&2\n" || *blocks[0].Shown != "one…\n…\n" || blocks[1].Shown != nil {
		t.Errorf("%+v, %v", blocks, err)
	}
	for _, wrong := range []string{"```sh\necho\n", "```\necho\n```\n", "```text\nalone\n```\n", "```sh\ntrue\n```\nand then\n```text\nits output\n```\n"} {
		if blocks, err := Read(wrong); err == nil {
			t.Errorf("%q: %+v", wrong, blocks)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		shown, text string
		same        bool
	}{
		{"a b\n", "a     b\n", true}, {"a b\n", "a b", true}, {"a b\n", "ab\n", false}, {"a…c d\n", "abc d\n", true}, {"a\n…\nz\n", "a\nb\nc\nz\n", true},
		{"a\n…\nz\n", "a\nz\n", true}, {"a\n…\nz\n", "a\nb\n", false}, {"a\n", "a\nb\n", false}, {"a.c\n", "abc\n", false}, {"a\n", "", false},
	} {
		if err := Compare(c.shown, c.text); (err == nil) != c.same {
			t.Errorf("%q shown, %q printed: %v", c.shown, c.text, err)
		}
	}
}

func TestRun(t *testing.T) {
	blocks, err := Read(page)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), "page.md", blocks[:1], t.TempDir(), time.Minute); err != nil {
		t.Error(err)
	}
	if err := Run(t.Context(), "page.md", blocks, t.TempDir(), time.Minute); err == nil || !strings.HasPrefix(err.Error(), "page.md:16: ") {
		t.Errorf("a pipe that fails: %v", err)
	}
	other := "something else\n"
	if err := Run(t.Context(), "page.md", []Block{{Line: 1, Script: "echo something\n", Shown: &other}}, t.TempDir(), time.Minute); err == nil {
		t.Error("another output is taken")
	}
	if err := Run(t.Context(), "page.md", []Block{{Line: 1, Script: "sleep 100\n"}}, t.TempDir(), 50*time.Millisecond); err == nil {
		t.Error("it does not end, and is taken")
	}
}

// Each page that is run has something to run; tests/v2 runs them, each on a machine of its own.
func TestPages(t *testing.T) {
	files, err := filepath.Glob("../../docs/start/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if blocks, err := Read(string(text)); err != nil || len(blocks) < 2 {
			t.Errorf("%s: %d blocks, %v", file, len(blocks), err)
		}
	}
}
