package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/top"
	"github.com/sunaba-project/sunaba/criserver/client"
)

func topCommand(commands ...*cli.Command) *cli.Command {
	return &cli.Command{
		Name:      "top",
		Usage:     "show the node's pods: CPU, memory, overhead declared and measured, restarts",
		ArgsUsage: " ",
		Flags: []cli.Flag{
			socketFlag(),
			&cli.DurationFlag{Name: "every", Usage: "`TIME` between two looks", Value: 2 * time.Second},
			&cli.BoolFlag{Name: "once", Usage: "print one table and end, as without a terminal and with json and yaml"},
			output.OfTable().Flag(),
		},
		Commands: commands,
		Action:   showTop,
	}
}

func showTop(ctx context.Context, cmd *cli.Command) (err error) {
	if every := cmd.Duration("every"); every < 100*time.Millisecond {
		return fmt.Errorf("top: --every %s is less than 100ms", every)
	}
	format, err := output.OfTable().Of(cmd)
	if err != nil {
		return err
	}
	c, err := dial.Connect(ctx, cmd.String("socket"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	o := top.Options{Out: cmd.Root().Writer, Every: cmd.Duration("every"), Format: format}
	if _, ok := terminalLines(cmd.Root().Writer); ok && !cmd.Bool("once") && format == output.Table {
		o.Lines = func() int {
			lines, _ := terminalLines(cmd.Root().Writer)
			return lines
		}
	}
	return top.Run(ctx, client.New(c.Conn), o)
}

// terminalLines is the height of a terminal; false for what is not one.
func terminalLines(out any) (int, bool) {
	f, ok := out.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Row), true
}
