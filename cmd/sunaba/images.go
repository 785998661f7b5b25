package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/cmd/sunaba/imagecmd"
)

func imageCommands() imagecmd.Options {
	return imagecmd.Options{WithStore: withImages, Flags: append(placeFlags()[:3:3], logFlags()...)}
}

// withImages calls an action with the store of the server that runs, or the one below --root.
func withImages(ctx context.Context, cmd *cli.Command, action func(context.Context, *cli.Command, control.Store) error) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("images: must run as root")
	}
	p := places{root: cmd.String("root"), state: cmd.String("state")}
	if err := p.resolve(); err != nil {
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
		if p.standard {
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
