// Package podcmd has the commands for pods from manifests, with the words, flags and columns of
// kubectl. They use an agent through its socket.
package podcmd

import (
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/session"
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
		c.Flags = append(c.Flags, objects.StateFlag(p.State))
	}
	return all
}

func outputFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: usage}
}

func filesFlag(usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: "filename", Aliases: []string{"f"}, Usage: usage}
}
