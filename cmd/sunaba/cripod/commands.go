package cripod

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
)

// Commands are the commands, for the top level of the command line. socket is the flag --socket.
func Commands(socket func() cli.Flag) []*cli.Command {
	grace := &cli.DurationFlag{Name: "time", Aliases: []string{"t"}, Usage: "`TIME` that containers have to end by themselves", Value: 30 * time.Second}
	return []*cli.Command{
		{
			Name:      "ps",
			Usage:     "list containers, whoever made them",
			ArgsUsage: " ",
			Flags: []cli.Flag{
				socket(),
				&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also those that do not run"},
				&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print ids only"},
				output.OfTable().Flag(),
			},
			UseShortOptionHandling: true,
			Action:                 withServer(listContainers),
		},
		{
			Name:        "stop",
			Usage:       "stop pods with all their containers, or containers",
			ArgsUsage:   "POD|NAMESPACE/POD|ID...",
			Description: "Pods of manifests end by \"sunaba delete\". ID is that of a pod or a container, or its first characters.",
			Flags: []cli.Flag{
				socket(), grace,
				&cli.BoolFlag{Name: "force", Usage: "stop also what a kubelet manages"},
			},
			Action: withServer(func(ctx context.Context, cmd *cli.Command, c *dial.Client) error {
				return endPods(ctx, cmd, c, Stop)
			}),
		},
		{
			Name:        "rm",
			Usage:       "remove pods with all their containers, or containers",
			ArgsUsage:   "POD|NAMESPACE/POD|ID...",
			Description: "Pods of manifests end by \"sunaba delete\". ID is that of a pod or a container, or its first characters.",
			Flags: []cli.Flag{
				socket(), grace,
				&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "stop what runs first, and remove also what a kubelet manages"},
			},
			Action: withServer(func(ctx context.Context, cmd *cli.Command, c *dial.Client) error {
				return endPods(ctx, cmd, c, Remove)
			}),
		},
	}
}

// withServer calls an action with the server of --socket.
func withServer(action func(context.Context, *cli.Command, *dial.Client) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) (err error) {
		c, err := dial.Connect(ctx, cmd.String("socket"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		return action(ctx, cmd, c)
	}
}

func listContainers(ctx context.Context, cmd *cli.Command, c *dial.Client) error {
	if cmd.NArg() > 0 {
		return fmt.Errorf("ps: argument %q is not expected", cmd.Args().First())
	}
	format, err := output.OfTable().Of(cmd)
	if err != nil {
		return err
	}
	list, err := List(ctx, c, cmd.Bool("all"))
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	out := cmd.Root().Writer
	if !cmd.Bool("quiet") {
		return Print(out, list, format, time.Now())
	}
	for _, one := range list {
		if _, err := fmt.Fprintln(out, one.ID); err != nil {
			return err
		}
	}
	return nil
}

func endPods(ctx context.Context, cmd *cli.Command, c *dial.Client, end func(context.Context, *dial.Client, []string, Options) error) error {
	grace := cmd.Duration("time")
	switch {
	case cmd.NArg() == 0:
		return fmt.Errorf("%s: want a pod or a container", cmd.Name)
	case grace < 0 || grace%time.Second != 0:
		return fmt.Errorf("%s: --time %s is not whole seconds", cmd.Name, grace)
	}
	err := end(ctx, c, cmd.Args().Slice(), Options{
		Grace: int64(grace / time.Second), Force: cmd.Bool("force"),
		Done: func(arg string) { fmt.Fprintln(cmd.Root().Writer, arg) },
	})
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name, err)
	}
	return nil
}
