// Package podcmd has the commands for pods from manifests, with the words, flags and columns of
// kubectl. They use an agent through its socket, and its CRI server for logs and exec.
package podcmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/pods/api"
)

const (
	category         = "Pods from manifests"
	defaultNamespace = "default"
)

// Places are where a server is by default.
type Places struct {
	// State is the folder in which the agent's socket is, SocketName; Socket is the CRI socket of
	// an agent that does not tell its own.
	State, Socket string
}

// SocketName is the name of the agent's socket in the folder of the server's state.
const SocketName = "pods.sock"

// ExitError ends the program with an exit code and no further text.
type ExitError int

// Error is for those who do not know it.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Commands are the commands, for the top level of the command line.
func Commands(p Places) []*cli.Command {
	all := []*cli.Command{
		getCommand(), describeCommand(), p.logsCommand(), p.execCommand(), applyCommand(), deleteCommand(), restartCommand(),
		waitCommand(), eventsCommand(), p.attachCommand(), p.portForwardCommand(), p.copyCommand(), p.debugCommand(), shutdownCommand(),
	}
	for _, c := range all {
		c.Category = category
		c.UseShortOptionHandling = true
		c.Flags = append(c.Flags, &cli.StringFlag{Name: "state", Usage: "`DIR` of the server's state, in which the agent's socket is", Value: p.State})
	}
	return all
}

func namespaceFlag() cli.Flag {
	return &cli.StringFlag{Name: "namespace", Aliases: []string{"n"}, Usage: "`NAMESPACE` of the objects", Value: defaultNamespace}
}

func allNamespacesFlag() cli.Flag {
	return &cli.BoolFlag{Name: "all-namespaces", Aliases: []string{"A"}, Usage: "objects of all namespaces"}
}

func selectorFlag() cli.Flag {
	return &cli.StringFlag{Name: "selector", Aliases: []string{"l"}, Usage: "only objects whose labels match `SELECTOR`: a=b,c!=d,e in (f,g)"}
}

func fieldSelectorFlag() cli.Flag {
	return &cli.StringFlag{Name: "field-selector", Usage: "only objects whose fields match `SELECTOR`: status.phase=Running"}
}

func outputFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: usage}
}

func filesFlag(usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: "filename", Aliases: []string{"f"}, Usage: usage}
}

func criFlag() cli.Flag {
	return &cli.StringFlag{Name: "socket", Usage: "unix socket `FILE` of the CRI server (default: that of the server whose --state it is)"}
}

// withAgent calls an action with the agent.
func withAgent(action func(context.Context, *cli.Command, *api.Client) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) (err error) {
		if n := cmd.String("namespace"); cmd.IsSet("namespace") && n == "" {
			return fmt.Errorf("%s: --namespace is empty", cmd.Name)
		}
		c, err := api.Connect(ctx, filepath.Join(cmd.String("state"), SocketName))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		return action(ctx, cmd, c)
	}
}

// query is what a command's flags say about which objects of a kind are wanted.
func query(cmd *cli.Command, r api.Resource) api.Query {
	q := api.Query{LabelSelector: cmd.String("selector"), FieldSelector: cmd.String("field-selector")}
	if r.Namespaced && !cmd.Bool("all-namespaces") {
		q.Namespace = cmd.String("namespace")
	}
	return q
}
