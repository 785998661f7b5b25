package podcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
)

func restartCommand() *cli.Command {
	return &cli.Command{
		Name:      "restart",
		Usage:     "stop a pod's containers with grace and start them again in the same sandbox",
		ArgsUsage: "POD... | pod/POD...",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), &cli.StringFlag{Name: "container", Aliases: []string{"c"}, Usage: "only the container `NAME`"},
		},
		Action: objects.WithAgent(restart),
	}
}

func restart(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	if cmd.NArg() == 0 {
		return errors.New("restart: want a pod")
	}
	var errs []error
	for _, arg := range cmd.Args().Slice() {
		name, err := objects.PodName(arg)
		if err == nil {
			err = c.Restart(ctx, api.RestartRequest{Namespace: cmd.String("namespace"), Name: name, Container: cmd.String("container")})
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, err := fmt.Fprintf(cmd.Root().Writer, "pod/%s restarted\n", name); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
