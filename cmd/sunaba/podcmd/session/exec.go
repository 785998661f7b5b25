package session

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/terminal"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
)

func (p commands) execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command in a pod's container and end with its exit code",
		ArgsUsage: "POD -- COMMAND [ARGUMENT...]",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), criFlag(), containerFlag(), stdinFlag("pass stdin to the command"), ttyFlag("give the command a terminal"),
		},
		Description: "Ends with the command's exit code; with 125 if sunaba failed, 126 if the command cannot be executed, 127 if there is\n" +
			"none, 130 after an interrupt.",
		Action: ownCode(p.inContainer(func(cmd *cli.Command) (string, string, error) {
			switch cmd.NArg() {
			case 0:
				return "", "", errors.New("pod, type/name or --filename must be specified")
			case 1:
				return "", "", errors.New("you must specify at least one command for the container")
			}
			return podOf(cmd)
		}, exec)),
	}
}

// ownCode tells failures of sunaba apart from those of the program that it runs.
func ownCode(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		return usage.Own(action(ctx, cmd))
	}
}

func exec(ctx context.Context, cmd *cli.Command, server *criServer, in running) (code int, err error) {
	root := cmd.Root()
	stdin, tty := cmd.Bool("stdin"), cmd.Bool("tty")
	streams, isTerminal, done, err := terminal.Open(root.Reader, root.Writer, root.ErrWriter, stdin, tty)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	tty = tty && (isTerminal || !stdin)
	if tty {
		streams.Stderr = nil // a terminal has one output
	}
	return execIn(ctx, server, in.id, cmd.Args().Tail(), streams, tty)
}

// execIn runs a command in a container and returns its exit code.
func execIn(ctx context.Context, server *criServer, id string, command []string, s execstream.Streams, tty bool) (int, error) {
	resp, err := server.Exec(ctx, &runtime.ExecRequest{
		ContainerId: id, Cmd: command, Tty: tty, Stdin: s.Stdin != nil, Stdout: s.Stdout != nil, Stderr: s.Stderr != nil,
	})
	if err != nil {
		return 0, dial.Native(err)
	}
	return execstream.Run(ctx, resp.GetUrl(), server.tls, s)
}
