package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/crilog"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
)

const (
	// selectorTail is how many lines of each log are printed with a selector, unless --tail says it.
	selectorTail = 10
	// mostFollowed is how many logs are followed at once, unless --max-log-requests says it.
	mostFollowed = 5
	// untilRunning is how long a log that is followed is waited for, unless --pod-running-timeout
	// says it.
	untilRunning = 20 * time.Second
)

func (p commands) logsCommand() *cli.Command {
	return &cli.Command{
		Name:      "logs",
		Usage:     "print the logs of a pod's container, or of all pods that a selector matches",
		ArgsUsage: "POD [CONTAINER] | -l SELECTOR",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), objects.SelectorFlag(), criFlag(),
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "stream the log until the container ends"},
			&cli.BoolFlag{Name: "previous", Aliases: []string{"p"}, Usage: "logs of the container before the last restart"},
			containerFlag(),
			&cli.BoolFlag{Name: "all-containers", Usage: "logs of all containers"},
			&cli.BoolFlag{Name: "all-pods", Usage: "logs of all pods; sets --prefix"},
			&cli.Int64Flag{Name: "tail", Usage: "the last `N` lines; -1 is all, which is the default without a selector; with one it is 10", Value: -1},
			&cli.DurationFlag{Name: "since", Usage: "only what is younger than `TIME`: 5s, 2m, 3h"},
			&cli.StringFlag{Name: "since-time", Usage: "only what is younger than `TIME`: 2026-01-02T03:04:05Z"},
			&cli.BoolFlag{Name: "timestamps", Usage: "print the time of each line"},
			&cli.BoolFlag{Name: "prefix", Usage: "print the pod and the container before each line"},
			&cli.Int64Flag{Name: "limit-bytes", Usage: "end each log after `N` bytes; 0 is no limit"},
			&cli.IntFlag{Name: "max-log-requests", Usage: "follow at most `N` logs at once", Value: mostFollowed},
			&cli.BoolFlag{Name: "ignore-errors", Usage: "print the error of a log, and continue with the others"},
			&cli.DurationFlag{Name: "pod-running-timeout", Usage: "with -f, wait for `TIME` until the container runs", Value: untilRunning},
		},
		Action: objects.WithAgent(p.logs),
	}
}

// logOptions are what the flags say about each log, with kubectl's errors.
func logOptions(cmd *cli.Command) (crilog.Options, error) {
	o := crilog.Options{Tail: cmd.Int64("tail"), LimitBytes: cmd.Int64("limit-bytes"), Timestamps: cmd.Bool("timestamps"), Whole: cmd.Bool("prefix") || cmd.Bool("all-pods")}
	if cmd.String("selector") != "" && !cmd.IsSet("tail") {
		o.Tail = selectorTail
	}
	since, at := cmd.Duration("since"), cmd.String("since-time")
	switch {
	case since != 0 && at != "":
		return o, errors.New("at most one of `sinceTime` or `sinceSeconds` may be specified")
	case o.LimitBytes < 0:
		return o, errors.New("--limit-bytes must be greater than 0")
	case since < 0:
		return o, errors.New("--since must be greater than 0")
	case o.Tail < -1:
		return o, errors.New("--tail must be greater than or equal to -1")
	case cmd.Duration("pod-running-timeout") <= 0:
		return o, errors.New("--pod-running-timeout must be higher than zero")
	case since > 0:
		o.Since = time.Now().Add(-since)
	case at != "":
		var err error
		if o.Since, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return o, fmt.Errorf("--since-time: %w", err)
		}
	}
	return o, nil
}

// wantedLogs are the pods and the container that a command's arguments and flags name; without a
// container it is the one that commands take of each pod.
func wantedLogs(ctx context.Context, cmd *cli.Command, c *api.Client) (pods []corev1.Pod, container string, err error) {
	selector, args := cmd.String("selector"), cmd.Args()
	container = cmd.String("container")
	switch n := args.Len(); {
	case n == 0 && selector == "", n > 2:
		return nil, "", errors.New("expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command")
	case n > 0 && selector != "":
		return nil, "", errors.New("only a selector (-l) or a POD name is allowed")
	case n == 2 && cmd.IsSet("container"):
		return nil, "", errors.New("only one of -c or an inline [CONTAINER] arg is allowed")
	case n == 2:
		container = args.Get(1)
	}
	if cmd.Bool("all-containers") && container != "" {
		return nil, "", fmt.Errorf("--all-containers=true should not be specified with container name %s", container)
	}
	if selector != "" {
		r := objects.Pod("").Resource
		pods, err = api.Objects[corev1.Pod](ctx, c, r, objects.Query(cmd, r))
		return pods, container, err
	}
	name, err := objects.PodName(args.First())
	if err != nil {
		return nil, "", err
	}
	pod, err := objects.FindPod(ctx, c, cmd.String("namespace"), name)
	if err != nil {
		return nil, "", err
	}
	return []corev1.Pod{*pod}, container, nil
}

func (p commands) logs(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	if err := p.printLogs(ctx, cmd, c); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	return nil
}

func (p commands) printLogs(ctx context.Context, cmd *cli.Command, c *api.Client) (err error) {
	o, err := logOptions(cmd)
	if err != nil {
		return err
	}
	pods, container, err := wantedLogs(ctx, cmd, c)
	if err != nil {
		return err
	}
	errOut := cmd.Root().ErrWriter
	if len(pods) == 0 {
		fmt.Fprintf(errOut, "No resources found in %s namespace.\n", cmd.String("namespace"))
		return nil
	}
	notes := errOut
	if cmd.Bool("all-pods") {
		notes = io.Discard
	}
	var sources []source
	for i := range pods {
		names := objects.ContainerNames(&pods[i])
		if !cmd.Bool("all-containers") {
			name, err := objects.PickContainer(&pods[i], container, notes)
			if err != nil {
				return err
			}
			names = []string{name}
		}
		for _, name := range names {
			sources = append(sources, source{&pods[i], name})
		}
	}
	follow := cmd.Bool("follow")
	if most := cmd.Int("max-log-requests"); follow && len(sources) > 1 && len(sources) > most {
		return fmt.Errorf("you are attempting to follow %d log streams, but maximum allowed concurrency is %d, use --max-log-requests to increase the limit", len(sources), most)
	}
	server, err := p.connect(ctx, cmd, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	l := &logReader{
		server: server, options: o, previous: cmd.Bool("previous"), prefix: cmd.Bool("prefix") || cmd.Bool("all-pods"), follow: follow,
		ignore: cmd.Bool("ignore-errors"), patience: cmd.Duration("pod-running-timeout"),
		find: func(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
			return objects.FindPod(ctx, c, p.Namespace, p.Name)
		},
		out: &lockedWriter{w: cmd.Root().Writer}, errOut: &lockedWriter{w: errOut},
	}
	err = l.read(ctx, sources)
	if ctx.Err() != nil && follow {
		return nil // the user has seen enough
	}
	return err
}
