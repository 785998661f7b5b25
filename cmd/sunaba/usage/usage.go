// Package usage says what is wrong with a command line, on one line: an unknown command or flag,
// with the known one that is nearest to it.
package usage

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/runtimeclass/nearest"
)

// Guard makes a tree of commands refuse what it does not know by an error of one line, instead of
// the whole help; a command that says by itself what is wrong with its flags keeps doing so. Call
// it once, before the command runs.
func Guard(cmd *cli.Command) { guard(cmd, cmd.Name) }

func guard(cmd *cli.Command, path string) {
	if cmd.OnUsageError == nil {
		cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error { return wrongFlag(cmd, path, err) }
	}
	if cmd.Action == nil && len(cmd.Commands) > 0 {
		cmd.Action = func(_ context.Context, cmd *cli.Command) error { return group(cmd, path) }
	}
	for _, sub := range cmd.Commands {
		guard(sub, path+" "+sub.Name)
	}
}

// group is what a command does that only has others: it shows its help, also as "help COMMAND" and
// with no arguments.
func group(cmd *cli.Command, path string) error {
	name := cmd.Args().First()
	switch {
	case name != "":
		return unknown(path, "command", name, nearest.Of(name, commandNames(cmd)))
	case cmd.Root() == cmd:
		return cli.ShowRootCommandHelp(cmd)
	}
	return cli.ShowSubcommandHelp(cmd)
}

func commandNames(cmd *cli.Command) []string {
	var names []string
	for _, c := range cmd.VisibleCommands() {
		names = append(names, c.Names()...)
	}
	return names
}

// wrongFlag is the text about a flag that cannot be, in place of the parser's.
func wrongFlag(cmd *cli.Command, path string, err error) error {
	if flag, near := UnknownFlag(cmd, err); flag != "" {
		return unknown(path, "flag", flag, near)
	}
	text := err.Error() // the parser's sentence, written as ours
	return fmt.Errorf("%s: %s%s (%s --help)", strings.TrimPrefix(path, "sunaba "), strings.ToLower(text[:1]), text[1:], path)
}

// UnknownFlag is the flag that the parser does not know, as it is written, and the known one that
// is nearest to it, "" if none is; both are "" for another error.
func UnknownFlag(cmd *cli.Command, err error) (flag, near string) {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return "", ""
	}
	flag = dashed(strings.TrimLeft(name, "-"))
	return flag, nearest.Of(flag, flagNames(cmd))
}

func flagNames(cmd *cli.Command) []string {
	var names []string
	for _, f := range cmd.Flags {
		for _, n := range f.Names() {
			names = append(names, dashed(n))
		}
	}
	return append(names, "--help")
}

// dashed is a flag as it is written.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func unknown(path, what, name, near string) error {
	text := fmt.Sprintf("unknown %s %q", what, name)
	if own, ok := strings.CutPrefix(path, "sunaba "); ok {
		text = own + ": " + text
	}
	if near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("%s (see %s --help)", text, path)
}
