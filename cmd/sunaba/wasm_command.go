package main

import (
	"context"
	"errors"
	"fmt"

	"os"
	"path"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/cmd/sunaba/wasm"
	"github.com/sunaba-project/sunaba/criserver/cgroup"
)

// optimizeFlag counts before the configuration.
const optimizeFlag = "optimize-go"

func wasmCommand() *cli.Command {
	handlerFlag := &cli.StringFlag{Name: "handler", Usage: "runtime handler `NAME` whose variant of an image is meant; without it, the first that has a module"}
	jsonFlag := &cli.BoolFlag{Name: "json", Usage: "answer in JSON"}
	common := append(placeFlags()[:3:3], logFlags()...)
	optimize := &cli.BoolFlag{Name: optimizeFlag, Usage: "rewrite the functions of Go's modules; without it, as the configuration says"}
	with := func(flags ...cli.Flag) []cli.Flag { return append(common[:len(common):len(common)], flags...) }
	one := 1
	return &cli.Command{
		Name:  "wasm",
		Usage: "inspect, run and compile WebAssembly modules",
		Commands: []*cli.Command{
			{
				Name:      "inspect",
				Usage:     "say what a module is, what it needs, and whether it would run here; ends with 1 if not",
				ArgsUsage: "FILE or IMAGE",
				Description: "An image is looked for in the server that runs with the same --state, or below --root. Root has the module compiled, in\n" +
					"a process that may do nothing else, as it would be for a pod; others learn what its sections tell.",
				Flags:  with(jsonFlag, handlerFlag, optimize, &cli.BoolFlag{Name: "no-compile", Usage: "only look at the sections"}),
				Action: inspectModule,
			},
			{
				Name:      "run",
				Usage:     "run a module in the sandbox of guests and end with its exit code",
				ArgsUsage: "[--] FILE or IMAGE [ARGUMENT...]",
				Description: "The guest has this command's standard streams, an empty root with the directories of --dir in it, and no network but\n" +
					"with --listen or --host-network: then it is in the node's. Ctrl-C and SIGTERM ask it to stop: its listeners and its input\n" +
					"end. Asked again, or at the end of the grace period, it is killed. Needs no server. Of an image only the module is taken.",
				Flags: with(
					handlerFlag, optimize,
					&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "`NAME=VALUE`, or NAME for the one that this command has; may be repeated"},
					&cli.StringSliceFlag{Name: "dir", Usage: "`HOST[:GUEST][:ro]`, a directory or file that the guest sees; may be repeated. A directory \".\" is the guest's root"},
					&cli.StringFlag{Name: "workdir", Usage: "working `DIRECTORY` of the guest", Value: "/"},
					&cli.StringSliceFlag{Name: "listen", Usage: "`[ADDRESS:]PORT` that is open before the guest starts, from descriptor 3 on; may be repeated"},
					&cli.BoolFlag{Name: "host-network", Usage: "let the guest use the node's network"},
					&cli.StringFlag{Name: "memory", Usage: "memory `LIMIT`, such as 64Mi"},
					&cli.StringFlag{Name: "user", Usage: "`UID[:GID]` of the guest's process; root is 65534"},
					&cli.DurationFlag{Name: "grace", Usage: "`TIME` from the first request to stop until the guest is killed", Value: 10 * time.Second},
					&cli.BoolFlag{Name: "stop-wait", Usage: "let a guest that cannot hear a stop have its grace period too"},
				),
				StopOnNthArg: &one, DisableSliceFlagSeparator: true,
				Action: runModule,
			},
			{
				Name:      "compile",
				Usage:     "compile modules into the node's cache, ahead of their first start",
				ArgsUsage: "FILE or IMAGE...",
				Flags:     with(jsonFlag, handlerFlag, optimize),
				Action:    compileModules,
			},
		},
	}
}

// wasmNode is the shim and the cache that the server's configuration names.
func wasmNode(cmd *cli.Command) (config, wasm.Node, error) {
	c, err := flagConfig(cmd)
	if err != nil {
		return c, wasm.Node{}, err
	}
	p := places{root: cmd.String("root"), state: cmd.String("state")}
	if err := p.resolve(); err != nil {
		return c, wasm.Node{}, err
	}
	shim, err := findShim(c.Shim)
	if err != nil {
		return c, wasm.Node{}, err
	}
	n := wasm.Node{Shim: shim, Cache: p.wasm(), OptimizeGo: c.Wasm.OptimizeGo, Notes: cmd.Root().ErrWriter}
	if cmd.IsSet(optimizeFlag) {
		n.OptimizeGo = cmd.Bool(optimizeFlag)
	}
	return c, n, n.Check()
}

// eachModule calls do with every module that is named, of a file or of an image.
func eachModule(ctx context.Context, cmd *cli.Command, do func(*wasm.Module) error) error {
	var errs []error
	for _, name := range cmd.Args().Slice() {
		errs = append(errs, oneModule(ctx, cmd, name, do))
	}
	return errors.Join(errs...)
}

func oneModule(ctx context.Context, cmd *cli.Command, name string, do func(*wasm.Module) error) (err error) {
	isFile, err := wasm.IsFile(name)
	if err != nil {
		return err
	}
	if isFile {
		m, err := wasm.ReadFile(name)
		if err != nil {
			return err
		}
		return do(m)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("file %q does not exist, and only root can look for an image", name)
	}
	dir, err := os.MkdirTemp("", "sunaba-module-")
	if err != nil {
		return fmt.Errorf("make folder for module: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var m *wasm.Module
	err = withImages(ctx, cmd, func(ctx context.Context, cmd *cli.Command, store control.Store) error {
		m, err = wasm.ReadImage(ctx, store, name, cmd.String("handler"), dir)
		return err
	})
	if errors.Is(err, errNoStore) {
		return fmt.Errorf("there is neither a file nor an image of that name: image %q: %w", name, err)
	}
	if err != nil {
		return err
	}
	return do(m)
}

func inspectModule(ctx context.Context, cmd *cli.Command) error {
	if cmd.NArg() != 1 {
		return fmt.Errorf("wasm inspect: want one file or image, not %d", cmd.NArg())
	}
	sectionsOnly := cmd.Bool("no-compile") || os.Geteuid() != 0
	var n wasm.Node
	if !sectionsOnly {
		var err error
		if _, n, err = wasmNode(cmd); err != nil {
			return err
		}
	}
	return eachModule(ctx, cmd, func(m *wasm.Module) error {
		r, err := n.Inspect(ctx, m, sectionsOnly)
		if err != nil {
			return err
		}
		if err := wasm.ShowReport(cmd.Root().Writer, m.Source, r, cmd.Bool("json")); err != nil {
			return err
		}
		if len(r.Refused) > 0 {
			return usage.Exit(1)
		}
		return nil
	})
}

func compileModules(ctx context.Context, cmd *cli.Command) error {
	if cmd.NArg() == 0 {
		return errors.New("wasm compile: want a file or an image")
	}
	if os.Geteuid() != 0 {
		return errors.New("wasm compile: must run as root")
	}
	_, n, err := wasmNode(cmd)
	if err != nil {
		return err
	}
	var all []wasm.Compiled
	err = eachModule(ctx, cmd, func(m *wasm.Module) error {
		c, err := n.Compile(ctx, m)
		if err == nil {
			all = append(all, c)
		}
		return err
	})
	return errors.Join(wasm.ShowCompiled(cmd.Root().Writer, all, cmd.Bool("json")), err)
}

func runModule(ctx context.Context, cmd *cli.Command) error {
	if cmd.NArg() == 0 {
		return errors.New("wasm run: want a module")
	}
	if os.Geteuid() != 0 {
		return errors.New("wasm run: must run as root, to make the sandbox; the guest runs as nobody, or as --user says")
	}
	c, n, err := wasmNode(cmd)
	if err != nil {
		return err
	}
	o, err := runOptions(cmd)
	if err != nil {
		return fmt.Errorf("wasm run: %w", err)
	}
	groups, err := cgroup.New(c.CgroupDriver)
	if err != nil {
		return err
	}
	o.Systemd = groups.Driver == cgroup.Systemd
	start := func(m *wasm.Module) error {
		o.Name, o.File = m.Source.Name, m.Path
		m.Bytes = nil // a process of its own reads the file
		code, err := n.Run(ctx, o)
		if err != nil {
			fmt.Fprintln(cmd.Root().ErrWriter, "sunaba:", err)
		}
		if code != 0 {
			return usage.Exit(code)
		}
		return nil
	}
	name := cmd.Args().First()
	if isFile, err := wasm.IsFile(name); err == nil && isFile {
		return start(&wasm.Module{Source: wasm.Source{Name: name, Kind: wasm.SourceFile}, Path: name})
	}
	return oneModule(ctx, cmd, name, start)
}

// leastMemory is the least that may be given to a guest, in bytes: its process alone needs more.
const leastMemory = 1 << 20

// runOptions reads what a module is run with from the command line.
func runOptions(cmd *cli.Command) (o wasm.RunOptions, err error) {
	o = wasm.RunOptions{
		Args: cmd.Args().Tail(), HostNetwork: cmd.Bool("host-network"),
		Workdir: cmd.String("workdir"), Grace: cmd.Duration("grace"), StopWait: cmd.Bool("stop-wait"),
		Stdin: openStream(os.Stdin), Stdout: openStream(os.Stdout), Stderr: openStream(os.Stderr), Notes: cmd.Root().ErrWriter,
	}
	if !path.IsAbs(o.Workdir) {
		return o, fmt.Errorf("--workdir %q is not absolute", o.Workdir)
	}
	if err := wasm.CheckTexts(append(o.Args, o.Workdir)...); err != nil {
		return o, err
	}
	if text := cmd.String("memory"); text != "" {
		limit, err := resource.ParseQuantity(text)
		if err != nil || limit.Value() <= 0 {
			return o, fmt.Errorf("--memory %q is not an amount such as 64Mi", text)
		}
		if limit.Value() < leastMemory {
			return o, fmt.Errorf("--memory %s is %s, and no guest starts with less than %s: give a unit, such as 64Mi", text, units.Bytes(limit.Value()), units.Bytes(leastMemory))
		}
		o.Memory = limit.Value()
	}
	if o.Env, err = wasm.ParseEnv(cmd.StringSlice("env")); err != nil {
		return o, err
	}
	if o.Dirs, err = wasm.ParseDirs(cmd.StringSlice("dir")); err != nil {
		return o, err
	}
	if o.Listen, err = wasm.ParseListen(cmd.StringSlice("listen")); err != nil {
		return o, err
	}
	o.HostNetwork = o.HostNetwork || len(o.Listen) > 0
	o.User, err = wasm.ParseUser(cmd.String("user"))
	return o, err
}

// openStream is a standard stream, nil if it is closed.
func openStream(f *os.File) *os.File {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil {
		return nil
	}
	return f
}
