// Package session has the commands that look into a pod's containers: logs, exec, attach,
// port-forward, cp and debug. They use the CRI server of the agent that runs the pod.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/pods/api"
)

// commands are the commands of this package.
type commands struct {
	socket string // of the CRI server of an agent that does not tell its own
}

// Commands are the commands, for the top level of the command line. They use the CRI server on
// socket if --socket names none and the agent does not tell its own.
func Commands(socket string) []*cli.Command {
	c := commands{socket}
	return []*cli.Command{c.logsCommand(), c.execCommand(), c.attachCommand(), c.portForwardCommand(), c.copyCommand(), c.debugCommand()}
}

func criFlag() cli.Flag {
	return &cli.StringFlag{Name: "socket", Usage: "unix socket `FILE` of the CRI server (default: that of the server whose --state it is)"}
}

func containerFlag() cli.Flag {
	return &cli.StringFlag{Name: "container", Aliases: []string{"c"}, Usage: "`NAME` of the container"}
}

func stdinFlag(usage string) cli.Flag {
	return &cli.BoolFlag{Name: "stdin", Aliases: []string{"i"}, Usage: usage}
}

func ttyFlag(usage string) cli.Flag {
	return &cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: usage}
}

// ended is how a command that a user may interrupt has ended: with 130 if ctx has, else with the
// error or the exit code.
func ended(ctx context.Context, cmd *cli.Command, code int, err error) error {
	switch {
	case ctx.Err() != nil:
		return usage.Exit(usage.Interrupted)
	case err != nil:
		return fmt.Errorf("%s: %w", cmd.Name, err)
	case code != 0:
		return usage.Exit(code)
	}
	return nil
}

// inContainer is the action of a command that is carried out in a container of a pod that runs.
// podOf reads from the arguments which pod; do returns an exit code.
func (p commands) inContainer(podOf func(*cli.Command) (namespace, pod string, err error), do func(context.Context, *cli.Command, *criServer, running) (int, error)) cli.ActionFunc {
	return objects.WithAgent(func(ctx context.Context, cmd *cli.Command, c *api.Client) (err error) {
		namespace, pod, err := podOf(cmd)
		if err != nil {
			return fmt.Errorf("%s: %w", cmd.Name, err)
		}
		in, err := findRunning(ctx, cmd, c, namespace, pod)
		if err != nil {
			return err
		}
		server, err := p.connect(ctx, cmd, c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		code, err := do(ctx, cmd, server, in)
		return ended(ctx, cmd, code, err)
	})
}

// podOf reads a command's first argument: "POD" or "pod/POD".
func podOf(cmd *cli.Command) (namespace, name string, err error) {
	name, err = objects.PodName(cmd.Args().First())
	return cmd.String("namespace"), name, err
}

// running is a container that runs.
type running struct {
	pod       *corev1.Pod
	container corev1.Container
	id        string
}

// findRunning finds the container of a pod that a command's flag --container names, else the one
// that commands take. It must run.
func findRunning(ctx context.Context, cmd *cli.Command, c *api.Client, namespace, name string) (running, error) {
	pod, err := objects.FindPod(ctx, c, namespace, name)
	if err != nil {
		return running{}, err
	}
	container, err := objects.PickContainer(pod, cmd.String("container"), cmd.Root().ErrWriter)
	if err != nil {
		return running{}, fmt.Errorf("%s: %w", cmd.Name, err)
	}
	status, err := statusOf(pod, container)
	if err != nil {
		return running{}, fmt.Errorf("%s: %w", cmd.Name, err)
	}
	if status.State.Running == nil {
		return running{}, fmt.Errorf("%s: container %q in pod %q does not run (the pod is %s)", cmd.Name, container, pod.Name, pod.Status.Phase)
	}
	return running{pod: pod, container: containerOf(pod, container), id: bareID(status.ContainerID)}, nil
}

// oneLine is a text of others as it may stand in a line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
}

// lockedWriter takes lines of several containers.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes one after the other.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
