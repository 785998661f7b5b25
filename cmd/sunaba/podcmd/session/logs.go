package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/crilog"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
)

func (p commands) logsCommand() *cli.Command {
	return &cli.Command{
		Name:      "logs",
		Usage:     "print the logs of a pod's container",
		ArgsUsage: "POD [CONTAINER]",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), criFlag(),
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the container is over"},
			&cli.BoolFlag{Name: "previous", Aliases: []string{"p"}, Usage: "logs of the container before the last restart"},
			containerFlag(),
			&cli.BoolFlag{Name: "all-containers", Usage: "logs of all containers"},
			&cli.Int64Flag{Name: "tail", Usage: "the last `N` lines; -1 is all", Value: -1},
			&cli.DurationFlag{Name: "since", Usage: "only what is younger than `TIME`: 5s, 2m, 3h"},
			&cli.StringFlag{Name: "since-time", Usage: "only what is younger than `TIME`: 2026-01-02T03:04:05Z"},
			&cli.BoolFlag{Name: "timestamps", Usage: "print the time of each line"},
			&cli.BoolFlag{Name: "prefix", Usage: "print the pod and the container before each line"},
			&cli.Int64Flag{Name: "limit-bytes", Usage: "end after `N` bytes; 0 is no limit"},
		},
		Action: objects.WithAgent(p.logs),
	}
}

// logOptions are what the flags say about each log.
func logOptions(cmd *cli.Command) (crilog.Options, error) {
	o := crilog.Options{Tail: cmd.Int64("tail"), LimitBytes: cmd.Int64("limit-bytes"), Timestamps: cmd.Bool("timestamps"), Whole: cmd.Bool("prefix")}
	if o.Tail < -1 {
		return o, fmt.Errorf("logs: --tail %d is less than -1", o.Tail)
	}
	if o.LimitBytes < 0 {
		return o, fmt.Errorf("logs: --limit-bytes %d is less than 0", o.LimitBytes)
	}
	since, at := cmd.Duration("since"), cmd.String("since-time")
	switch {
	case since < 0:
		return o, fmt.Errorf("logs: --since %s is less than 0", since)
	case since > 0 && at != "":
		return o, errors.New("logs: only one of --since and --since-time may be given")
	case since > 0:
		o.Since = time.Now().Add(-since)
	case at != "":
		var err error
		if o.Since, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return o, fmt.Errorf("logs: --since-time: %w", err)
		}
	}
	return o, nil
}

func (p commands) logs(ctx context.Context, cmd *cli.Command, c *api.Client) (err error) {
	o, err := logOptions(cmd)
	if err != nil {
		return err
	}
	container := cmd.String("container")
	switch {
	case cmd.NArg() == 2 && container == "":
		container = cmd.Args().Get(1)
	case cmd.NArg() != 1:
		return errors.New("logs: want one pod, and at most one container")
	}
	if cmd.Bool("all-containers") && container != "" {
		return errors.New("logs: --all-containers and a container exclude each other")
	}
	name, err := objects.PodName(cmd.Args().First())
	if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	pod, err := objects.FindPod(ctx, c, cmd.String("namespace"), name)
	if err != nil {
		return err
	}
	names := objects.ContainerNames(pod)
	if !cmd.Bool("all-containers") {
		if container, err = pickContainer(pod, container, cmd.Root().ErrWriter); err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		names = []string{container}
	}
	server, err := p.connect(ctx, cmd, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	l := &logReader{server: server, pod: pod, options: o, previous: cmd.Bool("previous"), prefix: cmd.Bool("prefix"), follow: cmd.Bool("follow"),
		out: &lockedWriter{w: cmd.Root().Writer}}
	err = l.read(ctx, names)
	if ctx.Err() != nil && l.follow {
		return nil // the user has seen enough
	}
	return err
}

// logReader reads logs of one pod's containers.
type logReader struct {
	server                   runtime.RuntimeServiceClient
	pod                      *corev1.Pod
	options                  crilog.Options
	previous, prefix, follow bool
	out                      io.Writer
}

// read prints the logs of containers: one after the other, or all at once if they are followed.
func (l *logReader) read(ctx context.Context, containers []string) error {
	l.options.Whole = l.options.Whole || l.follow && len(containers) > 1
	if !l.follow {
		for _, name := range containers {
			if err := l.one(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make([]error, len(containers))
	var group sync.WaitGroup
	for n, name := range containers {
		group.Go(func() { errs[n] = l.one(ctx, name) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func (l *logReader) one(ctx context.Context, container string) error {
	id, err := loggedContainer(l.pod, container, l.previous)
	if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	status, err := l.server.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id})
	if err = dial.Native(err); errdefs.IsNotFound(err) && l.previous {
		return fmt.Errorf("logs: %w", noPrevious(l.pod, container))
	}
	if err != nil {
		return fmt.Errorf("logs: container %q in pod %q: %w", container, l.pod.Name, err)
	}
	path := status.GetStatus().GetLogPath()
	if path == "" {
		return fmt.Errorf("logs: container %q in pod %q has no log", container, l.pod.Name)
	}
	o := l.options
	if l.prefix {
		o.Prefix = fmt.Sprintf("[pod/%s/%s] ", l.pod.Name, container)
	}
	if l.follow {
		o.Running = func(ctx context.Context) bool { return l.running(ctx, id) }
	}
	return crilog.Read(ctx, path, o, l.out)
}

// running says whether a container may still write. A server that does not answer, as it is being
// restarted, does not end its containers.
func (l *logReader) running(ctx context.Context, id string) bool {
	status, err := l.server.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return !errdefs.IsNotFound(dial.Native(err))
	}
	state := status.GetStatus().GetState()
	return state == runtime.ContainerState_CONTAINER_RUNNING || state == runtime.ContainerState_CONTAINER_CREATED
}
