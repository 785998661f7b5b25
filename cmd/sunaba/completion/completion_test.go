package completion

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// program is a command line with the kinds of words that there are.
func program(out *bytes.Buffer) *cli.Command {
	values := func(_ context.Context, r Request) []Candidate {
		if r.Flag == "output" {
			return Names("wide", "yaml")
		}
		if r.Flag != "" {
			return nil
		}
		return Names("web-"+strings.Join(append(r.Path, r.Args...), "-")+r.Flags["namespace"], "feed:", "two words")
	}
	return &cli.Command{Name: "sunaba", Writer: out, Commands: append([]*cli.Command{
		{Name: "get", Usage: "list", Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}}, &cli.StringFlag{Name: "namespace", Aliases: []string{"n"}},
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}},
		}},
		{Name: "config", Commands: []*cli.Command{{Name: "check"}, {Name: "default"}}},
	}, Commands(values)...)}
}

func TestComplete(t *testing.T) {
	for line, want := range map[string]string{
		"ge":             "get",
		"get ":           "web-get feed:",
		"get we":         "web-get",
		"get a we":       "web-get-a",
		"get -n x we":    "web-getx",
		"get -wn x we":   "web-getx",
		"get -w we":      "web-get",
		"get --output ":  "wide yaml",
		"get -wo y":      "yaml",
		"get --output=y": "--output=yaml",
		"get --none=y":   "",
		"get -n ":        "",
		"get --w":        "--watch",
		"get -- ":        "",
		"get -x $(id) w": "web-get-$(id)",
		"config ":        "check default web-config feed:",
		"config c":       "check",
		"comp":           "completion",
		"__":             "",
	} {
		var out bytes.Buffer
		if err := program(&out).Run(t.Context(), append([]string{"sunaba", "__complete"}, strings.Split(line, " ")...)); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		var got []string
		for l := range strings.Lines(out.String()) {
			text, _, _ := strings.Cut(l, "\t")
			got = append(got, text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// The script is sourced by a real bash and asked as readline asks it. The program that it calls
// prints what it is called with, so that one sees that words are not evaluated.
func TestBash(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var script bytes.Buffer
	if err := program(&script).Run(t.Context(), []string{"sunaba", "completion", "bash"}); err != nil {
		t.Fatal(err)
	}
	write("script", script.String())
	write("sunaba", "#!/bin/sh\nprintf '%s|' \"$@\" > "+dir+"/asked\nprintf -- 'web:/x\\tone\\n--output=yaml\\ttwo words\\n'\n")
	for _, tt := range []struct{ line, words, asked, reply string }{
		{"sunaba get we", "sunaba get we", "__complete|get|we|", "web:/x --output=yaml"},
		{"sunaba get ", "sunaba get ''", "__complete|get||", "web:/x --output=yaml"},
		{"sunaba cp web:/", "sunaba cp web : /", "__complete|cp|web:/|", "/x --output=yaml"},
		{"sunaba get --output=y", "sunaba get --output = y", "__complete|get|--output=y|", "web:/x yaml"},
		{"sunaba get $(touch${IFS}evil) we", "sunaba get we", "__complete|get|$(touch${IFS}evil)|we|", "web:/x --output=yaml"},
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "--norc", "-c", `source script
complete -p sunaba >&2 || exit 1
COMP_WORDS=(`+tt.words+`) COMP_CWORD=$((${#COMP_WORDS[@]}-1)) COMP_LINE=$1 COMP_POINT=${#1}
_sunaba sunaba && echo "${COMPREPLY[*]}"`, "bash", tt.line)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		out, err := cmd.Output()
		if err != nil || strings.TrimSpace(string(out)) != tt.reply {
			t.Errorf("%q: %v, %q, want %q", tt.line, err, out, tt.reply)
		}
		if asked, err := os.ReadFile(filepath.Join(dir, "asked")); err != nil || string(asked) != tt.asked {
			t.Errorf("%q: asked %q, %v, want %q", tt.line, asked, err, tt.asked)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
		t.Error("a word was evaluated")
	}
}
