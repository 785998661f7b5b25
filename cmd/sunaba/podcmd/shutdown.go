package podcmd

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
)

func shutdownCommand() *cli.Command {
	return &cli.Command{
		Name:      "shutdown",
		Usage:     "stop all pods before the machine shuts down, critical ones last",
		ArgsUsage: " ",
		Description: "Ends when the pods are over or when [pods] shutdown_grace is. No pod is started from then on, until the server is\n" +
			"started again or --cancel is given. It is for a machine without systemd-logind: with it the server does this by\n" +
			"itself. The pods are started again after the boot, except those with restartPolicy Never, which have failed.",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "cancel", Usage: "take it back: start the pods again"}},
		Action: objects.WithAgent(shutdown),
	}
}

func shutdown(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	if cmd.NArg() > 0 {
		return fmt.Errorf("shutdown: argument %q is not expected: it is about all pods", cmd.Args().First())
	}
	r := api.ShutdownRequest{Cancel: cmd.Bool("cancel")}
	if err := c.Shutdown(ctx, r); err != nil {
		return err
	}
	text := "pods stopped"
	if r.Cancel {
		text = "shutdown canceled"
	}
	_, err := fmt.Fprintln(cmd.Root().Writer, text)
	return err
}
