package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// written finds what a page writes of this program: in code within a line, and in its scripts.
var written = regexp.MustCompile("(?m)`(?:sudo )?(?:bin/)?sunaba( [^`]+)`|^[^#\n`]*?\\b(?:bin/)?sunaba( [a-z][^\n]*)$")

// Commands and flags that the documents name exist.
func TestDocuments(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		pages = append(pages, found...)
	}
	helps := map[string]string{}
	help := func(words ...string) string {
		key := strings.Join(words, " ")
		if _, known := helps[key]; !known {
			var out bytes.Buffer
			if code := run(append(append([]string{"sunaba"}, words...), "--help"), &out, &out); code != 0 {
				out.Reset()
			}
			helps[key] = out.String()
		}
		return helps[key]
	}
	groups := regexp.MustCompile(`(?m)^   (?:sunaba )?[a-z ]+ \[?(?:command|COMMAND)`)
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range written.FindAllSubmatch(text, -1) {
			line := string(match[1]) + string(match[2])
			words := strings.Fields(regexp.MustCompile(`\s#.*|\s(&&|\|\|?|;|&|>)(\s.*)?$`).ReplaceAllString(line, ""))
			if len(words) == 0 || !regexp.MustCompile(`^[a-z-]+$`).MatchString(words[0]) {
				continue
			}
			command := words[:1]
			if help(command...) == "" {
				if match[1] != nil || strings.HasPrefix(words[0], "-") {
					t.Errorf("%s: %q: there is no such command", page, line)
				}
				continue // a word behind the name in a sentence of a script's comment
			}
			if len(words) > 1 && groups.MatchString(help(command...)) && regexp.MustCompile(`^[a-z]+$`).MatchString(words[1]) {
				command = words[:2]
				if help(command...) == "" {
					t.Errorf("%s: %q: there is no such command", page, line)
					continue
				}
			}
			seen++
			for _, word := range words[len(command):] {
				flag, _, _ := strings.Cut(strings.Trim(word, "[]…,"), "=")
				if flag == "--" || strings.HasSuffix(flag, ".wasm") { // what follows is the program's own
					break
				}
				if flag == "-it" {
					flag = "-i"
				}
				if regexp.MustCompile(`^--?[a-z][a-z-]*$`).MatchString(flag) && !regexp.MustCompile(`(^|[ ,])`+flag+`($|[ ,\n=])`).MatchString(help(command...)) {
					t.Errorf("%s: %q: %q has no flag %s", page, line, strings.Join(command, " "), flag)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d commands are found in the documents", seen)
	}
}

// The reference has all annotations of the program, and no other.
func TestAnnotationsInDocuments(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("[\"`](io\\.sunaba\\.[a-z.-]*[a-z])[\"`]")
	documented, used := map[string]bool{}, map[string]bool{}
	for _, match := range name.FindAllSubmatch(page, -1) {
		documented[string(match[1])] = true
	}
	for _, folder := range []string{"cmd", "criserver", "images", "pods", "runtimeclass", "shim"} {
		err := filepath.WalkDir("../../"+folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, match := range name.FindAllSubmatch(source, -1) {
				used[string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, all := range []struct {
		has, lacks map[string]bool
		text       string
	}{{used, documented, "is not in docs/reference.md"}, {documented, used, "of docs/reference.md is not in the program"}} {
		for _, name := range slices.Sorted(maps.Keys(all.has)) {
			if !all.lacks[name] {
				t.Errorf("%s %s", name, all.text)
			}
		}
	}
}

// Links between documents lead to a file, and to a heading of it.
func TestLinksInDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchors := func(page string) map[string]bool {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, match := range heading.FindAllSubmatch(text, -1) {
			words := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(string(match[1]), "$1")
			found[strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(words), ""), " ", "-")] = true
		}
		return found
	}
	seen := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md", "tests/*/*.md"} {
		pages, err := filepath.Glob("../../" + pattern)
		if err != nil || len(pages) == 0 {
			t.Fatal(pattern, err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range link.FindAllSubmatch(text, -1) {
				to, anchor, _ := strings.Cut(string(match[1]), "#")
				if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
					continue
				}
				seen++
				file := page
				if to != "" {
					file = filepath.Join(filepath.Dir(page), to)
				}
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s: a link to %s: %v", page, match[1], err)
				} else if anchor != "" && strings.HasSuffix(file, ".md") && !anchors(file)[anchor] {
					t.Errorf("%s: %s has no heading for #%s", page, file, anchor)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d links are found", seen)
	}
}
