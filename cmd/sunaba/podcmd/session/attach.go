package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/terminal"
)

const attachNote = `All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt.
If you don't see a command prompt, try pressing enter.
`

func (p commands) attachCommand() *cli.Command {
	return &cli.Command{
		Name:      "attach",
		Usage:     "take part in a pod's container that runs already: see its output, and with -i write to it",
		ArgsUsage: "POD",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), criFlag(), containerFlag(), stdinFlag("pass stdin to the container"),
			ttyFlag("pass every key to the container's terminal as it is typed"),
		},
		Action: p.inContainer(func(cmd *cli.Command) (string, string, error) {
			if cmd.NArg() != 1 {
				if cmd.NArg() > 1 {
					return "", "", errors.New("want one pod")
				}
				return "", "", errors.New("at least 1 argument is required for attach")
			}
			return podOf(cmd)
		}, attach),
	}
}

func attach(ctx context.Context, cmd *cli.Command, server *criServer, in running) (int, error) {
	typed, err := attachTo(ctx, cmd, server, in)
	if err == nil && typed && in.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		fmt.Fprintf(cmd.Root().ErrWriter, "Session ended, resume using 'sunaba attach %s -c %s -i -t' command when the pod is running\n", in.pod.Name, in.container.Name)
	}
	return 0, err
}

// attachTo takes part in a container as the flags --stdin and --tty say, until it ends or stdin
// does. typed says that a terminal was passed on.
func attachTo(ctx context.Context, cmd *cli.Command, server *criServer, in running) (typed bool, err error) {
	root := cmd.Root()
	stdin, tty := cmd.Bool("stdin"), cmd.Bool("tty")
	if stdin && !in.container.Stdin {
		fmt.Fprintf(root.ErrWriter, "Unable to use stdin - container %s did not allocate one\n", in.container.Name)
		stdin = false
	}
	if tty && !in.container.TTY {
		fmt.Fprintf(root.ErrWriter, "Unable to use a TTY - container %s did not allocate one\n", in.container.Name)
		tty = false
	}
	streams, typed, done, err := terminal.Open(root.Reader, root.Writer, root.ErrWriter, stdin, tty)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if in.container.TTY {
		streams.Stderr = nil // a terminal has one output
	}
	if typed {
		fmt.Fprint(root.ErrWriter, attachNote)
	}
	resp, err := server.Attach(ctx, &runtime.AttachRequest{
		ContainerId: in.id, Tty: in.container.TTY, Stdin: streams.Stdin != nil, Stdout: true, Stderr: streams.Stderr != nil,
	})
	if err != nil {
		return typed, dial.Native(err)
	}
	_, err = execstream.Run(ctx, resp.GetUrl(), server.tls, streams)
	return typed, err
}
