package podcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
	"github.com/sunaba-project/sunaba/pods/api"
)

// interrupted is the exit code of what a signal ended, as shells have it.
const interrupted = 130

func (p Places) execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command in a pod's container and end with its exit code",
		ArgsUsage: "POD -- COMMAND [ARGUMENT...]",
		Flags: []cli.Flag{
			namespaceFlag(), criFlag(), containerFlag(), stdinFlag("pass stdin to the command"),
			&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give the command a terminal"},
		},
		Action: withAgent(p.exec),
	}
}

func containerFlag() cli.Flag {
	return &cli.StringFlag{Name: "container", Aliases: []string{"c"}, Usage: "`NAME` of the container"}
}

func stdinFlag(usage string) cli.Flag {
	return &cli.BoolFlag{Name: "stdin", Aliases: []string{"i"}, Usage: usage}
}

func (p Places) exec(ctx context.Context, cmd *cli.Command, c *api.Client) (err error) {
	if cmd.NArg() < 2 {
		return errors.New("exec: want a pod and a command: exec POD -- COMMAND")
	}
	in, err := findRunning(ctx, cmd, c, cmd.Args().First())
	if err != nil {
		return err
	}
	server, err := p.connect(ctx, cmd, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	stdin, tty := cmd.Bool("stdin"), cmd.Bool("tty")
	streams, isTerminal, done, err := openStreams(cmd.Root(), stdin, tty)
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	tty = tty && (isTerminal || !stdin)
	if tty {
		streams.Stderr = nil // a terminal has one output
	}
	code, err := execIn(ctx, server, in.id, cmd.Args().Slice()[1:], streams, tty)
	if ctx.Err() != nil {
		return errors.Join(ExitError(interrupted), done())
	}
	if err = errors.Join(err, done()); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	if code != 0 {
		return ExitError(code)
	}
	return nil
}

// execIn runs a command in a container and returns its exit code.
func execIn(ctx context.Context, server runtime.RuntimeServiceClient, id string, command []string, s execstream.Streams, tty bool) (int, error) {
	resp, err := server.Exec(ctx, &runtime.ExecRequest{
		ContainerId: id, Cmd: command, Tty: tty, Stdin: s.Stdin != nil, Stdout: s.Stdout != nil, Stderr: s.Stderr != nil,
	})
	if err != nil {
		return 0, dial.Native(err)
	}
	return execstream.Run(ctx, resp.GetUrl(), s)
}
