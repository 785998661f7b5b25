package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/modulepod"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
)

func imagesCommand() *cli.Command {
	jsonFlag := &cli.BoolFlag{Name: "json", Usage: "answer in JSON"}
	handlerFlag := &cli.StringFlag{Name: "handler", Usage: "runtime handler `NAME` that the image is for; without it, each gets its variant"}
	sub := func(name, usage, args string, action func(context.Context, *cli.Command, control.Store) error, flags ...cli.Flag) *cli.Command {
		names := strings.Split(name, "|")
		return &cli.Command{Name: names[0], Aliases: names[1:], Usage: usage, ArgsUsage: args, Flags: append(append(placeFlags()[:3:3], logFlags()...), flags...),
			Action: func(ctx context.Context, cmd *cli.Command) error { return withImages(ctx, cmd, action) }}
	}
	return &cli.Command{
		Name:  "images",
		Usage: "pull, pack, list, inspect, remove, import, export and check images",
		Description: "Uses the server that runs with the same --state. If none runs, the store below --root is used directly, and no\n" +
			"server can start meanwhile.",
		Commands: []*cli.Command{
			sub("pull", "pull an image", "REFERENCE", pullImage, jsonFlag, handlerFlag,
				&cli.StringFlag{Name: "creds", Usage: "`USER[:PASSWORD]` for the registry; without a password, it is read from stdin"}),
			sub("list|ls", "list the images that are present", " ", listImages, jsonFlag),
			sub("inspect", "show all that is known of an image, in JSON", "NAME or ID", inspectImage, handlerFlag),
			sub("remove|rm", "remove images with all their names", "NAME or ID...", removeImages, jsonFlag),
			modulepod.PackCommand(withImages, append(append(placeFlags()[:3:3], logFlags()...), jsonFlag, handlerFlag)...),
			sub("import", "import an OCI layout, a Docker archive or a WebAssembly module", "FOLDER or FILE (- is stdin) [NAME]", importImages, jsonFlag, handlerFlag,
				&cli.StringFlag{Name: "name", Usage: "`REFERENCE` for what has no name of its own, or just a tag"}),
			sub("export", "write images as an OCI layout, which docker load reads too", "NAME or ID...", exportImages,
				&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write, a folder if it ends with /; - is stdout", Value: "-"}),
			sub("check", "read all images and say what is damaged; ends with 1 if anything is", " ", checkImages, jsonFlag,
				&cli.BoolFlag{Name: "repair", Usage: "fetch again what is damaged, or drop it so that the next pull brings it"}),
			sub("gc|prune", "remove what no image and no container needs; images stay", " ", collectGarbage, jsonFlag,
				&cli.BoolFlag{Name: "dry-run", Usage: "only say what would be removed"}),
		},
	}
}

// withImages calls an action with the store of the server that runs, or the one below --root.
func withImages(ctx context.Context, cmd *cli.Command, action func(context.Context, *cli.Command, control.Store) error) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("images: must run as root")
	}
	p := places{root: cmd.String("root"), state: cmd.String("state")}
	if err := p.absolute(); err != nil {
		return err
	}
	client, err := control.Connect(ctx, p.control())
	if err == nil {
		defer client.Close()
		return action(ctx, cmd, client)
	}
	if !errdefs.IsUnavailable(err) {
		return err
	}
	if err := findStore(p, cmd.Name); err != nil {
		return err
	}
	c, logger, err := quietConfig(cmd)
	if err != nil {
		return err
	}
	takeOverLibraries(logger)
	d := &daemon{places: p, logger: logger}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.claim(); err != nil {
		return fmt.Errorf("%w, and does not answer on %q", err, p.control())
	}
	shim, err := findShim(c.Shim)
	if err != nil {
		return err
	}
	handlers, err := c.handlers(findOCIRuntime())
	if err != nil {
		return err
	}
	store, _, err := openImages(c, p, handlers, shim, nil, logger)
	if err != nil {
		return err
	}
	d.close = append(d.close, store.Close)
	return action(ctx, cmd, store)
}

// errNoStore is that there are no images to look at.
var errNoStore = errors.New("the image store does not exist")

// findStore refuses a --root without a store, which may be a slip: what brings images makes one, in
// a folder that is there or is the default.
func findStore(p places, command string) error {
	want := p.images()
	if command == "pull" || command == "import" || command == "pack" {
		if p.root == defaultPlaces().root {
			return nil
		}
		want = p.root
	}
	_, err := os.Stat(want)
	switch {
	case errors.Is(err, fs.ErrNotExist) && want == p.root:
		return fmt.Errorf("the folder --root %s does not exist: make it, for a new store", p.root)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w below --root %s, and no server runs with --state %s", errNoStore, p.root, p.state)
	}
	return err
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
	var auth registry.Credentials
	if creds := cmd.String("creds"); creds != "" {
		var given bool
		if auth.Username, auth.Password, given = strings.Cut(creds, ":"); !given {
			password, err := io.ReadAll(io.LimitReader(os.Stdin, 64<<10))
			if err != nil {
				return fmt.Errorf("read password: %w", err)
			}
			auth.Password = strings.TrimRight(string(password), "\r\n")
		}
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
	return show.Images(cmd.Root().Writer, []images.Image{img}, cmd.Bool("json"))
}

func listImages(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if err := noArguments(cmd); err != nil {
		return err
	}
	imgs, err := store.List(ctx)
	if err != nil {
		return err
	}
	return show.Images(cmd.Root().Writer, imgs, cmd.Bool("json"))
}

func inspectImage(ctx context.Context, cmd *cli.Command, store control.Store) error {
	name, err := argument(cmd)
	if err != nil {
		return err
	}
	img, err := store.Find(ctx, name, cmd.String("handler"))
	if err != nil {
		return err
	}
	return show.Inspect(cmd.Root().Writer, img)
}

func removeImages(ctx context.Context, cmd *cli.Command, store control.Store) error {
	if cmd.NArg() == 0 {
		return errors.New("images remove: want a name or an id")
	}
	var errs []error
	var removed []string
	for _, name := range cmd.Args().Slice() {
		_, err := store.Find(ctx, name, "")
		if err == nil {
			err = store.Remove(ctx, name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, name)
	}
	return errors.Join(append(errs, show.Names(cmd.Root().Writer, "removed", removed, cmd.Bool("json")))...)
}

func importImages(ctx context.Context, cmd *cli.Command, store control.Store) error {
	file, name, err := modulepod.ImportArguments(cmd)
	if err != nil {
		return err
	}
	if modulepod.IsModule(file) {
		return modulepod.Import(ctx, cmd, store, file, name)
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
	return errors.Join(err, show.Images(cmd.Root().Writer, imgs, cmd.Bool("json")))
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
		if !d.Repaired && !d.Dropped {
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
