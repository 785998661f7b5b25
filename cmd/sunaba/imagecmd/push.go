package imagecmd

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/images"
)

func pushFormats() output.Formats {
	return output.Formats{output.Table, output.Name, output.JSON, output.YAML}
}

func (o Options) push() *cli.Command {
	c := o.command("push", "push an image to a registry", "NAME or ID [NAME[:TAG]]", pushImage, pushFormats().Flag(), jsonFlag(), credsFlag(),
		&cli.BoolFlag{Name: "all-platforms", Usage: "fail if variants of the image are neither on this node nor in the registry"})
	c.Description = "Pushes the image under its own name, or under the second one. A name pushes all variants that are on this node, with\n" +
		"their index; an id that variant alone. Of an index with variants that are neither here nor in the registry, those that\n" +
		"are here are pushed, and the others are named. Only what the registry lacks is sent."
	return c
}

func pushImage(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if cmd.NArg() != 1 && cmd.NArg() != 2 {
		return fmt.Errorf("images push: want an image and perhaps a name to push it as, not %d arguments", cmd.NArg())
	}
	format, err := pushFormats().Of(cmd)
	if err != nil {
		return err
	}
	auth, err := credentials(cmd)
	if err != nil {
		return err
	}
	source := cmd.Args().First()
	progress := show.NewProgress(cmd.Root().ErrWriter, source)
	pushed, err := store.Push(ctx, images.PushRequest{
		Source: source, Dest: cmd.Args().Get(1), All: cmd.Bool("all-platforms"), Auth: auth, Progress: progress.Show,
	})
	progress.End()
	if ctx.Err() != nil { // a server's answer that was not awaited says nothing else
		return fmt.Errorf("push %q: %w", source, ctx.Err())
	}
	if err != nil {
		return err
	}
	for _, left := range pushed.Omitted {
		fmt.Fprintln(cmd.Root().ErrWriter, "sunaba: left out, since it is neither on this node nor in the registry:", left)
	}
	return show.Pushed(cmd.Root().Writer, pushed, format)
}
