package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
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
