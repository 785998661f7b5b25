package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/classes"
	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/criserver/client"
)

func classFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "runtimeclass", Usage: "`PATH` of a file or folder with RuntimeClasses; may be repeated"}
}

func socketFlag() cli.Flag {
	return &cli.StringFlag{Name: "socket", Usage: "unix socket `FILE` of the server", Value: defaultPlaces().socket}
}

func runtimeClassCommand() *cli.Command {
	return &cli.Command{
		Name:  "runtimeclass",
		Usage: "show what RuntimeClasses come to on this node and do to pods",
		Commands: []*cli.Command{
			{
				Name:      "admit",
				Usage:     "print a pod as the API server would leave it: overhead, node selector and tolerations from its RuntimeClass",
				ArgsUsage: " ",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "f", Usage: "manifest `FILE` with pods, and RuntimeClasses if it likes (- is stdin)", Required: true},
					classFlag(),
				},
				Action: admit,
			},
			{
				Name:      "list",
				Usage:     "show classes with their handlers: engines, platforms, features, declared and measured overhead",
				ArgsUsage: " ",
				Description: "What handlers can do and what pods cost is asked of the server on --socket; where that is not given and no server\n" +
					"answers, the handlers are those of --config. Ends with 1 if something is wrong with a class or a handler.",
				Flags: []cli.Flag{
					classFlag(), socketFlag(),
					&cli.StringFlag{Name: "config", Usage: "configuration `FILE`, for a node without a server; without it " + standardConfig + ", if it exists"},
					output.OfTable().Flag(), &cli.BoolFlag{Name: "json", Usage: "print JSON"},
				},
				Action: listClasses,
			},
		},
	}
}

func admit(_ context.Context, cmd *cli.Command) error {
	all, err := classes.Read(cmd.StringSlice("runtimeclass"))
	if err != nil {
		return err
	}
	file, in := cmd.String("f"), io.Reader(os.Stdin)
	if file == "-" {
		file = "stdin"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read manifest %q: %w", file, err)
	}
	return classes.Admit(cmd.Root().Writer, cmd.Root().ErrWriter, file, data, all)
}

func listClasses(ctx context.Context, cmd *cli.Command) error {
	format, err := output.OfTable().Of(cmd)
	if err != nil {
		return err
	}
	all, err := classes.Read(cmd.StringSlice("runtimeclass"))
	if err != nil {
		return err
	}
	c, err := readConfig(cmd.String("config"))
	if err != nil {
		return err
	}
	handlers, pods, err := asked(ctx, cmd.String("socket"))
	if errdefs.IsUnavailable(err) && !cmd.IsSet("socket") {
		fmt.Fprintf(cmd.Root().ErrWriter, "no server answers on %s: handlers are those of the configuration, features and pods are unknown\n", cmd.String("socket"))
		handlers, err = configured(c)
	}
	if err != nil {
		return err
	}
	shim, err := findShim(c.Shim)
	if err != nil {
		return err
	}
	for i := range handlers {
		handlers[i].Examine(ctx, shim)
	}
	rows := classes.Rows(all, handlers, pods)
	if err := classes.Print(cmd.Root().Writer, rows, format); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Problem != "" || r.Handler.Problem != "" {
			return usage.Exit(1)
		}
	}
	return nil
}

// asked are the handlers and pods of a server.
func asked(ctx context.Context, socket string) (_ []classes.Handler, _ []classes.Pod, err error) {
	c, err := dial.Connect(ctx, socket)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	handlers, err := handlersOf(c)
	if err != nil {
		return nil, nil, err
	}
	pods, err := classes.Pods(ctx, client.New(c.Conn))
	return handlers, pods, err
}

// handlersOf are the handlers that a server told of when it was connected to.
func handlersOf(c *dial.Client) ([]classes.Handler, error) {
	var config struct {
		Handlers map[string]classes.Handler `json:"handlers"`
	}
	if err := json.Unmarshal([]byte(c.Node.GetInfo()["config"]), &config); err != nil {
		return nil, fmt.Errorf("read what the server tells of its handlers: %w", err)
	}
	var handlers []classes.Handler
	for _, h := range c.Node.GetRuntimeHandlers() {
		out, ok := config.Handlers[h.GetName()]
		if !ok {
			continue // "", the default once more
		}
		out.Name = h.GetName()
		if h.GetFeatures().GetRecursiveReadOnlyMounts() {
			out.Features = append(out.Features, "recursive-read-only-mounts")
		}
		if h.GetFeatures().GetUserNamespaces() {
			out.Features = append(out.Features, "user-namespaces")
		}
		handlers = append(handlers, out)
	}
	return handlers, nil
}

// configured are the handlers of a configuration.
func configured(c config) ([]classes.Handler, error) {
	table, err := c.handlers(findOCIRuntime())
	if err != nil {
		return nil, err
	}
	var out []classes.Handler
	for _, h := range table.All() {
		one := classes.Handler{Name: h.Name, Type: string(h.Type), Binary: h.Binary, ShimScope: string(h.ShimScope), Default: h.Default}
		for _, p := range h.Platforms {
			one.Platforms = append(one.Platforms, platforms.FormatAll(p))
		}
		out = append(out, one)
	}
	return out, nil
}
