package main

import (
	"fmt"
	"strings"
	"testing"
)

const root = `NAME:
   tool - does things

USAGE:
   tool [global options] [command]

VERSION:
   1.2

COMMANDS:
   port-forward  listen on ports
   make, mk      make a thing
   help, h       show help

   Of others:
     see  look at it

GLOBAL OPTIONS:
   --help, -h  show help
`

const sub = `NAME:
   tool make - make a thing

USAGE:
   tool make [options] FILE

DESCRIPTION:
   .gitignore is read first.
   A \ stays.

OPTIONS:
   --size N  how large: 1-9 (default: 3)
`

func TestPages(t *testing.T) {
	pages, err := Pages("tool", "2026-01-02", func(path []string) (string, error) {
		if len(path) == 0 {
			return root, nil
		}
		return sub, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pages {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "tool tool-port-forward tool-make tool-see" {
		t.Errorf("pages %s", got)
	}
	for n, want := range map[int][]string{
		0: {".TH TOOL 1 \"2026-01-02\"\n", ".SH NAME\ntool \\- does things\n", ".TP\n.B make, mk\nmake a thing\n", ".SS Of others\n.TP\n.B see\nlook at it\n", ".BR tool\\-port\\-forward (1),\n.BR tool\\-make (1),\n.BR tool\\-see (1)\n"},
		1: {".SH SEE ALSO\n.BR tool (1)\n"},
		2: {".SH SYNOPSIS\n.B tool make [options] FILE\n", ".SH DESCRIPTION\n.nf\n\\&.gitignore is read first.\nA \\e stays.\n.fi\n", ".B \\-\\-size N\nhow large: 1\\-9 (default: 3)\n"},
	} {
		for _, w := range want {
			if !strings.Contains(pages[n].Text, w) {
				t.Errorf("page %d lacks %q:\n%s", n, w, pages[n].Text)
			}
		}
	}
	if strings.Contains(pages[0].Text, "1.2") {
		t.Error("the version is in the page: each build would have another one")
	}
}

func TestNoHelp(t *testing.T) {
	if _, err := Pages("tool", "", func([]string) (string, error) { return "unknown flag\n", nil }); err == nil {
		t.Error("a text without sections made a page")
	}
	failed := fmt.Errorf("exit 1")
	if _, err := Pages("tool", "", func([]string) (string, error) { return "", failed }); err != failed {
		t.Errorf("error %v", err)
	}
	if err := write("/bin/false", t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("a program without help: %v", err)
	}
}
