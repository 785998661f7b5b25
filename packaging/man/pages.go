package main

import (
	"fmt"
	"strings"
)

// Page is one man page.
type Page struct {
	Name string // without the section's number: "sunaba-images-pull"
	Text string // in man(7)'s macros
}

// Pages are the pages of a program and of all its commands. ask returns the help of the command
// with the given names, of the program itself for none.
func Pages(program, date string, ask func(path []string) (string, error)) ([]Page, error) {
	var pages []Page
	var walk func(path []string, above string) error
	walk = func(path []string, above string) error {
		text, err := ask(path)
		if err != nil {
			return err
		}
		h := parse(text)
		if len(h) == 0 {
			return fmt.Errorf("the help of %q has no sections", strings.Join(path, " "))
		}
		name := strings.Join(append([]string{program}, path...), "-")
		var commands []string
		for _, s := range h {
			if s.title == "COMMANDS" {
				commands = append(commands, s.commands()...)
			}
		}
		pages = append(pages, Page{name, h.roff(name, date, related(name, above, commands))})
		for _, c := range commands {
			if err := walk(append(append([]string(nil), path...), c), name); err != nil {
				return err
			}
		}
		return nil
	}
	return pages, walk(nil, "")
}

// section is one part of a help text: its title and its lines, without their common indentation.
type section struct {
	title string
	lines []string
}

type help []section

func parse(text string) help {
	var h help
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		title, rest, ok := strings.Cut(line, ":")
		switch {
		case ok && rest == "" && title != "" && title == strings.ToUpper(title) && title[0] != ' ':
			h = append(h, section{title: title})
		case len(h) > 0:
			s := &h[len(h)-1]
			s.lines = append(s.lines, strings.TrimPrefix(line, "   "))
		}
	}
	for i := range h {
		s := &h[i]
		for len(s.lines) > 0 && s.lines[len(s.lines)-1] == "" {
			s.lines = s.lines[:len(s.lines)-1]
		}
	}
	return h
}

// item splits a line of COMMANDS or OPTIONS: what it is, and what it does.
func item(line string) (name, does string, ok bool) {
	name, does, ok = strings.Cut(strings.TrimSpace(line), "  ")
	return name, strings.TrimSpace(does), ok
}

// commands are the names of the commands that a section lists, without "help", which has no page.
func (s section) commands() []string {
	var names []string
	for _, line := range s.lines {
		name, _, ok := item(line)
		if name, _, _ = strings.Cut(name, ","); ok && name != "help" {
			names = append(names, name)
		}
	}
	return names
}

// roff writes a help as a page.
func (h help) roff(name, date string, related []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 %q\n", strings.ToUpper(name), date)
	for _, s := range h {
		switch s.title {
		case "CATEGORY", "VERSION":
			continue
		case "NAME":
			_, does, _ := strings.Cut(strings.Join(s.lines, " "), " - ")
			fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(does))
		case "USAGE":
			b.WriteString(".SH SYNOPSIS\n")
			for _, line := range s.lines {
				fmt.Fprintf(&b, ".B %s\n.br\n", escape(line))
			}
		case "COMMANDS", "OPTIONS", "GLOBAL OPTIONS":
			fmt.Fprintf(&b, ".SH %s\n", s.title)
			for _, line := range s.lines {
				label, does, ok := item(line)
				switch {
				case ok:
					fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escape(label), escape(does))
				case line != "":
					fmt.Fprintf(&b, ".SS %s\n", escape(strings.TrimSuffix(strings.TrimSpace(line), ":")))
				}
			}
		default:
			fmt.Fprintf(&b, ".SH %s\n.nf\n", s.title)
			for _, line := range s.lines {
				b.WriteString(escape(line) + "\n")
			}
			b.WriteString(".fi\n")
		}
	}
	if len(related) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, r := range related {
			end := ","
			if i == len(related)-1 {
				end = ""
			}
			fmt.Fprintf(&b, ".BR %s (1)%s\n", escape(r), end)
		}
	}
	return b.String()
}

// related are the page of the command above, "" for none, and those of the commands below.
func related(name, above string, commands []string) []string {
	var all []string
	if above != "" {
		all = append(all, above)
	}
	for _, c := range commands {
		all = append(all, name+"-"+c)
	}
	return all
}

// escape keeps a line from being read as macros: backslashes, hyphens, and a dot or quote at the
// beginning.
func escape(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
