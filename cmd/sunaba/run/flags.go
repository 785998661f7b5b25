package run

import (
	"errors"

	"github.com/urfave/cli/v3"
)

// StreamFlags are the flags of `sunaba run` that connect its streams with a container.
func StreamFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "stdin", Aliases: []string{"i"}, Usage: "pass stdin to the container; its end is the container's"},
		&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give the container a terminal; with -i every key is passed on as it is typed"},
		&cli.StringFlag{Name: "container", Usage: "with -i and -t: `NAME` of the container, if the pod has several"},
	}
}

// SetStreams reads the flags of StreamFlags.
func (o *Options) SetStreams(cmd *cli.Command) error {
	o.Interactive, o.TTY, o.Container, o.Stdin = cmd.Bool("stdin"), cmd.Bool("tty"), cmd.String("container"), cmd.Root().Reader
	switch {
	case o.Container != "" && !o.Interactive && !o.TTY:
		return errors.New("run: --container says whose streams -i and -t connect, and neither is given")
	case o.Interactive && o.Reader != nil:
		return errors.New("run: stdin is the manifest: it cannot be passed to the container too (-i)")
	case (o.Interactive || o.TTY) && cmd.Bool("detach"):
		return errors.New("run: -i and -t have no effect with --detach: set stdin and tty in the manifest, and take part with sunaba attach")
	}
	return nil
}
