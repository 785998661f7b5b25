// Package imagecmd holds the commands of sunaba images.
package imagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/modulepod"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
)

// Options say what the commands work on.
type Options struct {
	WithStore modulepod.WithStore
	// Flags say where the store is, and what is logged.
	Flags []cli.Flag
}

// action is what a command does with the store.
type action = func(context.Context, *cli.Command, control.Store) error

func listFormats() output.Formats {
	return output.Formats{output.Table, output.Wide, output.Name, output.JSON, output.YAML}
}

func inspectFormats() output.Formats { return output.Formats{output.JSON, output.YAML} }

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "answer in JSON"} }

func handlerFlag() cli.Flag {
	return &cli.StringFlag{Name: "handler", Usage: "runtime handler `NAME` that the image is for; without it, each gets its variant"}
}

func credsFlag() cli.Flag {
	return &cli.StringFlag{Name: "creds", Usage: "`USER[:PASSWORD]` for the registry; without a password, it is read from stdin"}
}

// command makes a command; the names after the first, which is its own, are aliases.
func (o Options) command(names, usage, args string, do action, flags ...cli.Flag) *cli.Command {
	all := strings.Split(names, "|")
	return &cli.Command{Name: all[0], Aliases: all[1:], Usage: usage, ArgsUsage: args, Flags: append(o.Flags[:len(o.Flags):len(o.Flags)], flags...),
		Action: func(ctx context.Context, cmd *cli.Command) error { return o.WithStore(ctx, cmd, do) }}
}

// Images is the command images.
func (o Options) Images() *cli.Command {
	formats := listFormats().Flag
	return &cli.Command{
		Name:  "images",
		Usage: "pull, push, pack, list, tag, inspect, remove, import, export and check images",
		Description: "Uses the server that runs with the same --state. If none runs, the store below --root is used directly, and no\n" +
			"server can start meanwhile.",
		Commands: []*cli.Command{
			o.command("pull", "pull an image", "REFERENCE", pullImage, formats(), jsonFlag(), handlerFlag(), credsFlag()),
			o.list(),
			o.command("inspect", "show all that is known of an image", "NAME or ID", inspectImage, inspectFormats().Flag(), handlerFlag()),
			o.command("tag", "give an image more names; a name that another image has moves", "NAME or ID NAME[:TAG]...", tagImage, jsonFlag()),
			o.remove("remove|rm|rmi"),
			o.push(),
			modulepod.PackCommand(o.WithStore, append(o.Flags[:len(o.Flags):len(o.Flags)], jsonFlag(), handlerFlag())...),
			o.command("import", "import an OCI layout, a Docker archive or a WebAssembly module", "FOLDER or FILE (- is stdin) [NAME]", importImages,
				formats(), jsonFlag(), handlerFlag(), &cli.StringFlag{Name: "name", Usage: "`REFERENCE` for what has no name of its own, or just a tag"}),
			o.command("export", "write images as an OCI layout, which docker load reads too", "NAME or ID...", exportImages,
				&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write, a folder if it ends with /; - is stdout", Value: "-"}),
			o.command("check", "read all images and say what is damaged; ends with 1 if anything is", " ", checkImages, jsonFlag(),
				&cli.BoolFlag{Name: "repair", Usage: "fetch again what is damaged, or drop it so that the next pull brings it"}),
			o.command("gc|prune", "remove what no image and no container needs; images stay", " ", collectGarbage, jsonFlag(),
				&cli.BoolFlag{Name: "dry-run", Usage: "only say what would be removed"}),
		},
	}
}

// Rmi is images remove, for the top level.
func (o Options) Rmi() *cli.Command {
	return o.remove("rmi")
}

func (o Options) remove(names string) *cli.Command {
	c := o.command(names, "take names from images, and remove images that have no other name", "NAME or ID...", removeImages, jsonFlag(),
		&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "remove a pinned image, or one that is given by id with all its names"})
	c.Description = "A name is taken from all variants that have it; what has no other name is removed. An id or a digest removes the\n" +
		"image: with several names it needs --force, as a pinned image does. Containers keep what they run from."
	return c
}

func (o Options) list() *cli.Command {
	c := o.command("list|ls", "list the images that are present, by name, those built last first", " ", listImages,
		listFormats().Flag(), jsonFlag(), &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print ids only"},
		&cli.StringSliceFlag{Name: "filter", Aliases: []string{"f"}, Usage: "list only images with `KEY=VALUE`: " + show.FilterTexts + "; may be repeated"})
	c.DisableSliceFlagSeparator = true
	return c
}

// argument is the one argument of a command.
func argument(cmd *cli.Command) (string, error) {
	if cmd.NArg() != 1 {
		return "", fmt.Errorf("images %s: want one argument, not %d", cmd.Name, cmd.NArg())
	}
	return cmd.Args().First(), nil
}

func noArguments(cmd *cli.Command) error {
	if cmd.NArg() > 0 {
		return fmt.Errorf("images %s: argument %q is not expected", cmd.Name, cmd.Args().First())
	}
	return nil
}

func pullImage(ctx context.Context, cmd *cli.Command, store control.Store) error {
	ref, err := argument(cmd)
	if err != nil {
		return err
	}
	format, err := listFormats().Of(cmd)
	if err != nil {
		return err
	}
	auth, err := credentials(cmd)
	if err != nil {
		return err
	}
	progress := show.NewProgress(cmd.Root().ErrWriter, ref)
	img, err := store.Pull(ctx, images.PullRequest{Ref: ref, Handler: cmd.String("handler"), Auth: auth, Progress: progress.Show})
	progress.End()
	if ctx.Err() != nil { // a server's answer that was not awaited says nothing else
		return fmt.Errorf("pull %q: %w", ref, ctx.Err())
	}
	if err != nil {
		return err
	}
	return show.Brought(ctx, cmd, store, format, ref, img)
}

// credentials are those of --creds.
func credentials(cmd *cli.Command) (auth registry.Credentials, err error) {
	creds := cmd.String("creds")
	if creds == "" {
		return auth, nil
	}
	var given bool
	if auth.Username, auth.Password, given = strings.Cut(creds, ":"); !given {
		password, err := io.ReadAll(io.LimitReader(os.Stdin, 64<<10))
		if err != nil {
			return auth, fmt.Errorf("read password: %w", err)
		}
		auth.Password = strings.TrimRight(string(password), "\r\n")
	}
	return auth, nil
}

func listImages(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if err := noArguments(cmd); err != nil {
		return err
	}
	format, err := listFormats().Of(cmd)
	if err != nil {
		return err
	}
	keep, err := show.ParseFilters(cmd.StringSlice("filter"))
	if err != nil {
		return err
	}
	imgs, err := store.List(ctx)
	if err != nil {
		return err
	}
	if imgs = keep.Of(imgs); cmd.Bool("quiet") {
		return show.IDs(cmd.Root().Writer, imgs)
	}
	return show.Images(cmd.Root().Writer, imgs, format)
}

func inspectImage(ctx context.Context, cmd *cli.Command, store control.Store) error {
	name, err := argument(cmd)
	if err != nil {
		return err
	}
	format, err := inspectFormats().Of(cmd)
	if err != nil {
		return err
	}
	img, err := store.Find(ctx, name, cmd.String("handler"))
	if err != nil {
		return err
	}
	return show.Inspect(cmd.Root().Writer, img, format)
}

func tagImage(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if cmd.NArg() < 2 {
		return fmt.Errorf("images tag: want an image and at least one new name, not %d arguments", cmd.NArg())
	}
	names := cmd.Args().Tail()
	if err := store.Tag(ctx, cmd.Args().First(), names); err != nil {
		return err
	}
	var done []show.Done
	for _, name := range names {
		done = append(done, show.Done{Verb: "tagged", Name: name})
	}
	return show.AllDone(cmd.Root().Writer, []string{"tagged"}, done, cmd.Bool("json"))
}

func removeImages(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if cmd.NArg() == 0 {
		return errors.New("remove images: want a name or an id")
	}
	var errs []error
	var done []show.Done
	for _, name := range cmd.Args().Slice() {
		removed, err := store.Untag(ctx, name, cmd.Bool("force"))
		switch {
		case err != nil:
			errs = append(errs, err)
		case removed:
			done = append(done, show.Done{Verb: "removed", Name: name})
		default:
			done = append(done, show.Done{Verb: "untagged", Name: name})
		}
	}
	return errors.Join(append(errs, show.AllDone(cmd.Root().Writer, []string{"removed", "untagged"}, done, cmd.Bool("json")))...)
}

func importImages(ctx context.Context, cmd *cli.Command, store control.Store) error {
	file, name, err := modulepod.ImportArguments(cmd)
	if err != nil {
		return err
	}
	format, err := listFormats().Of(cmd)
	if err != nil {
		return err
	}
	if modulepod.IsModule(file) {
		return modulepod.Import(ctx, cmd, store, file, name, format)
	}
	progress := show.NewProgress(cmd.Root().ErrWriter, file)
	req := images.ImportRequest{Path: file, Name: name, Handler: cmd.String("handler"), Progress: progress.Show}
	if file == "-" {
		req.Path, req.Reader = "", os.Stdin
	}
	imgs, err := store.Import(ctx, req)
	progress.End()
	if ctx.Err() != nil {
		return fmt.Errorf("import %q: %w", file, ctx.Err())
	}
	return errors.Join(err, show.Brought(ctx, cmd, store, format, "", imgs...))
}

func exportImages(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if cmd.NArg() == 0 {
		return errors.New("images export: want a name or an id")
	}
	return show.Export(cmd.Root().Writer, cmd.String("output"), func(w io.Writer) error {
		return store.ExportTo(ctx, cmd.Args().Slice(), w)
	})
}

func checkImages(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if err := noArguments(cmd); err != nil {
		return err
	}
	report, err := store.Check(ctx, cmd.Bool("repair"))
	if err != nil {
		return err
	}
	if err := show.Report(cmd.Root().Writer, report, cmd.Bool("json")); err != nil {
		return err
	}
	for _, d := range report.Damaged {
		if !d.Repaired || len(d.Lost) > 0 {
			return usage.Exit(1)
		}
	}
	if len(report.Records) > 0 {
		return usage.Exit(1)
	}
	return nil
}

func collectGarbage(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if err := noArguments(cmd); err != nil {
		return err
	}
	g, err := store.GC(ctx, cmd.Bool("dry-run"))
	if err != nil {
		return err
	}
	return show.Garbage(cmd.Root().Writer, g, cmd.Bool("dry-run"), cmd.Bool("json"))
}
