package imagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/reference"
)

func pushFormats() output.Formats {
	return output.Formats{output.Table, output.Name, output.JSON, output.YAML}
}

func (o Options) push() *cli.Command {
	c := o.command("push", "push an image to a registry", "NAME or ID [NAME[:TAG]]", pushImage, pushFormats().Flag(), jsonFlag(), credsFlag(),
		&cli.BoolFlag{Name: "all-platforms", Usage: "fail if variants of the image are neither on this node nor in the registry"},
		&cli.BoolFlag{Name: "all-tags", Aliases: []string{"a"}, Usage: "push all tags of a repository, which NAME is then"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print nothing except the names that were pushed"})
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
	if cmd.Bool("quiet") && (cmd.IsSet("output") || cmd.Bool("json")) {
		return errors.New("images push: --quiet and a format of the output are given")
	}
	sources := []string{cmd.Args().First()}
	all := cmd.Bool("all-tags")
	if all {
		if cmd.NArg() == 2 {
			return errors.New("images push: with --all-tags there is no second name")
		}
		if sources, err = tagsOf(ctx, store, sources[0]); err != nil {
			return err
		}
	}
	auth, err := credentials(cmd)
	if err != nil {
		return err
	}
	out := cmd.Root().Writer
	list := []images.Pushed{}
	for _, source := range sources {
		var p images.Pushed
		if p, err = pushOne(ctx, cmd, store, images.PushRequest{Source: source, Dest: cmd.Args().Get(1), All: cmd.Bool("all-platforms"), Auth: auth}); err != nil {
			break
		}
		switch {
		case all && output.ForPrograms(format):
			list = append(list, p)
		case cmd.Bool("quiet"):
			_, err = fmt.Fprintln(out, p.Name)
		default:
			err = show.Pushed(out, p, format)
		}
		if err != nil {
			return err
		}
	}
	if all && output.ForPrograms(format) {
		return errors.Join(err, output.Encode(out, list, format))
	}
	return err
}

// tagsOf are the names with a tag of this node that a repository has, sorted.
func tagsOf(ctx context.Context, store control.Store, repository string) ([]string, error) {
	n, err := reference.Parse(repository)
	if err != nil {
		return nil, err
	}
	if n.Digest != "" || strings.Contains(repository[strings.LastIndexByte(repository, '/')+1:], ":") {
		return nil, fmt.Errorf("images push: with --all-tags %q is to be a repository, without tag and digest", repository)
	}
	all, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, img := range all {
		for _, name := range img.RepoTags {
			if of, err := reference.Parse(name); err == nil && of.Repo == n.Repo && !slices.Contains(tags, name) {
				tags = append(tags, name)
			}
		}
	}
	if len(tags) == 0 {
		return nil, fmt.Errorf("push images of %q: no tag of it is on this node: %w", repository, errdefs.ErrNotFound)
	}
	slices.Sort(tags)
	return tags, nil
}

func pushOne(ctx context.Context, cmd *cli.Command, store control.Store, req images.PushRequest) (images.Pushed, error) {
	shown := cmd.Root().ErrWriter
	if cmd.Bool("quiet") {
		shown = io.Discard
	}
	progress := show.NewProgress(shown, req.Source)
	req.Progress = progress.Show
	pushed, err := store.Push(ctx, req)
	progress.End()
	if ctx.Err() != nil { // a server's answer that was not awaited says nothing else
		return pushed, fmt.Errorf("push %q: %w", req.Source, ctx.Err())
	}
	if err != nil {
		return pushed, err
	}
	for _, left := range pushed.Omitted {
		fmt.Fprintln(cmd.Root().ErrWriter, "sunaba: left out, since it is neither on this node nor in the registry:", left)
	}
	return pushed, nil
}
