package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/modulepod"
	pod "github.com/sunaba-project/sunaba/cmd/sunaba/run"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/criserver/network"
)

// userRanges is the folder of the locks of pods' user ids, which are the machine's.
const userRanges = "/run/sunaba-run-users"

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run the Pod of one manifest, or a module as a pod, in the foreground and end with its exit code",
		ArgsUsage: "FILE (- is stdin) or [--] MODULE [ARGUMENT...]",
		Description: "Uses the server on --socket. If none listens there, one is started for this pod alone, in a temporary folder,\n" +
			"and removed with everything it made. The file has one Pod, and the ConfigMaps, Secrets, PersistentVolumeClaims\n" +
			"and RuntimeClasses that it uses. A Pod without a restartPolicy runs once. With --detach the objects are applied,\n" +
			"and the Pod belongs to the server. A WebAssembly module is packed as an image and runs as a pod with one container;\n" +
			"arguments of its own that look like flags follow \"--\". With -i and -t this command's streams are the container's,\n" +
			"and with -it keys like Ctrl-C are the program's. Exit codes that are not the containers': 125 if sunaba failed, 126 if a program\n" +
			"cannot be executed, 127 if it does not exist, 130 if the run was interrupted before anything ran.",
		UseShortOptionHandling: true,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "socket", Usage: "unix socket `FILE` of the server", Value: defaultPlaces().socket},
			&cli.StringFlag{Name: "config", Usage: "configuration `FILE` of a server that is started for the pod; without it " + standardConfig + ", if it exists"},
			&cli.StringFlag{Name: "handler", Usage: "runtime handler `NAME`, before that of the pod's RuntimeClass"},
			&cli.StringSliceFlag{Name: "runtimeclass", Usage: "`FILE` with RuntimeClasses; may be repeated"},
			&cli.StringFlag{Name: "exit-code", Usage: "end with the first failed container's (any), only if all failed (all), or with 0 (none): `WHOSE`", Value: pod.Any},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "apply the objects and end when the pod runs; needs a server that runs pods from manifests"},
			&cli.BoolFlag{Name: "keep", Usage: "leave the pod at the end (needs a server that runs)"},
		}, slices.Concat(pod.StreamFlags(), modulepod.RunFlags(), logFlags())...),
		DisableSliceFlagSeparator: true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			err := runPod(ctx, cmd)
			if cmd.Bool("detach") {
				return err
			}
			return usage.Own(err)
		},
	}
}

func runPod(ctx context.Context, cmd *cli.Command) error {
	module, err := modulepod.PodOf(cmd)
	if err != nil {
		return err
	}
	c, logger, err := quietConfig(cmd)
	if err != nil {
		return err
	}
	o := pod.Options{
		Socket: cmd.String("socket"), File: cmd.Args().First(), Handler: cmd.String("handler"),
		RuntimeClassFiles: cmd.StringSlice("runtimeclass"), Keep: cmd.Bool("keep"), ExitCode: cmd.String("exit-code"),
		Pods: c.Pods, Root: defaultPlaces().root,
		UserRanges: userRanges, SubUIDs: "/etc/subuid", SubGIDs: "/etc/subgid",
		Stdout: cmd.Root().Writer, Stderr: cmd.Root().ErrWriter, Logger: logger,
	}
	if o.File == "-" {
		o.Reader, o.File = os.Stdin, "stdin"
	}
	if err := o.SetStreams(cmd); err != nil {
		return err
	}
	if !slices.Contains([]string{pod.Any, pod.All, pod.None}, o.ExitCode) {
		return fmt.Errorf("run: --exit-code=%s is not one of any, all, none", o.ExitCode)
	}
	if cmd.Bool("detach") {
		for _, name := range []string{"handler", "keep", "exit-code", "config"} {
			if cmd.IsSet(name) {
				return fmt.Errorf("run: --%s has no effect with --detach: the pod belongs to the server", name)
			}
		}
		return pod.Detach(ctx, o)
	}
	if os.Geteuid() != 0 {
		return errors.New("run: must run as root: it makes the volumes of the pod")
	}
	code := 0
	use := pod.Run
	if module != nil {
		use = module.Run
	}
	if listens(o.Socket) {
		code, err = use(ctx, o)
	} else {
		code, err = runEmbedded(ctx, c, o, use, logger)
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return usage.Exit(code)
	}
	return nil
}

// runEmbedded runs a pod in a server of its own, which leaves nothing behind.
func runEmbedded(
	ctx context.Context, c config, o pod.Options, run func(context.Context, pod.Options) (int, error), logger *slog.Logger,
) (code int, err error) {
	if o.Keep {
		return 1, fmt.Errorf("run: --keep needs a server, and none listens on %q", o.Socket)
	}
	if err := clearServers(ctx, c, o.Stderr, logger); err != nil {
		logger.Warn("failed to remove what a sunaba run that was killed has left", "error", err)
	}
	dir, err := os.MkdirTemp("", serverPrefix)
	if err != nil {
		return 1, fmt.Errorf("make folder of the server: %w", err)
	}
	held, err := pod.HoldServer(dir)
	if err != nil {
		return 1, errors.Join(fmt.Errorf("lock folder of the server: %w", err), os.RemoveAll(dir))
	}
	defer held.Close()
	if err := os.Chmod(dir, 0o711); err != nil {
		return 1, errors.Join(err, os.RemoveAll(dir))
	}
	fmt.Fprintf(o.Stderr, "sunaba: no server listens on %s: starting one for this pod\n", o.Socket)
	err = embedded(ctx, c, dir, logger, func(socket string) (err error) {
		o.Socket = socket
		code, err = run(ctx, o)
		return err
	})
	return code, err
}

// embedded serves in a folder of its own while use works. Then it removes the folder, unless
// something of a pod is left.
func embedded(ctx context.Context, c config, dir string, logger *slog.Logger, use func(socket string) error) error {
	p := embeddedPlaces(dir)
	if err := p.resolve(); err != nil {
		return err
	}
	d, err := newDaemon(c, p, c.Log.Level == "debug", nil, logger)
	if err != nil {
		return fmt.Errorf("%w (its folder is %s)", err, dir)
	}
	// The server outlives the signal that ends the pod, so that the pod can be stopped.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ready, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- d.Serve(serving, func() { close(ready) }) }()
	var left error
	select {
	case <-ready:
		err = use(p.socket)
		left = noPods(serving, p)
	case left = <-served:
		served <- nil
	}
	stop()
	left = errors.Join(left, <-served, d.Close(), network.Destroy(networkOptions(c, p, logger)))
	if left != nil {
		return fmt.Errorf("%w (its folder is %s)", errors.Join(err, left), dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func embeddedPlaces(dir string) places {
	return places{root: filepath.Join(dir, "root"), state: filepath.Join(dir, "state"), socket: filepath.Join(dir, "sunaba.sock")}
}
