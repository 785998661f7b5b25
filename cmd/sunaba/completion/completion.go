// Package completion completes command lines in shells. The shells' scripts ask the program itself,
// so that they know what this version has; they pass words on as they are and evaluate none.
package completion

import (
	"context"
	_ "embed" // the shells' scripts
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// patience is how long a server may take to tell names.
const patience = 2 * time.Second

var (
	//go:embed bash.sh
	bash string
	//go:embed zsh.zsh
	zsh string
	//go:embed fish.fish
	fish string
)

// Request is a word that is completed.
type Request struct {
	// Command is the command that the words before name.
	Command *cli.Command
	// Path are the names of that command and of those above it, without the program's.
	Path []string
	// Flags are the values of flags that were given, by the flag's first name.
	Flags map[string]string
	// Args are the arguments before it.
	Args []string
	// Flag is the first name of the flag whose value is completed, "" for an argument.
	Flag string
	// Word is what is there of it.
	Word string
}

// Candidate is what a word may become.
type Candidate struct{ Text, Description string }

// Names are candidates without a description.
func Names(names ...string) []Candidate {
	var all []Candidate
	for _, n := range names {
		all = append(all, Candidate{Text: n})
	}
	return all
}

// Commands are "completion", which prints a shell's script, and a hidden one that these scripts
// call. values completes arguments and values of flags; what it does not know it leaves to the
// shell, which completes files.
func Commands(values func(context.Context, Request) []Candidate) []*cli.Command {
	scripts := &cli.Command{
		Name:        "completion",
		Usage:       "print a script that completes command lines in a shell",
		Description: "bash, in ~/.bashrc:  source <(sunaba completion bash)\nzsh, in ~/.zshrc:   source <(sunaba completion zsh)\nfish:               sunaba completion fish > ~/.config/fish/completions/sunaba.fish",
	}
	for _, shell := range []struct{ name, script string }{{"bash", bash}, {"zsh", zsh}, {"fish", fish}} {
		scripts.Commands = append(scripts.Commands, &cli.Command{
			Name:  shell.name,
			Usage: "print the script for " + shell.name,
			Action: func(_ context.Context, cmd *cli.Command) error {
				_, err := io.WriteString(cmd.Root().Writer, shell.script)
				return err
			},
		})
	}
	complete := &cli.Command{
		Name: "__complete", Hidden: true, SkipFlagParsing: true, HideHelp: true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			for _, c := range complete(ctx, cmd.Root(), cmd.Args().Slice(), values) {
				if _, err := fmt.Fprintf(cmd.Root().Writer, "%s\t%s\n", c.Text, c.Description); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return []*cli.Command{scripts, complete}
}

// complete are the candidates for the last of words.
func complete(ctx context.Context, root *cli.Command, words []string, values func(context.Context, Request) []Candidate) []Candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	r, ended := read(root, words[:len(words)-1])
	word := words[len(words)-1]
	if ended { // what follows "--" is another program's
		return nil
	}
	lead, all := "", []Candidate(nil)
	switch name, value, given := strings.Cut(word, "="); {
	case r.Flag != "":
		r.Word = word
		all = values(ctx, r)
	case strings.HasPrefix(word, "--") && given:
		f := find(r.Command, strings.TrimLeft(name, "-"))
		if f == nil {
			return nil
		}
		lead, r.Flag, r.Word = name+"=", f.Names()[0], value
		all = values(ctx, r)
	case strings.HasPrefix(word, "-"):
		r.Word, all = word, flags(r.Command)
	default:
		r.Word = word
		if len(r.Args) == 0 {
			for _, c := range r.Command.VisibleCommands() {
				all = append(all, Candidate{c.Name, c.Usage})
			}
		}
		all = append(all, values(ctx, r)...)
	}
	var match []Candidate
	for _, c := range all {
		if strings.HasPrefix(c.Text, r.Word) && !strings.ContainsAny(c.Text, " \t\n") {
			match = append(match, Candidate{lead + c.Text, strings.ReplaceAll(c.Description, "\n", " ")})
		}
	}
	return match
}

// read reads the words before the one that is completed. ended says that there was a "--".
func read(root *cli.Command, words []string) (r Request, ended bool) {
	r = Request{Command: root, Flags: map[string]string{}}
	for n := 0; n < len(words); n++ {
		w := words[n]
		if w == "--" {
			return r, true
		}
		if strings.HasPrefix(w, "-") && len(w) > 1 {
			f, value, given := flagOf(r.Command, w)
			if f == nil {
				continue
			}
			if !takesValue(f) {
				value, given = "true", true
			}
			if !given && n == len(words)-1 {
				r.Flag = f.Names()[0]
				return r, false
			}
			if !given {
				n++
				value = words[n]
			}
			r.Flags[f.Names()[0]] = value
			continue
		}
		if sub := r.Command.Command(w); sub != nil && len(r.Args) == 0 {
			r.Command, r.Path = sub, append(r.Path, sub.Name)
			continue
		}
		r.Args = append(r.Args, w)
	}
	return r, false
}

// flagOf is the flag of a word: "--name", "--name=value", "-n", "-itn".
func flagOf(c *cli.Command, word string) (f cli.Flag, value string, given bool) {
	name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
	f = find(c, name)
	if f == nil && !strings.HasPrefix(word, "--") && name != "" {
		f = find(c, name[len(name)-1:]) // short ones together: only the last may have a value
	}
	return f, value, given
}

func find(c *cli.Command, name string) cli.Flag {
	for _, f := range c.Flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// flags are a command's flags by their long names.
func flags(c *cli.Command) []Candidate {
	var all []Candidate
	for _, f := range c.VisibleFlags() {
		usage := ""
		if d, ok := f.(cli.DocGenerationFlag); ok {
			usage = strings.ReplaceAll(d.GetUsage(), "`", "")
		}
		if name := f.Names()[0]; len(name) > 1 {
			all = append(all, Candidate{"--" + name, usage})
		}
	}
	return all
}
