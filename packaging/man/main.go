// Command man writes man pages from a program's own help: one for the program, and one for each of
// its commands.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	program := flag.String("program", "", "the `PROGRAM` to ask for its help")
	out := flag.String("out", "", "the `FOLDER` to write to")
	date := flag.String("date", "", "the `DATE` that the pages show, as 2026-11-25")
	flag.Parse()
	if err := write(*program, *out, *date); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(program, out, date string) error {
	if program == "" || out == "" {
		return fmt.Errorf("want -program PROGRAM and -out FOLDER")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	ask := func(path []string) (string, error) {
		text, err := exec.Command(program, append(path, "--help")...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("ask %q for its help: %w: %s", strings.Join(path, " "), err, text)
		}
		return string(text), nil
	}
	pages, err := Pages(filepath.Base(program), date, ask)
	if err != nil {
		return err
	}
	for _, p := range pages {
		if err := os.WriteFile(filepath.Join(out, p.Name+".1"), []byte(p.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
