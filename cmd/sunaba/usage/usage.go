// Package usage says what is wrong with a command line, on one line: an unknown command or flag, with
// the known one that is nearest to it.
package usage

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/runtimeclass/nearest"
)

// Guard makes a tree of commands refuse what it does not know by an error of one line, instead of the
// whole help. Call it once, before the command runs.
func Guard(cmd *cli.Command) { guard(cmd, cmd.Name) }

func guard(cmd *cli.Command, path string) {
	cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error { return wrongFlag(cmd, path, err) }
	if cmd.Action == nil && len(cmd.Commands) > 0 {
		cmd.Action = func(ctx context.Context, cmd *cli.Command) error { return group(ctx, cmd, path) }
	}
	for _, sub := range cmd.Commands {
		guard(sub, path+" "+sub.Name)
	}
}

// group is what a command does that only has others: it shows its help, also as "help COMMAND" and
// with no arguments.
func group(ctx context.Context, cmd *cli.Command, path string) error {
	name := cmd.Args().First()
	if name == "" {
		return showHelp(ctx, cmd)
	}
	return unknown(path, "command", name, nearest.Of(name, commandNames(cmd)))
}

func showHelp(_ context.Context, cmd *cli.Command) error {
	if cmd.Root() == cmd {
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
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		return unknown(path, "flag", dashed(name), nearest.Of(dashed(name), flagNames(cmd)))
	}
	return fmt.Errorf("%s: %s (%s --help)", strings.TrimPrefix(path, "sunaba "), lower(text), path)
}

// lower writes the parser's sentence as ours begin.
func lower(text string) string {
	if text == "" || text[0] < 'A' || text[0] > 'Z' {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
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
	return fmt.Errorf("%s (%s --help lists what there is)", text, path)
}
