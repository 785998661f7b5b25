package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/crilog"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
)

const (
	// generalProfile is kubectl's default: a debugger may trace.
	generalProfile = "general"
	// endTime is how long the end of a container may take to be told after that of its streams.
	endTime = 15 * time.Second
)

func (p commands) debugCommand() *cli.Command {
	return &cli.Command{
		Name:        "debug",
		Usage:       "start a container in a pod that runs, to look at it from inside",
		ArgsUsage:   "POD --image=IMAGE [-- COMMAND [ARGUMENT...]]",
		Description: "The container cannot be changed or removed: it ends itself, or with the pod. With -i, ends with its exit code.",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), criFlag(),
			&cli.StringFlag{Name: "image", Usage: "`IMAGE` of the container"},
			&cli.StringFlag{Name: "container", Aliases: []string{"c"}, Usage: "`NAME` of the new container; without, one is made up"},
			&cli.StringFlag{Name: "target", Usage: "join the processes of the container `NAME`"},
			&cli.StringFlag{Name: "profile", Usage: "`PROFILE` of what it may do: general", Value: generalProfile},
			stdinFlag("take part in the container, and pass stdin to it"),
			ttyFlag("give the container a terminal"),
		},
		Action: objects.WithAgent(p.debug),
	}
}

// debugContainer is what the flags of debug ask for.
func debugContainer(cmd *cli.Command) (corev1.EphemeralContainer, error) {
	c := corev1.EphemeralContainer{TargetContainerName: cmd.String("target"), EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: cmd.String("container"), Image: cmd.String("image"), Command: cmd.Args().Tail(),
		Stdin: cmd.Bool("stdin"), StdinOnce: cmd.Bool("stdin"), TTY: cmd.Bool("tty"),
		SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}},
	}}
	if c.Image == "" {
		return c, errors.New("--image is missing")
	}
	if p := cmd.String("profile"); p != generalProfile {
		return c, fmt.Errorf("--profile=%s is not supported: the only one is %s", p, generalProfile)
	}
	if c.Name == "" {
		c.Name = "debugger-" + rand.String(5)
		fmt.Fprintf(cmd.Root().ErrWriter, "Defaulting debug container name to %s.\n", c.Name)
	}
	return c, nil
}

func (p commands) debug(ctx context.Context, cmd *cli.Command, c *api.Client) (err error) {
	if cmd.NArg() == 0 {
		return errors.New("debug: want a pod: debug POD --image=IMAGE -- COMMAND")
	}
	name, err := objects.PodName(cmd.Args().First())
	if err != nil {
		return fmt.Errorf("debug: %w", err)
	}
	container, err := debugContainer(cmd)
	if err != nil {
		return fmt.Errorf("debug: %w", err)
	}
	pod, err := objects.FindPod(ctx, c, cmd.String("namespace"), name)
	if err != nil {
		return err
	}
	if err := c.Debug(ctx, api.DebugRequest{Namespace: pod.Namespace, Name: pod.Name, Container: container}); err != nil {
		return fmt.Errorf("debug: %w", err)
	}
	if !container.Stdin {
		return nil
	}
	server, err := p.connect(ctx, cmd, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	d := &debugging{cmd: cmd, client: c, server: server, pod: pod, name: container.Name}
	code, err := d.takePart(ctx)
	return ended(ctx, cmd, code, err)
}

// debugging is an ephemeral container that was added to a pod.
type debugging struct {
	cmd    *cli.Command
	client *api.Client
	server *criServer
	pod    *corev1.Pod // as it was last seen
	name   string
	told   string // why it waits, as it was told last
}

// takePart attaches to the container once it runs, and returns its exit code. Of one that has ended
// before, the log is printed.
func (d *debugging) takePart(ctx context.Context) (int, error) {
	s, err := d.wait(ctx, func(s corev1.ContainerState) bool { return s.Running != nil || s.Terminated != nil })
	if err != nil {
		return 0, err
	}
	var attachErr error
	if s.State.Running != nil {
		in := running{pod: d.pod, container: containerOf(d.pod, d.name), id: bareID(s.ContainerID)}
		_, attachErr = attachTo(ctx, d.cmd, d.server, in)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if s, err = d.end(ctx); err != nil {
			return 0, errors.Join(attachErr, err)
		}
	} else {
		attachErr = errors.New("it has ended already")
	}
	if attachErr != nil {
		fmt.Fprintf(d.cmd.Root().ErrWriter, "warning: couldn't attach to container %s, falling back to its logs: %s\n", d.name, oneLine(attachErr.Error()))
		if s.State.Terminated.ContainerID == "" {
			return 0, fmt.Errorf("container %q did not start: %s: %s", d.name, s.State.Terminated.Reason, s.State.Terminated.Message)
		}
		l := &logReader{server: d.server, options: crilog.Options{Tail: -1}, out: d.cmd.Root().Writer}
		if err := l.one(ctx, source{d.pod, d.name}); err != nil {
			return 0, err
		}
	}
	return int(s.State.Terminated.ExitCode), nil
}

// end waits for the container's end, whose streams have ended.
func (d *debugging) end(ctx context.Context) (corev1.ContainerStatus, error) {
	ending, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	s, err := d.wait(ending, func(s corev1.ContainerState) bool { return s.Terminated != nil })
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("container %q runs on without its streams: \"sunaba attach %s -c %s\" takes part in it again", d.name, d.pod.Name, d.name)
	}
	return s, err
}

// wait waits until the container's state is as is says, and tells meanwhile why it waits.
func (d *debugging) wait(ctx context.Context, is func(corev1.ContainerState) bool) (corev1.ContainerStatus, error) {
	var found corev1.ContainerStatus
	gone := false
	uid := d.pod.UID
	err := objects.Until(ctx, d.client, objects.Pod(d.pod.Name), d.pod.Namespace, func(now []json.RawMessage) bool {
		at := slices.IndexFunc(now, func(raw json.RawMessage) bool { return objects.UID(raw) == string(uid) })
		if gone = at < 0; gone {
			return true
		}
		var pod corev1.Pod
		if json.Unmarshal(now[at], &pod) != nil {
			return false
		}
		d.pod = &pod
		for _, s := range pod.Status.EphemeralContainerStatuses {
			if s.Name == d.name {
				found = s
			}
		}
		if w := found.State.Waiting; w != nil && w.Message != "" && w.Message != d.told {
			d.told = w.Message
			fmt.Fprintf(d.cmd.Root().ErrWriter, "container %s: %s\n", d.name, oneLine(w.Message))
		}
		return is(found.State)
	})
	if err == nil && gone {
		err = fmt.Errorf("pod %q was deleted", d.pod.Name)
	}
	return found, err
}
