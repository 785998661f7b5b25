package modulepod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/wasm"
	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/pack"
)

// WithStore calls an action with the store of the node.
type WithStore func(ctx context.Context, cmd *cli.Command, action func(context.Context, *cli.Command, control.Store) error) error

// PackCommand makes an image of a module. common are the flags that say where the store is, --json
// and --handler.
func PackCommand(withStore WithStore, common ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "pack",
		Usage:     "make an image of a WebAssembly module or component",
		ArgsUsage: "MODULE NAME[:TAG]",
		Description: "The image has the module in its root folder, the files of --file, and the module as its entrypoint. It is stored\n" +
			"under its name, as a pull would store it, or written to --output. The same input gives the same digest.",
		Flags: append(common,
			&cli.StringSliceFlag{Name: "file", Usage: "`HOST:GUEST`, a file or folder for the image; may be repeated"},
			&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "`NAME=VALUE`, or NAME for the one that this command has; may be repeated"},
			&cli.StringSliceFlag{Name: "entrypoint", Usage: "`WORD` of the entrypoint, in place of the module; may be repeated"},
			&cli.StringSliceFlag{Name: "cmd", Usage: "`WORD` of the arguments; may be repeated"},
			&cli.StringFlag{Name: "workdir", Usage: "working `DIRECTORY` in the image"},
			&cli.StringFlag{Name: "format", Usage: "image, or artifact for the module alone: `FORMAT`", Value: "image"},
			&cli.StringFlag{Name: "with-linux", Usage: "add the Linux variant: `DIR`, a root file system, or IMAGE, one that is present"},
			&cli.StringSliceFlag{Name: "linux-entrypoint", Usage: "`WORD` of the entrypoint of the variant from DIR, in place of the program with the module's name; may be repeated"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write an OCI layout to `FILE` instead, a folder if it ends with /; - is stdout"},
		),
		DisableSliceFlagSeparator: true,
		Action:                    func(ctx context.Context, cmd *cli.Command) error { return packModule(ctx, cmd, withStore) },
	}
}

// packOptions reads what an image is made of from the command line; the Linux variant may need the
// store.
func packOptions(cmd *cli.Command) (o pack.Options, linuxImage string, err error) {
	if cmd.NArg() != 2 {
		return o, "", fmt.Errorf("images pack: want a module and a name, not %d arguments", cmd.NArg())
	}
	o = pack.Options{Module: cmd.Args().Get(0), Name: cmd.Args().Get(1)}
	switch cmd.String("format") {
	case "image":
	case "artifact":
		o.Artifact = true
	default:
		return o, "", fmt.Errorf("images pack: --format %s is neither image nor artifact", cmd.String("format"))
	}
	for _, text := range cmd.StringSlice("file") {
		f, err := pack.ParseFile(text)
		if err != nil {
			return o, "", err
		}
		o.Files = append(o.Files, f)
	}
	o.Config = ocispec.ImageConfig{Entrypoint: cmd.StringSlice("entrypoint"), Cmd: cmd.StringSlice("cmd"), WorkingDir: cmd.String("workdir")}
	if o.Config.Env, err = wasm.ParseEnv(cmd.StringSlice("env")); err != nil {
		return o, "", err
	}
	linux, entrypoint := cmd.String("with-linux"), cmd.StringSlice("linux-entrypoint")
	info, err := os.Stat(linux)
	isDir := err == nil && info.IsDir()
	if len(entrypoint) > 0 && !isDir {
		return o, "", errors.New("images pack: --linux-entrypoint needs --with-linux and a folder: an image has its own")
	}
	if isDir {
		o.Linux = &pack.Linux{Dir: linux, Entrypoint: entrypoint}
		linux = ""
	}
	return o, linux, nil
}

func packModule(ctx context.Context, cmd *cli.Command, withStore WithStore) error {
	o, linuxImage, err := packOptions(cmd)
	if err != nil {
		return err
	}
	to := cmd.String("output")
	if to == "" && os.Geteuid() != 0 {
		return errors.New("images pack: must run as root to store the image; others write it with --output")
	}
	made := func(store control.Store) error {
		img, err := New(ctx, o)
		if err != nil {
			return err
		}
		defer img.Close()
		if to != "" {
			return writePacked(ctx, cmd, img, to)
		}
		format := output.Table
		if cmd.Bool("json") {
			format = output.JSON
		}
		return storePacked(ctx, cmd, store, img, format)
	}
	if to != "" && linuxImage == "" {
		return made(nil)
	}
	if _, err := Check(o.Module); err != nil { // before a store is looked for
		return err
	}
	return withStore(ctx, cmd, func(ctx context.Context, _ *cli.Command, store control.Store) error {
		if linuxImage == "" {
			return made(store)
		}
		return Exported(ctx, store, linuxImage, func(l *layout.Layout) error {
			o.Linux = &pack.Linux{Layout: l}
			return made(store)
		})
	})
}

// writePacked writes an image to where it is wanted, and says which it is.
func writePacked(ctx context.Context, cmd *cli.Command, img *pack.Image, to string) error {
	if info, err := os.Stat(to); err == nil && info.IsDir() && !strings.HasSuffix(to, "/") {
		to += "/"
	}
	if err := show.Export(cmd.Root().Writer, to, func(w io.Writer) error { return img.Write(ctx, w) }); err != nil {
		return err
	}
	if to == "-" {
		return nil
	}
	_, err := fmt.Fprintf(cmd.Root().Writer, "%s@%s in %s\n", img.Name(), img.Digest(), to)
	return err
}

// storePacked stores an image and shows its variants.
func storePacked(ctx context.Context, cmd *cli.Command, store control.Store, img *pack.Image, format string) error {
	imgs, err := Store(ctx, store, img, cmd.String("handler"), show.NewProgress(cmd.Root().ErrWriter, img.Name()))
	if err != nil {
		return err
	}
	if strings.HasSuffix(img.Name(), ":latest") {
		fmt.Fprintln(cmd.Root().ErrWriter, "sunaba: pods pull the tag latest anew, unless their imagePullPolicy is IfNotPresent or Never: another tag is simpler")
	}
	return show.Brought(ctx, cmd, store, format, "", imgs...)
}

// Import packs a module and stores it, under a name of its file's if it gets none.
func Import(ctx context.Context, cmd *cli.Command, store control.Store, file, name, format string) error {
	name = cmp.Or(name, Name(file))
	img, err := New(ctx, pack.Options{Module: filepath.Clean(file), Name: name})
	if err != nil {
		return err
	}
	defer img.Close()
	return storePacked(ctx, cmd, store, img, format)
}

// ImportArguments are what to import and the name for it, of the flag or of the second argument.
func ImportArguments(cmd *cli.Command) (file, name string, err error) {
	file, name = cmd.Args().First(), cmd.String("name")
	switch {
	case cmd.NArg() < 1 || cmd.NArg() > 2:
		return "", "", fmt.Errorf("images import: want one argument and perhaps a name, not %d", cmd.NArg())
	case cmd.NArg() == 2 && name != "":
		return "", "", errors.New("images import: the name is given twice")
	case cmd.NArg() == 2:
		name = cmd.Args().Get(1)
	}
	return file, name, nil
}
