// Package podcmd has the commands for pods from manifests, with the words, flags and columns of
// kubectl. They use an agent through its socket.
package podcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/session"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
)

const category = "Pods from manifests"

// Places are where a server is by default.
type Places struct {
	// State is the folder in which the agent's socket is, api.SocketName; Socket is the CRI
	// socket of an agent that does not tell its own.
	State, Socket string
}

// Commands are the commands, for the top level of the command line.
func Commands(p Places) []*cli.Command {
	all := append([]*cli.Command{
		getCommand(), describeCommand(), applyCommand(), deleteCommand(), restartCommand(), waitCommand(), eventsCommand(), shutdownCommand(),
	}, session.Commands(p.Socket)...)
	for _, c := range all {
		c.Category = category
		c.UseShortOptionHandling = true
		c.OnUsageError = usageError
		c.Flags = append(c.Flags, objects.StateFlag(p.State))
	}
	return all
}

// usageError says what is wrong with flags in kubectl's words, and which flag may be meant.
func usageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	flag, near := usage.UnknownFlag(cmd, err)
	if flag == "" {
		return fmt.Errorf("%w\nSee 'sunaba %s --help' for usage", err, cmd.Name)
	}
	text := "unknown flag: " + flag
	if letter, short := strings.CutPrefix(flag, "-"); short && len(letter) == 1 {
		text = fmt.Sprintf("unknown shorthand flag: '%s' in %s", letter, flag)
	} else if near != "" {
		text += " (did you mean " + near + "?)"
	}
	return fmt.Errorf("%s\nSee 'sunaba %s --help' for usage", text, cmd.Name)
}

// nameOnly refuses formats of -o other than name.
func nameOnly(cmd *cli.Command) error {
	if o := cmd.String("output"); o != "" && o != formatName {
		return fmt.Errorf("%s: unexpected -o output mode: %s. We only support '-o name'", cmd.Name, o)
	}
	return nil
}

func outputFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: usage}
}

func filesFlag(usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: "filename", Aliases: []string{"f"}, Usage: usage}
}
